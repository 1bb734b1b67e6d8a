"""vLLM's paged cache by hand."""

import pytest

from promptlint.caches.paged import PagedCache
from promptlint.caches.request import Request, pack, unpack
from promptlint.errors import UserError


def request(tokens, output=(), **more):
    return Request(0, pack(tokens), pack(output), **more)


def queue(cache):
    return [(list(unpack(node.run)), count) for node, count in cache.free_blocks()]


def test_the_exact_repeat_hits_124_blocks_and_the_longer_prompt_125():
    cache = PagedCache()
    cache.admit(request(range(2_000)))
    assert cache.admit(request(range(2_000))).cached_tokens == 124 * 16
    assert cache.admit(request(range(2_001))).cached_tokens == 125 * 16


def test_only_full_blocks_are_cached():
    cache = PagedCache(block_size=4)
    assert cache.admit(request(range(7))).written_tokens == 4
    assert cache.lookup(request(range(9))).cached_tokens == 4


def test_an_answer_fills_the_last_block():
    cache = PagedCache(block_size=4)
    cache.admit(request([0, 1, 2], [3, 4]))
    assert cache.lookup(request([0, 1, 2, 3, 4])).cached_tokens == 4
    cache = PagedCache(block_size=4)
    cache.admit(request([0, 1, 2], [3]))  # the last sampled token is never computed
    assert cache.lookup(request([0, 1, 2, 3, 4])).cached_tokens == 0


def test_an_empty_salt_is_none():
    cache = PagedCache(block_size=1)
    cache.admit(request([1, 2], namespace=""))
    assert cache.lookup(request([1, 2])).cached_tokens == 1
    assert cache.lookup(request([1, 2], namespace="a")).cached_tokens == 0


def test_blocks_are_freed_deepest_first_and_leave_one_by_one():
    cache = PagedCache(6, 1)
    cache.admit(request([1, 2, 3, 4]))
    cache.admit(request([1, 2, 7]))
    # 3 4 waits at the head and will lose its deep end first; the shared 1 2 comes last
    assert queue(cache) == [([3, 4], 2), ([7], 1), ([1, 2], 2)]
    outcome = cache.admit(request([8, 8]))
    assert outcome.evicted_tokens == 1
    assert queue(cache) == [([3], 1), ([7], 1), ([1, 2], 2), ([8, 8], 2)]


def test_equal_blocks_are_not_merged_and_the_older_one_is_found():
    cache = PagedCache(8, 2)
    cache.admit(request([1, 2, 3, 4]))
    cache.admit(request([1, 2, 3, 4]))  # the block of 3 4 is computed again, beside the first
    assert queue(cache) == [([3, 4], 1), ([3, 4], 1), ([1, 2], 1)]
    cache.admit(request([1, 2, 3, 4, 5]))  # takes the first of the two, which goes back to the tail
    assert [tokens for tokens, _ in queue(cache)] == [[3, 4], [3, 4], [1, 2]]
    assert cache.evicted == 0


def test_a_request_longer_than_the_pool_is_refused():
    cache = PagedCache(32, 16)
    assert cache.admit(request(range(33))).refused == "needs 48 tokens of KV memory"
    with pytest.raises(UserError):
        PagedCache(32, 0)
