"""The pipeline `diagnose`: read traffic, find where requests left their relatives, explain the rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from promptlint.advisor.diagnose import Diagnosis, Origin, diagnose
from promptlint.advisor.diagnose.likely import likely, timing
from promptlint.analysis.matching import Matcher, offset_of
from promptlint.app.traffic import Tokens, code_matcher, token_counter
from promptlint.errors import UserError
from promptlint.traffic.parts import Part, parts_of
from promptlint.traffic.read import Problem, Traffic, load
from promptlint.traffic.record import Record

__all__ = ["Outcome", "run"]


@dataclass(slots=True)
class Outcome:
    """A diagnosis, and what of the input could not be read."""

    diagnosis: Diagnosis
    problems: list[Problem] = field(default_factory=list)
    skipped: int = 0


def run(
    traffic: Traffic, *, tokenizer: str | None = None, observed: float | None = None, code: Sequence[Path] = ()
) -> Outcome:
    """Diagnose traffic. `observed` is a hit rate known from elsewhere, `code` where the call sites are. Raises UserError when no record could be read."""
    records = load(traffic)
    if not records:
        first = f"; first problem: {traffic.problems[0]}" if traffic.problems else ""
        raise UserError(f"no request could be read from {' '.join(str(path) for path in traffic.paths)}{first}")
    name = tokenizer or _encoding(records)
    count = token_counter(Tokens().segments(name))
    found = diagnose(records, count, tokenizer=name, origin=_origin(code_matcher(code)) if code else None)
    known = [record for record in records if record.is_request]
    totals = [sum(count(part.text) for part in parts_of(record)) for record in known] if observed is not None or found.observed_hit_rate is not None else [0] * len(known)  # fmt: skip
    files = " ".join(str(path) for path in traffic.paths)
    found.likely = likely(found, timing(known, totals), files, observed)
    return Outcome(found, list(traffic.problems), traffic.skipped)


def _origin(matcher: Matcher) -> Origin:
    """Call site and hole of a place, by matching the request with the code."""

    def origin(record: Record, parts: Sequence[Part], depth: int, chars: int) -> tuple[str, str]:
        match = matcher.match(record, parts)
        if match is None:
            return "", ""
        hole = match.hole_at(offset_of(parts, depth, chars)) if parts[depth].slot not in {"role", "tools"} else None
        return match.call_site, hole.expression if hole is not None else ""

    return origin


def _encoding(records: Sequence[Record]) -> str:
    """The encoding of the model that most records name."""
    from collections import Counter

    from promptlint.catalog.profiles import encoding_for

    models = Counter(record.model for record in records)
    return encoding_for(models.most_common(1)[0][0])[0]
