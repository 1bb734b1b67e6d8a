"""The providers' prompt caches: one class, driven by the terms of rules/providers.

Three modes. `token`: any common prefix with an earlier prompt is reused. `block`: the same, floored to blocks.
`breakpoint`: what is reused ends at a stored end point. At each mark of a request the provider looks for that very
prefix, then for the prefixes that end at up to `lookback` content blocks before it; the longest that is stored wins,
and the prefixes at the marks are stored. In every mode a prefix below `minimum` tokens is neither stored nor reused, an
entry lives for `ttl` seconds (from its last use when reads refresh it; a mark may name a lifetime of its own), and it can
be read only after the answer to the request that wrote it has begun, or ended: never by a request of the same moment. (At the timestamp 0 no time is known: such
requests follow one another.)

A provider that marks the latest message itself also marks the end of the system text in front of the conversation: reports say so,
the documentation does not. A request whose messages are not known (token ids) has no such place.

Routing overflow (`overflow_rpm`: OpenAI before GPT-5.6, the guide of 2026-09) is a model, for only this is documented: the first `route_tokens` tokens and the
caller's key pick a machine, and of more than about 15 requests a minute some go elsewhere. Here each machine takes up to `overflow_rpm`
requests of one prefix and key in any 60 seconds, a request goes to the first machine that still takes it, and machines share nothing. It needs
timestamps. Requests with different keys (`prompt_cache_key`, where the provider routes or isolates by it) never share.

More marks than `max_breakpoints`: a request is refused, or its latest marks count (`over_limit`).

Lifetimes: marks of different lifetimes are billed apart, each for the tokens behind the mark before it. Where the longer one has to come first
(`ttl_order`), a request in the other order is refused, as the API does.

Left out: what no provider documents: eviction for room before the TTL, other routing between machines, and hidden tokens.
Only prompts are stored; whether an answer's keys are kept differs and is not published. An unpublished TTL counts as
unlimited. In the modes `token` and `block` the last token is computed again, as in every engine.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from promptlint.caches.request import TOKEN_BYTES, Match, Outcome, Request
from promptlint.caches.runs import RunTree
from promptlint.catalog.providers import Terms

__all__ = ["ProviderCache"]

MINUTE = 60.0  # seconds, of `overflow_rpm`
UNITS = 64  # tokens between the end points of a provider that sets them itself at fixed intervals


@dataclass(slots=True)
class _Entry:
    """`used`: last write or refreshing read. `visible`: when it can first be read; never, for one just made. Seconds."""

    used: float = 0.0
    visible: float = float("inf")
    ttl: float = 0.0  # of an end point, seconds

    def readable(self, now: float, ttl: float) -> bool:
        return self.visible <= now <= self.used + ttl


class ProviderCache:
    """Args:
    terms: of one provider and model.
    ttl: name of a lifetime on offer; the default one when empty.
    delay: seconds from a request's timestamp until what it wrote can be read.
    overflow: whether requests above the provider's rate go to other machines.

    Attributes:
    spilled: requests that went to another machine than the first.
    """

    def __init__(self, terms: Terms, *, ttl: str = "", delay: float = 0.0, overflow: bool = True) -> None:
        self.terms = terms
        self.delay = delay
        self._seconds = {name: float("inf") if each is None else float(each) for name, each in terms.ttls}
        seconds = dict(terms.ttls).get(ttl, terms.ttl_seconds) if ttl else terms.ttl_seconds
        self.ttl = float("inf") if seconds is None else float(seconds)
        self._unit = max(1, terms.block) if terms.mode == "block" else 1
        self._tree: RunTree[_Entry] = RunTree(self._unit, _Entry, lambda entry: _Entry(entry.used, entry.visible))
        self._ends: dict[tuple[Hashable, int, bytes], _Entry] = {}
        self._default = ttl
        self._keyed = "prompt_cache_key" in (*terms.routing_key, *terms.cache_key)
        self._rate = terms.overflow_rpm if overflow else None
        self._machines: dict[Hashable, list[deque[float]]] = {}  # times of the last minute, by route and machine
        self.spilled = 0

    def lookup(self, request: Request) -> Match:
        """Cached prompt tokens at the request's timestamp. Changes nothing."""
        request = self._routed(request)
        if self.terms.mode == "breakpoint":
            return Match(self._longest_end(request)[0])
        return Match(self._common(request))

    def admit(self, request: Request) -> Outcome:
        """Look up, refresh what was read, store what the terms store."""
        if (refused := self._refused(request)) is not None:
            return Outcome(request.prompt_tokens, 0, refused=refused)
        request = self._routed(request, serve=True)
        if self.terms.mode == "breakpoint":
            cached, written_at = self._admit_ends(request)
            return Outcome(
                request.prompt_tokens, cached, sum(written_at.values()), written_at=tuple(written_at.items())
            )
        return Outcome(request.prompt_tokens, *self._admit_prefix(request))

    def _refused(self, request: Request) -> str | None:
        most = self.terms.max_breakpoints
        if self.terms.over_limit == "refused" and most is not None and len(request.breakpoints) > most:
            return f"{self.terms.title} refuses more than {most} markers, here are {len(request.breakpoints)}"
        if self.terms.ttl_order != "longer-first" or not request.lifetimes:
            return None
        seconds = [self._seconds.get(name, self.ttl) for name in request.lifetimes]
        if all(earlier >= later for earlier, later in pairwise(seconds)):
            return None
        return f"{self.terms.title} refuses a marker with a longer lifetime behind one with a shorter"

    def _visible(self, now: float) -> float:
        """When what is written now can first be read."""
        return math.nextafter(now, math.inf) if self.delay == 0 and now > 0 else now + self.delay

    # --- machines

    def _routed(self, request: Request, *, serve: bool = False) -> Request:
        """The request in the namespace of the machine that gets it; `serve` counts it there."""
        key = request.route if self._keyed else ""
        if self._rate is None or request.timestamp <= 0:
            return replace(request, namespace=(request.namespace, key)) if key else request
        begin = request.prompt[: (self.terms.route_tokens or 0) * TOKEN_BYTES]
        machines = self._machines.setdefault((request.namespace, key, begin), [])
        chosen = next((n for n, times in enumerate(machines) if self._takes(times, request.timestamp)), len(machines))
        if serve:
            if chosen == len(machines):
                machines.append(deque(maxlen=self._rate))
            machines[chosen].append(request.timestamp)
            self.spilled += chosen > 0
        return replace(request, namespace=(request.namespace, key, chosen)) if key or chosen else request

    def _takes(self, times: deque[float], now: float) -> bool:
        return len(times) < (self._rate or 0) or now - times[0] >= MINUTE

    # --- any prefix, or blocks

    def _common(self, request: Request) -> int:
        found = 0
        limit = len(request.prompt) - TOKEN_BYTES
        for node, same in self._tree.find(request.namespace, request.prompt, limit):
            if not node.note.readable(request.timestamp, self.ttl):
                break
            found += same // TOKEN_BYTES
        return found if found >= self.terms.minimum else 0

    def _admit_prefix(self, request: Request) -> tuple[int, int]:
        cached = self._common(request)
        if request.prompt_tokens < self.terms.minimum:
            return cached, 0
        now = request.timestamp
        path, _ = self._tree.insert(request.namespace, request.prompt, len(request.prompt))
        at = 0
        for node in path:
            entry = node.note
            at += node.tokens
            if at > cached and not entry.readable(now, self.ttl):
                if entry.visible == float("inf") or now > entry.used + self.ttl:
                    entry.visible = self._visible(now)
                entry.used = now
            elif self.terms.ttl_refresh:
                entry.used = now
        return cached, at - cached if at > cached else 0

    # --- stored end points

    def _marks(self, request: Request) -> tuple[int, ...]:
        """Positions that are stored, ascending: the request's marks and the one that the provider sets."""
        marks = set(request.breakpoints)
        # What follows the last message (a generation prompt) is no block that a provider could end a prefix at.
        end = request.stops[-1] if request.stops else request.prompt_tokens
        if self.terms.implicit == "units":
            marks.update(range(UNITS, end, UNITS), request.stops, (end,))
        elif self.terms.implicit:
            marks.add(end)
            if self.terms.implicit == "latest-message":
                marks.add(request.head)
        kept = sorted(mark for mark in marks if 0 < mark <= end)
        most = self.terms.max_breakpoints
        return tuple(kept if most is None or self.terms.implicit == "units" else kept[-most:])

    def _digests(self, request: Request, positions: list[int]) -> Iterator[tuple[int, tuple[Hashable, int, bytes]]]:
        """Each position with the key of the prefix that ends there."""
        running = hashlib.blake2b(digest_size=16)
        at = 0
        for position in positions:
            running.update(request.prompt[at : position * TOKEN_BYTES])
            at = position * TOKEN_BYTES
            yield position, (request.namespace, position, running.copy().digest())

    def _candidates(self, request: Request, marks: tuple[int, ...]) -> list[int]:
        """Where the provider looks: at each mark, and at the content blocks before it."""
        wanted = set(marks)
        back = self.terms.lookback or 0
        for mark in marks:
            before = [stop for stop in request.stops if stop < mark]
            wanted.update(before[len(before) - back :] if back < len(before) else before)
        return sorted(wanted)

    def _longest_end(self, request: Request) -> tuple[int, _Entry | None]:
        found, entry = 0, None
        for position, key in self._digests(request, self._candidates(request, self._marks(request))):
            stored = self._ends.get(key)
            if stored is not None and stored.readable(request.timestamp, stored.ttl):
                found, entry = position, stored
        return found, entry

    def _admit_ends(self, request: Request) -> tuple[int, dict[str, int]]:
        """Cached tokens, and the written ones by lifetime."""
        now = request.timestamp
        cached, entry = self._longest_end(request)
        if entry is not None and self.terms.ttl_refresh:
            entry.used = now
        last = cached
        written: dict[str, int] = {}
        lifetimes = dict(zip(request.breakpoints, request.lifetimes, strict=False))
        for position, key in self._digests(request, list(self._marks(request))):
            if position < self.terms.minimum:
                continue
            stored = self._ends.get(key)
            name = lifetimes.get(position) or self._default
            if stored is None or now > stored.used + stored.ttl:
                self._ends[key] = _Entry(now, self._visible(now), self._seconds.get(name, self.ttl))
            elif self.terms.ttl_refresh and stored.readable(now, stored.ttl):
                stored.used = now
            if position > last:
                written[name] = written.get(name, 0) + position - last
                last = position
        return cached, written
