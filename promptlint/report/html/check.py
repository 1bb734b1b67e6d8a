"""`promptlint check --output-format html`: findings, and the prompt of each call site as a bar."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from promptlint.report.html.charts import legend, prompt_bar, shares
from promptlint.report.html.data import Data, estimate, plain
from promptlint.report.html.markup import Markup, escape, join, prose, tag
from promptlint.report.html.page import Section, details, key_figures, page, table
from promptlint.report.model import CallSiteItem, CheckReport, FindingItem, to_json
from promptlint.report.text import around
from promptlint.report.words import cause, count, next_steps, summary_line, tokens

__all__ = ["check"]

FINDINGS = 250  # shown whole; the JSON report has all
SITES = 250  # shown whole, those with findings first; the next ones as a row of a table
ROWS = 2_000


def check(report: CheckReport) -> str:
    """The page."""
    data = Data(to_json(report))
    counts = data["summary"]
    figures = [
        ("call sites", counts["call_sites"].show()),
        *((f"{severity} findings", number.show()) for severity, number in counts["findings"].items()),
        ("hidden findings", counts["hidden"].show()),
        ("suppressed", data["suppressed"].show()),
    ]
    title = count(len(report.findings), "finding")
    lead = prose(f"{summary_line(report)}.")
    return page("check", title, lead, key_figures(figures), list(_sections(report, data)), report.version)


def _sections(report: CheckReport, data: Data) -> Iterator[Section]:
    places = {site.id: f"site-{number}" for number, site in enumerate(report.call_sites, 1)}
    if report.findings:
        shown = [
            _finding(finding, row, places)
            for finding, row, _ in zip(report.findings, data["findings"], range(FINDINGS), strict=False)
        ]
        rest = len(report.findings) - len(shown)
        more = (
            tag("p", f"{count(rest, 'finding')} that cost less stand in the JSON report.", class_="note")
            if rest
            else None
        )
        yield Section("findings", "Findings", join((*shown, more)), "Dearest first.")
    if report.call_sites:
        yield Section("call-sites", "What each call site sends", _sites(report, data, places))
    if report.chat_templates:
        yield Section("templates", "Chat templates", _templates(data))
    left = list(_left(report, data))
    if left:
        yield Section("left", "What was not read", left)
    yield Section("assumptions", "Assumptions", _assumptions(data), "The estimates above hold under these.")


def _finding(finding: FindingItem, row: Data, places: dict[str, str]) -> Markup:
    doubt = "" if finding.confidence == "high" else f" ({finding.confidence} confidence)"
    parts: list[Any] = [
        tag("h3", tag("span", finding.severity, class_=f"badge {finding.severity}"), prose(finding.message), doubt),
        tag("p", tag("code", finding.rule), " in ", tag("code", f"{finding.path}:{finding.line}:{finding.column}"),
            *_site_link(finding, places), class_="place"),
    ]  # fmt: skip
    if finding.source.strip():
        parts.append(_source(finding))
    if finding.tokens_behind:
        parts.append(
            tag("p", row["tokens_lost"].show(tokens), " of ", row["tokens_behind"].show(), " tokens behind it are lost per request.")
        )  # fmt: skip
    elif finding.tokens_lost:
        parts.append(tag("p", row["tokens_lost"].show(tokens), " tokens are lost per request."))
    if finding.hit_rate_now is not None and finding.hit_rate_if_fixed is not None:
        bars = [
            ("estimated hit rate now", finding.hit_rate_now, row["hit_rate_now"].show(estimate), "now"),
            ("if fixed", finding.hit_rate_if_fixed, row["hit_rate_if_fixed"].show(estimate), "then"),
        ]
        parts.append(shares(bars, "Estimated hit rate before and after"))
    if finding.help:
        parts.append(tag("p", prose(finding.help)))
    if finding.fix is not None:
        parts.append(tag("p", "Fix: ", finding.fix.title, f" ({finding.fix.applicability})."))
    way = [_place(place.path, place.line, place.column, place.note) for place in finding.trace]
    also = [_place(place.path, place.line, place.column, place.note) for place in finding.related]
    if way or also or finding.hint:
        body = [
            tag("p", escape(finding.hint, keep="\n"), class_="note") if finding.hint else None,
            tag("p", "Its way into the prompt:") if way else None,
            tag("ol", way) if way else None,
            tag("p", "Also here:") if also else None,
            tag("ul", also) if also else None,
        ]
        parts.append(details("Where it arises and where it is sent", *body))
    return tag("article", parts)


def _site_link(finding: FindingItem, places: dict[str, str]) -> list[Any]:
    if finding.call_site not in places:
        return []
    return [", sent by ", tag("a", finding.call_site, href=f"#{places[finding.call_site]}")]


def _source(finding: FindingItem) -> Markup:
    """The source line with the place marked in it."""
    head, body, tail = around(finding)
    shown = (head, tag("mark", body, class_="was") if body else None, tail.rstrip())
    return tag("pre", tag("code", shown), tabindex="0", aria_label=f"line {finding.line}")


def _place(path: str, line: int, column: int, note: str) -> Markup:
    return tag("li", tag("code", f"{path}:{line}:{column}"), " ", prose(note))


def _sites(report: CheckReport, data: Data, places: dict[str, str]) -> Markup:
    """Those with findings first, in the order of the findings; then the longest prompts."""
    found = {finding.call_site: number for number, finding in reversed(list(enumerate(report.findings)))}
    order = sorted(
        range(len(report.call_sites)),
        key=lambda index: (found.get(report.call_sites[index].id, len(found) + 1 << 30), -report.call_sites[index].prompt_tokens),
    )  # fmt: skip
    whole = [_site(report.call_sites[index], data["call_sites"][index], places) for index in order[:SITES]]
    rows = []
    ids = []
    for index in order[SITES : SITES + ROWS]:
        row = data["call_sites"][index]
        rows.append((row.get("id"), row["prompt_tokens"].show(), row["cacheable_prefix_tokens"].show(), row["estimated_hit_rate"].show(estimate)))  # fmt: skip
        ids.append(places[report.call_sites[index].id])
    rest = len(order) - len(whole) - len(rows)
    more = table("Further call sites", ("call site", "prompt tokens", "cacheable prefix", "estimated hit rate"), rows, numbers=(1, 2, 3), ids=ids)  # fmt: skip
    last = tag("p", f"{count(rest, 'call site')} more in the JSON report.", class_="note") if rest else None
    return join((legend(), *whole, more if rows else None, last))


def _site(site: CallSiteItem, row: Data, places: dict[str, str]) -> Markup:
    asked = [site.provider or "", f"model {site.model}" if site.model else ""]
    about = ", ".join(filter(None, asked))
    blocks = [
        (
            " ".join(filter(None, (block.get("kind"), block.get("name")))),
            block.get("volatility") + ("" if block.get("growth") == "fixed" else f", {block.get('growth')}"),
            block["tokens"].show(),
            block["static_tokens"].show(),
            tag("code", f"{block.get('path')}:{block.get('line')}"),
        )
        for block in row["blocks"]
    ]
    head = ("block", "volatility", "tokens", "of them fixed", "place")
    unread = [
        tag("li", tag("code", one.expression), f" ({cause(one.reason)}) {one.path}:{one.line}; ", tag("code", one.next), " would help")
        for one in site.unresolved
    ]  # fmt: skip
    return tag(
        "article",
        tag("h3", tag("code", site.id)),
        tag("p", tag("code", f"{site.path}:{site.line}"), f", {about}" if about else "", "; read ", row["resolution"].show(estimate), class_="place"),
        prompt_bar(row.get("blocks"), site.prompt_tokens, site.cacheable_prefix_tokens, site.id) if site.blocks else None,
        tag("p", row["prompt_tokens"].show(), " tokens, ", row["cacheable_prefix_tokens"].show(), " of them in the cacheable prefix; estimated hit rate ",
            row["estimated_hit_rate"].show(estimate), "."),
        details(f"{count(len(blocks), 'block')} in the order in which they are sent",
                table(f"Blocks of {site.id}", head, blocks, numbers=(2, 3)),
                tag("p", "Cache key ", tag("code", site.cache_key), class_="note")) if blocks else None,
        details(f"{count(len(unread), 'part')} not read", tag("ul", unread)) if unread else None,
        id=places[site.id],
    )  # fmt: skip


def _templates(data: Data) -> Markup:
    rows = [
        (
            f"{row.get('path')}:{row.get('line')}", row.get("verdict"), row["reusable_share"].show(estimate), row.get("date"),
            plain(row.get("drops_reasoning")), plain(row.get("moves_tools")), plain(row.get("moves_system")),
        )
        for row, _ in zip(data["chat_templates"], range(ROWS), strict=False)
    ]  # fmt: skip
    head = ("template", "verdict", "reusable", "date", "drops reasoning", "moves tools", "moves system text")
    return table("Chat templates", head, rows, numbers=(2,), quiet=True)


def _left(report: CheckReport, data: Data) -> Iterator[Markup]:
    steps = [(cause(reason), f"{number:,}", tag("code", command)) for reason, number, command in next_steps(report)]
    if steps:
        yield table("Values that could not be read", ("reason", "values", "would help"), steps, numbers=(1,))
    if report.unsupported:
        rows = [(f"{one.path}:{one.line}", one.reason) for one in report.unsupported[:ROWS]]
        yield table("Not analysed", ("place", "why"), rows)
        if len(report.unsupported) > len(rows):
            yield tag("p", f"{len(report.unsupported) - len(rows):,} more in the JSON report.", class_="note")
    if report.baseline is not None:
        yield tag("p", data["baseline"]["known"].show(), " known findings of the baseline are left out.")
        gone = [
            tag("li", tag("code", one.rule), f" in {one.path}: ", tag("code", one.expression))
            for one in report.baseline.fixed
        ]
        if gone:
            yield join((tag("p", "No longer found:"), tag("ul", gone)))


def _assumptions(data: Data) -> Markup:
    rows = [(key.replace("_", " "), plain(value.value)) for key, value in data["assumptions"].items()]
    return table("Assumptions", ("what", "value"), rows, quiet=True)
