"""The report of `promptlint check`: schema `promptlint.check/1`. Everything a renderer prints stands here; renderers compute nothing.

`to_json` is the public form, exactly as documented. Beside it a report carries what a person needs and a program does not: the
source line of each finding, one sentence of what to do, and the pages of the rules that reported. `dump` and `load` keep all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from promptlint.finding import SEVERITIES

__all__ = [
    "SCHEMA",
    "BaselineItem",
    "BlockItem",
    "CallSiteItem",
    "CheckReport",
    "FindingItem",
    "FixItem",
    "KnownItem",
    "Place",
    "RuleCard",
    "Suggestion",
    "Summary",
    "TemplateItem",
    "UnresolvedItem",
    "UnsupportedItem",
    "dump",
    "from_json",
    "load",
    "to_json",
]

SCHEMA = "promptlint.check/1"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file with a short note; line and column are 1-based, columns in characters. `call_site` where it sends a prompt."""

    path: str
    line: int
    column: int
    note: str
    call_site: str = ""


@dataclass(frozen=True, slots=True)
class EditItem:
    """Replace the source between two places (end exclusive) by `text`."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class FixItem:
    """Edits that belong together; `applicability` is safe, unsafe or display-only."""

    title: str
    applicability: str
    edits: tuple[EditItem, ...]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The edits of a finding as whole lines of its file: `text` takes the place of the lines up to `end_line`, which ends at `end_column` (1-based, in UTF-8 bytes)."""

    line: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class FindingItem:
    """One shown finding. `tokens_lost` is per request under the report's assumptions; hit rates are shares, 0 to 1, of the dearest call site.

    `help`, `hint` and `source` (the source line of the place) are for people and stay out of the JSON, as does `function`, which is part of the fingerprint.
    """

    rule: str
    severity: str
    confidence: str
    persona: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    expression: str
    volatility: str | None
    block: str | None
    call_site: str
    tokens_behind: int
    tokens_lost: float
    hit_rate_now: float | None
    hit_rate_if_fixed: float | None
    trace: tuple[Place, ...]
    related: tuple[Place, ...]
    fix: FixItem | None
    fingerprint: str
    help: str = ""
    hint: str = ""
    source: str = ""
    suggestion: Suggestion | None = None
    function: str = ""


@dataclass(frozen=True, slots=True)
class BlockItem:
    """One block of a call site, in rendered order. `tokens` counts fixed text and the expected size of holes, `static_tokens` the former."""

    kind: str
    role: str | None
    volatility: str
    growth: str
    tokens: int
    static_tokens: int
    name: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class UnresolvedItem:
    """A part of a prompt that could not be read; `next` is the command that would help."""

    expression: str
    reason: str
    path: str
    line: int
    next: str


@dataclass(frozen=True, slots=True)
class CallSiteItem:
    """A place that sends a prompt. `resolution` is the share of its parts that was read, 0 to 1."""

    id: str
    path: str
    line: int
    sink: str
    provider: str | None
    model: str | None
    structured_output: bool
    blocks: tuple[BlockItem, ...]
    prompt_tokens: int
    cacheable_prefix_tokens: int
    estimated_hit_rate: float | None
    cache_key: str
    resolution: float
    unresolved: tuple[UnresolvedItem, ...]

    @property
    def reading(self) -> str:
        """`fully`, `partly` or `not` read."""
        if self.resolution <= 0.0:
            return "not"
        return "fully" if self.resolution >= 1.0 and not self.unresolved else "partly"


@dataclass(frozen=True, slots=True)
class TemplateItem:
    """What is known of one chat template."""

    path: str
    verdict: str
    drops_reasoning: bool
    moves_tools: bool
    moves_system: bool
    date: str
    line: int
    reusable_share: float


@dataclass(frozen=True, slots=True)
class UnsupportedItem:
    """A file or a place that was not analysed, and why."""

    path: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over the given paths. `findings` are the shown ones by severity, `hidden` those below persona or confidence.

    `texts` counts prompts without a known sender: templates, prompt files, and literals that look like a prompt.
    """

    files: int
    parsed: int
    call_sites: int
    read_fully: int
    read_partly: int
    not_read: int
    findings: Mapping[str, int]
    hidden: int
    texts: int = 0


@dataclass(frozen=True, slots=True)
class KnownItem:
    """A finding of a baseline; `path` counts from the project root."""

    fingerprint: str
    rule: str
    path: str
    expression: str


@dataclass(frozen=True, slots=True)
class BaselineItem:
    """What a baseline took out of the report: how many findings were known, and the known ones that are no longer found."""

    known: int
    fixed: tuple[KnownItem, ...]


@dataclass(frozen=True, slots=True)
class RuleCard:
    """What a renderer says of a rule: `body` is the page's Markdown."""

    name: str
    category: str
    summary: str
    severity: str
    persona: str
    help: str
    body: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome of one run. Findings are ordered dearest first; call sites by path and line.

    `withheld` are the fingerprints of those that persona or confidence hide or a comment suppresses: they are not gone.
    """

    version: str
    assumptions: Mapping[str, Any]
    findings: tuple[FindingItem, ...]
    call_sites: tuple[CallSiteItem, ...]
    chat_templates: tuple[TemplateItem, ...]
    unsupported: tuple[UnsupportedItem, ...]
    suppressed: int
    summary: Summary
    baseline: BaselineItem | None = None  # only with a baseline; the JSON has the key only then
    rules: Mapping[str, RuleCard] = field(default_factory=dict)
    unusable: bool = False  # there was input and none of it could be used
    withheld: tuple[str, ...] = ()

    def fails(self, fail_on: str) -> bool:
        """Whether a shown finding is at or above a severity."""
        least = SEVERITIES.index(fail_on)
        return any(SEVERITIES.index(finding.severity) >= least for finding in self.findings)


def finding_json(finding: FindingItem) -> dict[str, Any]:
    """One finding in its public form."""
    row = asdict(finding)
    for private in ("help", "hint", "source", "function", "suggestion"):
        del row[private]
    for place in row["trace"]:
        del place["call_site"]
    row["tokens_lost"] = _number(finding.tokens_lost)
    row["hit_rate_now"] = _share(finding.hit_rate_now)
    row["hit_rate_if_fixed"] = _share(finding.hit_rate_if_fixed)
    return row


def to_json(report: CheckReport) -> dict[str, Any]:
    """The report in its public form: keys and their order as documented, token counts as integers where they are whole."""
    summary = asdict(report.summary)
    del summary["texts"]
    sites = [asdict(site) for site in report.call_sites]
    for site in sites:
        site["estimated_hit_rate"] = _share(site["estimated_hit_rate"])
        site["resolution"] = round(site["resolution"], 4)
    whole = {
        "schema": SCHEMA,
        "version": report.version,
        "assumptions": dict(report.assumptions),
        "findings": [finding_json(finding) for finding in report.findings],
        "call_sites": sites,
        "chat_templates": [asdict(item) for item in report.chat_templates],
        "unsupported": [asdict(item) for item in report.unsupported],
        "suppressed": report.suppressed,
        "summary": summary,
    }
    if report.baseline is not None:
        whole["baseline"] = asdict(report.baseline)
    return whole


def from_json(data: Mapping[str, Any]) -> CheckReport:
    """The report that `to_json` wrote, without what is for people only. Raises KeyError, TypeError or ValueError when it is none."""
    if data["schema"] != SCHEMA:
        raise ValueError(f"schema is {data['schema']!r}, not {SCHEMA!r}")
    return load({**data, "rules": {}, "unusable": False, "withheld": ()})


def _share(value: float | None) -> float | None:
    """A share with four digits: the estimate carries no more."""
    return None if value is None else round(value, 4)


def _number(value: float) -> float | int:
    rounded = round(value, 1)
    return int(rounded) if rounded == int(rounded) else rounded


def dump(report: CheckReport) -> dict[str, Any]:
    """All of a report as plain JSON values; `load` gives it back."""
    return asdict(report)


def load(data: Mapping[str, Any]) -> CheckReport:
    """The report that `dump` wrote. Raises KeyError, TypeError or ValueError when the data is no such thing."""
    return CheckReport(
        version=data["version"],
        assumptions=data["assumptions"],
        findings=tuple(_finding(row) for row in data["findings"]),
        call_sites=tuple(_call_site(row) for row in data["call_sites"]),
        chat_templates=tuple(TemplateItem(**row) for row in data["chat_templates"]),
        unsupported=tuple(UnsupportedItem(**row) for row in data["unsupported"]),
        suppressed=data["suppressed"],
        summary=Summary(**data["summary"]),
        rules={name: RuleCard(**row) for name, row in data["rules"].items()},
        unusable=data["unusable"],
        withheld=tuple(data["withheld"]),
    )


def _places(rows: Iterable[Mapping[str, Any]]) -> tuple[Place, ...]:
    return tuple(Place(**row) for row in rows)


def _finding(row: Mapping[str, Any]) -> FindingItem:
    fix = row["fix"]
    read = (
        None
        if fix is None
        else FixItem(fix["title"], fix["applicability"], tuple(EditItem(**edit) for edit in fix["edits"]))
    )
    lines = row.get("suggestion")
    places = {"trace": _places(row["trace"]), "related": _places(row["related"])}
    return FindingItem(**{**row, **places, "fix": read, "suggestion": Suggestion(**lines) if lines else None})


def _call_site(row: Mapping[str, Any]) -> CallSiteItem:
    blocks = tuple(BlockItem(**block) for block in row["blocks"])
    return CallSiteItem(
        **{**row, "blocks": blocks, "unresolved": tuple(UnresolvedItem(**item) for item in row["unresolved"])}
    )
