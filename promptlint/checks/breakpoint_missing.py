"""Stable prefixes that a provider with breakpoints does not store: without a marker, or because a message goes on behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, Item
from promptlint.analysis.estimate import hit_rate
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.checks.marks import Limits, changes, limits_of, marks_of, tokens_of
from promptlint.ir import BlockKind, Confidence, Hole, Parameter, Step, Text, Volatility

__all__ = ["Params", "check"]

SITE_BY_SITE = True

_SWITCHES = frozenset({"cache_control", "cache_control_injection_points", "**"})
"""Arguments that mark without a marker on a block, or that may: LiteLLM's own, and keyword arguments that were not followed."""


@dataclass(frozen=True, slots=True)
class Params:
    """`in_message`: the rule for a stable head whose message goes on with a changing tail; else the one for a prefix that ends with a block.

    `min_tokens_lost`: expected tokens a request.
    """

    in_message: bool = False
    min_tokens_lost: int = 32


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each call site whose provider stores prefixes at breakpoints only, and has none where the stable prefix ends.

    Where it could end with a whole block, the marker is missing; where the changing part stands in the same block, the block is to be split.
    """
    for site in context.sites:
        limits = limits_of(site)
        if limits is None or site.prompt.origin != "sink" or limits.terms.mode != "breakpoint":
            continue
        if limits.terms.implicit == "units" or not (limits.terms.explicit or limits.terms.implicit):
            continue
        if any(_switches(parameter) for parameter in site.prompt.parameters):
            continue
        prefix, whole = _prefix(site)
        if marks_of(site) or not prefix:
            continue
        enough_whole = tokens_of(whole) >= max(limits.most, 1)
        if params.in_message:
            if tokens_of(prefix) >= max(limits.most, 1) and not (enough_whole and not limits.terms.implicit):
                yield from _split(context, rule, params, site, limits, prefix, whole)
        elif enough_whole and not limits.terms.implicit:
            yield from _missing(context, rule, params, site, limits, whole)


def _switches(parameter: Parameter) -> bool:
    return parameter.name in _SWITCHES


def _prefix(site: CallSite) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The leading parts that all requests share, and of them those up to the end of a block."""
    items = site.rendered.main()
    end = next(
        (position for position, item in enumerate(items) if item.append or item.own >= Volatility.TENANT), len(items)
    )
    prefix = items[:end]
    whole = end
    if end < len(items) and prefix and items[end].block_index == prefix[-1].block_index:
        whole = next(position for position, item in enumerate(items) if item.block_index == items[end].block_index)
    return prefix, items[:whole]


def _missing(
    context: Context, rule: Rule, params: Params, site: CallSite, limits: Limits, whole: tuple[Item, ...]
) -> Iterator[Raised]:
    tokens = tokens_of(whole)
    lost = _lost(context, site, limits)
    if lost < params.min_tokens_lost:
        return
    last = whole[-1]
    yield Raised(
        finding(
            rule,
            context,
            site.prompt.span,
            f"{tokens} stable tokens have no cache marker, and {limits.terms.title} caches nothing without one"
            f" (from {limits.most} tokens on)",
            confidence=_readable(site),
            site=site,
            expression=last.block.name if last.block else "",
            block=last.kind,
            behind=tokens,
            lost=lost,
        ),
        subject=(site.id, "no mark"),
    )


def _split(
    context: Context,
    rule: Rule,
    params: Params,
    site: CallSite,
    limits: Limits,
    prefix: tuple[Item, ...],
    whole: tuple[Item, ...],
) -> Iterator[Raised]:
    """The stable head of a block with a changing tail, as far as no block before it ends the prefix."""
    if len(prefix) == len(whole):
        return
    block_index = prefix[-1].block_index
    tail = [item for item in site.rendered.main()[len(prefix) :] if item.block_index == block_index]
    cause = changes(tail, Volatility.TENANT)
    head = tokens_of(prefix) - tokens_of(whole)
    lost = min(_lost(context, site, limits), float(tokens_of(prefix)))
    fixed = sum(item.tokens for item in prefix[len(whole) :] if isinstance(item.node, Text))
    if cause is None or not isinstance(cause.node, Hole) or lost < params.min_tokens_lost or fixed < 32:
        return
    again = "never comes again" if cause.own >= Volatility.TURN else f"is another one for each {cause.own.word}"
    yield Raised(
        finding(
            rule,
            context,
            cause.span,
            f"{head} stable tokens and `{short(cause.node.expression)}` stand in one message: {limits.terms.title} stores whole"
            f" messages, and this one {again}",
            confidence=min(cause.confidence, _readable(site)),
            site=site,
            expression=cause.node.expression,
            volatility=cause.own,
            block=cause.kind,
            trace=[Step(prefix[-1].span, "the stable head ends here"), *cause.node.steps],
            behind=head,
            lost=lost,
        ),
        subject=(site.id, "no mark"),
    )


def _lost(context: Context, site: CallSite, limits: Limits) -> float:
    """Expected tokens a request that breakpoints in the best places would save."""
    items, profile = site.rendered.main(), context.assumptions.profile
    now = hit_rate(items, profile, limits.terms)
    best = hit_rate(items, profile, limits.terms, best_breakpoint=True)
    return max(0.0, best - now) * site.prompt_tokens


def _readable(site: CallSite) -> Confidence:
    """How sure it is that no marker stands anywhere: a list of messages or tools that was not read may hold some."""
    sure = Confidence.HIGH
    for item in site.rendered.items:
        whole_block = item.block is not None and item.block.segments == (item.node,)
        if not isinstance(item.node, Hole) or not (whole_block or item.append):
            continue
        listed = item.append or item.block is None or item.block.role is None or item.kind is BlockKind.TOOLS
        sure = min(sure, Confidence.LOW if listed else Confidence.MEDIUM)
    return sure
