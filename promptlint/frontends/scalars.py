"""The strings of a YAML, JSON or TOML file, each with its key path and the map of its characters to the file.

Positions come from the parser's marks and from a walk over the source beside the value; nothing is searched for. Where the source spells a
stretch of the value literally the map is exact: a block scalar line by line, a quoted one up to the next escape. An alias is the string that it
names, read once: nothing is ever expanded, so a "YAML bomb" costs what its text costs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias

from promptlint.source import SourceFile, TextMap

__all__ = ["BrokenDataError", "Key", "Scalar", "align", "json_strings", "toml_strings", "yaml_strings"]

Key: TypeAlias = tuple[str | int, ...]
Run: TypeAlias = tuple[int, int, int, bool]

MAX_STRINGS = 50_000
_PURE_PYTHON_LIMIT = 400_000  # characters: without libyaml, PyYAML reads about 100 kB a second
_JSON_WORD = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{}\[\],:]')
_JSON_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|.)", re.DOTALL)
_YAML_ESCAPE = re.compile(r"\\(?:x..|u....|U........|\r?\n[ \t]*|.)", re.DOTALL)


# A table's header, a key with what follows its "=", or a comment; strings are read whole, so that nothing inside one is taken for a key.
_TOML_STRING = r'''"""(?:[^\\]|\\.)*?"{3,5}|\'{3}.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\''''
_TOML_KEY = r"(?:[A-Za-z0-9_-]+|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')"
_TOML_WORD = re.compile(
    rf"^[ \t]*(?P<open>\[\[?)[ \t]*(?P<table>{_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY})*)[ \t]*\]\]?"
    rf"|^[ \t]*(?P<key>{_TOML_KEY}(?:[ \t]*\.[ \t]*{_TOML_KEY})*)[ \t]*=[ \t]*(?P<value>{_TOML_STRING})?"
    rf"|#[^\n]*|{_TOML_STRING}",
    re.DOTALL | re.MULTILINE,
)
_TOML_PART = re.compile(_TOML_KEY)
_TOML_ESCAPE = re.compile(r"\\(?:u.{4}|U.{8}|[ \t]*\r?\n\s*|.)|\r\n", re.DOTALL)


class BrokenDataError(ValueError):
    """The file is not YAML, JSON or TOML. `line` counts from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True)
class Scalar:
    """One string value. `key` leads to it from the top of the document; `line` is the line of its key or of itself.

    `locate` makes the map of its characters; that walks over the source, so it is done only for the strings that somebody asks about.
    """

    key: Key
    value: str
    line: int
    locate: Callable[[], TextMap] = field(compare=False, repr=False)

    @cached_property
    def where(self) -> TextMap:
        """The map of the value's characters to the file."""
        return self.locate()

    @property
    def path(self) -> str:
        """The key path as a person writes it: "agent.steps[0].prompt"."""
        text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.key)
        return text.removeprefix(".")


def align(
    value: str, source: SourceFile, where: tuple[int, int], escape: re.Pattern[str] | None = None, quote: str = ""
) -> TextMap:
    """The map of `value` to the source between two offsets (`where`) that spells it, escapes and folded lines included."""
    text = source.text
    start, end = where
    runs: list[Run] = []
    at, place = 0, start
    while at < len(value) and place < end:
        length = _equal(value, at, text, (place, end), stop="\\" if escape else quote)
        if length:
            runs.append((at, place, length, True))
            at, place = at + length, place + length
            continue
        if escape is not None and text[place] == "\\":
            match = escape.match(text, place, end)
            width = match.end() - place if match else 1
            if match is not None and match[0][1:2] in "\r\n":  # an escaped line end writes nothing
                place += width
                continue
            runs.append((at, place, 1, False))
            at, place = at + 1, place + width
        elif quote and text.startswith(quote * 2, place):
            runs.append((at, place, 1, False))
            at, place = at + 1, place + 2
        elif text[place].isspace():
            blank = _blank(value, at)
            gap = _blank(text, place)
            if blank > at:
                runs.append((at, place, blank - at, False))
            at, place = blank, min(gap, end)
        else:
            break
    if at < len(value):
        runs.append((at, min(place, max(end - 1, start)), len(value) - at, False))
    return TextMap(source, tuple(runs) or ((0, start, 0, True),))


def _equal(value: str, at: int, text: str, where: tuple[int, int], stop: str) -> int:
    """How many characters are equal from here; an escape ends the run, and so does a line end, after which the source is indented."""
    place, end = where
    length, most = 0, min(len(value) - at, end - place)
    while length < most:
        char = value[at + length]
        if char != text[place + length] or char == stop or char in "\r\n":
            break
        length += 1
    # Blanks in front of a folded line end belong to the fold.
    if length < most and text[place + length] in "\r\n":
        while length and text[place + length - 1] in " \t":
            length -= 1
    return length


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def json_strings(source: SourceFile) -> tuple[Scalar, ...]:
    """Every string value of a JSON document. Raises BrokenDataError."""
    try:
        json.loads(source.text)
    except json.JSONDecodeError as error:
        raise BrokenDataError(error.msg, error.lineno) from error
    except ValueError as error:  # a number with more digits than Python converts
        raise BrokenDataError(str(error), 1) from error
    except RecursionError as error:
        raise BrokenDataError("nested too deeply", 1) from error
    return tuple(_json_walk(source))


def _json_walk(source: SourceFile) -> Iterator[Scalar]:
    """One pass over the words of a valid document, with a stack of where we are."""
    stack: list[str | int | None] = []  # None: an object whose key has not been read yet
    key_line, found = 1, 0
    words = _JSON_WORD.finditer(source.text)
    for match in words:
        word = match[0]
        if word == "{":
            stack.append(None)
        elif word == "[":
            stack.append(0)
        elif word in "}]":
            stack.pop()
        elif word == ",":
            top = stack[-1]
            stack[-1] = top + 1 if isinstance(top, int) else None
        elif word == ":":
            continue
        elif stack and stack[-1] is None:
            stack[-1] = json.loads(word) if "\\" in word else word[1:-1]
            key_line = source.place(match.start())[0]
        else:
            value = json.loads(word, strict=False) if "\\" in word else word[1:-1]
            bounds = (match.start() + 1, match.end() - 1)
            line = source.place(match.start())[0] if stack and isinstance(stack[-1], int) else key_line
            yield Scalar(
                tuple(part for part in stack if part is not None),
                value,
                line,
                partial(align, value, source, bounds, _JSON_ESCAPE),
            )
            found += 1
            if found >= MAX_STRINGS:
                return


def toml_strings(source: SourceFile) -> tuple[Scalar, ...]:
    """The string values under the keys of a TOML document; those inside arrays and inline tables are left out. Raises BrokenDataError."""
    import tomllib

    try:
        document = tomllib.loads(source.text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+)", str(error))
        raise BrokenDataError(str(error), int(at[1]) if at else 1) from error
    except RecursionError as error:
        raise BrokenDataError("nested too deeply", 1) from error
    found: list[Scalar] = []
    table: Key = ()
    counts: dict[Key, int] = {}
    for match in _TOML_WORD.finditer(source.text):
        if match["table"] is not None:
            table = _toml_key((), match["table"], counts)
            if match["open"] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
        elif match["value"] is not None:
            key = _toml_key(table, match["key"], {})
            value = _toml_value(document, key)
            if value is not None and len(found) < MAX_STRINGS:
                line = source.place(match.start("key"))[0]
                found.append(Scalar(key, value, line, partial(_toml_map, value, source, match.span("value"))))
    return tuple(found)


def _toml_key(table: Key, text: str, counts: dict[Key, int]) -> Key:
    """A dotted key below a table; a table of an array that was opened before means its last element."""
    key = table
    for part in _TOML_PART.findall(text):
        if key in counts:
            key = (*key, counts[key])
        key = (*key, part.strip("'\""))
    return key


def _toml_value(document: Any, key: Key) -> str | None:
    for part in key:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return None
    return document if isinstance(document, str) else None


def _toml_map(value: str, source: SourceFile, where: tuple[int, int]) -> TextMap:
    """Literal but for escapes; a line end right behind the opening quotes is not part of the value."""
    text = source.text
    start, end = where
    quote = text[start] * (3 if text.startswith(text[start] * 3, start) and end - start >= 6 else 1)
    start, end = start + len(quote), end - len(quote)
    if len(quote) == 3:
        start += 2 if text.startswith("\r\n", start) else 1 if text.startswith("\n", start) else 0
    escape = _TOML_ESCAPE if quote[0] == '"' else re.compile("\r\n")
    runs: list[Run] = []
    at, place = 0, start
    for match in escape.finditer(text, start, end):
        if match.start() > place:
            runs.append((at, place, match.start() - place, True))
            at += match.start() - place
        place = match.end()
        if match[0] == "\r\n" or not match[0][1:].lstrip(" \t").startswith(
            ("\r", "\n")
        ):  # an escaped line end writes nothing
            runs.append((at, match.start(), 1, False))
            at += 1
    if place < end:
        runs.append((at, place, end - place, True))
        at += end - place
    return TextMap(source, tuple(runs)) if runs and at == len(value) else _whole(value, source, start, end)


def yaml_strings(source: SourceFile) -> tuple[Scalar, ...]:
    """Every string value of the documents of a YAML file. Raises BrokenDataError."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", None)
    if loader is None:
        if len(source.text) > _PURE_PYTHON_LIMIT:
            raise BrokenDataError(
                f"larger than {_PURE_PYTHON_LIMIT // 1000} kB, and PyYAML was built without libyaml", 1
            )
        loader = yaml.SafeLoader
    try:
        documents = [node for node in yaml.compose_all(source.text, Loader=loader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BrokenDataError(
            str(error.problem or error.context or "not YAML"), mark.line + 1 if mark else 1
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise BrokenDataError("not YAML", 1) from error
    except RecursionError as error:
        raise BrokenDataError("nested too deeply", 1) from error
    found: list[Scalar] = []
    seen: set[int] = set()
    for number, node in enumerate(documents):
        start: Key = (number,) if len(documents) > 1 else ()
        for key, scalar, line in _yaml_walk(node, start, seen):
            found.append(Scalar(key, scalar.value, line, partial(_yaml_map, scalar, source)))
    return tuple(found)


def _yaml_walk(root: Any, start: Key, seen: set[int]) -> Iterator[tuple[Key, Any, int]]:
    """The string nodes below a node, in the order of the file; a node that an alias names again is not read again."""
    pending: list[tuple[Key, Any, int]] = [(start, root, root.start_mark.line + 1)]
    count = 0
    while pending and count < MAX_STRINGS:
        key, node, line = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.id == "scalar":
            if node.tag == "tag:yaml.org,2002:str" or node.tag.startswith("!"):
                count += 1
                yield key, node, line
        elif node.id == "sequence":
            pending += [
                ((*key, index), item, item.start_mark.line + 1) for index, item in reversed(list(enumerate(node.value)))
            ]
        else:
            pending += [
                ((*key, str(name.value) if name.id == "scalar" else "?"), item, name.start_mark.line + 1)
                for name, item in reversed(node.value)
            ]


def _yaml_map(node: Any, source: SourceFile) -> TextMap:
    """Where a scalar's characters stand; inexact as a whole where the marks do not fit our lines (exotic line ends)."""
    start = source.offset(node.start_mark.line + 1, node.start_mark.column + 1)
    end = source.offset(node.end_mark.line + 1, node.end_mark.column + 1)
    while source.text[start : start + 1] in {"&", "!"}:  # an anchor or a tag in front of the value
        while start < end and not source.text[start].isspace():
            start += 1
        start = min(_blank(source.text, start), end)
    first = source.text[start : start + 1]
    if node.style in {"|", ">"}:
        if first != node.style:
            return _whole(node.value, source, start, end)
        header = source.place(start)[0]
        if node.style == "|":
            return _literal(node.value, source, header, end) or _whole(node.value, source, start, end)
        below = source.starts[header] if header < len(source.starts) else end
        return align(node.value, source, (_blank(source.text, below), end))
    if node.style == '"':
        return (
            align(node.value, source, (start + 1, end - 1), _YAML_ESCAPE)
            if first == '"'
            else _whole(node.value, source, start, end)
        )
    if node.style == "'":
        return (
            align(node.value, source, (start + 1, end - 1), quote="'")
            if first == "'"
            else _whole(node.value, source, start, end)
        )
    return align(node.value, source, (start, end))


def _whole(value: str, source: SourceFile, start: int, end: int) -> TextMap:
    return TextMap(source, ((0, start, len(value), False),)) if end > start else source.map()


def _literal(value: str, source: SourceFile, header: int, end: int) -> TextMap | None:
    """A literal block scalar: each of its lines is a line of the source without the indentation."""
    lines = value.splitlines(keepends=True) if "\r" not in value else value.split("\n")
    runs: list[Run] = []
    at, line, indent = 0, header + 1, -1
    for content in lines:
        shown = source.line_text(line)
        bare = content.rstrip("\n")
        if indent < 0 and bare.strip():
            indent = len(shown) - len(bare)
        if bare and (indent < 0 or shown[indent:] != bare):
            return None
        place = (
            source.starts[line - 1] + (max(indent, 0) if bare else len(shown)) if line <= len(source.starts) else end
        )
        spelled = source.text[place : place + len(content)] == content
        if spelled:
            runs.append((at, place, len(content), True))
        else:  # the line end is spelled \r\n
            if bare:
                runs.append((at, place, len(bare), True))
            if content != bare:
                runs.append((at + len(bare), place + len(bare), 1, False))
        at += len(content)
        line += 1
    return TextMap(source, tuple(runs)) if runs else None
