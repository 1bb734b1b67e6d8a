"""`json`: the whole report; `json-lines`: one finding a line. ASCII only, so that any terminal and any pipe can carry it."""

from __future__ import annotations

import json as _json

from promptlint.report.model import CheckReport, finding_json, to_json

__all__ = ["json", "json_lines"]


def json(report: CheckReport) -> str:
    """The documented form, schema `promptlint.check/1`."""
    return _json.dumps(to_json(report), indent=2) + "\n"


def json_lines(report: CheckReport) -> str:
    """One finding a line, in the order of the report."""
    return "".join(_json.dumps(finding_json(finding)) + "\n" for finding in report.findings)
