"""Whatever text an analysed file holds, each format stays well-formed and says nothing of its own."""

from __future__ import annotations

import json
import re
import unicodedata
from xml.etree.ElementTree import fromstring

from hypothesis import given, settings
from hypothesis import strategies as st
from report_sample import finding, report

from promptlint.config import FORMATS
from promptlint.report import render
from promptlint.report.escape import markdown, printable
from promptlint.report.model import Place, Summary, UnsupportedItem

HOSTILE = st.sampled_from(
    ["\x1b[31mred", "\u202ereversed", "::error::x", "%0A::stop-commands::x", "]]>", "<script>", "<!-- promptlint -->", "@everyone", "#1",
     "| a | b |", "`code`", "![x](http://evil)", "www.evil.example", "\ud800", "\ufffe", "\r\n", "&amp;", "--\n::warning::", "\u2028", "\x00"]
)  # fmt: skip
TEXT = st.one_of(
    st.text(max_size=20), HOSTILE, st.tuples(st.text(max_size=5), HOSTILE, st.text(max_size=5)).map("".join)
)
FINDINGS = st.builds(
    lambda path, message, expression, note, source, column, width: finding(
        path=path or "x",
        message=message,
        expression=expression,
        trace=(Place(path or "x", 1, 1, note),),
        related=(Place(path or "x", 2, 1, note, note),),
        source=source,
        column=column,
        end_column=column + width,
    ),
    TEXT, TEXT, TEXT, TEXT, TEXT, st.integers(1, 30), st.integers(0, 30),
)  # fmt: skip


def reported(found, path, reason):
    return report(
        *found,
        unsupported=(UnsupportedItem(path or "x", 1, reason),),
        summary=Summary(1, 1, 1, 1, 0, 0, {"high": len(found), "medium": 0, "low": 0}, 0),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(FINDINGS, max_size=2), TEXT, TEXT)
def test_every_format_is_well_formed(found, path, reason):
    whole = reported(found, path, reason)
    rendered = {form: render(whole, form) for form in FORMATS}
    for form in ("json", "gitlab", "sarif", "rdjson"):
        json.loads(rendered[form])
    assert len(rendered["json-lines"].splitlines()) == len(found)
    assert all(json.loads(line) for line in rendered["json-lines"].splitlines())
    assert len(list(fromstring(rendered["junit"]).iter("failure"))) == len(found)
    commands = rendered["github"].split("\n")
    assert len(commands) == len(found) + 1
    assert all(re.match(r"::(error|warning|notice) title=", command) for command in commands[:-1])
    for form in ("full", "concise", "github", "junit", "markdown"):
        assert not {unicodedata.category(char) for char in set(rendered[form]) - {"\n"}} & {
            "Cc",
            "Cf",
            "Cs",
            "Zl",
            "Zp",
        }, form
    assert sum(line.startswith("| ") for line in rendered["markdown"].split("\n")) == len(found) + bool(found)


@given(TEXT)
def test_markdown_renders_as_the_text_itself(text):
    import html

    safe = markdown(text)
    assert html.unescape(safe).replace("@\u200b", "@").replace("#\u200b", "#") == printable(text)
    assert not set(re.sub(r"&#\d+;", "", safe)) & set("<>@`|*_[]!~&")


@given(st.text())
def test_printable_is_printable_and_keeps_ordinary_text(text):
    safe = printable(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in safe)
    if text.isprintable():
        assert safe == text or "\u00ad" in text
