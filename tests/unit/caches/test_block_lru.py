"""Block LRU and stack distances: small cases, and the published trace where it is at hand."""

import gzip
import json
import os
from pathlib import Path

import pytest

from promptlint.caches.block_lru import BlockLru, BlockRequest, Chains
from promptlint.caches.request import Request, pack
from promptlint.caches.stack_distances import StackDistances


def request(*blocks, length=None, size=4):
    return BlockRequest(0, blocks, len(blocks) * size if length is None else length, size)


def test_the_partial_last_block_counts():
    cache = BlockLru()
    cache.admit(request("a", "b", length=6))
    found = cache.admit(request("a", "b", length=6))
    assert (found.hits, found.cached_tokens) == (2, 6)


def test_only_a_leading_run_hits():
    cache = BlockLru()
    cache.admit(request("a", "b", "c"))
    assert cache.lookup(request("x", "b", "c")).hits == 0
    assert cache.lookup(request("a", "x", "c")).hits == 1


def test_blocks_are_touched_last_to_first_so_the_tail_goes_first():
    cache = BlockLru(3)
    cache.admit(request("a", "b", "c"))
    assert cache.admit(request("x")).evicted == 1
    assert cache.lookup(request("a", "b", "c")).hits == 2


def test_a_request_longer_than_the_capacity_keeps_its_beginning():
    cache = BlockLru(2)
    cache.admit(request("a", "b", "c", "d"))
    assert cache.lookup(request("a", "b", "c", "d")).hits == 2


def test_the_curve_ends_where_nothing_more_is_gained():
    distances = StackDistances()
    for blocks in ("ab", "cd", "ab"):
        distances.admit(request(*blocks))
    assert distances.rates(3) == (pytest.approx(1 / 6), pytest.approx(1 / 6))
    assert list(distances.knees()) == [1, 2, 4]
    assert distances.rates(4) == distances.rates(None) == (pytest.approx(2 / 6), pytest.approx(2 / 6))
    assert StackDistances().rates(None) == (0.0, 0.0)


def test_names_of_token_blocks_are_no_hash_ids():
    named = Chains(2).blocks(Request(0, pack([7, 7, 8, 8])))
    cache = BlockLru()
    cache.admit(request(*range(-4, 9)))
    assert cache.admit(named).hits == 0
    assert cache.admit(named).hits == 2


@pytest.mark.data
def test_mooncake():
    """One hour of production chat (FAST'25): the ratios that an independent script computed."""
    path = Path(os.environ.get("PROMPTLINT_DATA", "")) / "mooncake_conversation.jsonl.gz"
    if not path.is_file():
        pytest.skip("not run: PROMPTLINT_DATA has no mooncake_conversation.jsonl.gz")
    distances = StackDistances()
    with gzip.open(path) as lines:
        for line in lines:
            row = json.loads(line)
            distances.admit(BlockRequest(0, row["hash_ids"], row["input_length"], 512))
    assert [round(rate, 4) for rate in distances.rates(None)] == [0.3664, 0.3736]
    capacities = (1_000, 3_000, 5_859, 10_000, 20_000, 30_000, 50_000, 100_000)
    assert [round(distances.rates(capacity)[0], 4) for capacity in capacities] == [
        0.0445, 0.0653, 0.1361, 0.2116, 0.2878, 0.3257, 0.3546, 0.3637,
    ]  # fmt: skip
