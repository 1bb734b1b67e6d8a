"""A growing or changing conversation ahead of text that never changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, Item, cost_of
from promptlint.analysis.place import expression_at, primary_location
from promptlint.catalog.names import load_names
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.ir import BlockKind, Confidence, Growth, Hole, Text, Volatility

__all__ = ["Params", "check"]

SITE_BY_SITE = True


@dataclass(frozen=True, slots=True)
class Params:
    """`min_tokens_behind` holds within one block; text in a later block must be worth more, because the newest message is a good place for
    a short reminder.
    """

    min_tokens_behind: int = 32
    min_tokens_in_later_block: int = 300


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each history that stands ahead of fixed text."""
    for site in context.sites:
        for item in site.rendered.items:
            hole = item.node
            if not isinstance(hole, Hole) or not _is_history(item, hole):
                continue
            volatility = max(hole.volatility, Volatility.TURN)
            same, later = _fixed_behind(site, item)
            if same < params.min_tokens_behind and same + later < params.min_tokens_in_later_block:
                continue
            cost = cost_of(site.rendered, item, volatility)
            span = primary_location(site.rendered, item, Volatility.TENANT)
            if item.block is not None and item.block.placed is not None and same < params.min_tokens_behind:
                span = item.block.placed
            expression = expression_at(hole, span)
            yield Raised(
                finding(
                    rule,
                    context,
                    span,
                    f"`{short(expression)}` grows ahead of {same + later} tokens of fixed text",
                    confidence=_confidence(hole),
                    cost=cost,
                    behind=same + later,
                    site=site,
                    expression=expression,
                    volatility=volatility,
                    block=item.kind,
                    trace=hole.steps,
                ),
                subject=(span, "other"),
            )


def _confidence(hole: Hole) -> Confidence:
    """Medium for what is a conversation by all that is known of it; low where it is mixed with other values."""
    other = any(
        origin.kind not in {"history", "setting"} and origin.confidence >= Confidence.MEDIUM for origin in hole.origins
    )
    return min(hole.confidence, Confidence.LOW if other else Confidence.MEDIUM)


def _is_history(item: Item, hole: Hole) -> bool:
    if _is_printed(item) and hole.kind is not BlockKind.HISTORY and not _is_named(hole):
        return False
    if item.append:
        return True
    return (
        item.over is None
        and any(origin.kind == "history" for origin in hole.origins)
        and hole.growth is not Growth.FIXED
    )


def _is_printed(item: Item) -> bool:
    """Whether the value is a slot of a text, not a run of messages: a list that some method appends to may be anything."""
    return item.block is not None and any(isinstance(segment, Text) for segment in item.block.segments)


def _is_named(hole: Hole) -> bool:
    return any(load_names().fact(name).origin == "history" for name in (hole.name, hole.expression))


def _fixed_behind(site: CallSite, item: Item) -> tuple[int, int]:
    """Tokens of fixed text behind the history: in its own block, and in later ones."""
    same = later = 0
    for other in site.rendered.after(item):
        if other.is_text and other.own is Volatility.STATIC and other.over is not item.node:
            if other.block_index == item.block_index:
                same += other.tokens
            else:
                later += other.tokens
    return same, later
