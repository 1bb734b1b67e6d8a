"""Sentences that several formats share."""

from __future__ import annotations

from pathlib import Path

from report_sample import finding

from promptlint.app.check import Request, check
from promptlint.config import Settings
from promptlint.report.markdown import markdown
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


def test_markdown_quotes_the_beginning_of_a_line_of_any_length(tmp_path: Path) -> None:
    rules = "You must answer in one short sentence. You should never guess. Return JSON only. " * 400
    (tmp_path / "app.py").write_text(
        "def ask(client, question):\n"
        f"    return client.chat.completions.create(messages=[{{'role': 'system', 'content': f'Answer {{question}}. {rules}'}}])\n"
    )
    report = check(Settings(tmp_path), Request((tmp_path,), tmp_path), use_cache=False)
    assert report.findings
    assert max(map(len, markdown(report).split("\n"))) < 2_000
