"""The caches against brute force, and what must hold after every step."""

from collections import deque
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptlint.caches.block_lru import BlockLru, BlockRequest, Chains
from promptlint.caches.bounds import Bounds
from promptlint.caches.endless import EndlessCache
from promptlint.caches.eviction import STRATEGIES
from promptlint.caches.fleet import Fleet, RoundRobin
from promptlint.caches.paged import PagedCache
from promptlint.caches.paged_scheduler import PagedScheduler
from promptlint.caches.radix import TREES, RadixCache
from promptlint.caches.radix_scheduler import POLICIES, RadixScheduler
from promptlint.caches.request import TOKEN_BYTES, Request, common_prefix, pack, unpack
from promptlint.caches.schedule import closed_loop
from promptlint.caches.stack_distances import StackDistances

FAST = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
UNITS = st.sampled_from([1, 2, 3, 4])


@st.composite
def traces(draw, most=30):
    """Requests over a tiny alphabet that continue, repeat and branch off earlier ones."""
    made = []
    history = [[]]
    for index in range(draw(st.integers(1, most))):
        base = draw(st.sampled_from(history[-8:]))
        base = base[: draw(st.integers(0, len(base)))]
        tokens = (base + draw(st.lists(st.integers(0, 2), max_size=9)))[:24] or [0]
        output = draw(st.lists(st.integers(0, 2), max_size=6))
        namespace = draw(st.sampled_from([None, None, None, "a", ""]))
        priority = draw(st.sampled_from([None, 0, 1, 2]))
        made.append(Request(index, pack(tokens), pack(output), namespace=namespace, priority=priority))
        history.append(tokens + output)
    return made


def brute_force(requests, unit, *, empty_is_none=False):
    """floor(min(len - 1, longest common prefix with an earlier prompt + output[:-1], in whole units of it), unit)."""
    stored = {}
    for request in requests:
        namespace = request.namespace or None if empty_is_none else request.namespace
        prompt = list(unpack(request.prompt))
        best = 0
        for old in stored.setdefault(namespace, []):
            same = 0
            while same < min(len(old), len(prompt)) and old[same] == prompt[same]:
                same += 1
            best = max(best, min(same, len(old) // unit * unit))
        stored[namespace].append(list(unpack(request.stored)))
        yield min(best, len(prompt) - 1) // unit * unit


@FAST
@given(
    st.binary(max_size=12),
    st.binary(max_size=12),
    st.integers(0, 3),
    st.sampled_from([b"", b"as long as a few pages " * 40]),
)
def test_common_prefix(run, tokens, at, same):
    run, tokens = same + run, tokens[:at] + same + tokens[at:]
    end = len(tokens)
    at = min(at, end)
    want = 0
    while want < min(len(run), end - at) and run[want] == tokens[at + want]:
        want += 1
    assert common_prefix(run, tokens, at, end) == want


@FAST
@given(traces(), UNITS, st.sampled_from(TREES), st.sampled_from([0, 1, 3]))
def test_radix_without_eviction_is_the_longest_common_prefix(requests, page, tree, chunk):
    cache = RadixCache(None, page, tree=tree, chunk=chunk)
    for request, want in zip(requests, brute_force(requests, page), strict=True):
        assert cache.lookup(request).cached_tokens == want
        assert cache.admit(request).cached_tokens == want


@FAST
@given(traces(), UNITS)
def test_paged_without_eviction_is_the_longest_common_prefix(requests, block):
    cache = PagedCache(None, block)
    for request, want in zip(requests, brute_force(requests, block, empty_is_none=True), strict=True):
        assert cache.lookup(request).cached_tokens == want
        assert cache.admit(request).cached_tokens == want


def check_radix(cache, written):
    """Sizes add up, runs are whole pages below their parents, and only what was written and not evicted is there."""
    resident = 0
    for node in cache.nodes():
        assert node.run
        assert len(node.run) % (cache.page_size * TOKEN_BYTES) == 0
        assert node.parent.children[node.key] is node
        assert node.locks == 0
        resident += node.tokens
    assert cache.free + resident == cache.capacity
    assert cache.evictable == resident
    assert resident == written - cache.evicted


@FAST
@given(
    traces(),
    UNITS,
    st.sampled_from(list(STRATEGIES)),
    st.sampled_from(TREES),
    st.integers(8, 60),
    st.sampled_from([0, 2]),
)
def test_radix_under_eviction(requests, page, eviction, tree, capacity, chunk):
    cache = RadixCache(capacity, page, eviction=eviction, tree=tree, chunk=chunk)
    written = 0
    for request in requests:
        expected = cache.lookup(request).cached_tokens
        outcome = cache.admit(request)
        if outcome.refused is None:
            assert outcome.cached_tokens == expected
        written += outcome.written_tokens
        check_radix(cache, written)


class Blocks:
    """vLLM's pool as the engine keeps it: one record per block, one queue of blocks."""

    def __init__(self, count, size):
        self.size = size
        self.hash = [None] * count
        self.queue = deque(range(count))
        self.cached = {}  # hash -> blocks in the order in which they got it

    def admit(self, request):
        size = self.size
        tokens = unpack(request.stored)
        hashes, parent = [], request.namespace or None
        for end in range(size, len(tokens) + 1, size):
            parent = (parent, tuple(tokens[end - size : end]))
            hashes.append(parent)
        hits = []
        for one in hashes[: (request.prompt_tokens - 1) // size]:
            if not self.cached.get(one):
                break
            hits.append(self.cached[one][0])
        need = -(-len(tokens) // size)
        if need > len(self.hash):
            return None
        for block in hits:
            self.queue.remove(block)
        table = list(hits)
        while len(table) < need:
            block = self.queue.popleft()
            if self.hash[block] is not None:
                self.cached[self.hash[block]].remove(block)
                self.hash[block] = None
            table.append(block)
        for block, one in list(zip(table, hashes, strict=False))[len(hits) :]:
            self.hash[block] = one
            self.cached.setdefault(one, []).append(block)
        for block in reversed(table):
            if self.hash[block] is None:
                self.queue.appendleft(block)
            else:
                self.queue.append(block)
        return len(hits) * size


@FAST
@given(traces(most=60), UNITS, st.integers(8, 60))
def test_paged_under_eviction_is_the_engine_block_by_block(requests, block, capacity):
    cache = PagedCache(capacity, block)
    engine = Blocks(capacity // block, block)
    for request in requests:
        want = engine.admit(request)
        outcome = cache.admit(request)
        if want is None:
            assert outcome.refused is not None
            continue
        assert outcome.cached_tokens == want
        queued = sum(count for _, count in cache.free_blocks())
        assert queued == sum(one is not None for one in engine.hash)
        assert cache.free == capacity // block


@FAST
@given(
    traces(),
    UNITS,
    st.sampled_from(POLICIES),
    st.integers(30, 120),
    st.integers(1, 12),
    st.sampled_from([8, 64]),
    st.sampled_from([0, 4]),
)
def test_sglang_schedules_serve_all_and_lose_nothing(requests, page, policy, capacity, window, batch, chunk):
    cache = RadixCache(capacity, page, chunk=chunk * page)
    scheduler = RadixScheduler(cache, policy, max_prefill_tokens=batch)
    done = list(closed_loop(scheduler, requests, window))
    assert sorted(one.request.id for one in done) == [request.id for request in requests]
    resident = sum(node.tokens for node in cache.nodes())
    assert all(node.locks == 0 for node in cache.nodes())
    assert cache.free + resident == cache.capacity
    assert cache.evictable == resident


@FAST
@given(
    traces(),
    UNITS,
    st.sampled_from(["fcfs", "priority"]),
    st.integers(30, 120),
    st.integers(1, 12),
    st.sampled_from([4, 16, 64]),
)
def test_vllm_schedules_serve_all_and_lose_nothing(requests, block, policy, capacity, window, budget):
    cache = PagedCache(capacity, block)
    scheduler = PagedScheduler(cache, policy, max_batched_tokens=budget)
    done = list(closed_loop(scheduler, requests, window))
    assert sorted(one.request.id for one in done) == [request.id for request in requests]
    assert cache.free == cache.blocks
    for node, _ in cache.free_blocks():
        assert all(copy.refs == 0 for copy in node.copies)


@FAST
@given(traces(), st.integers(1, 3))
def test_a_locked_node_is_never_evicted(requests, held):
    cache = RadixCache(40)
    holds = []
    for request in requests[:held]:
        hold = cache.open(request, request.prompt)
        cache.extend(hold, len(request.prompt))
        cache.checkpoint(hold, request.prompt, len(request.prompt))
        holds.append((request, hold))
    before = cache.free
    for request in requests[held:]:
        if request.prompt_tokens + request.output_tokens <= before + cache.evictable:
            cache.admit(request)
        for kept, hold in holds:
            assert sum(len(node.run) for node in path(cache, hold.node)) == len(kept.prompt)
    cache.evict(1_000)
    alive = set(cache.nodes())
    for _, hold in holds:
        assert all(node in alive for node in path(cache, hold.node))


def path(cache, node):
    while node is not cache.root:
        yield node
        node = node.parent


@FAST
@given(traces(), UNITS, st.integers(8, 80), st.sampled_from(list(STRATEGIES)))
def test_no_run_passes_the_bounds(requests, page, capacity, eviction):
    bounds = Bounds(capacity // page * page, page)
    cache = RadixCache(capacity, page, eviction=eviction)
    unlimited = RadixCache(None, page)
    found = content = 0
    for request in requests:
        outcome = cache.admit(request)
        if outcome.refused is not None:
            continue
        found += outcome.cached_tokens
        content += unlimited.admit(request).cached_tokens
        bounds.add(request)
    tokens = bounds.tokens()
    assert found <= tokens.capacity <= tokens.content == content


def keeping(request, extra, draw):
    """The request, of which something else than prompt and answer is stored."""
    if extra < 3:
        return replace(request, kept=request.prompt[:-TOKEN_BYTES] + pack([1] * extra))
    after = draw(st.integers(0, request.prompt_tokens))
    return replace(request, kept=pack(draw(st.lists(st.integers(0, 2), max_size=6))), kept_after=after)


@FAST
@given(traces(), UNITS, st.sampled_from(TREES), st.sampled_from([0, 2]), st.data())
def test_the_cache_that_never_forgets_is_the_radix_cache_without_limit(requests, page, tree, chunk, data):
    """Outcome by outcome, also where something else than prompt and answer is stored, or behind a part of the prompt; a look-up changes nothing."""
    cut = data.draw(st.lists(st.integers(0, 5), min_size=len(requests), max_size=len(requests)))
    requests = [
        keeping(request, extra, data.draw) if extra else request for request, extra in zip(requests, cut, strict=True)
    ]
    radix, endless, bounds = RadixCache(None, page, tree=tree, chunk=chunk), EndlessCache(page), Bounds(None, page)
    for request in requests:
        bounds.add(request)
        expected = radix.admit(request)
        assert endless.lookup(request).cached_tokens == expected.cached_tokens
        assert endless.admit(request) == expected
    assert endless.depth_first == bounds.tokens().depth_first


@FAST
@given(traces(), UNITS)
def test_the_depth_first_bound_is_what_a_depth_first_visit_finds(requests, page):
    prompts = [Request(request.id, request.prompt, namespace=request.namespace) for request in requests]
    bounds = Bounds(None, page)
    for request in prompts:
        bounds.add(request)
    best = RadixCache(None, page)
    visit = sorted(prompts, key=lambda one: (repr(one.namespace), list(unpack(one.prompt))))
    assert bounds.tokens().depth_first == sum(best.admit(request).cached_tokens for request in visit)


@FAST
@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=8), min_size=1, max_size=40),
    st.integers(1, 14),
    st.sampled_from([1, 5, 30, 1 << 14]),
)
def test_stack_distances_are_the_lru_cache_at_every_capacity(lists, capacity, chunk):
    distances = StackDistances(chunk)
    cache, unlimited = BlockLru(capacity), BlockLru()
    hits = tokens = everything = 0
    for index, blocks in enumerate(lists):
        request = BlockRequest(index, blocks, len(blocks) * 4 - 1, 4)
        found = cache.admit(request)
        hits += found.hits
        tokens += found.cached_tokens
        everything += unlimited.admit(request).hits
        distances.admit(request)
    assert distances.hits(capacity) == (hits, tokens)
    assert distances.hits(None)[0] == everything


@FAST
@given(traces(), st.sampled_from([2, 3]))
def test_chains_name_equal_prefixes_alike(requests, block):
    """block-lru over token prompts, unlimited, finds the leading blocks that some earlier prompt had, last one included."""
    chains, cache = Chains(block), BlockLru()
    seen = set()
    for request in requests:
        prompt = tuple(unpack(request.prompt))
        ends = [min(end, len(prompt)) for end in range(block, len(prompt) + block, block)]
        want = 0
        for end in ends:
            if (request.namespace, end, prompt[:end]) not in seen:
                break
            want += 1
        assert cache.admit(chains.blocks(request)).hits == want
        seen.update((request.namespace, end, prompt[:end]) for end in ends)


@pytest.mark.parametrize("replicas", [1, 3])
def test_a_fleet_serves_every_request_once(replicas):
    requests = [Request(index, pack([1, 2, 3, index]), pack([7, 8])) for index in range(20)]
    fleet = Fleet([RadixScheduler(RadixCache(100)) for _ in range(replicas)], RoundRobin())
    done = list(closed_loop(fleet, requests, 4))
    assert sorted(one.request.id for one in done) == list(range(20))
    assert {one.replica for one in done} == set(range(replicas))
