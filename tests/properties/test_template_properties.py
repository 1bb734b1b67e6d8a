"""Templates and data files that hypothesis makes up: places never lie, and nothing but a broken template is refused."""

from __future__ import annotations

import json

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from promptlint.frontends import slots
from promptlint.frontends.jinja import BrokenTemplateError, read_template
from promptlint.frontends.scalars import json_strings, yaml_strings
from promptlint.ir import Choice, Hole, Repeat, Segment, Text, text_of
from promptlint.source import SourceFile

WORDS = st.sampled_from(
    ["a", "Be kind.", " ", "\n", "\r\n", "  \n ", "{", "}", "é", "😀", "%", "$x", "#", "{remaining}"]
)
NAMES = st.sampled_from(
    ["x", "question", "user.name", "docs[0]", "now()", "tools | join(', ')", "'lit' ~ x", "x if y else 'n'"]
)
MARK = st.sampled_from(["", "-"])


@st.composite
def outputs(draw: st.DrawFn) -> str:
    return "{{" + draw(MARK) + " " + draw(NAMES) + " " + draw(MARK) + "}}"


def blocks(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, max_size=3).map("".join)
    return st.one_of(
        st.builds("{{% if x {}%}}{}{{%{} else %}}{}{{% endif %}}".format, MARK, several, MARK, several),
        st.builds("{{%{} for i in docs %}}{}{{% endfor {}%}}".format, MARK, several, MARK),
        st.builds("{{% set v %}}{}{{% endset {}%}}{{{{ v }}}}".format, several, MARK),
        st.builds("{{#{} note -#}}".format, MARK),
        st.builds("{{% raw %}}{{{{ x }}}}{}{{% endraw %}}".format, st.sampled_from(["", " {% if %}"])),
    )


templates = st.lists(st.recursive(st.one_of(WORDS, outputs()), blocks, max_leaves=8), max_size=6).map("".join)


@given(templates)
@settings(max_examples=150, deadline=None)
def test_a_jinja_text_stands_where_its_span_says(text: str) -> None:
    source = SourceFile("t.j2", text)
    try:
        segments = read_template(text, source.map())
    except BrokenTemplateError:
        return
    for part in text_of(segments):
        assert part.value
        if part.span.exact:
            assert source.slice(part.span) == part.value


@given(templates, st.sampled_from([True, False]))
@settings(max_examples=100, deadline=None)
def test_fixed_text_is_what_jinja_renders(text: str, shown: bool) -> None:
    """With every name a constant and every loop run once, the segments spell the rendering."""
    import jinja2

    values = {
        "x": "X" if shown else "",
        "y": shown,
        "question": "Q",
        "user": {"name": "N"},
        "docs": ["D"],
        "tools": ["T"],
        "now": lambda: "NOW",
    }
    printed = {
        "x": values["x"],
        "question": "Q",
        "user.name": "N",
        "docs[0]": "D",
        "now()": "NOW",
        "tools | join(', ')": "T",
        "i": "D",
    }
    try:
        segments = read_template(text, SourceFile("t.j2", text).map())
        expected = jinja2.Environment().from_string(text).render(values)
    except (BrokenTemplateError, jinja2.TemplateSyntaxError):
        return

    def spell(parts: tuple[Segment, ...]) -> str:
        found = ""
        for part in parts:
            if isinstance(part, Text):
                found += part.value
            elif isinstance(part, Hole):
                found += printed[part.expression if part.expression in printed else part.name]
            elif isinstance(part, Choice):
                found += spell(part.arms[0 if shown else 1])
            elif isinstance(part, Repeat):
                found += spell(part.body)
        return found

    assert spell(segments) == expected


@given(st.lists(st.one_of(WORDS, st.sampled_from(["{x}", "{y.z}", "{{", "}}", "{q!r}"])), max_size=8).map("".join))
def test_format_pieces_cover_the_text(text: str) -> None:
    try:
        pieces = slots.parse(text, "format")
    except slots.BadTemplateError:
        try:
            list(__import__("string").Formatter().parse(text))
        except ValueError:
            return
        raise
    at = 0
    for piece in pieces:
        assert piece.start == at
        at = piece.end
    assert at == len(text)


strings = st.text(st.sampled_from(list("ab {}:#-'\"\\\n\té😀,[]")), max_size=30)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.one_of(strings, st.lists(strings, max_size=3))),
    st.sampled_from([None, "|", ">", '"', "'"]),
    st.integers(20, 60),
)
@settings(max_examples=150, deadline=None)
def test_strings_of_data_files_are_mapped(data: dict[str, object], style: str | None, width: int) -> None:
    for text, read in (
        (json.dumps(data, indent=1), json_strings),
        (yaml.safe_dump(data, default_style=style, width=width, allow_unicode=True), yaml_strings),
    ):
        source = SourceFile("f", text)
        found = read(source)
        wanted = [value for item in data.values() for value in (item if isinstance(item, list) else [item])]
        assert sorted(string.value for string in found) == sorted(wanted)
        for string in found:
            at = 0
            for start, place, length, exact in string.where.runs:
                assert start == at
                at += length
                if exact:
                    assert text[place : place + length] == string.value[start:at]
            assert at == len(string.value)
