"""Tools that are chosen, or rendered, anew for each request: they stand ahead of everything else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, Item, cost_of
from promptlint.catalog.names import load_names
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.checks.volatile_in_prefix import STRONG, origins_of
from promptlint.ir import BlockKind, Confidence, Guard, Hole, Step, Volatility
from promptlint.source import Span

__all__ = ["Params", "check"]

SITE_BY_SITE = True


@dataclass(frozen=True, slots=True)
class Params:
    """Tools that change less often than `min_volatility` are fixed as far as a conversation is concerned."""

    min_tokens_behind: int = 32
    min_volatility: str = "session"


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each changing part of a tool list, and for each tool list that is written into text."""
    least = Volatility[params.min_volatility.upper()]
    for site in context.sites:
        items = site.rendered.items
        for item in items:
            node = item.node
            if isinstance(node, Guard):
                following = items[item.index + 1] if item.index + 1 < len(items) else item
                if following.kind is BlockKind.TOOLS and node.volatility >= least:
                    yield from _raise(context, rule, params, site=site, item=item, node=node)
            elif isinstance(node, Hole) and item.over is None:
                sure = _surest(item, node, least)
                if sure is not None:
                    yield from _raise(context, rule, params, site=site, item=item, node=node, sure=sure)


def _surest(item: Item, hole: Hole, least: Volatility) -> Confidence | None:
    """How sure it is that a part of a tool list changes; None where nothing says so."""
    origins = [origin for origin in origins_of(hole) if origin.kind not in STRONG and origin.volatility >= least]
    origins = [origin for origin in origins if origin.kind == "tools" or item.kind is BlockKind.TOOLS]
    if origins and load_names().fact(hole.expression).origin == "tools":
        return hole.confidence  # called tools, and chosen by a value of the request
    return max((origin.confidence for origin in origins), default=None)


def _raise(
    context: Context,
    rule: Rule,
    params: Params,
    *,
    site: CallSite,
    item: Item,
    node: Hole | Guard,
    sure: Confidence = Confidence.HIGH,
) -> Iterator[Raised]:
    cost = cost_of(site.rendered, item, node.volatility)
    if cost.behind < params.min_tokens_behind:
        return
    place = _place(item, node)
    yield Raised(
        finding(
            rule,
            context,
            place,
            f"tools `{short(node.expression)}` differ between requests, ahead of {cost.told()}",
            confidence=min(node.confidence, sure),
            cost=cost,
            site=site,
            expression=node.expression,
            volatility=node.volatility,
            block=BlockKind.TOOLS,
            trace=[
                *(Step(origin.span, "chosen by this value") for origin in node.origins if origin.span != node.span),
                *(node.steps if isinstance(node, Hole) else ()),
            ],
        ),
        subject=(node.span, "other"),
    )


def _place(item: Item, node: Hole | Guard) -> Span:
    return item.block.placed if item.kind is BlockKind.TOOLS and item.block and item.block.placed else node.span
