"""The diagnosis for readers: JSON (`promptlint.diagnose/1`), text, and a Markdown page without prompt text."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from promptlint.advisor.diagnose.misses import Miss
from promptlint.advisor.diagnose.model import Cause, Diagnosis, Divergence, Likely
from promptlint.advisor.diagnose.redact import digest, masked
from promptlint.report.escape import markdown, printable
from promptlint.traffic.read import Problem

__all__ = ["shared_page", "to_data", "to_json", "to_text"]

MOST = 20
"""Divergences that the text report lists; JSON has all."""


def to_json(found: Diagnosis, problems: Sequence[Problem] = (), *, redact: bool = False, salt: str = "") -> str:
    """The report as JSON. With `redact` no prompt text is in it: `was` and `now` become lengths and salted hashes, equal for equal texts under one salt."""
    return json.dumps(to_data(found, problems, redact=redact, salt=salt), indent=2) + "\n"


def to_data(
    found: Diagnosis, problems: Sequence[Problem] = (), *, redact: bool = False, salt: str = ""
) -> dict[str, Any]:
    """The same as plain JSON values."""
    return {
        "schema": "promptlint.diagnose/1",
        "requests": found.requests,
        "divergences": [_row(one, redact=redact, salt=salt) for one in found.divergences],
        "causes": [_cause(one) for one in found.causes],
        "likely_causes": [_likely(one) for one in found.likely],
        "misses": [_miss(one) for one in found.misses],
        "summary": {
            "tokenizer": found.tokenizer,
            "prompt_tokens": found.prompt_tokens,
            "cached_tokens": found.cached_tokens,
            "hit_rate": round(found.hit_rate, 6),
            "observed_hit_rate": None if found.observed_hit_rate is None else round(found.observed_hit_rate, 6),
            "starts": found.starts,
            "unreadable": [
                {
                    "file": p.file,
                    "line": p.line,
                    "field": p.field,
                    "reason": _without_values(p.reason) if redact else masked(p.reason),
                }
                for p in problems
            ],
        },
    }


def _row(one: Divergence, *, redact: bool, salt: str) -> dict[str, Any]:
    return {
        "request": one.request,
        "id": one.id or None,
        "relative": one.relative,
        "path": one.path,
        "char": one.char,
        "token": one.token,
        "rule": one.rule,
        "cause": "the tools changed" if redact and one.path == "tools" else one.cause,
        "was": _hidden(one.was, salt) if redact else masked(one.was),
        "now": _hidden(one.now, salt) if redact else masked(one.now),
        "tokens_lost": one.tokens_lost,
        "call_site": one.call_site or None,
        "observed_cached_tokens": one.observed_cached_tokens,
        **({"hole": one.hole} if one.hole else {}),
    }


def _without_values(reason: str) -> str:
    """A reason without what it quotes of the record."""
    return re.sub(r"(['\"]).*\1", "[…]", masked(reason))


def _hidden(text: str, salt: str) -> str:
    return f"[{len(text)} characters, {digest(text, salt)}]" if text else ""


def _cause(one: Cause) -> dict[str, Any]:
    return {
        "rule": one.rule,
        "requests": one.requests,
        "tokens_lost": one.tokens_lost,
        "hit_rate_if_fixed": round(one.hit_rate_if_fixed, 6),
    }


def _miss(one: Miss) -> dict[str, Any]:
    return {
        "request": one.request,
        "id": one.id or None,
        "relative": one.relative,
        "reason": one.reason,
        "cause": one.cause,
        "expected_cached_tokens": one.expected_cached_tokens,
        "observed_cached_tokens": one.observed_cached_tokens,
        "tokens_lost": one.tokens_lost,
    }


def _by_reason(found: Diagnosis) -> list[tuple[str, int, int, str]]:
    """Reason, requests, tokens and the dearest example of the misses, the dearest reason first."""
    rows = []
    for reason in dict.fromkeys(one.reason for one in found.misses):
        own = [one for one in found.misses if one.reason == reason]
        dearest = max(own, key=lambda one: one.tokens_lost)
        rows.append(
            (reason, len(own), sum(one.tokens_lost for one in own), f"request {dearest.request}: {dearest.cause}")
        )
    return sorted(rows, key=lambda row: -row[2])


def _likely(one: Likely) -> dict[str, Any]:
    return {"cause": one.cause, "why": one.why, "confirm_with": one.confirm_with}


def to_text(found: Diagnosis, problems: Sequence[Problem] = (), *, limit: int = MOST) -> str:
    """The report for a terminal: the dearest divergences, the ranking of the causes, the rate, and what may explain it."""
    lines: list[str] = []
    ranked = sorted(found.divergences, key=lambda one: (-one.tokens_lost, one.request))
    for one in ranked[:limit]:
        where = f"{one.place}: " if one.place else ""
        lines.append(
            f"{printable(where)}request {one.request} left request {one.relative} at {printable(one.path)}, character {one.char} [{one.rule}]"
        )
        lines.append(
            f"    {printable(one.cause)}; {one.tokens_lost:,} tokens lost"
            + (f"; {printable(one.call_site)}" if one.call_site else "")
            + (f"; {printable(one.hole)}" if one.hole else "")
        )
        if one.was or one.now:
            lines.append(f"    was: {printable(masked(one.was))}")
            lines.append(f"    now: {printable(masked(one.now))}")
    if len(ranked) > limit:
        lines.append(f"... and {len(ranked) - limit} more (`--output-format json` has all)")
    if found.causes:
        lines.append("")
        lines.append(f"{'cause':<32} {'requests':>9} {'tokens lost':>13}  hit rate if fixed")
        lines.extend(
            f"{one.rule:<32} {one.requests:>9,} {one.tokens_lost:>13,}  {one.hit_rate_if_fixed:.1%}"
            for one in found.causes
        )
    if found.misses:
        lines += ["", "found less than their text allows:"]
        lines += [
            f"{reason:<32} {requests:>9,} {lost:>13,}  {printable(masked(example))}"
            for reason, requests, lost, example in _by_reason(found)
        ]
    lines.append("")
    lines.extend(_summary(found, problems))
    for reason in found.likely:
        lines.append(f"likely: {printable(reason.cause)}")
        lines.append(f"    {printable(reason.why)}")
        lines.append(f"    confirm with: {printable(reason.confirm_with)}")
    return "\n".join(lines).lstrip("\n") + "\n"


def _summary(found: Diagnosis, problems: Sequence[Problem]) -> list[str]:
    if not found.requests:
        observed = found.observed_hit_rate
        rate = "the rate" if observed is None else f"{observed:.1%}"
        return [f"no traffic to look at: what would explain {rate} by itself, the closest first"]
    rate = f"{found.hit_rate:.1%} expected (prompts alone, cache without limit, {found.tokenizer})"
    if found.observed_hit_rate is not None:
        rate += f", {found.observed_hit_rate:.1%} observed"
    count = len(found.divergences)
    verb = "diverged from an earlier relative" if count != 1 else "diverged from its earlier relative"
    lines = [f"{found.requests} requests, {found.starts} of them new starts; {count} {verb}", f"hit rate: {rate}"]
    if problems:
        lines.append(f"{len(problems)} record{'s' if len(problems) > 1 else ''} could not be read")
    return lines


def shared_page(found: Diagnosis, problems: Sequence[Problem] = (), *, salt: str = "") -> str:
    """A Markdown page for a bug tracker: numbers, paths and rules; of the texts only lengths and hashes, of the files only counts."""
    lines = ["# Prefix-cache diagnosis", ""]
    lines += [f"- {markdown(line)}" for line in _summary(found, problems)]
    if found.causes:
        lines += ["", "| cause | requests | tokens lost | hit rate if fixed |", "| --- | ---: | ---: | ---: |"]
        lines += [
            f"| {one.rule} | {one.requests:,} | {one.tokens_lost:,} | {one.hit_rate_if_fixed:.1%} |"
            for one in found.causes
        ]
    if found.divergences:
        lines += [
            "",
            "| request | relative | path | character | rule | was | now | tokens lost |",
            "| ---: | ---: | --- | ---: | --- | --- | --- | ---: |",
        ]
        ranked = sorted(found.divergences, key=lambda one: (-one.tokens_lost, one.request))[:MOST]
        lines += [
            f"| {one.request} | {one.relative} | {markdown(one.path)} | {one.char} | {one.rule} | {_hidden(one.was, salt)} | {_hidden(one.now, salt)} | {one.tokens_lost:,} |"
            for one in ranked
        ]
    if found.misses:
        lines += ["", "| found less than the text allows | requests | tokens lost |", "| --- | ---: | ---: |"]
        lines += [f"| {reason} | {requests:,} | {lost:,} |" for reason, requests, lost, _ in _by_reason(found)]
    if found.likely:
        lines += ["", "## What may explain it", ""]
        lines += [f"- **{markdown(one.cause)}**: {markdown(one.why)}" for one in found.likely]
    lines += ["", "Prompt text is left out: lengths and short hashes stand in its place."]
    return "\n".join(lines) + "\n"
