"""The README says what is so: its outputs are ours, and it names every command and every setting."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from promptlint.cli import cli
from promptlint.config import key_of, options

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
OUTPUT = re.compile(r"<!-- output of: promptlint (?P<command>.+?) -->\n```text\n(?P<text>.*?)```\n", re.DOTALL)


def test_outputs_are_current(request):
    text = README.read_text("utf-8")
    for match in OUTPUT.finditer(text):
        with contextlib.chdir(ROOT):
            words = match["command"].split()
            output = CliRunner().invoke(cli, words if words[0] == "simulate" else [*words, "--no-cache"]).stdout
        block = f"<!-- output of: promptlint {match['command']} -->\n```text\n{output}```\n"
        if request.config.getoption("--update-golden"):
            text = text.replace(match[0], block)
        else:
            assert match[0] == block, "run pytest --update-golden and read the README"
    if request.config.getoption("--update-golden"):
        README.write_text(text, "utf-8")
    assert len(OUTPUT.findall(text)) == 3


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_every_command_is_named(name):
    assert f"| `promptlint {name}" in README.read_text("utf-8")


@pytest.mark.parametrize("key", [key_of(item) for item in options()])
def test_every_setting_is_named(key):
    table = README.read_text("utf-8").split("## Configuration")[1].split("```")[0]
    assert f"`{key}`" in table


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text("utf-8")):
        assert (ROOT / target).exists(), target


def test_the_two_lines_that_do_everything():
    lines = [line for line in README.read_text("utf-8").splitlines() if line.startswith("python3 -m venv")]
    assert len(lines) == 2
    assert lines[0].endswith("promptlint check examples/support_bot")
    assert "'.[dev]'" in lines[1]
    assert "pytest" in lines[1]
    assert "'.[dev]'" in (ROOT / ".ci/run").read_text("utf-8")
