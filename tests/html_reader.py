"""Reads a page of ours as a strict parser does, and holds it to what every page promises."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any
from xml.etree.ElementTree import Element, fromstring

ELEMENTS = frozenset(
    [
        "a",
        "article",
        "b",
        "body",
        "caption",
        "circle",
        "code",
        "data",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "footer",
        "g",
        "figure",
        "h1",
        "h2",
        "h3",
        "head",
        "header",
        "html",
        "li",
        "line",
        "main",
        "mark",
        "meta",
        "nav",
        "ol",
        "p",
        "pre",
        "rect",
        "section",
        "span",
        "style",
        "summary",
        "svg",
        "table",
        "tbody",
        "td",
        "text",
        "th",
        "thead",
        "title",
        "tr",
        "ul",
    ]
)
ATTRIBUTES = frozenset(
    [
        "aria-hidden",
        "aria-label",
        "aria-labelledby",
        "charset",
        "class",
        "content",
        "cx",
        "cy",
        "data-count",
        "data-json",
        "dx",
        "height",
        "href",
        "http-equiv",
        "id",
        "lang",
        "name",
        "r",
        "role",
        "rx",
        "scope",
        "tabindex",
        "text-anchor",
        "value",
        "width",
        "x",
        "x1",
        "x2",
        "y",
        "y1",
        "y2",
    ]
)


def read(page: str) -> Element:
    """The tree of a page. Fails where a browser would have to guess, and where anything could load or run."""
    assert page.startswith("<!DOCTYPE html>\n<html")
    root = fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    for element in root.iter():
        assert element.tag in ELEMENTS
        assert set(element.attrib) <= ATTRIBUTES, element.attrib
        if "href" in element.attrib:
            assert element.attrib["href"].startswith("#")
            assert element.attrib["href"][1:] in ids
        if element.tag == "section":
            assert element.attrib["aria-labelledby"] in ids
        if element.tag == "table":
            assert element.find("caption") is not None
            widths = {len(row) for row in element.iter("tr")}
            assert len(widths) <= 1, widths
        if element.tag == "summary":
            assert text(element)
    assert [element.tag for element in root.iter("h1")] == ["h1"]
    style = root.findtext("head/style") or ""
    assert "url(" not in style
    assert "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(meta.attrib["content"] for meta in root.iter("meta") if "http-equiv" in meta.attrib)
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return root


def text(element: Element) -> str:
    """All text in an element."""
    return "".join(element.itertext())


def at(report: Any, pointer: str) -> Any:
    """The value at a JSON pointer (RFC 6901)."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        report = report[int(name)] if isinstance(report, list) else report[name]
    return report


def assert_numbers_equal(root: Element, report: Any) -> int:
    """Every number of the page is the JSON's at its place, and is shown as that; returns how many there are."""
    found = list(root.iter("data"))
    for element in found:
        value = at(report, element.attrib["data-json"])
        assert json.loads(element.attrib["value"]) == value, element.attrib
        assert_shows(text(element), value)
    return len(found)


def assert_shows(shown: str, value: Any) -> None:
    """What people read is the number, rounded at most to the digits that are shown."""
    if value is None or isinstance(value, bool | str):
        return
    number = re.fullmatch(r"(-?[\d,]+(?:\.(\d+))?(?:e[+-]\d+)?)( %| \$|×)?", shown)
    assert number is not None, shown
    whole = float(number[1].replace(",", ""))
    scale = 100 if number[3] == " %" else 1
    if number[3] == " %" and "." not in number[1]:  # two digits are all that an estimate carries
        assert abs(whole - 100 * value) <= 0.5, (shown, value)
        return
    digits = len(number[2] or "")
    slack = 0.1 if number[3] == " %" and digits == 1 else 0.5 * 10**-digits + abs(value) * 5e-4 * bool(digits)
    assert abs(whole - scale * value) <= slack + 1e-9, (shown, value)
