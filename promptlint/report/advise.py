"""The output of `promptlint advise`: JSON (schema promptlint.advise/1), text for people, and the decision record. Pure functions of `Advice`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from promptlint.report.escape import printable

__all__ = [
    "Advice",
    "EngineRow",
    "LeverRow",
    "ReasonRow",
    "Reordering",
    "StructuredRow",
    "VerdictRow",
    "record",
    "to_json",
    "to_text",
]

_BAR = 24


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """One fact behind a verdict."""

    fact: str
    value: Any
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine and schedule on a pool. Rates of the pool, milliseconds; `range` is the throughput over the engine factor's range.

    Schedule `measured` marks figures of the user's own run; what that run did not measure is None.
    """

    pool: str
    engine: str
    schedule: str
    hit_rate: float | None
    prefill_tokens: int | None
    requests_per_second: float
    range: tuple[float, float]
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    share: Mapping[str, float]
    seconds: Mapping[str, float] = field(default_factory=dict)  # mean seconds of a request: prefill, decode, queue


@dataclass(frozen=True, slots=True)
class LeverRow:
    """One lever of a pool, alone and on top of those before it."""

    pool: str
    lever: str
    change: str
    alone: Mapping[str, Any]
    in_best_order: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """The verdict on one pool."""

    pool: str
    model: str
    current: str
    verdict: str
    rule: str
    because: str
    reasons: tuple[ReasonRow, ...]
    would_change_if: tuple[str, ...]
    caveats: tuple[str, ...]
    measurement: str


@dataclass(frozen=True, slots=True)
class Reordering:
    """A recommended order of one prompt. Hit rates are expected under the assumptions; `moved` says in words what moves and where it stands."""

    call_site: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    hit_rate_now: float
    hit_rate_then: float
    tokens_saved: float  # per request
    money_saved: float | None  # dollars per 1,000 requests, None where no price is known
    meaning_risk: str
    moved: tuple[str, ...]
    diff: str
    basis: str  # "replay of N requests", "profile typical"


@dataclass(frozen=True, slots=True)
class StructuredRow:
    """A call site with a schema: the share of its answers' tokens that the grammar forces, over the answers that were looked at. Potential: no engine skips them."""

    call_site: str
    schema: str
    low: float
    high: float
    basis: str  # "40 answers of the traffic", "an example answer with texts of 1 to 20 words"


@dataclass(frozen=True, slots=True)
class Advice:
    """Everything that one run says."""

    version: str
    verdicts: tuple[VerdictRow, ...]
    levers: tuple[LeverRow, ...]
    engines: tuple[EngineRow, ...]
    reordering: tuple[Reordering, ...]
    assumptions: Mapping[str, Any]
    rule: tuple[str, ...] = ()
    causes: tuple[Mapping[str, Any], ...] = ()  # likely causes of an observed hit rate
    notes: tuple[str, ...] = field(default=())
    structured: tuple[StructuredRow, ...] = ()


def to_json(advice: Advice) -> str:
    """The report for programs."""
    data = {
        "schema": "promptlint.advise/1",
        "version": advice.version,
        "verdicts": [
            {
                "pool": row.pool,
                "model": row.model,
                "current": row.current,
                "verdict": row.verdict,
                "rule": row.rule,
                "because": row.because,
                "reasons": [
                    {"fact": reason.fact, "value": _rounded(reason.value), "unit": reason.unit, "source": reason.source}
                    for reason in row.reasons
                ],
                "would_change_if": list(row.would_change_if),
                "caveats": list(row.caveats),
                "measurement": row.measurement,
            }
            for row in advice.verdicts
        ],
        "levers": [
            {
                "pool": row.pool,
                "lever": row.lever,
                "change": row.change,
                "alone": _rounded(dict(row.alone)),
                "in_best_order": _rounded(dict(row.in_best_order)),
            }
            for row in advice.levers
        ],
        "reordering": [
            {
                "call_site": row.call_site,
                "from": list(row.before),
                "to": list(row.after),
                "hit_rate_now": _rounded(row.hit_rate_now),
                "hit_rate_then": _rounded(row.hit_rate_then),
                "tokens_saved": _rounded(row.tokens_saved),
                "money_saved": _rounded(row.money_saved),
                "meaning_risk": row.meaning_risk,
                "moved": list(row.moved),
                "diff": row.diff,
                "basis": row.basis,
            }
            for row in advice.reordering
        ],
        "engines": [
            {
                "pool": row.pool,
                "engine": row.engine,
                "schedule": row.schedule,
                "hit_rate": _rounded(row.hit_rate),
                "prefill_tokens": row.prefill_tokens,
                "requests_per_second": _rounded(row.requests_per_second),
                "requests_per_second_range": [_rounded(value) for value in row.range],
                "ttft_p50_ms": _rounded(row.ttft_p50_ms),
                "ttft_p99_ms": _rounded(row.ttft_p99_ms),
                "share": _rounded(dict(row.share)),
                "seconds": _rounded(dict(row.seconds)),
            }
            for row in advice.engines
        ],
        "structured": [
            {
                "call_site": row.call_site,
                "schema": row.schema,
                "forced_share": [_rounded(row.low), _rounded(row.high)],
                "realised": False,
                "basis": row.basis,
            }
            for row in advice.structured
        ],
        "likely_causes": [dict(cause) for cause in advice.causes],
        "assumptions": _rounded(dict(advice.assumptions)),
    }
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def to_text(advice: Advice) -> str:
    """The report for people: verdict first, then reordering, levers and engines."""
    lines: list[str] = []
    for row in advice.verdicts:
        lines += _verdict_lines(row)
        lines += _lever_lines([lever for lever in advice.levers if lever.pool == row.pool])
        lines += _engine_lines([engine for engine in advice.engines if engine.pool == row.pool])
        lines += _list("Would change if", row.would_change_if)
        lines += _list("Caveats", row.caveats)
        lines += ["Fair measurement:", f"  {row.measurement}", ""]
    if advice.reordering:
        lines += ["Order of prompts", ""]
        for item in advice.reordering:
            lines += _reordering_lines(item)
    lines += _structured_lines(advice.structured)
    if advice.causes:
        lines += ["Likely causes of the observed hit rate, most likely first:"]
        for number, cause in enumerate(advice.causes, 1):
            lines += [f"  {number}. {cause['cause']}: {cause['why']}", f"     confirm with: {cause['confirm_with']}"]
        lines.append("")
    lines += [line for note in advice.notes for line in note.splitlines()]
    if advice.rule and advice.verdicts:
        lines += _list("Rule, first match decides (rules/verdict.toml)", advice.rule)
    lines += _list("Assumptions", [f"{key}: {_plain(value)}" for key, value in advice.assumptions.items()])
    return "\n".join(printable(line, keep="\t") for line in lines).rstrip() + "\n"


def _verdict_lines(row: VerdictRow) -> list[str]:
    lines = [f"{row.pool}: {row.verdict}", f"  {row.because}", f"  runs today: {row.current}", ""]
    width = max((len(reason.fact) for reason in row.reasons), default=0)
    for reason in row.reasons:
        lines.append(f"  {reason.fact:<{width}}  {_plain(reason.value):>8}  {reason.unit}  [{reason.source}]".rstrip())
    return [*lines, ""]


def _lever_lines(rows: Sequence[LeverRow]) -> list[str]:
    rows = [row for row in rows if row.alone["requests_per_second"]]
    if not rows:  # a provider's throughput is nobody's lever; what another order saves stands above
        return []
    lines = ["  lever      alone: hit rate, throughput, GPUs    in best order            change"]
    for row in rows:
        alone, stacked = (
            f"{_percent(part['hit_rate']):>6} {part['gain']:>6.2f}x {_gpus(part['gpus']):>4}"
            for part in (row.alone, row.in_best_order)
        )
        lines.append(f"  {row.lever:<10} {alone:<33} {stacked:<24} {row.change}")
    return [*lines, ""]


def _gpus(value: Any) -> str:
    return "-" if value is None else str(value)


def _engine_lines(rows: Sequence[EngineRow]) -> list[str]:
    if not rows:
        return []
    lines = [
        "  engine  schedule    hit rate  prefill tokens  requests/s (range)      TTFT p50 / p99 ms  prefill/decode/queue"
    ]
    for row in rows:
        span = f"{row.requests_per_second:.2f}"
        if row.range[0] != row.range[1]:
            span += f" ({row.range[0]:.2f}-{row.range[1]:.2f})"
        times = f"{_whole(row.ttft_p50_ms)} / {_whole(row.ttft_p99_ms)}"
        parts = "/".join(f"{100 * row.share.get(name, 0):.0f}" for name in ("prefill", "decode", "queue"))
        share = f"{parts} %" if row.share else "-"
        lines.append(
            f"  {row.engine:<7} {row.schedule:<11} {_percent(row.hit_rate):>8}  {_whole(row.prefill_tokens):>14}  {span:<22}  {times:<17}  {share}"
        )
    return [*lines, *_difference(rows), ""]


def _difference(rows: Sequence[EngineRow]) -> list[str]:
    """The difference between the engines, each on its fastest schedule, split into where a request's time goes."""
    best = {row.engine: row for row in sorted(rows, key=lambda row: row.requests_per_second) if row.seconds}
    if set(best) != {"sglang", "vllm"}:
        return []
    one, other = best["sglang"], best["vllm"]
    parts = ", ".join(
        f"{name} {one.seconds.get(name, 0) - other.seconds.get(name, 0):+.2f}"
        for name in ("prefill", "decode", "queue")
    )
    return [f"  seconds of a request, sglang {one.schedule} less vllm {other.schedule}: {parts}"]


def _structured_lines(rows: Sequence[StructuredRow]) -> list[str]:
    if not rows:
        return []
    lines = [
        "Structured output: tokens that a grammar forces (potential only: neither SGLang nor vLLM skips them today)",
        "",
    ]
    for row in rows:
        share = _percent(row.low) if row.low == row.high else f"{_percent(row.low)} to {_percent(row.high)}"
        lines.append(f"  {row.call_site}, {row.schema}: {share} of the answer's tokens  [{row.basis}]")
    return [*lines, ""]


def _reordering_lines(item: Reordering) -> list[str]:
    lines = [
        item.call_site,
        f"  now   {_bar(item.hit_rate_now)} {_percent(item.hit_rate_now):>6}  {' > '.join(item.before)}",
        f"  then  {_bar(item.hit_rate_then)} {_percent(item.hit_rate_then):>6}  {' > '.join(item.after)}",
        f"  saves {item.tokens_saved:,.0f} prompt tokens a request"
        + (f", {item.money_saved:.2f} $ per 1,000 requests" if item.money_saved is not None else "")
        + f"  [{item.basis}]",
    ]
    lines += [f"  move: {text}" for text in item.moved]
    lines.append(f"  meaning: {item.meaning_risk}")
    if item.diff:
        lines += ["", *("    " + line for line in item.diff.splitlines())]
    return [*lines, ""]


def _bar(share: float) -> str:
    filled = round(_BAR * min(1.0, max(0.0, share)))
    return "[" + "#" * filled + "." * (_BAR - filled) + "]"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    return str(value)


def _list(title: str, items: Iterable[str]) -> list[str]:
    rows = [f"  - {item}" for item in items]
    return [f"{title}:", *rows, ""] if rows else []


def _revisit(row: VerdictRow, simulated: bool) -> list[str]:
    """What makes a written decision old, whatever it was."""
    rate = next((reason.value for reason in row.reasons if reason.fact == "hit_rate"), None)
    found = []
    if simulated:
        found.append("the model, the GPU, the number of replicas, the router or the arrival rate changes")
        found.append("an engine is upgraded beyond the version named under Inputs, and its scheduler or cache changed")
    elif row.current == "provider":
        found.append(
            "the provider changes its prices, minimum length or lifetimes (`promptlint providers` shows the age of the terms)"
        )
    if isinstance(rate, float):
        found.append(f"the observed hit rate is more than 10 points away from the {_percent(rate)} expected here")
    return found


def record(advice: Advice, today: str) -> str:
    """A decision record in Markdown: date, inputs, numbers, decision, and the conditions for looking at it again."""
    lines = [f"# Decision record: prefix caching and serving engine ({today})", ""]
    for row in advice.verdicts:
        lines += [
            f"## {_safe(row.pool)}",
            "",
            f"**Decision: {row.verdict}.** {row.because[0].upper()}{row.because[1:]}.",
            "",
            f"Runs today: {row.current}. Model: {_safe(row.model)}. Rule: {row.rule}.",
            "",
        ]
        lines += ["| fact | value | unit | source |", "| --- | ---: | --- | --- |"]
        lines += [
            f"| {reason.fact} | {_safe(_plain(reason.value))} | {reason.unit} | {_safe(reason.source)} |"
            for reason in row.reasons
        ]
        engines = [engine for engine in advice.engines if engine.pool == row.pool]
        if engines:
            lines += [
                "",
                "| engine | schedule | hit rate | requests/s | TTFT p50 ms | TTFT p99 ms |",
                "| --- | --- | ---: | ---: | ---: | ---: |",
            ]
            lines += [
                f"| {e.engine} | {e.schedule} | {_percent(e.hit_rate)} | {e.requests_per_second:.2f} | {_whole(e.ttft_p50_ms)} | {_whole(e.ttft_p99_ms)} |"
                for e in engines
            ]
        lines += [
            "",
            "Look at this again when:",
            "",
            *(f"- {text}" for text in row.would_change_if),
            *(f"- {text}" for text in _revisit(row, bool(engines))),
            "",
            "Caveats:",
            "",
            *(f"- {text}" for text in row.caveats),
        ]
        lines += ["", f"Measure with: `{row.measurement}`", ""]
    for item in advice.reordering:
        lines += [
            f"## Order of {_safe(item.call_site)}",
            "",
            f"From {_safe(' > '.join(item.before))} to {_safe(' > '.join(item.after))}: hit rate {_percent(item.hit_rate_now)} to {_percent(item.hit_rate_then)} ({item.basis}).",
            "",
        ]
        lines += [*(f"- {_safe(text)}" for text in item.moved), f"- meaning: {_safe(item.meaning_risk)}", ""]
    lines += ["## Inputs", "", *(f"- {key}: {_safe(_plain(value))}" for key, value in advice.assumptions.items())]
    return "\n".join(map(printable, lines)).rstrip() + "\n"


def _safe(text: str) -> str:
    """Text of code or of a workload file in a document that people also read unrendered: only what would open HTML or end a table's cell is escaped."""
    return text.replace("|", "\\|").replace("<", "&lt;")
