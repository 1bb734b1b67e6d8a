"""`gitlab`: a Code Quality report (a JSON array; docs.gitlab.com/ci/testing/code_quality, read 2026-11)."""

from __future__ import annotations

import json

from promptlint.report.escape import printable
from promptlint.report.model import CheckReport, FindingItem
from promptlint.report.words import cost

__all__ = ["gitlab"]

_SEVERITIES = {"high": "major", "medium": "minor", "low": "info"}


def gitlab(report: CheckReport) -> str:
    """Every finding as one issue; fingerprints are unique within a report."""
    return json.dumps([_issue(finding) for finding in report.findings], indent=2) + "\n"


def _issue(finding: FindingItem) -> dict[str, object]:
    price, message = cost(finding), printable(finding.message)
    return {
        "type": "issue",
        "check_name": finding.rule,
        "description": f"{message} ({price})" if price else message,
        "categories": ["Performance"],
        "severity": _SEVERITIES[finding.severity],
        "fingerprint": finding.fingerprint,
        "location": {
            "path": finding.path,
            "positions": {
                "begin": {"line": finding.line, "column": finding.column},
                "end": {"line": finding.end_line, "column": finding.end_column},
            },
            "lines": {"begin": finding.line, "end": finding.end_line},
        },
    }
