"""Who works on tasks: this process, or Ray (`on_ray`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

__all__ = ["Here", "Job", "Runner", "Worker", "work_folder"]

Worker = Callable[[Mapping[str, Any]], Callable[[dict[str, Any]], dict[str, Any]]]
"""A class, by its name importable anywhere: made of options, called with tasks. Options, tasks and results are JSON values."""


class Runner(Protocol):
    """Gives tasks to workers."""

    def map(
        self, worker: Worker, options: Mapping[str, Any], tasks: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number and the result of each task, in whatever order they end. A task whose worker died is given to another one.

        Raises UserError as the worker did, with the first of the errors that it saw.
        """


@dataclass(frozen=True, slots=True)
class Job:
    """Where and by whom a command's stages are done. `progress` is told in words how far they are.

    `buckets`: partitions; by default more than a machine has cores, and few enough that small logs do not become thousands of files.
    """

    work: Path
    runner: Runner
    progress: Callable[[str], None] = lambda _: None
    buckets: int = 16

    def run(
        self, worker: Worker, options: Mapping[str, Any], tasks: Sequence[dict[str, Any]], what: str
    ) -> list[dict[str, Any]]:
        """The results in the order of their tasks. Raises UserError."""
        found: dict[int, dict[str, Any]] = {}
        for number, result in self.runner.map(worker, options, tasks):
            found[number] = result
            self.progress(f"{len(found):,} of {len(tasks):,} {what}")
        return [found[number] for number in sorted(found)]


class Here:
    """This process does the work, one task after the other."""

    def map(
        self, worker: Worker, options: Mapping[str, Any], tasks: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        made = worker(options)
        for number, task in enumerate(tasks):
            yield number, made(task)


def work_folder(given: Path | None) -> AbstractContextManager[Path]:
    """The work folder: the one that was named, which stays and lets another run pick up; else one that is removed at the end."""
    if given is not None:
        return nullcontext(given.absolute())
    return _Temporary()


class _Temporary:
    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] = TemporaryDirectory(
            prefix="promptlint-work-", ignore_cleanup_errors=True
        )

    def __enter__(self) -> Path:
        return Path(self._folder.name)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()
