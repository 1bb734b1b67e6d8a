"""Which parts of two call sites are the same block: those that come from one constant, function or file, or spell equal text.

All of these give equal fixed text at the same place of the source, so a unit is a run of fixed text, known by its words.
"""

from __future__ import annotations

from dataclasses import dataclass

from promptlint.analysis.render import Item, Rendered
from promptlint.ir import Text, Volatility
from promptlint.source import Span

__all__ = ["Unit", "common_prefix_tokens", "units"]

MIN_UNIT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Unit:
    """A run of fixed text in a rendered prompt. `key` is equal for the same block; `placed` is the statement that puts it there."""

    key: str
    text: str
    tokens: int
    span: Span
    placed: Span
    name: str
    index: int


def units(rendered: Rendered) -> tuple[Unit, ...]:
    """The fixed texts of at least 16 tokens, in rendered order, each once."""
    found: dict[str, Unit] = {}
    for item in rendered.main():
        node = item.node
        if (
            not isinstance(node, Text)
            or item.tokens < MIN_UNIT_TOKENS
            or item.own is not Volatility.STATIC
            or item.over
        ):
            continue
        key = node.value.strip()
        placed = item.block.placed or item.block.span if item.block else node.span
        name = item.block.name if item.block else ""
        found.setdefault(key, Unit(key, node.value, item.tokens, node.span, placed, name, item.index))
    return tuple(found.values())


def common_prefix_tokens(one: Rendered, other: Rendered) -> int:
    """Tokens of the leading parts that two prompts spell alike. The text at which they part counts up to the first difference in characters, by
    share: exact tokens need a joint encoding, which no decision rests on.
    """
    tokens = 0.0
    for left, right in zip(one.main(), other.main(), strict=False):
        if _spelled(left) == _spelled(right):
            tokens += left.tokens
            continue
        if isinstance(left.node, Text) and isinstance(right.node, Text) and left.node.value:
            tokens += left.tokens * _common(left.node.value, right.node.value) / len(left.node.value)
        break
    return round(tokens)


def _spelled(item: Item) -> object:
    node = item.node
    if isinstance(node, Text):
        return node.value
    return (type(node).__name__, getattr(node, "expression", ""))


def _common(left: str, right: str) -> int:
    size = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        size += 1
    return size
