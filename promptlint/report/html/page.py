"""The frame of every page: one file, no script, no request.

The content security policy forbids everything but the page's own style sheet, which it names by its hash: even markup that slipped through could
neither run nor load anything. Geometry stands in SVG attributes in per cent, so that a page fits a telephone and paper without any code.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from promptlint.report.html.markup import Markup, join, tag

__all__ = ["Section", "details", "key_figures", "page", "table"]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page with its heading; `id` is what the table of contents links to."""

    id: str
    title: str
    body: Any
    note: str = ""


@cache
def _style() -> str:
    # The hash below covers every character, and a parser turns CRLF into LF before it is compared.
    return files("promptlint.report.html").joinpath("style.css").read_text("utf-8").replace("\r\n", "\n")


def page(command: str, title: str, lead: Any, figures: Markup, sections: Sequence[Section], version: str = "") -> str:
    """A whole page. `lead` says in a line or two what was looked at, `figures` are the numbers to read first."""
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="robots", content="noindex"),
        tag("title", f"promptlint {command}: {title}"),
        tag("style", Markup(style)),
    )
    contents = tag(
        "nav",
        tag("ul", [tag("li", tag("a", one.title, href=f"#{one.id}")) for one in sections]),
        aria_label="Contents",
    )
    body = tag(
        "body",
        tag("a", "Skip to the report", class_="skip", href="#report"),
        tag(
            "header",
            tag("p", "promptlint ", tag("b", command), f" {version}" if version else "", class_="brand"),
            tag("h1", title),
            tag("p", lead, class_="lead"),
            figures or None,
            contents if len(sections) > 1 else None,
        ),
        tag("main", [_section(one) for one in sections], id="report"),
        tag(
            "footer",
            tag("p", "Every number here stands in the report of the same command with ", tag("code", "--output-format json"),
                "; the attribute ", tag("code", "data-json"), " says where."),
        ),
    )  # fmt: skip
    return "<!DOCTYPE html>\n" + tag("html", head, Markup("\n"), body, lang="en") + "\n"


def _section(one: Section) -> Markup:
    return tag(
        "section",
        tag("h2", one.title, id=f"{one.id}-title"),
        tag("p", one.note, class_="note") if one.note else None,
        one.body,
        id=one.id,
        aria_labelledby=f"{one.id}-title",
    )


def key_figures(figures: Sequence[tuple[str, Any]]) -> Markup:
    """The numbers to read first: (what, number); nothing without any."""
    if not figures:
        return Markup("")
    return tag("dl", [tag("div", tag("dt", what), tag("dd", number)) for what, number in figures], class_="figures")


def table(
    caption: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    numbers: Sequence[int] = (),
    ids: Sequence[str] = (),
    quiet: bool = False,
    compact: bool = False,
) -> Markup:
    """A table whose first column names the row. `numbers` are the columns of figures, `ids` those of the rows, as targets of links.

    A `quiet` caption is only heard: the heading above says the same. A `compact` table is not stretched over the page.
    """
    right = frozenset(numbers)

    def cell(index: int, value: Any) -> Markup:
        kind = "num" if index in right else None
        if index == 0:
            return tag("th", value, scope="row", class_=kind)
        return tag("td", value, class_=kind)

    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="heard" if quiet else None),
            tag("thead", tag("tr", [tag("th", name, scope="col", class_="num" if index in right else None) for index, name in enumerate(head)])),
            tag(
                "tbody",
                [
                    tag("tr", [cell(index, value) for index, value in enumerate(row)], id=ids[number] if ids else None)
                    for number, row in enumerate(rows)
                ],
            ),
            class_="compact" if compact else None,
        ),
        class_="scroll", tabindex="0", role="region", aria_label=caption,
    )  # fmt: skip


def details(summary: Any, *body: Any) -> Markup:
    """What is read on demand; on paper it is open."""
    return tag("details", tag("summary", summary), join(body))
