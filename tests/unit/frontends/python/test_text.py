"""Operations on texts compute what Python computes, and keep the places."""

from __future__ import annotations

import string
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptlint.frontends.python.text import Field, Texts, choose, dollar_fields, format_fields, percent_fields
from promptlint.ir import Choice, Confidence, Guard, Text, Volatility
from promptlint.source import SourceFile, Span


def whole(value: str) -> tuple[Texts, Text]:
    texts = Texts()
    source = SourceFile("x.txt", value)
    return texts, texts.literal(value, source.map())


def spelled(texts: Texts, segments: tuple[object, ...]) -> str:
    for segment in segments:
        assert isinstance(segment, Text)
        if segment.span.exact:
            assert texts.sources[segment.span.path].slice(segment.span) == segment.value
    return "".join(segment.value for segment in segments if isinstance(segment, Text))


LINES = st.text(alphabet=" \tab\n", max_size=30)


@given(LINES)
def test_dedent(value: str) -> None:
    texts, text = whole(value)
    assert spelled(texts, texts.dedent((text,) if value else ())) == textwrap.dedent(value)


@given(LINES)
def test_strip(value: str) -> None:
    texts, text = whole(value)
    assert spelled(texts, texts.strip((text,) if value else ())) == value.strip()


@given(st.lists(st.sampled_from(["a", "{{", "}}", "{x}", "{y!r}", "\n", " "]), max_size=12))
def test_format(pieces: list[str]) -> None:
    value = "".join(pieces)
    texts, text = whole(value)

    def fill(field: Field, span: Span, count: int) -> tuple[Text, ...]:
        shown = {"x": "X", "y": "'Y'"}[field.name]
        return (Text(shown, span.inexact()),)

    assert spelled(texts, texts.fill((text,) if value else (), format_fields, fill)) == value.format(x="X", y="Y")


@given(st.lists(st.sampled_from(["a", "%%", "%s", "%(k)s", " "]), max_size=10))
def test_percent(pieces: list[str]) -> None:
    names = [field.name for field in percent_fields("".join(pieces)) if isinstance(field, Field)]
    assert names == [{"%s": "", "%(k)s": "k"}[piece] for piece in pieces if piece in {"%s", "%(k)s"}]


@given(st.lists(st.sampled_from(["a", "$$", "${x}", "$x ", " "]), max_size=10))
def test_dollar(pieces: list[str]) -> None:
    value = "".join(pieces)
    result = "".join("X" if isinstance(found, Field) else value[found[0] : found[1]] for found in dollar_fields(value))
    assert result == string.Template(value).substitute(x="X")


def test_a_marker_is_a_slot() -> None:
    texts, text = whole("one <m> two <m>.")
    new = (Text("N", Span("x.txt", 1, 1, 1, 2, exact=False)),)
    segments, count = texts.replace((text,), "<m>", new)
    assert count == 2
    assert spelled(texts, segments) == "one N two N."


def test_a_choice_shares_its_ends() -> None:
    span = Span("x", 1, 1, 1, 2, exact=False)
    guard = Guard("c", span, Volatility.REQUEST, Confidence.LOW)
    head, tail, extra = (Text(word, span) for word in ("head", "tail", "extra"))
    assert choose(guard, [(head, extra, tail), (head, tail)], span) == (head, Choice(guard, ((extra,), ()), span), tail)
    assert choose(guard, [(head,), (head,)], span) == (head,)


@pytest.mark.parametrize("value", ["{", "}", "{a", "a}", '{"json": 1}'])
def test_a_brace_that_opens_no_slot_is_text(value: str) -> None:
    kept = "".join(value[found[0] : found[1]] for found in format_fields(value) if isinstance(found, tuple))
    assert kept == value or '"json"' in value
