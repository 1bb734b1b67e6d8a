"""Source text, positions in it, and the map from a text's characters to the places that spell them."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

__all__ = ["SourceFile", "Span", "TextMap"]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of a source file. Lines and columns are 1-based, columns count characters; the end is exclusive.

    `exact` is a promise: the source between the two places spells the text that carries the span. A fix may touch
    exact spans only.
    """

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    exact: bool = field(default=True, compare=False)

    def inexact(self) -> Span:
        """The same place without the promise."""
        return Span(self.path, self.line, self.column, self.end_line, self.end_column, exact=False)

    def contains(self, other: Span) -> bool:
        """Whether `other` lies within this span of the same file."""
        return (
            self.path == other.path
            and (self.line, self.column) <= (other.line, other.column)
            and (other.end_line, other.end_column) <= (self.end_line, self.end_column)
        )


class SourceFile:
    r"""The text of one file with its line index.

    `path` is what findings print: relative to the working directory where possible, with forward slashes.
    Line ends are kept as they are in `text`; a line index treats `\n`, `\r\n` and `\r` as one end each.
    """

    __slots__ = ("_starts", "path", "text")

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self._starts: list[int] | None = None

    @property
    def starts(self) -> list[int]:
        """Offsets at which the lines begin; computed once."""
        if self._starts is None:
            starts = [0]
            text = self.text
            find = text.find
            if "\r" not in text:
                at = find("\n")
                while at >= 0:
                    starts.append(at + 1)
                    at = find("\n", at + 1)
            else:
                size = len(text)
                index = 0
                while index < size:
                    char = text[index]
                    if char == "\r":
                        if index + 1 < size and text[index + 1] == "\n":
                            index += 1
                        starts.append(index + 1)
                    elif char == "\n":
                        starts.append(index + 1)
                    index += 1
            self._starts = starts
        return self._starts

    def offset(self, line: int, column: int) -> int:
        """Character offset of a 1-based place; clamped to the text."""
        starts = self.starts
        if line > len(starts):
            return len(self.text)
        return min(starts[line - 1] + column - 1, len(self.text))

    def place(self, offset: int) -> tuple[int, int]:
        """1-based line and column of a character offset."""
        starts = self.starts
        line = bisect.bisect_right(starts, offset)
        return line, offset - starts[line - 1] + 1

    def span(self, start: int, end: int, *, exact: bool = True) -> Span:
        """Span of the characters from offset `start` up to `end`."""
        line, column = self.place(start)
        end_line, end_column = self.place(end)
        return Span(self.path, line, column, end_line, end_column, exact)

    def slice(self, span: Span) -> str:
        """The source between the two places of a span."""
        return self.text[self.offset(span.line, span.column) : self.offset(span.end_line, span.end_column)]

    def line_text(self, line: int) -> str:
        """One line without its end; empty beyond the last."""
        starts = self.starts
        if not 1 <= line <= len(starts):
            return ""
        end = starts[line] if line < len(starts) else len(self.text)
        return self.text[starts[line - 1] : end].rstrip("\r\n")

    def map(self) -> TextMap:
        """The identity map: the file's own text."""
        return TextMap(self, ((0, 0, len(self.text), True),))


@dataclass(frozen=True, slots=True)
class TextMap:
    """Maps offsets in a text (the value of a string literal, a YAML scalar, a file) to places in its source.

    `runs` holds `(text offset, source offset, length in the text, exact)`, ascending in text offset and without gaps.
    Inside an exact run the text is spelled literally, so offsets move in step; an inexact run (escapes, folded YAML
    lines) maps to its beginning.
    """

    source: SourceFile
    runs: tuple[tuple[int, int, int, bool], ...]

    def _run(self, offset: int) -> tuple[int, int, int, bool]:
        index = bisect.bisect_right(self.runs, offset, key=lambda run: run[0]) - 1
        return self.runs[max(index, 0)]

    def source_offset(self, offset: int) -> int:
        """Source offset of the character at `offset` of the text."""
        if not self.runs:
            return 0
        start, at, length, exact = self._run(offset)
        if exact:
            return at + min(offset - start, length)
        return at if offset < start + length else at + 1

    def span(self, start: int, end: int) -> Span:
        """Span of the text's characters from `start` up to `end`; inexact unless one exact run holds them all."""
        if not self.runs:
            return self.source.span(0, 0, exact=False)
        text_start, at, length, exact = self._run(start)
        if exact and end <= text_start + length:
            return self.source.span(at + start - text_start, at + end - text_start)
        last = self.source_offset(max(end - 1, start))
        return self.source.span(self.source_offset(start), max(last + 1, self.source_offset(start)), exact=False)
