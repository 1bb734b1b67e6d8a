"""Forked processes that take over a part of the work: both cores are used, and nothing need be sent to them.

A worker begins as a copy of this process, so it knows all that was read before. What it finds it sends back through a pipe. A worker that dies, or
that could not be started at all, costs time and nothing else: `Channel.receive` says so with LostError, and the caller does that part itself.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

__all__ = ["Channel", "LostError", "Worker", "cores", "start"]

VARIABLE = "PROMPTLINT_WORKERS"  # how many processes may be used; 1: only this one


class LostError(Exception):
    """The other side has ended without an answer."""


def cores() -> int:
    """Processes that are worth starting: the cores we may run on, or what the environment variable PROMPTLINT_WORKERS says."""
    told = os.environ.get(VARIABLE, "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Channel:
    """One end of a connection between two processes of ours. Objects travel as pickles; nobody else can write to it."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = os.fdopen(reading, "rb")
        self._writing = os.fdopen(writing, "wb")

    def send(self, value: Any) -> None:
        """Send an object. Raises LostError when nobody reads any more."""
        try:
            pickle.dump(value, self._writing, pickle.HIGHEST_PROTOCOL)
            self._writing.flush()
        except OSError as error:
            raise LostError from error

    def receive(self) -> Any:
        """Wait for the next object. Raises LostError when the other side has ended, or was cut off in the middle."""
        try:
            return pickle.load(self._reading)  # noqa: S301  only a process that we started writes here
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise LostError from error

    def close(self) -> None:
        """Close both directions."""
        for file in (self._reading, self._writing):
            with contextlib.suppress(OSError):
                file.close()


class Worker(Channel):
    """A started process, and our end of the connection to it. As a context it ends the process on leaving, finished or not."""

    def __init__(self, process: int, reading: int, writing: int) -> None:
        super().__init__(reading, writing)
        self.process = process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.process, 0)


def start(work: Callable[[Channel], None]) -> Worker | None:
    """Run `work` in a copy of this process, with the other end of the connection; None where that cannot be done safely.

    A process with threads cannot be copied safely, and neither can one on macOS, whose libraries may start some unasked.
    """
    if not hasattr(os, "fork") or sys.platform == "darwin" or threading.active_count() > 1:
        return None
    pipes: list[int] = []
    try:
        pipes += os.pipe()
        pipes += os.pipe()
        to_parent, from_child, to_child, from_parent = pipes
        process = _fork()
    except OSError:
        for pipe in pipes:
            os.close(pipe)
        return None
    if process == 0:
        _serve(work, to_child, from_child, (to_parent, from_parent))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.close(from_child)
    os.close(to_child)
    return Worker(process, to_parent, from_parent)


def _fork() -> int:
    """`os.fork`; interrupts are held back in both processes, so that the copy never raises one in the middle of our callers' code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # of threads, which libraries in other languages may hold
            return os.fork()
    except BaseException:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        raise


def _serve(work: Callable[[Channel], None], reading: int, writing: int, others: tuple[int, int]) -> None:
    """The life of a worker. It leaves without the parent's exit handlers and unwritten output, which are not its own."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # an interrupt reaches all of us: the parent speaks for all
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for other in others:
            os.close(other)
        work(Channel(reading, writing))
        status = 0
    except BaseException:  # noqa: BLE001, S110  the parent sees that no answer came, and does the work itself
        pass
    finally:
        os._exit(status)
