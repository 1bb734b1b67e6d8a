"""Where a value that stands too early is reported: the contract's rule for the primary location.

It is the innermost literal, template or concatenation in which at least 16 tokens of longer-lived text follow the value inside that same
construct. The IR has no constructs, only spans; but a literal is spelled in one stretch, so a slot's following text belongs to the
same literal when its span goes on where the slot ends. Text from elsewhere (a constant that fills another slot) counts when the
literal is resumed behind it.
"""

from __future__ import annotations

from promptlint.analysis.render import Item, Rendered
from promptlint.ir import Hole, Text, Volatility
from promptlint.source import Span

__all__ = ["MIN_TOKENS_INSIDE", "primary_location"]

MIN_TOKENS_INSIDE = 16
_MAX_GAP_LINES = 3  # between two pieces of one Python literal: quotes, a line break, a comment


def primary_location(rendered: Rendered, item: Item, volatility: Volatility) -> Span:
    """The value itself, or the slot on its way to the sink behind which the longer-lived text is spelled."""
    places = [item.span]
    if isinstance(item.node, Hole):
        places.extend(step.span for step in item.node.steps if step.span not in places)
    if len(places) == 1:
        return places[0]
    after = list(rendered.after(item))
    for place in places:
        if _inside(place, after, volatility) >= MIN_TOKENS_INSIDE:
            return place
    before = list(rendered.before(item))
    for place in places:
        if _touches(place, before, after):
            return place
    return places[0]


def _inside(place: Span, after: list[Item], volatility: Volatility) -> int:
    """Longer-lived tokens that follow inside the construct that spells `place`."""
    end = (place.end_line, place.end_column)
    tokens = elsewhere = 0
    for item in after:
        span = item.span
        worth = item.tokens if item.own < volatility else 0
        if span.path == place.path and (span.line, span.column) >= end and _near(place.path, end[0], span.line):
            tokens += elsewhere + worth
            elsewhere = 0
            end = (span.end_line, span.end_column)
        else:
            elsewhere += worth
    return tokens


def _near(path: str, line: int, next_line: int) -> bool:
    # A template file is one construct from end to end; in Python another literal may stand further down.
    return not path.endswith((".py", ".pyi")) or next_line - line <= _MAX_GAP_LINES


def _touches(place: Span, before: list[Item], after: list[Item]) -> bool:
    """Whether fixed text is spelled directly beside the place: then it stands in a literal."""
    for item in (before[-1:] or []) + (after[:1] or []):
        span = item.span
        if not isinstance(item.node, Text) or span.path != place.path:
            continue
        if span.end_line == place.line or span.line == place.end_line:
            return True
    return False
