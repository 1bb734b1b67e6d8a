"""`sarif`: SARIF 2.1.0 with rule pages as help, the way to the sink as a code flow, fixes and fingerprints."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from promptlint.report.escape import printable
from promptlint.report.model import CheckReport, EditItem, FindingItem, FixItem, Place, RuleCard
from promptlint.report.words import cost

__all__ = ["sarif"]

_LEVELS = {"high": "error", "medium": "warning", "low": "note"}
_PRECISION = {"high": "very-high", "medium": "high", "low": "low"}


def sarif(report: CheckReport) -> str:
    """A log with one run. A file that could not be analysed is a notification of the run."""
    names = list(report.rules)
    run = {
        "tool": {
            "driver": {
                "name": "promptlint",
                "semanticVersion": report.version,
                "rules": [_rule(report.rules[name]) for name in names],
            }
        },
        "invocations": [
            {"executionSuccessful": not report.unusable, "toolExecutionNotifications": _notifications(report)}
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, names) for finding in report.findings],
        "properties": {"assumptions": dict(report.assumptions)},
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2) + "\n"


def _rule(card: RuleCard) -> dict[str, Any]:
    return {
        "id": card.name,
        "shortDescription": {"text": card.summary},
        "fullDescription": {"text": card.body.split("\n\n", 1)[0].strip() or card.summary},
        "help": {"text": card.help or card.summary, "markdown": f"{card.help}\n\n{card.body}".strip()},
        "defaultConfiguration": {"level": _LEVELS[card.severity]},
        "properties": {
            "tags": ["performance", "prompt-cache", card.category],
            "problem.severity": _problem(card.severity),
        },
    }


def _problem(severity: str) -> str:
    return {"high": "error", "medium": "warning", "low": "recommendation"}[severity]


def _result(finding: FindingItem, names: list[str]) -> dict[str, Any]:
    text = _plain(". ".join(part for part in (finding.message.rstrip("."), cost(finding)) if part))
    region = {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line,
        "endColumn": finding.end_column,
    }
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": names.index(finding.rule),
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(finding.path)}, "region": region}}],
        "partialFingerprints": {"promptlint/v1": finding.fingerprint},
        "properties": {
            "precision": _PRECISION[finding.confidence],
            "tokensBehind": finding.tokens_behind,
            "tokensLost": finding.tokens_lost,
            "hitRateNow": finding.hit_rate_now,
            "hitRateIfFixed": finding.hit_rate_if_fixed,
        },
    }
    if finding.trace:
        result["codeFlows"] = [
            {"threadFlows": [{"locations": [{"location": _location(place)} for place in finding.trace]}]}
        ]
    if finding.related:
        result["relatedLocations"] = [
            {"id": number, **_location(place)} for number, place in enumerate(finding.related, 1)
        ]
    if finding.fix is not None and finding.fix.edits:
        result["fixes"] = [_fix(finding.fix)]
    return result


def _location(place: Place) -> dict[str, Any]:
    region = {"startLine": place.line, "startColumn": place.column}
    return {
        "physicalLocation": {"artifactLocation": {"uri": _uri(place.path)}, "region": region},
        "message": {"text": _plain(place.note)},
    }


def _fix(fix: FixItem) -> dict[str, Any]:
    by_path: dict[str, list[EditItem]] = {}
    for edit in fix.edits:
        by_path.setdefault(edit.path, []).append(edit)
    changes = [
        {"artifactLocation": {"uri": _uri(path)}, "replacements": [_replacement(edit) for edit in edits]}
        for path, edits in by_path.items()
    ]
    return {"description": {"text": f"{fix.title} ({fix.applicability})"}, "artifactChanges": changes}


def _replacement(edit: EditItem) -> dict[str, Any]:
    region = {
        "startLine": edit.line,
        "startColumn": edit.column,
        "endLine": edit.end_line,
        "endColumn": edit.end_column,
    }
    return {"deletedRegion": region, "insertedContent": {"text": edit.text}}


def _notifications(report: CheckReport) -> list[dict[str, Any]]:
    return [
        {
            "level": "warning",
            "message": {"text": _plain(item.reason)},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": _uri(item.path)}, "region": {"startLine": item.line}}}
            ],
        }
        for item in report.unsupported
    ]


def _plain(text: str) -> str:
    """A message that viewers show as it is: `[x](y)` would be a link to wherever analysed code says (SARIF 2.1.0, 3.11.6)."""
    return printable(text).replace("](", "] (")


def _uri(path: str) -> str:
    """A path as a relative URI reference; its first segment must not look like a scheme."""
    return quote(path, safe="/~.-_", errors="surrogatepass")
