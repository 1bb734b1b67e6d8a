"""A prompt as one line of coloured cells, for `show` at a terminal: what the HTML report draws, in text.

One line of background colours needs no layout library: `rich` would add three packages to every installation for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from promptlint.ir import Volatility
from promptlint.report.model import BlockItem, CallSiteItem
from promptlint.report.words import tokens

__all__ = ["LEVELS", "bar", "legend"]

LEVELS = tuple(level.word for level in Volatility)
"""The scale of volatility, longest-lived first."""

# Background and letters from the 256 colours of xterm: cold for what lives long, warm for what is new in every request.
_COLORS = {
    "static": (24, 231), "process": (30, 231), "day": (36, 16), "tenant": (71, 16), "document": (143, 16),
    "user": (178, 16), "session": (172, 16), "turn": (166, 231), "request": (124, 231),
}  # fmt: skip


def _cell(text: str, level: str) -> str:
    back, letters = _COLORS.get(level, (240, 231))
    return f"\x1b[48;5;{back};38;5;{letters}m{text}\x1b[0m"


def legend() -> str:
    """The colours by their names, in one line."""
    return " ".join(_cell(f" {level} ", level) for level in LEVELS)


def bar(site: CallSiteItem, width: int) -> list[str]:
    """The prompt of a call site in `width` columns, and below it where its cacheable prefix ends; empty where nothing was measured."""
    blocks = [block for block in site.blocks if block.tokens]
    whole = sum(block.tokens for block in blocks)
    if not whole or width < 8:
        return []
    ends = _ends(blocks, width)
    cells = [
        _cell((block.kind if len(block.kind) <= end - begin else "").ljust(end - begin), block.volatility)
        for block, (begin, end) in zip(blocks, pairwise([0, *ends]), strict=True)
        if end > begin
    ]
    at = min(width - 1, round(width * min(site.cacheable_prefix_tokens, whole) / whole))
    words = f"prefix ends after {tokens(site.cacheable_prefix_tokens)}"
    mark = f"{' ' * at}^"
    if at + len(words) + 2 <= width:
        mark += f" {words}"
    elif len(words) + 1 <= at:
        mark = f"{words} ^".rjust(at + 1)
    return ["".join(cells), mark]


def _ends(blocks: Sequence[BlockItem], width: int) -> list[int]:
    """The column at which each block ends. Blocks that would vanish get a column while there are enough of them."""
    least = 1 if len(blocks) <= width else 0
    spare = width - least * len(blocks)
    whole = sum(block.tokens for block in blocks)
    found = []
    passed = 0
    for number, block in enumerate(blocks, 1):
        passed += block.tokens
        found.append(least * number + round(spare * passed / whole))
    return found
