"""The installed command, as a person or a program calls it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from promptlint.cli import cli

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PROMPT = '''\
import datetime as dt

import anthropic

RULES = """{rules}"""


def ask(client: anthropic.Anthropic, question: str):
    system = f"Now: {{dt.datetime.now()}}\\n{{RULES}}"{remark}
    return client.messages.create(model="m", max_tokens=9, system=system, messages=[{{"role": "user", "content": question}}])
'''


def clocked(remark: str = "") -> str:
    """A program with one clock ahead of about 900 fixed tokens."""
    return PROMPT.format(rules="Answer from the manual only. Name the page that you used.\n" * 75, remark=remark)


def promptlint(
    *args: str | Path, cwd: Path, stdin: str | bytes = b"", **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command line in this process, which spares loading the tokenizer for each call; see `process` for the real thing."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(cli, [str(arg) for arg in args], input=stdin, env=environment, prog_name="promptlint")
    return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)


def process(*args: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "promptlint", *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.fixture
def project(tmp_path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "app.py").write_text(clocked())
    return tmp_path


def check_json(*args: str | Path, cwd: Path) -> dict:
    done = promptlint("check", "--no-cache", "--output-format", "json", *args, cwd=cwd)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def test_the_example_has_exactly_its_three_faults():
    report = check_json("examples/support_bot", cwd=ROOT)
    folder = "examples/support_bot/support"
    assert {(finding["rule"], finding["path"]) for finding in report["findings"]} == {
        ("clock-in-prefix", f"{folder}/desk.py"),
        ("user-data-before-shared", f"{folder}/prompts/mail.jinja"),
        ("block-order-differs", f"{folder}/desk.py"),
    }
    assert len(report["findings"]) == 3
    assert report["summary"]["call_sites"] == report["summary"]["read_fully"] == 3
    done = process("check", "--no-cache", "examples/support_bot", cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "")


def test_the_repaired_example_is_clean():
    done = promptlint("check", "--no-cache", "examples/support_bot_fixed", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "3 call sites: 3 read fully, 0 partly, 0 not; 0 findings"
    for persona in ("pedantic", "auditor"):
        assert (
            check_json("--persona", persona, "examples/support_bot_fixed", cwd=ROOT)["summary"]["findings"]["high"] == 0
        )


def test_show():
    report = json.loads(
        promptlint("show", "--output-format", "json", "--no-cache", "examples/support_bot", cwd=ROOT).stdout
    )
    assert len(report["call_sites"]) == 3
    output = promptlint("show", "--no-cache", "examples/support_bot", cwd=ROOT).stdout
    for site in report["call_sites"]:
        assert site["id"] in output
        assert site["cache_key"] in output
    assert output.count("~~~ the cacheable prefix ends here") == 3


def test_the_json_follows_its_schema(project):
    schema = json.loads((ROOT / "promptlint/schemas/check.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for report in (check_json(EXAMPLES / "support_bot", cwd=ROOT), check_json(".", cwd=project)):
        jsonschema.validate(report, schema)


def test_exit_statuses(project):
    assert promptlint("check", cwd=project).returncode == 1
    assert promptlint("check", "--exit-zero", cwd=project).returncode == 0
    assert promptlint("check", "--ignore", "all", cwd=project).returncode == 0
    (project / "app.py").write_text(clocked().replace("dt.datetime.now()", "dt.date.today()"))  # lost once a day: low
    assert promptlint("check", cwd=project).returncode == 1
    assert promptlint("check", "--fail-on", "medium", cwd=project).returncode == 0
    assert promptlint("show", cwd=project).returncode == 0


def test_a_path_is_printed_relative_to_the_working_directory(project):
    (project / "deep").mkdir()
    report = check_json("../app.py", cwd=project / "deep")
    assert {finding["path"] for finding in report["findings"]} == {"../app.py"}


def test_suppression_with_reason(project):
    (project / "app.py").write_text(clocked("  # promptlint: allow[clock-in-prefix] audit wants it first"))
    done = promptlint("check", cwd=project)
    assert done.returncode == 0
    assert "1 finding suppressed" in done.stdout
    (project / "app.py").write_text(clocked("  # promptlint: allow[clock-in-prefix]"))
    assert [finding["rule"] for finding in check_json(cwd=project)["findings"]] == ["suppression-without-reason"]
    (project / "app.py").write_text(clocked("  # promptlint: allow[unsorted-json] why"))
    assert {finding["rule"] for finding in check_json(cwd=project)["findings"]} == {
        "clock-in-prefix",
        "unused-suppression",
    }


def test_stdin_with_and_without_a_name(project):
    done = promptlint(
        "check", "-", "--stdin-filename", "app.py", "--output-format", "concise", cwd=project, stdin=clocked()
    )
    assert done.returncode == 1
    assert done.stdout.startswith("app.py:84:")
    assert promptlint("check", "-", "--stdin-filename", "new/file.py", cwd=project, stdin="x = 1\n").returncode == 0
    assert promptlint("check", "-", cwd=project, stdin=clocked()).returncode == 1
    assert promptlint("check", "--stdin-filename", "app.py", cwd=project).returncode == 2
    bad = promptlint("check", "-", cwd=project, stdin=b"\xff\xfe")
    assert (bad.returncode, bad.stderr) == (2, "promptlint: error: stdin: not valid UTF-8 text\n")


def test_output_file(project):
    done = promptlint("check", "--output-format", "sarif", "-o", "out.sarif", cwd=project)
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads((project / "out.sarif").read_text())["version"] == "2.1.0"
    assert promptlint("check", "-o", "missing/out", cwd=project).returncode == 2


def test_colors_are_for_terminals(project):
    assert "\x1b" not in promptlint("check", cwd=project).stdout
    assert "\x1b" in promptlint("check", cwd=project, FORCE_COLOR="1", NO_COLOR="").stdout
    assert "\x1b" not in promptlint("check", cwd=project, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_show_files_and_settings(project):
    (project / "test_app.py").write_text("")
    (project / "a.ipynb").write_text("{}")
    files = promptlint("check", "--show-files", cwd=project).stdout
    assert "app.py: python (Python)\n" in files
    assert "test_app.py: skipped (test file)\n" in files
    assert "     1  skipped, notebooks are not supported\n" in files
    settings = promptlint("check", "--show-settings", "--persona", "auditor", cwd=project).stdout
    assert 'persona = "auditor"\n' in settings
    assert 'min-confidence = "low"\n' in settings


def test_statistics(project):
    output = promptlint("check", "--statistics", cwd=project).stdout
    assert "    1  clock-in-prefix" in output


def test_a_second_run_says_the_same(project):
    first = promptlint("check", "--output-format", "json", cwd=project)
    second = promptlint("check", "--output-format", "json", cwd=project)
    assert first.stdout == second.stdout
    assert (project / ".promptlint_cache").is_dir()
    assert first.stdout == promptlint("check", "--output-format", "json", "--no-cache", cwd=project).stdout


def test_hash_seed_does_not_matter(project):
    one, two = (
        promptlint("check", "--no-cache", "--output-format", "json", cwd=ROOT / "examples", PYTHONHASHSEED=seed).stdout
        for seed in "12"
    )
    assert one == two


# What people get wrong, and what file systems hold: one clear line each.


def complaint(*args: str | Path, cwd: Path) -> str:
    done = promptlint(*args, cwd=cwd)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("promptlint: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_wrong_path_also_beside_a_good_one(project):
    assert "nope: does not exist" in complaint("check", "app.py", "nope", cwd=project)


def test_broken_configuration(project):
    (project / "promptlint.toml").write_text("[[\n")
    assert "promptlint.toml:1: not valid TOML" in complaint("check", cwd=project)
    (project / "promptlint.toml").write_text("\nselct = []\n")
    assert "promptlint.toml:2: unknown setting 'selct'; did you mean 'select'?" in complaint("check", cwd=project)
    assert promptlint("check", "--isolated", cwd=project).returncode == 1


def test_bad_rule_name(project):
    assert "there is no rule 'clock'" in complaint("check", "--select", "clock", cwd=project)
    (project / "promptlint.toml").write_text('ignore = ["clock-in-prefx"]\n')
    assert "promptlint.toml: ignore: there is no rule 'clock-in-prefx'; did you mean clock-in-prefix" in complaint(
        "check", cwd=project
    )


def test_undecodable_file_beside_a_good_one_and_alone(project):
    (project / "latin.py").write_bytes(b"x = '\xe9'\n")
    done = promptlint("check", cwd=project)
    assert done.returncode == 1
    assert done.stderr == "warning: latin.py:1: not valid utf-8 text\n"
    alone = promptlint("check", "latin.py", cwd=project)
    assert alone.returncode == 2
    assert alone.stderr.splitlines()[-1] == "promptlint: error: no given file could be read"


def test_names_that_are_no_text_and_names_that_drive_a_terminal(project):
    (project / "app.py").rename(project / "bad\udcff\x1b[31m\n.py")
    for form in ("full", "concise", "json", "github", "junit", "sarif", "markdown"):
        done = promptlint("check", "--output-format", form, cwd=project)
        assert done.returncode == 1
        assert "\x1b" not in done.stdout
        assert "Traceback" not in done.stderr
    assert promptlint("check", cwd=project).stdout.splitlines()[1].endswith("bad\\udcff\\x1b[31m\\n.py:84:21")


def test_huge_file(project):
    with (project / "huge.py").open("wb") as file:
        file.seek(50_000_000)
        file.write(b"\n")
    done = promptlint("check", cwd=project)
    assert done.returncode == 1
    assert done.stderr == "warning: huge.py:1: larger than 5 MB\n"


def test_file_that_is_not_python(project):
    (project / "broken.py").write_text(clocked() + "def (:\n")
    done = promptlint("check", cwd=project)
    assert done.returncode == 1
    assert done.stderr.startswith("warning: broken.py:")
    assert done.stderr.count("\n") == 1


def test_symlink_loops(project):
    (project / "sub").mkdir()
    (project / "sub" / "up").symlink_to("..")
    (project / "self.py").symlink_to("self.py")
    done = promptlint("check", cwd=project)
    assert done.returncode == 1
    assert sorted(done.stderr.splitlines()) == [
        "warning: self.py:1: symbolic link loop, not followed",
        "warning: sub/up:1: symbolic link loop, not followed",
    ]
    assert "self.py" in complaint("check", "self.py", cwd=project)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_folder_without_read_permission(project):
    locked = project / "locked"
    locked.mkdir()
    locked.chmod(0)
    try:
        done = promptlint("check", cwd=project)
        alone = promptlint("check", "locked", cwd=project)
    finally:
        locked.chmod(0o700)
    assert done.returncode == 1
    assert done.stderr == "warning: locked:1: folder cannot be read: Permission denied\n"
    assert alone.returncode == 2


def test_nothing_of_the_project_is_executed(project):
    (project / "app.py").write_text("import pathlib\npathlib.Path('executed').touch()\n" + clocked())
    (project / "promptlint").mkdir()
    (project / "promptlint" / "__init__.py").write_text("raise SystemExit('imported')\n")
    assert process("check", "app.py", cwd=project, PYTHONSAFEPATH="1").returncode == 1
    assert not (project / "executed").exists()


# Coverage is honest: what was not read is never called clean.


def test_prompts_from_a_database_end_with_not_read(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "app.py").write_text(
        "import openai\n\n\ndef ask(db):\n    prompt = db.execute('select text from prompts').fetchone()\n"
        "    return openai.OpenAI().chat.completions.create(model='gpt-4o', messages=prompt)\n"
    )
    done = promptlint("check", cwd=tmp_path)
    last = done.stdout.rstrip().splitlines()[-1]
    assert last.startswith("1 call site: 0 read fully, 0 partly, 1 not; 0 findings; not read")
    assert "`promptlint record -- COMMAND`" in last
    assert "clean" not in done.stdout
    assert done.returncode == 0
    report = check_json(cwd=tmp_path)
    assert report["summary"]["not_read"] == 1
    assert report["call_sites"][0]["resolution"] == 0
    assert report["call_sites"][0]["unresolved"]


def test_prompts_from_a_hub_end_with_not_read(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "app.py").write_text(
        "from langchain import hub\nfrom langchain_openai import ChatOpenAI\n\n"
        "prompt = hub.pull('owner/prompt')\nchain = prompt | ChatOpenAI()\n\n\ndef ask(question):\n    return chain.invoke({'question': question})\n"
    )
    done = promptlint("check", cwd=tmp_path)
    assert "not read" in done.stdout.rstrip().splitlines()[-1]
    assert "clean" not in done.stdout


def test_a_project_without_prompts_ends_with_not_read(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    last = promptlint("check", cwd=tmp_path).stdout.rstrip().splitlines()[-1]
    assert last == (
        "0 call sites: 0 read fully, 0 partly, 0 not; 0 findings; not read: no prompt found in 1 file, "
        "`promptlint check --show-files` lists what was looked at"
    )
