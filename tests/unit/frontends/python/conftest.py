"""Reads programs from memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from promptlint.frontends import python as front_end
from promptlint.frontends.base import Project
from promptlint.frontends.jinja import read_template
from promptlint.frontends.python.roots import Interpreter
from promptlint.ir import Prompt, Reading, check_spans

Reader = Callable[..., Reading]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """`read(source)` or `read(**{"pkg/mod.py": source})`: the reading, with our own errors raised and every exact span checked."""
    monkeypatch.setattr(Interpreter, "strict", True)

    def run(source: str = "", /, **files: str) -> Reading:
        if source:
            files["app.py"] = source
        paths = []
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", newline="")
            paths.append(path)
        project = Project(tmp_path, paths, frozenset(paths), tmp_path)
        reading = front_end.read(project, templates=read_template)
        sources = {source.path: source for source in (project.source(path) for path in paths) if source is not None}
        for prompt in reading.prompts:
            assert check_spans(prompt, sources) == []
        return reading

    return run


@pytest.fixture
def sink(read: Reader) -> Callable[..., Prompt]:
    """The one prompt that reaches a sink."""

    def run(source: str = "", /, **files: str) -> Prompt:
        (prompt,) = [prompt for prompt in read(source, **files).prompts if prompt.origin == "sink"]
        return prompt

    return run
