"""The result of `promptlint simulate`: the versioned model, as JSON and as text. Pure functions of it."""

from __future__ import annotations

import json as _json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from promptlint.report.escape import printable

__all__ = ["CurvePoint", "GroupRow", "ReplicaRow", "Sampling", "SimulateReport", "json", "text"]

SCHEMA = "promptlint.simulate/1"


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Sums of the requests that share a namespace, model or call site."""

    by: str
    name: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    hit_rate: float


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """Sums of one replica of a fleet."""

    replica: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    hit_rate: float


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Hit rates at one capacity; None is unlimited."""

    capacity_tokens: int | None
    hit_rate: float
    block_hit_rate: float


@dataclass(frozen=True, slots=True)
class Sampling:
    """Only a share of the sessions was replayed, with the capacity scaled down alike. `error` is one standard error of the hit rate."""

    rate: float
    sessions: int
    error: float | None


@dataclass(frozen=True, slots=True)
class SimulateReport:
    """Everything that the command prints. Rates are shares of one; see `denominator` for what `hit_rate` is a share of.

    Attributes:
        unit: tokens per page, KV block or provider block; 1 where any prefix or end point counts.
        capacity_tokens: room per replica; None is unlimited.
        refused: requests that could not be served; they count in no rate.
        bounds: upper bounds of `hit_rate`: content, capacity, depth_first; None where one does not apply.
        cost: relative input cost and dollars, for providers.
        stats: the scheduler's own counters.
        observed: what the log's usage fields report, and the hit rate that was expected of the same requests.
        problems: input that could not be read: file, line, field, reason.
    """

    engine: str
    engine_version: str
    unit: int
    capacity_tokens: int | None
    schedule: str | None
    driver: str
    denominator: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    written_tokens: int
    hit_rate: float
    block_hit_rate: float
    request_hit_rate: float
    evicted_tokens: int
    bounds: dict[str, float | None] = field(default_factory=dict)
    bottleneck: str | None = None
    cost: dict[str, Any] | None = None
    groups: tuple[GroupRow, ...] = ()
    replicas: tuple[ReplicaRow, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)
    times: dict[str, float] | None = None
    sampling: Sampling | None = None
    refused: int = 0
    observed: dict[str, Any] | None = None
    problems: tuple[dict[str, Any], ...] = ()


def to_json(report: SimulateReport) -> dict[str, Any]:
    """The documented form, schema `promptlint.simulate/1`."""
    row: dict[str, Any] = {"schema": SCHEMA}
    for name, value in asdict(report).items():
        row[name] = list(value) if isinstance(value, tuple) else value
    return row


def json(report: SimulateReport) -> str:
    """One JSON object."""
    return _json.dumps(to_json(report), indent=2) + "\n"


def text(report: SimulateReport) -> str:
    """A short summary for people."""
    lines = [_what(report)]
    lines.append(
        f"{report.requests:,} requests, {report.prompt_tokens:,} prompt tokens, {report.cached_tokens:,} of them cached"
        + (f"; {report.evicted_tokens:,} tokens evicted" if report.evicted_tokens else "")
    )
    if report.requests:
        lines.append(f"hit rate   {_percent(report.hit_rate)}  ({report.denominator})")
        lines.append(
            f"           {_percent(report.block_hit_rate)}  of {_UNITS.get(report.engine, 'full blocks')};"
            f" {_percent(report.request_hit_rate).strip()} of requests found something"
        )
    else:
        lines.append(f"hit rate   none: no request was counted ({report.denominator})")
    if report.bounds:
        shown = "  ".join(
            f"{name.replace('_', ' ')} {_percent(value).strip() if value is not None else 'n/a'}"
            for name, value in report.bounds.items()
        )
        lines.append(f"bounds     {shown}")
    if report.bottleneck:
        lines.append(f"bottleneck {report.bottleneck}: {MEANING[report.bottleneck]}")
    if report.cost:
        lines.append(
            "cost       " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.cost.items())
        )
    if report.observed:
        seen = report.observed
        lines.append(
            f"observed   {_percent(seen['hit_rate'])}  in the usage fields of {seen['requests']:,} requests;"
            f" {_percent(seen['expected_hit_rate']).strip()} was expected of them"
        )
        if "written_tokens" in seen:
            lines.append(
                f"           {seen['written_tokens']:,} tokens written into the cache; {report.written_tokens:,} were expected"
            )
    if report.times:
        lines.append("times      " + ", ".join(f"{name} {value:g}" for name, value in report.times.items()))
    if report.stats:
        lines.append(
            "scheduler  " + ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in report.stats.items())
        )
    if report.sampling:
        error = f", standard error {report.sampling.error:.4f}" if report.sampling.error is not None else ""
        lines.append(f"sampled    {report.sampling.rate:g} of the sessions: {report.sampling.sessions:,}{error}")
    if len(report.replicas) > 1:
        lines += [
            "",
            *_table(("replica", "requests", "prompt tokens", "hit rate"), [_row(row) for row in report.replicas]),
        ]
    if len(report.groups) > 1:
        rows = [
            (f"{row.by} {printable(row.name)}", f"{row.requests:,}", f"{row.prompt_tokens:,}", _percent(row.hit_rate))
            for row in report.groups
        ]
        lines += ["", *_table(("group", "requests", "prompt tokens", "hit rate"), rows)]
    if report.curve:
        points = [
            (
                "unlimited" if point.capacity_tokens is None else f"{point.capacity_tokens:,}",
                _percent(point.hit_rate),
                _percent(point.block_hit_rate),
            )
            for point in report.curve
        ]
        lines += ["", *_table(("capacity, tokens", "hit rate", "of blocks"), points)]
        if report.schedule is not None or len(report.replicas) > 1:
            lines.append("(the curve is that of one cache, one request at a time)")
    if report.refused:
        verb = "1 request does not fit" if report.refused == 1 else f"{report.refused:,} requests do not fit"
        what = "the provider's rules" if report.capacity_tokens is None else "the capacity"
        lines.append(f"\n{verb} {what}: left out of every rate")
    if report.problems:
        many = "1 problem" if len(report.problems) == 1 else f"{len(report.problems):,} problems"
        lines.append(f"\n{many} in the input")
    return "\n".join(lines) + "\n"


_UNITS = {"sglang": "full pages", "block-lru": "blocks"}
MEANING = {
    "content": "almost all that these prompts share is reused; only other prompts would share more",
    "capacity": "with more memory more would be reused",
    "policy": "another eviction policy would keep more in this memory",
    "schedule": "requests that share run at the same time, in the wrong order or on different replicas",
}


def _what(report: SimulateReport) -> str:
    capacity = "unlimited" if report.capacity_tokens is None else f"{report.capacity_tokens:,} tokens"
    details = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.settings.items())
    driver = report.driver if report.schedule is None else f"schedule {report.schedule}, {report.driver}"
    version = f" {report.engine_version}" if report.engine_version else ""
    details = printable(details)
    return f"{report.engine}{version} ({details or 'defaults'}), capacity {capacity}, {driver}"


def _row(row: ReplicaRow) -> tuple[str, ...]:
    return str(row.replica), f"{row.requests:,}", f"{row.prompt_tokens:,}", _percent(row.hit_rate)


def _percent(rate: float) -> str:
    return f"{100 * rate:6.2f} %"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, *rows]
    ]
