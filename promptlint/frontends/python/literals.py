"""String literals, read character by character: what they spell, where, and where their slots are.

`ast` gives the value of a literal and its outer place only, and under Python 3.11 the places inside f-strings are wrong. So the source of a literal is
scanned again: implicit concatenation, prefixes, escapes, doubled braces, nested slots and format specs. A scan never guesses; it returns
None when the source is not what it expects, and the caller falls back to the parser's value without exact places.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.source import SourceFile, TextMap

__all__ = ["Literal", "Slot", "scan", "string_end", "strings_and_comments"]

_OPENING = re.compile(r"([rRbBuUfFtT]{0,2})('''|\"\"\"|'|\")")
_STRING_OR_COMMENT = re.compile(r"(?:(?<!\w)[rRbBuUfFtT]{1,2})?(?:'''|\"\"\"|'|\")|#")
_LINE_END = re.compile(r"[\r\n]")
_BETWEEN = re.compile(r"(?:[\s()]|\\\r?\n|#[^\r\n]*)+")
_ESCAPE = re.compile(r"\\(?:N\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{1,3}|\r\n|[\s\S])|\r\n?")
_BRACES = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


@dataclass(frozen=True, slots=True)
class Literal:
    """Fixed text of one string token, with the map from its characters to the source."""

    value: str
    map: TextMap


@dataclass(frozen=True, slots=True)
class Slot:
    """`{expression!conversion:spec}` of an f-string. Offsets are of the source; `start` is the brace, `end` is behind the closing one."""

    start: int
    end: int
    expression_start: int
    expression_end: int
    conversion: str
    spec: tuple[Literal | Slot, ...]

    def expression(self, source: SourceFile) -> str:
        """The source of the expression, without surrounding blanks."""
        return source.text[self.expression_start : self.expression_end].strip()


def string_end(text: str, start: int) -> int | None:
    """Offset behind the string token that begins at `start`, slots with nested quotes included; None when it does not end."""
    opening = _OPENING.match(text, start)
    if opening is None:
        return None
    try:
        return _token(SourceFile("", text), opening, len(text), [])
    except (_Refused, ValueError, RecursionError):
        return None


def strings_and_comments(text: str) -> Iterator[tuple[int, int]]:
    """First offset of each string token (with its prefix) and comment of a program, and the offset behind it; up to a string that does not end.

    The standard library's `tokenize` would know them too. From Python 3.12 on it reads with C code that raises SystemError on some texts that are no
    programs (python/cpython#140576), and it refuses syntax that is newer than itself.
    """
    at = 0
    while (opening := _STRING_OR_COMMENT.search(text, at)) is not None:
        start = opening.start()
        if opening.group() == "#":
            line_end = _LINE_END.search(text, start)
            at = line_end.start() if line_end else len(text)
        else:
            end = string_end(text, start)
            if end is None:
                return
            at = end
        yield start, at


class _Refused(Exception):
    """The source is not a string literal as we know it."""


def scan(source: SourceFile, start: int, end: int) -> tuple[Literal | Slot, ...] | None:
    """The parts of the literal (or run of concatenated literals) between two offsets, or None when it cannot be read."""
    parts: list[Literal | Slot] = []
    text = source.text
    at = start
    try:
        while at < end:
            gap = _BETWEEN.match(text, at, end)
            if gap:
                at = gap.end()
                if at >= end:
                    break
            opening = _OPENING.match(text, at, end)
            if opening is None:
                return None
            at = _token(source, opening, end, parts)
    except (_Refused, RecursionError):  # strings in slots in strings, without end
        return None
    return tuple(parts)


def _token(source: SourceFile, opening: re.Match[str], end: int, parts: list[Literal | Slot]) -> int:
    prefix = opening.group(1).lower()
    quote = opening.group(2)
    raw = "r" in prefix
    text = source.text
    begin = opening.end()
    if "f" in prefix or "t" in prefix:
        return _formatted(source, begin, end, quote, raw, parts)
    close = _closing(text, begin, end, quote)
    literal = _decode(source, begin, close, raw)
    if literal.value:
        parts.append(literal)
    return close + len(quote)


def _closing(text: str, at: int, end: int, quote: str) -> int:
    while True:
        close = text.find(quote, at, end)
        if close < 0:
            raise _Refused
        slash = text.find("\\", at, close)
        if slash < 0:
            return close
        at = slash + 2


def _decode(source: SourceFile, begin: int, close: int, raw: bool, braces: bool = False) -> Literal:
    """The value of source characters `begin` up to `close`; `braces`: doubled braces stand for single ones."""
    text = source.text
    body = text[begin:close]
    plain = ("\\" not in body or raw) and "\r" not in body and not (braces and ("{{" in body or "}}" in body))
    if plain:
        return Literal(body, TextMap(source, ((0, begin, len(body), True),) if body else ()))
    pieces: list[str] = []
    runs: list[tuple[int, int, int, bool]] = []
    size = 0
    at = begin

    def add(value: str, where: int, exact: bool) -> None:
        nonlocal size
        if value:
            pieces.append(value)
            runs.append((size, where, len(value), exact))
            size += len(value)

    special = re.compile(r"\{\{|\}\}|" + _ESCAPE.pattern) if braces else _ESCAPE
    for match in special.finditer(text, begin, close):
        spelled = match.group()
        if raw and spelled[0] == "\\":
            if "\r" in spelled:
                add(text[at : match.start() + 1], at, True)
                add("\n", match.start() + 1, False)
                at = match.end()
            continue  # a backslash in a raw literal spells itself
        add(text[at : match.start()], at, True)
        add(_meaning(spelled), match.start(), False)
        at = match.end()
    add(text[at:close], at, True)
    return Literal("".join(pieces), TextMap(source, tuple(runs)))


def _meaning(spelled: str) -> str:
    if spelled in {"{{", "}}"}:
        return spelled[0]
    if spelled in {"\r\n", "\r"}:
        return "\n"
    if spelled[1:] in {"\n", "\r\n", "\r"}:
        return ""
    try:
        value = ast.literal_eval(f"'{spelled}'") if spelled != "\\'" else "'"
    except (SyntaxError, ValueError):
        return spelled
    return value if isinstance(value, str) else spelled


def _formatted(source: SourceFile, begin: int, end: int, quote: str, raw: bool, parts: list[Literal | Slot]) -> int:
    """Parts of an f-string's body up to its closing quote; returns the offset behind it."""
    text = source.text
    at = begin
    literal_from = begin
    while True:
        if at >= end:
            raise _Refused
        char = text[at]
        if char == "\\" and not raw:
            named = text.startswith("\\N{", at)
            at = text.index("}", at) + 1 if named else at + 2
        elif char == "\\":
            at += 1 if text[at + 1 : at + 2] in {"{", "}"} else 2
        elif char in "{}" and text.startswith(char * 2, at):
            at += 2
        elif char == "{":
            _flush(source, literal_from, at, raw, parts)
            slot = _slot(source, at, end, quote, parts)
            parts.append(slot)
            at = literal_from = slot.end
        elif text.startswith(quote, at):
            _flush(source, literal_from, at, raw, parts)
            return at + len(quote)
        else:
            at += 1


def _flush(source: SourceFile, begin: int, close: int, raw: bool, parts: list[Literal | Slot]) -> None:
    if close > begin:
        literal = _decode(source, begin, close, raw, braces=True)
        if literal.value:
            parts.append(literal)


def _slot(source: SourceFile, brace: int, end: int, quote: str, parts: list[Literal | Slot]) -> Slot:
    text = source.text
    at = start = brace + 1
    depth = 0
    expression_end = -1
    conversion = ""
    spec: list[Literal | Slot] = []
    while True:
        if at >= end:
            raise _Refused
        char = text[at]
        opening = _OPENING.match(text, at, end) if char in "'\"rRbBuUfFtT" else None
        if opening and not (at > start and (text[at - 1].isalnum() or text[at - 1] == "_")):
            at = _skip_string(source, opening, end)
            continue
        if char == "#":
            while at < end and text[at] not in "\r\n":
                at += 1
            continue
        if depth == 0:
            if char == "}":
                return Slot(
                    brace, at + 1, start, expression_end if expression_end >= 0 else at, conversion, tuple(spec)
                )
            if char == "!" and text[at + 1 : at + 2] != "=":
                if expression_end < 0:
                    expression_end = at
                match = re.compile(r"!\s*([rsa])\s*").match(text, at)
                if match is None:
                    raise _Refused
                conversion = match.group(1)
                at = match.end()
                continue
            if char == ":":
                if expression_end < 0:
                    expression_end = at
                at = _spec(source, at + 1, end, quote, spec)
                continue
            if char == "=" and text[at - 1] not in "=!<>" and re.compile(r"=\s*[}!:]").match(text, at):
                expression_end = at
                behind = re.compile(r"=\s*").match(text, at)
                assert behind is not None
                shown = text[start : behind.end()]
                parts.append(Literal(shown, TextMap(source, ((0, start, len(shown), False),))))
                at = behind.end()
                if text[at] == "}":
                    conversion = "r"
                continue
        step = _BRACES.get(char, 0)
        depth += step
        if depth < 0:
            raise _Refused
        at += 1


def _skip_string(source: SourceFile, opening: re.Match[str], end: int) -> int:
    """Offset behind a string that stands inside a slot (since Python 3.12 its quotes may be those around the slot)."""
    return _token(source, opening, end, [])


def _spec(source: SourceFile, at: int, end: int, quote: str, spec: list[Literal | Slot]) -> int:
    """Parts of a format spec; returns the offset of the closing brace."""
    text = source.text
    begin = at
    while True:
        if at >= end or text.startswith(quote, at):
            raise _Refused
        char = text[at]
        if char == "{":
            _flush(source, begin, at, raw=False, parts=spec)
            slot = _slot(source, at, end, quote, spec)
            spec.append(slot)
            at = begin = slot.end
        elif char == "}":
            _flush(source, begin, at, raw=False, parts=spec)
            return at
        else:
            at += 1
