"""`check --fix` and its relatives as a user runs them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

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
