"""A project read again after some of its files changed: only the prompts that have something to do with them.

A prompt says where each of its parts comes from. One that no changed file has a part in stays as it was read; the others are read anew from their beginnings, with
every prompt that begins in the same files. What is new about this is only the time that it takes; who relies on it reads the whole project once in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

from promptlint.app.check import Analysis, read_project
from promptlint.app.discovery import Discovery, absolute
from promptlint.frontends.base import Project
from promptlint.ir import Prompt, Reading
from promptlint.source import Span

__all__ = ["Rereading"]

MOST = 0.4  # of the files in which prompts begin


class Rereading:
    """Reads again what changed since an analysis. Which files a prompt comes from is found out once."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.working_directory = analysis.project.working_directory
        self.origins = [(prompt, frozenset(_paths(prompt))) for prompt in analysis.reading.prompts]

    def reader(self, changed: Iterable[Path]) -> Callable[[Project, Discovery, tuple[Path, ...]], Reading] | None:
        """What `analyse` takes to read the project after these files have changed. None where that would be most of the project."""
        display = self.analysis.project.display
        roots = self._roots({display(path) for path in changed})
        beginnings = {prompt.path for prompt, _ in self.origins}
        if len(beginnings & roots) > MOST * len(beginnings):
            return None

        def read(project: Project, discovery: Discovery, extra_rules: tuple[Path, ...]) -> Reading:
            files = frozenset(absolute(self.working_directory / shown) for shown in roots)
            return self._merged(read_project(project, discovery, extra_rules, files), roots)

        return read

    def _roots(self, changed: set[str]) -> set[str]:
        """The changed files with all files of the prompts that come from them, and those of the prompts that begin in these."""
        roots = set(changed)
        while True:
            found = {path for _, paths in self.origins if paths & roots for path in paths}
            if found <= roots:
                return roots
            roots |= found

    def _merged(self, new: Reading, roots: set[str]) -> Reading:
        old = self.analysis.reading
        return Reading(
            tuple(_in_place(old.prompts, new.prompts, roots)),
            (
                *(edit for edit in old.edits if edit.span.path not in roots),
                *(edit for edit in new.edits if edit.span.path in roots),
            ),
            (
                *(each for each in old.templates if each.path not in roots),
                *(each for each in new.templates if each.path in roots),
            ),
            old.unread,
            old.parsed,
        )


def _in_place(old: Iterable[Prompt], new: Iterable[Prompt], roots: set[str]) -> Iterator[Prompt]:
    """The old prompts, those of each file that was read again replaced by the new ones where the first of them stood."""
    by_path: dict[str, list[Prompt]] = {}
    for prompt in new:
        if prompt.path in roots:
            by_path.setdefault(prompt.path, []).append(prompt)
    for prompt in old:
        if prompt.path not in roots:
            yield prompt
        else:
            yield from by_path.pop(prompt.path, ())
    for prompts in by_path.values():
        yield from prompts


def _paths(prompt: Prompt) -> Iterator[str]:
    """Every file that some part of a prompt stands in."""
    yield prompt.path
    pending: list[object] = [prompt]
    while pending:
        node = pending.pop()
        if isinstance(node, Span):
            yield node.path
        elif isinstance(node, tuple):
            pending.extend(node)
        elif is_dataclass(node):
            pending.extend(getattr(node, each.name) for each in fields(node))
