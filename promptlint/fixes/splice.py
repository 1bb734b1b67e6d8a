"""Edits of one text: which of them may stand together, and the text after them.

An edit replaces the characters of its span. Edits that stand together never overlap: each character is replaced at most once, and nothing is
inserted inside what another edit removes. Insertions at one place are written in the order in which they were added.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from promptlint.finding import Edit
from promptlint.source import SourceFile

__all__ = ["Patch", "apply"]

_Cut = tuple[int, int, str, int]  # source offsets, the text that takes their place, and whose edit it is


def apply(source: SourceFile, edits: Iterable[Edit]) -> str:
    """The text after the edits. Raises ValueError when two of them overlap."""
    patch = Patch()
    if not patch.add(tuple(edits), {source.path: source}):
        raise ValueError(f"edits overlap in {source.path}")
    return patch.texts({source.path: source}).get(source.path, source.text)


@dataclass(slots=True)
class Patch:
    """Edits of several files that stand together."""

    cuts: dict[str, list[_Cut]] = field(default_factory=dict)

    def add(self, edits: tuple[Edit, ...], sources: Mapping[str, SourceFile], owner: int = 0) -> bool:
        """Take all edits, or none of them when one overlaps what was taken before or another of them. `owner` is a number to know them by."""
        tried = {path: list(cuts) for path, cuts in self.cuts.items() if path in {edit.span.path for edit in edits}}
        for edit in edits:
            source = sources[edit.span.path]
            start = source.offset(edit.span.line, edit.span.column)
            end = source.offset(edit.span.end_line, edit.span.end_column)
            cuts = tried.setdefault(edit.span.path, [])
            if any(_overlap((start, end), cut[:2]) for cut in cuts):
                return False
            cuts.insert(
                bisect.bisect_right(cuts, (start, end), key=lambda cut: cut[:2]), (start, end, edit.text, owner)
            )
        self.cuts.update(tried)
        return True

    def texts(self, sources: Mapping[str, SourceFile]) -> dict[str, str]:
        """The new text of every file that is touched, by path."""
        return {path: _joined(sources[path].text, cuts) for path, cuts in self.cuts.items()}

    def origin(self, path: str, offset: int) -> tuple[int | None, int]:
        """Where a character of the new text comes from: (owner of the edit that wrote it, or None, offset in the old text)."""
        shift = 0
        for start, end, new, owner in self.cuts.get(path, ()):
            begin = start + shift
            if offset < begin:
                break
            if offset < begin + len(new):
                return owner, start
            shift += len(new) - (end - start)
        return None, offset - shift


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether they share a character, or one inserts inside the other. What only touches does not overlap."""
    return one[0] < other[1] and other[0] < one[1]


def _joined(text: str, cuts: list[_Cut]) -> str:
    parts = []
    at = 0
    for start, end, new, _ in cuts:
        parts += [text[at:start], new]
        at = end
    parts.append(text[at:])
    return "".join(parts)
