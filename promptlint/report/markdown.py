"""`markdown`: for pull requests and step summaries. What a stranger wrote can neither format, link, ping nor inject HTML."""

from __future__ import annotations

from collections.abc import Iterator

from promptlint.report.escape import markdown as escaped
from promptlint.report.model import CheckReport, FindingItem, Place
from promptlint.report.text import assumptions_line, baseline_words
from promptlint.report.words import clipped, cost, count, percent, summary_line, tokens

__all__ = ["markdown"]

MAX_SOURCE = 400  # characters of a line that is quoted: a prompt of megabytes in one line has many findings


def markdown(report: CheckReport) -> str:
    """One table of findings, dearest first, with the details folded."""
    lines = [f"**promptlint**: {escaped(summary_line(report))}", ""]
    if report.findings:
        lines += [
            "| | rule | place | what | tokens lost | hit rate now | if fixed |",
            "|---|---|---|---|---:|---:|---:|",
        ]
        lines += [_row(finding) for finding in report.findings]
        lines += ["", "<details><summary>Details</summary>", ""]
        for finding in report.findings:
            lines += _details(finding)
        lines += ["</details>", ""]
    for item in report.unsupported:
        lines.append(f"- not analysed: {_code(item.path)}: {escaped(item.reason)}")
    if report.suppressed:
        lines.append(f"- {count(report.suppressed, 'finding')} suppressed")
    if report.baseline is not None:
        lines.append(f"- {baseline_words(report.baseline)}")
        lines += [
            f"- fixed: {_code(item.rule)} in {_code(item.path)}: {_code(item.expression)}"
            for item in report.baseline.fixed
        ]
    if any(finding.tokens_lost for finding in report.findings):
        lines += ["", f"Estimates: {escaped(assumptions_line(report))}."]
    return "\n".join(lines).rstrip() + "\n"


def _row(finding: FindingItem) -> str:
    cells = (
        finding.severity,
        _code(finding.rule),
        _code(f"{finding.path}:{finding.line}"),
        escaped(finding.message),
        tokens(finding.tokens_lost) if finding.tokens_lost else "",
        "" if finding.hit_rate_now is None else percent(finding.hit_rate_now),
        "" if finding.hit_rate_if_fixed is None else percent(finding.hit_rate_if_fixed),
    )
    return "| " + " | ".join(cells) + " |"


def _details(finding: FindingItem) -> Iterator[str]:
    yield f"**{escaped(finding.message)}** {_code(finding.rule)}, {_code(f'{finding.path}:{finding.line}:{finding.column}')}"
    yield ""
    if finding.source.strip():
        yield f"- {_code(clipped(finding.source.strip(), MAX_SOURCE))}"
    price = cost(finding)
    if price:
        yield f"- cost: {escaped(price)}"
    for label, places in (("way", finding.trace), ("also", finding.related)):
        if places:
            yield f"- {label}: " + "; ".join(_place(place) for place in places)
    if finding.help:
        yield f"- {escaped(finding.help)}"
    yield ""


def _place(place: Place) -> str:
    return f"{_code(f'{place.path}:{place.line}')} {escaped(place.note)}"


def _code(text: str) -> str:
    """Code as HTML, because a code span cannot hold every text; entities keep Markdown out of it."""
    return f"<code>{escaped(text)}</code>"
