"""Where a value that stands too early is reported: the contract's rule for the primary location.

It is the innermost literal, template or concatenation in which at least 16 tokens of longer-lived text follow the value inside that same
construct. The IR has no constructs, only spans; but a literal is spelled in one stretch, so a slot's following text belongs to the
same literal when its span goes on where the slot ends. Text from elsewhere (a constant that fills another slot) counts when the
literal is resumed behind it.
"""

from __future__ import annotations

from promptlint.analysis.render import Item, Rendered
from promptlint.ir import Block, Choice, Hole, Segment, Text, Volatility, text_of
from promptlint.source import Span

__all__ = ["MIN_TOKENS_INSIDE", "expression_at", "primary_location"]

MIN_TOKENS_INSIDE = 16
_CALLS = ("passed to ", "returned by ")  # steps that only hand the value on: no text is put together there
_MAX_GAP_LINES = 3  # between two pieces of one Python literal: quotes, a line break, a comment


def primary_location(rendered: Rendered, item: Item, volatility: Volatility) -> Span:
    """The value itself, or the slot on its way to the sink behind which the longer-lived text is spelled."""
    places = [item.span]
    if isinstance(item.node, Hole):
        message = item.block.placed if item.block else None
        places.extend(
            step.span
            for step in item.node.steps
            if step.span not in places and step.span != message and not step.note.startswith(_CALLS)
        )
    after = [other for other in rendered.after(item) if other.block_index == item.block_index]
    worth = [other.tokens if other.is_text and other.own_seen_from(item) < volatility else 0 for other in after]
    for place, tokens in zip(places, _inside(places, after, worth), strict=True):
        if tokens >= MIN_TOKENS_INSIDE:
            return place
    before = list(rendered.before(item))
    for place in places:
        if _touches(place, before, after):
            return place
    # A value that is a whole message has no text beside it: the element of the list is what would have to move.
    element = item.block.placed if item.block and _is_whole(item.block) else None
    in_code = places[0].path.endswith((".py", ".pyi"))
    return element if element is not None and in_code else places[0]


def expression_at(hole: Hole, place: Span) -> str:
    """What is written at a place of a value's way: the slot that takes it up there, or the value's own spelling."""
    return next((step.expression for step in hole.steps if step.expression and step.span == place), hole.expression)


def _is_whole(block: Block) -> bool:
    """Whether a block is one value: no words beside it, and no other value."""
    return _values(block.segments) < 2 and not any(_is_words(text) for text in text_of(block.segments))


def _values(segments: tuple[Segment, ...]) -> int:
    """How many values stand side by side."""
    return sum(
        max(map(_values, segment.arms)) if isinstance(segment, Choice) else not isinstance(segment, Text)
        for segment in segments
    )


def _is_words(text: Text) -> bool:
    return any(map(str.isalnum, text.value))


def _inside(places: list[Span], after: list[Item], worth: list[int]) -> list[int]:
    """For each place, the longer-lived tokens (`worth`, one for each of `after`) that follow inside the construct that spells it.

    A following part belongs to the place whose construct it goes on with; a part from elsewhere (a constant) to the construct that goes on
    behind it, or to the last one that went on.
    """
    ends = [(place.path, place.end_line, place.end_column) for place in places]
    tokens = [0] * len(places)
    elsewhere = 0
    last: int | None = None
    for item, value in zip(after, worth, strict=True):
        near = [(gap, index) for index, end in enumerate(ends) if (gap := _gap(end, item.span)) is not None]
        if not near:
            elsewhere += value
            continue
        last = min(near)[1]
        tokens[last] += elsewhere + value
        elsewhere = 0
        ends[last] = (item.span.path, item.span.end_line, item.span.end_column)
    if last is not None:
        tokens[last] += elsewhere
    return tokens


def _gap(end: tuple[str, int, int], span: Span) -> tuple[int, int] | None:
    """How far behind an end a part begins, in lines and columns; None when it does not go on there."""
    path, line, column = end
    if span.path != path or (span.line, span.column) < (line, column):
        return None
    lines = span.line - line
    # A template file is one construct from end to end; in Python another literal may stand further down.
    if path.endswith((".py", ".pyi")) and lines > _MAX_GAP_LINES:
        return None
    return lines, span.column if lines else span.column - column


def _touches(place: Span, before: list[Item], after: list[Item]) -> bool:
    """Whether fixed text is spelled directly beside the place: then it stands in a literal."""
    for item in (*before[-1:], *after[:1]):
        span = item.span
        beside = span.end_line == place.line or span.line == place.end_line
        if isinstance(item.node, Text) and span.path == place.path and beside:
            return True
    return False
