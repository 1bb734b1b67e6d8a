"""A project in parts: each has its own files, its own allowance and its own view of the project, so that two processes can read two parts.

How a project is parted depends on its files alone, never on the machine, and a part's result depends on its files and on what the others' surveys
say: one process that does all parts in turn finds the same, to the last byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from promptlint.catalog.sdk import Sdk
from promptlint.frontends import workers
from promptlint.frontends.base import Project
from promptlint.frontends.python import frameworks, history
from promptlint.frontends.python.index import Index, Module
from promptlint.frontends.python.known import FileSurvey, Known
from promptlint.frontends.python.roots import Interpreter
from promptlint.frontends.python.settle import Sight, sight
from promptlint.frontends.python.survey import survey
from promptlint.frontends.python.warm import Warm
from promptlint.ir import HistoryEdit, Unread

__all__ = ["Found", "Part", "read_parts", "split"]

PARTED = 300  # files from which a project is read in parts: below, starting a process costs more than it saves
SHARES = (0.32, 0.68)
"""What each part has of the files' bytes and of the allowance. The first is read by the process that also finds the files, judges the prompts and reports."""


@dataclass(frozen=True, slots=True)
class FileFound:
    """What one parsed file says without being evaluated."""

    path: str
    options: tuple[frameworks.Switched, ...]
    edits: tuple[HistoryEdit, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """What one part gave."""

    sights: tuple[Sight, ...]
    files: tuple[FileFound, ...]
    unread: tuple[Unread, ...]


def split(paths: Sequence[tuple[Path, int]]) -> list[tuple[float, list[Path]]]:
    """The parts of a project, neighbours together, each with its share of the allowance. One part where there are few files."""
    if len(paths) < PARTED:
        return [(1.0, [path for path, _ in paths])]
    parts: list[tuple[float, list[Path]]] = [(share, []) for share in SHARES]
    border = SHARES[0] * sum(size for _, size in paths)
    seen = 0
    for path, size in paths:
        parts[0 if seen < border else 1][1].append(path)
        seen += size
    return [part for part in parts if part[1]]


class Part:
    """One part: surveyed first, then evaluated with what the other parts' surveys say."""

    def __init__(
        self, project: Project, interpreter: Interpreter, paths: Sequence[Path], warm: Warm | None = None
    ) -> None:
        self.interpreter = interpreter
        self.warm = warm
        self.index: Index = interpreter.index
        self.sdk: Sdk = interpreter.sdk
        self.given = {project.display(path) for path in project.given}
        self.modules = [module for path in paths if (module := self.index.module(path)) is not None]
        self.files = {module.path: self._file(module) for module in self.modules}

    def survey(self) -> tuple[FileSurvey, ...]:
        """What the other parts need to know."""
        return tuple(survey(module, self.interpreter.telling_calls) for module in self.modules)

    def evaluate(self, others: Sequence[FileSurvey]) -> Found:
        """Evaluate every root."""
        self.index.known = Known(others)
        drafts = self.interpreter.run_roots(self.modules)
        for module in self.index.parsed:
            if module.path not in self.files:
                self.files[module.path] = self._file(module)
        return Found(
            tuple(map(sight if self.warm is None else self.warm.sight, drafts)),
            tuple(self.files.values()),
            tuple(self.index.unread),
        )

    def _file(self, module: Module) -> FileFound:
        return self._read_file(module) if self.warm is None else self.warm.found(module, self._read_file)

    def _read_file(self, module: Module) -> FileFound:
        options = frameworks.switched(module, self.sdk)
        edits = history.edits(module.tree, module.source) if module.source.path in self.given else ()
        return FileFound(module.source.path, options, edits)


def read_parts(
    project: Project,
    shares: Sequence[tuple[float, Sequence[Path]]],
    make: Callable[[float, Sequence[Path]], Part],
) -> list[Found]:
    """What each part gave, in order. The first is read here and the others in processes of their own, where there are cores for them.

    A process that dies loses nothing: its part is read here.
    """
    if len(shares) == 1:
        return [make(*shares[0]).evaluate(())]
    with ExitStack() as stack:
        helpers: dict[int, workers.Worker] = {}
        for number in range(1, min(len(shares), workers.cores())):
            worker = workers.start(lambda channel, share=shares[number]: _serve(project, make(*share), channel))  # type: ignore[misc]
            if worker is not None:
                helpers[number] = stack.enter_context(worker)
        parts = {number: make(*share) for number, share in enumerate(shares) if number not in helpers}
        surveys = {number: part.survey() for number, part in parts.items()}
        for number, worker in list(helpers.items()):
            try:
                surveys[number] = worker.receive()
            except workers.LostError:
                del helpers[number]
                parts[number] = make(*shares[number])
                surveys[number] = parts[number].survey()

        def others(number: int) -> list[FileSurvey]:
            return [file for other, files in sorted(surveys.items()) if other != number for file in files]

        for number, worker in list(helpers.items()):
            try:
                worker.send(others(number))
            except workers.LostError:
                del helpers[number]
                parts[number] = make(*shares[number])
        found = {number: part.evaluate(others(number)) for number, part in parts.items()}
        for number, worker in helpers.items():
            try:
                found[number], learned = worker.receive()
                project.learn(learned)
            except workers.LostError:
                found[number] = make(*shares[number]).evaluate(others(number))
    return [found[number] for number in range(len(shares))]


def _serve(project: Project, part: Part, channel: workers.Channel) -> None:
    """The work of a helper process."""
    channel.send(part.survey())
    found = part.evaluate(channel.receive())
    channel.send((found, project.learned()))
