"""The gate on `check`: how many functions the interpreter enters, for each node of the programs' syntax trees, and how that grows. Counts of one run, never seconds."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from promptlint.app.check import Request, check
from promptlint.config import Settings

PACKAGE = str(Path(sys.modules["promptlint"].__path__[0]))

QUIET = '''\
"""Arithmetic, as most files of a project are: there is no prompt in it."""

import math


class Shape:
    def __init__(self, sides: list[float]) -> None:
        self.sides = sides

    def around(self) -> float:
        total = 0.0
        for side in self.sides:
            total += math.sqrt(side * side) if side > 0 else -side
        return total


def largest(shapes: list[Shape]) -> Shape | None:
    return max(shapes, key=lambda shape: shape.around(), default=None)
'''
PROMPTS = f'''\
import datetime

from openai import OpenAI

RULES = """{"Answer from the manual only. " * 40}"""


class Agent:
    def __init__(self, tools: list[str]) -> None:
        self.client, self.tools = OpenAI(), tools

    def system(self, user: str) -> str:
        lines = [f"Now: {{datetime.datetime.now()}}", RULES]
        for tool in self.tools:
            lines.append(f"- {{tool}}")
        if user:
            lines.append(f"You talk to {{user}}.")
        return "\\n".join(lines)

    def ask(self, question: str, user: str = "") -> str:
        messages = [{{"role": "system", "content": self.system(user)}}, {{"role": "user", "content": question}}]
        return self.client.chat.completions.create(model="gpt-4o", messages=messages).choices[0].message.content
'''


def entered(folder: Path) -> int:
    """Functions of promptlint that a check of the folder enters."""
    count = 0

    def note(frame, event, _):
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        check(Settings(folder), Request((folder,), folder), use_cache=False)
    finally:
        sys.setprofile(before)
    return count


def cost(folder: Path, text: str, few: int, many: int) -> float:
    """Functions that one more file costs, for each node of its syntax tree: what a run costs whatever it reads is not in it."""
    counts = []
    for files in (few, many):
        project = folder / str(files)
        project.mkdir(parents=True, exist_ok=True)
        for number in range(files):
            (project / f"part{number}.py").write_text(text)
        counts.append(entered(project))
    return (counts[1] - counts[0]) / (many - few) / sum(1 for _ in ast.walk(ast.parse(text)))


# Measured when this was written: 1.3 and 24.5. A bound is there to be lowered; who raises one says why.
@pytest.mark.parametrize(("text", "bound"), [(QUIET, 1.8), (PROMPTS, 32)], ids=["quiet", "prompts"])
def test_a_file_costs_little_and_the_fortieth_no_more_than_the_tenth(tmp_path, monkeypatch, text, bound):
    monkeypatch.setenv("PROMPTLINT_WORKERS", "1")
    cost(tmp_path / "first", text, 1, 2)  # what a process does once
    early = cost(tmp_path / "early", text, 2, 10)
    late = cost(tmp_path / "late", text, 40, 48)
    assert early < bound
    assert late < 1.15 * early
