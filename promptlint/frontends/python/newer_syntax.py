"""Files written in syntax that the running Python refuses (3.12 to 3.14, while promptlint runs under 3.11).

libcst says whether the file is Python at all. Then every construct that `ast` refuses is overwritten by an older one *of the same extent*, so
that the parser's places stay true: an f-string becomes a plain literal (the interpreter reads its parts from the source again, where they
still stand), type parameters and the keyword of a `type` statement become blanks, the names of an `except` without brackets shrink to the first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from promptlint.frontends.python.literals import strings_and_comments

__all__ = ["parse_newer"]

_ASCII = re.compile(r"[\x00-\x09\x0b\x0c\x0e-\x7f]")  # other characters stay, or columns in bytes would shift
_PARAMETERS = re.compile(r"^([ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+\w+)[ \t]*\[", re.MULTILINE)
_ALIAS = re.compile(r"^([ \t]*)type([ \t]+\w+[ \t]*)(\[|=)", re.MULTILINE)
_EXCEPT = re.compile(r"^[ \t]*except[ \t]+[\w.]+([ \t]*,[^:()\n]+):", re.MULTILINE)
_BRACKET = re.compile(r"[][(){}]")
MAX_BRACKETS = 200  # nested ones; CPython's own limit


# Strings in slots of strings, deeper than anybody writes them: libcst takes twice as long for each level.
_DEEP = re.compile(r"(?:[fFtT][rR]?[\"'][^\"'{}\n]{0,40}\{\s{0,9}){12}")


def parse_newer(text: str) -> ast.Module | None:
    """The tree of a file in newer syntax; None when libcst refuses it too, or when it holds a construct that has no older shape."""
    if _DEEP.search(text) or _nested_too_deeply(text):
        return None
    shown = _without_formatted(text)
    masked = _masked(shown)
    for pattern, blank in ((_PARAMETERS, _brackets), (_ALIAS, _alias), (_EXCEPT, _exception)):
        for match in pattern.finditer(masked):
            shown = blank(shown, masked, match)
        masked = _masked(shown)
    try:
        tree = ast.parse(shown)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_python(text) else None


def _is_python(text: str) -> bool:
    """Whether libcst, which knows the newer grammars, takes the file. Brackets that 3.14 leaves out are its limit: those are taken on trust."""
    import libcst

    try:
        libcst.parse_module(text)
    except libcst.ParserSyntaxError:
        return bool(_EXCEPT.search(_masked(text)))
    return True


def _nested_too_deeply(text: str) -> bool:
    """Whether an f-string holds more nested brackets than Python allows outside of them: libcst has no limit, and would exhaust the stack."""
    for start, end in strings_and_comments(text):
        token = text[start:end]
        depth = 0
        for bracket in _BRACKET.finditer(token) if _is_formatted(token) else ():
            depth = max(depth + (1 if bracket.group() in "([{" else -1), 0)
            if depth > MAX_BRACKETS:
                return True
    return False


def _without_formatted(text: str) -> str:
    """The text with each f-string or template string as a plain literal of the same extent."""
    return _replaced(text, lambda token: _plain(token) if _is_formatted(token) else token)


def _replaced(text: str, new: Callable[[str], str]) -> str:
    """The text with another one in place of each string and comment."""
    pieces: list[str] = []
    at = 0
    for start, end in strings_and_comments(text):
        pieces += [text[at:start], new(text[start:end])]
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


def _is_formatted(token: str) -> bool:
    """Whether a string token, or a comment, is an f-string or a template string."""
    return bool({"f", "t"} & set(re.split("['\"#]", token, maxsplit=1)[0].lower()))


def _plain(literal: str) -> str:
    """A plain literal with the extent of another one: same lines, same columns."""
    if "\n" not in literal:
        return "'" + _ASCII.sub("_", literal[1:-1]) + "'"
    body = _ASCII.sub("_", literal)
    if len(body.split("\n")[0]) < 3 or len(body.split("\n")[-1]) < 3:
        # Too short for three quotes on a line: nothing older has this extent.
        return literal
    return "'''" + body[3:-3] + "'''"


def _masked(text: str) -> str:
    """The text with strings and comments blanked, so that a pattern finds code only."""
    return _replaced(text, lambda token: re.sub(r"[^\n\r]", "~", token))


def _blank(text: str, start: int, end: int) -> str:
    return text[:start] + re.sub(r"[^\n\r]", " ", text[start:end]) + text[end:]


def _brackets(text: str, masked: str, match: re.Match[str]) -> str:
    depth = 0
    for index in range(match.end() - 1, len(masked)):
        depth += {"[": 1, "]": -1}.get(masked[index], 0)
        if depth == 0:
            inside = text[match.end() - 1 : index + 1]
            # A class or def line goes on behind the bracket; lines inside it must go on too.
            return _blank(text, match.end() - 1, index + 1) if "\n" not in inside else text
    return text


def _alias(text: str, masked: str, match: re.Match[str]) -> str:
    start = match.end(1)
    text = text[:start] + "0;  " + text[start + 4 :]
    return _brackets(text, masked, match) if match.group(3) == "[" else text


def _exception(text: str, _masked_text: str, match: re.Match[str]) -> str:
    return _blank(text, match.start(1), match.end(1))
