"""Traffic that both sides render anew: the old side gives what was sent, the new side what would have been."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from desk_project import CLOCKED, RULES, STILL, project, promptlint

ROOT = Path(__file__).parents[3]


def diff(*args: str | Path, cwd: Path = ROOT) -> dict:
    done = promptlint("diff", *args, "--output-format", "json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_old_side_gives_what_was_sent_and_the_new_one_gains():
    log = "examples/support_bot/traffic.jsonl"
    sent = json.loads(promptlint("simulate", log, "--output-format", "json", cwd=ROOT).stdout)
    replay = diff("examples/support_bot", "examples/support_bot_fixed", "--traffic", log)["replay"]
    assert (replay["requests"], replay["unmatched"]) == (30, 0)
    assert replay["hit_rate_base"] == pytest.approx(sent["hit_rate"], abs=0.01)
    assert replay["prompt_tokens_base"] == pytest.approx(sent["prompt_tokens"], rel=0.05)
    assert replay["hit_rate_head"] > 0.85
    assert sum(site["requests"] for site in replay["call_sites"]) == 30
    by_site = {site["id"].split("::")[1]: site for site in replay["call_sites"]}
    assert by_site["answer"]["hit_rate_base"] < 0.1 < 0.8 < by_site["answer"]["hit_rate_head"]


def test_the_same_code_twice_gives_the_same_twice():
    replay = diff("examples/support_bot", "examples/support_bot", "--traffic", "examples/support_bot/traffic.jsonl")[
        "replay"
    ]
    assert replay["hit_rate_base"] == replay["hit_rate_head"]
    assert replay["prompt_tokens_base"] == replay["prompt_tokens_head"]


def test_a_clock_that_only_the_head_has_changes_with_each_request(tmp_path):
    project(tmp_path / "base", app=STILL)
    project(tmp_path / "head", app=CLOCKED)
    rows = [
        {
            "timestamp": 1000 * number,
            "model": "m",
            "system": RULES,
            "messages": [{"role": "user", "content": f"How does part {number} work?"}],
        }
        for number in range(5)
    ]
    rows.append(
        {
            "timestamp": 9000,
            "model": "m",
            "messages": [{"role": "user", "content": "Something else altogether, of another program."}],
        }
    )
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    replay = diff("base", "head", "--traffic", "log.jsonl", cwd=tmp_path)["replay"]
    assert (replay["requests"], replay["unmatched"]) == (5, 1)
    assert replay["hit_rate_base"] == pytest.approx(0.79, abs=0.02)  # four of five find the rules
    assert replay["hit_rate_head"] < 0.02
    text = promptlint("diff", "base", "head", "--traffic", "log.jsonl", cwd=tmp_path).stdout
    assert "traffic: 5 requests rendered by both sides" in text
    assert "1 request left out because no call site of both sides sent it" in text


def test_reports_hold_no_code_to_render_with(tmp_path):
    folder = project(tmp_path / "p", app=STILL)
    promptlint("check", "--output-format", "json", "-o", "report.json", cwd=folder)
    (folder / "log.jsonl").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    done = promptlint("diff", "report.json", ".", "--traffic", "log.jsonl", cwd=folder)
    assert done.returncode == 2
    assert "needs the code of both sides" in done.stderr
