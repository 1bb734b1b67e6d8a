"""Text of analysed files on its way to a reader: what a stranger wrote must not drive a terminal."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["markdown", "printable"]

# Cc: controls (escape sequences begin with one). Cf: invisible formatting, among it the bidirectional overrides that make
# code read differently from what it is. Cs: lone surrogates, which no encoding can print. Zl, Zp: line ends in disguise.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str, *, keep: str = "") -> str:
    r"""`text` with every unprintable character but those of `keep` written as an escape (`\x1b`, `\u202e`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in keep or unicodedata.category(char) not in _UNPRINTABLE else _escape(char) for char in text
    )


def _escape(char: str) -> str:
    code = ord(char)
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# Everything that can begin markup within a line of GitHub's Markdown, in HTML, in a table, or in a link that is made from bare text.
_MARKUP = frozenset("\\`*_{}[]()<>#!|~&@:.$")
_ISSUE = re.compile(r"\b(gh)-(?=\d)", re.IGNORECASE)


def markdown(text: str) -> str:
    """`text` as Markdown that renders as exactly these characters. A mention or issue reference is broken by an invisible space, because
    GitHub looks for those in the rendered text, where an entity no longer protects.
    """
    whole = "".join(_entity(char) for char in printable(text))
    return _ISSUE.sub(r"\1&#45;&#8203;", whole)  # GH-1 is a reference to an issue, too


def _entity(char: str) -> str:
    if char not in _MARKUP:
        return char
    return f"&#{ord(char)};&#8203;" if char in "@#" else f"&#{ord(char)};"
