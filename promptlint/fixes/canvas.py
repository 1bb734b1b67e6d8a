r"""A text and how its source spells it: where each character stands, and how a new one is written there.

A canvas hides whether a text stands in a template file, a YAML block, a JSON string or a run of Python literals. Characters are moved as they are spelled:
their source is copied, never written anew, so that escapes, quotes and line ends stay what they were. What has to be written anew is a line end, which is
`\n` in a quoted literal and a real one with indentation elsewhere.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from promptlint.finding import Edit
from promptlint.source import SourceFile, TextMap

__all__ = ["EXPRESSION", "Canvas", "Cell", "Token", "cells_of_file", "cells_of_map"]


EXPRESSION = "expression"


@dataclass(frozen=True, slots=True)
class Cell:
    """Characters of the text that stand or fall together: one of them that is spelled literally, or an escape. Source offsets; `token` numbers the literal."""

    start: int
    end: int
    source_start: int
    source_end: int
    token: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """One literal, or the one stretch of a file, or an operand of a concatenation that is no literal (flavour EXPRESSION). The `flavour` must be the same
    where characters are copied to. `newline`: how a line end is written, None where it cannot be. `start` and `end` are those of the whole token, `inner` those
    of what it spells. `joiner`: what joins it to the token before it, "" or "+".
    """

    start: int
    end: int
    inner: tuple[int, int]
    flavour: str = ""
    newline: str | None = "\n"
    joiner: str = ""

    @property
    def is_literal(self) -> bool:
        return self.flavour != EXPRESSION


@dataclass(slots=True)
class Canvas:
    """`text` with its cells, ascending and without gaps. `slots` are ranges of the text that a value fills, `sections` template statements with what they
    enclose, `fixed` those of them that must stay where they are.
    """

    source: SourceFile
    text: str
    cells: list[Cell]
    tokens: list[Token]
    slots: list[tuple[int, int]] = field(default_factory=list)
    sections: list[tuple[int, int]] = field(default_factory=list)
    fixed: list[tuple[int, int]] = field(default_factory=list)

    def index(self, at: int) -> int | None:
        """The cell that begins at an offset of the text; None in the middle of one."""
        found = bisect.bisect_left(self.cells, at, key=lambda cell: cell.start)
        if found == len(self.cells):
            return found if not self.cells or at == self.cells[-1].end else None
        return found if self.cells[found].start == at else None

    def text_range(self, start: int, end: int) -> tuple[int, int] | None:
        """Offsets of the text for offsets of the source; None when nothing is spelled there."""
        inside = [cell for cell in self.cells if cell.source_start < end and start < cell.source_end]
        return (inside[0].start, inside[-1].end) if inside else None

    def copied(self, start: int, end: int, flavour: str) -> str | None:
        """The source of a stretch, for a literal of that flavour; None when it would mean something else there."""
        first, last = self.index(start), self.index(end)
        if first is None or last is None:
            return None
        parts = []
        for run in _runs(self.cells[first:last]):
            if self.tokens[run[0].token].flavour != flavour:
                return None
            parts.append(self.source.text[run[0].source_start : self._source_end(run)])
        return "".join(parts)

    def _source_end(self, run: list[Cell]) -> int:
        """Where the source of a run ends. What is not spelled behind it (the indentation of the next line, a continued line) goes with it."""
        number = bisect.bisect_left(self.cells, run[-1].end, key=lambda cell: cell.start)
        if number < len(self.cells) and self.cells[number].token == run[-1].token:
            return self.cells[number].source_start
        return run[-1].source_end

    def removed(self, start: int, end: int) -> list[Edit] | None:
        """Edits that remove a stretch. A literal of several that loses all it spells goes as a whole, with its line when it has one."""
        first, last = self.index(start), self.index(end)
        if first is None or last is None:
            return None
        spans: list[tuple[int, int]] = []
        emptied: list[int] = []
        for run in _runs(self.cells[first:last]):
            token = self.tokens[run[0].token]
            low, high = run[0].source_start, self._source_end(run)
            if (low, high) == token.inner and len(self.tokens) > 1:
                emptied.append(run[0].token)
            else:
                spans.append((low, high))
        if emptied:
            spans.append(self._without(emptied[0], emptied[-1]))
        return [Edit(self.source.span(low, high), "") for low, high in sorted(spans)]

    def unprefixed(self, gone: tuple[int, int], edits: Sequence[Edit]) -> list[Edit]:
        """Edits that take the `f` from literals which had slots, all of them in what is `gone`. Not where a brace is spelled twice."""
        offsets = [
            (
                self.source.offset(edit.span.line, edit.span.column),
                self.source.offset(edit.span.end_line, edit.span.end_column),
            )
            for edit in edits
        ]
        found = []
        for number, token in enumerate(self.tokens):
            cells = [cell for cell in self.cells if cell.token == number]
            slots = [cell for cell in cells if any(low <= cell.start and cell.end <= high for low, high in self.slots)]
            if "f" not in token.flavour or not token.is_literal or not slots:
                continue
            if not all(gone[0] <= cell.start and cell.end <= gone[1] for cell in slots):
                continue
            kept = [cell for cell in cells if not gone[0] <= cell.start < gone[1]]
            spelled = "".join(self.source.text[cell.source_start : cell.source_end] for cell in kept)
            written = any(low == high and token.start < low < token.end for low, high in offsets)
            removed = any(low <= token.start < high for low, high in offsets)
            if not kept or written or removed or "{" in spelled or "}" in spelled:
                continue
            at = token.start + self.source.text[token.start : token.inner[0]].lower().index("f")
            found.append(Edit(self.source.span(at, at + 1), ""))
        return found

    def _without(self, first: int, last: int) -> tuple[int, int]:
        """The source of some literals that go as a whole: their lines when they have lines of their own, else what lies between their neighbours."""
        text = self.source.text
        low, high = self.tokens[first].start, self.tokens[last].end
        line, _ = self.source.place(low)
        end_line, _ = self.source.place(high)
        begin = self.source.starts[line - 1]
        end = self.source.starts[end_line] if end_line < len(self.source.starts) else len(text)
        before = self.tokens[first - 1] if first else None
        behind = self.tokens[last + 1] if last + 1 < len(self.tokens) else None
        if not text[begin:low].strip() and not text[high:end].strip():
            return begin, end
        if behind is not None and (
            before is None or self.tokens[first].joiner or (before.is_literal and behind.is_literal)
        ):
            return low, behind.start
        return (before.end, high) if before is not None else (low, high)

    def inserted(self, at: int, pieces: Sequence[tuple[int, int] | str], gone: tuple[int, int]) -> Edit | None:
        r"""An edit that writes pieces at an offset of the text: stretches of the text itself, or line ends and blanks. `gone` is the stretch that is removed meanwhile.

        Where the literal at that place has another flavour, a literal of the same flavour as the stretch is put beside it.
        """
        place = self._place(at, gone)
        if place is None:
            return None
        where, token = place
        written = self._written(pieces, token) if token.is_literal else None
        if written is not None:
            closing = self.source.text[token.inner[1] : token.end]
            if where == token.inner[1] and len(closing) == 3 and written.endswith(closing[0]):
                written += token.newline or " "  # a quote must not meet the three that close the literal
            return Edit(self.source.span(where, where), written)
        return self._beside(token, where, pieces)

    def _place(self, at: int, gone: tuple[int, int]) -> tuple[int, Token] | None:
        """Source offset and token for new characters ahead of an offset of the text."""
        number = self.index(at)
        if number is None:
            return None
        before = self.cells[number - 1] if number else None
        behind = self.cells[number] if number < len(self.cells) else None
        if (
            before is not None
            and (behind is None or behind.token != before.token)
            and not gone[0] <= before.start < gone[1]
        ):
            return before.source_end, self.tokens[before.token]
        if behind is not None:
            return behind.source_start, self.tokens[behind.token]
        return (before.source_end, self.tokens[before.token]) if before is not None else None

    def _written(self, pieces: Sequence[tuple[int, int] | str], token: Token) -> str | None:
        parts = []
        for piece in pieces:
            if isinstance(piece, str):
                if "\n" in piece and token.newline is None:
                    return None
                for number, char in enumerate(piece):
                    empty = piece[number + 1 : number + 2] == "\n"  # a line without text gets no indentation
                    parts.append(char if char != "\n" else (token.newline or "").rstrip(" " if empty else ""))
            else:
                copied = self.copied(*piece, token.flavour)
                if copied is None:
                    return None
                parts.append(copied)
        return "".join(parts)

    def _beside(self, token: Token, where: int, pieces: Sequence[tuple[int, int] | str]) -> Edit | None:
        """Literals and operands of their own, ahead of the token or behind it; on a line of their own where literals without `+` have their own lines."""
        if where not in token.inner or len(self.tokens) < 2:
            return None
        parts = self._operands(pieces)
        if parts is None:
            return None
        if any(each.joiner for each in self.tokens):
            written = " + ".join(parts)
            return self._put(token, where, f" + {written}", f"{written} + ")
        line, column = self.source.place(token.start)
        own_line = not self.source.line_text(line)[: column - 1].strip()
        several = self.source.place(self.tokens[0].start)[0] != self.source.place(self.tokens[-1].start)[0]
        gap = " "
        if own_line and several:
            gap = ("\r\n" if "\r\n" in self.source.text else "\n") + self.source.line_text(line)[: column - 1]
        written = gap.join(parts)
        return self._put(token, where, gap + written, written + gap)

    def _put(self, token: Token, where: int, behind: str, before: str) -> Edit:
        if where == token.inner[1]:
            return Edit(self.source.span(token.end, token.end), behind)
        return Edit(self.source.span(token.start, token.start), before)

    def _operands(self, pieces: Sequence[tuple[int, int] | str]) -> list[str] | None:
        """The pieces as literals and operands: what was spelled in one literal stays in one, line ends join the nearest literal."""
        groups: list[tuple[Token | None, list[tuple[int, int] | str]]] = []
        for piece in pieces:
            if isinstance(piece, str):
                groups.append((None, [piece]))
                continue
            first, last = self.index(piece[0]), self.index(piece[1])
            if first is None or last is None:
                return None
            for run in _runs(self.cells[first:last]):
                groups.append((self.tokens[run[0].token], [(run[0].start, run[-1].end)]))
        merged: list[tuple[Token | None, list[tuple[int, int] | str]]] = []
        for token, group in groups:
            if merged and token is None and merged[-1][0] is not None and merged[-1][0].is_literal:
                merged[-1][1].extend(group)
            elif merged and merged[-1][0] is None and token is not None and token.is_literal:
                merged[-1] = (token, [*merged[-1][1], *group])
            else:
                merged.append((token, group))
        parts = []
        for token, group in merged:
            if token is None:
                parts.append('"' + "".join(str(piece) for piece in group).replace("\n", "\\n") + '"')
                continue
            written = self._written(group, token)
            if written is None:
                return None
            opening = self.source.text[token.start : token.inner[0]]
            parts.append(
                f"{opening}{written}{self.source.text[token.inner[1] : token.end]}" if token.is_literal else written
            )
        return parts


def _runs(cells: Sequence[Cell]) -> Iterator[list[Cell]]:
    """Cells by token."""
    run: list[Cell] = []
    for cell in cells:
        if run and run[-1].token != cell.token:
            yield run
            run = []
        run.append(cell)
    if run:
        yield run


def cells_of_file(source: SourceFile, start: int = 0) -> tuple[str, list[Cell]]:
    r"""The text of a file from an offset on with its cells. Every line end is one `\n`, whatever the source has."""
    cells: list[Cell] = []
    parts: list[str] = []
    at = start
    text = source.text
    while at < len(text):
        width = 2 if text.startswith("\r\n", at) else 1
        parts.append("\n" if text[at] == "\r" else text[at])
        cells.append(Cell(len(cells), len(cells) + 1, at, at + width))
        at += width
    return "".join(parts), cells


def cells_of_map(where: TextMap, length: int, end: int, *, offset: int = 0, token: int = 0) -> list[Cell]:
    """The cells of a text of so many characters whose source ends at `end`. `offset` is added to the text's offsets."""
    cells: list[Cell] = []
    bounds = [*where.runs, (length, end, 0, True)]
    for (start, at, size, exact), (_, following, _, _) in pairwise(bounds):
        if exact:
            cells += [
                Cell(offset + start + step, offset + start + step + 1, at + step, at + step + 1, token)
                for step in range(size)
            ]
        else:
            cells.append(Cell(offset + start, offset + start + size, at, max(following, at), token))
    return cells
