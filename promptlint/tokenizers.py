"""Text to token ids, offline. Encodings are loaded on first use: that costs 0.5 to 1 s, so never for `--help`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Protocol

from promptlint.errors import UserError

__all__ = ["DEFAULT", "EMBEDDED", "Tokenizer", "get"]

DEFAULT = "o200k_base"
EMBEDDED = ("cl100k_base", "o200k_base", "o200k_harmony", "llama3", "llama4", "qwen3")


class Tokenizer(Protocol):
    """`encode` never interprets special tokens that user text spells; `count` is the length of `encode`."""

    @property
    def name(self) -> str: ...

    def encode(self, text: str) -> Sequence[int]: ...

    def count(self, text: str) -> int: ...


class _Quicktok:
    """One of the encodings that quicktok-v1 carries (checked against 0.4.0)."""

    def __init__(self, name: str) -> None:
        import quicktok

        self.name = name
        self._encoding = quicktok.get_encoding(name)

    def encode(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self._encoding.encode_ordinary(text)
        return ids

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))


@cache
def get(name: str = DEFAULT) -> Tokenizer:
    """The tokenizer of that name. Raises UserError when there is none."""
    if name not in EMBEDDED:
        raise UserError(f"unknown tokenizer {name!r}; embedded: {', '.join(EMBEDDED)}")
    return _Quicktok(name)
