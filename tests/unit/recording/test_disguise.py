"""Text in disguise: where two texts part stays the same, and nothing of a word can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptlint import tokenizers
from promptlint.recording.child._promptlint_recorder import disguise

ROOT = Path(__file__).parents[3]
KEY = b"0123456789abcdef"
WORDS = st.text(alphabet="abAB09 .-_\n\u00e4\u0436\u4e2d", max_size=40)


def common(a, b):
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@given(WORDS, WORDS)
def test_two_texts_part_at_the_same_character(a, b):
    assert common(disguise.text(a, KEY), disguise.text(b, KEY)) == common(a, b)


@given(WORDS)
def test_length_and_shape_stay(text):
    hidden = disguise.text(text, KEY)
    assert len(hidden) == len(text)
    classes = [r"[a-z]", r"[A-Z]", r"[0-9]", r"\s", r"[.\-_]"]
    for one in classes:
        assert [bool(re.match(one, c)) for c in hidden] == [bool(re.match(one, c)) for c in text]


def test_long_runs_differ_where_they_differ():
    picture = "iVBORw0KGgo" + "A" * 100_000
    other = picture[:-1] + "B"
    assert len(disguise.text(picture, KEY)) == len(picture)
    assert disguise.text(picture, KEY) != disguise.text(other, KEY)
    assert "AAAA" not in disguise.text(picture, KEY)[200:]


def test_another_key_another_disguise():
    assert disguise.text("Lisbon", KEY) != disguise.text("Lisbon", b"x" * 16) != "Lisbon"
    assert disguise.key_name(KEY) != disguise.key_name(b"x" * 16)


def test_labels_and_times_keep_their_shape():
    hidden = disguise.text("Date: Monday 2026-03-04T09:30:00Z, request id 7f3a9c2b", KEY)
    assert re.fullmatch(
        r"Date: Monday \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, request id \d[a-z]\d[a-z]\d[a-z]\d[a-z]", hidden
    )


def test_a_record_keeps_the_words_of_the_interface():
    row = {
        "timestamp": 1, "id": "a-1", "model": "gpt", "call_site": "app.py::ask", "prompt_cache_key": "tenant-lisbon", "temperature": 0.5,
        "tools": [{"type": "function", "function": {"name": "search", "description": "Find Lisbon", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}}}],
        "messages": [{"role": "system", "content": [{"type": "text", "text": "Lisbon", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
                     {"role": "user", "name": "lisbon", "content": "Lisbon"}],
        "recorded": {"library": "httpx"},
    }  # fmt: skip
    hidden = disguise.row(row, KEY)
    assert "lisbon" not in str(hidden).lower()
    assert hidden["call_site"] == "app.py::ask"
    assert hidden["tools"][0]["function"]["name"] == "search"
    assert hidden["tools"][0]["function"]["parameters"] == row["tools"][0]["function"]["parameters"]
    assert hidden["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert hidden["messages"][0]["content"][0]["text"] == hidden["messages"][1]["content"]
    assert hidden["recorded"] == {"library": "httpx", "disguised": disguise.key_name(KEY)}


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "CHANGELOG.md",
        "promptlint/app/check.py",
        "promptlint/schemas/check.json",
        "examples/support_bot/traffic.jsonl",
    ],
)
def test_disguised_text_is_counted_as_the_words_that_stood_there(name):
    text = (ROOT / name).read_text("utf-8")[:60_000]
    count = tokenizers.get(tokenizers.DISGUISED).count(disguise.text(text, KEY))
    assert count == pytest.approx(tokenizers.get("o200k_base").count(text), rel=0.1)
