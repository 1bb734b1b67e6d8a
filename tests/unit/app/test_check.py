"""What is shown, hidden, suppressed and counted. The front ends and checks are stood in for: their outcome is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from promptlint.app import check as pipeline
from promptlint.app.check import Request
from promptlint.catalog.rules import Rule, Rules
from promptlint.checks.runner import CheckResult
from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.finding import Finding, Note
from promptlint.ir import Confidence, Reading, Unread
from promptlint.source import Span


def rule(name: str, category: str = "volatility", persona: str = "regular", aliases: tuple[str, ...] = ()) -> Rule:
    return Rule(
        name, category, "summary", "0.1.0", "high", persona, "x", {}, "", 1, "help", aliases, "body", Path("x.md")
    )


RULES = Rules(
    {
        item.name: item
        for item in (
            rule("clock-in-prefix", aliases=("time-in-prefix",)),
            rule("unsorted-json", "determinism"),
            rule("unstable-token-boundary", "tokens", "pedantic"),
            rule("unused-suppression", "housekeeping"),
            rule("suppression-without-reason", "housekeeping"),
        )
    }
)


def found(line: int = 1, path: str = "a.py", **changes: object) -> Finding:
    base = Finding(
        "clock-in-prefix",
        "high",
        Confidence.HIGH,
        "regular",
        Span(path, line, 1, line, 4),
        "message",
        "now()",
        function="f",
        tokens_lost=100,
    )
    return replace(base, **changes)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(*findings, files={...}, settings..., paths=...)` gives the report."""

    def runner(*findings, files=None, paths=(".",), changed=False, reading=None, cwd=None, **changes):
        for name, text in (files or {"a.py": "x = 1\n" * 9}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(pipeline, "load_rules", lambda extra=(): RULES)
        monkeypatch.setattr(pipeline, "read_project", lambda project, discovery, extra: reading or Reading())
        monkeypatch.setattr(
            pipeline, "run", lambda reading, rules, assumptions: CheckResult(findings, (), {"profile": "typical"})
        )
        settings = replace(Settings(tmp_path), **changes)
        request = Request(tuple(tmp_path / path for path in paths), cwd or tmp_path, changed=changed)
        return pipeline.check(settings, request, use_cache=False)

    return runner


def lines(report) -> list[int]:
    return [item.line for item in report.findings]


def test_dearest_first_then_by_place(run):
    report = run(found(3, tokens_lost=5), found(2, tokens_lost=50), found(1, tokens_lost=5))
    assert lines(report) == [2, 1, 3]
    assert report.summary.findings == {"high": 3, "medium": 0, "low": 0}


def test_persona_and_confidence_decide_what_is_shown(run):
    findings = (
        found(1),
        found(2, confidence=Confidence.MEDIUM),
        found(3, confidence=Confidence.LOW),
        found(4, rule="unstable-token-boundary", persona="pedantic"),
        found(5, persona="auditor"),
    )
    for settings, shown in (
        ({}, [1, 2]),
        ({"min_confidence": "high"}, [1]),
        ({"min_confidence": "low"}, [1, 2, 3]),
        ({"persona": "pedantic"}, [1, 2, 4]),
        ({"persona": "auditor"}, [1, 2, 3, 4, 5]),
        ({"persona": "auditor", "min_confidence": "medium"}, [1, 2, 4, 5]),
    ):
        report = run(*findings, **settings)
        assert lines(report) == shown
        assert report.summary.hidden == 5 - len(shown)
        assert report.summary.findings["high"] == len(shown)


def test_selection(run):
    findings = (found(1), found(2, rule="unsorted-json"))
    for settings, shown in (
        ({"select": ("clock-in-prefix",)}, [1]),
        ({"select": ("determinism",)}, [2]),
        ({"select": ("time-in-prefix",)}, [1]),
        ({"select": ("determinism",), "extend_select": ("clock-in-prefix",)}, [1, 2]),
        ({"ignore": ("volatility",)}, [2]),
        ({"select": ("all",), "ignore": ("all",)}, []),
        ({"per_file_ignores": (("a.py", ("clock-in-prefix",)),)}, [2]),
        ({"per_file_ignores": (("*.py", ("all",)),)}, []),
        ({"per_file_ignores": (("b.py", ("all",)), ("sub/*", ("all",)))}, [1, 2]),
    ):
        report = run(*findings, **settings)
        assert lines(report) == shown, settings
        assert report.summary.hidden == 0


def test_unknown_rules_are_errors_with_suggestions(run):
    with pytest.raises(UserError, match=r"select: there is no rule 'clock-in-prefx'; did you mean clock-in-prefix"):
        run(select=("clock-in-prefx",))
    with pytest.raises(UserError, match="per-file-ignores: there is no rule 'nope'; `promptlint rules`"):
        run(per_file_ignores=(("a.py", ("nope",)),))


def test_only_findings_in_the_given_paths(run):
    files = {"pyproject.toml": "", "app/a.py": "x\n", "lib/b.py": "x\n"}
    inside = found(1, path="app/a.py")
    outside = found(1, path="lib/b.py")
    through = replace(outside, expression="other", trace=(Note(Span("app/a.py", 1, 1, 1, 2), "flows"),))
    report = run(inside, outside, through, files=files, paths=("app",))
    assert [item.path for item in report.findings] == ["app/a.py"]
    assert report.summary.hidden == 0
    report = run(inside, outside, through, files=files, paths=("app",), changed=True)
    assert sorted(item.path for item in report.findings) == ["app/a.py", "lib/b.py"]


def test_suppressions_count_and_leave_no_trace(run):
    files = {"a.py": "x = 1  # promptlint: allow[clock-in-prefix] wanted\ny = 2\n"}
    report = run(found(1), found(2), files=files)
    assert lines(report) == [2]
    assert report.suppressed == 1
    assert run(found(1), files=files, ignore=("clock-in-prefix",)).findings == ()


def test_a_suppression_by_an_old_name_counts(run):
    report = run(found(1), files={"a.py": "x = 1  # promptlint: allow[time-in-prefix] wanted\n"})
    assert (report.findings, report.suppressed) == ((), 1)


def test_a_suppression_for_a_hidden_finding_is_used(run):
    report = run(
        found(1, confidence=Confidence.LOW), files={"a.py": "x = 1  # promptlint: allow[clock-in-prefix] wanted\n"}
    )
    assert (report.findings, report.suppressed, report.summary.hidden) == ((), 0, 1)


@pytest.mark.parametrize(
    ("comment", "rules", "message"),
    [
        ("allow[clock-in-prefix]", ["suppression-without-reason"], "gives no reason"),
        ("allow[unsorted-json] why", ["unused-suppression"], "suppresses nothing here"),
        (
            "allow[clock-in-prefx] why",
            ["unused-suppression"],
            "there is no rule `clock-in-prefx` to allow; did you mean `clock-in-prefix`?",
        ),
        ("allow[] why", ["unused-suppression"], "names no rule"),
    ],
)
def test_housekeeping(run, comment, rules, message):
    files = {"a.py": f"y = 2\nx = 1  # promptlint: {comment}\n"}
    report = run(found(2), files=files)
    remarks = [item for item in report.findings if item.rule != "clock-in-prefix"]
    assert [item.rule for item in remarks] == rules
    assert message in remarks[0].message
    assert (remarks[0].line, remarks[0].column) == (2, 8)


def test_rules_that_did_not_run_have_no_unused_suppressions(run):
    files = {"a.py": "x = 1  # promptlint: allow[unsorted-json] why\n"}
    assert run(files=files, select=("clock-in-prefix", "housekeeping")).findings == ()
    assert run(files=files, per_file_ignores=(("a.py", ("unsorted-json",)),)).findings == ()


def test_fingerprints_survive_moved_lines_and_another_folder(run, tmp_path):
    first = run(found(1), found(5), found(7, expression="other()"))
    moved = run(
        found(2),
        found(8),
        found(9, expression="other( )"),
        cwd=tmp_path.parent,
        files={"a.py": "x = 1\n" * 20},
        paths=("a.py",),
    )
    assert moved.findings == ()  # the stand-in's paths count from the other folder
    again = run(found(2), found(8), found(9, expression="other( )"), files={"a.py": "x = 1\n" * 20})
    prints = {item.fingerprint for item in first.findings}
    assert len(prints) == 3
    assert {item.fingerprint for item in again.findings} == prints


def test_the_source_line_comes_along(run):
    report = run(found(2), files={"a.py": "x = 1\n\ty = 'ü'\n"})
    assert report.findings[0].source == "\ty = 'ü'"


def test_files_that_nothing_could_use(run):
    reading = Reading(unread=(Unread("a.py", 3, "not Python"),))
    report = run(reading=reading)
    assert report.unusable
    assert [(item.path, item.line, item.reason) for item in report.unsupported] == [("a.py", 3, "not Python")]
    assert not run(reading=reading, files={"a.py": "", "b.py": ""}).unusable
    assert not run(reading=replace(reading, parsed=("a.py",)), files={"a.py": ""}, paths=("a.py",)).unusable


def test_what_could_not_be_read_elsewhere_is_not_reported(run):
    files = {"pyproject.toml": "", "app/a.py": "", "lib/b.py": ""}
    report = run(reading=Reading(unread=(Unread("lib/b.py", 1, "not Python"),)), files=files, paths=("app",))
    assert report.unsupported == ()


def test_an_unknown_tokenizer_or_profile_is_an_error(run):
    with pytest.raises(UserError, match="unknown tokenizer"):
        run(tokenizer="nope")
