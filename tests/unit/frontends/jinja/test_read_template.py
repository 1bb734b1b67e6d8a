"""Jinja templates as segments."""

from __future__ import annotations

import pytest

from promptlint.frontends.jinja import BrokenTemplateError, read_template
from promptlint.frontends.slots import named_hole
from promptlint.ir import (
    BlockKind,
    Choice,
    Confidence,
    Growth,
    Hole,
    Repeat,
    Segment,
    Text,
    Volatility,
    holes_of,
    text_of,
)
from promptlint.source import SourceFile


def read(text: str, **options) -> tuple[Segment, ...]:
    source = SourceFile("t.jinja", text)
    segments = read_template(text, source.map(), **options)
    for part in text_of(segments):
        if part.span.path == "t.jinja" and part.span.exact:
            assert source.slice(part.span) == part.value
    return segments


def shape(segments: tuple[Segment, ...]) -> list:
    """A short form to compare: texts as they are, holes as their expression."""
    found: list = []
    for segment in segments:
        if isinstance(segment, Text):
            found.append(segment.value)
        elif isinstance(segment, Hole):
            found.append(("hole", segment.expression))
        elif isinstance(segment, Choice):
            found.append(("choice", segment.guard.expression, *(shape(arm) for arm in segment.arms)))
        elif isinstance(segment, Repeat):
            found.append(("repeat", segment.over.expression, shape(segment.body)))
    return found


def test_outputs_and_their_places() -> None:
    segments = read("Hi {{ user.name }},\n  {{question|trim}}!")
    assert shape(segments) == ["Hi ", ("hole", "user.name"), ",\n  ", ("hole", "question|trim"), "!"]
    first, second = holes_of(segments)
    assert (first.span.line, first.span.column, first.span.end_column) == (1, 4, 19)
    assert (second.span.line, second.span.column) == (2, 3)
    assert (first.volatility, second.volatility) == (Volatility.USER, Volatility.REQUEST)


def test_whitespace_control_and_line_ends() -> None:
    assert shape(read("a  {%- if x %}\n b {%- endif -%}\n c")) == ["a", ("choice", "x", ["\n b"], []), "c"]
    assert shape(read("a\n{% if x -%}\n  b\n{%- endif %}\n", trim_blocks=True)) == ["a\n", ("choice", "x", ["b"], [])]
    assert shape(read("a\r\nb {{ x }}\r\n")) == ["a\nb ", ("hole", "x")]
    hole = next(holes_of(read("a\r\nb {{ x }}\r\n")))
    assert (hole.span.line, hole.span.column) == (2, 3)


def test_raw_and_comments() -> None:
    assert shape(read("{# no #}{% raw %}{{ x }}{% endraw %}{remaining}")) == ["{{ x }}", "{remaining}"]


def test_elif_chains_nest() -> None:
    segments = read("{% if a %}1{% elif language %}2{% else %}3{% endif %}")
    assert shape(segments) == [("choice", "a", ["1"], [("choice", "language", ["2"], ["3"])])]
    inner = segments[0].arms[1][0]
    assert inner.guard.volatility is Volatility.PROCESS


def test_what_the_template_decides_is_decided() -> None:
    assert shape(read("{% set a = false %}{% if a %}1{% else %}2{% endif %}{% if 2 > 1 %}3{% endif %}")) == ["2", "3"]
    assert shape(read("{% for x in ['p', 'q'] %}{{ x }},{% endfor %}")) == ["p", ",", "q", ","]
    assert shape(read("{% macro m(x, n=2) %}{{ x }}*{{ n }}{% endmacro %}{{ m('a') }}{{ m('b', n=3) }}")) == [
        "a",
        "*",
        "2",
        "b",
        "*",
        "3",
    ]


def test_loops_repeat_and_items_change_as_their_list_does() -> None:
    segments = read("{% for d in documents %}{{ loop.index }}: {{ d.text }}\n{% endfor %}")
    repeat = segments[0]
    assert isinstance(repeat, Repeat)
    assert (repeat.over.expression, repeat.over.kind, repeat.growth) == ("documents", BlockKind.CONTEXT, Growth.FIXED)
    index, text = holes_of(repeat.body)
    assert (index.volatility, text.volatility) == (Volatility.STATIC, Volatility.REQUEST)


def test_a_history_appends_and_its_newest_message_does_not_last() -> None:
    segments = read(
        "{% for m in messages %}{{ m['content'] }}{% endfor %}{{ messages[-1].content }}{{ messages | length }}"
    )
    repeat, newest, count = segments
    assert (repeat.growth, repeat.over.kind) == (Growth.APPEND, BlockKind.HISTORY)
    assert newest.volatility is Volatility.TURN
    assert count.origins[0].kind == "counter"


@pytest.mark.parametrize(
    "over, growth",
    [
        ("history", Growth.APPEND),
        ("history[1:]", Growth.APPEND),
        ("history[-6:]", Growth.WINDOW),
        ("history | reverse", Growth.INSERT),
        ("history[::-1]", Growth.INSERT),
    ],
)
def test_how_a_history_grows(over: str, growth: Growth) -> None:
    (repeat,) = read(f"{{% for m in {over} %}}{{{{ m.content }}}}{{% endfor %}}")
    assert repeat.growth is growth


@pytest.mark.parametrize(
    "expression, kind, volatility",
    [
        ("now()", "clock", Volatility.REQUEST),
        ("now().strftime('%Y-%m-%d')", "clock", Volatility.DAY),
        ("now().strftime('%H:%M')", "clock", Volatility.REQUEST),
        ("strftime_now('%d %b %Y')", "clock", Volatility.DAY),
        ("strftime_now('%d %b %Y %H:%M')", "clock", Volatility.REQUEST),
        ("now().date()", "clock", Volatility.DAY),
        ("examples | random", "random", Volatility.REQUEST),
        ("states('sensor.door')", "state", Volatility.TURN),
        ("now() | timestamp_custom('%Y')", "setting", Volatility.PROCESS),
    ],
)
def test_sources(expression: str, kind: str, volatility: Volatility) -> None:
    (hole,) = read(f"{{{{ {expression} }}}}")
    assert (hole.origins[0].kind, hole.volatility, hole.confidence) == (kind, volatility, Confidence.HIGH)


@pytest.mark.parametrize(
    "filters, kinds",
    [
        ("join(', ')", ["unordered"]),
        ("sort | join", []),
        ("dictsort", []),
        ("list", ["unordered"]),
        ("length", ["unordered"]),
    ],
)
def test_barriers_stop_an_order(filters: str, kinds: list[str]) -> None:
    hole = named_hole("tags", SourceFile("a.py", "tags").span(0, 4))
    origin = hole.origins[0]
    unordered = type(origin)("unordered", Volatility.PROCESS, Confidence.HIGH, "set(x)", origin.span)
    bound = {"tags": (type(hole)("tags", hole.span, Volatility.PROCESS, Confidence.HIGH, (unordered,), "tags"),)}
    (segment,) = read(f"{{{{ tags | {filters} }}}}", bound=bound)
    assert [origin.kind for origin in segment.origins] == kinds


def test_bound_values_replace_slots() -> None:
    python = SourceFile("a.py", "RULES = 'Be kind.'")
    rules = Text("Be kind.", python.span(9, 17))
    who = named_hole("user_name", python.span(0, 5))
    segments = read(
        "{{ rules }} {{ u.name }} {{ u.age }} {{ other }}", bound={"rules": (rules,), "u.name": (who,), "u": (who,)}
    )
    assert segments[0] == rules
    assert [hole.origins[0].kind for hole in holes_of(segments)] == ["user", "user", "unknown"]
    filled = segments[2]
    assert [step.note for step in filled.steps] == ["fills {{ u.name }}"]


def test_other_templates() -> None:
    files = {
        "base.j2": SourceFile("base.j2", "A{% block body %}old{% endblock %}Z"),
        "part.j2": SourceFile("part.j2", "[{{ question }}]"),
        "lib.j2": SourceFile("lib.j2", "{% macro m(x) %}<{{ x }}>{% endmacro %}"),
        "loop.j2": SourceFile("loop.j2", "x{% include 'loop.j2' %}"),
    }
    load = files.get
    assert shape(read("{% extends 'base.j2' %}{% block body %}{{ super() }}new{% endblock %}", loader=load)) == [
        "A",
        "old",
        "new",
        "Z",
    ]
    assert shape(read("a {% include 'part.j2' %}", loader=load)) == ["a ", "[", ("hole", "question"), "]"]
    assert shape(
        read("{% from 'lib.j2' import m %}{% import 'lib.j2' as lib %}{{ m('a') }}{{ lib.m('b') }}", loader=load)
    ) == ["<", "a", ">", "<", "b", ">"]
    included = next(holes_of(read("a {% include 'part.j2' %}", loader=load)))
    assert included.span.path == "part.j2"
    assert [step.note for step in included.steps] == ["included here"]
    missing = read("{% include 'gone.j2' %}", loader=load)
    assert missing[0].confidence is Confidence.LOW
    assert len(shape(read("{% include 'loop.j2' %}", loader=load))) < 50


def test_a_template_that_includes_itself_twice_does_not_double_without_end() -> None:
    files = {"twice.j2": SourceFile("twice.j2", "{{ now() }}{% include 'twice.j2' %}{{ url }}{% include 'twice.j2' %}")}
    assert len(shape(read("{% include 'twice.j2' %}", loader=files.get))) < 50


def test_conditional_expressions_within_each_other_are_followed_to_a_depth() -> None:
    def depth(segments: tuple[Segment, ...]) -> int:
        return max((1 + max(map(depth, each.arms)) for each in segments if isinstance(each, Choice)), default=0)

    chain = " ".join(f"if x.a{n} else y.b{n}" for n in range(200))
    assert 20 < depth(read("{{ z " + chain + " }}")) <= 60
    assert depth(read("{{ a if b else c }} {{ a if b else c }}")) == 1


def test_what_a_loop_collects_is_a_repeat() -> None:
    segments = read(
        "{% set ns = namespace(t='Notes:') %}{% for c in chunks %}{% set ns.t = ns.t ~ c ~ ';' %}{% endfor %}{{ ns.t }}"
    )
    assert segments[0].value == "Notes:"
    assert isinstance(segments[1], Repeat)
    assert [h.expression for h in holes_of(segments[1].body)] == ["ns.t = ns.t ~ c ~ ';'"]


def test_optional_text_stays_optional() -> None:
    segments = read("{% set s = 'a' %}{% if x %}{% set s = s ~ 'b' %}{% endif %}{{ s }}{{ 'c' if y else 'd' }}")
    assert shape(segments) == ["a", ("choice", "x", ["b"], []), ("choice", "y", ["c"], ["d"])]


def test_what_a_name_is_compared_with_tells_what_it_is() -> None:
    for test, kind in (
        ('system == "Darwin"', "host"),
        ('system == "blue"', "unknown"),
        ('question == "Linux"', "request"),
    ):
        (choice,) = read("{% if " + test + " %}Use the other flag.{% endif %}")
        assert isinstance(choice, Choice)
        assert [origin.kind for origin in choice.guard.origins] == [kind]
    (choice,) = read("{% if system != 'Windows' %}Use the other flag.{% endif %}")
    assert isinstance(choice, Choice)
    assert (choice.guard.volatility, choice.guard.confidence) == (Volatility.PROCESS, Confidence.MEDIUM)


def test_unknown_tags_show_their_body() -> None:
    assert shape(read("{% generation %}a{% endgeneration %}{% custom %}b")) == ["a", "b"]


@pytest.mark.parametrize(
    "text, line",
    [("a\n{% if x %}", 2), ("{{ x", 1), ("{% endif %}", 1), ("\n\n{{ x + }}", 3), ("{% for %}{% endfor %}", 1)],
)
def test_broken_templates_are_refused_with_their_line(text: str, line: int) -> None:
    with pytest.raises(BrokenTemplateError) as caught:
        read(text)
    assert caught.value.line == line


def test_what_lies_beyond_the_parts_that_are_followed_is_told_of() -> None:
    segments = read("Say {{ x }}. " * 3_000)
    assert len(segments) == 4_001
    assert isinstance(segments[-1], Hole)
    assert segments[-1].expression == "text too large to follow"


@pytest.mark.parametrize(
    "text",
    [
        "{% set x='a' %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
        "{% set x=q %}" + "{% set x = x ~ x %}" * 60 + "{{ x }}",
        "{% set x=[1] %}" + "{% set x = x + x %}" * 60 + "{{ x }}",
        "{% set x %}a{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40 + "{{ x }}",
        "{% set x='a' %}"
        + "{% if a %}{% set x = x ~ '1' %}{% else %}{% set x = '2' ~ x ~ y %}{% endif %}" * 40
        + "{{ x }}",
        "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "{{ 'a' * 10000000000 }}{{ 9**9**9 }}",
        "{% for a in [1,2,3,4,5,6,7,8,9] %}" * 6 + "x" + "{% endfor %}" * 6,
    ],
)
def test_growth_is_bounded(text: str) -> None:
    assert len(read(text)) < 50_000
