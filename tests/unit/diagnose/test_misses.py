"""Requests that found less than their text allows: which reason the terms, the times and the reported numbers give."""

from __future__ import annotations

import json

import pytest

from promptlint.advisor.diagnose import diagnose
from promptlint.report.diagnose import shared_page, to_json, to_text
from promptlint.traffic.record import CACHE_READ, INPUT, Record

RULES = "Answer from the manual, one page at a time, and never guess. " * 200
MODEL = "claude-sonnet-4-5"


def talk(*changes, model=MODEL, rules=RULES, gap=60_000):
    """Two requests of one growing conversation; `changes` are fields of the second, or of both."""
    first, second = changes if len(changes) == 2 else ({}, changes[0] if changes else {})
    messages = [{"role": "user", "content": "hello"}]
    both = {"model": model, "system": rules, "shape": "anthropic"}
    return [
        Record(**both, messages=messages, timestamp=0.0, **first),
        Record(
            **both,
            messages=[*messages, {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "why?"}],
            timestamp=float(gap),
            **second,
        ),
    ]


def words(text):
    return len(text.split())


def misses(records):
    found = diagnose(records, words)
    assert not found.divergences  # the second request continues the first
    return found.misses


def usage(size, cached):
    return {"usage": {INPUT: size, CACHE_READ: cached}}


def test_nothing_to_say_where_the_report_agrees_or_is_missing():
    assert not misses(talk())
    assert not misses(talk(usage(2400, 2390)))
    assert not misses(talk(model="unknown-model", gap=10**9))


def test_a_lifetime_that_passed_is_certain_without_a_report():
    (one,) = misses(talk(gap=301_000))
    assert (one.request, one.relative, one.reason, one.observed_cached_tokens) == (2, 1, "lifetime-passed", None)
    assert "301 s" in one.cause
    assert one.tokens_lost > 2000


def test_a_longer_lifetime_that_was_asked_for_holds():
    hour = [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    assert not misses(talk(rules=hour, gap=301_000))
    assert [one.reason for one in misses(talk(rules=hour, gap=3_700_000))] == ["lifetime-passed"]


def test_a_parameter_of_the_cache_key():
    (one,) = misses(talk({"parameters": {"tool_choice": {"type": "tool", "name": "x"}}}))
    assert (one.reason, one.cause) == ("cache-parameter-differs", "tool_choice changed from none to tool")
    (one,) = misses(talk({"parameters": {"response_format": {"type": "json_object"}}}, model="gpt-4o"))
    assert one.reason == "cache-parameter-differs"
    assert not misses(talk({"parameters": {"temperature": 1}}))


def test_a_parameter_that_an_earlier_request_had_too_proves_nothing():
    plain = talk()[0]
    forced, plain_again = talk({"parameters": {"tool_choice": {"type": "any"}}}, {})
    found = diagnose([plain, forced, plain_again], words)
    assert [(one.request, one.reason) for one in found.misses] == [(2, "cache-parameter-differs")]


def test_a_routing_key_of_its_own():
    keys = [{"parameters": {"prompt_cache_key": key}} for key in ("a", "b")]
    assert [one.reason for one in misses(talk(*keys, model="gpt-4o"))] == ["cache-key-per-request"]


def test_a_prompt_below_the_minimum():
    (one,) = misses(talk(rules="Answer from the manual. " * 40, model="gpt-4o"))
    assert one.reason == "below-minimum"


@pytest.mark.parametrize("model", [MODEL, "unknown-model"])
def test_what_was_reported_counts_in_the_report_s_own_tokens(model):
    (one,) = misses(talk(usage(4800, 0), model=model))
    assert one.reason == "evicted-or-elsewhere"
    assert one.tokens_lost == one.expected_cached_tokens > 4500


def on(replica, **more):
    return {"extra": {"replica": replica}, **more}


def test_where_the_log_names_replicas_an_eviction_is_told_from_a_move():
    (one,) = misses(talk(on("a"), on("a", **usage(4800, 0)), model="unknown-model"))
    assert (one.reason, one.cause) == ("evicted", "a had seen the text and dropped it")
    (one,) = misses(talk(on("a"), on("b", **usage(4800, 0)), model="unknown-model"))
    assert (one.reason, one.cause) == ("moved-to-another-replica", "the relative went to a, this request to b")


def test_a_replica_that_had_seen_the_text_in_another_request_was_no_move():
    first, second = talk(on("a"), on("b", **usage(4800, 0)), model="unknown-model")
    (other,) = talk(on("b"), {}, model="unknown-model")[:1]
    assert [one.reason for one in diagnose([other, first, second], words).misses] == ["evicted"]


def test_text_and_hashes_in_one_log_are_not_compared():
    text = [Record(prompt=RULES + name) for name in ("one", "two")]
    hashed = [Record(hash_ids=ids, block_size=16, input_length=48) for ids in ([1, 2, 3], [1, 2, 4])]
    found = diagnose([text[0], hashed[0], text[1], hashed[1]], words)
    assert found.requests == 4
    assert {(one.request, one.relative) for one in found.divergences} <= {(3, 1), (4, 2)}
    assert found.cached_tokens > 2000


def test_reports_name_reasons_and_the_shared_page_no_text():
    found = diagnose(talk(usage(4800, 0)), words)
    assert json.loads(to_json(found))["misses"][0]["reason"] == "evicted-or-elsewhere"
    assert "found less than their text allows" in to_text(found)
    assert "evicted-or-elsewhere" in shared_page(found)
    assert "manual" not in shared_page(found)


def test_the_shared_page_hashes_under_a_salt(tmp_path):
    """A bare hash of a date or a name is found by trying; under a salt nobody else has it cannot be."""
    first, second = (talk(rules=f"Answer {name} from the manual. " * 400)[0] for name in ("Ann", "Bob"))
    found = diagnose([first, second], words)
    assert found.divergences
    assert shared_page(found, salt="a") == shared_page(found, salt="a") != shared_page(found, salt="b")
