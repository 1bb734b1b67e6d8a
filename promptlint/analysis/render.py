"""From the prompt tree to one list in rendered order, each part with its tokens and with the volatility that governs it.

Branches and loops stay visible on the items: each knows the arms that it stands in and the loop that repeats it. Totals count the
longest arm of every choice, because that is the prompt whose prefix is worth most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from promptlint.analysis.assumptions import Assumptions, count_tokens
from promptlint.analysis.layout import laid_out, layout_of
from promptlint.catalog.providers import Terms, page_for, pick, resolve
from promptlint.ir import (
    Block,
    BlockChoice,
    BlockKind,
    BlockNode,
    BlockRepeat,
    Choice,
    Confidence,
    Growth,
    Guard,
    Hole,
    Media,
    Prompt,
    Repeat,
    Segment,
    Text,
    Volatility,
    blocks_of,
    holes_of,
)
from promptlint.source import Span

__all__ = ["Item", "Rendered", "render"]

MEDIA_TOKENS = 800
"""Expected size of an image whose provider formula is unknown: a 1024 x 1024 picture is 765 tokens by OpenAI's tile formula (2026-11)."""

_REPLIES = frozenset({"assistant", "tool"})

_Arms = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One part of the rendered prompt.

    `own` is how long the part itself stays the same: static for text, the guard's volatility for text that may be absent, session for an
    append-only history, whose old part is sent again unchanged. `governing` is the highest volatility at or before it: what must be equal for the
    part to be reused. `tokens` are expected tokens; 0 for guards and for the list of a loop whose body is shown. `arms` are the
    (choice, arm) pairs that it stands in. `append`: an append-only history. `over`: the loop's list, for parts of a loop's body.
    `choice`: for a guard, the number of the choice that it decides. `alone`: `own` without the guards of the arms. `messages`: it stands in a
    loop that gives whole messages, or is the list of one.
    """

    index: int
    node: Text | Hole | Media | Guard
    block: Block | None
    block_index: int
    kind: BlockKind
    tokens: int
    own: Volatility
    governing: Volatility
    arms: _Arms = ()
    append: bool = False
    over: Hole | None = None
    guards: tuple[Guard, ...] = ()
    choice: int = -1
    alone: Volatility = Volatility.STATIC
    messages: bool = False

    def own_seen_from(self, item: Item) -> Volatility:
        """How long the part stays the same for requests in which `item` is there too: a condition that both stand under has been met."""
        if not self.arms or not item.arms:
            return self.own
        met = {choice for choice, _ in item.arms}
        floors = (
            guard.volatility for (choice, _), guard in zip(self.arms, self.guards, strict=True) if choice not in met
        )
        return max(self.alone, *floors, self.alone)

    @property
    def span(self) -> Span:
        """Where the part is written."""
        return self.node.span

    @property
    def is_text(self) -> bool:
        """Whether it is fixed text."""
        return isinstance(self.node, Text)

    @property
    def is_reply(self) -> bool:
        """Whether it stands in a message that a model or a tool wrote."""
        return self.block is not None and self.block.role in _REPLIES

    @property
    def is_answer(self) -> bool:
        """Whether it is what a model or a tool said in this very conversation, not an example of it."""
        return self.is_reply and isinstance(self.node, Hole) and self.own >= Volatility.TURN

    @property
    def is_conversation(self) -> bool:
        """Whether it is an append-only history of messages, not one that is printed in the middle of a text."""
        if not self.append or self.messages:
            return self.append
        return self.block is None or not any(isinstance(each, Text) for each in self.block.segments)

    @property
    def confidence(self) -> Confidence:
        """How sure we are that the part changes; text and media are certain."""
        return self.node.confidence if isinstance(self.node, Hole | Guard) else Confidence.HIGH


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt in rendered order. `longest` holds the arm of each choice that totals count, `terms` the provider's cache terms where the
    model is known.
    """

    prompt: Prompt
    id: str
    items: tuple[Item, ...]
    longest: dict[int, int] = field(hash=False)
    encoding: str
    assumptions: Assumptions
    terms: Terms | None = None
    memo: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    def counted(self, item: Item) -> bool:
        """Whether the item is part of the totals: every arm that it stands in is the longest one."""
        return all(self.longest[choice] == arm for choice, arm in item.arms)

    def main(self) -> tuple[Item, ...]:
        """The items of the totals."""
        if "main" not in self.memo:
            self.memo["main"] = tuple(item for item in self.items if self.counted(item)) if self.longest else self.items
        found: tuple[Item, ...] = self.memo["main"]
        return found

    def seen_from(self, item: Item, others: Sequence[Item]) -> Iterable[Item]:
        """Those of `others` that are rendered together with `item`: in its own arms, and in the longest arm of every other choice."""
        if not self.longest:
            return others
        arms = {**self.longest, **dict(item.arms)}
        return [other for other in others if not other.arms or all(arms[choice] == arm for choice, arm in other.arms)]

    def stands_in(self, other: Item, item: Item) -> bool:
        """Whether `other` is rendered where in another case a bare value is: a default, a symbol in place of one. Decided choices of `item` aside."""
        if not other.arms:
            return False
        if "replaced" not in self.memo:
            words: set[tuple[int, int]] = set()
            values: set[tuple[int, int]] = set()
            for each in self.items:
                if each.arms and isinstance(each.node, Hole):
                    values.update(each.arms)
                elif each.arms and isinstance(each.node, Text) and any(map(str.isalnum, each.node.value)):
                    words.update(each.arms)
            self.memo["replaced"] = {choice for choice, _ in values - words}
        replaced: set[int] = self.memo["replaced"]
        met = {choice for choice, _ in item.arms}
        return any(choice in replaced and choice not in met for choice, _ in other.arms)

    def grows_before(self, item: Item) -> bool:
        """Whether an append-only history stands ahead of the item, in whatever arm."""
        if "history" not in self.memo:
            self.memo["history"] = next((each.index for each in self.items if each.append), len(self.items))
        first: int = self.memo["history"]
        return first < item.index

    def talks_before(self, item: Item) -> bool:
        """Whether messages of a conversation, or an answer of the model, stand ahead of the item's own: nothing in a later message can move ahead of them."""
        if "talk" not in self.memo:
            spoken = (each.index for each in self.items if each.is_conversation or each.is_answer)
            self.memo["talk"] = next(spoken, len(self.items))
        first: int = self.memo["talk"]
        return first < item.index

    def after(self, item: Item) -> Iterable[Item]:
        """What is rendered behind an item."""
        return self.seen_from(item, self.items[item.index + 1 :])

    def before(self, item: Item) -> Iterable[Item]:
        """What is rendered ahead of an item."""
        return self.seen_from(item, self.items[: item.index])

    @property
    def prompt_tokens(self) -> int:
        """Expected tokens of the whole prompt."""
        return sum(item.tokens for item in self.main())

    def prefix(self) -> tuple[Item, ...]:
        """The leading items that every request of a process shares: they end before the first one above `process`."""
        shared: list[Item] = []
        for item in self.main():
            if item.governing > Volatility.PROCESS or item.append:
                break
            shared.append(item)
        return tuple(shared)

    @property
    def cacheable_prefix_tokens(self) -> int:
        """Tokens ahead of the first part above `process`."""
        return sum(item.tokens for item in self.prefix())


def render(prompt: Prompt, assumptions: Assumptions, site_id: str = "") -> Rendered:
    """The prompt in the order in which the provider renders its blocks; written order where that is not known."""
    encoding = assumptions.encoding(prompt.model)
    terms = terms_of(prompt, assumptions.extra_rules)
    order = prompt.render_order
    if not order and terms is not None and "tools" in terms.render_order:
        order = (BlockKind.TOOLS,)  # system messages keep their place in the list
    blocks = _ordered(prompt.blocks, order)
    walker = _Walker(assumptions, encoding)
    if (layout := layout_of(prompt, assumptions, terms)) is None:
        walker.blocks(blocks, Volatility.STATIC)
    else:
        head, late, newest = laid_out(blocks, layout)
        before = walker.blocks(head, Volatility.STATIC)
        moving = _Context(floor=Volatility.TURN, over_floor=Volatility.TURN)
        walker.blocks(newest, walker.blocks(late, before, moving))
    return Rendered(prompt, site_id or prompt.id, tuple(walker.items), walker.longest, encoding, assumptions, terms)


def terms_of(prompt: Prompt, extra_rules: tuple[Path, ...] = ()) -> Terms | None:
    """The cache terms of the call site's provider. None unless the model is one of that provider's: an OpenAI client often talks to another server.

    LiteLLM's model names the provider ("anthropic/claude-..."); elsewhere such a prefix is a repository of weights. A marker for the whole request stands at the end of its last block.
    """
    if not prompt.model:
        return None
    provider = prompt.provider
    if not provider and "/" in prompt.model and prompt.sink.startswith("litellm"):
        provider = prompt.model.split("/", 1)[0]
    page = page_for(provider, prompt.model, extra_rules) if provider else None
    named = provider is not None and page is not None and (provider in page.words or provider == page.name)
    if page is None or not named or (page.models and not pick(dict.fromkeys(page.models, True), prompt.model, False)):
        return None
    terms = resolve(page, prompt.model)
    whole = any(parameter.name == "cache_control" for parameter in prompt.parameters)
    return replace(terms, implicit="last-block") if whole and terms.explicit and not terms.implicit else terms


def _kind(node: BlockNode) -> BlockKind | None:
    while not isinstance(node, Block):
        inner = node.body if isinstance(node, BlockRepeat) else next((arm for arm in node.arms if arm), ())
        if not inner:
            return None
        node = inner[0]
    return node.kind


def _ordered(nodes: tuple[BlockNode, ...], order: tuple[BlockKind, ...]) -> tuple[BlockNode, ...]:
    """Blocks of the kinds in `order` first, in that order; all others keep their places behind them."""
    places = {kind: place for place, kind in enumerate(order)}
    return tuple(sorted(nodes, key=lambda node: places.get(_kind(node) or BlockKind.OTHER, len(order))))


@dataclass(slots=True)
class _Context:
    """Where the walker stands inside choices and loops."""

    arms: _Arms = ()
    guards: tuple[Guard, ...] = ()
    floor: Volatility = Volatility.STATIC  # volatility that every part inherits: of a guard, or of a loop's list
    over_floor: Volatility = Volatility.STATIC  # the part of `floor` that loops give
    over: Hole | None = None
    times: int = 1
    append: bool = False
    element_tokens: int = 0  # of all elements of the loop's list together, for each slot of the body that prints them
    messages: bool = False


class _Walker:
    """Collects items; each method takes the governing volatility in front of a part and returns the one behind it."""

    def __init__(self, assumptions: Assumptions, encoding: str) -> None:
        self.items: list[Item] = []
        self.longest: dict[int, int] = {}
        self.assumptions = assumptions
        self.encoding = encoding
        self.block: Block | None = None
        self.block_index = -1

    def add(
        self,
        node: Text | Hole | Media | Guard,
        tokens: int,
        own: Volatility,
        before: Volatility,
        context: _Context,
        *,
        append: bool = False,
        choice: int = -1,
    ) -> Volatility:
        alone = max(own, context.over_floor)
        own = max(alone, context.floor)
        governing = max(before, own)
        kind = self.block.kind if self.block else BlockKind.OTHER
        self.items.append(
            Item(
                len(self.items),
                node,
                self.block,
                self.block_index,
                kind,
                tokens,
                own,
                governing,
                context.arms,
                append,
                context.over,
                context.guards,
                choice,
                alone,
                context.messages,
            )
        )
        return governing

    def blocks(self, nodes: tuple[BlockNode, ...], before: Volatility, context: _Context | None = None) -> Volatility:
        context = context or _Context()
        for node in nodes:
            if isinstance(node, Block):
                self.block, self.block_index = node, self.block_index + 1
                if node.growth is not Growth.FIXED and context.over is None:
                    before = self.grown(node, before, context)
                else:
                    before = self.segments(node.segments, before, context)
                self.block = None
            elif isinstance(node, BlockChoice):
                before = self.choice(node.guard, node.arms, before, context)
            else:
                self.block, self.block_index = _first_block(node.body), self.block_index + 1
                slots = [hole for block in blocks_of(node.body) for hole in holes_of(block.segments)]
                before, inner = self.loop(node, slots, before, replace(context, messages=True))
                self.block = None
                before = max(before, self.blocks(node.body, before, inner))
        return before

    def grown(self, block: Block, before: Volatility, context: _Context) -> Volatility:
        """A block that grows as a whole, a history: its segments show its parts, the growth says how long they live."""
        if block.growth is not Growth.APPEND:
            return self.segments(block.segments, before, context)
        holes = [segment for segment in block.segments if isinstance(segment, Hole)]
        tokens = self.assumptions.profile.size_of_kind(BlockKind.HISTORY)
        volatility = max((hole.volatility for hole in holes), default=Volatility.TURN)
        name = block.name or "history"
        whole = holes[0] if holes else Hole(name, block.span, volatility, Confidence.MEDIUM, growth=Growth.APPEND)
        self.add(whole, tokens, Volatility.SESSION, before, context, append=True)
        return max(before, volatility, Volatility.TURN)

    def segments(self, segments: tuple[Segment, ...], before: Volatility, context: _Context) -> Volatility:
        run: list[Text] = []
        for segment in segments:
            if isinstance(segment, Text):
                run.append(segment)
                continue
            before = self.texts(run, before, context)
            run = []
            before = self.segment(segment, before, context)
        return self.texts(run, before, context)

    def texts(self, run: list[Text], before: Volatility, context: _Context) -> Volatility:
        """Neighbouring texts are encoded together: many short pieces, such as those of a tool list, would count too much one by one."""
        counts = [count_tokens(self.encoding, text.value) for text in run]
        whole = sum(counts)
        if len(run) > 1 and whole:
            joined = count_tokens(self.encoding, "".join(text.value for text in run))
            ends = [round(joined * end / whole) for end in accumulate(counts)]
            counts = [end - start for start, end in pairwise([0, *ends])]
        for text, count in zip(run, counts, strict=True):
            tokens = 0 if context.append else count * context.times
            before = self.add(text, tokens, Volatility.STATIC, before, context)
        return before

    def segment(self, segment: Segment, before: Volatility, context: _Context) -> Volatility:
        if isinstance(segment, Text):
            return self.texts([segment], before, context)
        if isinstance(segment, Media):
            tokens = 0 if context.append else (segment.tokens or MEDIA_TOKENS) * context.times
            return self.add(segment, tokens, segment.volatility, before, context)
        if isinstance(segment, Hole):
            return self.hole(segment, before, context)
        if isinstance(segment, Choice):
            return self.choice(segment.guard, segment.arms, before, context)
        slots = list(holes_of(segment.body))
        before, inner = self.loop(segment, slots, before, context)
        return max(before, self.segments(segment.body, before, inner))

    def hole(self, hole: Hole, before: Volatility, context: _Context) -> Volatility:
        if hole.growth is Growth.APPEND and not context.append:
            self.add(hole, self.assumptions.profile.size(hole), Volatility.SESSION, before, context, append=True)
            return max(before, hole.volatility, Volatility.TURN)
        if context.append:
            tokens = 0
        elif context.over is not None and _is_element(hole, context.over):
            tokens = context.element_tokens
        else:
            tokens = self.assumptions.profile.size(hole) * context.times
        return self.add(hole, tokens, hole.volatility, before, context)

    def choice(
        self,
        guard: Guard,
        arms: tuple[tuple[Segment, ...], ...] | tuple[tuple[BlockNode, ...], ...],
        before: Volatility,
        context: _Context,
    ) -> Volatility:
        """All arms one after the other; the longest one stands for the choice in totals."""
        number = len(self.longest)
        self.longest[number] = 0
        before = self.add(guard, 0, guard.volatility, before, context, choice=number)
        best = -1
        after = before
        for index, arm in enumerate(arms):
            start = len(self.items)
            inner = _Context(
                (*context.arms, (number, index)),
                (*context.guards, guard),
                max(context.floor, guard.volatility),
                context.over_floor,
                context.over,
                context.times,
                context.append,
                context.element_tokens,
                context.messages,
            )
            if arm and isinstance(arm[0], Block | BlockChoice | BlockRepeat):
                behind = self.blocks(arm, before, inner)  # type: ignore[arg-type]
            else:
                behind = self.segments(arm, before, inner)  # type: ignore[arg-type]
            after = max(after, behind)
            size = sum(item.tokens for item in self.items[start:])
            if size > best:
                best, self.longest[number] = size, index
        return after

    def loop(
        self, repeat: Repeat | BlockRepeat, slots: list[Hole], before: Volatility, context: _Context
    ) -> tuple[Volatility, _Context]:
        """The list of a loop, and the context of its body. A growing history counts as a whole at its list."""
        over, growth = repeat.over, repeat.growth
        # A list that is filled in a loop grows by appending too; only a conversation grows from request to request.
        history = over.kind is BlockKind.HISTORY or any(origin.kind == "history" for origin in over.origins)
        append = over.volatility > Volatility.PROCESS and (
            over.growth is Growth.APPEND or (history and growth is Growth.APPEND)
        )
        if append and not context.append:
            self.add(over, self.assumptions.profile.size(over), Volatility.SESSION, before, context, append=True)
            before = max(before, over.volatility, Volatility.TURN)
            return before, _Context(
                context.arms,
                context.guards,
                context.floor,
                context.over_floor,
                over,
                1,
                append=True,
                messages=context.messages,
            )
        size = self.assumptions.profile.size(over)
        elements = [slot for slot in slots if _is_element(slot, over)]
        tokens = 0 if repeat.body or context.append else size
        before = self.add(over, tokens, over.volatility, before, context)
        return before, _Context(
            context.arms,
            context.guards,
            max(context.floor, over.volatility),
            max(context.over_floor, over.volatility),
            over,
            context.times * self.assumptions.profile.repeats,
            context.append,
            size // len(elements) if elements else 0,
            context.messages,
        )


def _is_element(hole: Hole, over: Hole) -> bool:
    """Whether a slot of a loop's body prints the elements of the loop's list: it changes for the same reason."""
    return any(origin == other for origin in hole.origins for other in over.origins)


def _first_block(nodes: tuple[BlockNode, ...]) -> Block | None:
    for node in nodes:
        if isinstance(node, Block):
            return node
    return None
