"""Provider replays against examples that were computed by hand from the documented rules (rules/providers), several per mode.

A request is written as runs of tokens: each name stands for distinct tokens, so that equal names are equal text.
"""

from dataclasses import replace
from zlib import crc32

import pytest

from promptlint.app.simulate import Setup, simulate
from promptlint.caches.breakpoint import ProviderCache
from promptlint.caches.request import Request, pack
from promptlint.catalog.providers import page_for, resolve


def terms(provider, model):
    page = page_for(provider, model)
    assert page is not None
    return resolve(page, model)


def request(*runs, at=0.0, marks=(), head=0, lifetimes=(), route=""):
    """Runs of (name, tokens). Each run ends a message; `marks` and `head` count runs: 1 is the end of the first."""
    tokens, ends = [], []
    for name, size in runs:
        tokens += [crc32(f"{name} {index}".encode()) for index in range(size)]
        ends.append(len(tokens))
    return Request(
        0,
        pack(tokens),
        timestamp=at,
        breakpoints=tuple(ends[mark - 1] for mark in marks),
        stops=tuple(ends),
        head=ends[head - 1] if head else 0,
        lifetimes=lifetimes,
        route=route,
    )


def replay(cache, *requests):
    """(cached, written) of each request."""
    outcomes = [cache.admit(each) for each in requests]
    return [(outcome.cached_tokens, outcome.written_tokens) for outcome in outcomes]


# ---- blocks: OpenAI before GPT-5.6 (from 1,024 tokens, in steps of 128), xAI (128), Kimi (256)


def test_openai_before_5_6_floors_to_128_tokens():
    cache = ProviderCache(terms("openai", "gpt-4o"))
    found = replay(
        cache,
        request(("rules", 2000), ("one", 50)),
        request(("rules", 2000), ("two", 50)),  # 2,000 are shared: 15 blocks of 128 are 1,920
        request(("other", 1000), ("one", 20)),  # 1,020: below the minimum
        request(("other", 1000), ("one", 20)),
    )
    assert [cached for cached, _ in found] == [0, 1920, 0, 0]


def test_openai_before_5_6_takes_a_changing_tail_inside_a_message():
    cache = ProviderCache(terms("openai", "gpt-4o"))
    first, second = (request((f"rules and question {n}", 1)) for n in (1, 2))
    same = [crc32(f"rules {index}".encode()) for index in range(1500)]
    first = replace(first, prompt=pack([*same, 1, 2, 3]), stops=(1503,))
    second = replace(second, prompt=pack([*same, 4, 5, 6]), stops=(1503,))
    assert [cached for cached, _ in replay(cache, first, second)] == [0, 1408]  # 11 x 128


def test_gpt_5_5_stores_at_intervals_of_2048_tokens():
    cache = ProviderCache(terms("openai", "gpt-5.5"))
    found = replay(cache, request(("rules", 5000), ("one", 10)), request(("rules", 5000), ("two", 10)))
    assert [cached for cached, _ in found] == [0, 4096]


def test_kimi_floors_to_256_tokens():
    cache = ProviderCache(terms("moonshot", "kimi-k2"))
    found = replay(cache, request(("rules", 1000), ("one", 10)), request(("rules", 1000), ("two", 10)))
    assert [cached for cached, _ in found] == [0, 768]


def openai_log(times, key=""):
    """Requests with 2,048 shared tokens at these seconds; OpenAI before GPT-5.6 reuses all sixteen blocks of them."""
    return [request(("rules", 2048), (f"q{at}", 10), at=at, route=key) for at in times]


def test_openai_sends_what_exceeds_fifteen_requests_a_minute_elsewhere():
    """Twenty requests, one each second: the first of each machine misses, so 1 and 16 do."""
    cache = ProviderCache(terms("openai", "gpt-4o"))
    found = [cached for cached, _ in replay(cache, *openai_log(range(1, 21)))]
    assert [number for number, cached in enumerate(found, 1) if not cached] == [1, 16]
    assert cache.spilled == 5


def test_openai_takes_fifteen_requests_in_any_minute_on_one_machine():
    """One every four seconds: sixty seconds behind the first, it no longer counts, and nothing ever spills."""
    cache = ProviderCache(terms("openai", "gpt-4o"))
    found = [cached for cached, _ in replay(cache, *openai_log(range(1, 401, 4)))]
    assert (found.count(0), cache.spilled) == (1, 0)


def test_at_thirty_a_minute_half_of_the_requests_go_elsewhere():
    cache = ProviderCache(terms("openai", "gpt-4o"))
    found = [cached for cached, _ in replay(cache, *openai_log(range(1, 601, 2)))]
    assert (found.count(0), cache.spilled) == (2, 150)


def test_overflow_can_be_left_out_and_needs_times():
    log = openai_log(range(1, 21))
    alone = ProviderCache(terms("openai", "gpt-4o"), overflow=False)
    assert [cached for cached, _ in replay(alone, *log)].count(0) == 1
    timeless = [replace(each, timestamp=0.0) for each in log]
    assert [cached for cached, _ in replay(ProviderCache(terms("openai", "gpt-4o")), *timeless)].count(0) == 1


def test_each_prefix_and_each_key_has_a_rate_of_its_own():
    cache = ProviderCache(terms("openai", "gpt-4o"))
    log = [
        one for pair in zip(openai_log(range(1, 16), "a"), openai_log(range(1, 16), "b"), strict=True) for one in pair
    ]
    found = [cached for cached, _ in replay(cache, *log)]
    assert (found.count(0), cache.spilled) == (2, 0)  # other keys, other machines: the first of each key misses


def test_a_look_up_counts_for_no_rate():
    cache = ProviderCache(terms("openai", "gpt-4o"))
    log = openai_log(range(1, 16))
    for each in log:
        cache.admit(each)
        assert cache.lookup(replace(each, timestamp=each.timestamp + 0.5)).cached_tokens in {0, 2048}
    assert cache.spilled == 0


# ---- tokens: Gemini from 4,096 (2.5: 2,048) tokens on, Groq from 1,024 on for two hours


@pytest.mark.parametrize(
    ("model", "shared", "cached"), [("gemini-2.5-flash", 2047, 0), ("gemini-2.5-flash", 2100, 2100), ("gemini-3.5-flash", 4000, 0), ("gemini-3.5-flash", 4097, 4097)]
)  # fmt: skip
def test_gemini_reuses_any_length_above_the_minimum_of_its_model(model, shared, cached):
    cache = ProviderCache(terms("gemini", model))
    found = replay(cache, request(("rules", shared), ("one", 3000)), request(("rules", shared), ("two", 3000)))
    assert [each for each, _ in found] == [0, cached]


def test_groq_forgets_after_two_hours_without_use():
    cache = ProviderCache(terms("groq", "openai/gpt-oss-120b"))
    found = replay(
        cache,
        request(("rules", 1500), ("one", 10)),
        request(("rules", 1500), ("two", 10), at=7000),
        request(("rules", 1500), ("three", 10), at=14_000),  # 7,000 s after it was read
        request(("rules", 1500), ("four", 10), at=21_201),  # 7,201 s after it was read
    )
    assert [cached for cached, _ in found] == [0, 1500, 1500, 0]


# ---- breakpoints: Anthropic


def test_anthropic_reads_and_writes_up_to_marks():
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"))
    found = replay(
        cache,
        request(("rules", 3000), ("one", 100), marks=(1,)),
        request(("rules", 3000), ("two", 100), marks=(1,)),
        request(("rules", 3000), ("two", 100)),  # no mark: neither read nor written
        request(("short", 1000), ("two", 100), marks=(1,)),  # below 1,024
        request(("short", 1000), ("two", 100), marks=(1,)),
    )
    assert found == [(0, 3000), (3000, 0), (0, 0), (0, 0), (0, 0)]


def test_anthropic_conversation_with_a_mark_that_moves():
    """Each request marks its newest message; the one before is found by looking back."""
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"))
    turns = [("system", 2000), ("q1", 100), ("a1", 200), ("q2", 100), ("a2", 200), ("q3", 100)]
    found = replay(
        cache,
        request(*turns[:2], marks=(2,)),
        request(*turns[:4], marks=(4,), at=60),
        request(*turns, marks=(6,), at=120),
    )
    assert found == [(0, 2100), (2100, 300), (2400, 300)]


@pytest.mark.parametrize(("blocks", "cached"), [(19, 2000), (20, 2000), (21, 0)])
def test_anthropic_looks_back_over_twenty_blocks(blocks, cached):
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"))
    added = [(f"step {n}", 10) for n in range(blocks)]
    found = replay(
        cache, request(("system", 2000), marks=(1,)), request(("system", 2000), *added, marks=(1 + blocks,), at=1)
    )
    assert found[1][0] == cached


def test_anthropic_keeps_for_five_minutes_after_the_last_use():
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"))
    given = [request(("rules", 2000), marks=(1,), at=at) for at in (0, 299, 598, 899)]
    assert replay(cache, *given) == [(0, 2000), (2000, 0), (2000, 0), (0, 2000)]


def test_anthropic_longer_lifetime_in_front_of_a_shorter_one():
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"))
    given = [
        request(("tools", 2000), ("session", 500), marks=(1, 2), lifetimes=("1h", ""), at=at) for at in (0, 3000, 7000)
    ]
    # After 50 minutes the session's five are over, the tools' hour is not; after more than an hour both are.
    assert replay(cache, *given) == [(0, 2500), (2000, 500), (0, 2500)]


def test_anthropic_bills_each_lifetime_apart():
    """Position A: what is read. 1h writes reach from there to the last 1h mark, 5m writes from there to the last mark."""
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"))
    runs = (("tools", 2000), ("session", 500), ("turn", 300))
    first = request(*runs, marks=(1, 2, 3), lifetimes=("1h", "1h", "5m"))
    assert dict(cache.admit(first).written_at) == {"1h": 2500, "5m": 300}
    later = cache.admit(replace(first, timestamp=1000.0))
    assert (later.cached_tokens, dict(later.written_at)) == (2500, {"5m": 300})


def test_anthropic_refuses_a_longer_lifetime_behind_a_shorter_one():
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"))
    given = request(("tools", 2000), ("session", 500), marks=(1, 2), lifetimes=("", "1h"))
    assert "longer lifetime" in cache.admit(given).refused
    assert cache.lookup(replace(given, lifetimes=())).cached_tokens == 0


def test_requests_of_one_moment_all_write():
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"))
    given = [request(("rules", 2000), marks=(1,), at=at) for at in (7, 7, 7, 7.1)]
    assert replay(cache, *given) == [(0, 2000), (0, 2000), (0, 2000), (2000, 0)]


def test_anthropic_stores_the_tail_behind_the_last_mark_nowhere():
    """By hand from the documentation: a hit needs a mark at, or up to twenty blocks behind, an earlier mark; not merely common text."""
    cache = ProviderCache(terms("anthropic", "claude-opus-4-5"))  # from 4,096 tokens on
    found = replay(
        cache,
        request(
            ("tools", 3000), ("system", 2000), ("q1", 50), marks=(1, 2)
        ),  # 3,000 are below the minimum: only 5,000 are stored
        request(("tools", 3000), ("other system", 2000), ("q1", 50), marks=(1, 2)),
        request(("tools", 3000), ("system", 2000), ("q2", 50), marks=(2,)),
    )
    assert found == [(0, 5000), (0, 5000), (5000, 0)]


def test_bedrock_reads_nova_from_its_own_minimum():
    cache = ProviderCache(terms("bedrock", "amazon.nova-lite-v1:0"))
    found = replay(
        cache,
        *(request(("rules", 1500), (f"q{n}", 40), marks=(1,)) for n in range(2)),  # below 1,536
        *(request(("more rules", 1600), (f"q{n}", 40), marks=(1,)) for n in range(2)),
    )
    assert found == [(0, 0), (0, 0), (0, 1600), (1600, 0)]


def test_dashscope_forgets_five_minutes_after_the_last_hit():
    cache = ProviderCache(terms("dashscope-explicit", "qwen3-max"))
    given = [request(("rules", 2000), marks=(1,), at=at) for at in (1, 300, 600, 901)]
    assert replay(cache, *given) == [(0, 2000), (2000, 0), (2000, 0), (0, 2000)]


def test_anthropic_writes_twice_while_the_first_answer_has_not_begun():
    cache = ProviderCache(terms("anthropic", "claude-sonnet-4-5"), delay=2.0)
    given = [request(("rules", 2000), marks=(1,), at=at) for at in (0, 1, 3)]
    assert [cached for cached, _ in replay(cache, *given)] == [0, 0, 2000]


# ---- breakpoints: OpenAI from GPT-5.6 on


def test_a_stable_head_and_a_changing_tail_in_one_message_hit_nothing():
    cache = ProviderCache(terms("openai", "gpt-5.6"))
    same = [crc32(f"rules {index}".encode()) for index in range(5000)]
    given = [Request(0, pack([*same, *range(n, n + 50)]), stops=(5050,)) for n in (0, 1000, 2000)]
    assert [cached for cached, _ in replay(cache, *given)] == [0, 0, 0]


def test_the_same_head_in_a_message_of_its_own_is_found():
    cache = ProviderCache(terms("openai", "gpt-5.6"))
    found = replay(cache, request(("rules", 5000), ("one", 50), head=1), request(("rules", 5000), ("two", 50), head=1))
    assert found == [(0, 5050), (5000, 50)]


def test_gpt_5_6_conversation():
    """No rounding, and each request ends where the next one looks."""
    cache = ProviderCache(terms("openai", "gpt-5.6"))
    turns = [("system", 1500), ("q1", 77), ("a1", 133), ("q2", 41)]
    found = replay(cache, request(*turns[:2], head=1), request(*turns, head=1, at=60))
    assert found == [(0, 1577), (1577, 174)]


def test_gpt_5_6_isolates_by_key():
    cache = ProviderCache(terms("openai", "gpt-5.6"))
    given = [request(("rules", 5000), ("q", 10), head=1, at=n + 1, route=key) for n, key in enumerate("aab")]
    assert [cached for cached, _ in replay(cache, *given)] == [0, 5010, 0]


def test_gpt_5_6_has_no_rate_from_which_requests_go_elsewhere():
    cache = ProviderCache(terms("openai", "gpt-5.6"))
    given = [request(("rules", 5000), (f"q{n}", 10), head=1, at=n + 1) for n in range(40)]
    assert [cached for cached, _ in replay(cache, *given)].count(0) == 1


def test_gpt_5_6_keeps_the_latest_three_marks_and_its_own():
    """Five marks and the implicit one: four are written, the latest. The first two are no end points."""
    cache = ProviderCache(terms("openai", "gpt-5.6"))
    runs = [(f"part {n}", 1100) for n in range(1, 6)]
    found = replay(
        cache,
        request(*runs, ("q", 10), marks=(1, 2, 3, 4, 5)),
        request(*runs[:2], ("other", 10)),  # ends at 1,100 and 2,200 were not kept
        request(*runs[:3], ("other", 10)),
    )
    assert [cached for cached, _ in found] == [0, 0, 3300]


def test_gpt_5_6_below_the_minimum():
    cache = ProviderCache(terms("openai", "gpt-5.6"))
    found = replay(cache, request(("rules", 1000), ("q", 23), head=1), request(("rules", 1000), ("q", 23), head=1))
    assert found == [(0, 0), (0, 0)]


# ---- breakpoints at fixed intervals: DeepSeek


def test_deepseek_ends_units_at_messages_and_at_intervals():
    cache = ProviderCache(terms("deepseek", "deepseek-chat"))
    found = replay(
        cache,
        request(("rules", 1000), ("one", 100)),
        request(("rules", 1000), ("two", 100)),  # the end of the first message
        request(("rules", 1000), ("one", 100), ("more", 10)),  # the end of the first request
    )
    assert [cached for cached, _ in found] == [0, 1000, 1100]


# ---- money: from how many requests with one prefix on caching is cheaper


def break_even(provider, model, ttl):
    """The smallest n with write + (n - 1) x read < n."""
    given = terms(provider, model)
    return next(n for n in range(1, 100) if given.write(ttl) + (n - 1) * given.read < n)


@pytest.mark.parametrize(
    ("provider", "model", "ttl", "requests"),
    [
        ("anthropic", "claude-sonnet-4-5", "5m", 2),  # 1.25 + 0.1 < 2
        ("anthropic", "claude-sonnet-4-5", "1h", 3),  # 2.0 + 0.1 > 2, 2.0 + 0.2 < 3
        ("openai", "gpt-5.6", "30m", 2),
        ("openai", "gpt-5.6", "12h", 3),  # 2.5 + 0.2 < 3
    ],
)
def test_break_even(provider, model, ttl, requests):
    assert break_even(provider, model, ttl) == requests


def test_dollars_of_marks_with_two_lifetimes(tmp_path):
    """Sonnet 4.5 at 3 $ a million. Two requests: written 2,000 at 2.0 and twice 300 at 1.25, read 2,000 at 0.1, twice 100 in full."""
    given = terms("anthropic", "claude-sonnet-4-5")
    runs = (("tools", 2000), ("turn", 300), ("q", 100))
    log = [replace(request(*runs, marks=(1, 2), lifetimes=("1h", "5m"), at=at), id=at) for at in (0, 1000)]
    cost = simulate(Setup(engine="anthropic", model="claude-sonnet-4-5", bounds=False), log).report.cost
    assert cost["input_dollars"] == pytest.approx((4000 + 600 * 1.25 + 200 + 200) * 3e-6)
    assert (cost["written_tokens_1h"], cost["written_tokens_5m"]) == (2000, 600)
    assert given.input_price == 3.0


def test_dollars_of_a_replay():
    """Sonnet 4.5 at 3 $ a million: 2,000 tokens written at 1.25, read four times at 0.1, five tails of 100 in full."""
    given = terms("anthropic", "claude-sonnet-4-5")
    cache = ProviderCache(given)
    found = replay(cache, *(request(("rules", 2000), (f"q{n}", 100), marks=(1,), at=n) for n in range(5)))
    cached, written = (sum(each[column] for each in found) for column in (0, 1))
    assert (cached, written) == (8000, 2000)
    assert given.money(5 * 2100 - cached - written, cached, written) == pytest.approx((500 + 2500 + 800) * 3e-6)
