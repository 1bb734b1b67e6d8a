"""Text that is there in some requests and absent in others, ahead of text that lives longer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, Item, cost_of
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.ir import Confidence, Guard, Hole, Media, Origin, Step, Text, Volatility

__all__ = ["Params", "check"]

SITE_BY_SITE = True

_STATEMENT = re.compile(r"[\w.\[\]\"']+(?:: [^=]+)? [+|]?= ")


@dataclass(frozen=True, slots=True)
class Params:
    """Guards below `min_volatility` are configuration; a guard on the state of the machine counts whatever its volatility."""

    min_tokens_behind: int = 32
    min_volatility: str = "tenant"


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each choice whose arms differ and whose guard changes."""
    least = Volatility[params.min_volatility.upper()]
    for site in context.sites:
        told: dict[int, Guard] = {}  # choices that were reported
        for item in site.rendered.items:
            guard = item.node
            if not isinstance(guard, Guard) or _is_explained(site, item) or _is_settled(guard):
                continue
            if any(_asks_the_same(guard, told[choice]) for choice, _ in item.arms if choice in told):
                told[item.choice] = guard  # an `elif`: one decision, told once
                continue
            volatility = min(guard.volatility, Volatility.SESSION) if guard.latched else guard.volatility
            host = any(origin.kind == "host" for origin in guard.origins)
            if volatility < least and not (host and volatility is Volatility.PROCESS):
                continue
            if not _has_text(site, item) or (not host and _changes_anyway(site, item, volatility)):
                continue
            cost = cost_of(site.rendered, item, volatility)
            if cost.behind < params.min_tokens_behind:
                continue
            told[item.choice] = guard
            yield Raised(
                finding(
                    rule,
                    context,
                    guard.span,
                    f"text depends on `{short(guard.expression)}`, ahead of {cost.told()}",
                    confidence=guard.confidence,
                    cost=cost,
                    site=site,
                    expression=guard.expression,
                    volatility=volatility,
                    block=item.kind,
                    trace=[Step(origin.span, "decided by this value") for origin in guard.origins],
                ),
                subject=(guard.span, "other"),
            )


def _asks_the_same(guard: Guard, outer: Guard) -> bool:
    """Whether two conditions look at the same values."""
    return bool(guard.origins) and {_asked(one) for one in guard.origins} == {_asked(one) for one in outer.origins}


def _asked(origin: Origin) -> tuple[str, str]:
    return origin.kind, origin.expression


def _has_text(site: CallSite, guard_item: Item) -> bool:
    """Whether an arm holds words or a medium of its own; a value that is or is not there is a value, and other rules speak of it."""
    for item in site.rendered.items[guard_item.index + 1 :]:
        if all(choice != guard_item.choice for choice, _ in item.arms):
            break
        if isinstance(item.node, Media) or (isinstance(item.node, Text) and any(map(str.isalnum, item.node.value))):
            return True
    return False


def _is_settled(guard: Guard) -> bool:
    """Whether nobody decides anew for each request.

    A condition that looks at the conversation ("add the system message if it is missing") is settled when it begins. A statement in place of a condition
    says that an attribute has been set by the time it is read.
    """
    return any(origin.kind == "history" for origin in guard.origins) or _STATEMENT.match(guard.expression) is not None


def _changes_anyway(site: CallSite, guard_item: Item, volatility: Volatility) -> bool:
    """Whether something ahead of the optional text, or the loop around it, changes as often: then the text is not what ends the prefix."""
    over = guard_item.over
    if over is not None and over.volatility >= volatility:
        return True
    return any(
        isinstance(other.node, Hole) and other.own >= volatility and other.confidence >= Confidence.MEDIUM
        for other in site.rendered.before(guard_item)
    )


def _is_explained(site: CallSite, guard_item: Item) -> bool:
    """Whether an arm holds a value that changes as often as the guard: then that value is the fault, and the guard only asks for it."""
    guard = guard_item.node
    assert isinstance(guard, Guard)
    for item in site.rendered.items[guard_item.index + 1 :]:
        if all(choice != guard_item.choice for choice, _ in item.arms):
            break
        node = item.node
        if isinstance(node, Hole) and node.volatility >= guard.volatility and node.confidence >= Confidence.MEDIUM:
            return True
    return False
