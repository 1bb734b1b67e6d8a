"""The pipeline behind `check --fix`: propose edits, try them on the analyser, keep what helps, write it.

Each round proposes one edit for every shown finding, applies all that do not overlap to a copy in memory and reads the project again. An edit stays when every
file still parses, its finding is gone and no new finding appears; the others are taken back and the next proposal of their findings is tried. Rounds go
on until one keeps nothing, so that a second run has nothing to do. Only then are files written.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from promptlint.app import check as checking
from promptlint.app.check import Analysis, Request
from promptlint.app.discovery import absolute
from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.finding import Edit, Finding, Fix
from promptlint.fixes import Desk, files, propose
from promptlint.fixes.splice import Patch
from promptlint.ir import Volatility
from promptlint.report import model
from promptlint.source import SourceFile

__all__ = ["Applied", "Dropped", "Fixed", "fix", "offer"]

MAX_ROUNDS = 12
STILL = "the finding would still be reported"
MAX_TRIES = 8  # readings of the project in one round


@dataclass(frozen=True, slots=True)
class Applied:
    """An edit that helped, with the finding that it repaired."""

    finding: Finding
    fix: Fix


@dataclass(frozen=True, slots=True)
class Dropped:
    """An edit that was tried and taken back. `why` completes the sentence "the edit was dropped: …"."""

    finding: Finding
    fix: Fix
    why: str


@dataclass(slots=True)
class Fixed:
    """What the edits did. `texts` holds the new text of every changed file, by absolute path; `report` is of the project with the edits."""

    report: model.CheckReport
    applied: tuple[Applied, ...]
    dropped: tuple[Dropped, ...]
    texts: dict[Path, str]
    before: dict[Path, SourceFile]
    written: tuple[Path, ...] = ()

    def diff(self) -> str:
        """A unified diff of all changes."""
        parts = []
        for path in sorted(self.texts):
            source = self.before[path]
            old, new = source.text.splitlines(keepends=True), self.texts[path].splitlines(keepends=True)
            for line in difflib.unified_diff(old, new, f"a/{source.path}", f"b/{source.path}"):
                parts.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
        return "".join(parts)

    def write(self) -> None:
        """Write all changed files, or none. Raises UserError."""
        changes = {}
        for path, text in self.texts.items():
            original = files.read(path)
            if original.text != self.before[path].text:
                raise UserError(f"{self.before[path].path}: changed while it was analysed; nothing was written")
            changes[path] = (original, text)
        files.write_all(changes)
        self.written = tuple(sorted(self.texts))


def fix(settings: Settings, request: Request, allowed: Collection[str]) -> Fixed:
    """Try the edits of the allowed applicabilities. Nothing is written. Raises UserError as `check` does."""
    report, analysis = checking.check_with_analysis(settings, request)
    work = _Work(settings, request, frozenset(allowed), analysis, report)
    for _ in range(MAX_ROUNDS):
        if not work.round():
            break
    return work.result()


def offer(settings: Settings, request: Request, report: model.CheckReport, analysis: Analysis) -> model.CheckReport:
    """The report with an edit at each finding that one round of trying found, whatever its applicability."""
    work = _Work(settings, request, frozenset({"safe", "unsafe", "display-only"}), analysis, report)
    work.round()
    return work.with_edits(report)


@dataclass(slots=True)
class _Try:
    """A finding with the proposals that are left for it."""

    finding: Finding
    left: list[Fix]
    chosen: Fix | None = None


@dataclass(slots=True)
class _Work:
    settings: Settings
    request: Request
    allowed: frozenset[str]
    analysis: Analysis
    report: model.CheckReport
    texts: dict[Path, str] = field(default_factory=dict)
    before: dict[Path, SourceFile] = field(default_factory=dict)
    applied: list[Applied] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    hopeless: dict[tuple[Edit, ...], tuple[str, ...]] = field(
        default_factory=dict
    )  # with the texts that they were tried on

    def round(self) -> bool:
        """Propose, try, keep. False when nothing was kept."""
        self.dropped = []
        sources = _sources(self.analysis)
        desk = Desk(sources, self._everything)
        tries = []
        for finding in _shown(self.analysis, self.report):
            proposals = [each for each in propose(finding, desk) if each.applicability in self.allowed and each.edits]
            left = []
            for proposal in proposals:
                why = self._outside(proposal) or self._hopeless(proposal, sources)
                if why:
                    self.dropped.append(Dropped(finding, proposal, why))
                else:
                    left.append(proposal)
            if left:
                tries.append(_Try(finding, left))
        tries.sort(key=lambda each: each.finding.span)
        for _ in range(MAX_TRIES):
            patch = _chosen(tries, sources)
            chosen = [each for each in tries if each.chosen is not None]
            if not chosen:
                return False
            wrong = self._attempt(patch, sources, chosen)
            if wrong is None:
                self.applied += [Applied(each.finding, each.chosen) for each in chosen if each.chosen]
                return True
            for each, why in wrong:
                assert each.chosen is not None
                self.dropped.append(Dropped(each.finding, each.chosen, why))
                each.left.remove(each.chosen)
                if why == STILL:
                    self.hopeless[each.chosen.edits] = _texts_of(each.chosen, sources)
        return False

    def _everything(self) -> Iterable[SourceFile]:
        """All files of the project that can be read."""
        project = self.analysis.project
        return (source for path in project.files if (source := project.source(path)) is not None)

    def _hopeless(self, fix: Fix, sources: Mapping[str, SourceFile]) -> str:
        """Why an edit need not be tried: its file would not parse, or it did not help before and nothing around it changed."""
        patch = Patch()
        if not patch.add(fix.edits, sources):
            return "its edits overlap"
        if any(not _parses(path, text, sources[path].text) for path, text in patch.texts(sources).items()):
            return "the file would not parse"
        return STILL if self.hopeless.get(fix.edits) == _texts_of(fix, sources) else ""

    def _outside(self, fix: Fix) -> str:
        """Why an edit may not be made; empty when all of its files are given ones."""
        given = self.analysis.project.given
        for edit in fix.edits:
            path = absolute(self.analysis.project.working_directory / edit.span.path)
            if path not in given:
                return f"it also changes {edit.span.path}, which is not in the given paths"
            if path.is_symlink() and not self._may_follow(path):
                return f"{edit.span.path} is a link to a file outside the given paths"
        return ""

    def _may_follow(self, path: Path) -> bool:
        """Whether what a link points to was given: by naming the link, or a folder around the file."""
        named = [absolute(self.request.working_directory / each) for each in self.request.paths]
        target = path.resolve()
        return path in named or any(target.is_relative_to(each.resolve()) for each in named)

    def _attempt(
        self, patch: Patch, sources: Mapping[str, SourceFile], chosen: list[_Try]
    ) -> list[tuple[_Try, str]] | None:
        """None when all chosen edits help together, and then they are kept; else those that are to blame, and why."""
        texts = patch.texts(sources)
        broken = {path for path, text in texts.items() if not _parses(path, text, sources[path].text)}
        if broken:
            return [(each, "the file would not parse") for each in chosen if _paths(each) & broken]
        changed = {absolute(self.analysis.project.working_directory / path): text for path, text in texts.items()}
        overlay = {**(self.request.overlay or {}), **self.texts, **changed}
        request = replace(self.request, overlay=overlay)
        analysis = checking.analyse(self.settings, request, self.analysis.discovery)
        report = checking.report_of(self.settings, request, analysis)
        wrong = _blame(self.analysis, analysis, self.report, report, chosen)
        if wrong:
            return wrong
        for path in changed:
            source = self.analysis.project.source(path)
            assert source is not None
            self.before.setdefault(path, source)
        self.texts.update(changed)
        self.report, self.analysis = report, analysis
        return None

    def result(self) -> Fixed:
        """What came out, in the end."""
        why: dict[tuple[object, ...], Dropped] = {}
        for each in self.dropped:
            why.setdefault((each.finding.rule, each.finding.span), each)
        report = replace(self.report, findings=tuple(_told(item, why) for item in self.report.findings))
        return Fixed(report, tuple(self.applied), tuple(self.dropped), self.texts, self.before)

    def with_edits(self, report: model.CheckReport) -> model.CheckReport:
        """A report from before the edits with those that were kept."""
        kept = {(each.finding.rule, each.finding.span): each.fix for each in self.applied}
        items = []
        for item in report.findings:
            found = next((fix for (rule, span), fix in kept.items() if _same_place(item, rule, span)), None)
            items.append(replace(item, fix=checking.fix_item(found)) if found is not None else item)
        return replace(report, findings=tuple(items))


def _same_place(item: model.FindingItem, rule: str, span: object) -> bool:
    place = (item.path, item.line, item.column, item.end_line, item.end_column)
    return item.rule == rule and place == (span.path, span.line, span.column, span.end_line, span.end_column)  # type: ignore[attr-defined]


def _told(item: model.FindingItem, dropped: Mapping[tuple[object, ...], Dropped]) -> model.FindingItem:
    """A finding that says why its edit was dropped."""
    for (rule, span), each in dropped.items():
        if _same_place(item, str(rule), span):
            title = f"{each.fix.title}: dropped, because {each.why}"
            return replace(item, fix=model.FixItem(title, each.fix.applicability, ()))
    return item


def _sources(analysis: Analysis) -> dict[str, SourceFile]:
    """The sources of the files that a finding mentions, by printed path."""
    wanted = set()
    for finding in analysis.result.findings:
        wanted.add(finding.span.path)
        wanted.update(note.span.path for note in (*finding.trace, *finding.related))
    found = {}
    for shown in wanted:
        source = analysis.project.source(absolute(analysis.project.working_directory / shown))
        if source is not None:
            found[shown] = source
    return found


def _shown(analysis: Analysis, report: model.CheckReport) -> list[Finding]:
    """The findings that the report shows."""
    shown = {(item.rule, item.path, item.line, item.column, item.end_line, item.end_column) for item in report.findings}
    return [finding for finding in analysis.result.findings if _key_of_place(finding) in shown]


def _key_of_place(finding: Finding) -> tuple[str, str, int, int, int, int]:
    span = finding.span
    return finding.rule, span.path, span.line, span.column, span.end_line, span.end_column


def _chosen(tries: Iterable[_Try], sources: Mapping[str, SourceFile]) -> Patch:
    """The first proposal of each finding that overlaps no earlier one. Findings with the very same edits share them."""
    patch = Patch()
    taken: set[tuple[object, ...]] = set()
    for each in tries:
        each.chosen = None
        for fix in each.left[:1]:
            if fix.edits in taken or patch.add(fix.edits, sources):
                taken.add(fix.edits)
                each.chosen = fix
    return patch


def _texts_of(fix: Fix, sources: Mapping[str, SourceFile]) -> tuple[str, ...]:
    return tuple(sources[path].text for path in sorted({edit.span.path for edit in fix.edits}))


def _paths(each: _Try) -> set[str]:
    return {edit.span.path for edit in each.chosen.edits} if each.chosen else set()


def _parses(path: str, text: str, before: str) -> bool:
    """Whether a file is still what its name says; one that was not before need not be."""
    return _reads(path, text) or not _reads(path, before)


def _reads(path: str, text: str) -> bool:
    suffix = path.rsplit(".", 1)[-1].lower()
    try:
        if suffix == "py":
            from promptlint.fixes.code import parsed

            return parsed(SourceFile(path, text)) is not None
        if suffix in {"jinja", "jinja2", "j2"}:
            from promptlint.frontends.jinja.lex import environment

            environment().parse(text)
        elif suffix in {"yaml", "yml"}:
            import yaml

            list(yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        elif suffix == "json":
            import json

            json.loads(text)
        elif suffix == "toml":
            import tomllib

            tomllib.loads(text)
    except Exception:  # noqa: BLE001  (each parser has errors of its own)
        return False
    return True


_Key = tuple[str, str, str, Volatility | None]


def _key(finding: Finding) -> _Key:
    """What a finding is, wherever in its function it stands and however its value is spelled."""
    return finding.rule, finding.span.path, finding.function, finding.volatility


def _blame(
    old: Analysis, new: Analysis, old_report: model.CheckReport, new_report: model.CheckReport, chosen: list[_Try]
) -> list[tuple[_Try, str]]:
    """The edits whose findings are still there, and those that brought a new one."""
    before = Counter(_key(finding) for finding in _shown(old, old_report))
    after = Counter(_key(finding) for finding in _shown(new, new_report))
    wrong: dict[int, tuple[_Try, str]] = {}
    for key, tries in _by_key(chosen).items():
        gone = before[key] - after[key]
        if gone >= len(tries):
            continue
        still = Counter(_spelled(finding) for finding in new.result.findings if _key(finding) == key)
        for each in tries:
            if still[_spelled(each.finding)] or gone <= 0:
                wrong[id(each)] = (each, STILL)
        if not any(id(each) in wrong for each in tries):
            for each in tries:
                wrong[id(each)] = (each, STILL)
    known = Counter(_key(finding) for finding in old.result.findings)
    for finding in _shown(new, new_report):
        key = _key(finding)
        if after[key] <= before[key] or after[key] <= known[key] or _weaker(finding, chosen):
            continue
        for each in _suspects(finding, [each for each in chosen if id(each) not in wrong]) or (
            [] if wrong else list(chosen)
        ):
            wrong[id(each)] = (each, f"{finding.rule} would be reported in its place")
    return list(wrong.values())


def _by_key(chosen: Iterable[_Try]) -> dict[_Key, list[_Try]]:
    groups: dict[_Key, list[_Try]] = {}
    for each in chosen:
        groups.setdefault(_key(each.finding), []).append(each)
    return groups


def _spelled(finding: Finding) -> str:
    return "".join(finding.expression.split())


def _weaker(finding: Finding, chosen: Iterable[_Try]) -> bool:
    """Whether a finding is what is left of a repaired one: the same rule and function, and a value that now changes less often."""
    return any(
        each.finding.rule == finding.rule
        and each.finding.span.path == finding.span.path
        and each.finding.function == finding.function
        and (finding.volatility or 0) < (each.finding.volatility or 0)
        for each in chosen
    )


def _suspects(finding: Finding, chosen: Iterable[_Try]) -> list[_Try]:
    """The edits that may have brought a finding: of its function, else of its file, else of its call site."""
    near = [each for each in chosen if finding.span.path in _paths(each)]
    inside = [each for each in near if each.finding.function == finding.function]
    return inside or near or [each for each in chosen if each.finding.call_site == finding.call_site]
