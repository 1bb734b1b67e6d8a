"""Statistics of traffic, as text and as JSON (`promptlint.traffic.stats/1`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from promptlint.advisor.diagnose.redact import masked
from promptlint.analysis.matching import Measured, by_site
from promptlint.report.escape import printable
from promptlint.traffic.read import Problem
from promptlint.traffic.record import CACHE_READ, CACHE_WRITE, INPUT
from promptlint.traffic.stats import Stats, quantile

__all__ = ["to_json", "to_text"]

_SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))


def _lengths(values: Sequence[int]) -> dict[str, Any] | None:
    if not values:
        return None
    return {
        "total": sum(values),
        "mean": round(sum(values) / len(values), 1),
        **{name: quantile(values, share) for name, share in _SHARES},
        "max": values[-1],
    }


def _code(measured: Measured) -> dict[str, Any]:
    """Call sites with their requests and holes; the requests that fit none, and those that contradict the site that they name."""
    holes = by_site(measured.holes)
    return {
        "call_sites": [
            {
                "id": site,
                "requests": count,
                "holes": [
                    {
                        "expression": one.hole.expression,
                        "guessed": one.guessed.word,
                        "measured": one.measured.word,
                        "requests": one.requests,
                        "distinct": one.distinct,
                        "entropy": round(one.entropy, 3),
                        "characters": round(one.characters, 1),
                    }
                    for one in holes.get(site, ())
                ],
            }
            for site, count in measured.sites.most_common()
        ],
        "unmatched": measured.unmatched,
        "mismatches": [
            {"place": one.place, "call_site": one.call_site, "missing": masked(one.missing[:80])}
            for one in measured.mismatches
        ],
    }


def _code_text(measured: Measured) -> list[str]:
    rows = []
    holes = by_site(measured.holes)
    for site, count in measured.sites.most_common():
        rows.append(f"{printable(site)}: {count:,} requests")
        rows.extend(
            f"    {printable(one.hole.expression)}: {one.distinct:,} values in {one.requests:,} requests, {one.entropy:.1f} bits: "
            f"{one.measured.word} (the analysis says {one.guessed.word})"
            for one in holes.get(site, ())
        )
    if measured.unmatched:
        rows.append(f"requests of no call site in this code: {measured.unmatched:,}")
    rows.extend(
        f"{printable(one.place)}: names {printable(one.call_site)}, whose text is not in it: {printable(masked(one.missing[:60]))!r}"
        for one in measured.mismatches[:5]
    )
    return rows


def to_json(found: Stats, problems: Sequence[Problem], skipped: int, measured: Measured | None = None) -> str:
    """All numbers; what is not known is null."""
    turns = sorted(found.sessions.values())
    rate = found.observed_hit_rate
    row = {
        "schema": "promptlint.traffic.stats/1",
        "records": found.records,
        "requests": found.requests,
        "formats": dict(found.formats),
        "models": dict(found.models.most_common()),
        "sessions": len(found.sessions),
        "turns": _lengths(turns),
        "roles": dict(found.roles),
        "with_tools": found.with_tools,
        "prompt_tokens": _lengths(found.lengths),
        "output_tokens": _lengths(found.outputs),
        "seconds": found.span,
        "requests_per_second": round(found.requests / found.span, 4) if found.span else None,
        "observed": {
            "records": found.usage_records,
            "prompt_tokens": found.usage[INPUT],
            "cached_tokens": found.usage[CACHE_READ],
            "written_tokens": found.usage[CACHE_WRITE],
            "hit_rate": None if rate is None else round(rate, 6),
            "ttft_seconds": found.ttft[0] if len(found.ttft) == 1 else found.ttft or None,
            **dict(found.counted),
        },
        "settings": found.settings,
        "skipped_lines": skipped,
        "unreadable": [
            {"file": one.file, "line": one.line, "field": one.field, "reason": one.reason} for one in problems
        ],
    }
    if measured is not None:
        row["code"] = _code(measured)
    return json.dumps(row, indent=2) + "\n"


def to_text(found: Stats, problems: Sequence[Problem], skipped: int, measured: Measured | None = None) -> str:
    """The same for a reader: only what is known."""
    formats = ", ".join(f"{count:,} {name}" for name, count in found.formats.most_common())
    rows = [f"{found.requests:,} requests in {found.records:,} records ({formats})"]
    if found.models:
        rows.append(
            "models: " + ", ".join(f"{printable(name)} {count:,}" for name, count in found.models.most_common(8))
        )
    for name, values in (("prompt tokens", found.lengths), ("output tokens", found.outputs)):
        lengths = _lengths(values)
        if lengths is not None:
            rows.append(
                f"{name}: {lengths['total']:,} in all, p50 {lengths['p50']:,}, p90 {lengths['p90']:,}, p99 {lengths['p99']:,}, longest {lengths['max']:,}"
            )
    if found.sessions:
        turns = sorted(found.sessions.values())
        rows.append(f"sessions: {len(turns):,}, requests each p50 {quantile(turns, 0.5)}, most {turns[-1]}")
    if found.with_tools:
        rows.append(f"with tools: {found.with_tools:,}")
    if found.span:
        rows.append(f"time: {found.span:,.0f} s, {found.requests / found.span:.3g} requests a second")
    if found.observed_hit_rate is not None:
        rows.append(
            f"observed hit rate: {found.observed_hit_rate:.1%} ({found.usage[CACHE_READ]:,} of {found.usage[INPUT]:,} prompt tokens in {found.usage_records:,} records)"
        )
    rows.extend(f"{name.replace('_', ' ')}: {count:,}" for name, count in found.counted.items() if count)
    if found.ttft:
        rows.append("time to first token: " + ", ".join(f"{value:.3f} s" for value in found.ttft))
    rows.extend(
        "server: " + ", ".join(f"{printable(key)}={printable(str(value))}" for key, value in one.items())
        for one in found.settings
    )
    if skipped:
        rows.append(f"lines that are no requests: {skipped:,}")
    if problems:
        rows.append(f"could not be read: {len(problems):,}")
    if measured is not None:
        rows += _code_text(measured)
    return "\n".join(rows) + "\n"
