"""What `perturb` prints: golden text and JSON."""

from __future__ import annotations

import json
import time

import pytest

from promptlint.app.perturb import _changed, _start
from promptlint.recording.measured import FACTORS, RULES, Measurement, Varying
from promptlint.report.perturb import to_json, to_text


def sample():
    clock = Varying(
        "clock",
        "app/agent.py::Agent.step",
        "/messages/0/content",
        11,
        6,
        6,
        "Now: 10:41. You",
        "Now: 10:42. You",
        "hour",
        12,
        16,
        "now()",
        "request",
        ("clock-in-prefix app/agent.py:9",),
    )
    stage = Varying(
        "environment",
        "",
        "/system",
        3,
        1,
        2,
        "dev \x1b[31m",
        "promptlint",
        "APP_STAGE",
        0,
        6,
        "os.environ['APP_STAGE']",
        "process",
    )
    noise = Varying("", "app/agent.py::Agent.step", "/messages/1/content", 4, 1, 6, "pid 31", "pid 37")
    return Measurement(
        ("pytest", "-q"), 8, 2, 1, 13, FACTORS, [clock, stage], [noise], {"hash-seed": "1 fewer of 8 calls"}, {"user": "the command ended with 1 in place of 0"}, compared_with_code=True,
    )  # fmt: skip


def test_text(golden):
    golden("perturb/full.txt", to_text(sample()))


def test_json(golden):
    golden("perturb/report.json", to_json(sample()))
    row = json.loads(to_json(sample()))
    assert row["schema"] == "promptlint.perturb/1"
    assert row["without_effect"] == ["cwd", "host", "random", "listing"]


def test_a_steady_command():
    quiet = to_text(Measurement(("true",), 1, 1, 0, 14, FACTORS))
    assert quiet.splitlines()[0] == "1 call of 1 call site, 14 runs of `true`"
    assert "all prompts were the same in every run" in quiet


def test_the_rules_of_each_factor_exist():
    from promptlint.catalog.rules import load_rules

    names = set(load_rules())
    assert RULES.keys() == set(FACTORS)
    assert {name for group in RULES.values() for name in group} <= names


@pytest.mark.parametrize("now", [1796079199.9, 1796083195.0, 1796082959.0, 1796169599.5])
def test_the_pinned_clock_crosses_no_boundary_by_accident(now):
    start = _start(now)
    assert abs(start - now) < 4 * 3600
    assert time.gmtime(start).tm_min == time.gmtime(start + 1 + 40).tm_min
    assert time.gmtime(start).tm_mday == time.gmtime(start + 3660).tm_mday


@pytest.mark.parametrize(
    "name, value, changed",
    [
        ("APP_STAGE", "dev", "dev-changed"), ("SUPPORT_REGION", None, "promptlint"), ("RETRIES", "3", "4"), ("DEBUG", "true", "false"), ("FLAG", "1", "0"),
        ("OPENAI_API_KEY", "sk", None), ("DB_HOST", "h", None), ("HOME", "/root", None), ("CONFIG", "/etc/x", None), ("LC_ALL", "C", None), ("_", "x", None),
    ],
)  # fmt: skip
def test_variables_are_changed_within_their_kind(name, value, changed):
    assert _changed(name, value) == changed
