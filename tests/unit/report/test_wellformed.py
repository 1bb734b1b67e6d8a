"""Whatever text an analysed file holds, each format stays well-formed and says nothing of its own."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from desk_project import promptlint
from html_reader import read
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator
from report_sample import everything, finding, report

from promptlint.advisor.diagnose.model import Diagnosis, Divergence, Likely
from promptlint.config import FORMATS
from promptlint.report import advise, diagnose, render, simulate, traffic
from promptlint.report import text as text_report
from promptlint.report.advise import Advice, ReasonRow, Reordering, StructuredRow, VerdictRow
from promptlint.report.escape import markdown, printable
from promptlint.report.model import BaselineItem, KnownItem, Place, Summary, UnsupportedItem
from promptlint.traffic.read import Problem
from promptlint.traffic.stats import Stats

HOSTILE = st.sampled_from(
    ["\x1b[31mred", "\u202ereversed", "::error::x", "%0A::stop-commands::x", "]]>", "<script>", "<!-- promptlint -->", "@everyone", "#1",
     "| a | b |", "`code`", "![x](http://evil)", "www.evil.example", "\ud800", "\ufffe", "\r\n", "&amp;", "--\n::warning::", "\u2028", "\x00", "GH-1", "gh-22", "org/repo#3", "[link](http://evil)", "{0}", "\t", "<!-- promptlint-comment id=promptlint run=9.9 -->",
     "##[error]x", "</details>", "javascript:alert(1)", "\U000e0041", "a" * 3000]
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


SARIF = Draft4Validator(
    json.loads((Path(__file__).parents[2] / "fixtures" / "sarif" / "sarif-schema-2.1.0.json").read_text("utf-8"))
)
URI = re.compile(r"(?!//)(?:[A-Za-z0-9._~/-]|%[0-9A-F]{2})+")
INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def strings(value, key=""):
    """Every text in a JSON value, with the key that it stands under."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from strings(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item, key)
    elif isinstance(value, str):
        yield key, value


def invisible(text):
    return {unicodedata.category(char) for char in set(text) - {"\n"}} & INVISIBLE


def reported(found, path, reason):
    return report(
        *found,
        unsupported=(UnsupportedItem(path or "x", 1, reason),),
        baseline=BaselineItem(1, (KnownItem("f", reason, path, reason),)),
        summary=Summary(1, 1, 1, 1, 0, 0, {"high": len(found), "medium": 0, "low": 0}, 0),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(FINDINGS, max_size=2), TEXT, TEXT)
def test_every_format_is_well_formed(found, path, reason):
    whole = reported(found, path, reason)
    rendered = {form: render(whole, form) for form in FORMATS}
    for form in ("json", "gitlab", "sarif", "rdjson"):
        json.loads(rendered[form])
    messages = [
        text
        for form in ("gitlab", "rdjson")
        for key, text in strings(json.loads(rendered[form]))
        if key in ("description", "message")
    ]
    log = json.loads(rendered["sarif"])
    if len(found) == 2:  # the large schema takes a while
        SARIF.validate(log)
    for key, text in strings(log["runs"][0]):
        if key == "uri":
            assert URI.fullmatch(text), text
        elif key == "text":
            messages.append(text)
            assert "](" not in text
    assert not any(invisible(text) for text in messages)
    assert not invisible(text_report.show(whole) + text_report.statistics(whole))
    assert all(rendered[form].isascii() for form in ("json", "json-lines", "gitlab", "sarif", "rdjson"))
    assert len(rendered["json-lines"].splitlines()) == len(found)
    assert all(json.loads(line) for line in rendered["json-lines"].splitlines())
    assert len(list(fromstring(rendered["junit"]).iter("failure"))) == len(found)
    read(rendered["html"])
    commands = rendered["github"].split("\n")
    assert len(commands) == len(found) + 1
    assert all(re.match(r"::(error|warning|notice) title=", command) for command in commands[:-1])
    for form in ("full", "concise", "github", "junit", "markdown", "html"):
        assert not invisible(rendered[form]), form
    assert sum(line.startswith("| ") for line in rendered["markdown"].split("\n")) == len(found) + bool(found)


@given(TEXT)
def test_markdown_renders_as_the_text_itself(text):
    import html

    safe = markdown(text)
    rendered = html.unescape(safe)
    assert rendered.replace("\u200b", "") == printable(text)
    assert not re.search(r"[@#]\w|\bgh-\d", rendered, re.IGNORECASE)
    assert not set(re.sub(r"&#\d+;", "", safe)) & set("<>@`|*_[]!~&")


@given(st.text())
def test_printable_is_printable_and_keeps_ordinary_text(text):
    safe = printable(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in safe)
    if text.isprintable():
        assert safe == text or "\u00ad" in text


@pytest.mark.parametrize("whole", [everything(), report()])
def test_sarif_follows_the_schema_of_oasis(whole):
    SARIF.validate(json.loads(render(whole, "sarif")))
    spoiled = json.loads(render(everything(), "sarif"))
    spoiled["runs"][0]["results"][0]["level"] = "fatal"
    assert not SARIF.is_valid(spoiled)


def test_sarif_of_the_example_follows_it_too():
    done = promptlint(
        "check", "examples/support_bot", "--no-cache", "--output-format", "sarif", cwd=Path(__file__).parents[3]
    )
    log = json.loads(done.stdout)
    SARIF.validate(log)
    assert len(log["runs"][0]["results"]) == 3
    assert all(result["codeFlows"] and result["partialFingerprints"] for result in log["runs"][0]["results"])
    assert all(rule["help"]["markdown"] for rule in log["runs"][0]["tool"]["driver"]["rules"])


HOSTILE_FIVE = st.lists(TEXT, min_size=5, max_size=5)


@settings(max_examples=40, deadline=None)
@given(HOSTILE_FIVE)
def test_the_other_commands_print_text_as_text(words):
    one, two, three, four, five = words
    advice = Advice(
        one,
        (VerdictRow(one, two, "vllm", "measure-first", "rule", "x" + three, (ReasonRow("hit_rate", four, "unit", five),), (one,), (two,), "bench"),),
        (),
        (),
        (Reordering(one, (two,), (three,), 0.1, 0.9, 3.0, None, four, (five,), one, two),),
        {"profile": one, "traffic": (two, three)},
        ("rule",),
        ({"cause": one, "why": two, "confirm_with": three},),
        (four,),
        (StructuredRow(one, two, 0.1, 0.2, three),),
    )  # fmt: skip
    for text in (advise.to_text(advice), advise.record(advice, "2026-01-01")):
        assert not invisible(text.replace("\t", ""))
    table = [line for line in advise.record(advice, "2026-01-01").splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 5 for line in table)
    assert json.loads(advise.to_json(advice))["verdicts"][0]["pool"] == one
    diverged = Divergence(2, one, 1, two, 3, 4, 5, "text-drift", three, four, five, 9, one, two, None, three)
    found = Diagnosis(2, 10, 5, 1, "o200k_base", [diverged], [], [Likely(one, two, three)])
    for text in (diagnose.to_text(found), diagnose.shared_page(found)):
        assert not invisible(text.replace("\u200b", ""))
    assert len([line for line in diagnose.shared_page(found).splitlines() if line.startswith("| 2 ")]) == 1
    json.loads(diagnose.to_json(found, [Problem(one, 1, two, three)]))
    replayed = simulate.SimulateReport(
        "sglang", "1", 1, None, None, "driver", "all", 2, 4, 2, 2, 0.5, 0.5, 0.5, 0,
        groups=(simulate.GroupRow("call_site", one, 1, 2, 1, 0.5), simulate.GroupRow("model", two, 1, 2, 1, 0.5)), settings={"page": three},
    )  # fmt: skip
    assert not invisible(simulate.text(replayed))
    logged = Stats(2, 2, Counter(openai=2), Counter({one: 1, two: 1}), settings=[{"model": three, four: five}])
    assert not invisible(traffic.to_text(logged, [], 0))
    json.loads(traffic.to_json(logged, [Problem(one, 1, two, three)], 0))
