"""Slots: where they stand, and that the text between them is kept."""

from __future__ import annotations

import pytest

from promptlint.frontends import slots
from promptlint.ir import BlockKind, Choice, Confidence, Hole, Repeat, Text, Volatility
from promptlint.source import SourceFile


def found(text: str, syntax: str) -> list[tuple[str, str]]:
    return [(text[slot.start : slot.end], slot.name) for slot in slots.slots(text, syntax)]


@pytest.mark.parametrize(
    "text, syntax, expected",
    [
        ("a {x} b {y.z}", "format", [("{x}", "x"), ("{y.z}", "y.z")]),
        (
            "{x!r:>{width}} {} {0} {rows[0].id}",
            "format",
            [("{x!r:>{width}}", "x"), ("{}", "0"), ("{0}", "0"), ("{rows[0].id}", "rows.id")],
        ),
        ('{{"k": {x}}}', "format", [("{x}", "x")]),
        ('{"k": {x}} {{y}}', "braces", [("{x}", "x")]),
        ("pay $5 for ${item} or $name, $$", "dollar", [("${item}", "item"), ("$name", "name")]),
        ("%(who)s has %d of 100%%", "percent", [("%(who)s", "who"), ("%d", "0")]),
        ("{{x}} {{{y}}} {{&z}} {{!no}}", "mustache", [("{{x}}", "x"), ("{{{y}}}", "y"), ("{{&z}}", "z")]),
    ],
)
def test_slots_are_found_with_their_places(text: str, syntax: str, expected: list[tuple[str, str]]) -> None:
    assert found(text, syntax) == expected


@pytest.mark.parametrize("text", ["{x", "x}", "{x!q}", "{{x}"])
def test_a_text_that_str_format_refuses_is_refused(text: str) -> None:
    with pytest.raises(slots.BadTemplateError):
        slots.parse(text, "format")
    assert slots.slots(text, "format") == ()


@pytest.mark.parametrize("text", ["{a}{b[0]} {{ }} {c.d!s:<5}", "{{}} {} and {}", "{x:%Y-%m-%d {tz}}"])
def test_pieces_agree_with_pythons_own_reading(text: str) -> None:
    import string

    expected = [(literal, name) for literal, name, _, _ in string.Formatter().parse(text)]
    names = [name for _, name in expected if name is not None]
    pieces = slots.parse(text, "format")
    assert [
        text[p.start : p.end].strip("{}").partition("!")[0].partition(":")[0]
        for p in pieces
        if isinstance(p, slots.Slot)
    ] == names
    assert "".join(p.value for p in pieces if isinstance(p, slots.Fixed)) == "".join(literal for literal, _ in expected)


@pytest.mark.parametrize(
    "text, syntax",
    [
        ("Answer {question}", "format"),
        ("{{ question }}", "jinja2"),
        ("{% if x %}a{% endif %}", "jinja2"),
        ("{{question}} alone", "jinja2"),
        ('Say {x} as {{"json": 1}}', "format"),
        ("{{task}} and {{ task }} but {remaining} stays", "jinja2"),
        ('{"a": 1} and {marker}', "braces"),
        ("Dear ${name}", "dollar"),
        ("Hello %(name)s", "percent"),
        ("run: ${{ secrets.TOKEN }}", None),
        ("nothing at all", None),
    ],
)
def test_the_syntax_is_guessed(text: str, syntax: str | None) -> None:
    assert slots.guess(text) == syntax


def test_segments_spell_their_source() -> None:
    source = SourceFile("p.txt", 'Rules: {{"a": 1}}\nNow {current_date}, ask {question}')
    segments = slots.read(source.text, source.map(), "format")
    for segment in segments:
        if isinstance(segment, Text) and segment.span.exact:
            assert source.slice(segment.span) == segment.value
    assert "".join(s.value for s in segments if isinstance(s, Text)) == 'Rules: {"a": 1}\nNow , ask '
    holes = [s for s in segments if isinstance(s, Hole)]
    assert [(h.name, h.volatility, h.span.line) for h in holes] == [
        ("current_date", Volatility.DAY, 2),
        ("question", Volatility.REQUEST, 2),
    ]
    assert holes[1].kind is BlockKind.QUESTION


def test_bound_values_fill_their_slots_and_leave_a_step() -> None:
    source = SourceFile("p.txt", "{a.b} {a.c} {d!r} {e:>4}")
    hole = slots.named_hole("user_name", source.span(0, 1))
    text = Text("xy", source.span(0, 0))
    segments = slots.read(
        source.text, source.map(), "format", bound={"a.b": (text,), "a": (hole,), "d": (hole,), "e": (text,)}
    )
    values = [s.value if isinstance(s, Text) else s.name for s in segments]
    assert values == ["xy", " ", "user_name", " ", "user_name", " ", "  xy"]
    filled = segments[2]
    assert isinstance(filled, Hole)
    assert [step.note for step in filled.steps] == ["fills {a.c}"]


def test_mustache_sections_keep_their_shape() -> None:
    source = SourceFile("p", "{{#chunks}}- {{text}}\n{{/chunks}}{{^tone}}plain{{/tone}}")
    segments = slots.read(source.text, source.map(), "mustache")
    assert isinstance(segments[0], Repeat)
    assert segments[0].over.volatility is Volatility.REQUEST
    assert isinstance(segments[1], Choice)
    with pytest.raises(slots.BadTemplateError):
        slots.read("{{#a}}x", SourceFile("p", "{{#a}}x").map(), "mustache")


@pytest.mark.parametrize(
    "name, origin, volatility, confidence",
    [
        ("question", "request", Volatility.REQUEST, Confidence.MEDIUM),
        ("user_question", "request", Volatility.REQUEST, Confidence.MEDIUM),
        ("user.name", "user", Volatility.USER, Confidence.MEDIUM),
        ("tenant_id", "tenant", Volatility.TENANT, Confidence.MEDIUM),
        ("conversation.id", "session", Volatility.SESSION, Confidence.MEDIUM),
        ("retrieved_chunks", "context", Volatility.REQUEST, Confidence.MEDIUM),
        ("current_date", "clock", Volatility.DAY, Confidence.MEDIUM),
        ("current_time", "clock", Volatility.REQUEST, Confidence.MEDIUM),
        ("due_date", "request", Volatility.REQUEST, Confidence.MEDIUM),
        ("remaining_steps", "counter", Volatility.TURN, Confidence.MEDIUM),
        ("page_state", "state", Volatility.TURN, Confidence.MEDIUM),
        ("max_questions", "setting", Volatility.PROCESS, Confidence.MEDIUM),
        ("language", "setting", Volatility.PROCESS, Confidence.MEDIUM),
        ("tool_names", "tools", Volatility.PROCESS, Confidence.MEDIUM),
        ("chat_history", "history", Volatility.SESSION, Confidence.MEDIUM),
        ("x", "unknown", Volatility.REQUEST, Confidence.LOW),
        ("name", "unknown", Volatility.REQUEST, Confidence.LOW),
        ("candidate_resolution", "unknown", Volatility.REQUEST, Confidence.LOW),
    ],
)
def test_names_speak(name: str, origin: str, volatility: Volatility, confidence: Confidence) -> None:
    hole = slots.named_hole(name, SourceFile("p", "").span(0, 0))
    assert (hole.origins[0].kind, hole.volatility, hole.confidence) == (origin, volatility, confidence)
