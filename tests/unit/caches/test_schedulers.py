"""Schedulers, drivers, fleets and routers by hand; the engines' own answers are in tests/conformance."""

import random

import pytest

from promptlint.caches.fleet import CacheAware, ConsistentHashing, Fleet, LeastLoaded, RoundRobin, paced, router, serve
from promptlint.caches.paged import PagedCache
from promptlint.caches.paged_scheduler import PagedScheduler
from promptlint.caches.radix import RadixCache
from promptlint.caches.radix_scheduler import RadixScheduler
from promptlint.caches.request import Request, pack
from promptlint.caches.schedule import ConstantRate, closed_loop
from promptlint.caches.workloads import shared_prefixes, templates_and_users, tree
from promptlint.errors import UserError


def request(index, tokens, output=(1,), **more):
    return Request(index, pack(tokens), pack(output), **more)


def cached(done):
    return [one.outcome.cached_tokens for one in sorted(done, key=lambda one: one.request.id)]


def test_equal_prompts_of_one_batch_share_in_vllm_but_not_in_sglang():
    requests = [request(index, range(64)) for index in range(3)]
    assert cached(closed_loop(RadixScheduler(RadixCache()), requests, 3)) == [0, 0, 0]
    assert cached(closed_loop(PagedScheduler(PagedCache()), requests, 3)) == [0, 48, 48]


def test_longest_prefix_first_serves_the_cached_branch():
    first, other = list(range(100)), list(range(500, 600))
    requests = [request(0, first), request(1, [*other, 7]), request(2, [*first, 8])]
    order = [
        one.request.id for one in closed_loop(RadixScheduler(RadixCache(), "lpm", max_prefill_tokens=1), requests, 2)
    ]
    assert order == [0, 2, 1]
    order = [one.request.id for one in closed_loop(RadixScheduler(RadixCache(), max_prefill_tokens=1), requests, 2)]
    assert order == [0, 1, 2]


def test_priority_serves_higher_values_first_in_sglang_and_lower_ones_in_vllm():
    requests = [request(0, [1] * 40, priority=0), request(1, [2] * 40, priority=1), request(2, [3] * 40, priority=2)]
    radix = RadixScheduler(RadixCache(), "priority", max_prefill_tokens=1)
    assert [one.request.id for one in closed_loop(radix, requests, 3)] == [2, 1, 0]
    paged = PagedScheduler(PagedCache(), "priority", max_batched_tokens=40)
    assert [one.request.id for one in closed_loop(paged, reversed(requests), 3)] == [0, 1, 2]


@pytest.mark.parametrize("make", [lambda: RadixScheduler(RadixCache(50)), lambda: PagedScheduler(PagedCache(50, 1))])
def test_what_can_never_fit_is_refused_and_the_others_are_served(make):
    requests = [request(0, range(20)), request(1, range(100)), request(2, range(20))]
    done = {one.request.id: one.outcome for one in closed_loop(make(), requests, 3)}
    assert done[1].refused is not None
    assert done[0].refused is None
    assert done[2].refused is None


def test_unknown_policies_are_the_users_turn():
    with pytest.raises(UserError, match="lpm"):
        RadixScheduler(RadixCache(), "best")
    with pytest.raises(UserError, match="fcfs, priority"):
        PagedScheduler(PagedCache(), "lpm")
    with pytest.raises(UserError, match="round-robin"):
        router("dice", 2)


def test_arrivals_wait_for_the_step_that_runs():
    """Prefill of 10 tokens at 10 tokens a second is 1 s; a decode step takes 0.5 s."""
    requests = [
        request(0, range(10), [1, 2], timestamp=100.0),
        request(1, range(50, 60), [1], timestamp=100.2),
        request(2, range(80, 90), [1], timestamp=110.0),
    ]
    fleet = Fleet([RadixScheduler(RadixCache())], RoundRobin())
    done = {one.request.id: one for one in paced(fleet, requests, ConstantRate(10.0, 0.5))}
    # 0 runs 100-101 and, as prefill goes first, decodes behind the prefill of 1 (101-102), which arrived meanwhile
    assert (done[0].arrival, done[0].first_token, done[0].end) == (100.0, 101.0, 102.5)
    assert (done[1].arrival, done[1].first_token, done[1].end) == (100.2, 102.0, 102.0)
    assert (done[2].first_token, done[2].end) == (111.0, 111.0)


def test_paced_replicas_have_clocks_of_their_own():
    requests = [request(index, range(100 * index, 100 * index + 10), [1], timestamp=0.0) for index in range(2)]
    fleet = Fleet([RadixScheduler(RadixCache()) for _ in range(2)], RoundRobin())
    assert [one.end for one in paced(fleet, requests, ConstantRate(10.0, 0.5))] == [1.0, 1.0]


def test_a_request_out_of_order_arrives_at_once():
    requests = [request(0, [1, 2], timestamp=5.0), request(1, [3, 4], timestamp=1.0)]
    fleet = Fleet([RadixScheduler(RadixCache())], RoundRobin())
    assert [one.arrival for one in paced(fleet, requests, ConstantRate())] == [5.0, 5.0]


def test_round_robin_and_least_loaded():
    robin = RoundRobin()
    assert [robin.route(request(0, [1]), [0, 0, 0]) for _ in range(4)] == [0, 1, 2, 0]
    assert LeastLoaded().route(request(0, [1]), [3, 1, 1]) == 1


def test_consistent_hashing_keeps_sessions_and_moves_few():
    eight, nine = ConsistentHashing(8), ConsistentHashing(9)
    sessions = [request(index, [index], session=f"user-{index}") for index in range(400)]
    before = [eight.route(one, [0] * 8) for one in sessions]
    again = ConsistentHashing(8)
    assert before == [again.route(one, [0] * 8) for one in sessions]
    assert set(before) == set(range(8))
    moved = [
        (old, new)
        for old, new in zip(before, (nine.route(one, [0] * 9) for one in sessions), strict=True)
        if old != new
    ]
    assert {new for _, new in moved} == {8}
    assert len(moved) < 100


def test_the_cache_aware_router_follows_the_match_and_the_load():
    route = CacheAware(2).route
    calm = [0, 0]
    assert route(request(0, range(100)), calm) == 0
    assert route(request(1, range(500, 600)), calm) == 1  # no match: the smaller tree
    assert route(request(2, [*range(500, 540), *range(60)]), calm) == 1  # 40 % match
    assert route(request(3, [*range(500, 530), *range(900, 970)]), calm) == 0  # 30 % is not more than 0.3: smaller tree
    assert route(request(4, range(500, 600)), [0, 65]) == 0  # out of balance
    assert route(request(5, range(500, 600)), [60, 120]) == 0  # it has been there since


def test_the_cache_aware_router_wins_on_generated_shared_prefixes():
    """LMSYS reports 20 % against 75 % of hits for such a workload; the direction is what a model can promise."""
    requests = shared_prefixes(16, 8, system=512, question=32, output=16)
    rates = {}
    for name in ("round-robin", "cache-aware"):
        fleet = Fleet([RadixScheduler(RadixCache(4_000), "lpm") for _ in range(8)], router(name, 8))
        rates[name] = sum(cached(closed_loop(fleet, requests, 16))) / sum(one.prompt_tokens for one in requests)
    assert rates["round-robin"] < 0.4
    assert rates["cache-aware"] > 0.7


def test_a_fleet_without_scheduler():
    requests = [request(index, range(10)) for index in range(4)]
    served = list(serve([RadixCache(), RadixCache()], RoundRobin(), requests))
    assert [(replica, outcome.cached_tokens) for _, replica, outcome in served] == [(0, 0), (1, 0), (0, 9), (1, 9)]


def test_workloads_are_seeded_and_have_the_stated_structure():
    once, again = list(templates_and_users(50, 600)), list(templates_and_users(50, 600))
    assert once == again
    assert {one.prompt_tokens for one in once} == {600}
    assert len({one.prompt[:400] for one in once}) == 1
    requests = tree(100, 3, 20, 4, 10, order="branch")
    assert len(requests) == 12
    total = sum(one.prompt_tokens for one in requests)
    fresh = total - sum(RadixCache().admit(one).cached_tokens for one in requests[:1])
    assert fresh == total
    cache = RadixCache()
    assert total - sum(cache.admit(one).cached_tokens for one in requests) == 100 + 3 * 20 + 12 * 10


# --- leaps over steps that only decode


def stepped(scheduler, requests, window, chance):
    """A closed loop that now and then leaps over some of the calm steps; every request with the step at which it ended."""
    feed, live, steps, ended = list(reversed(requests)), 0, 0, []
    while feed or not scheduler.idle:
        while feed and live < window:
            scheduler.add(feed.pop())
            live += 1
        calm = scheduler.calm()
        if calm.steps and chance.random() < 0.7:
            made = chance.randint(1, calm.steps)
            scheduler.leap(made)
            steps += made
            continue
        step = scheduler.step()
        steps += 1
        if calm.steps:  # what was promised
            assert (step.decodes, step.decode_context, step.prefills) == (calm.decodes, calm.context, 0)
            assert not step.finished
        live -= len(step.finished)
        ended += [(done.request.id, done.outcome, steps) for done in step.finished]
    return ended, scheduler.stats


class Never:
    """Never leaps."""

    @staticmethod
    def random():
        return 1.0


@pytest.mark.parametrize("pool", [None, 700, 1500, 4000])
@pytest.mark.parametrize(
    "make",
    [
        lambda pool: RadixScheduler(RadixCache(pool)),
        lambda pool: RadixScheduler(RadixCache(pool, chunk=64), "lpm"),
        lambda pool: RadixScheduler(RadixCache(pool, 16), "dfs-weight"),
        lambda pool: PagedScheduler(PagedCache(pool, 16)),
        lambda pool: PagedScheduler(PagedCache(pool, 4), "priority", max_batched_tokens=64, max_running=6),
    ],
)
def test_a_leap_leaves_what_its_steps_leave(make, pool):
    for seed in range(6):
        chance = random.Random(seed)
        heads = [[chance.randrange(50) for _ in range(chance.randint(20, 200))] for _ in range(5)]
        requests = [
            request(
                index,
                [*chance.choice(heads), *(chance.randrange(50) for _ in range(chance.randint(1, 40)))],
                [chance.randrange(50) for _ in range(chance.randint(1, 90))],
            )
            for index in range(40)
        ]
        assert stepped(make(pool), requests, 10, random.Random(seed)) == stepped(make(pool), requests, 10, Never)
