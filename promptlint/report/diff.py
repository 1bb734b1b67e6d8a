"""`promptlint diff` as text and as JSON, and the words and cells that its Markdown shares with them."""

from __future__ import annotations

import json as _json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from promptlint.report.diff_model import CallSiteChange, DiffReport, ReplayItem, SideItem, to_json
from promptlint.report.escape import printable
from promptlint.report.model import FindingItem
from promptlint.report.words import clipped, cost, count, percent, tokens

__all__ = [
    "HEADER",
    "assumptions",
    "cells",
    "full",
    "headline",
    "json",
    "key_sentence",
    "names",
    "order_sentence",
    "replay_sentence",
    "totals",
]

HEADER = ("call site", "hit rate", "tokens per request", "cacheable prefix", "cache key")


def json(diff: DiffReport) -> str:
    """The documented form, schema `promptlint.diff/1`; ASCII only."""
    return _json.dumps(to_json(diff), indent=2) + "\n"


def full(diff: DiffReport) -> str:
    """One sentence, the table of changed call sites, the findings, what changed keys cost, the assumptions."""
    lines = [headline(diff, lambda text: f"`{printable(text)}`"), ""]
    lines += [*_table(diff), ""]
    for word, findings in (("new", diff.new_findings), ("fixed", diff.fixed_findings)):
        lines += [f"{word}: {_finding(finding)}" for finding in findings]
    for moved in diff.moved_findings:
        lines.append(f"moved: {_finding(moved.finding)}, was {printable(moved.base_path)}:{moved.base_line}")
    if diff.cache_keys_changed:
        lines.append(key_sentence(diff))
    for order in diff.orders:
        lines.append(
            f"recommended order of {printable(order.call_site)}, {percent(order.hit_rate_now)} → {percent(order.hit_rate_then)}: "
            f"{printable(order_sentence(order.before, order.after))}"
        )
    for verdict in diff.verdicts:
        lines.append(
            f"verdict on {printable(verdict.pool)}: {printable(verdict.verdict)}; {printable(verdict.because)}"
        )
    if diff.replay is not None:
        lines.append(replay_sentence(diff.replay))
    lines += [f"note: {printable(note)}" for note in diff.notes]
    lines += [f"estimates: {printable(assumptions(diff.assumptions))}", printable(totals(diff))]
    return "\n".join(lines) + "\n"


def headline(diff: DiffReport, quote: Callable[[str], str]) -> str:
    """The change in one sentence. `quote` sets text of analysed code apart and makes it harmless in the format at hand."""
    found = diff.headline
    if found is None:
        changes = []
        if diff.new_findings or diff.fixed_findings:
            changes.append(f"{count(len(diff.new_findings), 'new finding')}, {len(diff.fixed_findings)} fixed")
        if diff.cache_keys_changed:
            changes.append(f"{count(diff.cache_keys_changed, 'cache key')} changed")
        return "No estimated hit rate changes" + ("; " + "; ".join(changes) if changes else "") + "."
    sentence = f"Estimated hit rate {percent(found.hit_rate_base)} → {percent(found.hit_rate_head)} on {quote(names(diff)[found.call_site])}"
    if found.expression is not None:
        stands = "now stands" if found.hit_rate_head < found.hit_rate_base else "no longer stands"
        sentence += f": {quote(clipped(found.expression, 80))} {stands} ahead of {tokens(found.tokens_behind)} longer-lived tokens"
    return sentence + "."


def names(diff: DiffReport) -> dict[str, str]:
    """Short names of call sites by id: path and function, and the sink only where two share those."""
    short = {site.id: site.id.rpartition("::")[0] or site.id for site in diff.call_sites}
    shared = Counter(short.values())
    return {id_: name if shared[name] == 1 else id_ for id_, name in short.items()}


def cells(diff: DiffReport) -> Iterator[tuple[str, ...]]:
    """A row of the table for each call site that changed, as plain text."""
    known = names(diff)
    for site in diff.changed:
        name = known[site.id] + {"new": " (new)", "gone": " (gone)"}.get(site.status, "")
        if site.base_id is not None and site.status == "changed" and site.base_id != site.id:
            name += f" (was {site.base_id.rpartition('::')[0] or site.base_id})"
        yield (
            name,
            _arrow(site.hit_rate_base, site.hit_rate_head, percent),
            _arrow(site.prompt_tokens_base, site.prompt_tokens_head, tokens),
            _arrow(site.prefix_tokens_base, site.prefix_tokens_head, tokens),
            _key(site),
        )


def _arrow(base: float | None, head: float | None, write: Callable[[float], str]) -> str:
    if base is None or head is None:
        one = base if head is None else head
        return "" if one is None else write(one)
    return write(base) if write(base) == write(head) else f"{write(base)} → {write(head)}"


def _key(site: CallSiteChange) -> str:
    if site.status in ("new", "gone"):
        return site.status
    if not site.cache_key_changed:
        return "same"
    return "changed" if site.blocks_base == site.blocks_head else "changed, other blocks"


def key_sentence(diff: DiffReport) -> str:
    """What the changed keys cost once."""
    where = f" on {count(diff.replicas, 'replica')}" if diff.replicas > 1 else ""
    talks = any(site.cache_key_changed and "history" in site.blocks_head for site in diff.call_sites)
    return (
        f"{count(diff.cache_keys_changed, 'cache key')} changed: after deployment {count(diff.once_tokens, 'token')} of shared prefixes "
        f"are computed once more{where}{', and running conversations start cold' if talks else ''}."
    )


def replay_sentence(replay: ReplayItem) -> str:
    """What the traffic says."""
    if not replay.requests:
        return f"traffic: none of {count(replay.unmatched, 'request')} belongs to a call site of both sides."
    left = (
        f", {count(replay.unmatched, 'request')} left out because no call site of both sides sent it"
        if replay.unmatched
        else ""
    )
    return (
        f"traffic: {count(replay.requests, 'request')} rendered by both sides and replayed through a radix cache without a limit: "
        f"expected hit rate {percent(replay.hit_rate_base)} → {percent(replay.hit_rate_head)}{left}."
    )


def order_sentence(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """A recommended order in words."""
    return f"{', '.join(after)} (now {', '.join(before)})"


def totals(diff: DiffReport) -> str:
    """The line that every human format ends with."""
    return (
        f"{_side(diff.base)} → {_side(diff.head)}: {count(len(diff.call_sites), 'call site')}, {len(diff.changed)} changed; "
        f"{count(len(diff.new_findings), 'new finding')}, {len(diff.fixed_findings)} fixed, {len(diff.moved_findings)} moved, "
        f"{diff.unchanged_findings} as before"
    )


def _side(side: SideItem) -> str:
    commit = f" ({side.commit[:12]})" if side.commit and not side.commit.startswith(side.name) else ""
    rate = "" if side.hit_rate is None else f" at {percent(side.hit_rate)}"
    return f"{'working tree' if side.name == '.' else side.name}{commit}{rate}"


def assumptions(known: Mapping[str, Any]) -> str:
    """The assumptions behind the estimates, in one line."""
    parts = [f"traffic profile {known.get('profile')}"]
    requests = known.get("requests_per_day")
    if isinstance(requests, int):
        parts.append(f"{requests:,} requests a day per call site")
    parts.append(f"tokens by {known.get('tokenizer')} where the model is unknown")
    return ", ".join(parts)


def _table(diff: DiffReport) -> Iterator[str]:
    rows = [tuple(printable(cell) for cell in row) for row in (HEADER, *cells(diff))]
    if len(rows) == 1:
        yield "no call site changed"
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _finding(finding: FindingItem) -> str:
    price = cost(finding)
    return (
        f"{finding.severity}[{printable(finding.rule)}] {printable(finding.path)}:{finding.line} {printable(finding.message)}"
        + (f" ({price})" if price else "")
    )
