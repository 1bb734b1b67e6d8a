"""Places and positions, in every encoding that a client may ask for."""

import pytest

types = pytest.importorskip("lsprotocol.types", reason="pygls is not installed")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from promptlint.lsp.positions import Positions  # noqa: E402
from promptlint.source import SourceFile  # noqa: E402

TEXTS = st.text(st.sampled_from("a\t é漢😀\x0c\u2028\r\n"), max_size=60)
ENCODINGS = st.sampled_from(["utf-8", "utf-16", "utf-32"])


@given(TEXTS, ENCODINGS, st.data())
def test_there_and_back(text, encoding, data):
    source = SourceFile("a.py", text)
    positions = Positions(source, encoding)
    line = data.draw(st.integers(1, len(source.starts)))
    column = data.draw(st.integers(1, len(source.line_text(line)) + 1))
    assert positions.place(positions.position(line, column)) == (line, column)


@given(TEXTS, ENCODINGS, st.integers(0, 80), st.integers(0, 80))
def test_what_lies_outside_is_moved_inside(text, encoding, line, character):
    source = SourceFile("a.py", text)
    found, column = Positions(source, encoding).place(types.Position(line, character))
    assert 1 <= found <= len(source.starts)
    assert 1 <= column <= len(source.line_text(found)) + 1


@pytest.mark.parametrize(("encoding", "units"), [("utf-8", 7), ("utf-16", 4), ("utf-32", 3)])
def test_units(encoding, units):
    """A face and an accented letter: 4 + 2 bytes, 2 + 1 units of 16 bits, one character each."""
    source = SourceFile("a.py", "x\r\n😀éz")
    assert Positions(source, encoding).position(2, 4) == types.Position(1, units)


def test_a_form_feed_ends_no_line():
    assert Positions(SourceFile("a.py", "a\x0cb\nc")).position(1, 3) == types.Position(0, 2)
