"""Runs every rule's check over a reading, settles precedence, and folds the same fault at several call sites into one finding."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from types import ModuleType
from typing import Any

from promptlint.analysis import Assumptions, CallSite, call_sites, terms_used
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, dearest_first, short
from promptlint.errors import UserError
from promptlint.finding import PERSONAS, Finding, Note
from promptlint.ir import Confidence, Prompt, Reading, Volatility

__all__ = ["CheckResult", "Said", "parameters", "run"]

MERGED = frozenset({"volatile_in_prefix", "determinism"})
"""Checks whose findings are merged when they stand next to each other, within so many tokens and lines."""
MERGED_TOKENS = 16
MERGED_LINES = 3


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Findings, dearest first, whatever their persona and confidence; the call sites; and what the estimates assume beyond `Assumptions`."""

    findings: tuple[Finding, ...]
    call_sites: tuple[CallSite, ...]
    assumptions: Mapping[str, object] = field(default_factory=dict)
    raised: tuple[Finding, ...] = ()  # all that a check said, also of values for which another rule speaks


class Said:
    """What the checks that look at call sites one by one (`SITE_BY_SITE`) said of each in the last run, for the next one under the same rules and assumptions."""

    def __init__(self) -> None:
        self.before: dict[tuple[str, int], tuple[CallSite, tuple[Raised, ...]]] = {}
        self.now: dict[tuple[str, int], tuple[CallSite, tuple[Raised, ...]]] = {}

    def fork(self) -> Said:
        """A copy for runs that leave no trace here."""
        other = Said()
        other.now = dict(self.now)
        return other

    def begin(self) -> None:
        """What was said of a call site that is not there any more is forgotten."""
        self.before, self.now = self.now, {}

    def of(self, rule: Rule, site: CallSite, say: Callable[[], Iterable[Raised]]) -> tuple[Raised, ...]:
        """What was said of the very same call site; else what `say` gives."""
        key = rule.name, id(site)
        known = self.before.get(key)
        if known is None or known[0] is not site:
            known = site, tuple(say())
        self.now[key] = known
        return known[1]


def run(
    reading: Reading,
    rules: Mapping[str, Rule],
    assumptions: Assumptions,
    sites: tuple[CallSite, ...] | None = None,
    said: Said | None = None,
) -> CheckResult:
    """All findings of the rules. Filtering by persona, confidence and suppressions is the caller's business.

    `sites`: the call sites of the reading, where they are known. `said`: what was said of them in an earlier run under the same rules and assumptions. Raises
    UserError for a rule page whose check or params do not fit.
    """
    said = said or Said()
    said.begin()
    sites = call_sites(reading.prompts, assumptions) if sites is None else sites
    context = Context(reading, sites, assumptions)
    raised: list[tuple[int, Raised]] = []
    for rule in rules.values():
        if rule.check:
            raised.extend((rule.precedence, each) for each in _raised(context, rule, said))
    prompts = {site.id: site.prompt for site in sites}
    settled = _merged(_settled(raised), frozenset(rule.name for rule in rules.values() if rule.check in MERGED))
    findings = tuple(dearest_first(_folded(settled, prompts)))
    all_said = tuple(each.finding for _, each in raised)
    return CheckResult(findings, sites, {"provider_terms": terms_used(sites)}, all_said)


def _raised(context: Context, rule: Rule, said: Said) -> Iterator[Raised]:
    """What the rule's check says."""
    check, params = _module(rule).check, parameters(rule)
    if not getattr(_module(rule), "SITE_BY_SITE", False):
        yield from check(context, rule, params)
        return
    for site in context.sites:
        alone = replace(context, sites=(site,))
        yield from said.of(rule, site, lambda: check(alone, rule, params))  # noqa: B023  called at once


def parameters(rule: Rule) -> Any:
    """The page's `params` as the check's own dataclass. Raises UserError when they do not fit."""
    known = {each.name: each for each in fields(_module(rule).Params)}
    unknown = sorted(set(rule.params) - set(known))
    missing = sorted(
        name
        for name, each in known.items()
        if each.default is MISSING and each.default_factory is MISSING and name not in rule.params
    )
    if unknown or missing:
        raise UserError(f"{rule.path}: params of check {rule.check!r}: unknown {unknown}, missing {missing}")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in rule.params.items()}
    for name, value in values.items():
        default = known[name].default
        if default is not MISSING and type(default) is not type(value):
            raise UserError(f"{rule.path}: params.{name} should be like {default!r}, not {value!r}")
    return _module(rule).Params(**values)


def _module(rule: Rule) -> ModuleType:
    try:
        return _load(rule.check)
    except ModuleNotFoundError:
        raise UserError(f"{rule.path}: there is no check {rule.check!r}") from None


@cache
def _load(name: str) -> ModuleType:
    module = importlib.import_module(f"promptlint.checks.{name}")
    if not hasattr(module, "Params"):
        raise ModuleNotFoundError(name)
    return module


def _settled(raised: Sequence[tuple[int, Raised]]) -> list[Finding]:
    """Where several rules describe one value, the one with the smallest precedence number speaks, of those that are shown by default if there are any."""
    best: dict[Hashable, tuple[bool, int]] = {}
    for precedence, each in raised:
        if each.subject is not None:
            rank = _doubtful(each.finding), precedence
            best[each.subject] = min(rank, best.get(each.subject, rank))
    # A known source that changes at each turn or more often explains all that stands at its place.
    explained = {
        each.finding.span
        for _, each in raised
        if _is_source(each) and not _doubtful(each.finding) and (each.finding.volatility or 0) >= Volatility.TURN
    }
    settled: dict[Hashable, Finding] = {}
    for number, (precedence, each) in enumerate(raised):
        if each.subject is not None and (_doubtful(each.finding), precedence) != best[each.subject]:
            continue
        if each.subject is not None and not _is_source(each) and each.finding.span in explained:
            continue
        # One rule may raise one subject several times (a slot through which several values come): the surest and dearest is kept.
        key = number if each.subject is None else (each.finding.rule, each.subject, each.finding.call_site)
        known = settled.get(key)
        if known is None or _rank(each.finding) > _rank(known):
            settled[key] = each.finding
    return list(settled.values())


def _is_source(raised: Raised) -> bool:
    """Whether the subject is a known source, not a value of which only its name or its use is known."""
    return isinstance(raised.subject, tuple) and raised.subject[-1] != "other"


def _doubtful(finding: Finding) -> bool:
    """Whether the default settings hide the finding."""
    return finding.confidence < Confidence.MEDIUM or finding.persona != PERSONAS[0]


def _rank(finding: Finding) -> tuple[int, float, int]:
    return finding.confidence, finding.tokens_lost, finding.tokens_behind


def _merged(findings: Iterable[Finding], rules: frozenset[str]) -> list[Finding]:
    """Values of one rule that stand next to each other, with next to nothing between them, are one finding: one edit moves them all."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    merged: list[Finding] = []
    for each in findings:
        if each.rule in rules:
            groups.setdefault((each.rule, each.call_site, each.span.path), []).append(each)
        else:
            merged.append(each)
    for group in groups.values():
        runs: list[list[Finding]] = []
        for each in sorted(group, key=lambda each: (-each.tokens_behind, each.span)):
            run = next((run for run in runs if _belongs(each, run)), None)
            if run is None:
                runs.append([each])
            else:
                run.append(each)
        for run in runs:
            first = max(run, key=lambda each: each.confidence)
            others = tuple(
                Note(each.span, f"`{short(each.expression)}` here too") for each in run if each.span != first.span
            )
            merged.append(replace(first, related=(*first.related, *others)) if others else first)
    return merged


def _belongs(finding: Finding, run: list[Finding]) -> bool:
    first, last = run[0], run[-1]
    near = abs(finding.span.line - first.span.line) <= MERGED_LINES
    return near and last.tokens_behind - finding.tokens_behind < MERGED_TOKENS


def _folded(findings: Iterable[Finding], prompts: Mapping[str, Prompt]) -> list[Finding]:
    """One finding for the same fault (rule and place) at several call sites: the dearest; the other sites are related."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.rule, each.span), []).append(each)
    folded = []
    for group in groups.values():
        best = max(group, key=lambda each: (each.confidence, each.tokens_lost))
        related = list(best.related)
        seen = {best.call_site, ""}
        for other in group:
            if other.call_site not in seen:
                seen.add(other.call_site)
                prompt = prompts.get(other.call_site)
                if prompt is not None:
                    related.append(Note(prompt.span, "also sent here", other.call_site))
        folded.append(replace(best, related=tuple(related)) if len(related) != len(best.related) else best)
    return folded
