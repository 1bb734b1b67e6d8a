"""SGLang's radix cache by hand."""

import pytest

from promptlint.caches.radix import RadixCache
from promptlint.caches.request import Request, common_prefix, pack, unpack
from promptlint.errors import UserError


def request(tokens, output=(), **more):
    return Request(more.pop("id", 0), pack(tokens), pack(output), **more)


def runs(cache):
    return sorted(list(unpack(node.run)) for node in cache.nodes())


def test_packing_is_lossless_and_refuses_what_is_no_token():
    assert list(unpack(pack([0, 7, 2**32 - 1]))) == [0, 7, 2**32 - 1]
    assert pack([1, 256]) == b"\1\0\0\0\0\1\0\0"
    for wrong in ([-1], [2**32]):
        with pytest.raises(OverflowError):
            pack(wrong)
    with pytest.raises(TypeError):
        pack(["1"])


def test_common_prefix_does_not_look_beyond_the_end():
    assert common_prefix(b"abcdef", b"xxabcdef", 2, 5) == 3
    assert common_prefix(b"abcdef", b"xxabXdef", 2, 8) == 2
    assert common_prefix(b"", b"abc", 0, 3) == 0


def test_the_last_token_is_always_computed():
    cache = RadixCache()
    assert cache.admit(request(range(100))).cached_tokens == 0
    assert cache.admit(request(range(100))).cached_tokens == 99
    assert cache.admit(request(range(101))).cached_tokens == 100


def test_a_prompt_of_whole_pages_loses_a_page_when_repeated():
    cache = RadixCache(page_size=16)
    cache.admit(request(range(2_000)))
    assert cache.admit(request(range(2_000))).cached_tokens == 1_984
    assert cache.admit(request(range(2_001))).cached_tokens == 2_000


def test_a_node_splits_where_prompts_part():
    cache = RadixCache()
    cache.admit(request([1, 2, 3, 4]))
    cache.admit(request([1, 2, 9]))
    assert runs(cache) == [[1, 2], [3, 4], [9]]


def test_a_look_up_changes_nothing():
    cache = RadixCache()
    cache.admit(request([1, 2, 3, 4]))
    assert cache.lookup(request([1, 2, 9])).cached_tokens == 2
    assert runs(cache) == [[1, 2, 3, 4]]


def test_the_answer_is_cached_without_its_last_token_in_a_leaf_of_its_own():
    cache = RadixCache()
    cache.admit(request([1, 2], [3, 4, 5]))
    assert runs(cache) == [[1, 2], [3, 4]]
    assert cache.lookup(request([1, 2, 3, 4, 5, 6])).cached_tokens == 4


def test_namespaces_share_nothing_and_an_empty_one_is_a_namespace():
    cache = RadixCache()
    cache.admit(request([1, 2, 3], namespace="a"))
    for other in (None, "", "b"):
        assert cache.lookup(request([1, 2, 3], namespace=other)).cached_tokens == 0
    cache.admit(request([1, 2, 3], namespace=""))
    assert cache.lookup(request([1, 2, 3], namespace=None)).cached_tokens == 0


def test_whole_leaves_are_evicted_oldest_first():
    cache = RadixCache(10)
    cache.admit(request([1, 1, 1, 1]))
    cache.admit(request([2, 2, 2, 2]))
    cache.admit(request([1, 1, 1, 1]))
    outcome = cache.admit(request([3, 3, 3]))
    assert outcome.evicted_tokens == 4  # one token was missing, the whole leaf went
    assert cache.lookup(request([1, 1, 1, 1])).cached_tokens == 3
    assert cache.lookup(request([2, 2, 2, 2])).cached_tokens == 0


@pytest.mark.parametrize(
    ("eviction", "gone"), [("lru", 1), ("fifo", 1), ("mru", 2), ("filo", 2), ("lfu", 2), ("slru", 2)]
)
def test_strategies_choose_different_leaves(eviction, gone):
    """1 is older and was inserted through twice, 2 is newer and came last."""
    cache = RadixCache(6, eviction=eviction)
    cache.admit(request([1, 1]))
    cache.admit(request([1, 1]))
    cache.admit(request([2, 2]))
    cache.admit(request([3, 3, 3]))
    assert cache.lookup(request([gone, gone, 0])).cached_tokens < 2
    assert cache.lookup(request([3 - gone, 3 - gone, 0])).cached_tokens == 2


def test_priority_keeps_what_is_worth_more():
    cache = RadixCache(6, eviction="priority")
    cache.admit(request([1, 1], priority=5))
    cache.admit(request([2, 2], priority=1))
    cache.admit(request([3, 3, 3]))
    assert cache.lookup(request([1, 1])).cached_tokens == 1
    assert cache.lookup(request([2, 2])).cached_tokens == 0


def test_a_request_longer_than_the_memory_is_refused_and_changes_nothing():
    cache = RadixCache(4)
    cache.admit(request([1, 2, 3]))
    outcome = cache.admit(request([1, 2, 3, 4], [5, 6]))
    assert outcome.refused == "needs 5 tokens of KV memory"
    assert runs(cache) == [[1, 2, 3]]


def test_kept_tokens_replace_prompt_and_answer():
    cache = RadixCache()
    cache.admit(request([1, 2, 9], kept=pack([1, 2, 3, 4])))
    assert cache.lookup(request([1, 2, 3, 4, 5])).cached_tokens == 4
    assert cache.lookup(request([1, 2, 9, 9])).cached_tokens == 2


def test_wrong_settings_are_the_users_turn():
    for wrong in ({"page_size": 0}, {"chunk": -1}, {"eviction": "best"}):
        with pytest.raises(UserError):
            RadixCache(**wrong)
