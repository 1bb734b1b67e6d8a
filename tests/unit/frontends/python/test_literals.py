"""Parts of string literals and their places."""

from __future__ import annotations

import pytest

from promptlint.frontends.python.literals import Literal, Slot, scan, string_end
from promptlint.source import SourceFile


def parts(text: str) -> list[tuple[str, str]]:
    source = SourceFile("x.py", text)
    found = scan(source, 0, len(text))
    assert found is not None
    return [("text", part.value) if isinstance(part, Literal) else ("slot", part.expression(source)) for part in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'plain'", [("text", "plain")]),
        ("'a' \"b\"  # note\n 'c'", [("text", "a"), ("text", "b"), ("text", "c")]),
        (r"'line\n\x41\N{BULLET}'", [("text", "line\nA•")]),
        (r"r'\n{'", [("text", r"\n{")]),
        ("f'{{a}} {b!r:>{w}} c'", [("text", "{a} "), ("slot", "b"), ("text", " c")]),
        ("f'{x[\"k\"]}{y:{z}}'", [("slot", 'x["k"]'), ("slot", "y")]),
        ('f\'{d["a" + "}"]} end\'', [("slot", 'd["a" + "}"]'), ("text", " end")]),
        ("f'{a != b}{c:=^9}'", [("slot", "a != b"), ("slot", "c")]),
        ("f'{name=}'", [("text", "name="), ("slot", "name")]),
        ("f'{user['name']}'", [("slot", "user['name']")]),
        ("rf'\\d{x}'", [("text", "\\d"), ("slot", "x")]),
        ("f'''one\n{(lambda v: v)(1)}\n'''", [("text", "one\n"), ("slot", "(lambda v: v)(1)"), ("text", "\n")]),
        ("'''a\\\nb'''", [("text", "ab")]),
        ("'a\\'b'", [("text", "a'b")]),
    ],
)
def test_parts(text: str, expected: list[tuple[str, str]]) -> None:
    assert parts(text) == expected


def test_carriage_returns_spell_a_line_end_without_the_promise() -> None:
    (part,) = scan(SourceFile("x.py", "'''a\r\nb'''"), 0, 10) or ()
    assert isinstance(part, Literal)
    assert part.value == "a\nb"
    assert not part.map.span(0, 3).exact
    assert part.map.span(2, 3).exact


def test_a_slot_stands_on_its_own_line() -> None:
    source = SourceFile("x.py", "f'''first\nsecond {value}\n'''")
    slot = next(part for part in scan(source, 0, len(source.text)) or () if isinstance(part, Slot))
    assert source.place(slot.start) == (2, 8)


@pytest.mark.parametrize("text", ["'open", "f'{a'", "f'{a!x}'", "name", "f'{)}'"])
def test_what_is_no_literal_is_refused(text: str) -> None:
    assert scan(SourceFile("x.py", text), 0, len(text)) is None


def test_the_end_of_a_token_with_nested_quotes() -> None:
    text = 'f"{user["name"]}" + rest'
    assert string_end(text, 0) == 17
    assert string_end("'open", 0) is None
