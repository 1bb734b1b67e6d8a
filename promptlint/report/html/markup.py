"""HTML as values: what is `Markup` is HTML already, every other text is escaped on its way in.

The pages are well-formed XML as well, so that a test can hold them to it, and no text of an analysed file can open or close anything.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from promptlint.report.escape import printable

__all__ = ["Markup", "escape", "join", "prose", "tag"]


class Markup(str):
    """Text that is HTML. Made by this module alone."""

    __slots__ = ()


def escape(text: str, *, keep: str = "") -> Markup:
    """Text as HTML that shows exactly these characters; controls, bidirectional overrides and lone surrogates as escapes, but those of `keep`."""
    return Markup(html.escape("".join(map(_allowed, printable(text, keep=keep)))))


def _allowed(char: str) -> str:
    """Noncharacters, which XML forbids, as escapes too."""
    code = ord(char)
    if code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
    return char


def join(parts: Iterable[Any]) -> Markup:
    """Parts one after the other: `Markup` as it is, other text escaped, None left out, lists taken apart."""
    return Markup("".join(_parts(parts)))


def _parts(parts: Iterable[Any]) -> Iterable[str]:
    for part in parts:
        if part is None:
            continue
        if isinstance(part, Markup):
            yield part
        elif isinstance(part, str):
            yield escape(part)
        else:
            yield from _parts(part)


def tag(_name: str, *children: Any, **attributes: Any) -> Markup:
    """An element. Attribute names: an underscore at the end is dropped, others become hyphens (`class_`, `aria_label`); None leaves one out."""
    spelled = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = join(children)
    begin = "\n" if _name in _OWN_LINE else ""
    if not inner and _name in _VOID:
        return Markup(f"{begin}<{_name}{spelled} />")
    return Markup(f"{begin}<{_name}{spelled}>{inner}</{_name}>")


def prose(text: str) -> Markup:
    """A sentence of ours in which code stands between backticks, as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is without its partner, so it is no quote
        return escape(text)
    return join(tag("code", part) if index % 2 else part for index, part in enumerate(parts))


_VOID = frozenset({"meta", "rect", "line", "circle"})
_OWN_LINE = frozenset(
    [
        "article",
        "details",
        "dl",
        "footer",
        "h1",
        "h2",
        "h3",
        "header",
        "li",
        "main",
        "meta",
        "nav",
        "p",
        "pre",
        "section",
        "style",
        "table",
        "title",
        "tr",
    ]
)  # where a line feed ahead changes nothing for the reader of the page, and helps who reads its source
