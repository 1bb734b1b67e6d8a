"""Parts whose content is the same and whose order is not: sets, directory listings, unsorted JSON, shuffled examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, Item, cost_of, tokens_behind
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.checks.volatile_in_prefix import STRONG, origins_of
from promptlint.ir import Confidence, Hole, Origin, Volatility
from promptlint.source import Span

__all__ = ["Params", "check"]

SITE_BY_SITE = True


@dataclass(frozen=True, slots=True)
class Params:
    """`sources`: kinds of origin. `in_template`: "only" (the order arises in a template) or "never". `counts_itself`: the part is fixed but for its
    order, so its own tokens are lost too. `at`: the place is the "source" of the order, or the "iteration" that makes one out of a set.
    """

    sources: tuple[str, ...]
    min_tokens_behind: int = 32
    in_template: str = "never"
    counts_itself: bool = False
    at: str = "source"


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding at the call or iteration that creates the order.

    It is enough that one loop over the parts is reported: what stands in its body follows its order.
    """
    for site in context.sites:
        for item in site.rendered.items:
            hole = item.node
            if not isinstance(hole, Hole):
                continue
            if not any(origin.kind in params.sources for origin in hole.origins):
                continue
            for origin in origins_of(hole):
                in_template = not origin.span.path.endswith((".py", ".pyi"))
                if origin.kind not in params.sources or (params.in_template == "only") != in_template:
                    continue
                if item.over is not None and (not item.over.origins or _is_of(origin, item.over)):
                    continue
                found = _raise(context, rule, params, site=site, item=item, hole=hole, origin=origin)
                if found is not None:
                    yield found


def _raise(
    context: Context, rule: Rule, params: Params, *, site: CallSite, item: Item, hole: Hole, origin: Origin
) -> Raised | None:
    # An order that differs between processes also loses the session's history whenever another process answers the next turn.
    behind = tokens_behind(site.rendered, item, max(origin.volatility, Volatility.TURN))
    if _is_new_anyway(hole):
        # Another order of what is new in each request costs the conversation that repeats it, and no text that is shared by requests.
        behind = sum(other.tokens for other in site.rendered.after(item) if other.append)
    itself = _own_tokens(site, item) if params.counts_itself else 0
    following = behind
    if item.over is not None:
        # Within the turns of a conversation the later turns follow.
        following += sum(other.tokens for other in site.rendered.items if other.append and other.node == item.over)
    behind = following + itself
    if behind < params.min_tokens_behind:
        return None
    cost = cost_of(site.rendered, item, origin.volatility)
    each = "from process to process" if origin.volatility is Volatility.PROCESS else "from request to request"
    return Raised(
        finding(
            rule,
            context,
            _place(hole, origin, params),
            f"the order of `{short(origin.expression)}` differs {each}, which costs {_told(following, of_its_own=itself > 0)}",
            confidence=origin.confidence,
            cost=cost,
            behind=behind,
            lost=cost.lost + itself * context.assumptions.profile.miss_share(origin.volatility),
            site=site,
            expression=origin.expression,
            volatility=origin.volatility,
            block=item.kind,
            trace=[*origin.steps, *hole.steps],
        ),
        subject=(site.id, item.index, origin.kind),
    )


def _told(following: int, *, of_its_own: bool) -> str:
    """What another order costs, in words. How long the part itself is, is mostly not known before it is sent."""
    behind = f"the {following} tokens behind it" if following else ""
    return " and ".join(filter(None, ("its own text" if of_its_own else "", behind)))


def _is_new_anyway(hole: Hole) -> bool:
    """Whether the parts themselves, not only their order, are those of one request."""
    return any(
        each.kind not in STRONG and each.volatility >= Volatility.TURN and each.confidence >= Confidence.MEDIUM
        for each in hole.origins
    )


def _is_of(origin: Origin, over: Hole) -> bool:
    """Whether the order is that of the loop's own list, which is told of there."""
    return any(origin.kind == other.kind for other in over.origins)


def _own_tokens(site: CallSite, item: Item) -> int:
    return item.tokens + sum(other.tokens for other in site.rendered.after(item) if other.over is item.node)


def _place(hole: Hole, origin: Origin, params: Params) -> Span:
    """The source; for a set the call that iterates over it, where the value that is printed is one."""
    return hole.span if params.at == "iteration" and "(" in hole.expression else origin.span
