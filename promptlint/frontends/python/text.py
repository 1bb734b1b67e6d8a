"""Operations on abstract texts that keep exact text and exact places: cutting, filling slots, joining, stripping, choosing."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from promptlint.ir import Choice, Guard, Hole, Repeat, Segment, Step, Text
from promptlint.source import SourceFile, Span, TextMap

__all__ = [
    "Field",
    "Texts",
    "choose",
    "format_fields",
    "is_blank",
    "merge",
    "percent_fields",
    "placed",
    "split_common",
    "static_text",
]

_Part = TypeVar("_Part")

Segments = tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One slot of a format text: offsets of the whole slot, its field name as written, and its format spec."""

    start: int
    end: int
    name: str
    conversion: str = ""
    spec: str = ""


def format_fields(text: str) -> Iterator[Field | tuple[int, int]]:
    """Slots of `str.format` text, and the ranges of text between them that are kept (doubled braces are kept once).

    A brace that begins no well-formed slot is kept: `format` would raise there, and other ways of filling would not.
    """
    at = begin = 0
    size = len(text)
    while at < size:
        char = text[at]
        if char not in "{}":
            found = [index for index in (text.find("{", at), text.find("}", at)) if index >= 0]
            at = min(found) if found else size
            continue
        if text.startswith(char * 2, at):
            yield begin, at + 1
            at += 2
            begin = at
            continue
        if char == "{":
            close = _close(text, at)
            if close > 0:
                name, conversion, spec = _split_field(text[at + 1 : close])
                if begin < at:
                    yield begin, at
                yield Field(at, close + 1, name, conversion, spec)
                at = begin = close + 1
                continue
        at += 1
    if begin < size:
        yield begin, size


def _close(text: str, at: int) -> int:
    depth = 0
    for index in range(at, min(len(text), at + 400)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if depth == 0:
                return index
    return -1


_FIELD = re.compile(r"([^!:{}]*)(?:!([rsa]))?(?::([\s\S]*))?$")


def _split_field(body: str) -> tuple[str, str, str]:
    match = _FIELD.match(body)
    if match is None:
        return body, "", ""
    return match.group(1), match.group(2) or "", match.group(3) or ""


# A key is short; without that bound a text of many "%(" would be searched to its end for each.
_PERCENT = re.compile(r"%(?:\(([^)]{0,200})\))?([#0\- +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?)([diouxXeEfFgGcrsa%])")


def percent_fields(text: str) -> Iterator[Field | tuple[int, int]]:
    """Slots of `%` formatting, and the ranges between them; `%%` is kept once. A slot without a name is called ""."""
    begin = 0
    for match in _PERCENT.finditer(text):
        if match.group(3) == "%":
            yield begin, match.start() + 1
        else:
            if begin < match.start():
                yield begin, match.start()
            yield Field(match.start(), match.end(), match.group(1) or "", match.group(3), match.group(2))
        begin = match.end()
    if begin < len(text):
        yield begin, len(text)


def dollar_fields(text: str) -> Iterator[Field | tuple[int, int]]:
    """Slots of `string.Template`, and the ranges between them; `$$` is kept once."""
    begin = 0
    for match in string.Template.pattern.finditer(text):
        name = match.group("named") or match.group("braced")
        if name:
            if begin < match.start():
                yield begin, match.start()
            yield Field(match.start(), match.end(), name)
            begin = match.end()
        elif match.group("escaped") is not None:
            yield begin, match.start() + 1
            begin = match.end()
    if begin < len(text):
        yield begin, len(text)


class Texts:
    """Cuts texts and remembers, for texts with escapes, which character stands where."""

    def __init__(self) -> None:
        self.sources: dict[str, SourceFile] = {}
        self._maps: dict[Text, TextMap] = {}

    def literal(self, value: str, where: TextMap) -> Text:
        """A text with the map of its characters."""
        span = where.span(0, len(value))
        source = where.source
        self.sources.setdefault(source.path, source)
        if span.exact and source.slice(span) != value:
            span = span.inexact()
        text = Text(value, span)
        if not span.exact:
            self._maps[text] = where
        return text

    def map(self, text: Text) -> TextMap | None:
        """The map of a text's characters, None where nothing is known but the outer place."""
        if text.span.exact:
            source = self.sources.get(text.span.path)
            if source is None:
                return None
            at = source.offset(text.span.line, text.span.column)
            return TextMap(source, ((0, at, len(text.value), True),))
        return self._maps.get(text)

    def span(self, text: Text, start: int, end: int) -> Span:
        """The place of a part of a text."""
        where = self.map(text)
        return where.span(start, end) if where is not None else text.span.inexact()

    def keep(self, text: Text, ranges: list[tuple[int, int]]) -> Text | None:
        """The text that is left of the given ranges; None when nothing is."""
        ranges = [(start, end) for start, end in ranges if end > start]
        if not ranges:
            return None
        if len(ranges) == 1 and ranges[0] == (0, len(text.value)):
            return text
        value = "".join(text.value[start:end] for start, end in ranges)
        where = self.map(text)
        if where is None:
            return Text(value, text.span.inexact())
        runs: list[tuple[int, int, int, bool]] = []
        size = 0
        for start, end in ranges:
            for run_start, at, length, exact in where.runs:
                low, high = max(start, run_start), min(end, run_start + length)
                if low < high:
                    place = at + (low - run_start) if exact else at
                    joined = (
                        exact
                        and runs
                        and runs[-1][3]
                        and runs[-1][1] + runs[-1][2] == place
                        and runs[-1][0] + runs[-1][2] == size
                    )
                    if joined:
                        last = runs[-1]
                        runs[-1] = (last[0], last[1], last[2] + high - low, True)
                    else:
                        runs.append((size, place, high - low, exact))
                    size += high - low
        return self.literal(value, TextMap(where.source, tuple(runs)))

    def fill(
        self,
        segments: Segments,
        parse: Callable[[str], Iterator[Field | tuple[int, int]]],
        value: Callable[[Field, Span, int], Segments],
    ) -> Segments:
        """Fill the slots of every text. `value` gets the field, its place, and how many slots came before it."""
        count = 0

        def run(part: Segments) -> Segments:
            nonlocal count
            result: list[Segment] = []
            for segment in part:
                if isinstance(segment, Text):
                    kept: list[tuple[int, int]] = []
                    for found in parse(segment.value):
                        if isinstance(found, tuple):
                            kept.append(found)
                            continue
                        text = self.keep(segment, kept)
                        kept = []
                        if text is not None:
                            result.append(text)
                        if count >= MAX_SLOTS:
                            raise BudgetError
                        result.extend(value(found, self.span(segment, found.start, found.end), count))
                        count += 1
                    text = self.keep(segment, kept)
                    if text is not None:
                        result.append(text)
                elif isinstance(segment, Choice):
                    result.append(replace(segment, arms=tuple(run(arm) for arm in segment.arms)))
                elif isinstance(segment, Repeat):
                    result.append(replace(segment, body=run(segment.body)))
                else:
                    result.append(segment)
            return tuple(result)

        return merge(run(segments))

    def replace(self, segments: Segments, old: str, new: Segments | None) -> tuple[Segments, int]:
        """`str.replace` of a fixed marker; returns the text and how often the marker was found."""
        count = 0
        result: list[Segment] = []
        for segment in segments:
            if isinstance(segment, Text) and old and old in segment.value:
                at = 0
                while (found := segment.value.find(old, at)) >= 0:
                    text = self.keep(segment, [(at, found)])
                    if text is not None:
                        result.append(text)
                    if new is not None:
                        step = Step(self.span(segment, found, found + len(old)), f"put in place of {old}")
                        result.extend(placed(new, step))
                    count += 1
                    at = found + len(old)
                text = self.keep(segment, [(at, len(segment.value))])
                if text is not None:
                    result.append(text)
            elif isinstance(segment, Choice):
                arms = [self.replace(arm, old, new) for arm in segment.arms]
                count += sum(found for _, found in arms)
                result.append(replace(segment, arms=tuple(arm for arm, _ in arms)))
            elif isinstance(segment, Repeat):
                body, found = self.replace(segment.body, old, new)
                count += found
                result.append(replace(segment, body=body))
            else:
                result.append(segment)
        return tuple(result), count

    def strip(self, segments: Segments, *, left: bool = True, right: bool = True, chars: str | None = None) -> Segments:
        """`str.strip` and its halves, as far as fixed text reaches."""
        if left:
            segments = self._trimmed(segments, chars, left=True)
        return self._trimmed(segments, chars, left=False) if right else segments

    def _trimmed(self, segments: Segments, chars: str | None, *, left: bool) -> Segments:
        """A text without the blanks at one end: those of its last text, of the arms of a last choice, behind the last turn of a repeat."""
        result = list(segments)
        end = 0 if left else -1
        while result:
            segment = result[end]
            if isinstance(segment, Text):
                value = segment.value
                kept = (len(value) - len(value.lstrip(chars)), len(value)) if left else (0, len(value.rstrip(chars)))
                text = self.keep(segment, [kept])
                if text is None:
                    result.pop(end)
                    continue
                result[end] = text
            elif isinstance(segment, Choice):
                arms = tuple(self._trimmed(arm, chars, left=left) for arm in segment.arms)
                result[end] = replace(segment, arms=arms)
                self._move_blanks(result, chars, left=left)
            elif isinstance(segment, Hole):
                self._move_blanks(result, chars, left=left)
            elif isinstance(segment, Repeat):
                result[end] = self._without_edge(segment, chars, left=left)[0]
                self._move_blanks(result, chars, left=left)
            break
        return self._blanks_with_rest(result, chars, left=left)

    def _blanks_with_rest(self, result: list[Segment], chars: str | None, *, left: bool) -> Segments:
        """Where two segments or more at the end may all be empty, the blanks of the text next to them are there with one of them, or gone."""
        ordered = result if left else result[::-1]
        count = next((at for at, segment in enumerate(ordered) if not _may_be_empty(segment)), len(ordered))
        text = ordered[count] if count < len(ordered) else None
        if count < 2 or not isinstance(text, Text):
            return tuple(result)
        blank, kept = self._cut_blanks(text, chars, left=left)
        if blank is None:
            return tuple(result)
        guard = _emptiness(ordered[count - 1])
        both = (*result[:count], blank) if left else (blank, *result[len(result) - count :])
        choice = Choice(guard, (both, ()), blank.span)
        rest = () if kept is None else (kept,)
        if left:
            return (choice, *rest, *result[count + 1 :])
        return (*result[: len(result) - count - 1], *rest, choice)

    def _without_edge(self, repeat: Repeat, chars: str | None, *, left: bool) -> tuple[Repeat, Text | None]:
        """A repeat whose first or last turn has lost the blanks at its end, and those blanks: between two turns they stay."""
        edge = repeat.body[0 if left else -1] if repeat.body else None
        if not isinstance(edge, Text):
            return repeat, None
        blank, kept = self._cut_blanks(edge, chars, left=left)
        if blank is None or (kept is None and len(repeat.body) == 1):
            return repeat, None
        optional = Choice(_guard_of(repeat.over), ((blank,), ()), blank.span)
        edged: list[Segment] = [*([] if kept is None else [kept]), *([optional] if repeat.separator else [])]
        body = (*edged[::-1], *repeat.body[1:]) if left else (*repeat.body[:-1], *edged)
        return replace(repeat, body=body, separator=repeat.separator or blank.value), blank

    def _move_blanks(self, result: list[Segment], chars: str | None, *, left: bool) -> None:
        """Blanks next to a value or a choice at the end go too where that is empty: they are moved into what is there when they are."""
        at, end = (1, 0) if left else (len(result) - 2, -1)
        neighbour = result[at] if 0 <= at < len(result) else None
        if not _may_be_empty(result[end]):
            return
        if isinstance(neighbour, Repeat) and not neighbour.separator:
            cut, edge = self._without_edge(neighbour, chars, left=left)
            if edge is not None:
                optional = Choice(_guard_of(neighbour.over), ((edge,), ()), edge.span)
                result[at : at + 1] = [optional, cut] if left else [cut, optional]
            return
        if isinstance(neighbour, Choice):
            self._choose_blanks(result, neighbour, chars, left=left)
            return
        if not isinstance(neighbour, Text):
            return
        blank, kept = self._cut_blanks(neighbour, chars, left=left)
        if blank is None:
            return
        moved = _behind_blank((result[end],), blank, left=left)
        rest = () if kept is None else (kept,)
        result[:] = [*moved, *rest, *result[2:]] if left else [*result[:-2], *rest, *moved]

    def _choose_blanks(self, result: list[Segment], neighbour: Choice, chars: str | None, *, left: bool) -> None:
        """The same next to a choice: either what is at the end is there, or it is not and the choice has lost its blanks."""
        trimmed = self._trimmed((neighbour,), chars, left=left)
        if trimmed == (neighbour,):
            return
        last = result[0 if left else -1]
        guard = _emptiness(last)
        both = (last, neighbour) if left else (neighbour, last)
        choice = Choice(guard, (both, trimmed), neighbour.span)
        result[:] = [choice, *result[2:]] if left else [*result[:-2], choice]

    def _cut_blanks(self, text: Text, chars: str | None, *, left: bool) -> tuple[Text | None, Text | None]:
        """The blanks at one end of a text, and the rest; None for nothing."""
        value = text.value
        blank = len(value) - len(value.lstrip(chars) if left else value.rstrip(chars))
        if not blank:
            return None, text
        split = blank if left else len(value) - blank
        first, second = self.keep(text, [(0, split)]), self.keep(text, [(split, len(value))])
        return (first, second) if left else (second, first)

    def dedent(self, segments: Segments) -> Segments:
        """`textwrap.dedent`: the margin is judged on the fixed text; a hole counts as a word."""
        whole = "".join(segment.value if isinstance(segment, Text) else "\0" for segment in segments)
        margin: str | None = None
        for line in whole.split("\n"):
            if not line.strip():
                continue
            indent = line[: len(line) - len(line.lstrip(" \t"))]
            if margin is None:
                margin = indent
            else:
                size = 0
                while size < min(len(margin), len(indent)) and margin[size] == indent[size]:
                    size += 1
                margin = margin[:size]
        size = len(margin or "")
        result: list[Segment] = []
        at_line_start = True
        for index, segment in enumerate(segments):
            if not isinstance(segment, Text):
                result.append(segment)
                at_line_start = False
                continue
            value = segment.value
            last = index == len(segments) - 1
            kept: list[tuple[int, int]] = []
            at = 0
            while at <= len(value):
                newline = value.find("\n", at)
                end = len(value) if newline < 0 else newline
                line = value[at:end]
                if at_line_start and not line.strip(" \t") and (newline >= 0 or last):
                    begin = end
                elif at_line_start:
                    begin = min(at + size, end)
                else:
                    begin = at
                kept.append((begin, end + (1 if newline >= 0 else 0)))
                if newline < 0:
                    at_line_start = at_line_start and end == at
                    break
                at_line_start = True
                at = newline + 1
            joined: list[tuple[int, int]] = []
            for start, end in kept:
                if joined and joined[-1][1] == start:
                    joined[-1] = (joined[-1][0], end)
                elif end > start:
                    joined.append((start, end))
            text = self.keep(segment, joined)
            if text is not None:
                result.append(text)
        return tuple(result)

    def change(self, segments: Segments, how: Callable[[str], str]) -> Segments:
        """A change of fixed text that needs no context (`lower`); places are kept without the promise."""
        result: list[Segment] = []
        for segment in segments:
            if isinstance(segment, Text):
                value = how(segment.value)
                if value == segment.value:
                    result.append(segment)
                elif value:
                    result.append(Text(value, segment.span.inexact()))
            elif isinstance(segment, Choice):
                result.append(replace(segment, arms=tuple(self.change(arm, how) for arm in segment.arms)))
            elif isinstance(segment, Repeat):
                result.append(replace(segment, body=self.change(segment.body, how)))
            else:
                result.append(segment)
        return tuple(result)


def placed(segments: Segments, step: Step) -> Segments:
    """The segments with one more step on every hole: the place that takes them up."""
    result: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Hole):
            if segment.span != step.span and len(segment.steps) < 10:
                segment = replace(segment, steps=(*segment.steps, step))
        elif isinstance(segment, Choice):
            segment = replace(segment, arms=tuple(placed(arm, step) for arm in segment.arms))
        elif isinstance(segment, Repeat):
            segment = replace(segment, over=placed((segment.over,), step)[0], body=placed(segment.body, step))  # type: ignore[arg-type]
        result.append(segment)
    return tuple(result)


class BudgetError(Exception):
    """A root used up its steps, or a value of it outgrew every prompt."""


# Of one text that is put together: more than a file may hold. Texts that double grow beyond all memory.
MAX_CHARACTERS = 8_000_000
MAX_SLOTS = 10_000  # of one text


def weight(segments: Segments, most: int) -> int:
    """How many segments there are, nested ones too, as far as `most`. Values share their parts, so one that is small in memory may be huge to walk through."""
    found = 0
    stack = [segments]
    while stack and found <= most:
        part = stack.pop()
        found += len(part)
        for segment in part:
            if isinstance(segment, Choice):
                stack.extend(segment.arms)
            elif isinstance(segment, Repeat):
                stack.append(segment.body)
    return found


_WIDTH = re.compile(r"\d{5}")


def may_pad(spec: str) -> bool:
    """Whether a format specification asks for a width or precision that no prompt has: to obey would fill the memory."""
    return _WIDTH.search(spec) is not None


@dataclass(frozen=True, slots=True)
class Layout:
    """What a format specification of text asks for: at least `width` characters, at most `most` of the text, `align` one of `<`, `>`, `^`."""

    width: int
    most: int | None
    align: str


_LAYOUT = re.compile(r"(?:.?(?P<align>[<>^]))?0?(?P<width>\d*)(?:\.(?P<most>\d+))?s?", re.DOTALL)


def layout_of(spec: str) -> Layout | None:
    """The layout that a format specification (`>12`, `.80`) gives a text, None where it is no specification of text.

    Source: the format specification mini-language of Python's `string` module.
    """
    found = _LAYOUT.fullmatch(spec)
    if found is None:
        return None
    most = found["most"]
    return Layout(int(found["width"] or 0), None if most is None else int(most), found["align"] or "<")


def shortest(segments: Segments) -> int:
    """The fewest characters that segments can spell."""
    count = 0
    for segment in segments:
        if isinstance(segment, Text):
            count += len(segment.value)
        elif isinstance(segment, Choice):
            count += min((shortest(arm) for arm in segment.arms), default=0)
    return count


def merge(segments: Segments) -> Segments:
    """Neighbouring texts made one where their places adjoin exactly; empty texts dropped. Raises BudgetError for a text beyond `MAX_CHARACTERS`."""
    result: list[Segment] = []
    characters = 0
    for segment in segments:
        if isinstance(segment, Text):
            if not segment.value:
                continue
            characters += len(segment.value)
            if characters > MAX_CHARACTERS:
                raise BudgetError
            if result and isinstance(result[-1], Text):
                before = result[-1]
                if (
                    before.span.exact
                    and segment.span.exact
                    and before.span.path == segment.span.path
                    and (before.span.end_line, before.span.end_column) == (segment.span.line, segment.span.column)
                ):
                    span = replace(before.span, end_line=segment.span.end_line, end_column=segment.span.end_column)
                    result[-1] = Text(before.value + segment.value, span)
                    continue
        result.append(segment)
    return tuple(result)


def static_text(segments: Segments) -> str | None:
    """The text when all of it is fixed, else None."""
    pieces = []
    for segment in segments:
        if not isinstance(segment, Text):
            return None
        pieces.append(segment.value)
    return "".join(pieces)


def is_blank(segments: Segments) -> bool:
    """Whether nothing but blanks is there."""
    return all(isinstance(segment, Text) and not segment.value.strip() for segment in segments)


def split_common(
    arms: Sequence[tuple[_Part, ...]],
) -> tuple[tuple[_Part, ...], tuple[tuple[_Part, ...], ...], tuple[_Part, ...]]:
    """What all arms begin with, what is left of each in the middle, and what all end with."""
    first = arms[0]
    shortest = min(len(arm) for arm in arms)
    prefix = 0
    while prefix < shortest and all(arm[prefix] == first[prefix] for arm in arms):
        prefix += 1
    suffix = 0
    while suffix < shortest - prefix and all(arm[-1 - suffix] == first[-1 - suffix] for arm in arms):
        suffix += 1
    middles = tuple(arm[prefix : len(arm) - suffix] for arm in arms)
    return first[:prefix], middles, first[len(first) - suffix :] if suffix else ()


def _guard_of(value: Hole) -> Guard:
    """Whether a value is empty."""
    return Guard(value.expression, value.span, value.volatility, value.confidence, value.origins)


def _emptiness(segment: Segment) -> Guard:
    """What decides whether a segment that may be empty is."""
    if isinstance(segment, Choice):
        return segment.guard
    assert isinstance(segment, Hole | Repeat)
    return _guard_of(segment.over if isinstance(segment, Repeat) else segment)


def _may_be_empty(segment: Segment) -> bool:
    """Whether a segment may spell nothing at all."""
    if isinstance(segment, Choice):
        return any(all(_may_be_empty(one) for one in arm) for arm in segment.arms)
    return isinstance(segment, Hole | Repeat)


def _behind_blank(segments: Segments, blank: Text, *, left: bool) -> Segments:
    """Segments with a blank at one end, which is there only where they spell something. `left`: the blank stands behind them, else ahead."""
    if not segments:
        return ()
    near = segments[-1 if left else 0]
    if not all(_may_be_empty(segment) for segment in segments) or len(segments) > 1:
        return (*segments, blank) if left else (blank, *segments)
    if isinstance(near, Choice):
        return (replace(near, arms=tuple(_behind_blank(arm, blank, left=left) for arm in near.arms)),)
    value = near.over if isinstance(near, Repeat) else near
    assert isinstance(value, Hole)
    choice = Choice(_guard_of(value), ((blank,), ()), blank.span)
    return (near, choice) if left else (choice, near)


def choose(guard: Guard, arms: list[Segments], span: Span) -> Segments:
    """A choice between texts, with what they share at both ends pulled out; no choice when they are equal."""
    first = arms[0]
    if all(arm == first for arm in arms[1:]):
        return first
    head, middles, tail = split_common(arms)
    return (*head, Choice(guard, middles, span), *tail)
