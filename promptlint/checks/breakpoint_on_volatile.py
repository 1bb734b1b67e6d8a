"""Cache markers behind a value that no later request repeats: what they store is never read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, cost_of
from promptlint.analysis.estimate import hit_rate
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.checks.marks import Mark, changes, marks_of, tokens_of
from promptlint.finding import Note
from promptlint.ir import BlockKind, Confidence, Hole, Step, Volatility

__all__ = ["Params", "check"]

SITE_BY_SITE = True

_HEAD = frozenset({BlockKind.TOOLS, BlockKind.SYSTEM, BlockKind.SCHEMA})


@dataclass(frozen=True, slots=True)
class Params:
    """`min_tokens`: a marker that stores less than this behind the last good one, and loses nothing else, is not worth a word."""

    min_tokens: int = 256


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding at the first such marker of a call site.

    In the messages of a growing conversation a marker moves on with each request and finds what the last one stored: there only the system text and
    the tools are looked at.
    """
    for site in context.sites:
        stored = 0
        growing = _grows(site)
        for mark in marks_of(site):
            if growing and mark.block.kind not in _HEAD:
                break
            cause = changes(mark.items)
            if cause is None:
                stored = tokens_of(mark.items)
                continue
            stable = 0
            for item in mark.items:
                if item.own >= Volatility.TURN:
                    break
                stable += item.tokens
            if stable > stored or tokens_of(mark.items) - stored >= params.min_tokens:
                yield _raise(context, rule, site, mark, max(0, stable - stored))
            break


def _grows(site: CallSite) -> bool:
    return site.prompt.in_loop or any(
        item.append or (item.over is not None and item.kind not in _HEAD) for item in site.rendered.main()
    )


def _vague(hole: Hole | None) -> bool:
    """Whether all that is known is that the value belongs to an object that changes: a part of it may stay."""
    return hole is not None and all(origin.kind in {"state", "unknown", "setting"} for origin in hole.origins)


def _chosen(mark: Mark, hole: Hole | None) -> bool:
    """Whether the marker stands on a block that is nothing but one document: whoever marks that means to ask about it again, whatever its name says."""
    return (
        hole is not None
        and mark.block.segments == (hole,)
        and all(origin.kind in {"context", "document"} for origin in hole.origins)
    )


def _raise(context: Context, rule: Rule, site: CallSite, mark: Mark, stable: int) -> Raised:
    cause = changes(mark.items)
    assert cause is not None
    hole = cause.node if isinstance(cause.node, Hole) else None
    expression = hole.expression if hole is not None else "media"
    cost = cost_of(site.rendered, cause, cause.own)
    profile, terms = context.assumptions.profile, site.rendered.terms
    best = hit_rate(site.rendered.main(), profile, terms, best_breakpoint=True)
    lost = max(0.0, best - site.estimated_hit_rate) * site.prompt_tokens if terms is not None else float(stable)
    return Raised(
        finding(
            rule,
            context,
            mark.span,
            f"this marker stores a prefix that ends behind `{short(expression)}`, which changes with each request: it is never read",
            confidence=Confidence.LOW if _vague(hole) or _chosen(mark, hole) else cause.confidence,
            cost=cost,
            site=site,
            expression=expression,
            volatility=cause.own,
            block=mark.block.kind,
            trace=[Step(cause.span, "changes with each request"), *(hole.steps if hole is not None else ())],
            related=[Note(cause.span, "the marker belongs in front of this value")] if stable else [],
            behind=stable,
            lost=lost,
        ),
        subject=(site.id, "mark", mark.span),
    )
