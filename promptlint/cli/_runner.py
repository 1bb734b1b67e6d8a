"""The options about who does the work: one process, or many on Ray."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from promptlint.cli._common import warn

__all__ = ["on_ray", "runner_options"]

EVERY = 30.0
"""Seconds between two lines about progress in a file."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def runner_options(function: _Function) -> _Function:
    """The options of the commands that can work on a log in many processes."""
    for option in reversed(
        (
            click.option(
                "--runner",
                type=click.Choice(("process", "ray")),
                default="process",
                help="process (default), or ray: the same numbers from many workers, for logs larger than one machine.",
            ),
            click.option(
                "--work-dir",
                type=click.Path(path_type=Path, file_okay=False),
                metavar="DIR",
                help="With --runner ray: keep the stages' results here (they hold what the log holds); another run picks up.",
            ),
            click.option("--workers", type=click.IntRange(1), metavar="N", help="With --runner ray: processes."),
            click.option(
                "--partitions", type=click.IntRange(1, 9999), metavar="N", help="With --runner ray: partitions (16)."
            ),
        )
    ):
        function = option(function)
    return function


@contextlib.contextmanager
def on_ray(given: dict[str, Any]) -> Iterator[Any]:
    """Where --runner ray was given: the runner, the work folder, and a function that tells progress; else None. Consumes the options."""
    names = ("work_dir", "workers", "partitions")
    kind, (folder, workers, partitions) = given.pop("runner"), [given.pop(name) for name in names]
    if kind != "ray":
        unused = [name for name, value in zip(names, (folder, workers, partitions), strict=True) if value is not None]
        warn([f"--{name.replace('_', '-')} has no effect: only with --runner ray" for name in unused])
        yield None
        return
    from promptlint.distributed.on_ray import OnRay
    from promptlint.distributed.runner import Job, work_folder

    with work_folder(folder) as work, OnRay(workers) as runner:
        yield Job(work, runner, _teller()) if partitions is None else Job(work, runner, _teller(), partitions)


def _teller() -> Callable[[str], None]:
    """Says how far a stage is: on a terminal at once, each line over the last; in a file now and then, and when it is done."""
    terminal = sys.stderr.isatty()
    said = time.monotonic()

    def tell(what: str) -> None:
        nonlocal said
        done, _, rest = what.partition(" of ")
        if terminal:
            click.echo(f"\r\x1b[K{what}", nl=rest.startswith(f"{done} "), err=True)
        elif rest.startswith(f"{done} ") or not rest or time.monotonic() - said > EVERY:
            click.echo(what, err=True)
            said = time.monotonic()

    return tell
