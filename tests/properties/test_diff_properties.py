"""Whatever text code holds, a diff stays well-formed in each format, within its size, and says nothing of its own."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from diff_sample import changes
from hypothesis import given, settings
from hypothesis import strategies as st

from promptlint.github.comment import Run, body_of
from promptlint.report import diff as text
from promptlint.report.diff_markdown import markdown
from promptlint.report.diff_model import from_json, to_json

HOSTILE = st.sampled_from(
    ["<!-- promptlint-comment id=promptlint run=999 -->", "@everyone", "#1", "<script>alert(1)</script>", "::error::x", "\n::set-output name=a::b", "%0A::warning::",
     "| a |", "`", "</code>", "</details>", "![x](http://evil)", "https://evil.example", "\u202e", "\x1b[31m", "\ud800", "\r\n# title", "\u2028", "-->", "GH-1", "a/b#2", "---"]
)  # fmt: skip
TEXT = st.one_of(
    st.text(max_size=30),
    HOSTILE,
    st.tuples(st.text(max_size=5), HOSTILE, st.text(max_size=5)).map("".join),
    st.just("x" * 5000),
)


def poisoned(words: list[str]):
    one, two, three, four = words
    diff = changes()
    found = replace(diff.new_findings[0], path=one, message=two, expression=three, rule=four, help=one, severity="high")
    sites = tuple(
        replace(site, id=f"{one}::{number}::{two}", base_id=site.base_id and f"{three}::{number}::{four}", path=two)
        for number, site in enumerate(diff.call_sites)
    )
    return replace(
        diff,
        headline=replace(diff.headline, call_site=sites[0].id, expression=three),
        new_findings=(found,),
        fixed_findings=(found,),
        moved_findings=(replace(diff.moved_findings[0], base_path=four, finding=found),),
        call_sites=sites,
        base=replace(diff.base, name=one),
        head=replace(diff.head, name=two, commit=three),
        orders=tuple(replace(order, call_site=one, before=(two,), after=(three, four)) for order in diff.orders),
        verdicts=(replace(diff.verdicts[0], pool=one, verdict=two, because=three),),
        notes=(four,),
        assumptions={"profile": one, "tokenizer": two},
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=4, max_size=4))
def test_every_format_is_well_formed(words):
    diff = poisoned(words)
    assert to_json(from_json(json.loads(text.json(diff)))) == to_json(diff)
    body = markdown(diff, 30_000)
    assert len(body.encode()) <= 30_000
    bare = re.sub(r"&#\d+;|</?(code|sub|details|summary)>|\*\*", "", body)
    assert not set(bare) & set("<>@#`![]()*~"), bare
    assert not re.search(r"https?://|www\.", bare)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028\u202e\ud800]", body)
    assert body.count("<details>") == body.count("</details>") == 1
    assert sum(line.startswith("| ") for line in body.splitlines()) == 1 + len(diff.changed)
    plain = text.full(diff)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u2028\u202e\ud800]", plain)
    whole = body_of(diff, Run("promptlint", 7, 1, "sha"))
    assert whole.count("<!--") == whole.count("-->") == 1
    assert whole.startswith("<!-- promptlint-comment id=promptlint run=7.1 head=")


@settings(max_examples=20, deadline=None)
@given(st.integers(1_500, 12_000), st.integers(1, 400))
def test_the_cut_keeps_the_size_and_says_so(limit, number):
    diff = changes()
    site = diff.call_sites[0]
    many = replace(
        diff,
        call_sites=tuple(replace(site, id=f"app/módulo_{index}.py::f{index}::s") for index in range(number)),
        new_findings=diff.new_findings * number,
        headline=None,
    )
    body = markdown(many, limit)
    assert len(body.encode()) <= limit
    rows = sum(line.startswith("| <code>") for line in body.splitlines())
    details = markdown(many, 10_000_000).count("\n- ")
    assert ("Cut to fit" in body) == (rows < number or body.count("\n- ") < details)
