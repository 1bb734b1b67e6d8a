"""`check --fix` and its relatives as a user runs them."""

import codecs
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from promptlint.app import check as checking
from promptlint.app import fix as fixing
from promptlint.cli import cli

LISTING = """\
import os
from openai import OpenAI

STYLE = "Make the smallest change that works. " * 60
client = OpenAI()


def ask(root, question):
    names = os.listdir(root)
    return client.chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": "Files: " + ", ".join(names) + "\\n" + STYLE},
            {"role": "user", "content": question},
        ],
    )
"""

TEMPLATE = '''\
SYSTEM = """You keep the records in order.
The step is {step}.

Use one tool at a time, and wait for its answer. Do not guess what a tool would say. Never call a tool twice with
the same arguments. Explain what you did in one sentence. Stop when the work is done, and say what is left open."""
'''

AGENT = """\
from openai import OpenAI

from prompts import SYSTEM

client = OpenAI()


def run(transcript, limit, question):
    for step in range(limit):
        reply = client.chat.completions.create(
            model="gpt-4o",
            messages=[
                {"role": "system", "content": SYSTEM.format(step=step)},
                *transcript,
                {"role": "user", "content": f"Go on with: {question}"},
            ],
        )
        transcript.append(reply.choices[0].message)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("promptlint.toml").write_text("")

    def invoke(*words, text=None):
        return CliRunner().invoke(cli, ["check", "--no-cache", *words], input=text, prog_name="promptlint")

    return invoke


def test_fix_writes_and_a_second_run_changes_nothing(run):
    Path("a.py").write_text(LISTING)
    done = run("--fix", ".")
    assert done.exit_code == 0
    assert "1 finding was repaired in 1 file" in done.stderr
    fixed = Path("a.py").read_text()
    assert fixed == LISTING.replace("os.listdir(root)", "sorted(os.listdir(root))")
    again = run("--fix", ".")
    assert "0 findings were repaired" in again.stderr
    assert Path("a.py").read_text() == fixed


def test_diff_prints_and_writes_nothing(run):
    Path("a.py").write_text(LISTING)
    done = run("--diff", ".")
    assert done.exit_code == 1
    assert "+    names = sorted(os.listdir(root))\n" in done.stdout
    assert Path("a.py").read_text() == LISTING
    assert run("--diff", "--exit-zero", ".").exit_code == 0


def test_fix_only_reports_nothing(run):
    Path("a.py").write_text(LISTING)
    done = run("--fix-only", ".")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "sorted" in Path("a.py").read_text()


def test_stdin_comes_out_repaired(run):
    done = run("--fix", "-", "--stdin-filename", "a.py", text=LISTING)
    assert done.stdout == LISTING.replace("os.listdir(root)", "sorted(os.listdir(root))")
    assert not Path("a.py").exists()


def test_a_move_across_files_changes_both(run):
    Path("prompts.py").write_text(TEMPLATE)
    Path("agent.py").write_text(AGENT)
    assert run("--reorder", ".").exit_code == 0
    assert "{step}" not in Path("prompts.py").read_text()
    assert "The step is {step}." in Path("agent.py").read_text()


def test_a_file_outside_the_given_paths_is_never_touched(run):
    Path("prompts.py").write_text(TEMPLATE)
    Path("agent.py").write_text(AGENT)
    run("--reorder", "prompts.py")
    assert Path("agent.py").read_text() == AGENT
    # Behind its own text the value would still stand ahead of the conversation: that edit helps nobody and is dropped.
    assert Path("prompts.py").read_text() == TEMPLATE


def test_another_user_of_the_template_stops_the_move(run):
    Path("prompts.py").write_text(TEMPLATE)
    Path("agent.py").write_text(AGENT)
    Path("other.py").write_text("from prompts import SYSTEM\n\nprint(SYSTEM.format(step=1))\n")
    run("--reorder", ".")
    assert Path("prompts.py").read_text() == TEMPLATE
    assert Path("agent.py").read_text() == AGENT


def test_a_dropped_edit_is_told_at_its_finding(run):
    Path("prompts.py").write_text(TEMPLATE)
    Path("agent.py").write_text(AGENT)
    done = run("--reorder", "--output-format", "json", "prompts.py")
    found = json.loads(done.stdout)["findings"]
    assert [item["fix"]["edits"] for item in found] == [[]]
    assert "dropped, because" in found[0]["fix"]["title"]


def test_edits_stand_in_json_sarif_and_reviewdog(run):
    Path("a.py").write_text(LISTING)
    (item,) = json.loads(run("--output-format", "json", ".").stdout)["findings"]
    assert item["fix"]["applicability"] == "safe"
    assert [(edit["line"], edit["text"]) for edit in item["fix"]["edits"]] == [(9, "sorted("), (9, ")")]
    (result,) = json.loads(run("--output-format", "sarif", ".").stdout)["runs"][0]["results"]
    assert [each["insertedContent"]["text"] for each in result["fixes"][0]["artifactChanges"][0]["replacements"]] == [
        "sorted(",
        ")",
    ]
    (diagnostic,) = json.loads(run("--output-format", "rdjson", ".").stdout)["diagnostics"]
    (suggestion,) = diagnostic["suggestions"]
    assert suggestion["text"] == "    names = sorted(os.listdir(root))"
    assert suggestion["range"] == {"start": {"line": 9, "column": 1}, "end": {"line": 9, "column": 29}}


def test_suppressed_findings_are_left_alone(run):
    text = LISTING.replace(
        "os.listdir(root)", "os.listdir(root)  # promptlint: allow[unsorted-listing] the order is meant"
    )
    Path("a.py").write_text(text)
    run("--fix", ".")
    assert Path("a.py").read_text() == text


@pytest.mark.parametrize("option", [("--baseline", "b.json"), ("--statistics",), ("--locked",)])
def test_options_that_do_not_fit_are_refused(run, option):
    Path("a.py").write_text(LISTING)
    done = run("--fix", *option, ".")
    assert done.exit_code == 2
    assert "cannot be used while edits are made" in done.stderr


def test_a_link_to_a_file_elsewhere_is_not_written(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "real.py"
    elsewhere.write_text(LISTING)
    Path("a.py").symlink_to(elsewhere)
    run("--fix", ".")
    assert elsewhere.read_text() == LISTING
    run("--fix", "a.py")  # named itself, it is what the user means
    assert "sorted" in elsewhere.read_text()
    assert Path("a.py").is_symlink()


def test_a_suggestion_is_the_code_itself_or_nothing():
    from diff_sample import changes

    from promptlint.report.diff_markdown import markdown
    from promptlint.report.model import EditItem, FixItem, Suggestion

    def shown(text):
        report = changes()
        fix = FixItem("sort the listing", "safe", (EditItem("a.py", 3, 9, 3, 9, "sorted("),))
        new = tuple(replace(finding, fix=fix, suggestion=Suggestion(3, 3, 20, text)) for finding in report.new_findings)
        assert new
        return markdown(replace(report, new_findings=new))

    assert "  ```suggestion\n      names = sorted(x)\n  ```" in shown("    names = sorted(x)")
    assert "suggestion" not in shown("    names = '```'")
    assert "@everyone" not in shown("    names = '@everyone'")


@pytest.fixture
def locked(monkeypatch):
    """Makes files and folders of some names read-only, also for an administrator, whom permissions do not bind."""
    access = os.access

    def lock(*names):
        monkeypatch.setattr(
            os, "access", lambda path, mode: access(path, mode) and (mode == os.R_OK or Path(path).name not in names)
        )

    return lock


def test_a_move_across_files_changes_none_when_one_is_read_only(run, locked):
    Path("prompts.py").write_text(TEMPLATE)
    Path("agent.py").write_text(AGENT)
    Path("a.py").write_text(LISTING)
    locked("agent.py")
    done = run("--reorder", "--fix", "--output-format", "json", ".")
    assert done.exit_code == 1
    assert (Path("prompts.py").read_text(), Path("agent.py").read_text()) == (TEMPLATE, AGENT)
    assert "sorted" in Path("a.py").read_text()  # has nothing to do with it
    titles = [item["fix"]["title"] for item in json.loads(done.stdout)["findings"]]
    assert titles == ["move the value into the newest message: dropped, because agent.py may not be written"]


def test_a_file_in_a_read_only_folder_is_left_alone(run, locked):
    Path("package").mkdir()
    Path("package/a.py").write_text(LISTING)
    locked("package")
    done = run("--fix", ".")
    assert done.exit_code == 1
    assert "package/a.py is in a folder that may not be written" in done.stdout
    assert Path("package/a.py").read_text() == LISTING


def test_files_beside_stdin_are_written_too(run):
    Path("b.py").write_text(LISTING)
    done = run("--fix", "-", "b.py", "--stdin-filename", "a.py", text=LISTING)
    assert "sorted" in done.stdout
    assert "sorted" in Path("b.py").read_text()
    assert not Path("a.py").exists()


def test_stdin_keeps_its_mark_and_its_line_ends(run):
    data = codecs.BOM_UTF8 + LISTING.replace("\n", "\r\n").encode()
    done = run("--fix", "-", text=data)
    assert done.stdout_bytes == data.replace(b"os.listdir(root)", b"sorted(os.listdir(root))")


@pytest.mark.parametrize("blank", ["\f", "\x1c", "\u2028", "\x85"])
def test_a_diff_has_the_lines_of_a_patch(run, blank):
    """Only a line feed ends a line of a unified diff, whatever else Python takes for the end of one."""
    text = LISTING.replace("    names", f"    # one{blank}two\n    names")
    Path("a.py").write_text(text, "utf-8", newline="")
    lines = run("--diff", ".").stdout.split("\n")
    assert "+    names = sorted(os.listdir(root))" in lines
    assert not any("No newline" in line for line in lines)
    assert f"     # one{blank}two" in lines


def test_a_file_with_form_feeds_is_repaired(run):
    text = LISTING.replace("\n\n\ndef", "\n\n\f\ndef").replace("    names", "\f    names")
    Path("a.py").write_text(text)
    run("--fix", ".")
    assert Path("a.py").read_text() == text.replace("os.listdir(root)", "sorted(os.listdir(root))")


def test_unsafe_fixes_alone_says_that_it_does_nothing(run):
    Path("a.py").write_text(LISTING)
    done = run("--unsafe-fixes", ".")
    assert "does nothing without --fix, --reorder or --diff" in done.stderr


def test_edits_are_found_once_and_kept_with_the_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("promptlint.toml").write_text("")
    Path("a.py").write_text(LISTING)
    readings = []
    analyse = checking.analyse
    monkeypatch.setattr(checking, "analyse", lambda *given: readings.append(1) or analyse(*given))

    def found():
        return CliRunner().invoke(cli, ["check", "--output-format", "json", "."], prog_name="promptlint").stdout

    first = found()
    assert json.loads(first)["findings"][0]["fix"]["edits"]
    assert len(readings) == 2  # as it is, and with the edits
    assert found() == first
    assert len(readings) == 2


def test_the_one_edit_to_blame_is_found_among_several(run, monkeypatch):
    names = ["a.py", "b.py", "c.py", "d.py"]
    for name in names:
        Path(name).write_text(LISTING)
    tried = []

    def blame(old, new, reports, patch, chosen):
        """As if the edit of b.py brought a finding to which nothing leads."""
        tried.append([each.finding.span.path for each in chosen])
        if "b.py" not in tried[-1]:
            return []
        suspects = [fixing._Wrong(each, "of a reason", sure=len(chosen) == 1) for each in chosen]
        return suspects[len(suspects) // 2 :]

    monkeypatch.setattr(fixing, "_blame", blame)
    done = run("--fix", ".")
    assert [name for name in names if "sorted" in Path(name).read_text()] == ["a.py", "c.py", "d.py"]
    assert tried[:2] == [names, ["a.py", "b.py"]]
    assert "dropped, because of a reason" in done.stdout
