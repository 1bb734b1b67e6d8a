"""`promptlint diff` as Markdown: for a pull request's comment and the step summary.

One sentence, one table, the rest folded. All text that comes from code, also when a stranger wrote it, is escaped so that it can neither format,
link, ping, open HTML nor look like the hidden marker of a comment; it is clipped, and the whole is cut to a size with a notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from promptlint.report.diff import (
    HEADER,
    assumptions,
    cells,
    headline,
    key_sentence,
    order_sentence,
    replay_sentence,
    totals,
)
from promptlint.report.diff_model import DiffReport
from promptlint.report.escape import markdown as escaped
from promptlint.report.escape import printable
from promptlint.report.model import FindingItem
from promptlint.report.words import clipped, count, percent, tokens

__all__ = ["MAX_COMMENT", "MAX_SUMMARY", "markdown"]

MAX_COMMENT = (
    65_536 - 536
)  # GitHub refuses a body of more characters; the rest is for the marker. We count bytes, which are never fewer
MAX_SUMMARY = 1_000_000  # a step summary holds 1 MiB
_ORDERS = re.compile(r"@\w|<!--|`|::|##\[")
"""What a strangers' code could mean outside a fence. A suggestion must be the code letter by letter, so it cannot be escaped; it is left out."""
MAX_SUGGESTED_LINES = 30
MAX_SUGGESTED = 3_000  # characters
_TEXT = 240  # characters of one cell or sentence that comes from code
_NOTICE = 200  # bytes kept for the notice that something was cut


def markdown(diff: DiffReport, limit: int = MAX_SUMMARY) -> str:
    """The report in at most `limit` bytes of UTF-8."""
    top = ["**promptlint**: " + headline(diff, _code), ""]
    bottom = ["", *_footer(diff)]
    room = limit - _size(top) - _size(bottom) - _NOTICE
    table, left_out = _fit(list(_rows(diff)), room * 2 // 3)
    if table:
        top += ["| " + " | ".join(HEADER) + " |", "|---|---:|---:|---:|---|", *table, ""]
    room = limit - _size(top) - _size(bottom) - _NOTICE
    details, more = _fit(list(_details(diff)), room)
    if details:
        top += ["<details><summary>Details</summary>", "", *details, "", "</details>"]
    if left_out or more:
        cut = [count(left_out, "row") if left_out else "", count(more, "detail") if more else ""]
        top += ["", f"Cut to fit: {' and '.join(part for part in cut if part)} left out; the JSON report has all."]
    return "\n".join([*top, *bottom]).rstrip() + "\n"


def _fit(lines: Sequence[str], room: int) -> tuple[list[str], int]:
    """The leading lines that fit, and how many do not."""
    kept: list[str] = []
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return kept, len(lines) - len(kept)


def _size(lines: Iterable[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def _rows(diff: DiffReport) -> Iterator[str]:
    for name, *rest in cells(diff):
        yield "| " + " | ".join([_code(name), *(_text(cell) for cell in rest)]) + " |"


def _details(diff: DiffReport) -> Iterator[str]:
    """One list item a line, so that a cut leaves whole items."""
    for finding in diff.new_findings:
        yield f"- new: {_finding(finding)}{_suggested(finding)}"
    for finding in diff.fixed_findings:
        yield f"- fixed: {_finding(finding)}"
    for moved in diff.moved_findings:
        yield f"- moved: {_finding(moved.finding)}, was {_code(f'{moved.base_path}:{moved.base_line}')}"
    if diff.cache_keys_changed:
        yield f"- {key_sentence(diff)}"
    for order in diff.orders:
        gain = f"{percent(order.hit_rate_now)} → {percent(order.hit_rate_then)}"
        yield f"- recommended order of {_code(order.call_site)}, {gain}: {_text(order_sentence(order.before, order.after))}"
    for verdict in diff.verdicts:
        yield f"- verdict on {_code(verdict.pool)}: **{_text(verdict.verdict)}**; {_text(verdict.because)}"
    if diff.replay is not None:
        yield f"- {replay_sentence(diff.replay)}"
    for note in diff.notes:
        yield f"- note: {_text(note)}"


def _finding(finding: FindingItem) -> str:
    lost = f", {tokens(finding.tokens_lost)} tokens lost per request" if finding.tokens_lost else ""
    return (
        f"{_text(finding.severity)} {_code(finding.rule)} in {_code(f'{finding.path}:{finding.line}')}: {_text(finding.message)}{lost}"
        + (f". {_text(finding.help)}" if finding.help else "")
    )


def _suggested(finding: FindingItem) -> str:
    """The edit as a block that GitHub shows as a suggestion where the lines are part of the change; none for code that could end the block."""
    lines, fix = finding.suggestion, finding.fix
    if lines is None or fix is None or lines.text.count("\n") > MAX_SUGGESTED_LINES or len(lines.text) > MAX_SUGGESTED:
        return ""
    if _ORDERS.search(lines.text):
        return ""
    fence = "```"
    where = f"lines {lines.line} to {lines.end_line}" if lines.end_line > lines.line else f"line {lines.line}"
    body = "\n".join(f"  {line}" for line in printable(lines.text, keep="\n\t").split("\n"))
    return f". {_text(fix.title)} ({fix.applicability}), {where}:\n\n  {fence}suggestion\n{body}\n  {fence}"


def _footer(diff: DiffReport) -> Iterator[str]:
    yield f"<sub>{_text(totals(diff))}. Estimates: {_text(assumptions(diff.assumptions))}.</sub>"


def _text(text: str) -> str:
    return escaped(clipped(text, _TEXT))


def _code(text: str) -> str:
    """Code as HTML, because a code span cannot hold every text; entities keep Markdown out of it."""
    return f"<code>{_text(text)}</code>"
