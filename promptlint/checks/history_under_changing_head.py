"""One conversation that is sent under different system text or tools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, Cost, Item
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.finding import Note
from promptlint.ir import BlockKind, Confidence, Hole, Text

__all__ = ["Params", "check"]


@dataclass(frozen=True, slots=True)
class Params:
    """`min_tokens_behind`: of the conversation, by the profile."""

    min_tokens_behind: int = 32


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding at each call site that sends a conversation under another head than the first site of the same object, and at each hand-off."""
    yield from _hand_offs(context, rule)
    groups: dict[tuple[str, ...], list[tuple[CallSite, Item]]] = defaultdict(list)
    for site in context.sites:
        item = next((item for item in site.rendered.main() if item.append), None)
        owner = _owner(site, item) if item else None
        if item is not None and owner is not None and item.tokens >= params.min_tokens_behind:
            groups[owner].append((site, item))
    for members in groups.values():
        first, first_item = members[0]
        for site, item in members[1:]:
            if _head(first, first_item) == _head(site, item) or site.prompt.span == first.prompt.span:
                continue
            now = site.estimated_hit_rate
            expression = item.node.expression if isinstance(item.node, Hole) else ""
            placed = item.block.placed if item.block else None
            place = placed if placed is not None and site.prompt.span.contains(placed) else site.prompt.span
            yield Raised(
                finding(
                    rule,
                    context,
                    place,
                    f"`{short(expression)}` is also sent under another system text or tools ({first.prompt.function})",
                    confidence=Confidence.MEDIUM,
                    site=site,
                    # Half of the turns are sent by either site, so half of the history's reuse is lost.
                    cost=Cost(item.tokens, item.tokens / 2, now, now),
                    expression=expression,
                    block=BlockKind.HISTORY,
                    related=[Note(first.prompt.span, "the same conversation under another head", first.id)],
                )
            )


def _hand_offs(context: Context, rule: Rule) -> Iterator[Raised]:
    """Places that make a framework go on with a conversation under another agent's system text and tools."""
    tokens = context.assumptions.profile.size_of_kind(BlockKind.HISTORY)
    edits = [*context.reading.edits, *(edit for site in context.sites for edit in site.prompt.edits)]
    for edit in {edit.span: edit for edit in edits if edit.op == "hand-off"}.values():
        yield Raised(
            finding(
                rule,
                context,
                edit.span,
                f"`{short(edit.expression or edit.target)}` goes on with the conversation under another system text and tools",
                confidence=edit.confidence,
                expression=edit.expression or edit.target,
                block=BlockKind.HISTORY,
                trace=edit.steps,
                behind=tokens,
                lost=tokens / 2,
                function=edit.function,
            )
        )


def _owner(site: CallSite, item: Item) -> tuple[str, ...] | None:
    """The attribute of a class that holds the conversation; None for others, since equal names of parameters and locals prove nothing."""
    if not isinstance(item.node, Hole) or site.prompt.origin != "sink" or "." not in site.prompt.function:
        return None
    receiver, _, attribute = item.node.expression.partition(".")
    if receiver != "self" or not attribute.isidentifier():
        return None
    return site.prompt.path, site.prompt.function.rsplit(".", 1)[0], attribute


def _head(site: CallSite, item: Item) -> tuple[object, ...]:
    """What is rendered ahead of the conversation, as written."""
    return tuple(
        other.node.value if isinstance(other.node, Text) else getattr(other.node, "expression", "media")
        for other in site.rendered.main()
        if other.index < item.index
    )
