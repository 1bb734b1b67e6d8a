"""The README and docs/ say what is so: their outputs are ours, their commands run, and they name every command and every setting."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from stand_in_server import MODEL, Behaviour, StandIn

from promptlint.cli import cli
from promptlint.config import key_of, options

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = "examples/first_look/agent.py"
OUTPUT = re.compile(r"<!-- output of: promptlint (?P<command>.+?) -->\n```text\n(?P<text>.*?)```\n", re.DOTALL)

# Lines and mentions that no test of this file runs, with the reason.
NOT_RUN_HERE = {
    "source .venv/bin/activate": "the shell's own",
    "python3 -m venv .venv && .venv/bin/pip install --quiet . && .venv/bin/promptlint check examples/support_bot": "needs a package index; its last part has a test in test_command.py",
    "python3 -m venv .venv && .venv/bin/pip install --quiet -e '.[dev]' && .venv/bin/python -m pytest -q -n 2": "is what .ci/run runs",
    "python tests/tools/score_corpus.py LABELS REPOSITORIES": "tests/unit/tools runs it",
    "python tests/benchmarks/bench_all.py --tree TREE": "measures for minutes",
    "python tests/benchmarks/bench_all.py --write docs/benchmarks.md": "measures for minutes",
    "python tests/tools/build_docs.py": "test_generated_pages_are_current runs it",
    "python examples/radix_lab/lab.py": "tests/unit/caches runs it",
    "promptlint ci github": "tests/e2e/test_action.py runs it against a stand-in of GitHub",
    'promptlint check --baseline-ref "$BASE" --output-format junit -o promptlint.xml': "test_recipes.py runs it",
    'promptlint diff "$BASE" HEAD --output-format markdown -o promptlint.md --max-hit-rate-drop 5': "test_recipes.py runs it",
    "promptlint diff BASE [HEAD]": "test_recipes.py",
    "promptlint bench --target URL --target URL": "the heading of what test_bench_page runs",
    "promptlint record -- COMMAND": "the heading of what test_traffic_page runs",
    "promptlint perturb -- COMMAND": "the heading of what test_traffic_page runs",
    "promptlint traffic anonymize": "without a log it is only a name; tests/unit/traffic",
    "promptlint traffic stats": "without a log it is only a name; tests/unit/traffic",
    "python tests/tools/stage_rates.py 40000": "measures for minutes",
    "promptlint traffic COMMAND": "a group of commands; tests/unit/traffic",
}
# What stands for a placeholder when a mention is run.
STANDS_FOR = {
    "[PATHS]": EXAMPLE,
    "[PATH]": "examples/support_bot",
    "RULE": "clock-in-prefix",
    "TRAFFIC...": "examples/support_bot/traffic.jsonl",
    "[TRAFFIC...]": "examples/support_bot/traffic.jsonl",
    "LOG": "examples/support_bot/traffic.jsonl",
    "FILE": EXAMPLE,
}


def lines_of(page: Path) -> list[str]:
    """The commands of the shell blocks of a page, without comments."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return [re.sub(r"\s+# .*", "", line) for block in blocks for line in block.splitlines()]


def mentions_of(page: Path) -> list[str]:
    """The commands with arguments that a page names in its text."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    found = [" ".join(mention.split()) for mention in re.findall(r"`((?:promptlint|python) [^`]*)`", text)]
    return [mention for mention in found if mention.count(" ") > 1 or mention.split()[0] == "python"]


LOOP = lines_of(README)[lines_of(README).index("promptlint record -- pytest -q") :][:5]  # test_the_loop_of_the_readme

LINES = {line for page in PAGES for line in lines_of(page)}
PAGE_TESTS = {ROOT / "docs" / "bench.md", ROOT / "docs" / "traffic.md"}  # their lines build on each other
MENTIONS = {mention for page in PAGES for mention in mentions_of(page)} - LINES
SINGLE = sorted(
    (({line for page in PAGES if page not in PAGE_TESTS for line in lines_of(page)}) | MENTIONS)
    - set(NOT_RUN_HERE)
    - set(LOOP)
)


def stdout(command: str) -> str:
    """What a command of a page prints, run from the project's folder."""
    words = command.split()
    with contextlib.chdir(ROOT):
        return CliRunner().invoke(cli, [*words, "--no-cache"] if words[0] in ("check", "show") else words).stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_outputs_are_current(page, request):
    text = page.read_text("utf-8")
    for match in OUTPUT.finditer(text):
        block = f"<!-- output of: promptlint {match['command']} -->\n```text\n{stdout(match['command'])}```\n"
        if request.config.getoption("--update-golden"):
            text = text.replace(match[0], block)
        else:
            assert match[0] == block, "run pytest --update-golden and read the page"
    if request.config.getoption("--update-golden"):
        page.write_text(text, "utf-8")
    assert len(OUTPUT.findall(text)) == {"README.md": 3, "simulate.md": 1}.get(page.name, 0)


def test_the_example_is_the_file():
    assert f"```python\n{(ROOT / EXAMPLE).read_text('utf-8')}```\n" in README.read_text("utf-8")


def test_reasons_are_for_lines_that_exist():
    assert set(NOT_RUN_HERE) <= LINES | MENTIONS


@pytest.mark.parametrize("command", SINGLE)
def test_command_runs(command, tmp_path):
    """Every other command, in a copy of the examples; 1 is the status of findings, 2 would be a command that cannot be."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("radix_lab"))
    (tmp_path / "pyproject.toml").write_text("")
    if "--baseline " in command:
        run("promptlint check --write-baseline promptlint-baseline.json", tmp_path)
    if command == "promptlint check --locked":
        run("promptlint show --write-lock", tmp_path)
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)]
    done = run(shlex.join(words), tmp_path, given=(ROOT / EXAMPLE).read_text("utf-8"))
    assert done.returncode in ((0, 1) if words[1] in ("check", "diff") else (0,)), done.stderr
    written = tmp_path / words[-1] if words[-2] == "-o" else None
    assert done.stdout or done.stderr or (written is not None and written.stat().st_size)


def test_traffic_page(tmp_path):
    """Record, diagnose, check, perturb, advise."""
    agent_project(tmp_path)
    said = {}
    for line in lines_of(ROOT / "docs" / "traffic.md"):
        done = run(
            line.replace("perturb --", "perturb --factor clock --"), tmp_path
        )  # one factor; the others take a minute
        said[line.split()[1]] = done.stdout + done.stderr
        assert done.returncode == (1 if line.startswith("promptlint check") else 0), (line, done.stdout, done.stderr)
    assert "3 requests" in said["record"]
    assert "clock-in-prefix" in said["diagnose"]
    assert "agent.py::ask" in said["diagnose"]
    assert "clock-in-prefix" in said["check"]
    assert "clock" in said["perturb"]
    assert "agent.py::ask" in said["advise"]


def test_the_loop_of_the_readme(tmp_path):
    """Record, diagnose, check, fix, advise: of the clock a date is left, which costs next to nothing."""
    agent_project(tmp_path)
    status = {}
    for line in LOOP:
        done = run(line, tmp_path)
        status[line.split("#")[0].strip()] = done.returncode
        assert done.returncode in {0, 1}, (line, done.stdout, done.stderr)
    assert list(status.values()) == [0, 0, 1, 1, 0], status
    assert run("promptlint check --fail-on medium", tmp_path).returncode == 0


def agent_project(folder: Path) -> None:
    """A project whose only test sends a prompt with a clock in it to a server of its own."""
    pytest.importorskip("httpx", reason="not run: needs httpx")
    (folder / "pyproject.toml").write_text("")
    shutil.copy(ROOT / "tests" / "llm_server.py", folder)
    (folder / "agent.py").write_text(AGENT)
    (folder / "test_agent.py").write_text(AGENT_TEST)


AGENT = """\
import datetime
import httpx

RULES = "Answer from the manual only, and quote the paragraph. " * 60


def ask(url, question):
    now = datetime.datetime.now().isoformat()
    messages = [{"role": "system", "content": f"It is {now}. {RULES}"}, {"role": "user", "content": question}]
    return httpx.post(url, json={"model": "gpt-4o-mini", "messages": messages}).json()
"""
AGENT_TEST = """\
import agent, llm_server


def test_agent():
    url = llm_server.start() + "/v1/chat/completions"
    for question in ("how?", "when?", "why?"):
        assert agent.ask(url, question)
"""


def test_bench_page(tmp_path):
    """Both servers are stand-ins, and the load is small; else the lines run as they stand."""
    (tmp_path / "my.yaml").write_text((ROOT / "examples/workloads/json_extraction.yaml").read_text("utf-8"))
    with StandIn(Behaviour("vllm")) as a, StandIn(Behaviour("sglang", unit=1)) as b:
        for line in lines_of(ROOT / "docs" / "bench.md"):
            here = line.replace("http://localhost:8000", a.url).replace("http://localhost:30000", b.url)
            if "--target" in line:
                here += " --requests 12 --output-tokens 2 --repetitions 3 --warm-up 1"
            done = run(here, tmp_path)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            assert done.stdout
        assert MODEL
        assert len(a.requests) == len(b.requests) > 36
    assert (tmp_path / "run.json").exists()


def run(line: str, folder: Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """A line of shell in that folder, where `promptlint`, `pytest` and `python` are this interpreter's."""
    scripts = folder / ".scripts"
    if not scripts.exists():
        scripts.mkdir()
        for name, call in {
            "promptlint": "-m promptlint",
            "pytest": "-m pytest -p no:cacheprovider",
            "python": "",
        }.items():
            (scripts / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
            (scripts / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-ec", line],
        cwd=folder,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_every_command_is_named(name):
    assert f"| `promptlint {name}" in README.read_text("utf-8")


@pytest.mark.parametrize("key", [key_of(item) for item in options()])
def test_every_setting_is_named(key):
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert f"`{key}`" in page.split("## Configuration")[1].split("```")[0]


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "docs" / "how-to").glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", page.read_text("utf-8")):
        assert (page.parent / target).exists(), target


def test_generated_pages_are_current():
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "tests" / "tools" / "build_docs.py")
    build_docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_docs)
    assert build_docs.main(check=True) == 0, "run python tests/tools/build_docs.py"


def test_readable_in_ten_minutes():
    assert len(README.read_text("utf-8").split()) < 2000  # at 200 words a minute


def test_the_two_lines_that_do_everything():
    lines = [line for line in README.read_text("utf-8").splitlines() if line.startswith("python3 -m venv")]
    assert len(lines) == 2
    assert lines[0].endswith("promptlint check examples/support_bot")
    assert "'.[dev]'" in lines[1]
    assert "pytest" in lines[1]
    assert "'.[dev]'" in (ROOT / ".ci/run").read_text("utf-8")
