"""A project that stays read while it is edited: what the language server asks, again and again.

A `Live` keeps the readings of the last look. The next look reads again what changed and what is known to depend on it (`quick`), or everything
(`quick=False`), and then finds the same as `promptlint check`. A quick look may miss what a change does to call sites of other files that only pass through the
changed one, and to functions in which there was no prompt before and which are written as before; the full look that follows in a pause says it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from promptlint.analysis import Assumptions, CallSite, call_sites
from promptlint.analysis.callsite import describe
from promptlint.analysis.render import render
from promptlint.app import check as checking
from promptlint.app.check import Analysis, Request
from promptlint.app.discovery import Discovery
from promptlint.app.local_templates import layouts
from promptlint.catalog.rules import load_rules
from promptlint.checks.runner import Said, run
from promptlint.config import Settings
from promptlint.frontends.base import Project, paused_collector
from promptlint.frontends.python.warm import Warm
from promptlint.ir import Prompt, Reading, blocks_of, text_of
from promptlint.report import model
from promptlint.source import SourceFile

__all__ = ["Live", "Look", "Stopped"]

TIDIED_AFTER = 20  # quick looks after which the garbage of all of them is collected, where no full look came between


class Stopped(Exception):
    """A look was given up, because its answer is no longer wanted."""


@dataclass(frozen=True, slots=True)
class Look:
    """One answer: what was read and found, and the report as `check` gives it.

    `full`: everything was read for it; `waiting`: something of other files was left to the next look.
    """

    report: model.CheckReport
    analysis: Analysis
    full: bool
    waiting: bool = False

    def source(self, path: Path) -> SourceFile | None:
        """The text that the look saw."""
        return self.analysis.project.source(path)


class Live:
    """One project. Not safe for several threads at a time; `fork` gives an independent copy."""

    def __init__(self, settings: Settings, *, only_overlay: bool = False) -> None:
        """`only_overlay`: no file is read but those whose text is given."""
        self.settings = settings
        self._only_overlay = only_overlay
        self._discovery: Discovery | None = None
        self._sources: dict[Path, SourceFile | None] = {}
        self._refused: dict[Path, str] = {}
        self._overlay: dict[Path, str] = {}
        self._warm = Warm()
        self._assumed: Assumptions | None = None
        self._described: dict[tuple[int, str], CallSite] = {}
        self._said = Said()
        self._alone: dict[str, Reading] = {}
        self._alone_sources: dict[str, SourceFile | None] = {}
        self._untidied = 0  # quick looks since garbage was collected

    def fork(self) -> Live:
        """A copy that may look at other texts without a trace here."""
        other = Live(self.settings, only_overlay=self._only_overlay)
        other._discovery = self._discovery
        other._sources = dict(self._sources)
        other._refused = dict(self._refused)
        other._overlay = dict(self._overlay)
        other._warm = self._warm.fork()
        other._assumed, other._described = self._assumed, dict(self._described)
        other._said = self._said.fork()
        other._alone = dict(self._alone)
        other._alone_sources = dict(self._alone_sources)
        return other

    def forget(self, path: Path) -> None:
        """The file changed on disk."""
        self._sources.pop(path, None)
        self._refused.pop(path, None)

    def forget_files(self) -> None:
        """Files came or went: the list of files is made anew."""
        self._discovery = None

    def knows(self, path: Path) -> bool:
        """Whether the walk of the project finds the file and does not leave it out."""
        return path in self._listed().given

    def _listed(self) -> Discovery:
        if self._discovery is None:
            if self._only_overlay:
                self._discovery = Discovery(self.settings.root)
            else:
                request = Request((self.settings.root,), self.settings.root)
                self._discovery = checking.find(self.settings, request)
        return self._discovery

    def look(
        self,
        overlay: Mapping[Path, str],
        *,
        quick: bool = False,
        hasty: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> Look:
        """Read and check with these texts in place of the files'. Raises Stopped when `stop` says so, and UserError as `check` does.

        `hasty`: a quick look may leave what changes in other files to the next one.
        """
        settings = self.settings
        request = Request((settings.root,), settings.root, dict(overlay))
        discovery = _with(self._listed(), overlay)
        project = self._project(discovery, overlay)
        if not quick:
            self._warm.forget()
            self._alone.clear()

        def going() -> None:
            if stop():
                raise Stopped

        going()
        with paused_collector():
            reading = self._read(project, discovery, going, hasty=quick and hasty)
            going()
            rules = load_rules(settings.extra_rules)
            assumptions = checking.assumptions_of(settings)
            order = layouts(project, reading.prompts, settings.tokenizer, settings.chat_template)
            assumptions = replace(assumptions, layouts=order)
            sites = self._sites(reading, assumptions)
            result = run(reading, rules, assumptions, sites, self._said)
            going()
            analysis = Analysis(project, discovery, reading, result, assumptions, rules)
            report = checking.report_of(settings, request, analysis)
            look = Look(report, analysis, not quick, self._warm.memory.waiting)
            self._set_aside(quick=quick)
            return look

    def _set_aside(self, *, quick: bool) -> None:
        """Take what a look leaves out of the collector's sight: nearly all of it stays until the next look, and to go through it takes longer than a look may.

        The garbage among it is collected at a full look, for which nobody waits.
        """
        self._untidied += 1
        if not quick or self._untidied > TIDIED_AFTER:
            gc.unfreeze()
            gc.collect()
            self._untidied = 0
        gc.freeze()

    def _sites(self, reading: Reading, assumptions: Assumptions) -> tuple[CallSite, ...]:
        """The call sites; of a prompt that is the very same as before, the one of before with all that was computed for it."""
        same = self._assumed == assumptions
        before = self._described if same else {}
        self._said = self._said if same else Said()
        now: dict[tuple[int, str], CallSite] = {}

        def make(prompt: Prompt, site_id: str) -> CallSite:
            key = id(prompt), site_id
            found = before.get(key)
            if found is None or found.prompt is not prompt:
                found = describe(render(prompt, assumptions, site_id))
            now[key] = found
            return found

        sites = call_sites(reading.prompts, assumptions, make)
        self._assumed, self._described = assumptions, now
        return sites

    def _project(self, discovery: Discovery, overlay: Mapping[Path, str]) -> Project:
        """The files with these texts. A text that is as it was keeps its object: what was read from it still holds."""
        for path in {*self._overlay, *overlay}:
            known = self._sources.get(path)
            if self._overlay.get(path) != overlay.get(path) and not (known and known.text == overlay.get(path)):
                self.forget(path)
        self._overlay = dict(overlay)
        files = set(discovery.files)
        self._sources = {path: source for path, source in self._sources.items() if source is not None or path in files}
        return Project(
            discovery.root,
            discovery.files,
            frozenset(discovery.given),
            self.settings.root,
            self._refused,
            self._overlay,
            {},
            self._sources,
        )

    def _read(self, project: Project, discovery: Discovery, going: Callable[[], None], *, hasty: bool) -> Reading:
        from promptlint.frontends import chat_template, jinja, python

        extra = self.settings.extra_rules
        reading = python.read(
            project, templates=jinja.read_template, extra_rules=extra, warm=self._warm, hasty=hasty, going=going
        )
        alone = self._read_alone(project, discovery, going) + chat_template.read_inline(reading.prompts)
        return checking.combined(reading, alone)

    def _read_alone(self, project: Project, discovery: Discovery, going: Callable[[], None]) -> Reading:
        """The files that are no Python: those that changed, those with text from one that changed, and those not read yet."""
        paths = {project.display(path): path for path in (*discovery.jinja, *discovery.prompts)}
        now = {shown: project.source(path) for shown, path in paths.items()}
        changed = {shown for shown, source in now.items() if self._alone_sources.get(shown) is not source}
        self._alone_sources = now
        stale = [
            shown
            for shown in paths
            if shown in changed or shown not in self._alone or not changed.isdisjoint(_mentioned(self._alone[shown]))
        ]
        going()
        if stale:
            wanted = {paths[shown] for shown in stale}
            part = replace(
                discovery,
                jinja=[path for path in discovery.jinja if path in wanted],
                prompts=[path for path in discovery.prompts if path in wanted],
            )
            found = checking.read_alone(project, part)
            for shown in stale:
                self._alone[shown] = _of_file(found, shown)
        whole = Reading()
        for shown in paths:
            whole += self._alone[shown]
        return whole


def _with(discovery: Discovery, overlay: Mapping[Path, str]) -> Discovery:
    """The files, with those that only an editor holds."""
    new = [path for path in overlay if path not in discovery.given]
    if not new:
        return discovery
    found = replace(
        discovery,
        files=list(discovery.files),
        given=set(discovery.given),
        jinja=list(discovery.jinja),
        prompts=list(discovery.prompts),
        listed=list(discovery.listed),
    )
    for path in new:
        found.add(path)
    return found


def _of_file(reading: Reading, shown: str) -> Reading:
    return Reading(
        tuple(prompt for prompt in reading.prompts if prompt.path == shown),
        tuple(edit for edit in reading.edits if edit.span.path == shown),
        tuple(verdict for verdict in reading.templates if verdict.path == shown),
        tuple(one for one in reading.unread if one.path == shown),
        tuple(path for path in reading.parsed if path == shown),
    )


def _mentioned(reading: Reading) -> set[str]:
    """The files whose text stands in a reading."""
    return {
        text.span.path
        for prompt in reading.prompts
        for block in blocks_of(prompt.blocks)
        for text in text_of(block.segments)
    }
