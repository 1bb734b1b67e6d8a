"""A measurement of `perturb` as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from promptlint.recording.measured import Measurement, Varying
from promptlint.report.escape import printable

__all__ = ["SCHEMA", "to_json", "to_text"]

SCHEMA = "promptlint.perturb/1"


def to_json(found: Measurement) -> str:
    """Schema `promptlint.perturb/1`."""
    row: dict[str, Any] = {
        "schema": SCHEMA,
        "command": list(found.command),
        "calls": found.calls,
        "call_sites": found.call_sites,
        "status": found.status,
        "runs": found.runs,
        "factors": list(found.factors),
        "varying": [_item(one, found) for one in found.varying],
        "noise": [_item(one, found) for one in found.noise],
        "without_effect": list(found.without_effect),
        "uneven": found.uneven,
        "failed": found.failed,
    }
    return json.dumps(row, indent=2) + "\n"


def _item(one: Varying, found: Measurement) -> dict[str, Any]:
    row = asdict(one)
    compared = found.compared_with_code and bool(one.factor)
    row["agrees"] = one.agrees if compared else None
    row["found_by"] = list(one.found_by) if compared else None
    return row


def to_text(found: Measurement) -> str:
    """One paragraph a place, the factors without effect, then what cannot be told."""
    lines = [
        f"{_count(found.calls, 'call')} of {_count(found.call_sites, 'call site')}, {found.runs} runs of `{printable(' '.join(found.command))}`"
    ]
    for one in found.varying:
        lines += [
            "",
            f"{_factor(one)}: {one.call_site or 'unknown call site'} {one.pointer} character {one.char} ({one.calls} of {_count(one.of, 'call')})",
        ]
        lines += [f"  was  {_quoted(one.was)}", f"  now  {_quoted(one.now)}"]
        if found.compared_with_code:
            lines.append(f"  code {_said(one)}")
    lines.append("")
    if found.compared_with_code and found.varying:
        lines.append(_agreement(found))
    if found.without_effect:
        lines.append(f"no effect: {', '.join(found.without_effect)}")
    for one in found.noise:
        lines.append(
            f"noise: {one.call_site or 'unknown call site'} {one.pointer} character {one.char} differs between two runs with nothing changed: {_quoted(one.was)}, {_quoted(one.now)}"
        )
    lines += [f"not the same calls with {name} changed: {printable(text)}" for name, text in found.uneven.items()]
    lines += [f"with {name} changed {printable(text)}" for name, text in found.failed.items()]
    if found.status:
        lines.append(f"the unchanged command itself ended with {found.status}")
    if not found.varying and not found.noise:
        lines.append("all prompts were the same in every run")
    return "\n".join(map(printable, lines)).replace("\n\n\n", "\n\n") + "\n"


def _said(one: Varying) -> str:
    """What the analysis of the code says of the place."""
    hole = f"`{printable(one.hole)}`, {one.guessed}; " if one.hole else ""
    if one.found_by:
        return f"{hole}reported: {', '.join(one.found_by)}"
    return f"{hole}agrees, no finding" if one.agrees else f"{hole}not reported"


def _agreement(found: Measurement) -> str:
    agreed = sum(one.agrees for one in found.varying)
    reported = sum(bool(one.found_by) for one in found.varying)
    return f"code: agrees on {agreed} of {_count(len(found.varying), 'place')}, of which it reports {reported}"


def _factor(one: Varying) -> str:
    if one.factor == "clock":
        return f"clock (changes with the {one.shift})"
    return f"{one.factor} ({printable(one.shift)})" if one.shift else one.factor


def _quoted(text: str) -> str:
    return printable(json.dumps(text, ensure_ascii=False))


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
