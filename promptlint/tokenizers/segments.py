"""Tokenising prompts that repeat: each piece of text once, with the ids that the whole text would have.

A byte-level BPE splits text by a regular expression before it merges, so its ids never cross the places where that expression is
certain to split, whatever stands around them. We cut only there:

- between a letter and a space that is followed by a letter;
- between a line feed and a letter.

Both hold for the patterns of cl100k, o200k, Llama 3, Llama 4 and Qwen: a run of letters takes at most one leading character that is no
line end, so a word begins at its space (or, behind a line feed, at its first letter), and none of the patterns looks back. The letters are
ASCII ones, so that no combining mark can follow. For other tokenizers nothing is known, and texts are never cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from promptlint.tokenizers import EMBEDDED, Tokenizer

__all__ = ["Run", "SegmentTokenizer", "Special", "pieces"]

_CUT = re.compile(r"\n(?=[A-Za-z])|[A-Za-z](?= [A-Za-z])")
_PIECE = 1024
"""Characters after which a cut is looked for: long enough that a call costs little beside its work, short enough to share."""


class Special(str):
    """A special token, by its text. Plain text that spells one is never taken for it."""

    __slots__ = ()


Run = str
"""A stretch of rendered text that is tokenised on its own, or a `Special`."""


def pieces(text: str, size: int = _PIECE) -> list[str]:
    """The text cut at places where every embedded tokenizer splits too, in pieces of about `size` characters."""
    found = []
    start = 0
    while len(text) - start > size:
        match = _CUT.search(text, start + size)
        if match is None:
            break
        found.append(text[start : match.end()])
        start = match.end()
    found.append(text[start:])
    return found


class SegmentTokenizer:
    """A tokenizer that remembers the pieces it has seen. Memory follows the distinct content.

    `ids` of a list of runs equals the concatenation of the ids of each run tokenised whole (a property test says so).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._cuts = tokenizer.name in EMBEDDED
        self._known: dict[str, list[int]] = {}
        self._specials: dict[str, list[int]] = {}

    def text(self, text: str) -> list[int]:
        """Ids of one run of text. The list is shared: do not change it."""
        known = self._known.get(text)
        if known is not None:
            return known
        if len(text) <= 2 * _PIECE or not self._cuts:
            known = self._known[text] = list(self.tokenizer.encode(text))
            return known
        ids: list[int] = []
        for piece in pieces(text):
            part = self._known.get(piece)
            if part is None:
                part = self._known[piece] = list(self.tokenizer.encode(piece))
            ids += part
        return ids

    def special(self, text: str) -> list[int]:
        """The id of a special token; one that the vocabulary lacks is spelled as text, as an engine would."""
        known = self._specials.get(text)
        if known is None:
            found = self.tokenizer.special(text)
            known = self._specials[text] = [found] if found is not None else list(self.tokenizer.encode(text))
        return known

    def ids(self, runs: Iterable[Run]) -> list[int]:
        """Ids of the runs, one after the other."""
        ids: list[int] = []
        for run in runs:
            ids += self.special(run) if isinstance(run, Special) else self.text(run)
        return ids

    def count(self, runs: Sequence[Run]) -> int:
        """Number of ids of the runs."""
        return len(self.ids(runs))
