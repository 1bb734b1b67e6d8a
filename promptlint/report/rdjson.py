"""`rdjson`: the Reviewdog Diagnostic Format, whose columns count UTF-8 bytes."""

from __future__ import annotations

import json

from promptlint.report.escape import printable
from promptlint.report.model import CheckReport, FindingItem
from promptlint.report.words import cost

__all__ = ["rdjson"]

_SEVERITIES = {"high": "ERROR", "medium": "WARNING", "low": "INFO"}


def rdjson(report: CheckReport) -> str:
    """One DiagnosticResult."""
    return (
        json.dumps(
            {"source": {"name": "promptlint"}, "diagnostics": [_diagnostic(finding) for finding in report.findings]},
            indent=2,
        )
        + "\n"
    )


def _diagnostic(finding: FindingItem) -> dict[str, object]:
    start = {"line": finding.line, "column": _byte_column(finding.source, finding.column)}
    end: dict[str, int] = {"line": finding.end_line}
    if finding.end_line == finding.line:  # of later lines we hold no text to count bytes in
        end["column"] = _byte_column(finding.source, finding.end_column)
    found: dict[str, object] = {
        "message": "\n".join(part for part in (printable(finding.message), cost(finding), finding.help) if part),
        "location": {"path": finding.path, "range": {"start": start, "end": end}},
        "severity": _SEVERITIES[finding.severity],
        "code": {"value": finding.rule},
    }
    lines = finding.suggestion
    if lines is not None:
        span = {
            "start": {"line": lines.line, "column": 1},
            "end": {"line": lines.end_line, "column": lines.end_column},
        }
        found["suggestions"] = [{"range": span, "text": lines.text}]
    return found


def _byte_column(line: str, column: int) -> int:
    """1-based byte column of a 1-based character column."""
    return len(line[: column - 1].encode("utf-8", "surrogatepass")) + max(column - 1 - len(line), 0) + 1
