"""Provider caches: what the terms say is what happens."""

from dataclasses import replace

import pytest

from promptlint.caches.breakpoint import ProviderCache
from promptlint.caches.request import Request, pack
from promptlint.catalog.providers import Terms, load_providers, resolve

BLOCK = Terms("p", "P", "m", "block", block=128, minimum=1024, ttls=(("5m", 300),))
MARKS = Terms("p", "P", "m", "breakpoint", minimum=100, max_breakpoints=4, lookback=2, ttls=(("5m", 300), ("1h", 3600)))


def request(tokens, at=0.0, **more):
    return Request(0, pack(tokens), timestamp=at, **more)


def test_blocks_and_minimum():
    cache = ProviderCache(BLOCK)
    assert cache.admit(request(range(1_023))).written_tokens == 0
    assert cache.admit(request(range(1_300))).written_tokens == 1_280
    assert cache.lookup(request(range(1_300))).cached_tokens == 1_280
    assert cache.lookup(request(range(1_100))).cached_tokens == 1_024
    assert cache.lookup(request([*range(1_023), 7, 7])).cached_tokens == 0  # one token short of the minimum
    assert (
        cache.lookup(request(range(1_024))).cached_tokens == 0
    )  # its last token is computed: 896 is below the minimum


def test_token_mode_takes_any_prefix():
    cache = ProviderCache(replace(BLOCK, mode="token", block=1, minimum=10))
    cache.admit(request(range(100)))
    assert cache.lookup(request([*range(57), 0])).cached_tokens == 57
    assert cache.lookup(request([*range(9), 0])).cached_tokens == 0


@pytest.mark.parametrize(("refresh", "found"), [(True, 1_280), (False, 0)])
def test_reads_refresh_a_lifetime_only_where_the_terms_say_so(refresh, found):
    cache = ProviderCache(replace(BLOCK, ttl_refresh=refresh))
    cache.admit(request(range(1_300), 0))
    assert cache.admit(request(range(1_300), 200)).cached_tokens == 1_280
    assert cache.lookup(request(range(1_300), 400)).cached_tokens == found
    assert cache.lookup(request(range(1_300), 600)).cached_tokens == 0


def test_what_was_written_can_be_read_after_the_answer_began():
    cache = ProviderCache(BLOCK, delay=2.0)
    cache.admit(request(range(1_300), 10.0))
    assert cache.admit(request(range(1_300), 11.0)).cached_tokens == 0
    assert cache.lookup(request(range(1_300), 12.0)).cached_tokens == 1_280


def test_only_a_mark_stores_and_only_an_end_point_is_found():
    cache = ProviderCache(MARKS)
    assert cache.admit(request(range(300))).written_tokens == 0
    assert cache.admit(request(range(300), breakpoints=(200,))).written_tokens == 200
    assert cache.lookup(request([*range(200), 9, 9], breakpoints=(200,))).cached_tokens == 200
    assert cache.lookup(request([*range(150), 9, 9], breakpoints=(150,))).cached_tokens == 0  # no end point there
    assert cache.lookup(request(range(300))).cached_tokens == 0  # no mark, no look


def test_a_mark_looks_back_over_the_blocks_before_it():
    cache = ProviderCache(MARKS)
    cache.admit(request(range(200), breakpoints=(200,), stops=(200,)))
    grown = list(range(500))
    near = request(grown, breakpoints=(400,), stops=(200, 300, 400, 500))
    assert cache.lookup(near).cached_tokens == 200
    far = request(grown, breakpoints=(500,), stops=(200, 300, 400, 500))
    assert cache.lookup(far).cached_tokens == 0  # two blocks back is 300
    assert cache.admit(near).written_tokens == 200  # from 200 to 400


def test_a_prefix_below_the_minimum_is_not_stored():
    cache = ProviderCache(MARKS)
    cache.admit(request(range(300), breakpoints=(99, 250)))
    assert cache.lookup(request([*range(99), 7, 7], breakpoints=(99,))).cached_tokens == 0
    assert cache.lookup(request(range(300), breakpoints=(250,))).cached_tokens == 250


def test_only_the_last_marks_of_too_many_are_kept():
    cache = ProviderCache(MARKS)
    cache.admit(request(range(600), breakpoints=(110, 200, 300, 400, 500)))
    assert cache.lookup(request([*range(110), 7], breakpoints=(110,))).cached_tokens == 0
    assert cache.lookup(request([*range(200), 7], breakpoints=(200,))).cached_tokens == 200


def test_too_many_marks_are_refused_where_the_provider_does():
    cache = ProviderCache(replace(MARKS, over_limit="refused"))
    outcome = cache.admit(request(range(600), breakpoints=(110, 200, 300, 400, 500)))
    assert outcome.refused == "P refuses more than 4 markers, here are 5"
    assert (outcome.cached_tokens, outcome.written_tokens) == (0, 0)
    assert cache.lookup(request(range(600), breakpoints=(500,))).cached_tokens == 0  # a refused request stored nothing
    assert cache.admit(request(range(600), breakpoints=(200, 300, 400, 500))).refused is None


def test_an_implicit_mark_stands_at_the_end_of_the_prompt():
    cache = ProviderCache(replace(MARKS, implicit="latest-message", lookback=20))
    cache.admit(request(range(300), stops=(300,)))
    assert cache.lookup(request(range(400), stops=(300, 400))).cached_tokens == 300


def test_another_lifetime_and_an_unpublished_one():
    cache = ProviderCache(MARKS, ttl="1h")
    cache.admit(request(range(300), 0, breakpoints=(300,)))
    assert cache.lookup(request(range(301), 3_000, breakpoints=(300,))).cached_tokens == 300
    endless = ProviderCache(replace(MARKS, ttls=()))
    endless.admit(request(range(300), 0, breakpoints=(300,)))
    assert endless.lookup(request(range(301), 1e9, breakpoints=(300,))).cached_tokens == 300


def test_namespaces_share_nothing():
    for terms, more in ((BLOCK, {}), (MARKS, {"breakpoints": (1_200,)})):
        cache = ProviderCache(terms)
        cache.admit(request(range(1_300), namespace="a", **more))
        assert cache.lookup(request(range(1_300), namespace="b", **more)).cached_tokens == 0
        assert cache.lookup(request(range(1_300), namespace="a", **more)).cached_tokens > 1_000


@pytest.mark.parametrize("name", sorted(load_providers()))
def test_every_provider_of_the_tables_runs(name):
    terms = resolve(load_providers()[name])
    cache = ProviderCache(terms)
    size = max(2_000, 2 * terms.minimum)
    first = request(range(size), 0.0, breakpoints=(size,), stops=(size,))
    grown = request(range(size + 500), 1.0, breakpoints=(size, size + 500), stops=(size, size + 500))
    assert cache.admit(first).cached_tokens == 0
    assert cache.lookup(grown).cached_tokens >= size - max(64, terms.block)
