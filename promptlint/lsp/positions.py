"""Between our places (1-based lines, columns in characters) and the protocol's (0-based, columns in code units of the agreed encoding)."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol import types

from promptlint.source import SourceFile

__all__ = ["Positions"]

_BYTES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


def _units(text: str, encoding: str) -> int:
    if text.isascii():
        return len(text)
    name, size = _BYTES[encoding]
    return len(text.encode(name, "surrogatepass")) // size


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions in one text. A place beyond the end of its line or of the text is moved to that end."""

    source: SourceFile
    encoding: str = "utf-16"

    def position(self, line: int, column: int) -> types.Position:
        """The protocol's position of a place."""
        last = len(self.source.starts)
        if line > last:
            line, column = last, len(self.source.line_text(last)) + 1
        return types.Position(
            max(line - 1, 0), _units(self.source.line_text(line)[: max(column - 1, 0)], self.encoding)
        )

    def range(self, line: int, column: int, end_line: int, end_column: int) -> types.Range:
        """The protocol's range between two places."""
        return types.Range(self.position(line, column), self.position(end_line, end_column))

    def place(self, position: types.Position) -> tuple[int, int]:
        """Line and column of a position. Inside a character it is the character's beginning."""
        line = min(position.line + 1, len(self.source.starts))
        left = position.character
        text = self.source.line_text(line)
        if text.isascii():
            return line, min(left, len(text)) + 1
        for column, character in enumerate(text):
            left -= _units(character, self.encoding)
            if left < 0:
                return line, column + 1
        return line, len(text) + 1
