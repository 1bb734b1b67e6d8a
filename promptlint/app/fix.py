"""The pipeline behind `check --fix`: propose edits, try them on the analyser, keep what helps, write it.

Each round proposes one edit for every shown finding, applies all that do not overlap to a copy in memory and reads the project again. An edit stays when every
file still parses, its finding is gone and no new finding appears; the others are taken back and the next proposal of their findings is tried. Rounds go
on until one keeps nothing, so that a second run has nothing to do. Only then are files written.
"""

from __future__ import annotations

import difflib
import io
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from promptlint.app import check as checking
from promptlint.app.check import Analysis, Request
from promptlint.app.discovery import absolute
from promptlint.app.reread import Rereading
from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.finding import APPLICABILITY, Edit, Finding, Fix
from promptlint.fixes import Desk, files, propose
from promptlint.fixes.splice import Patch, apply
from promptlint.ir import Volatility
from promptlint.report import model
from promptlint.source import SourceFile, Span

__all__ = ["Applied", "Dropped", "Fixed", "fix", "objection", "offer", "proposals"]

MAX_ROUNDS = 12
STILL = "the finding would still be reported"
MAX_OFFERED_FILES = 300
MAX_TRIES = 8  # readings of the project in one round


@dataclass(frozen=True, slots=True)
class Applied:
    """An edit that helped, with the finding that it repaired. Its spans count in the texts that its round, from 1, began with."""

    finding: Finding
    fix: Fix
    round: int = 1


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
    overlaid: frozenset[Path] = (
        frozenset()
    )  # files that something else than their content stood in for: these are not written
    written: tuple[Path, ...] = ()

    def diff(self) -> str:
        """A unified diff of all changes."""
        parts = []
        for path in sorted(self.texts):
            source = self.before[path]
            old, new = (io.StringIO(text, newline="\n").readlines() for text in (source.text, self.texts[path]))
            for line in difflib.unified_diff(old, new, f"a/{source.path}", f"b/{source.path}"):
                parts.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
        return "".join(parts)

    def write(self) -> None:
        """Write all changed files but the overlaid ones, or none. Raises UserError."""
        changes = {}
        for path, text in self.texts.items():
            if path in self.overlaid:
                continue
            original = files.read(path)
            if original.text != self.before[path].text:
                raise UserError(f"{self.before[path].path}: changed while it was analysed; nothing was written")
            changes[path] = (original, text)
        files.write_all(changes)
        self.written = tuple(sorted(changes))


def fix(settings: Settings, request: Request, allowed: Collection[str]) -> Fixed:
    """Try the edits of the allowed applicabilities. Nothing is written. Raises UserError as `check` does."""
    report, analysis = checking.check_with_analysis(settings, request)
    for partly in (True, False):
        work = _Work(settings, request, frozenset(allowed), analysis, report, partly=partly)
        for _ in range(MAX_ROUNDS):
            if not work.round():
                break
        if not partly or work.holds():
            break
    return work.result()


def offer(settings: Settings, request: Request, report: model.CheckReport, analysis: Analysis) -> model.CheckReport:
    """The report with an edit at each finding for which one round of trying found one, whatever its applicability.

    A large project stays without: the edits are tried by reading it again. So does one whose prompts were measured in traffic, for that was
    sent by the prompts as they are and says nothing of edited ones.
    """
    if not report.findings or report.summary.files > MAX_OFFERED_FILES or request.traffic:
        return report
    work = _Work(settings, request, frozenset(APPLICABILITY), analysis, report, partly=True, writes=False)
    work.round()
    if not work.holds():
        work = _Work(settings, request, frozenset(APPLICABILITY), analysis, report, writes=False)
        work.round()
    return work.with_edits(report)


def proposals(analysis: Analysis, finding: Finding) -> tuple[Fix, ...]:
    """The edits that may repair one finding, untried, the best first."""
    project = analysis.project

    def everything() -> Iterable[SourceFile]:
        return (source for path in project.files if (source := project.source(path)) is not None)

    return tuple(each for each in propose(finding, Desk(_sources(analysis), everything)) if each.edits)


def objection(
    before: tuple[Analysis, model.CheckReport],
    after: tuple[Analysis, model.CheckReport],
    finding: Finding,
    fix: Fix,
) -> str:
    """Why an edit does not help, from what was found without and with it; empty when it does."""
    sources = _sources(before[0])
    impossible = _impossible(fix, sources)
    if impossible:
        return impossible
    patch = Patch()
    patch.add(fix.edits, sources)
    wrong = _blame(before[0], after[0], (before[1], after[1]), patch, [_Try(finding, [fix], fix)])
    return wrong[0].why if wrong else ""


@dataclass(slots=True)
class _Try:
    """A finding with the proposals that are left for it."""

    finding: Finding
    left: list[Fix]
    chosen: Fix | None = None


class _Wrong(NamedTuple):
    """An edit that must not be kept now, and why. Not `sure`: it is one of several that may be to blame."""

    each: _Try
    why: str
    sure: bool = True


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
    rounds: int = 0  # that kept something
    partly: bool = False  # read only again what an edit has to do with
    guessed: bool = False  # a part was read where all counts
    writes: bool = True  # the files are to be written, so that they must allow it

    def round(self) -> bool:
        """Propose, try, keep. False when nothing was kept.

        Where one of several edits is to blame, half of them are held back, until the one is found.
        """
        self.dropped = []
        sources = _sources(self.analysis)
        tries, held = self._tries(sources), list[_Try]()
        for number in range(MAX_TRIES):
            patch, chosen = _chosen(tries, sources)
            if not chosen and held:
                tries, held = sorted(held, key=_place), []
                patch, chosen = _chosen(tries, sources)
            if not chosen:
                return False
            wrong = self._attempt(patch, sources, chosen)
            if wrong is None:
                self.rounds += 1
                self.applied += [Applied(each.finding, each.chosen, self.rounds) for each in chosen if each.chosen]
                return True
            for each, why, sure in wrong:
                assert each.chosen is not None
                if sure:
                    self.dropped.append(Dropped(each.finding, each.chosen, why))
                    each.left.remove(each.chosen)
                else:
                    held.append(each)
                if not sure or number >= MAX_TRIES // 2:
                    tries.remove(each)  # late in a round no further proposals, so that the edits that help are kept
        return False

    def _tries(self, sources: dict[str, SourceFile]) -> list[_Try]:
        """The shown findings with the edits that may be made."""
        desk = Desk(sources, self._everything)
        tries = []
        for finding in _shown(self.analysis, self.report):
            left = []
            for proposal in propose(finding, desk):
                if proposal.applicability not in self.allowed or not proposal.edits:
                    continue
                why = self._forbidden(proposal) or _impossible(proposal, sources)
                if why:
                    self.dropped.append(Dropped(finding, proposal, why))
                else:
                    left.append(proposal)
            if left:
                tries.append(_Try(finding, left))
        return sorted(tries, key=_place)

    def _everything(self) -> Iterable[SourceFile]:
        """All files of the project that can be read."""
        project = self.analysis.project
        return (source for path in project.files if (source := project.source(path)) is not None)

    def _forbidden(self, fix: Fix) -> str:
        """Why an edit may not be made; empty when all of its files are given ones that can be written."""
        given = self.analysis.project.given
        for edit in fix.edits:
            path = absolute(self.analysis.project.working_directory / edit.span.path)
            if path not in given:
                return f"it also changes {edit.span.path}, which is not in the given paths"
            if path in (self.request.overlay or {}):
                continue
            if path.is_symlink() and not self._may_follow(path):
                return f"{edit.span.path} is a link to a file outside the given paths"
            why = files.unwritable(path) if self.writes else ""
            if why:
                return f"{edit.span.path} {why}"
        return ""

    def _may_follow(self, path: Path) -> bool:
        """Whether what a link points to was given: by naming the link, or a folder around the file."""
        named = [absolute(self.request.working_directory / each) for each in self.request.paths]
        target = path.resolve()
        return path in named or any(target.is_relative_to(each.resolve()) for each in named)

    def _attempt(self, patch: Patch, sources: Mapping[str, SourceFile], chosen: list[_Try]) -> list[_Wrong] | None:
        """None when all chosen edits help together, and then they are kept; else those that are to blame, and why."""
        texts = patch.texts(sources)
        broken = {path for path, text in texts.items() if not _parses(path, text, sources[path].text)}
        if broken:
            return [_Wrong(each, "the file would not parse") for each in chosen if _paths(each) & broken]
        changed = {absolute(self.analysis.project.working_directory / path): text for path, text in texts.items()}
        overlay = {**(self.request.overlay or {}), **self.texts, **changed}
        request = replace(self.request, overlay=overlay)
        read = Rereading(self.analysis).reader(changed) if self.partly else None
        self.guessed |= read is not None
        analysis = checking.analyse(self.settings, request, self.analysis.discovery, read)
        report = checking.report_of(self.settings, request, analysis)
        wrong = _blame(self.analysis, analysis, (self.report, report), patch, chosen)
        if wrong:
            return wrong
        for path in changed:
            source = self.analysis.project.source(path)
            assert source is not None
            self.before.setdefault(path, source)
        self.texts.update(changed)
        self.report, self.analysis = report, analysis
        return None

    def holds(self) -> bool:
        """Whether the whole project, read with all edits, has the findings that reading a part of it said. Its report takes the place of that one."""
        if not self.texts or not self.guessed:
            return True
        request = replace(self.request, overlay={**(self.request.overlay or {}), **self.texts})
        analysis = checking.analyse(self.settings, request, self.analysis.discovery)
        report = checking.report_of(self.settings, request, analysis)
        same = Counter(map(_key, _shown(analysis, report))) == Counter(map(_key, _shown(self.analysis, self.report)))
        if same:
            self.analysis, self.report = analysis, report
        return same

    def result(self) -> Fixed:
        """What came out, in the end."""
        why: dict[tuple[object, ...], Dropped] = {}
        for each in self.dropped:
            why.setdefault((each.finding.rule, each.finding.span), each)
        report = replace(self.report, findings=tuple(_told(item, why) for item in self.report.findings))
        overlaid = frozenset(self.request.overlay or ())
        return Fixed(report, tuple(self.applied), tuple(self.dropped), self.texts, self.before, overlaid)

    def _lines(self, fix: Fix) -> model.Suggestion | None:
        """Edits of one file as whole lines."""
        paths = {edit.span.path for edit in fix.edits}
        path = fix.edits[0].span.path
        source = self.before.get(absolute(self.request.working_directory / path))
        if len(paths) > 1 or source is None:
            return None
        first, last = min(edit.span.line for edit in fix.edits), max(edit.span.end_line for edit in fix.edits)
        end = source.line_text(last)
        start, stop = source.offset(first, 1), source.offset(last, len(end) + 1)
        whole = apply(source, fix.edits)
        text = whole[start : len(whole) - (len(source.text) - stop)]
        return model.Suggestion(first, last, len(end.encode("utf-8", "surrogatepass")) + 1, text)

    def with_edits(self, report: model.CheckReport) -> model.CheckReport:
        """A report from before the edits with those that were kept."""
        kept = {(each.finding.rule, each.finding.span): each.fix for each in self.applied}
        items = []
        for item in report.findings:
            found = next((fix for (rule, span), fix in kept.items() if _same_place(item, rule, span)), None)
            if found is not None:
                item = replace(item, fix=checking.fix_item(found), suggestion=self._lines(found))
            items.append(item)
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


def _place(each: _Try) -> Span:
    return each.finding.span


def _chosen(tries: list[_Try], sources: Mapping[str, SourceFile]) -> tuple[Patch, list[_Try]]:
    """The first proposal of each finding that overlaps no earlier one, and who chose. Findings with the very same edits share them."""
    patch = Patch()
    taken: set[tuple[Edit, ...]] = set()
    chosen: list[_Try] = []
    for each in tries:
        each.chosen = None
        for fix in each.left[:1]:
            if fix.edits in taken or patch.add(fix.edits, sources, len(chosen)):
                taken.add(fix.edits)
                each.chosen = fix
                chosen.append(each)
    return patch, chosen


def _impossible(fix: Fix, sources: Mapping[str, SourceFile]) -> str:
    """Why an edit need not be tried; empty when it can be made."""
    patch = Patch()
    if not patch.add(fix.edits, sources):
        return "its edits overlap"
    if any(not _parses(path, text, sources[path].text) for path, text in patch.texts(sources).items()):
        return "the file would not parse"
    return ""


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
    old: Analysis, new: Analysis, reports: tuple[model.CheckReport, model.CheckReport], patch: Patch, chosen: list[_Try]
) -> list[_Wrong]:
    """The edits whose findings are still there, and those that brought a new one.

    A finding is known again by its rule and its place, followed back through the edits; one in text that an edit wrote is that edit's. Where a place is told
    in another way than before, rule and expression must not be more than they were.
    """
    before, after = _shown(old, reports[0]), _shown(new, reports[1])
    own = {(each.finding.rule, *_where(old, each.finding)): number for number, each in enumerate(chosen)}
    places = {(finding.rule, *_where(old, finding)) for finding in (*old.result.findings, *old.result.raised)}
    spelled = Counter(_spelled(finding) for finding in before)
    wrong: dict[int, str] = {}
    doubtful: dict[int, str] = {}
    unknown = []
    for finding in after:
        path, offset = _where(new, finding)
        owner, place = patch.origin(path, offset)
        if owner is None:
            owner = own.get((finding.rule, path, place))
        if owner is not None:
            each = chosen[owner]
            if not _weaker(finding, each.finding):
                same = finding.rule == each.finding.rule
                wrong.setdefault(owner, STILL if same else f"{finding.rule} would be reported in its place")
        elif (finding.rule, path, place) not in places:
            source = old.project.source(absolute(old.project.working_directory / path))
            unknown.append((finding, source.place(place)[0] if source is not None else 0))
    for finding, line in unknown:
        spelling = _spelled(finding)
        mine = [number for number, each in enumerate(chosen) if _spelled(each.finding) == spelling]
        left = sum(_spelled(each) == spelling for each in after)
        if left <= spelled[spelling] - len(mine):
            continue
        if mine:
            for number in mine:
                wrong.setdefault(number, STILL)
        elif left > spelled[spelling]:
            suspects, why = _suspects(finding, line, chosen), f"{finding.rule} would be reported in its place"
            if len(suspects) == 1:
                wrong.setdefault(suspects[0], why)
            elif not wrong.keys() & suspects:
                doubtful.update((number, why) for number in suspects[len(suspects) // 2 :])
    return [
        *(_Wrong(chosen[number], why) for number, why in wrong.items()),
        *(_Wrong(chosen[number], why, sure=False) for number, why in doubtful.items() if number not in wrong),
    ]


def _where(analysis: Analysis, finding: Finding) -> tuple[str, int]:
    source = analysis.project.source(absolute(analysis.project.working_directory / finding.span.path))
    return finding.span.path, source.offset(finding.span.line, finding.span.column) if source is not None else 0


def _spelled(finding: Finding) -> tuple[str, str, str]:
    return finding.rule, finding.span.path, "".join(finding.expression.split())


def _weaker(finding: Finding, repaired: Finding) -> bool:
    """Whether a finding is what is left of a repaired one: the same rule, and a value that now changes less often."""
    return finding.rule == repaired.rule and (finding.volatility or 0) < (repaired.volatility or 0)


def _suspects(finding: Finding, line: int, chosen: list[_Try]) -> list[int]:
    """The edits that may have brought a finding, from the nearest on: around its line (as it was), sent by its calls, of its file, of files on its way.

    None where nothing leads to it: then reading a part of the project found what reading all of it does not, which the last reading settles.
    """
    path = finding.span.path
    sites = _sites(finding)
    groups: tuple[Callable[[_Try], bool], ...] = (
        lambda each: _covers(each, path, line),
        lambda each: bool(_sites(each.finding) & sites),
        lambda each: path in _paths(each),
        lambda each: bool({note.span.path for note in (*finding.trace, *finding.related)} & _paths(each)),
        lambda each: bool({note.span.path for note in (*each.finding.trace, *each.finding.related)} & {path}),
    )
    for belongs in groups:
        found = [number for number, each in enumerate(chosen) if belongs(each)]
        if found:
            return found
    return []


def _covers(each: _Try, path: str, line: int) -> bool:
    """Whether a line lies between the first and the last edit of a file."""
    spans = [edit.span for edit in each.chosen.edits if edit.span.path == path] if each.chosen else []
    return bool(spans) and min(span.line for span in spans) <= line <= max(span.end_line for span in spans)


def _sites(finding: Finding) -> set[str]:
    return {finding.call_site, *(note.call_site for note in finding.related)} - {""}
