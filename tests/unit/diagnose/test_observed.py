"""A hit rate alone: the combinations of causes that reproduce it, ranked, with an experiment each."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from promptlint.advisor.diagnose.likely import likely, timing
from promptlint.advisor.diagnose.model import Cause, Diagnosis
from promptlint.advisor.diagnose.observed import Circumstances, Factor, Site, explain
from promptlint.cli import cli
from promptlint.traffic.record import CACHE_READ, INPUT, Record

CLOCK = Factor("clock-in-prefix at app.py:3", "ask", 0.01, "promptlint check app.py")
BUSY = Circumstances(rate=10.0)
LONG = [Site("ask", 1.0, 4000, 0.9)]


def causes(observed, sites=LONG, factors=(), around=BUSY):
    return [one.cause for one in explain(observed, sites, factors, around)]


def test_a_finding_in_the_code_explains_before_any_guess():
    assert causes(0.02, factors=[CLOCK])[0] == CLOCK.name


def test_nothing_is_wrong():
    assert causes(0.9)[0] == "the prompts allow no more"


def test_short_prompts():
    first = causes(0.0, [Site("ask", 1.0, 400, 0.9)])[0]
    assert "minimum of 1,024 tokens" in first


def test_lifetime_only_where_requests_are_rare():
    rare = Circumstances(rate=0.001)
    assert "entries live 300 s" in causes(0.23, around=rare)[0]
    assert "entries live" not in causes(0.23)[0]


def test_routing_with_the_number_of_machines_that_fits():
    assert "4 machines" in causes(0.22)[0]
    assert "8 machines" in causes(0.11)[0]


def test_every_explanation_has_its_experiment():
    rows = explain(0.2, LONG, [CLOCK], Circumstances(rate=0.002))
    assert len(rows) == 3
    assert len({row.cause for row in rows}) == 3
    assert all(row.confirm_with and "predicts" in row.why for row in rows if row.cause != "the prompts allow no more")


def test_the_prompt_side_is_clean_but_the_observed_rate_is_low():
    found = Diagnosis(
        requests=10,
        prompt_tokens=1000,
        cached_tokens=900,
        starts=1,
        observed_prompt_tokens=1000,
        observed_cached_tokens=50,
    )
    records = [
        Record(session_id="s", timestamp=n * 1000.0, usage={INPUT: 100, CACHE_READ: 90 * (n % 2)}) for n in range(10)
    ]
    when = timing(records, [100] * 10)
    assert when.short == 1.0
    assert when.mixed == pytest.approx(0.4)
    rows = likely(found, when)
    assert len(rows) == 3
    assert rows[0].cause == "prompts below the provider's minimum length"
    assert all(row.confirm_with.startswith("promptlint ") for row in rows)


def test_causes_in_the_prompts_come_first_when_they_explain_the_rate():
    found = Diagnosis(
        requests=10, prompt_tokens=1000, cached_tokens=100, starts=1, causes=[Cause("clock-in-prefix", 9, 700, 0.8)]
    )
    rows = likely(found, timing([], []))
    assert rows[0].confirm_with == "promptlint explain clock-in-prefix"
    assert len(rows) == 3
    assert likely(Diagnosis(requests=3, prompt_tokens=100, cached_tokens=90), timing([], [])) == []


def test_the_command_works_from_a_number_and_code(tmp_path):
    (tmp_path / "app.py").write_text('import datetime\nimport openai\nRULES = "Answer from the manual only. " * 300\n\n\ndef ask(question):\n    return openai.OpenAI().chat.completions.create(model="gpt-4o", messages=[{"role": "system", "content": f"Now {datetime.datetime.now()}\\n{RULES}"}, {"role": "user", "content": question}])\n')  # fmt: skip
    done = CliRunner().invoke(
        cli, ["diagnose", "--observed", "0.01", str(tmp_path / "app.py"), "--output-format", "json"]
    )
    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert "clock-in-prefix at " in row["likely_causes"][0]["cause"]
    (tmp_path / "usage.csv").write_text("date,model,input_tokens,input_cached_tokens\n2026-03-04,m,1000,10\n")
    done = CliRunner().invoke(cli, ["diagnose", "--usage", str(tmp_path / "usage.csv")])
    assert "1.0% was observed" in done.stdout
    assert done.stdout.count("confirm with") == 3


def test_a_routing_key_that_is_new_each_time_is_named_first():
    records = [Record(parameters={"prompt_cache_key": str(n)}) for n in range(5)]
    found = Diagnosis(requests=5, prompt_tokens=100, cached_tokens=90)
    assert likely(found, timing(records, [20] * 5))[0].cause == "cache-key-per-request"
    shared = [Record(parameters={"prompt_cache_key": "a"}) for _ in range(5)]
    assert likely(found, timing(shared, [20] * 5)) == []


def test_a_lifetime_that_changes_nothing_says_what_would_have_to_hold():
    rows = explain(0.08, [Site("", 1.0, 0, 0.85)], [], Circumstances(rate=0.1))
    (row,) = [row for row in rows if "entries live" in row.cause]
    assert "one request in 3,0" in row.why  # 300 s / -ln(1 - 0.08 / 0.85)


def test_more_than_the_prompts_allow():
    assert causes(0.08, [Site("ask", 1.0, 400, 0.0)])[0] == "more is reused than this code explains"
