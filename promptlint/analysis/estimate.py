"""Expected hit rates and losses of a rendered prompt under a traffic profile.

The formula is the contract's: with N requests a day and D(v) distinct values a day at volatility v, a token governed by v counts max(0, 1 - D(v) / N).
An append-only history of a session with R = N / D(session) requests counts the turns that were sent before. At request k it holds the k - 1
turns before, of which all but the last were already part of request k - 1; averaged over k this is the share 1 - 2 / R. A change more
often than per session takes its own D / N off.

Where the provider's terms are known, they apply: nothing below its minimum is cached, prefixes are floored to its blocks or end at its
breakpoints, and a prefix that is shared by all, a tenant, a document or a user is still there with probability 1 - exp(-rate x lifetime), for requests
that arrive at random over the day. Requests of one session or turn follow each other within the lifetime.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from promptlint.analysis.render import Item, Rendered
from promptlint.catalog.profiles import Profile
from promptlint.catalog.providers import Terms
from promptlint.ir import BlockKind, Confidence, Hole, Text, Volatility

__all__ = ["Cost", "cost_of", "hit_rate", "tokens_behind"]

_DAY_SECONDS = 86_400

_HEAD = frozenset({BlockKind.TOOLS, BlockKind.SCHEMA, BlockKind.SYSTEM})
"""What stands ahead of the first message. Providers that mark prefixes themselves mark its end too."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a value that stands too early costs.

    `behind`: tokens after it that live longer, `fixed` of them fixed text, `history` a conversation that grows, and `values` of values that are known to be shared by many requests. `lost`: of them, expected tokens a request that are computed again because of values that
    change as often as this one. `if_fixed`: the hit rate when this value, and every one that changes at least as often and is known with
    medium confidence or more, stands behind what lives longer; `now` where that raises nothing. The hit rates follow the provider's terms; `lost` does not, because the same code
    often runs against a server of one's own.
    """

    behind: int
    lost: float
    now: float
    if_fixed: float
    fixed: int = 0
    history: int = 0
    values: int = 0

    def told(self) -> str:
        """What is behind, in words: fixed text is counted, everything else is an expected size. Values of which only a name tells are left out where there is more to tell."""
        parts = [f"{self.fixed} token{'s' * (self.fixed != 1)} of fixed text"] if self.fixed else []
        values = self.values if self.fixed or self.history else self.behind
        if (
            values * 10 >= self.fixed + self.history and values
        ):  # a date's worth of them beside pages of text is no news
            parts.append(f"about {values} of values that change less often")
        if self.history:
            parts.append(f"a conversation of about {self.history}")
        return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


@cache
def _credits(profile: Profile) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """By governing volatility: the share of requests that reuse a token, and the share of a history that was sent before."""
    misses = [profile.miss_share(volatility) for volatility in Volatility]
    session = misses[Volatility.SESSION]
    plain = tuple(max(0.0, 1 - miss) for miss in misses)
    history = tuple(max(0.0, 1 - session - max(miss, session)) for miss in misses)
    return plain, history


def credit(item: Item, governing: Volatility, profile: Profile) -> float:
    """The share of requests in which the item's tokens are expected to be reused."""
    plain, history = _credits(profile)
    return history[governing] if item.append else plain[governing]


def hit_rate(
    items: Sequence[Item], profile: Profile, terms: Terms | None = None, *, best_breakpoint: bool = False
) -> float:
    """Expected cached tokens / prompt tokens of items in this order; 0 for an empty prompt.

    `best_breakpoint`: where a provider caches up to marks only, assume one at the end of each part (what a fix would set).
    """
    governing = Volatility.STATIC
    total = 0
    shares: list[tuple[float, int]] = []  # share of requests that reuse the prompt up to here, tokens up to here
    for item in items:
        governing = max(governing, item.own)
        total += item.tokens
        share = credit(item, governing, profile)
        if terms is not None and not item.append:
            share *= _still_there(governing, profile, terms)
        shares.append((share, total))
        if item.append:
            governing = max(governing, _behind_history(item))
    if not total:
        return 0.0
    if terms is None:
        before = [0, *(length for _, length in shares)]
        return sum(share * (length - start) for (share, length), start in zip(shares, before, strict=False)) / total
    marks = _marks(items, terms, best_breakpoint=best_breakpoint)
    cached = 0.0
    # A request that shares at least the first k parts reuses what the provider stored of them.
    least = 1.0
    steps = []
    for share, length in shares:
        least = min(least, share)
        steps.append((least, length))
    for (share, length), (following, _) in zip(steps, [*steps[1:], (0.0, 0)], strict=True):
        cached += (share - following) * _stored(length, terms, marks)
    return cached / total


def _still_there(governing: Volatility, profile: Profile, terms: Terms) -> float:
    """The probability that the last request with the same prefix lies within the provider's lifetime."""
    lifetime = terms.ttl_seconds
    if lifetime is None or governing > Volatility.USER:
        return 1.0
    each_day = profile.requests_per_day / profile.distinct(governing)
    return 1 - math.exp(-each_day * lifetime / _DAY_SECONDS)


def _stored(length: int, terms: Terms, marks: Sequence[int] | None) -> int:
    """Tokens that the provider can reuse of a shared prefix."""
    if marks is not None:
        length = max((mark for mark in marks if mark <= length), default=0)
    if length < terms.minimum:
        return 0
    return length // terms.block * terms.block if terms.mode == "block" else length


def _marks(items: Sequence[Item], terms: Terms, *, best_breakpoint: bool) -> list[int] | None:
    """Token positions at which the provider finds a stored prefix; None where every position will do.

    Those are the caller's marks, the ends that the provider marks itself (`implicit`), and the ends of a growing history in front of any mark: it was the
    end of an earlier request, and is found by looking back.
    """
    if terms.mode != "breakpoint" or best_breakpoint or terms.implicit == "units":
        return None
    ends = [
        position
        for position, item in enumerate(items)
        if position + 1 == len(items) or items[position + 1].block_index != item.block_index
    ]
    chosen = {position for position in ends if (block := items[position].block) is not None and block.breakpoint}
    if terms.implicit and ends:
        chosen.add(ends[-1])
        head = [position for position in ends if all(item.kind in _HEAD for item in items[: position + 1])]
        if terms.implicit == "latest-message" and head:
            chosen.add(head[-1])
    last = max(chosen, default=-1)
    marks: list[int] = []
    length = 0
    for position, item in enumerate(items):
        length += item.tokens
        if position in chosen or (item.append and position < last):
            marks.append(length)
    return marks


def _behind_history(item: Item) -> Volatility:
    """What follows a history stands at another place each time the history has grown."""
    volatility = getattr(item.node, "volatility", Volatility.TURN)
    return max(Volatility.TURN, volatility)


def tokens_behind(rendered: Rendered, item: Item, volatility: Volatility, *, movable: bool = False) -> int:
    """Tokens rendered after the item that live longer than `volatility`: fixed text, stable holes, append-only history.

    `movable`: of them, the fixed text that would be reused if the item stood last. That is neither the conversation, which belongs to the item's own request, nor
    what follows it, nor the words between the elements of a list that the item is one of, nor the labels of other values that change as often.
    """
    if movable:
        return _without_labels(_movable(rendered, item, volatility), item, volatility)
    return sum(other.tokens for other in rendered.after(item) if other.own_seen_from(item) < volatility)


_LABEL_TOKENS = 8
"""At most as much text says no more than what the value behind it is: "Question:", "Options:", a line of dashes."""

_FRAME = re.compile(r"(?:\s|</?[A-Za-z][\w .:-]*/?>|^[-=*_~]{3,}$|^#{1,6} [^\n]{1,60}$|```\w*)*", re.MULTILINE)
"""Tags, headings and rules: however long, they only frame the values between them."""


def _without_labels(after: Iterable[Item], item: Item, volatility: Volatility) -> int:
    """Tokens of fixed text, but for the labels of values that change as often as the item: a label goes where its value goes."""
    total = run = 0
    words = ""
    for other in after:
        if isinstance(other.node, Text) and other.own_seen_from(item) < volatility:
            run += other.tokens
            words += other.node.value
        elif isinstance(other.node, Hole) and other.own_seen_from(item) >= volatility:
            total += 0 if run <= _LABEL_TOKENS or _FRAME.fullmatch(words) else run
            run, words = 0, ""
    return total + run


def _movable(rendered: Rendered, item: Item, volatility: Volatility) -> Iterator[Item]:
    for other in rendered.after(item):
        if other.is_conversation or (other.is_reply and other.own_seen_from(item) >= volatility):
            return
        if not other.append and (other.over is None or other.over is not item.over):
            yield other


def _is_surely_shared(other: Item) -> bool:
    """Whether a part is fixed text, a conversation, or a value that is known to be shared by many requests (a setting, a tenant's or a user's).

    Of two values that only their names tell of, no name says which is asked about again sooner.
    """
    shared = other.own <= Volatility.USER and other.own is not Volatility.DOCUMENT
    return other.is_text or other.append or (shared and other.confidence >= Confidence.HIGH)


def cost_of(
    rendered: Rendered, item: Item, volatility: Volatility, *, movable: bool = False, guessed: bool = False
) -> Cost:
    """What it costs that a value of this volatility stands at the item's place.

    `movable`: without the conversation behind it, which belongs to the value's own request, and what follows that.
    `guessed`: only its name says that the value changes so often. Other values that come with a request then do not count as longer-lived.
    """
    profile = rendered.assumptions.profile
    base = Volatility.STATIC
    for other in rendered.before(item):
        base = _raised(base, other, other.own_seen_from(item), volatility)
    behind = fixed = history = values = 0
    lost = 0.0
    for other in _movable(rendered, item, volatility) if movable else rendered.after(item):
        own = other.own_seen_from(item)
        if own < volatility:
            base = max(base, own)
            if guessed and not _is_surely_shared(other):
                continue
            behind += other.tokens
            fixed += other.tokens if other.is_text and _stays(rendered, other, item) else 0
            history += other.tokens if other.append else 0
            values += other.tokens if not other.is_text and not other.append and _is_surely_shared(other) else 0
            lost += other.tokens * (credit(other, base, profile) - credit(other, max(base, volatility), profile))
            base = _raised(base, other, own, volatility)
    now, if_fixed = _rates(rendered, item, volatility)
    return Cost(behind, max(0.0, lost), now, if_fixed, fixed, history, values)


def _stays(rendered: Rendered, text: Item, item: Item) -> bool:
    """Whether a text behind an item is there in each request: not once for each element of a list, not in the place of a value."""
    return (text.over is None or text.over is item.over) and not rendered.stands_in(text, item)


def _rates(rendered: Rendered, item: Item, volatility: Volatility) -> tuple[float, float]:
    """The hit rate as it is, and with the item, and all that change at least as often, moved to the end. Equal for most items of a prompt."""
    doubtful = item.index if item.confidence < Confidence.MEDIUM else -1
    key = (item.arms, volatility, doubtful)
    if key not in rendered.memo:
        profile, terms = rendered.assumptions.profile, rendered.terms
        whole = tuple(rendered.seen_from(item, rendered.items))
        moved = [other for other in whole if _moves(other, item, volatility)]
        kept = [other for other in whole if not _moves(other, item, volatility)]
        now = hit_rate(whole, profile, terms)
        # Where values of low confidence stay ahead of the same text, the move alone gives nothing, and nobody has to make it.
        rendered.memo[key] = (now, max(now, hit_rate([*kept, *moved], profile, terms, best_breakpoint=True)))
    rates: tuple[float, float] = rendered.memo[key]
    return rates


def _moves(other: Item, item: Item, volatility: Volatility) -> bool:
    return other.own >= volatility and (other.index == item.index or other.confidence >= Confidence.MEDIUM)


def _raised(base: Volatility, other: Item, own: Volatility, limit: Volatility) -> Volatility:
    """The governing volatility behind `other`, counting only what lives longer than `limit`."""
    if own < limit:
        base = max(base, own)
    if other.append and _behind_history(other) < limit:
        base = max(base, _behind_history(other))
    return base
