"""The pipeline `diagnose`: read traffic, find where requests left their relatives, explain the rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from promptlint.advisor.diagnose import Diagnosis, Origin, diagnose
from promptlint.advisor.diagnose.likely import likely, timing
from promptlint.advisor.diagnose.markers import is_marked, markers
from promptlint.advisor.diagnose.observed import Factor, Site
from promptlint.analysis.matching import Matcher, offset_of
from promptlint.app.traffic import Tokens, code_matcher, token_counter
from promptlint.errors import UserError
from promptlint.tokenizers import DISGUISED
from promptlint.traffic.parts import Part, parts_of
from promptlint.traffic.read import Problem, Traffic, load
from promptlint.traffic.record import Record

__all__ = ["Outcome", "explain_rate", "is_code", "run"]


@dataclass(slots=True)
class Outcome:
    """A diagnosis, and what of the input could not be read."""

    diagnosis: Diagnosis
    problems: list[Problem] = field(default_factory=list)
    skipped: int = 0


def run(
    traffic: Traffic,
    *,
    tokenizer: str | None = None,
    observed: float | None = None,
    code: Sequence[Path] = (),
    read: Iterable[Record] | None = None,
) -> Outcome:
    """Diagnose traffic. `observed` is a hit rate known from elsewhere, `code` where the call sites are, `read` the records of the traffic where others
    have read them. Raises UserError when no record could be read.
    """
    records = load(traffic if read is None else read)
    if not records:
        first = f"; first problem: {traffic.problems[0]}" if traffic.problems else ""
        raise UserError(f"no request could be read from {' '.join(str(path) for path in traffic.paths)}{first}")
    name = tokenizer or (DISGUISED if any(record.disguised for record in records) else _encoding(records))
    count = token_counter(Tokens().segments(name))
    found = diagnose(records, count, tokenizer=name, origin=_origin(code_matcher(code, records)) if code else None)
    for place in found.too_deep:
        traffic.problem(place, "nested too deeply", "messages")
    known = [record for record in records if record.is_request and record.place not in found.too_deep]
    # Counting costs time: where no rate is to be explained, only what the markers are judged by is counted.
    rated = observed is not None or found.observed_hit_rate is not None
    totals = [
        sum(count(part.text) for part in parts_of(record)) if rated or is_marked(record) else 0 for record in known
    ]
    files = " ".join(str(path) for path in traffic.paths)
    causes = likely(found, timing(known, totals), files, observed)
    # What the markers show is certain; the others are guesses that explain a low rate.
    shown = markers(known, totals)
    found.likely = (shown + causes)[: max(3, len(shown))] if causes else shown
    return Outcome(found, list(traffic.problems), traffic.skipped)


_CODE = (".py", ".jinja", ".jinja2", ".j2", ".prompty", ".prompt")


def is_code(path: Path) -> bool:
    """Whether a path is code rather than traffic: a source file, or a folder with source files and no JSON lines."""
    if path.is_dir():
        names = [file.name for file in path.rglob("*") if file.is_file()]
        return any(name.endswith(_CODE) for name in names) and not any(".jsonl" in name for name in names)
    return path.suffix in _CODE


def explain_rate(
    observed: float | None, code: Sequence[Path], *, usage: Path | None = None, profile: str = "typical"
) -> Diagnosis:
    """What may explain a hit rate without any traffic: the findings in the code, if some is given, and circumstances outside the prompt.

    `usage` is a usage export or a server's metrics: it gives the rate when `observed` is None, and the requests a second when it covers a time.
    Without code prompts of unknown length that allow 85 % are assumed. Raises UserError.
    """
    from promptlint.advisor.diagnose.observed import Circumstances, explain
    from promptlint.catalog.profiles import load_profile

    found = Diagnosis()
    rate = load_profile(profile).requests_per_day / 86400.0
    if usage is not None:
        records = load(Traffic([usage]))
        for record in records:
            _add_usage(found, record)
        rate = _request_rate(records) or rate
        if found.observed_hit_rate is None:
            raise UserError(f"{usage}: reports no prompt tokens with cached tokens beside them")
    observed = found.observed_hit_rate if observed is None else observed
    assert observed is not None
    sites, factors = _code_sites(code, profile) if code else ([Site("", 1.0, 0, 0.85)], [])
    found.likely = explain(observed, sites, factors, Circumstances(rate=rate / max(len(sites), 1)))
    return found


def _add_usage(found: Diagnosis, record: Record) -> None:
    from promptlint.traffic.record import CACHE_READ, INPUT

    if record.usage_adds_up:
        found.observed_prompt_tokens = (found.observed_prompt_tokens or 0) + record.usage[INPUT]
        found.observed_cached_tokens = (found.observed_cached_tokens or 0) + record.usage[CACHE_READ]


def _request_rate(records: Sequence[Record]) -> float | None:
    """Requests a second over the time that an export covers; None where it tells no time."""
    times = [record.timestamp for record in records if record.timestamp is not None]
    count = sum(record.extra.get("requests", 0) for record in records)
    seconds = (max(times) - min(times)) / 1000.0 if times else 0.0
    return count / seconds if count and seconds > 0 else None


def _code_sites(code: Sequence[Path], profile: str) -> tuple[list[Site], list[Factor]]:
    """The call sites of some code with the rate that they would have without findings, and the findings as what they leave of it."""
    from dataclasses import replace

    from promptlint.app import check
    from promptlint.app.discovery import absolute, project_root
    from promptlint.config import load_settings

    settings = replace(load_settings(project_root(absolute(code[0])), None, isolated=False), profile=profile)
    report = check.check(settings, check.Request(tuple(code), Path.cwd()))
    factors = []
    leaves: dict[str, float] = {}
    for finding in report.findings:
        if finding.hit_rate_now is None or not finding.hit_rate_if_fixed:
            continue
        share = min(finding.hit_rate_now / finding.hit_rate_if_fixed, 1.0)
        leaves[finding.call_site] = leaves.get(finding.call_site, 1.0) * max(share, 0.01)
        factors.append(
            Factor(
                f"{finding.rule} at {finding.path}:{finding.line}",
                finding.call_site,
                share,
                f"promptlint check {finding.path}",
            )
        )
    sites = []
    for site in report.call_sites:
        now = site.estimated_hit_rate if site.estimated_hit_rate is not None else 0.5
        sites.append(
            Site(site.id, max(site.prompt_tokens, 1), site.prompt_tokens, min(now / leaves.get(site.id, 1.0), 0.99))
        )
    if not sites:
        raise UserError(f"no call site was found in {' '.join(map(str, code))}")
    return sites, factors


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
