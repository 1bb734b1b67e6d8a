"""What the cache markers and arguments of recorded requests say, by the rules of the category breakpoints.

Only models whose provider caches at the caller's markers are looked at (Claude, in whatever log), one row for each rule with the share of the requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from promptlint.advisor.diagnose.model import Likely
from promptlint.catalog.providers import Terms, page_for, pick, resolve
from promptlint.traffic.record import Record

__all__ = ["markers", "marks_of"]

_PARAMETERS = ("tool_choice", "thinking")
"""Arguments that these providers make part of the cache key of the messages."""
_WORTH_TELLING = 0.05
"""Share of the requests from which a fault explains a rate."""


def markers(records: Sequence[Record], totals: Sequence[int]) -> list[Likely]:
    """The faults that more than a few requests have, the commonest first. `totals` are prompt tokens of the records, 0 where they were not counted."""
    found: Counter[str] = Counter()
    counted = 0
    last: dict[str, Record] = {}
    for record, total in zip(records, totals, strict=True):
        terms = _terms(record)
        if terms is None or record.messages is None:
            continue
        counted += 1
        found.update(set(_faults(record, total, terms)))
        before = last.get(record.session_id) if record.session_id else None
        if before is not None and _continues(before, record):
            found.update(set(_between(before, record, terms)))
        last[record.session_id] = record
    return [
        Likely(rule, f"{count} of {counted} requests: {_WHY[rule]}", f"promptlint explain {rule}")
        for rule, count in found.most_common()
        if count >= _WORTH_TELLING * counted
    ]


def marks_of(record: Record) -> list[tuple[int, str]]:
    """The number of content blocks up to each marker, and its lifetime ("" is the default one), in rendered order."""
    found: list[tuple[int, str]] = []
    number = 0
    for number, block in enumerate(_blocks(record), 1):
        given = block.get("cache_control") if isinstance(block, Mapping) else None
        if isinstance(given, Mapping):
            found.append((number, str(given.get("ttl") or "")))
    whole = record.parameters.get("cache_control")
    if isinstance(whole, Mapping) and number and (not found or found[-1][0] != number):
        found.append((number, str(whole.get("ttl") or "")))
    return found


def _blocks(record: Record) -> Iterator[Any]:
    """Content blocks as the provider renders them: tools, system text, messages."""
    yield from record.tools or ()
    if record.system is not None:
        yield from record.system if isinstance(record.system, list) else (record.system,)
    for message in record.messages or ():
        content = message.get("content") if isinstance(message, Mapping) else message
        parts = content if isinstance(content, list) else [content]
        yield from parts[:-1]
        # A marker on the message stands on its last block.
        marked = isinstance(message, Mapping) and "cache_control" in message
        yield message if marked else parts[-1] if parts else None


def _terms(record: Record) -> Terms | None:
    page = page_for("anthropic", record.model) if record.model else None
    if page is None or not pick(dict.fromkeys(page.models, True), record.model, False):
        return None
    return resolve(page, record.model)


def _faults(record: Record, total: int, terms: Terms) -> Iterator[str]:
    """Rules that one request breaks by itself."""
    marks = marks_of(record)
    if not marks and total >= terms.minimum > 0:
        yield "breakpoint-missing"
    if terms.max_breakpoints is not None and len(marks) > terms.max_breakpoints:
        yield "too-many-breakpoints"
    seconds = dict(terms.ttls)
    lifetimes = [seconds.get(ttl) if ttl else terms.ttl_seconds for _, ttl in marks]
    if terms.ttl_order and any((one or 0) < (other or 0) for one, other in pairwise(lifetimes)):
        yield "ttl-order"


def _continues(before: Record, record: Record) -> bool:
    """Whether the messages of one request begin with those of the other, markers aside."""
    old, new = before.messages or [], record.messages or []
    return len(old) < len(new) and [_plain(one) for one in old] == [_plain(one) for one in new[: len(old)]]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if key != "cache_control"}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _between(before: Record, record: Record, terms: Terms) -> Iterator[str]:
    """Rules that two requests of one conversation break together."""
    if any(before.parameters.get(name) != record.parameters.get(name) for name in _PARAMETERS):
        yield "cache-parameter-differs"
    stored = [number for number, _ in marks_of(before)]
    looked = [number for number, _ in marks_of(record)]
    if not stored or not looked or terms.lookback is None:
        return
    if not any(0 <= mark - stored[-1] <= terms.lookback for mark in looked):
        yield "breakpoints-too-far-apart"


_WHY = {
    "breakpoint-missing": "long enough to be cached, and without any marker nothing is",
    "too-many-breakpoints": "more markers than the provider takes",
    "ttl-order": "a longer lifetime stands behind a shorter one",
    "cache-parameter-differs": "`tool_choice` or `thinking` differs from the request before in the same conversation, so its messages are computed again",
    "breakpoints-too-far-apart": "more blocks were appended since the last marker than the provider looks back over",
}
