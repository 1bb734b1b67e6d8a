"""Traffic sent again by other code: each request rendered by the call sites of two sides, and both replayed through the same cache.

A request belongs to the call site whose fixed texts it contains, of the base or else of the head. What stood in that site's holes is filled into the same holes, by
expression, of both sides. A history is what was sent between the head and the newest user message; that message fills a question that has no text of its own around it.
A hole of which the traffic says nothing (a clock that only the head has) gets a value of its expected size that changes as often as its volatility says, told by the
request's own day and session. So shapes and sharing are those of the traffic, while invented values stand only where there are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from promptlint import tokenizers
from promptlint.analysis import CallSite
from promptlint.analysis.matching import Matched, Matcher
from promptlint.analysis.render import Item
from promptlint.caches.radix import RadixCache
from promptlint.caches.request import Request, pack
from promptlint.ir import BlockKind, Guard, Hole, Text, Volatility
from promptlint.report.diff_model import ReplayedSite, ReplayItem
from promptlint.traffic.record import Record

__all__ = ["replay"]

_DAY = 86_400_000.0  # milliseconds
_BESIDE = frozenset(
    {"clock", "random", "counter", "host", "context", "state", "tenant", "user", "session"}
)  # kinds of origin


@dataclass(slots=True)
class _Side:
    """One side's cache and what it served, by call site of the head."""

    cache: RadixCache = field(default_factory=RadixCache)
    prompt: Counter[str] = field(default_factory=Counter)
    cached: Counter[str] = field(default_factory=Counter)

    def admit(self, site: str, request: Request) -> None:
        outcome = self.cache.admit(request)
        self.prompt[site] += outcome.prompt_tokens
        self.cached[site] += outcome.cached_tokens

    def hit_rate(self, site: str | None = None) -> float:
        cached, prompt = (
            (self.cached.total(), self.prompt.total()) if site is None else (self.cached[site], self.prompt[site])
        )
        return round(cached / prompt, 4) if prompt else 0.0


def replay(
    records: Iterable[Record], base: Sequence[CallSite], head: Sequence[CallSite], pairs: Mapping[str, str]
) -> ReplayItem:
    """Both sides of the call sites that `pairs` matches (base id to head id), on the requests in file order: an SGLang-like radix tree without a limit."""
    sides = {site.id: site for site in base}, {site.id: site for site in head}
    backwards = {other: one for one, other in pairs.items()}
    matchers = [Matcher([site.prompt for site in sites], [site.id for site in sites]) for sites in (base, head)]
    served = _Side(), _Side()
    requests: Counter[str] = Counter()
    unmatched = 0
    for number, record in enumerate(records):
        found = next((match for matcher in matchers if (match := matcher.match(record)) is not None), None)
        head_id = None if found is None else pairs.get(found.call_site, found.call_site)
        base_id = backwards.get(head_id or "")
        if found is None or head_id is None or base_id is None or head_id not in sides[1]:
            unmatched += 1
            continue
        requests[head_id] += 1
        values = _Values(record, found, number)
        for side, site in zip(served, (sides[0][base_id], sides[1][head_id]), strict=True):
            side.admit(head_id, _request(site, values, record, number))
    return ReplayItem(
        requests.total(),
        unmatched,
        served[0].hit_rate(),
        served[1].hit_rate(),
        served[0].prompt.total(),
        served[1].prompt.total(),
        tuple(
            ReplayedSite(site, requests[site], served[0].hit_rate(site), served[1].hit_rate(site))
            for site in sorted(requests)
        ),
    )


def _request(site: CallSite, values: _Values, record: Record, number: int) -> Request:
    encoding = tokenizers.get(site.rendered.encoding)
    run = b"".join(pack(encoding.encode(values.text_of(item))) for item in site.rendered.main())
    return Request(number, run, b"", namespace=(record.model, record.namespace))


class _Values:
    """What one request has in the holes of its call site."""

    def __init__(self, record: Record, found: Matched, number: int) -> None:
        self.known = {_spelled(value.hole): value.text for value in found.values}
        self.number = number
        self.session = record.session_id or str(number)
        self.day = str(int((record.timestamp or 0.0) // _DAY))
        messages = [message for message in record.messages or [] if isinstance(message, dict)]
        first = next((at for at, each in enumerate(messages) if each.get("role") not in ("system", "developer")), 0)
        self.history = "\n".join(f"{each.get('role')}: {_content(each)}" for each in messages[first:-1])
        self.newest = _content(messages[-1]) if messages else ""

    def text_of(self, item: Item) -> str:
        """The text of one part of the rendered prompt; guards have none."""
        node = item.node
        if isinstance(node, Text):
            return node.value
        if isinstance(node, Guard):
            return ""
        if item.append or item.kind is BlockKind.HISTORY:
            return self.history
        if isinstance(node, Hole):
            known = self.known.get(_spelled(node))
            if known is not None:
                return known
            if item.kind is BlockKind.QUESTION and _is_message(node):
                return self.newest
        return self._invented(item)

    def _invented(self, item: Item) -> str:
        """As many words as the part is expected to have tokens, the first of which says when they change."""
        level = item.own
        when = (
            ""
            if level <= Volatility.PROCESS
            else self.day
            if level is Volatility.DAY
            else self.session
            if level <= Volatility.SESSION
            else str(self.number)
        )
        name = getattr(item.node, "expression", "") or type(item.node).__name__
        return f"{name} {when}" + " value" * max(item.tokens - 3, 0)


def _is_message(hole: Hole) -> bool:
    """Whether the newest message itself stands in a hole of the question, rather than a value that was put beside it."""
    return hole.volatility >= Volatility.TURN and not any(origin.kind in _BESIDE for origin in hole.origins)


def _spelled(hole: Hole) -> str:
    return "".join(hole.expression.split())


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
