"""The report of `promptlint diff`: schema `promptlint.diff/1`. Everything a renderer prints stands here; renderers compute nothing."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from typing import Any

from promptlint.report.model import FindingItem, finding_json

__all__ = [
    "SCHEMA",
    "CallSiteChange",
    "DiffReport",
    "Headline",
    "MovedFinding",
    "OrderItem",
    "ReplayItem",
    "ReplayedSite",
    "SideItem",
    "VerdictItem",
    "from_json",
    "to_json",
]

SCHEMA = "promptlint.diff/1"


@dataclass(frozen=True, slots=True)
class SideItem:
    """One side: what was compared, and its totals. `hit_rate` is the mean over its call sites, weighted by prompt tokens, each with equal traffic."""

    name: str
    commit: str | None
    call_sites: int
    prompt_tokens: int
    hit_rate: float | None
    findings: int


@dataclass(frozen=True, slots=True)
class Headline:
    """The change worth a sentence: that of one call site, and the value that explains it, `expression` with the tokens behind it."""

    call_site: str
    hit_rate_base: float
    hit_rate_head: float
    expression: str | None
    tokens_behind: int


@dataclass(frozen=True, slots=True)
class CallSiteChange:
    """One call site on both sides. `status`: new, gone, changed (hit rate, tokens or key differ) or same; what a side lacks is null.

    `once_tokens`: tokens that are computed once more after deployment because the cache key changed, on all replicas together.
    """

    id: str
    base_id: str | None
    status: str
    path: str
    line: int
    hit_rate_base: float | None
    hit_rate_head: float | None
    prompt_tokens_base: int | None
    prompt_tokens_head: int | None
    prefix_tokens_base: int | None
    prefix_tokens_head: int | None
    cache_key_base: str | None
    cache_key_head: str | None
    cache_key_changed: bool
    blocks_base: tuple[str, ...]
    blocks_head: tuple[str, ...]
    once_tokens: int


@dataclass(frozen=True, slots=True)
class MovedFinding:
    """A finding of both sides that stands in another function or file now."""

    base_path: str
    base_line: int
    finding: FindingItem


@dataclass(frozen=True, slots=True)
class OrderItem:
    """A recommended order of a call site of the head."""

    call_site: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    hit_rate_now: float
    hit_rate_then: float


@dataclass(frozen=True, slots=True)
class VerdictItem:
    """The verdict on one pool of the workload that was given."""

    pool: str
    verdict: str
    because: str


@dataclass(frozen=True, slots=True)
class ReplayedSite:
    """The requests of one call site, by its id in the head, replayed from both sides."""

    id: str
    requests: int
    hit_rate_base: float
    hit_rate_head: float


@dataclass(frozen=True, slots=True)
class ReplayItem:
    """The traffic that was given, rendered anew by both sides and replayed; `unmatched` requests belong to no call site of both sides."""

    requests: int
    unmatched: int
    hit_rate_base: float
    hit_rate_head: float
    prompt_tokens_base: int
    prompt_tokens_head: int
    call_sites: tuple[ReplayedSite, ...]


@dataclass(frozen=True, slots=True)
class DiffReport:
    """Base against head. Call sites are ordered by what changed most, findings dearest first. `assumptions` are those of the head."""

    version: str
    base: SideItem
    head: SideItem
    headline: Headline | None
    call_sites: tuple[CallSiteChange, ...]
    new_findings: tuple[FindingItem, ...]
    fixed_findings: tuple[FindingItem, ...]
    moved_findings: tuple[MovedFinding, ...]
    unchanged_findings: int
    cache_keys_changed: int
    once_tokens: int
    replicas: int
    orders: tuple[OrderItem, ...]
    verdicts: tuple[VerdictItem, ...]
    replay: ReplayItem | None
    assumptions: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def changed(self) -> tuple[CallSiteChange, ...]:
        """The call sites that are not the same on both sides: the rows of the table."""
        return tuple(site for site in self.call_sites if site.status != "same")


def to_json(diff: DiffReport) -> dict[str, Any]:
    """The report in its public form."""
    rows = asdict(diff)
    rows["new_findings"] = [finding_json(finding) for finding in diff.new_findings]
    rows["fixed_findings"] = [finding_json(finding) for finding in diff.fixed_findings]
    for row, moved in zip(rows["moved_findings"], diff.moved_findings, strict=True):
        row["finding"] = finding_json(moved.finding)
    return {"schema": SCHEMA, **rows}


def from_json(data: Any) -> DiffReport:
    """The report that `to_json` wrote. Every type is checked, for it may come from a stranger. Raises ValueError when anything does not fit."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f"not a report of schema {SCHEMA}")
    return typing.cast("DiffReport", _build(DiffReport, {key: value for key, value in data.items() if key != "schema"}))


def _build(hint: Any, value: Any) -> Any:
    if hint is Any:
        return value
    if is_dataclass(hint):
        return _object(typing.cast("type", hint), value)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _build(next(part for part in arguments if part is not type(None)), value)
    if origin is tuple and isinstance(value, list):
        return tuple(_build(arguments[0], item) for item in value)
    if origin is Mapping and isinstance(value, dict):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and number and abs(value) < 1e15:
        return float(value)
    if hint is int and number and isinstance(value, int) and abs(value) < 1e15:
        return value
    if hint in (str, bool) and isinstance(value, hint):
        return value
    raise ValueError(f"{type(value).__name__} where {hint} is wanted")


def _object(cls: type, value: Any) -> Any:
    known = {item.name: item for item in fields(cls)}
    if not isinstance(value, dict) or not value.keys() <= known.keys():
        raise ValueError(f"not a {cls.__name__}")
    hints = typing.get_type_hints(cls)
    missing = [name for name, item in known.items() if name not in value and item.default is MISSING]
    if missing:
        raise ValueError(f"{cls.__name__} without {missing[0]}")
    return cls(**{name: _build(hints[name], item) for name, item in value.items()})
