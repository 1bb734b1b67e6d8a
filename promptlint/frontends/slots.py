"""Slots in a text: where they stand, and what the text between them spells.

Five syntaxes: `format` (str.format, also LangChain's "f-string"), `braces` (`{name}` only; every other brace is text, as in a file whose
markers are filled by `str.replace`), `dollar` (string.Template), `percent` (printf style) and `mustache`. Jinja has its own front end.

`parse` gives pieces with offsets into the text, `read` gives segments of the prompt IR. Nothing is ever rendered: an offset is where the
scanner stood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TypeAlias

from promptlint.catalog.names import NameFact, load_names
from promptlint.ir import Choice, Confidence, Guard, Hole, Origin, Repeat, Segment, Step, Text, Volatility
from promptlint.source import Span, TextMap

__all__ = [
    "SYNTAXES",
    "BadTemplateError",
    "Fixed",
    "Piece",
    "Section",
    "Slot",
    "guess",
    "named_hole",
    "parse",
    "placed",
    "read",
    "slots",
]

SYNTAXES = ("format", "braces", "dollar", "percent", "mustache")

MAX_SLOTS = 10_000  # of one text: no prompt has so many
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_MARKER = re.compile(r"\{([A-Za-z_]\w*)\}")  # a marker in braces, and nothing else in them
_DOLLAR = re.compile(r"\$(?:(?P<escaped>\$)|(?P<named>[_a-zA-Z]\w*)|\{(?P<braced>[_a-zA-Z]\w*)\}|(?P<invalid>))")
_PERCENT = re.compile(
    r"%(?:(?P<escaped>%)|(?:\((?P<name>[^()]*)\))?[#0\- +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?(?P<type>[diouxXeEfFgGcrsa])|(?P<invalid>))"
)
_MUSTACHE = re.compile(
    r"\{\{\{\s*(?P<raw>[\w.\- ]+?)\s*\}\}\}|\{\{\s*(?P<mark>[#^/!>&=]?)\s*(?P<name>.*?)\s*\}\}", re.DOTALL
)
_DOUBLED = re.compile(r"(?<!\$)\{\{-?\s*[A-Za-z_][\w.]*\s*(?:\||\(|\[|-?\}\})")
_LOOSE = re.compile(r"(?<!\$)\{\{-?(?:\s+[A-Za-z_]|[A-Za-z_]\w*(?:\.\w|\s*\|))[^{}]*\}\}")


class BadTemplateError(ValueError):
    """The text does not follow the syntax; `offset` is where."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} at character {offset}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Fixed:
    """Text between slots. `value` is what it spells: an escape such as `{{` has the value `{`, all else spells itself."""

    start: int
    end: int
    value: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that a value fills. `name` is the dotted name without subscripts ("user.name"; "0" for a position)."""

    start: int
    end: int
    expression: str
    name: str
    conversion: str = ""
    spec: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """The beginning (`#`, inverted `^`) or the end (`/`) of a mustache section."""

    start: int
    end: int
    mark: str
    name: str


Piece: TypeAlias = Fixed | Slot | Section


def parse(text: str, syntax: str) -> tuple[Piece, ...]:
    """The pieces of `text`, in order and without gaps. Raises BadTemplateError where the library that owns the syntax would refuse it."""
    scan = {"format": _format, "braces": _braces, "dollar": _dollar, "percent": _percent, "mustache": _mustache}[syntax]
    found = tuple(islice(scan(text), 2 * MAX_SLOTS + 1))
    if len(found) > 2 * MAX_SLOTS:
        raise BadTemplateError(f"more than {MAX_SLOTS:,} slots", 0)
    return found


def slots(text: str, syntax: str) -> tuple[Slot, ...]:
    """Only the slots; empty when the text does not follow the syntax."""
    try:
        return tuple(piece for piece in parse(text, syntax) if isinstance(piece, Slot))
    except BadTemplateError:
        return ()


def guess(text: str) -> str | None:
    """The syntax that a text of unknown use most likely has: jinja2, format, braces, dollar, percent, or None for no slot at all.

    Doubled braces are slots of Jinja and escapes of str.format. They count as Jinja when the text has statements, or doubled braces around
    a name that are written as one writes Jinja, or when no single-braced name stands beside them.
    """
    if "{" in text:
        fields = [slot for slot in slots(text, "format") if text[max(slot.start - 1, 0) : slot.start] != "$"]
        single = bool(fields) and all(_IDENTIFIER.match(slot.name) for slot in fields)
        if "{%" in text or _LOOSE.search(text) or (not single and _DOUBLED.search(text)):
            return "jinja2"
        if single:
            return "format"
        if slots(text, "braces") and not slots(text, "dollar"):
            return "braces"
    if "${" in text and slots(text, "dollar"):
        return "dollar"
    if "%(" in text and slots(text, "percent"):
        return "percent"
    return None


def _format(text: str) -> Iterator[Piece]:
    begin = at = automatic = 0
    while at < len(text):
        char = text[at]
        if char not in "{}":
            at += 1
            continue
        if at > begin:
            yield Fixed(begin, at, text[begin:at])
        if text[at : at + 2] == char * 2:
            yield Fixed(at, at + 2, char)
            at += 2
        elif char == "}":
            raise BadTemplateError("single '}'", at)
        else:
            slot = _format_field(text, at, automatic)
            automatic += slot.name == str(automatic)
            yield slot
            at = slot.end
        begin = at
    if at > begin:
        yield Fixed(begin, at, text[begin:at])


def _format_field(text: str, start: int, automatic: int) -> Slot:
    """One replacement field, from its brace at `start`. Braces nest in the format specification, and not within [brackets]."""
    depth, at, bracket, head_end = 1, start + 1, False, 0
    while at < len(text):
        char = text[at]
        if bracket:
            bracket = char != "]"
        elif char == "[" and not head_end:
            bracket = True
        elif char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if not depth:
                break
        elif char in "!:" and not head_end:
            head_end = at
        at += 1
    else:
        raise BadTemplateError("'{' is never closed", start)
    head = text[start + 1 : head_end or at]
    rest = text[head_end or at : at]
    conversion, spec = "", ""
    if rest.startswith("!"):
        conversion, _, spec = rest[1:].partition(":")
        if conversion not in {"r", "s", "a"}:
            raise BadTemplateError("bad conversion", head_end)
    elif rest:
        spec = rest[1:]
    if "{" in head:
        raise BadTemplateError("'{' in a field name", start)
    first = re.match(r"[^.\[]*", head)
    assert first is not None
    name = re.sub(r"\[[^\]]*\]?", "", head) if first[0] else f"{automatic}{head}"
    return Slot(start, at + 1, head or str(automatic), name, conversion, spec)


def _between(text: str, found: Iterable[tuple[int, int, Piece | None]]) -> Iterator[Piece]:
    """The found pieces with the fixed text between them; a None piece is text."""
    begin = 0
    for start, end, piece in found:
        if piece is None:
            continue
        if start > begin:
            yield Fixed(begin, start, text[begin:start])
        yield piece
        begin = end
    if begin < len(text):
        yield Fixed(begin, len(text), text[begin:])


def _braces(text: str) -> Iterator[Piece]:
    def found() -> Iterator[tuple[int, int, Piece | None]]:
        for match in _MARKER.finditer(text):
            doubled = text[match.start() - 1 : match.start()] == "{" and text[match.end() : match.end() + 1] == "}"
            yield match.start(), match.end(), None if doubled else Slot(match.start(), match.end(), match[1], match[1])

    return _between(text, found())


def _dollar(text: str) -> Iterator[Piece]:
    def found() -> Iterator[tuple[int, int, Piece | None]]:
        for match in _DOLLAR.finditer(text):
            name = match["named"] or match["braced"]
            if name:
                yield match.start(), match.end(), Slot(match.start(), match.end(), name, name)
            elif match["escaped"]:
                yield match.start(), match.end(), Fixed(match.start(), match.end(), "$")
            # A lone dollar is an error of `substitute` and text for `safe_substitute`; prompts speak of prices, so it is text here.

    return _between(text, found())


def _percent(text: str) -> Iterator[Piece]:
    position = 0

    def found() -> Iterator[tuple[int, int, Piece | None]]:
        nonlocal position
        for match in _PERCENT.finditer(text):
            start, end = match.span()
            if match["escaped"]:
                yield start, end, Fixed(start, end, "%")
            elif match["type"] is None:
                raise BadTemplateError("'%' without a type", start)
            else:
                name = match["name"]
                if name is None:
                    name = str(position)
                    position += 1
                yield (
                    start,
                    end,
                    Slot(
                        start,
                        end,
                        name,
                        name,
                        "r" if match["type"] == "r" else "",
                        "" if match["type"] in "sr" else match[0],
                    ),
                )

    return _between(text, found())


def _mustache(text: str) -> Iterator[Piece]:
    def found() -> Iterator[tuple[int, int, Piece | None]]:
        for match in _MUSTACHE.finditer(text):
            start, end = match.span()
            mark, name = match["mark"] or "", match["raw"] or match["name"]
            if mark in "#^/" and mark:
                yield start, end, Section(start, end, mark, name)
            elif mark in {"!", "="}:
                yield start, end, Fixed(start, end, "")
            else:
                yield start, end, Slot(start, end, name, name)

    return _between(text, found())


def named_hole(expression: str, span: Span, name: str = "", *, fact: NameFact | None = None) -> Hole:
    """A hole for a value that cannot be followed: kind, volatility and confidence come from its name (rules/names.toml)."""
    name = name or expression
    said = fact or load_names().fact(name)
    origin = Origin(said.origin, said.volatility, said.confidence, expression, span)
    return Hole(expression, span, said.volatility, said.confidence, (origin,), name, said.kind, said.growth)


def placed(segments: tuple[Segment, ...], step: Step) -> tuple[Segment, ...]:
    """The same segments with `step` appended to the way of each of their holes."""
    found: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Hole):
            segment = replace(segment, steps=(*segment.steps, step))
        elif isinstance(segment, Choice):
            segment = replace(segment, arms=tuple(placed(arm, step) for arm in segment.arms))
        elif isinstance(segment, Repeat):
            over = replace(segment.over, steps=(*segment.over.steps, step))
            segment = replace(segment, over=over, body=placed(segment.body, step))
        found.append(segment)
    return tuple(found)


def fixed_text(value: str, start: int, end: int, text: str, where: TextMap) -> tuple[Text, ...]:
    """Fixed text that the characters from `start` to `end` of `text` spell, in as few pieces as its exact runs in the source allow."""
    if not value:
        return ()
    span = where.span(start, end)
    if text[start:end] != value:
        return (Text(value, span.inexact()),)
    if span.exact:
        return (Text(value, span),)
    cuts = [start, *(run[0] for run in where.runs if start < run[0] < end), end]
    return tuple(Text(text[first:last], where.span(first, last)) for first, last in pairwise(cuts) if first < last)


def read(
    text: str, where: TextMap, syntax: str, *, bound: Mapping[str, tuple[Segment, ...]] | None = None
) -> tuple[Segment, ...]:
    """The segments of a text with slots. `bound` fills slots by name ("x.y", then "x"); the others become holes by name.

    Raises BadTemplateError as `parse` does.
    """
    return _segments(list(parse(text, syntax)), text, where, bound or {})


def _segments(
    pieces: list[Piece], text: str, where: TextMap, bound: Mapping[str, tuple[Segment, ...]]
) -> tuple[Segment, ...]:
    found: list[Segment] = []
    index = 0
    while index < len(pieces):
        piece = pieces[index]
        index += 1
        span = where.span(piece.start, piece.end)
        if isinstance(piece, Fixed):
            found += fixed_text(piece.value, piece.start, piece.end, text, where)
        elif isinstance(piece, Slot):
            found += _fill(piece, text, span, bound)
        elif piece.mark in "#^":
            end = _section_end(pieces, index, piece.name)
            body = _segments(pieces[index:end], text, where, bound)
            over = named_hole(piece.name, span)
            if piece.mark == "#" and over.origins[0].kind != "setting":
                found.append(Repeat(over, body, span, over.growth))
            else:
                found.append(
                    Choice(Guard(piece.name, span, over.volatility, over.confidence, over.origins), (body, ()), span)
                )
            index = end + 1
    return tuple(found)


def _section_end(pieces: list[Piece], index: int, name: str) -> int:
    depth = 0
    for at in range(index, len(pieces)):
        piece = pieces[at]
        if isinstance(piece, Section) and piece.name == name:
            if piece.mark == "/":
                if not depth:
                    return at
                depth -= 1
            else:
                depth += 1
    raise BadTemplateError(f"section {name!r} is never closed", pieces[index - 1].start)


def _fill(slot: Slot, text: str, span: Span, bound: Mapping[str, tuple[Segment, ...]]) -> tuple[Segment, ...]:
    value = bound.get(slot.expression, bound.get(slot.name))
    if value is None and "." in slot.name:
        value = bound.get(slot.name.partition(".")[0])
    if value is None:
        return (named_hole(slot.expression, span, slot.name),)
    value = placed(value, Step(span, f"fills {text[slot.start : slot.end]}", slot.expression))
    if not slot.conversion and not slot.spec:
        return value
    if slot.conversion in {"", "s"} and all(isinstance(segment, Text) for segment in value):
        # A width or an alignment of fixed text is fixed text too; a type that text does not have is left to a hole.
        try:
            said = format("".join(segment.value for segment in value if isinstance(segment, Text)), slot.spec)
        except ValueError:
            return (Hole(slot.expression, span, Volatility.STATIC, Confidence.LOW, (), slot.name),)
        return (Text(said, value[0].span.inexact()),) if value else ()
    return value
