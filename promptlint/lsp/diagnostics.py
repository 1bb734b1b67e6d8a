"""Findings as diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lsprotocol import types

from promptlint.lsp.positions import Positions
from promptlint.report.model import FindingItem, Place
from promptlint.report.words import cost

__all__ = ["SOURCE", "diagnostics"]

SOURCE = "promptlint"
MAX_RELATED = 12  # places shown below a finding
_SEVERITY = {
    "high": types.DiagnosticSeverity.Warning,
    "medium": types.DiagnosticSeverity.Warning,
    "low": types.DiagnosticSeverity.Information,
}

Locate = Callable[[str], tuple[str, Positions] | None]
"""URI and positions of a printed path; None for a file that cannot be read."""


def diagnostics(findings: Iterable[FindingItem], positions: Positions, locate: Locate) -> list[types.Diagnostic]:
    """The diagnostics of one file's findings. Related information holds where the value arises, where it goes, and the other places."""
    return [
        types.Diagnostic(
            range=positions.range(finding.line, finding.column, finding.end_line, finding.end_column),
            message=_message(finding),
            severity=_severity(finding),
            code=finding.rule,
            source=SOURCE,
            related_information=_related([*finding.trace, *finding.related], locate) or None,
            data={"fingerprint": finding.fingerprint},
        )
        for finding in findings
    ]


def _severity(finding: FindingItem) -> types.DiagnosticSeverity:
    return _SEVERITY[finding.severity] if finding.persona == "regular" else types.DiagnosticSeverity.Hint


def _message(finding: FindingItem) -> str:
    doubt = "" if finding.confidence == "high" else f" ({finding.confidence} confidence)"
    price = cost(finding)
    return finding.message + doubt + (f"\n{price}" if price else "")


def _related(places: list[Place], locate: Locate) -> list[types.DiagnosticRelatedInformation]:
    found = []
    for place in places[:MAX_RELATED]:
        known = locate(place.path)
        if known is not None:
            uri, positions = known
            at = positions.position(place.line, place.column)
            found.append(types.DiagnosticRelatedInformation(types.Location(uri, types.Range(at, at)), place.note))
    return found
