"""Findings and fixes, as values."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from promptlint.ir import BlockKind, Confidence, Volatility
from promptlint.source import Span

__all__ = ["APPLICABILITY", "PERSONAS", "SEVERITIES", "Edit", "Finding", "Fix", "Note", "fingerprint"]

SEVERITIES = ("low", "medium", "high")
PERSONAS = ("regular", "pedantic", "auditor")
APPLICABILITY = ("safe", "unsafe", "display-only")


@dataclass(frozen=True, slots=True)
class Note:
    """A short remark about another place; `call_site` where that place sends a prompt."""

    span: Span
    note: str
    call_site: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the source at an exact span by `text`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """Edits that belong together. `applicability`: safe, unsafe or display-only (moving text changes what a model reads)."""

    title: str
    applicability: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault at one primary place.

    `tokens_behind`: tokens rendered after the place that live longer than it. `tokens_lost`: what is expected to be lost of
    them per request under the assumptions. The hit rates are those of the dearest call site, None where the rule has no estimate.
    """

    rule: str
    severity: str
    confidence: Confidence
    persona: str
    span: Span
    message: str
    expression: str = ""
    volatility: Volatility | None = None
    block: BlockKind | None = None
    call_site: str = ""
    tokens_behind: int = 0
    tokens_lost: float = 0.0
    hit_rate_now: float | None = None
    hit_rate_if_fixed: float | None = None
    trace: tuple[Note, ...] = ()
    related: tuple[Note, ...] = ()
    fix: Fix | None = None
    function: str = ""
    help: str = ""  # one sentence of what to do
    hint: str = field(default="", compare=False)  # shown in `full` only

    def fingerprint(self, occurrence: int = 0) -> str:
        """Stable under moved lines; see `fingerprint`."""
        return fingerprint(self.rule, self.span.path, self.function, self.expression, occurrence)

    def at(self, span: Span) -> Finding:
        """The same finding at another place."""
        return replace(self, span=span)


def fingerprint(rule: str, path: str, function: str, expression: str, occurrence: int = 0) -> str:
    """What makes a finding the same one in another revision: rule, path from the project root, function, expression without its blanks, and which of
    several equal ones it is. No line is in it, and no number that depends on other code.
    """
    normalised = "".join(expression.split())
    text = "\0".join((rule, path, function, normalised, str(occurrence)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
