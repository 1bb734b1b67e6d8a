"""Text of analysed files on its way to a reader: what a stranger wrote must not drive a terminal."""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]

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
