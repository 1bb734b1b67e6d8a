"""What a log holds: counts, lengths, sessions, rates, and the hit rate that servers reported."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from promptlint.traffic.record import CACHE_READ, CACHE_WRITE, INPUT, OUTPUT, Record

__all__ = ["Stats", "quantile", "stats"]


@dataclass(slots=True)
class Stats:
    """Numbers of some traffic. Lengths in tokens, times in seconds; a list is sorted. `settings` are those of launch lines."""

    records: int = 0
    requests: int = 0
    formats: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    sessions: Counter[str] = field(default_factory=Counter)
    roles: Counter[str] = field(default_factory=Counter)
    with_tools: int = 0
    lengths: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    first: float | None = None
    last: float | None = None
    usage_records: int = 0
    usage: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)
    ttft: list[float] = field(default_factory=list)
    settings: list[dict[str, Any]] = field(default_factory=list)

    def merge(self, later: Stats) -> None:
        """Add the numbers of the traffic that follows; the lists are sorted again."""
        for one in fields(self):
            mine, other = getattr(self, one.name), getattr(later, one.name)
            if one.name in {"first", "last"}:
                known = [value for value in (mine, other) if value is not None]
                found: Any = (min if one.name == "first" else max)(known, default=None)
            elif isinstance(mine, Counter):
                mine.update(other)  # `+` would drop what was counted as zero
                found = mine
            else:
                found = mine + other
            setattr(self, one.name, found)
        self.lengths.sort()
        self.outputs.sort()

    @property
    def span(self) -> float | None:
        """Seconds between the first and the last timestamp."""
        return None if self.first is None or self.last is None else (self.last - self.first) / 1000.0

    @property
    def observed_hit_rate(self) -> float | None:
        """Cached prompt tokens / prompt tokens over the records that report both."""
        return self.usage[CACHE_READ] / self.usage[INPUT] if self.usage[INPUT] else None


_COUNTED = ("requests", "preemptions", "evicted_tokens", "stored_blocks", "removed_blocks", "stored_tokens", "cleared")


def stats(records: Iterable[tuple[Record, int | None]]) -> Stats:
    """Count records; each comes with its prompt tokens where they are known."""
    found = Stats()
    for record, tokens in records:
        found.records += 1
        found.formats[record.format] += 1
        if record.timestamp is not None:
            found.first = record.timestamp if found.first is None else min(found.first, record.timestamp)
            found.last = record.timestamp if found.last is None else max(found.last, record.timestamp)
        if record.model:
            found.models[record.model] += 1
        _usage(found, record)
        if not record.is_request:
            continue
        found.requests += 1
        found.with_tools += bool(record.tools)
        if record.session_id:
            found.sessions[record.session_id] += 1
        length = tokens if tokens is not None else record.input_length
        if length is not None:
            found.lengths.append(length)
        output = record.output_length if record.output_length is not None else record.usage.get(OUTPUT)
        if output is None and record.output_tokens is not None:
            output = len(record.output_tokens)
        if output is not None:
            found.outputs.append(output)
        for message in record.messages or ():
            found.roles[str(message.get("role", message.get("type", "?")))] += 1
    found.lengths.sort()
    found.outputs.sort()
    return found


def _usage(found: Stats, record: Record) -> None:
    if record.usage_adds_up:
        found.usage_records += 1
        for name in (INPUT, CACHE_READ, CACHE_WRITE):
            found.usage[name] += record.usage.get(name, 0)
    if record.is_request:
        return
    for name in _COUNTED:
        value = record.extra.get(name)
        if isinstance(value, int):
            found.counted[name] += value
    if isinstance(record.extra.get("ttft_seconds"), float):
        found.ttft.append(record.extra["ttft_seconds"])
    if record.format == "launch":
        found.settings.append({"model": record.model, **record.extra} if record.model else dict(record.extra))


def quantile(values: Sequence[int], share: float) -> int:
    """The least of the sorted values that at least a share of them does not exceed (nearest rank)."""
    return values[max(math.ceil(round(share * len(values), 9)) - 1, 0)]
