"""What a result could have been: bounds, other eviction policies, and what stands between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from promptlint.app.simulation.setup import Setup
from promptlint.caches.bounds import Bounds, BoundTokens
from promptlint.caches.request import TOKEN_BYTES, Request
from promptlint.caches.tally import Sums

__all__ = ["Beside", "bottleneck"]

OFFERED = ("lru", "lfu", "slru")  # eviction policies that a server of today can be started with
ENOUGH = 0.9  # of what the content allows: nothing but the content is worth changing then


class Beside:
    """What runs beside a simulation, over the same requests in file order, to say what the result could have been.

    The upper bounds; the same memory in one cache, one request at a time; and that with the other eviction policies that
    a server offers. With several replicas the memory is that of all of them together.
    """

    def __init__(
        self, setup: Setup, unit: int, cache: Callable[[int | None, str], Any], share: Callable[[int, Sums], float]
    ) -> None:
        self._share = share
        self._unit = unit
        self._warm_up = setup.warm_up
        self._room = setup.capacity
        self._capacity = None if setup.capacity is None else setup.capacity * setup.replicas
        self._bounds = Bounds(self._capacity, unit)
        policies = set(OFFERED if setup.engine == "sglang" and self._capacity is not None else ()) - {setup.eviction}
        if setup.schedule or setup.replicas > 1:  # else the run itself is that
            policies.add(setup.eviction)
        self._others = {name: (cache(self._capacity, name), Sums()) for name in sorted(policies)}
        self._own = setup.eviction
        self._absorbed = [0, 0, 0]

    def watching(self, requests: Iterable[Request]) -> Iterator[Request]:
        """The requests, each seen here first; those that do not fit are left out, as in the run itself."""
        count = 0
        for request in requests:
            pages = -(-max(len(request.prompt), len(request.stored)) // (self._unit * TOKEN_BYTES))
            if self._room is None or pages * self._unit <= self._room:
                count += 1
                counted = count > self._warm_up
                self._bounds.add(request, counted=counted)
                for cache, sums in self._others.values():
                    outcome = cache.admit(request)
                    if counted:
                        sums.add(outcome, self._unit)
            yield request

    def partial(self) -> list[int]:
        """The bounds of some of the requests under memory without limit, tokens."""
        tokens = self._bounds.tokens()
        assert self._capacity is None
        assert tokens.depth_first is not None
        return [tokens.content, tokens.capacity, tokens.depth_first]

    def absorb(self, partial: Sequence[int]) -> None:
        """Add the bounds of other requests, which share nothing with these."""
        self._absorbed = [one + other for one, other in zip(self._absorbed, partial, strict=True)]

    def judge(self, reached: Sums) -> tuple[dict[str, float | None], str | None]:
        """The bounds by the run's denominator, and the bottleneck of the run.

        content    nine tenths of what the content allows are reached
        schedule   else, the same memory in one cache, one request at a time, would gain most
        policy     else, another eviction policy on offer would gain more than half of what memory without limit would
        capacity   else
        """
        rates = {name: sums.hit_rate for name, (_, sums) in self._others.items()}
        plain = rates.pop(self._own, reached.hit_rate)
        sums = self._others[self._own][1] if self._own in self._others else reached
        if not sums.prompt_tokens:
            return {}, None
        tokens = self._bounds.tokens()
        if any(self._absorbed):
            content, capacity, once = self._absorbed
            tokens = BoundTokens(tokens.content + content, tokens.capacity + capacity, once + (tokens.depth_first or 0))
        bounds: dict[str, float | None] = {
            "content": self._share(tokens.content, sums),
            "capacity": self._share(tokens.capacity, sums),
            "depth_first": None if tokens.depth_first is None else self._share(tokens.depth_first, sums),
        }
        allowed = tokens.content / sums.prompt_tokens
        return bounds, bottleneck(reached.hit_rate, plain, allowed, rates.values())


def bottleneck(reached: float, plain: float, content: float, others: Iterable[float]) -> str:
    """See `Beside.judge`. `plain` is the hit rate without scheduler and router, `others` under other policies."""
    if reached >= ENOUGH * content:
        return "content"
    if plain - reached > content - plain:
        return "schedule"
    best = max(others, default=plain)
    return "policy" if best - plain > (content - plain) / 2 else "capacity"
