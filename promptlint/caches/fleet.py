"""Several replicas behind a router: what each router does to the hit rate.

A replica has a cache of its own, so a prefix is computed once per replica that sees it. `CacheAware` imitates
sglang-router 0.3.2 (`cache_aware`): one approximate tree of the texts that were sent, each node tagged with the workers
that got it; a request goes to the worker of the longest match when that covers enough of it, else to the worker with
the smallest tree; when the load is out of balance, to the least loaded. It compares characters; a trace of token ids
has none, so one token counts as one character.

Where several workers share the node in which a match ends, the engine takes the first of a hash map, which differs from
run to run; here it is the most recent one.

Left out: health checks, the tree's own eviction (it begins at 2**26 characters), power-of-two choices, and the time
that a request travels.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Protocol

from promptlint.caches.request import TOKEN_BYTES, Cache, Outcome, Request
from promptlint.caches.runs import RunTree
from promptlint.caches.schedule import Calm, Finished, Scheduler, ServiceTime, Step
from promptlint.errors import UserError

__all__ = [
    "ROUTERS",
    "CacheAware",
    "ConsistentHashing",
    "Fleet",
    "LeastLoaded",
    "RoundRobin",
    "Router",
    "glide",
    "paced",
    "router",
    "serve",
]


class Router(Protocol):
    """Chooses a replica. `loads` are the live requests of each (or, without a scheduler, the tokens it has served)."""

    def route(self, request: Request, loads: Sequence[int]) -> int:
        """Index of the replica that gets the request."""


class RoundRobin:
    """One after the other."""

    def __init__(self) -> None:
        self._next = 0

    def route(self, request: Request, loads: Sequence[int]) -> int:  # noqa: ARG002  # the protocol's signature
        chosen = self._next % len(loads)
        self._next += 1
        return chosen


class LeastLoaded:
    """The smallest load; the first of several."""

    def route(self, request: Request, loads: Sequence[int]) -> int:  # noqa: ARG002
        return min(range(len(loads)), key=loads.__getitem__)


class ConsistentHashing:
    """A ring of points per replica; a request goes to the next point after its key's hash.

    The key is the request's session, else its first `head` tokens. The hash is SHA-256: stable across processes, and a
    replica more or less moves only its share of the keys.
    """

    def __init__(self, replicas: int, points: int = 128, head: int = 256) -> None:
        ring = sorted(
            (_hash(f"{replica}/{point}".encode()), replica) for replica in range(replicas) for point in range(points)
        )
        self._places = [place for place, _ in ring]
        self._replicas = [replica for _, replica in ring]
        self._head = head * TOKEN_BYTES

    def route(self, request: Request, loads: Sequence[int]) -> int:  # noqa: ARG002
        data = request.prompt[: self._head] if request.session is None else request.session.encode()
        return self._replicas[bisect_right(self._places, _hash(data)) % len(self._places)]


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


class CacheAware:
    """sglang-router's default policy.

    Args:
        replicas: number of workers.
        cache_threshold: share of the request that a match must exceed.
        balance_abs, balance_rel: out of balance iff max - min > abs and max > rel * min.
    """

    def __init__(
        self, replicas: int, *, cache_threshold: float = 0.3, balance_abs: int = 64, balance_rel: float = 1.5
    ) -> None:
        self._threshold = cache_threshold
        self._abs = balance_abs
        self._rel = balance_rel
        # The note of a node: the workers that got these characters, the most recent last.
        self._tree: RunTree[dict[int, None]] = RunTree(1, dict, dict)
        self._sizes = [0] * replicas  # characters of each worker's tree

    def route(self, request: Request, loads: Sequence[int]) -> int:
        low, high = min(loads), max(loads)
        if high - low > self._abs and high > self._rel * low:
            chosen = loads.index(low)
        else:
            matched, worker = self._match(request.prompt)
            if worker is not None and matched > self._threshold * len(request.prompt):
                chosen = worker
            else:
                chosen = self._sizes.index(min(self._sizes))
        self._insert(request.prompt, chosen)
        return chosen

    def _match(self, tokens: bytes) -> tuple[int, int | None]:
        """Bytes matched, and the worker that last used the node where the match ends."""
        matched, worker = 0, None
        for node, same in self._tree.find(None, tokens, len(tokens)):
            matched += same
            worker = next(reversed(node.note), None)
        return matched, worker

    def _insert(self, tokens: bytes, worker: int) -> None:
        for node in self._tree.insert(None, tokens, len(tokens))[0]:
            if worker not in node.note:
                self._sizes[worker] += node.tokens
            node.note.pop(worker, None)
            node.note[worker] = None


ROUTERS = ("round-robin", "least-loaded", "consistent-hashing", "cache-aware")


def router(name: str, replicas: int) -> Router:
    """A fresh router. Raises UserError for an unknown name."""
    if name == "round-robin":
        return RoundRobin()
    if name == "least-loaded":
        return LeastLoaded()
    if name == "consistent-hashing":
        return ConsistentHashing(replicas)
    if name == "cache-aware":
        return CacheAware(replicas)
    raise UserError(f"unknown router {name!r}; known: {', '.join(ROUTERS)}")


def serve(
    replicas: Sequence[Cache], routing: Router, requests: Iterable[Request]
) -> Iterator[tuple[Request, int, Outcome]]:
    """One request at a time over the whole fleet; yields each with its replica and outcome.

    Nothing is ever live, so a replica's load is the tokens that it has served.
    """
    loads = [0] * len(replicas)
    for request in requests:
        chosen = routing.route(request, loads)
        outcome = replicas[chosen].admit(request)
        loads[chosen] += request.prompt_tokens + request.output_tokens
        yield request, chosen, outcome


class Fleet:
    """Schedulers behind a router, stepped together: a scheduler itself, for a closed loop over the whole fleet."""

    def __init__(self, replicas: Sequence[Scheduler], routing: Router) -> None:
        self.replicas = replicas
        self.routing = routing
        self._live = [0] * len(replicas)

    @property
    def stats(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for replica in self.replicas:
            for name, count in replica.stats.items():
                found[name] = found.get(name, 0) + count
        return found

    @property
    def backlog(self) -> int:
        return sum(replica.backlog for replica in self.replicas)

    @property
    def idle(self) -> bool:
        return all(replica.idle for replica in self.replicas)

    def add(self, request: Request) -> None:
        self.give(self.choose(request), request)

    def choose(self, request: Request) -> int:
        """The replica that the router sends a request to; it gets it with `give`."""
        return self.routing.route(request, self._live)

    def give(self, index: int, request: Request) -> None:
        """Hand a request to a replica."""
        self._live[index] += 1
        self.replicas[index].add(request)

    def calm(self) -> Calm:
        """No calm is known of several replicas together: each has its own."""
        return Calm()

    def leap(self, steps: int) -> None:
        """See `calm`: there is nothing to leap over."""

    def step(self) -> Step:
        """One forward pass of every replica that has work."""
        whole = Step()
        for index, replica in enumerate(self.replicas):
            if not replica.idle:
                merge(whole, self.advance(index))
        return whole

    def advance(self, index: int) -> Step:
        """One forward pass of one replica."""
        step = self.replicas[index].step()
        self._live[index] -= len(step.finished)
        step.finished = [replace(done, replica=index) for done in step.finished]
        return step


def merge(whole: Step, part: Step) -> None:
    """Add one replica's step to the fleet's."""
    whole.prefills += part.prefills
    whole.prefill_tokens += part.prefill_tokens
    whole.context_tokens += part.context_tokens
    whole.decodes += part.decodes
    whole.decode_context += part.decode_context
    whole.first_tokens += part.first_tokens
    whole.finished += part.finished


def glide(replica: Scheduler, clock: float, until: float, service_time: ServiceTime) -> float:
    """Make the coming steps of a replica that only decode and begin before `until`; returns its clock behind them. They all take their mean time."""
    calm = replica.calm()
    if not calm.steps or clock >= until:
        return clock
    steps = calm.steps
    each = service_time(calm.mean(steps))
    if clock + steps * each > until:
        steps = max(1, min(steps, ceil((until - clock) / each)))
        each = service_time(calm.mean(steps))
    replica.leap(steps)
    return clock + steps * each


def paced(fleet: Fleet, requests: Iterable[Request], service_time: ServiceTime) -> Iterator[Finished]:
    """Let requests arrive at their timestamps at a fleet whose replicas run on clocks of their own.

    A step that has begun is finished before an arrival is seen. A request that comes out of order arrives at once.
    """
    clocks: list[float] = []
    arrived: dict[object, float] = {}
    first: dict[object, float] = {}

    def advance(index: int, until: float = inf) -> Iterator[Finished]:
        clocks[index] = glide(fleet.replicas[index], clocks[index], until, service_time)
        if clocks[index] >= until:
            return
        step = fleet.advance(index)
        clocks[index] += service_time(step)
        for one in step.first_tokens:
            first.setdefault(one.id, clocks[index])
        for done in step.finished:
            name, end = done.request.id, clocks[index]
            yield replace(done, arrival=arrived.pop(name), first_token=first.pop(name, end), end=end)

    now: float | None = None
    for request in requests:
        now = request.timestamp if now is None else max(now, request.timestamp)
        clocks = clocks or [now] * len(fleet.replicas)
        for index, replica in enumerate(fleet.replicas):
            while not replica.idle and clocks[index] < now:
                yield from advance(index, now)
            if replica.idle:
                clocks[index] = max(clocks[index], now)
        arrived[request.id] = now
        fleet.add(request)
    for index, replica in enumerate(fleet.replicas):
        while not replica.idle:
            yield from advance(index)
