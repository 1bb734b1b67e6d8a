"""The order of a prompt that caches best, from code: a stable sort by how long values live, within what may move.

A prompt has regions whose order the provider or the conversation fixes: tools, system text, messages ahead of the history, the history, the newest user message.
Within a region parts may change places; a value that changes with each turn or request may also leave its region for the newest user message, which is rendered
last. A document chosen by id lives longer than a session and so stays ahead of the history; passages retrieved for the question go behind it. A value whose
neighbouring text says "above" or "below" stays where it is, and so does its region.

Moving text changes what a model reads, so nothing here is ever safe: of 15 templates whose order was changed in the SGLang paper (appendix D.2), 12 kept their
meaning; in the GGR paper accuracy moved by -6 to +14 points on an 8B model.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from promptlint.analysis import CallSite
from promptlint.analysis.estimate import hit_rate
from promptlint.analysis.layout import TEMPLATE_DATE
from promptlint.analysis.render import Item, Rendered
from promptlint.catalog.profiles import Profile
from promptlint.catalog.providers import Terms
from promptlint.ir import BlockKind, Confidence, Guard, Hole, Media, Text, Volatility

__all__ = ["MEANING_RISK", "Proposal", "propose", "propose_all"]

MEANING_RISK = "unsafe: moving text changes what the model reads; compare answers before and after"
_POINTS_BACK = re.compile(r"\b(above|preceding|previous|aforementioned)\b", re.IGNORECASE)
_POINTS_AHEAD = re.compile(r"\b(below|following|next)\b", re.IGNORECASE)
_NEAR = 200  # characters of the neighbouring text in which such a word is taken to mean the value beside it
_GAIN = 0.01  # points of hit rate below which a move is not worth a sentence
_SNIPPET = 48
_CUE_WORDS = 6
_TOOLS, _SYSTEM, _HEAD, _HISTORY, _NEWEST = range(5)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A recommended order of one call site. `before` and `after` name its parts in rendered order; `kept` says what stays although it could gain."""

    call_site: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    hit_rate_now: float
    hit_rate_then: float
    tokens_saved: float
    money_saved: float | None
    moved: tuple[str, ...]
    kept: tuple[str, ...]
    meaning_risk: str
    diff: str
    by_terms: bool = (
        True  # the hit rates follow the terms that are known, if any; else they are those of a server of one's own
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Neighbouring items of one block that move together: guards stay in front of what they guard."""

    items: tuple[Item, ...]
    region: int
    own: Volatility
    append: bool
    pinned: bool

    @property
    def tokens(self) -> int:
        return sum(item.tokens for item in self.items)

    @property
    def sure(self) -> bool:
        """Known with medium confidence or more: a guess is no reason to move text."""
        return all(item.confidence >= Confidence.MEDIUM for item in self.items)

    @property
    def rank(self) -> float:
        """How long the part lives, shortest last. A value that is only guessed keeps its place beside fixed text, and so does one that a process keeps: it costs nothing there."""
        if self.append:
            return Volatility.SESSION + 0.5
        if all(isinstance(item.node, Hole) and item.node.name == TEMPLATE_DATE for item in self.items):
            return 0.0  # the template's own: no edit of the prompt moves it
        return float(self.own) if self.sure and self.own > Volatility.PROCESS else 0.0

    @property
    def leaves(self) -> bool:
        """Whether it may go to the newest user message: it changes with each turn or request, and is not a tool."""
        return (
            self.region in {_SYSTEM, _HEAD}
            and self.own >= Volatility.TURN
            and self.sure
            and not self.pinned
            and not self.append
        )


@dataclass(frozen=True, slots=True)
class _Common:
    """The order that fixed texts have at the site whose prompt is longest: others that share them take it over."""

    site: str = ""
    ranks: dict[str, int] = field(default_factory=dict)


_NO_COMMON = _Common()


def propose_all(sites: Sequence[CallSite], *, own_server: bool = False) -> list[Proposal]:
    """A proposal for each call site that gains from one, dearest first. Fixed texts that several sites share get one order: that of the site with most tokens.

    With `own_server` a server of one's own runs behind the providers' clients: their terms play no part.
    """
    reference = max(sites, key=lambda site: site.prompt_tokens, default=None)
    common = _Common(reference.id, _ranks(reference.rendered)) if reference else _Common()
    found = [proposal for site in sites if (proposal := propose(site.rendered, common, own_server=own_server))]
    return sorted(found, key=lambda proposal: -proposal.tokens_saved)


def _ranks(rendered: Rendered) -> dict[str, int]:
    """Place of each longer fixed text in a prompt."""
    texts = [
        item.node.value for item in rendered.main() if isinstance(item.node, Text) and len(item.node.value.split()) >= 8
    ]
    return {text: place for place, text in enumerate(dict.fromkeys(texts))}


def propose(rendered: Rendered, common: _Common = _NO_COMMON, *, own_server: bool = False) -> Proposal | None:
    """The better order of one prompt, or None when there is none worth a sentence."""
    parts = _parts(rendered)
    alone = _sorted(parts, {})
    placed = _sorted(parts, common.ranks)
    profile = rendered.assumptions.profile
    order = [item for part in placed for item in part.items]
    terms = None if own_server else rendered.terms
    now, marked, then = _rates(rendered.main(), order, profile, terms)
    by_terms = True
    if terms is not None and then - marked < _GAIN:
        # Too short for this provider, but the same code often runs against a server of one's own.
        plain = _rates(rendered.main(), order, profile, None)
        if plain[2] - plain[1] >= _GAIN:
            (now, marked, then), by_terms = plain, False
    moved = _moves(parts, placed)
    if placed != alone:
        tokens = sum(part.tokens for part in placed if _rank_of(part, common.ranks) is not None)
        moved = (
            *moved,
            f"shared fixed texts in the order that {common.site} has: the two call sites then share up to {tokens:,} tokens of prefix",
        )
    elif then - marked < _GAIN:
        return None
    if marked - now >= _GAIN:
        moved = (
            *moved,
            f"of the gain, {100 * (marked - now):.0f} points need no move but a breakpoint behind each part",
        )
    if terms is not None and not by_terms:
        moved = (
            *moved,
            f"{terms.title} would cache no more than today; the figures are those of a server of one's own",
        )
    saved = rendered.prompt_tokens * max(0.0, then - now)
    kept = tuple(
        f"{_label(part)} stays: its text refers to what stands above or below"
        for part in parts
        if part.pinned and part.own >= Volatility.TURN
    )
    return Proposal(
        rendered.id,
        _labels(parts),
        _labels(placed),
        now,
        then,
        saved,
        _money(rendered, saved) if by_terms else None,
        moved,
        kept,
        MEANING_RISK,
        _diff(parts, placed),
        by_terms,
    )


def _rates(
    now: Sequence[Item], then: Sequence[Item], profile: Profile, terms: Terms | None
) -> tuple[float, float, float]:
    """Hit rates: as it is; as it is but with a breakpoint behind each part, where a provider caches up to marks; and in the other order with such breakpoints."""
    return (
        hit_rate(now, profile, terms),
        hit_rate(now, profile, terms, best_breakpoint=True),
        hit_rate(then, profile, terms, best_breakpoint=True),
    )


def _parts(rendered: Rendered) -> list[_Part]:
    """The prompt cut where the volatility changes. The items of a choice or loop form one part, for branches do not come apart."""
    items = rendered.main()
    history = next((index for index, item in enumerate(items) if item.append), None)
    last_block = max((item.block_index for item in items), default=-1)
    groups: list[list[Item]] = []
    for item in items:
        if groups and _together(groups[-1][-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    parts = []
    index = 0
    for group in groups:
        first = group[0]
        region = _region(first, index, history, last_block)
        own = max(item.own for item in group)
        parts.append(
            _Part(
                tuple(group),
                region,
                own,
                any(item.append for item in group),
                _pointed_at(items, index, index + len(group)),
            )
        )
        index += len(group)
    return parts


def _pointed_at(items: Sequence[Item], start: int, end: int) -> bool:
    """Whether the fixed text right before a value says "below", or the text right behind it "above": the value then has to stay where it is."""
    if all(item.is_text for item in items[start:end]):
        return False
    before, after = items[start - 1] if start else None, items[end] if end < len(items) else None
    return bool(
        (before is not None and isinstance(before.node, Text) and _POINTS_AHEAD.search(before.node.value[-_NEAR:]))
        or (after is not None and isinstance(after.node, Text) and _POINTS_BACK.search(after.node.value[:_NEAR]))
    )


def _together(before: Item, item: Item) -> bool:
    if before.block_index != item.block_index:
        return False
    if (
        isinstance(before.node, Guard)
        or (before.arms and before.arms == item.arms)
        or (before.over is not None and before.over == item.over)
    ):
        return True
    return before.own == item.own and before.append == item.append


def _region(item: Item, index: int, history: int | None, last_block: int) -> int:
    if item.kind is BlockKind.TOOLS:
        return _TOOLS
    block = item.block
    role = block.role if block is not None else None
    if item.append:
        return _HISTORY
    if role in {"system", "developer"}:
        return _SYSTEM
    if history is not None:
        return _NEWEST if index > history else _HEAD
    # Without a history everything that is not system text is one message, or messages before the last one.
    return _NEWEST if item.block_index == last_block or role in {None, "user"} else _HEAD


def _sorted(parts: Sequence[_Part], shared: dict[str, int]) -> list[_Part]:
    regions: list[list[_Part]] = [[] for _ in range(5)]
    for part in parts:
        regions[_NEWEST if part.leaves else part.region].append(part)
    for number, region in enumerate(regions):
        if any(part.pinned for part in region):
            continue
        region.sort(key=lambda part: part.rank)
        if number == _NEWEST:
            # What came from elsewhere stands ahead of the question: examples and context before what is asked.
            region.sort(key=lambda part: (part.rank, part.items[0].kind is BlockKind.QUESTION))
        regions[number] = _common(region, shared)
    placed = [part for number in _region_order(parts) for part in regions[number]]
    if parts and _is_cue(parts[-1]):
        placed.remove(parts[-1])
        placed.append(parts[-1])
    return placed


def _region_order(parts: Sequence[_Part]) -> list[int]:
    """Where the tools stand is not the prompt's to decide but the provider's or the chat template's: they stay behind what is rendered ahead of them."""
    seen = list(dict.fromkeys(part.region for part in parts))
    order = [region for region in range(5) if region != _TOOLS]
    ahead = seen[: seen.index(_TOOLS)] if _TOOLS in seen else []
    order.insert(max((order.index(region) + 1 for region in ahead), default=0), _TOOLS)
    return order


def _is_cue(part: _Part) -> bool:
    """A few last words that ask for the continuation ("Answer:", "New summary:"): they have to stay last."""
    text = "".join(item.node.value for item in part.items if isinstance(item.node, Text)).strip()
    return all(item.is_text for item in part.items) and len(text.split()) <= _CUE_WORDS and text.endswith(":")


def _common(region: list[_Part], shared: dict[str, int]) -> list[_Part]:
    """Put fixed texts that other call sites share into their common order, on the places that they hold together."""
    places = [
        index
        for index, part in enumerate(region)
        if part.own is Volatility.STATIC and not part.pinned and _rank_of(part, shared) is not None
    ]
    ordered = sorted((region[index] for index in places), key=lambda part: _rank_of(part, shared) or 0)
    result = list(region)
    for place, part in zip(places, ordered, strict=True):
        result[place] = part
    return result


def _rank_of(part: _Part, shared: dict[str, int]) -> int | None:
    return next(
        (shared[item.node.value] for item in part.items if isinstance(item.node, Text) and item.node.value in shared),
        None,
    )


def _label(part: _Part) -> str:
    for item in part.items:
        if isinstance(item.node, Hole):
            return f"{item.kind.value}:{{{' '.join(item.node.expression.split())[:40]}}}"
    block = part.items[0].block
    name = block.name if block is not None else ""
    return f"{part.items[0].kind.value}:{name}" if name else part.items[0].kind.value


def _labels(parts: Sequence[_Part]) -> tuple[str, ...]:
    labels: list[str] = []
    for part in parts:
        label = _label(part)
        if not labels or labels[-1] != label:
            labels.append(label)
    return tuple(labels)


def _moves(before: Sequence[_Part], after: Sequence[_Part]) -> tuple[str, ...]:
    """In words, each part that stands behind longer-lived text afterwards and did not before."""
    found = []
    for part in after:
        if part.own < Volatility.TENANT and not part.append:
            continue
        was, now = _stable_behind(before, part), _stable_behind(after, part)
        if was <= now:
            continue
        item = next((item for item in part.items if isinstance(item.node, Hole | Guard)), part.items[0])
        where = (
            "into the newest user message"
            if part.region < _HISTORY and part.own >= Volatility.TURN
            else "behind the text that lives longer"
        )
        found.append(
            f"{_label(part)} ({item.span.path}:{item.span.line}, changes per {part.own.word}) {where}: {was:,} longer-lived tokens no longer stand behind it"
        )
    return tuple(found)


def _stable_behind(parts: Sequence[_Part], part: _Part) -> int:
    place = parts.index(part)
    return sum(other.tokens for other in parts[place + 1 :] if other.rank < part.rank)


def _diff(before: Sequence[_Part], after: Sequence[_Part]) -> str:
    lines = difflib.unified_diff(
        [_line(part) for part in before], [_line(part) for part in after], "now", "recommended", lineterm="", n=1
    )
    return "\n".join(lines)


def _line(part: _Part) -> str:
    pieces = []
    for item in part.items:
        node = item.node
        if isinstance(node, Text):
            text = " ".join(node.value.split())
            pieces.append(text if len(text) <= _SNIPPET else text[:_SNIPPET] + "…")
        elif isinstance(node, Hole):
            pieces.append("{" + " ".join(node.expression.split()) + "}")
        elif isinstance(node, Media):
            pieces.append("<media>")
    role = (
        part.items[0].block.role
        if part.items[0].block is not None and part.items[0].block.role
        else part.items[0].kind.value
    )
    return f"[{role}] {' '.join(filter(None, pieces))} ({part.tokens:,} tokens, {part.own.word})"


def _money(rendered: Rendered, saved: float) -> float | None:
    """Dollars that 1,000 requests save when `saved` tokens a request are read instead of computed; None without a listed price."""
    terms = rendered.terms
    if terms is None or terms.read is None or terms.input_price is None:
        return None
    return saved * (1 - terms.read) * terms.input_price / 1e6 * 1000
