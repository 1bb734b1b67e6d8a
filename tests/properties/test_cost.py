"""A gate against slow code: what is counted are calls of Python functions, which no busy machine changes, in proportion to the work.

A bound is about a quarter above what was measured when it was set. Raise one only with a reason: a failure here is minutes on a large project.
"""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from promptlint.app.check import Request, check
from promptlint.config import Settings
from promptlint.frontends import python as front_end
from promptlint.frontends.base import Project
from promptlint.frontends.jinja import read_template
from promptlint.frontends.python import parts
from promptlint.frontends.python.index import Index
from tests.properties.programs import generate

STDLIB = Path(sysconfig.get_path("stdlib"))


def calls(work: Callable[[], object]) -> int:
    """How many Python functions are called (a generator counts each time it goes on)."""
    count = 0

    def note(frame: Any, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def write(folder: Path, seeds: range) -> Path:
    """A project of generated programs."""
    for seed in seeds:
        for name, text in generate(seed).files.items():
            path = folder / f"app{seed}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return folder


def read(folder: Path) -> None:
    files = sorted(folder.rglob("*.py"))
    front_end.read(Project(folder, files, frozenset(files), folder), templates=read_template)


def test_indexing_calls_few_functions_for_each_node() -> None:
    path = STDLIB / "argparse.py"
    nodes = sum(1 for _ in ast.walk(ast.parse(path.read_text("utf-8"))))
    index = Index(Project(STDLIB, [path], frozenset([path])))
    assert calls(lambda: index.module(path)) < 0.55 * nodes


def test_evaluating_calls_few_functions_for_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, range(15))
    read(folder)  # tables are loaded once
    steps: list[int] = []
    evaluate = parts.Part.evaluate

    def counted(self, others):
        found = evaluate(self, others)
        steps.append(self.interpreter.total)
        return found

    monkeypatch.setattr(parts.Part, "evaluate", counted)
    made = calls(lambda: read(folder))
    assert made < 65 * sum(steps)


def test_twice_the_files_cost_about_twice_as_much(tmp_path: Path) -> None:
    small, large = write(tmp_path / "small", range(10)), write(tmp_path / "large", range(20))
    read(small)
    once, twice = calls(lambda: read(small)), calls(lambda: read(large))
    per_program = (once / 10, twice / 20)
    assert per_program[1] < 1.35 * per_program[0]


def test_an_unchanged_project_costs_a_small_part_of_the_first_run(tmp_path: Path) -> None:
    folder = write(tmp_path, range(8))

    def run() -> None:
        check(Settings(folder), Request((folder,), folder))

    run()
    (folder / "app3" / "main.py").write_text("x = 1\n")
    cold, warm = calls(run), calls(run)
    assert warm < 0.2 * cold
