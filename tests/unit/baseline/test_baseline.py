"""A baseline takes out what was known, wherever it has moved, and says what is fixed."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from desk_project import CLOCKED, STILL, commit, git, project, promptlint

from promptlint.app.baseline import baseline_schema
from promptlint.report.schema import check_schema


@pytest.fixture
def known(tmp_path):
    folder = project(tmp_path / "p", app=CLOCKED)
    done = promptlint("check", "--no-cache", "--write-baseline", "known.json", cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "1 finding written to known.json\n")
    return folder


def check(folder, *args):
    done = promptlint("check", "--no-cache", "--output-format", "json", *args, cwd=folder)
    report = json.loads(done.stdout)
    jsonschema.validate(report, check_schema())
    return done.returncode, report


def test_the_file_follows_its_published_schema(known, request):
    published = Path(__file__).parents[3] / "promptlint" / "schemas" / "baseline.json"
    text = json.dumps(baseline_schema(), indent=2) + "\n"
    if request.config.getoption("--update-golden"):
        published.write_text(text, "utf-8")
    assert published.read_text("utf-8") == text, "run pytest --update-golden"
    data = json.loads((known / "known.json").read_text())
    jsonschema.validate(data, baseline_schema())
    del data["findings"][0]["rule"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, baseline_schema())


def test_a_known_finding_is_counted_and_not_reported(known):
    status, report = check(known, "--baseline", "known.json")
    assert status == 0
    assert report["findings"] == []
    assert report["summary"]["findings"] == {"high": 0, "medium": 0, "low": 0}
    assert report["baseline"] == {"known": 1, "fixed": []}
    assert "1 known finding of the baseline\n" in promptlint("check", "--baseline", "known.json", cwd=known).stdout


def test_without_a_baseline_the_report_has_no_such_key(known):
    assert "baseline" not in check(known)[1]


def test_it_survives_moved_lines(known):
    (known / "app.py").write_text("import os\n\n\n" + CLOCKED.replace("def ask", "LATER = os.sep\n\n\ndef ask"))
    assert check(known, "--baseline", "known.json")[1]["baseline"]["known"] == 1


def test_a_second_equal_finding_is_new(known):
    line = '    system = f"Now: {dt.datetime.now()}\\n{RULES}"\n'
    again = CLOCKED.replace(
        line,
        line
        + '    client.messages.create(model="m", max_tokens=9, messages=[], system=system)\n    again = f"Now: {dt.datetime.now()}\\n{RULES}"\n',
    ).replace("system=system, messages=[{", "system=again, messages=[{")
    (known / "app.py").write_text(again)
    status, report = check(known, "--baseline", "known.json")
    assert status == 1
    assert len(report["findings"]) == report["baseline"]["known"] == 1


def test_fixed_ones_are_told_in_the_paths_and_rules_of_the_run_only(known):
    (known / "app.py").write_text(STILL)
    (known / "other.py").write_text("x = 1\n")
    fixed = check(known, "--baseline", "known.json")[1]["baseline"]["fixed"]
    assert [(item["rule"], item["path"], item["expression"]) for item in fixed] == [
        ("clock-in-prefix", "app.py", "dt.datetime.now()")
    ]
    assert check(known, "--baseline", "known.json", "other.py")[1]["baseline"]["fixed"] == []
    assert check(known, "--baseline", "known.json", "--ignore", "clock-in-prefix")[1]["baseline"]["fixed"] == []
    text = promptlint("check", "--baseline", "known.json", cwd=known).stdout
    assert "0 known findings of the baseline, 1 fixed\nfixed: clock-in-prefix in app.py: `dt.datetime.now()`\n" in text
    markdown = promptlint("check", "--baseline", "known.json", "--output-format", "markdown", cwd=known).stdout
    assert "- fixed: <code>clock-in-prefix</code> in <code>app&#46;py</code>" in markdown


def test_paths_count_from_the_project_root(known):
    (known / "deep").mkdir()
    done = promptlint("check", "--no-cache", "--baseline", "../known.json", "..", cwd=known / "deep")
    assert done.returncode == 0
    assert "1 known finding of the baseline" in done.stdout


@pytest.mark.parametrize("path", ["x" * 5_000, "a\0b.py", "../../elsewhere.py"])
def test_a_place_that_cannot_be_is_no_finding_here(known, path):
    data = json.loads((known / "known.json").read_text())
    data["findings"].append({**data["findings"][0], "path": path, "fingerprint": "0"})
    (known / "known.json").write_text(json.dumps(data))
    status, report = check(known, "--baseline", "known.json")
    assert (status, report["findings"], report["baseline"]["known"]) == (0, [], 1)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": "promptlint.baseline/1", "findings": [{"rule": 1}]}',
    '{"schema": "promptlint.baseline/2", "findings": []}', "\xff"])  # fmt: skip
def test_what_is_no_baseline_is_refused(known, content):
    (known / "known.json").write_text(content, "latin-1")
    done = promptlint("check", "--baseline", "known.json", cwd=known)
    assert done.returncode == 2
    assert done.stderr.startswith("promptlint: error: known.json: ")
    assert promptlint("check", "--baseline", "missing.json", cwd=known).returncode == 2
    assert promptlint("check", "--baseline", "a", "--baseline-ref", "b", cwd=known).returncode == 2


def test_a_revision_as_baseline_leaves_the_checkout_alone(known):
    commit(known)
    (known / "app.py").write_text("import os\n\n" + CLOCKED)
    (known / "new.py").write_text(CLOCKED)
    before = git(known, "status", "--porcelain"), git(known, "worktree", "list"), git(known, "ls-files", "-s")
    status, report = check(known, "--baseline-ref", "HEAD")
    assert status == 1
    assert [finding["path"] for finding in report["findings"]] == ["new.py"]
    assert report["baseline"]["known"] == 1
    assert (git(known, "status", "--porcelain"), git(known, "worktree", "list"), git(known, "ls-files", "-s")) == before
    assert check(known, "--baseline-ref", "HEAD", "new.py")[1]["baseline"]["known"] == 0


def test_a_revision_that_does_not_exist(known, tmp_path):
    assert "not in a git repository" in promptlint("check", "--baseline-ref", "HEAD", cwd=known).stderr
    commit(known)
    for revision in ("nope", "--help", "HEAD:app.py"):
        done = promptlint("check", "--baseline-ref", revision, cwd=known)
        assert done.returncode == 2
        assert "neither a file, a folder nor a git revision" in done.stderr


def test_a_renamed_file_or_folder_keeps_what_was_known(known):
    commit(known)
    (known / "deep" / "er").mkdir(parents=True)
    (known / "app.py").rename(known / "deep" / "er" / "agent.py")
    for arguments in (
        ("--baseline", "known.json"),
        ("--baseline-ref", "HEAD"),
        ("--baseline-ref", "HEAD", "deep/er/agent.py"),
    ):
        status, report = check(known, *arguments)
        assert (status, report["baseline"]) == (0, {"known": 1, "fixed": []}), arguments


def test_each_known_finding_accounts_for_one(known):
    (known / "app.py").rename(known / "one.py")
    (known / "two.py").write_text((known / "one.py").read_text())
    status, report = check(known, "--baseline", "known.json")
    assert (status, len(report["findings"]), report["baseline"]["known"]) == (1, 1, 1)


@pytest.mark.parametrize("change", [("def ask", "def reply"), ("dt.datetime.now()", "dt.datetime.utcnow()")])
def test_another_function_or_expression_in_a_renamed_file_is_new(known, change):
    (known / "app.py").unlink()
    (known / "agent.py").write_text(CLOCKED.replace(*change))
    status, report = check(known, "--baseline", "known.json")
    assert (status, len(report["findings"]), report["baseline"]["known"]) == (1, 1, 0)
    assert [item["path"] for item in report["baseline"]["fixed"]] == ["app.py"]


def test_the_same_mistake_again_in_another_file_is_new(known):
    (known / "app.py").write_text(STILL)
    (known / "agent.py").write_text(CLOCKED)
    status, report = check(known, "--baseline", "known.json")
    assert (status, [finding["path"] for finding in report["findings"]]) == (1, ["agent.py"])
    assert len(report["baseline"]["fixed"]) == 1


def test_hidden_suppressed_ignored_and_unread_findings_are_not_called_fixed(known):
    allowed = CLOCKED.replace(
        '{RULES}"\n    return', '{RULES}"  # promptlint: allow[clock-in-prefix] wanted\n    return'
    )
    assert allowed != CLOCKED
    (known / "app.py").write_text(allowed)
    assert check(known, "--baseline", "known.json")[1]["baseline"] == {"known": 0, "fixed": []}
    (known / "app.py").write_text(CLOCKED)
    ignored = check(known, "--baseline", "known.json", "--per-file-ignores", "app.py:clock-in-prefix")[1]
    assert ignored["baseline"] == {"known": 0, "fixed": []}
    (known / "other.py").write_text(
        CLOCKED.replace("dt.datetime.now()", "user_name").replace("question: str", "question: str, user_name: str")
    )
    promptlint("check", "--no-cache", "--write-baseline", "two.json", cwd=known)
    assert len(json.loads((known / "two.json").read_text())["findings"]) == 2
    assert check(known, "--baseline", "two.json", "--min-confidence", "high")[1]["baseline"] == {
        "known": 1,
        "fixed": [],
    }
    (known / "app.py").write_text(CLOCKED + "def (:\n")
    assert check(known, "--baseline", "known.json")[1]["baseline"]["fixed"] == []


def test_a_suppression_of_one_finding_does_not_make_an_equal_one_new(known):
    line = '    system = f"Now: {dt.datetime.now()}\\n{RULES}"\n'
    call = '    client.messages.create(model="m", max_tokens=9, messages=[], system=system)\n'
    twice = CLOCKED.replace(line, line + call + line)
    assert twice != CLOCKED
    (known / "app.py").write_text(twice)
    assert promptlint("check", "--no-cache", "--write-baseline", "two.json", cwd=known).stderr.startswith("2 findings")
    (known / "app.py").write_text(
        twice.replace(line, line.replace('"\n', '"  # promptlint: allow[clock-in-prefix] wanted\n'), 1)
    )
    status, report = check(known, "--baseline", "two.json")
    assert (status, report["suppressed"], report["baseline"]) == (0, 1, {"known": 1, "fixed": []})
