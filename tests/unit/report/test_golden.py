"""Exact output of each format for a report that holds everything."""

from __future__ import annotations

import json

import pytest
from report_sample import everything, finding, report

from promptlint.config import FORMATS
from promptlint.report import model, render, text

SUFFIX = {
    "json": "json",
    "json-lines": "jsonl",
    "gitlab": "json",
    "sarif": "sarif",
    "rdjson": "json",
    "junit": "xml",
    "markdown": "md",
}
LINTED = [form for form in FORMATS if form != "html"]  # test_html has the pages


@pytest.mark.parametrize("form", LINTED)
def test_formats(form, golden):
    golden(f"report/{form}.{SUFFIX.get(form, 'txt')}", render(everything(), form))


@pytest.mark.parametrize("form", ["full", "concise"])
def test_colors(form, golden):
    golden(f"report/{form}-color.txt", render(everything(), form, color=True))


def test_show(golden):
    golden("report/show.txt", text.show(everything()))


def test_statistics(golden):
    golden("report/statistics.txt", text.statistics(everything()))


def test_renderers_do_not_change_when_asked_twice():
    both = everything()
    assert all(render(both, form) == render(both, form) for form in FORMATS)


def test_dump_and_load_are_inverse():
    dumped = json.loads(json.dumps(model.dump(everything())))
    assert model.load(dumped) == everything()
    assert json.loads(json.dumps(model.dump(model.load(dumped)))) == dumped


def test_color_only_adds_escapes():
    import re

    plain = re.sub(r"\x1b\[[\d;]*m", "", render(everything(), "full", color=True))
    assert plain == render(everything(), "full")


def test_fails_from_the_asked_severity_on():
    low = report(finding(severity="medium"))
    assert low.fails("low")
    assert low.fails("medium")
    assert not low.fails("high")
    assert not report().fails("low")
