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
from itertools import chain, groupby, pairwise

from promptlint.tokenizers import EMBEDDED, ID_BYTES, ID_TYPE, Tokenizer

__all__ = ["Mark", "Run", "SegmentTokenizer", "Special", "pieces"]


_ABOVE = 1 << 30
_CUT = re.compile(r"\n(?=[A-Za-z])|[A-Za-z](?= [A-Za-z])")
_PIECE = 4096
"""Characters after which a cut is looked for: long enough that a call costs little beside its work, short enough to share."""
_ENDS = 64
"""Characters at either end by which a piece is known again."""
_FEW = 12
"""Packed runs that are joined anew for every prompt that continues them, before one copy of them all takes their place."""


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
    return [text[start:end] for start, end in pairwise(_cuts(text, size))]


def _cuts(text: str, size: int) -> list[int]:
    """Where the pieces of a text begin, and its end."""
    found = [0]
    start = 0
    while len(text) - start > size:
        match = _CUT.search(text, start + size)
        if match is None:
            break
        start = match.end()
        found.append(start)
    found.append(len(text))
    return found


def _mark(text: str, start: int, end: int) -> int:
    """What tells a piece from others before it is worth a copy: its length and both its ends. Pieces that it mistakes for one another are only cut in vain."""
    return hash((end - start, text[start : start + _ENDS], text[end - _ENDS : end]))


class SegmentTokenizer:
    """A tokenizer that remembers what it meets again, as packed ids: four bytes each, in the machine's order.

    A long text that is met for the first time is tokenised in one go, and only a hash of each of its pieces is kept; a piece is remembered from its second time on,
    and so is a whole text. So memory follows the content that repeats, and text without repetition costs little more than its tokens.
    The ids of a list of runs equal the concatenation of the ids of each run tokenised whole (a property test says so).

    `prepare` tokenises the texts of many requests at once: a tokenizer and an interpreter that take turns for every text push each other out of the processor's
    caches, and a batch can use all cores.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._cuts = tokenizer.name in EMBEDDED
        self._known: dict[str, bytes] = {}
        self._ready: dict[str, bytes] = {}  # long texts of the last `prepare`, known or not
        self._specials: dict[str, bytes] = {}
        self._met: set[int] = set()
        self._head: list[Run] = []
        self._head_upto = 0
        self._head_ids: list[bytes] = []  # of its first `_head_upto` runs

    def text(self, text: str) -> bytes:
        """Packed ids of one run of text."""
        found = self._known.get(text)
        if found is None:
            found = self._ready.get(text)
        if found is None:
            self.prepare((text,))
            found = self._known.get(text)
        return self._ready[text] if found is None else found

    def prepare(self, texts: Iterable[Run]) -> None:
        """Tokenise in one go what `text` will be asked for until the next call; runs that are no text are passed over."""
        known = self._known
        kept: dict[str, None] = {}  # what is remembered
        plans: dict[str, list[str]] = {}  # the parts of the long texts
        again: set[str] = set()
        for text in texts:
            if text in known or type(text) is not str:
                continue
            if len(text) <= _PIECE or not self._cuts:
                kept[text] = None
            elif text in plans:
                again.add(text)
            else:
                plans[text] = self._parts(text, kept, again)
        parts = chain.from_iterable(plans.values())
        once = dict.fromkeys(part for part in parts if part not in kept and part not in known)
        ids = self.tokenizer.packed([*kept, *once])
        known.update(zip(kept, ids, strict=False))
        found = dict(zip(once, ids[len(kept) :], strict=True))
        self._ready = {}
        for text, split in plans.items():
            self._ready[text] = b"".join([found[part] if part in found else known[part] for part in split])
            if text in again:
                known[text] = self._ready[text]

    def _parts(self, text: str, kept: dict[str, None], again: set[str]) -> list[str]:
        """A long text as the pieces that were met before, which are added to `kept`, and the stretches between them, which are tokenised whole."""
        met = self._met
        mark = hash(text)
        if mark in met:
            again.add(text)
        met.add(mark)
        cuts = list(pairwise(_cuts(text, _PIECE)))
        marks = [_mark(text, start, end) for start, end in cuts]
        if met.isdisjoint(marks):
            met.update(marks)
            return [text]
        found: list[str] = []
        for is_met, group in groupby(zip(cuts, marks, strict=True), lambda pair: pair[1] in met):
            stretch = [cut for cut, _ in group]
            if is_met:
                parts = [text[start:end] for start, end in stretch]
                kept.update(dict.fromkeys(part for part in parts if part not in self._known))
                found += parts
            else:
                found.append(text[stretch[0][0] : stretch[-1][1]])
        met.update(marks)
        return found

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
        """Packed ids of the runs, one after the other."""
        return b"".join(map(self._run, runs))

    def continued(self, head: list[Run], upto: int, tail: bytes) -> bytes:
        """Packed ids of `head[:upto]`, and `tail`. A `head` that was met in the call before must not have changed but at its end: its ids are continued."""
        if head is not self._head or upto < self._head_upto:
            self._head, self._head_upto, self._head_ids = head, 0, []
        ids = self._head_ids
        if upto > self._head_upto:
            ids += map(self._run, head[self._head_upto : upto])
            self._head_upto = upto
            if len(ids) > _FEW:
                ids[:] = [b"".join(ids)]
        return b"".join([*ids, tail])

    def _run(self, run: Run) -> bytes:
        if type(run) is str:
            found = self._known.get(run)
            return self.text(run) if found is None else found
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
