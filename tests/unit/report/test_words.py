"""Sentences that several formats share."""

from __future__ import annotations

from report_sample import finding

from promptlint.report.words import cause, cost


def test_what_no_provider_caches_is_said_to_be_so() -> None:
    told = cost(finding(tokens_behind=155, tokens_lost=155.0, hit_rate_now=0.0, hit_rate_if_fixed=0.0))
    assert told.startswith("155 of 155 tokens behind it are lost per request; counts on a server of your own")
    assert "0 % now and if fixed" in told


def test_what_is_cached_is_told_before_and_after() -> None:
    told = cost(finding(tokens_behind=155, tokens_lost=155.0, hit_rate_now=0.0, hit_rate_if_fixed=0.5))
    assert told.endswith("estimated hit rate 0 % now, 50 % if fixed")


def test_a_change_that_gives_nothing_alone_is_said_to_give_nothing() -> None:
    told = cost(finding(tokens_behind=155, tokens_lost=77.0, hit_rate_now=0.05, hit_rate_if_fixed=0.05))
    assert "estimated hit rate 5 %, which this change alone does not raise" in told


def test_a_gain_that_rounding_hides_is_not_told_as_two_equal_numbers() -> None:
    told = cost(finding(tokens_behind=155, tokens_lost=1.0, hit_rate_now=0.1402, hit_rate_if_fixed=0.1404))
    assert told.endswith("estimated hit rate 14 % now, hardly more if fixed")


def test_a_reason_is_told_in_words() -> None:
    assert cause("budget") == "nested deeper than is followed"
    assert cause("database") == "database"
