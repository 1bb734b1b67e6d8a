"""`github`: workflow commands that GitHub Actions turns into annotations, dearest first (it shows ten of each level a step)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from promptlint.report.escape import printable
from promptlint.report.model import CheckReport, FindingItem
from promptlint.report.words import cost

__all__ = ["github", "within_limits"]

MAX_PER_LEVEL = 10  # what GitHub shows of one level for a step; it drops the rest without a word
_LEVELS = {"high": "error", "medium": "warning", "low": "notice"}


def github(report: CheckReport) -> str:
    """One workflow command a line."""
    return "".join(_command(finding) + "\n" for finding in report.findings)


def within_limits(findings: Iterable[FindingItem]) -> str:
    """The commands that GitHub will show, and a last notice that counts those which it would drop."""
    kept: list[FindingItem] = []
    number: Counter[str] = Counter()
    left_out = 0
    for finding in findings:
        level = _LEVELS[finding.severity]
        if number[level] < MAX_PER_LEVEL - (level == "notice"):  # one notice is kept for the count
            number[level] += 1
            kept.append(finding)
        else:
            left_out += 1
    text = "".join(_command(finding) + "\n" for finding in kept)
    if left_out:
        text += f"::notice title=promptlint::{left_out} more findings: the step summary and the report list them\n"
    return text


def _command(finding: FindingItem) -> str:
    properties = {"title": f"promptlint {finding.rule}", "file": finding.path, "line": str(finding.line)}
    if finding.end_line == finding.line:  # GitHub refuses columns of a range of several lines
        properties |= {"col": str(finding.column), "endLine": str(finding.line), "endColumn": str(finding.end_column)}
    else:
        properties["endLine"] = str(finding.end_line)
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    text = "\n".join(part for part in (finding.message, cost(finding), finding.help) if part)
    return f"::{_LEVELS[finding.severity]} {listed}::{_data(text)}"


def _data(text: str) -> str:
    """A command's message: `%` and line ends have escapes of their own, other control characters are written out."""
    return printable(text, keep="\r\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
