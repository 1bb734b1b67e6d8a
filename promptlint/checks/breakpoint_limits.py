"""Cache markers against the provider's limits: how many, from how many tokens on, in which order of lifetimes, how far apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from promptlint.analysis import CallSite
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding
from promptlint.checks.marks import Limits, Mark, limits_of, marks_of, tokens_of
from promptlint.finding import Note
from promptlint.ir import Confidence, Hole
from promptlint.source import Span

__all__ = ["Params", "check"]

_SLACK = 1.5
"""Claude's tokenizer is not public, and counts up to a half more than ours on code and on other languages than English."""


@dataclass(frozen=True, slots=True)
class Params:
    """`fault`: too-many, below-minimum, ttl-order or far-apart."""

    fault: str


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding at the marker that goes beyond the limit."""
    find = _FAULTS[params.fault]
    raised: list[Raised] = []
    worthy: set[Span] = (
        set()
    )  # markers that are fine at some call site: the same line serves prompts of several lengths
    for site in context.sites:
        limits = limits_of(site)
        if site.prompt.origin != "sink" or (limits is not None and limits.terms.mode != "breakpoint"):
            continue
        marks = marks_of(site)
        found = list(find(context, rule, site, limits, marks)) if limits is not None else []
        raised += found
        worthy |= {mark.span for mark in marks} - {one.finding.span for one in found}
    yield from (one for one in raised if params.fault != "below-minimum" or one.finding.span not in worthy)


def _too_many(context: Context, rule: Rule, site: CallSite, limits: Limits, marks: list[Mark]) -> Iterator[Raised]:
    most = limits.terms.max_breakpoints
    if most is None:
        return
    mine = most - bool(limits.terms.implicit)
    looped = next((mark for mark in marks if mark.repeated), None)
    if looped is None and len(marks) <= mine:
        return
    mark = looped or marks[mine]
    refused = limits.terms.over_limit == "refused"
    what = "one marker for each element of a list" if looped else f"{len(marks)} markers in one request"
    yield Raised(
        finding(
            rule,
            context,
            mark.span,
            f"{what}: {limits.terms.title} {'refuses more than' if refused else 'stores only the latest'} {mine}",
            confidence=Confidence.MEDIUM if looped else Confidence.HIGH,
            site=site,
            block=mark.block.kind,
            behind=tokens_of(mark.items),
            lost=0.0,
        )
    )


def _below_minimum(context: Context, rule: Rule, site: CallSite, limits: Limits, marks: list[Mark]) -> Iterator[Raised]:
    if not marks or limits.terms.implicit or limits.least < 1:
        return
    last = marks[-1]
    if any(parameter.name == "**" for parameter in site.prompt.parameters):
        return  # tools may stand in front of it
    if any(isinstance(item.node, Hole) and (item.append or item.node.tokens is None) for item in last.items):
        return  # its size is not in the source
    if any(item.over is not None for item in last.items):
        return
    tokens = tokens_of(last.items)
    if tokens * _SLACK >= limits.least:
        return
    model = site.prompt.model or "any of its models"
    yield Raised(
        finding(
            rule,
            context,
            last.span,
            f"the prefix up to this marker has about {tokens} tokens; {limits.terms.title} caches nothing below {limits.least}"
            f" ({model}), and does not say so",
            confidence=Confidence.HIGH if site.prompt.model else Confidence.MEDIUM,
            site=site,
            block=last.block.kind,
            behind=tokens,
            lost=0.0,
        ),
        subject=(site.id, "mark", last.span),
    )


def _ttl_order(context: Context, rule: Rule, site: CallSite, limits: Limits, marks: list[Mark]) -> Iterator[Raised]:
    if limits.terms.ttl_order != "longer-first":
        return
    seconds = dict(limits.terms.ttls)
    for earlier, later in pairwise(marks):
        first, second = (
            seconds.get(mark.ttl) if mark.ttl is not None else limits.terms.ttl_seconds for mark in (earlier, later)
        )
        if first is None or second is None or first >= second:
            continue
        yield Raised(
            finding(
                rule,
                context,
                later.span,
                f"a marker of {later.ttl} stands behind one of {earlier.ttl or limits.terms.ttls[0][0]}:"
                f" {limits.terms.title} wants the longer lifetime first",
                confidence=Confidence.HIGH,
                site=site,
                block=later.block.kind,
                related=[Note(earlier.span, "the marker with the shorter lifetime")],
                behind=tokens_of(later.items),
                lost=0.0,
            )
        )
        return


def _far_apart(context: Context, rule: Rule, site: CallSite, limits: Limits, marks: list[Mark]) -> Iterator[Raised]:
    back = limits.terms.lookback
    if back is None or limits.terms.implicit:
        return
    for earlier, later in pairwise(marks):
        between = {item.block_index for item in later.items[len(earlier.items) :]}
        if len(between) > back:
            yield Raised(
                finding(
                    rule,
                    context,
                    later.span,
                    f"{len(between)} content blocks from the marker before: {limits.terms.title} looks back over {back}",
                    confidence=Confidence.HIGH,
                    site=site,
                    block=later.block.kind,
                    related=[Note(earlier.span, "the marker before")],
                    behind=tokens_of(later.items),
                    lost=0.0,
                )
            )
            return


_FAULTS: dict[str, Callable[[Context, Rule, CallSite, Limits, list[Mark]], Iterator[Raised]]] = {
    "too-many": _too_many,
    "below-minimum": _below_minimum,
    "ttl-order": _ttl_order,
    "far-apart": _far_apart,
}
