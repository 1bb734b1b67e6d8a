"""The parts of a template with their exact places: fixed text, outputs `{{ }}` and tags `{% %}`.

Jinja's nodes carry only a line. So we lex once with Jinja's own lexer and walk the source forward: its tokens come in the order of the source, and
between two of them it drops nothing but whitespace (strip markers) and turns every line end into a line feed. Each part is then known by the
offsets of its own tokens, and nothing has to be searched for or rendered.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import jinja2

__all__ = ["Data", "Output", "Part", "Tag", "environment", "lex"]

MAX_TAGS = 50_000  # more than the evaluation follows; each takes some 40 microseconds to read
_NEWLINE = re.compile(r"\r\n|\r")


@dataclass(frozen=True, slots=True)
class Data:
    """Fixed text. `value` is what it renders to; line ends in it are line feeds, whatever the source has."""

    start: int
    end: int
    value: str


@dataclass(frozen=True, slots=True)
class Output:
    """`{{ code }}`."""

    start: int
    end: int
    code: str


@dataclass(frozen=True, slots=True)
class Tag:
    """`{% name rest %}`. `assigns`: an equals sign stands outside of parentheses, as in `{% set x = 1 %}`."""

    start: int
    end: int
    name: str
    rest: str
    assigns: bool


Part: TypeAlias = Data | Output | Tag


@cache
def environment(trim_blocks: bool = False, lstrip_blocks: bool = False) -> jinja2.Environment:
    """A Jinja environment that parses. It never compiles and never renders. Undefined filters are no error for a parser."""
    import jinja2

    return jinja2.Environment(  # noqa: S701 (nothing is rendered)
        extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
        trim_blocks=trim_blocks,
        lstrip_blocks=lstrip_blocks,
        cache_size=0,
    )


class _Offsets:
    """Offsets in the text with unified line ends, back to offsets in the text as it is."""

    def __init__(self, text: str) -> None:
        self.shorter: list[int] = []  # unified offsets behind which the text has one character more
        if "\r\n" in text:
            removed = 0
            for match in _NEWLINE.finditer(text):
                if match[0] == "\r\n":
                    self.shorter.append(match.start() - removed + 1)
                    removed += 1

    def original(self, offset: int) -> int:
        return offset + bisect.bisect_right(self.shorter, offset)


def lex(text: str, *, trim_blocks: bool = False, lstrip_blocks: bool = False) -> list[Part]:
    """The parts of a template in order; comments are left out. Raises jinja2.TemplateSyntaxError, also for one with more than `MAX_TAGS` tags."""
    from jinja2.exceptions import TemplateSyntaxError

    unified = _NEWLINE.sub("\n", text)
    if unified.count("{{") + unified.count("{%") > MAX_TAGS:
        raise TemplateSyntaxError(f"more than {MAX_TAGS:,} tags", 1)
    offsets = _Offsets(text)
    parts: list[Part] = []
    at = begin = inner = 0
    opened = 0  # the line of a tag that has not ended yet
    words: list[tuple[str, str, int]] = []
    for line, kind, value in environment(trim_blocks, lstrip_blocks).lexer.tokeniter(unified, None):
        while not unified.startswith(value, at):
            if at >= len(unified) or not unified[at].isspace():
                raise TemplateSyntaxError("cannot be followed in the source", line)
            at += 1
        start, at = at, at + len(value)
        if kind == "data":
            parts.append(Data(offsets.original(start), offsets.original(at), value))
        elif kind in {"variable_begin", "block_begin"}:
            begin, inner, words, opened = start, at, [], line
        elif kind == "variable_end":
            opened = 0
            parts.append(
                Output(offsets.original(begin), offsets.original(_tag_end(value, start)), unified[inner:start])
            )
        elif kind == "block_end":
            opened = 0
            parts.append(
                _tag(
                    unified[inner:start],
                    words,
                    inner,
                    offsets.original(begin),
                    offsets.original(_tag_end(value, start)),
                )
            )
        elif kind not in {
            "whitespace",
            "comment_begin",
            "comment",
            "comment_end",
            "raw_begin",
            "raw_end",
            "linecomment",
        }:
            words.append((kind, value, start))
    if opened:
        raise TemplateSyntaxError("unexpected end of template", opened)
    return parts


def _tag_end(value: str, start: int) -> int:
    """Where `%}` ends: with a strip marker the token goes on over the whitespace behind it."""
    return start + len(value.rstrip())


def _tag(code: str, words: list[tuple[str, str, int]], inner: int, start: int, end: int) -> Tag:
    if not words or words[0][0] != "name":
        return Tag(start, end, "", code, assigns=False)
    _, name, where = words[0]
    depth, assigns = 0, False
    for kind, value, _ in words[1:]:
        if kind == "operator":
            depth += (value in "([{") - (value in ")]}")
            assigns = assigns or (value == "=" and not depth)
    return Tag(start, end, name, code[where - inner + len(name) :], assigns)
