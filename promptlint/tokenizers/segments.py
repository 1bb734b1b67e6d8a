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
import zlib
from array import array
from collections.abc import Iterable
from itertools import groupby
from operator import is_

from promptlint.tokenizers import EMBEDDED, ID_BYTES, ID_TYPE, Tokenizer

__all__ = ["Mark", "Run", "SegmentTokenizer", "Special", "pieces"]


_ABOVE = 1 << 30
_CUT = re.compile(r"\n(?=[A-Za-z])|[A-Za-z](?= [A-Za-z])")
_PIECE = 4096
"""Characters after which a cut is looked for: long enough that a call costs little beside its work, short enough to share."""


class Special(str):
    """A special token, by its text. Plain text that spells one is never taken for it."""

    __slots__ = ()


class Mark(str):
    """No text at all: the end of what a provider was told to cache. The string is the lifetime that was asked for, or empty."""

    __slots__ = ()


Run = str
"""A stretch of rendered text that is tokenised on its own, a `Special`, or a `Mark`."""


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
    """A tokenizer that remembers what it meets again, as packed ids: four bytes each, in the machine's order.

    A long text that is met for the first time is tokenised in one go, and only a hash of each of its pieces is kept; a piece is remembered from its second time on,
    and so is a whole text. So memory follows the content that repeats, and text without repetition costs little more than its tokens.
    The ids of a list of runs equal the concatenation of the ids of each run tokenised whole (a property test says so).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._cuts = tokenizer.name in EMBEDDED
        self._known: dict[str, bytes] = {}
        self._specials: dict[str, bytes] = {}
        self._met: set[int] = set()
        self._head: list[Run] = []
        self._head_ids = b""

    def text(self, text: str) -> bytes:
        """Packed ids of one run of text."""
        known = self._known.get(text)
        if known is not None:
            return known
        if len(text) <= _PIECE or not self._cuts:
            known = self._known[text] = self.tokenizer.packed([text])[0]
            return known
        met = self._met
        mark = hash(text)
        again = mark in met
        met.add(mark)
        parts = pieces(text)
        marks = set(map(hash, parts))
        found = self.tokenizer.packed([text])[0] if met.isdisjoint(marks) else self._long(parts)
        met |= marks
        if again:
            self._known[text] = found
        return found

    def _long(self, parts: list[str]) -> bytes:
        """The ids of pieces of which some were met before: those are remembered, the stretches between them tokenised whole."""
        known, met = self._known, self._met
        missing = [part for part in parts if part not in known and hash(part) in met]
        known.update(zip(missing, self.tokenizer.packed(missing), strict=True))
        found: list[bytes] = []
        for is_known, group in groupby(parts, known.__contains__):
            stretch = list(group)
            found += [known[part] for part in stretch] if is_known else self.tokenizer.packed(["".join(stretch)])
        return b"".join(found)

    def special(self, text: str) -> bytes:
        """The packed id of a special token; one that the vocabulary lacks gets an id of its own, above every vocabulary."""
        known = self._specials.get(text)
        if known is None:
            found = self.tokenizer.special(text)
            if found is None:
                found = _ABOVE + zlib.crc32(text.encode("utf-8", "surrogatepass")) % _ABOVE
            known = self._specials[text] = array(ID_TYPE, [found]).tobytes()
        return known

    def packed(self, runs: Iterable[Run]) -> bytes:
        """Packed ids of the runs, one after the other. Runs that begin with the very objects of the call before continue its ids."""
        runs = list(runs)
        known = self._known
        parts = []
        head = self._head
        at = len(head) if len(head) <= len(runs) and all(map(is_, head, runs)) else 0
        if at:
            parts.append(self._head_ids)
        last = len(runs) - 1
        for index in range(at, len(runs)):
            if (
                index == last and index > at
            ):  # the next call shares what is before the last run: here the generation prompt stands
                self._head, self._head_ids = runs[:-1], b"".join(parts)
                parts = [self._head_ids]
            run = runs[index]
            part = known.get(run) if type(run) is str else None
            parts.append(self._run(run) if part is None else part)
        return b"".join(parts)

    def _run(self, run: Run) -> bytes:
        if type(run) is str:
            return self.text(run)
        return self.special(run) if isinstance(run, Special) else b""

    def marks(self, runs: Iterable[Run]) -> list[tuple[int, str]]:
        """Position in tokens and lifetime of each `Mark`, in order."""
        found = []
        at = 0
        for run in runs:
            if isinstance(run, Mark):
                found.append((at, str(run)))
            else:
                at += len(self._run(run)) // ID_BYTES
        return found

    def ids(self, runs: Iterable[Run]) -> list[int]:
        """Ids of the runs, one after the other."""
        found = array(ID_TYPE)
        found.frombytes(self.packed(runs))
        return found.tolist()

    def count(self, runs: Iterable[Run]) -> int:
        """Number of ids of the runs."""
        return len(self.packed(runs)) // ID_BYTES
