"""What checks share: the context they read, how a finding is made, how dear it is."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from promptlint.analysis import Assumptions, CallSite, Cost
from promptlint.catalog.profiles import Thresholds
from promptlint.catalog.rules import Rule
from promptlint.finding import PERSONAS, SEVERITIES, Finding, Note
from promptlint.ir import BlockKind, Confidence, Reading, Step, Volatility
from promptlint.source import Span

__all__ = ["Context", "Raised", "dearest_first", "finding", "notes", "persona", "severity", "short"]


@dataclass(frozen=True, slots=True)
class Context:
    """What a check may read: the reading of the front ends, its call sites, the assumptions."""

    reading: Reading
    sites: tuple[CallSite, ...]
    assumptions: Assumptions


@dataclass(frozen=True, slots=True)
class Raised:
    """A finding and the value that it is about. Of several rules that raise the same subject, only the one with precedence speaks."""

    finding: Finding
    subject: Hashable = None


def severity(ceiling: str, lost: float, volatility: Volatility | None, thresholds: Thresholds) -> str:
    """Severity by tokens lost a request, never above the page's. Values that several requests share count one step less."""
    if volatility in thresholds.always_low:
        return SEVERITIES[0]
    level = 2 if lost >= thresholds.high else 1 if lost >= thresholds.medium else 0
    if volatility in thresholds.one_step_down:
        level = max(0, level - 1)
    return SEVERITIES[min(level, SEVERITIES.index(ceiling))]


def persona(rule: Rule, lost: float, volatility: Volatility | None, thresholds: Thresholds) -> str:
    """The page's persona; pedantic for a changing value that loses next to nothing, by what stands ahead of it or by how rarely it changes."""
    small = volatility is not None and volatility not in thresholds.always_low and lost < thresholds.notice
    return max(rule.persona, PERSONAS[1], key=PERSONAS.index) if small else rule.persona


def notes(steps: Iterable[Step]) -> tuple[Note, ...]:
    """Steps of a trace, each place once: what begins where an earlier step began says nothing new."""
    found: dict[tuple[str, int, int], Note] = {}
    for step in steps:
        place = step.span.path, step.span.line, step.span.column
        found.setdefault(place, Note(step.span, step.note))
    return tuple(found.values())


def finding(
    rule: Rule,
    context: Context,
    span: Span,
    message: str,
    *,
    confidence: Confidence,
    cost: Cost | None = None,
    site: CallSite | None = None,
    expression: str = "",
    volatility: Volatility | None = None,
    block: BlockKind | None = None,
    trace: Iterable[Step] = (),
    related: Iterable[Note] = (),
    help: str = "",  # noqa: A002 - the field's name in the report
    lost: float | None = None,
    behind: int | None = None,
    function: str = "",
) -> Finding:
    """A finding of `rule`; severity follows from what is lost and from how long the value lives."""
    tokens_lost = lost if lost is not None else cost.lost if cost else 0.0
    steps = list(trace)
    if site is not None and site.prompt.origin == "sink":
        steps.append(Step(site.prompt.span, "sent here"))
    return Finding(
        rule=rule.name,
        severity=severity(rule.severity, tokens_lost, volatility, context.assumptions.thresholds),
        confidence=min(confidence, site.prompt.confidence) if site else confidence,
        persona=persona(rule, tokens_lost, volatility, context.assumptions.thresholds),
        span=span,
        message=message,
        expression=expression,
        volatility=volatility,
        block=block,
        call_site=site.id if site else "",
        tokens_behind=behind if behind is not None else cost.behind if cost else 0,
        tokens_lost=round(tokens_lost, 1),
        hit_rate_now=round(cost.now, 4) if cost else None,
        hit_rate_if_fixed=round(cost.if_fixed, 4) if cost else None,
        trace=notes(steps),
        related=tuple(related),
        function=function or (site.prompt.function if site else ""),
        help=help or rule.help,
    )


def dearest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Most tokens lost first, then by place."""
    return sorted(findings, key=lambda each: (-each.tokens_lost, each.span, each.rule))


def short(expression: str, width: int = 48) -> str:
    """An expression in one line that a message can hold."""
    line = " ".join(expression.split())
    return line if len(line) <= width else line[: width - 1] + "…"
