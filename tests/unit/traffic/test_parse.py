"""Lines are parsed to what `json.loads` gives, errors included, whichever parser read them."""

from __future__ import annotations

import json
import sys

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptlint.traffic.parse import LineParser

ODD = [
    b'{"a": NaN, "b": [Infinity, -Infinity]}', b'{"a": "\\ud83d"}', b'{"a": "\\ud83d\\ude42"}', b'{"a": "\xed\xa0\xbd"}', b'{"a": 1, "b": 2, "a": 3}',
    b'{"a": 18446744073709551616, "b": -9223372036854775809}', b'{"a": 1e400}', b'{"a": -0, "b": -0.0, "c": 1E+2}', b'{"a": 01}', b'{"a": "\x01"}',
    b'{"a": "\t"}', b'{"a": 1} x', b'{"a": 1}\x00', b'{"a": [1,]}', b"{'a': 1}", b'{"a": "\xff"}', b'\xef\xbb\xbf{"a": 1}', b'{"a"', b"[1, 2]", b"3",
    b'{"a": ' + b"9" * 5000 + b"}", b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"\\u0061": 1, "a": 2}', b' {"a": "\\/\\u0000\xc2\xa0\xe2\x80\xa8"}\r',
]  # fmt: skip
PIECES = [b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\ud83d", b"1", b"-", b".", b"e", b"+", b"null", b"NaN", b" ", b"\n", b"\x00", b"\xc3\xa9", b"\xff", b"9" * 25]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def outcome(parse, data):
    try:
        return repr(parse(data))  # also the kinds of numbers and the order of keys
    except (ValueError, RecursionError) as error:
        return type(error), str(error)


def plain(data):
    return json.loads(data.decode("utf-8", "surrogatepass") if data[:1] == b"{" else data)


@pytest.fixture(scope="module")
def fast():
    parse = LineParser(0)
    parse(b"{}")
    assert parse._fast is not None
    return parse


@pytest.mark.parametrize("data", ODD, ids=lambda data: repr(data[:30]))
def test_odd_lines(fast, data):
    assert outcome(fast, data) == outcome(plain, data)


@settings(deadline=None, max_examples=300)
@given(VALUES, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2), st.sampled_from(PIECES)), max_size=3))
def test_damaged_lines(fast, value, damage):
    data = json.dumps({"value": value}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for at, gone, piece in damage:
        data = data[:at] + piece + data[at + gone :]
    assert outcome(fast, data) == outcome(plain, data)


def test_few_lines_load_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "msgspec", raising=False)
    parse = LineParser(100)
    assert parse(b'{"a": 1}') == {"a": 1}
    assert parse._fast is None
    assert "msgspec" not in sys.modules


def test_what_is_loaded_already_is_used_from_the_first_line_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "msgspec", msgspec)
    parse = LineParser(100)
    assert parse(b'{"a": 1}') == {"a": 1}
    assert parse._fast is not None
