"""What a scheduler is, and how to drive one in a closed loop (`fleet.paced` drives by arrival times).

A scheduler serves many requests at once over one cache. It advances in steps, as the engines do: a step is one forward
pass of the model. Drivers decide when a request arrives and what a step costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from promptlint.caches.request import Outcome, Request

__all__ = ["Calm", "ConstantRate", "Finished", "Scheduler", "ServiceTime", "Step", "closed_loop"]


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that left the scheduler.

    `arrival`, `first_token` and `end` are seconds on the driver's clock; 0 in a closed loop, which has no clock.
    `replica` is its place in a fleet.
    """

    request: Request
    outcome: Outcome
    arrival: float = 0.0
    first_token: float = 0.0
    end: float = 0.0
    replica: int = 0


@dataclass(slots=True)
class Step:
    """One forward pass.

    Attributes:
        prefills: requests of which prompt tokens were computed.
        prefill_tokens: those tokens, without cached ones.
        context_tokens: tokens that those prefills could attend to in the cache.
        decodes: requests that produced a token other than their first.
        decode_context: tokens in the caches of those requests.
        first_tokens: requests whose first token it produced.
        finished: requests that it completed, or that can never be served.
    """

    prefills: int = 0
    prefill_tokens: int = 0
    context_tokens: int = 0
    decodes: int = 0
    decode_context: int = 0
    first_tokens: list[Request] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Calm:
    """Steps ahead of a scheduler that only decode: nothing enters, leaves, or moves, so that they may be made in one leap.

    Attributes:
        steps: how many there are.
        decodes: requests that produce a token in each of them.
        context: tokens in the caches of those requests at the first; one more for each request at every further step.
    """

    steps: int = 0
    decodes: int = 0
    context: int = 0

    def mean(self, steps: int) -> Step:
        """The mean of the next `steps` of them. Where a step's time is linear in its context, so many times that of the mean is their time."""
        return Step(decodes=self.decodes, decode_context=self.context + self.decodes * (steps - 1) // 2)


class Scheduler(Protocol):
    """An engine's scheduler over its cache."""

    @property
    def stats(self) -> dict[str, int]:
        """What happened so far, counted by name."""

    @property
    def backlog(self) -> int:
        """Requests that count against the window of a closed loop."""

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""

    def add(self, request: Request) -> None:
        """A request arrives. Its id must be unique among the live ones."""

    def step(self) -> Step:
        """One forward pass; only while not idle."""

    def calm(self) -> Calm:
        """The coming steps that only decode, as long as nothing is added. There may be more than it promises, never fewer."""

    def leap(self, steps: int) -> None:
        """Make `steps` of the steps that `calm` promises: as many calls of `step` would leave the same state."""


ServiceTime = Callable[[Step], float]


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """A stand-in for a cost model: prefill at a constant rate, a constant time per decode step, nothing else.

    Attributes:
        prefill_rate: tokens a second.
        decode_time: seconds for one token of every running request.
    """

    prefill_rate: float = 20_000.0
    decode_time: float = 0.02

    def __call__(self, step: Step) -> float:
        return step.prefill_tokens / self.prefill_rate + (self.decode_time if step.decodes else 0.0)


def closed_loop(scheduler: Scheduler, requests: Iterable[Request], window: int) -> Iterator[Finished]:
    """Keep `window` requests in the scheduler until the traffic ends; yields them as they finish."""
    feed = iter(requests)
    dry = False
    while True:
        while not dry and scheduler.backlog < window:
            request = next(feed, None)
            if request is None:
                dry = True
                break
            scheduler.add(request)
        if scheduler.idle:
            return
        yield from scheduler.step().finished
