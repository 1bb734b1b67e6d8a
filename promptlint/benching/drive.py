"""One run: the requests of a repetition sent to one target, in a closed loop or at their arrival times, and the answers read when the last is in.

A target that stops answering must not stop the run. Each request ends by its own limits (`client.Limits`); when `give_up` requests in a row have failed to connect, timed
out or broken off without one success between them, the target is given up and what is left is not sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from promptlint.benching.answers import Answer, read_answer
from promptlint.benching.client import Client, Reply
from promptlint.benching.plan import Load, Shot, encode

__all__ = ["Run", "drive"]

_TICK = 0.02  # seconds between two looks at how late the event loop is
_FATAL = frozenset({"connect", "timeout", "dropped", "protocol"})


@dataclass(slots=True)
class Run:
    """The answers of one run, by request; those that were never sent are missing. `wall` is from the first request to the last answer, seconds.

    `gone` says why the target was given up, "" when it was not. `lag` are samples of how late the client's own event loop was, seconds; `late` how much later than due
    requests were sent (open loop). `interrupted`: the run was stopped by the user.
    """

    answers: list[Answer] = field(default_factory=list)
    wall: float = 0.0
    gone: str = ""
    lag: list[float] = field(default_factory=list)
    interrupted: bool = False

    @property
    def late(self) -> list[float]:
        """Seconds by which requests were sent later than they were due."""
        return [max(0.0, answer.sent - answer.due) for answer in self.answers]


class _Driver:
    def __init__(
        self, client: Client, shots: Sequence[Shot], model: str, load: Load, due: Sequence[float], give_up: int
    ) -> None:
        self.client = client
        self.shots = shots
        self.load = load
        self.due = due
        self.give_up = give_up
        self.model = model
        self.replies: dict[int, Reply] = {}
        self.answered = [asyncio.Event() for _ in shots]
        self.failures = 0
        self.gone = ""
        self.stop = asyncio.Event()
        self.lag: list[float] = []
        self.start = 0.0

    async def one(self, shot: Shot) -> None:
        if shot.after is not None:
            await self.answered[shot.after].wait()
        if not self.gone:
            # Made when it is needed: all bodies of a long workload at once would fill the memory. It is done before the clock of the request starts.
            data = self.client.encode("POST", shot.path, encode(shot, self.model))
            reply = await self.client.ask(data)
            self.replies[shot.index] = reply
            self._judge(reply)
        self.answered[shot.index].set()

    def _judge(self, reply: Reply) -> None:
        self.failures = self.failures + 1 if reply.kind in _FATAL else 0
        if self.failures >= self.give_up and not self.gone:
            self.stop.set()
            self.gone = f"{self.failures} requests in a row failed, the last with: {reply.error}"

    async def closed(self) -> None:
        """`concurrency` workers take the next request each; a turn whose forerunner is still under way waits within its worker."""
        feed = iter(self.shots)

        async def worker() -> None:
            for shot in feed:
                if self.gone:
                    return
                await self.one(shot)

        await _all(worker() for _ in range(min(self.load.concurrency, len(self.shots))))

    async def open(self) -> None:
        """Each request at its time, however many are under way."""

        async def timed(shot: Shot) -> None:
            wait = self.start + self.due[shot.index] - perf_counter()
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self.stop.wait()  # a target that was given up is not waited for
            await self.one(shot)

        await _all(timed(shot) for shot in self.shots)

    async def watch(self) -> None:
        """Sample how late the event loop is: what it costs the client falls into the times of the answers."""
        while True:
            before = perf_counter()
            await asyncio.sleep(_TICK)
            self.lag.append(max(0.0, perf_counter() - before - _TICK))


async def _all(parts: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run them together; a cancellation reaches each, and all have ended when this does."""
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part)


async def drive(
    client: Client,
    shots: Sequence[Shot],
    model: str,
    load: Load,
    due: Sequence[float],
    *,
    give_up: int = 3,
    keep: Callable[[Run], None] | None = None,
) -> Run:
    """Send everything and return the run. When it is cancelled, what was answered until then goes to `keep` before the cancellation goes on."""
    driver = _Driver(client, shots, model, load, due, give_up)
    if load.closed:
        await client.warm(min(load.concurrency, len(shots)))
    watch = asyncio.create_task(driver.watch())
    driver.start = perf_counter()
    cancelled = False
    try:
        await (driver.closed() if load.closed else driver.open())
    except asyncio.CancelledError:
        cancelled = True
        if keep is not None:
            keep(_read(driver, cancelled=True))
        raise
    finally:
        watch.cancel()
    return _read(driver, cancelled=cancelled)


def _read(driver: _Driver, *, cancelled: bool) -> Run:
    answers = [
        read_answer(reply, index, driver.due[index], driver.start) for index, reply in sorted(driver.replies.items())
    ]
    if driver.load.closed:  # a closed loop has no time at which a request is due
        for answer in answers:
            answer.due = answer.sent
    wall = max((answer.ended for answer in answers), default=0.0) - min(
        (answer.sent for answer in answers), default=0.0
    )
    return Run(answers, wall, driver.gone, driver.lag, cancelled)
