"""Expected hit rates and losses of a rendered prompt under a traffic profile.

The formula is the contract's: with N requests a day and D(v) distinct values a day at volatility v, a token governed by v counts max(0, 1 - D(v) / N).
An append-only history of a session with R = N / D(session) requests counts the turns that were sent before. At request k it holds the k - 1
turns before, of which all but the last were already part of request k - 1; averaged over k this is the share 1 - 2 / R. A change more
often than per session takes its own D / N off.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from promptlint.analysis.render import Item, Rendered
from promptlint.catalog.profiles import Profile
from promptlint.ir import Confidence, Volatility

__all__ = ["Cost", "cost_of", "hit_rate", "tokens_behind"]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a value that stands too early costs.

    `behind`: tokens after it that live longer. `lost`: of them, expected tokens a request that are computed again because of values that
    change as often as this one. `if_fixed`: the hit rate when this value, and every one that changes at least as often and is known with
    medium confidence or more, stands behind what lives longer.
    """

    behind: int
    lost: float
    now: float
    if_fixed: float


def credit(item: Item, governing: Volatility, profile: Profile) -> float:
    """The share of requests in which the item's tokens are expected to be reused."""
    if item.append:
        share = 1 - profile.miss_share(Volatility.SESSION) - profile.miss_share(max(governing, Volatility.SESSION))
        return max(0.0, share)
    return max(0.0, 1 - profile.miss_share(governing))


def hit_rate(items: Iterable[Item], profile: Profile) -> float:
    """Expected cached tokens / prompt tokens of items in this order; 0 for an empty prompt."""
    governing = Volatility.STATIC
    total = 0
    cached = 0.0
    for item in items:
        governing = max(governing, item.own)
        total += item.tokens
        cached += item.tokens * credit(item, governing, profile)
        if item.append:
            governing = max(governing, _behind_history(item))
    return cached / total if total else 0.0


def _behind_history(item: Item) -> Volatility:
    """What follows a history stands at another place each time the history has grown."""
    volatility = getattr(item.node, "volatility", Volatility.TURN)
    return max(Volatility.TURN, volatility)


def tokens_behind(rendered: Rendered, item: Item, volatility: Volatility) -> int:
    """Tokens rendered after the item that live longer than `volatility`: fixed text, stable holes, append-only history."""
    return sum(other.tokens for other in rendered.after(item) if other.own < volatility)


def cost_of(rendered: Rendered, item: Item, volatility: Volatility) -> Cost:
    """What it costs that a value of this volatility stands at the item's place."""
    profile = rendered.assumptions.profile
    base = Volatility.STATIC
    for other in rendered.before(item):
        base = _raised(base, other, volatility)
    behind = 0
    lost = 0.0
    for other in rendered.after(item):
        if other.own < volatility:
            base = max(base, other.own)
            behind += other.tokens
            lost += other.tokens * (credit(other, base, profile) - credit(other, max(base, volatility), profile))
            base = _raised(base, other, volatility)
    whole = tuple(rendered.seen_from(item, rendered.items))
    moved = [other for other in whole if _moves(other, item, volatility)]
    kept = [other for other in whole if not _moves(other, item, volatility)]
    return Cost(behind, max(0.0, lost), hit_rate(whole, profile), hit_rate([*kept, *moved], profile))


def _moves(other: Item, item: Item, volatility: Volatility) -> bool:
    return other.own >= volatility and (other.index == item.index or other.confidence >= Confidence.MEDIUM)


def _raised(base: Volatility, other: Item, limit: Volatility) -> Volatility:
    """The governing volatility behind `other`, counting only what lives longer than `limit`."""
    if other.own < limit:
        base = max(base, other.own)
    if other.append and _behind_history(other) < limit:
        base = max(base, _behind_history(other))
    return base
