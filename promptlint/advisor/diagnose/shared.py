"""What a request has in common with an earlier one that begins like it, block by block: what a provider with markers could have stored of it.

Tokens are estimated by characters, at the rate of the whole prompt.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from promptlint.tokenizers.render import compact

__all__ = ["Blocks", "Relatives", "Shared", "plain"]

_BEGIN = 256  # characters by which requests find their relatives


def plain(value: Any) -> Any:
    """A structure without its cache markers."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items() if key not in _MARKERS}
    return [plain(item) for item in value] if isinstance(value, list) else value


_MARKERS = frozenset({"cache_control", "prompt_cache_breakpoint"})


@dataclass(frozen=True, slots=True)
class Blocks:
    """The content blocks of a request as text, in rendered order, its prompt tokens, and how many blocks stand in front of each of its markers."""

    texts: tuple[str, ...]
    tokens: int
    marks: tuple[int, ...] = ()

    @classmethod
    def of(cls, blocks: Sequence[Any], tokens: int, marks: Sequence[int] = ()) -> Blocks:
        """The blocks of a body: text as it is, everything else as compact JSON without markers."""
        return cls(tuple(_text(block) for block in blocks), tokens, tuple(marks))

    def tokens_of(self, characters: int) -> int:
        """Estimated tokens of so many characters of the prompt."""
        return round(self.tokens * characters / max(1, sum(map(len, self.texts))))

    def tokens_up_to(self, blocks: int) -> int:
        """Estimated tokens of the first blocks."""
        return self.tokens_of(sum(map(len, self.texts[:blocks])))


def _text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and isinstance(block.get("text"), str):
        return str(block["text"])
    return compact(plain(block))


@dataclass(frozen=True, slots=True)
class Shared:
    """With the relative: estimated tokens of whole blocks and of all common text, and whether a marker of the relative stands within the whole blocks."""

    whole_tokens: int
    tokens: int
    stored: bool


class Relatives:
    """The latest request of each model and beginning."""

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], Blocks] = {}

    def shared(self, model: str, blocks: Blocks) -> Shared | None:
        """What a request shares with the latest one that begins like it, which it then is itself; None for the first."""
        key = model, "\0".join(blocks.texts)[:_BEGIN]
        before, self._latest[key] = self._latest.get(key), blocks
        if before is None:
            return None
        whole = 0
        for one, other in zip(blocks.texts, before.texts, strict=False):
            if one != other:
                break
            whole += 1
        rest = [each.texts[whole] if whole < len(each.texts) else "" for each in (blocks, before)]
        common = len(os.path.commonprefix(rest))  # noqa: RUF071 (of characters is what we want)
        characters = sum(map(len, blocks.texts[:whole]))
        stored = any(mark <= whole for mark in before.marks)
        return Shared(blocks.tokens_of(characters), blocks.tokens_of(characters + common), stored)
