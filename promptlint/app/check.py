"""The pipeline behind `promptlint check` and `promptlint show`: files to readings to findings to a report.

Discovery lists the files, the front ends read them, `checks` finds the faults, and what the user asked for decides which of them are shown.
Every rule runs whatever was selected: which of two rules speaks for one value must not depend on the selection.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from promptlint import __version__
from promptlint.analysis import Assumptions, CallSite
from promptlint.app.discovery import Discovery, absolute, discover, matches_glob
from promptlint.app.local_templates import layouts
from promptlint.app.suppress import Suppression, read_suppressions
from promptlint.catalog.rules import CATEGORIES, Rule, Rules, load_rules, no_such_rule
from promptlint.checks.runner import CheckResult, run
from promptlint.config import CONFIDENCES, Settings
from promptlint.errors import UserError
from promptlint.finding import PERSONAS, Finding, Fix, Note
from promptlint.frontends.base import Project, paused_collector
from promptlint.ir import Confidence, Prompt, Reading, TemplateVerdict, blocks_of, text_of
from promptlint.report import model
from promptlint.source import Span

__all__ = [
    "Analysis",
    "Request",
    "analyse",
    "assumptions_of",
    "check",
    "check_with_analysis",
    "combined",
    "fix_item",
    "read_alone",
    "read_project",
    "report_of",
    "resolve_rules",
    "selected_rules",
    "wanting",
]

UNUSED = "unused-suppression"
NO_REASON = "suppression-without-reason"
MANY_FILES = 150  # files of a project from which a process of its own for those that are no Python pays


@dataclass(frozen=True, slots=True)
class Request:
    """What to look at. Paths may be relative to `working_directory`, which is also what findings are printed relative to.

    `overlay` holds text that stands in for a file's (stdin, an editor's buffer), by absolute path. `changed`: report findings that have a step
    of their trace in the given paths too.
    """

    paths: tuple[Path, ...]
    working_directory: Path
    overlay: Mapping[Path, str] | None = None
    changed: bool = False
    traffic: tuple[str, ...] = ()  # logs whose measured volatility takes the place of guesses


@dataclass(slots=True)
class Analysis:
    """What was read and found, before anything is filtered."""

    project: Project
    discovery: Discovery
    reading: Reading
    result: CheckResult
    assumptions: Assumptions
    rules: Rules


def check(settings: Settings, request: Request, *, use_cache: bool = True, edits: bool = False) -> model.CheckReport:
    """The report of one run, with `edits` that repair its findings where they are asked for. Raises UserError when a path, a rule name or a rule page is wrong."""
    selection = _Selection(settings, load_rules(settings.extra_rules))
    discovery = find(settings, request)
    cache = None
    if use_cache:
        from promptlint.app.cache import Cache

        cache = Cache(settings, request, discovery, edits=edits)
        known = cache.load()
        if known is not None:
            return known
        cache.prepare()
    analysis = analyse(settings, request, discovery)
    report = _report(analysis, request, selection)
    if edits:
        from promptlint.app.fix import offer

        report = offer(settings, request, report, analysis)
    if cache is not None:
        cache.store(report, analysis.project)
    return report


def check_with_analysis(settings: Settings, request: Request) -> tuple[model.CheckReport, Analysis]:
    """The same without a cache, together with what was read: for who needs the prompts too. Raises UserError as `check` does."""
    analysis = analyse(settings, request)
    return report_of(settings, request, analysis), analysis


def report_of(settings: Settings, request: Request, analysis: Analysis) -> model.CheckReport:
    """The report of what was read and found. Raises UserError for a wrong rule name."""
    return _report(analysis, request, _Selection(settings, load_rules(settings.extra_rules)))


def find(settings: Settings, request: Request) -> Discovery:
    """The files of a request. Raises UserError when a given path does not exist."""
    overlay = dict(request.overlay or {})
    paths = [absolute(request.working_directory / path) for path in request.paths]
    discovery = discover(settings, [path for path in paths if path not in overlay], display=request.working_directory)
    for path in overlay:
        discovery.add(path)
    return discovery


def analyse(
    settings: Settings,
    request: Request,
    discovery: Discovery | None = None,
    read: Callable[[Project, Discovery, tuple[Path, ...]], Reading] | None = None,
) -> Analysis:
    """Read the project, with `read` where it is given, and run every rule."""
    discovery = discovery or find(settings, request)
    project = Project(
        discovery.root,
        discovery.files,
        frozenset(discovery.given),
        request.working_directory,
        overlay=dict(request.overlay or {}),
    )
    with paused_collector():
        reading = (read or read_project)(project, discovery, settings.extra_rules)
        if request.traffic:
            from promptlint.app.traffic import measured_reading

            reading = measured_reading(reading, request.traffic)
        assumptions = replace(
            assumptions_of(settings),
            layouts=layouts(project, reading.prompts, settings.tokenizer, settings.chat_template),
        )
        rules = load_rules(settings.extra_rules)
        return Analysis(project, discovery, reading, run(reading, rules, assumptions), assumptions, rules)


def assumptions_of(settings: Settings) -> Assumptions:
    """What estimates rest on. Raises UserError when the profile or the tokenizer does not exist."""
    from promptlint import tokenizers

    if settings.tokenizer is not None:
        tokenizers.get(settings.tokenizer)
    return replace(Assumptions.default(settings.profile, settings.tokenizer), extra_rules=settings.extra_rules)


def read_project(
    project: Project,
    discovery: Discovery,
    extra_rules: tuple[Path, ...] = (),
    roots: frozenset[Path] | None = None,
) -> Reading:
    """All front ends over one project. A template that Python fills is read there, with its values; the others are read on their own.

    `roots`: only the prompts that begin in these files, where they are given.
    """
    from promptlint.frontends import chat_template, jinja, python

    if roots is not None:
        jinjas = [path for path in discovery.jinja if path in roots]
        discovery = replace(discovery, jinja=jinjas, prompts=[path for path in discovery.prompts if path in roots])
    with _reading_alone(project, discovery) as finish:
        reading = python.read(project, templates=jinja.read_template, extra_rules=extra_rules, roots=roots)
        alone = finish() + chat_template.read_inline(reading.prompts)
    return combined(reading, alone)


def combined(reading: Reading, alone: Reading) -> Reading:
    """What Python says and what the other files say on their own, without the templates that Python was seen to fill."""
    filled = {
        (text.span.path, text.span.line)
        for prompt in reading.prompts
        for block in blocks_of(prompt.blocks)
        for text in text_of(block.segments)
    }
    left = tuple(
        prompt
        for prompt in alone.prompts
        if not any((prompt.path, line) in filled for line in range(prompt.span.line, prompt.span.end_line + 1))
    )
    return reading + replace(alone, prompts=left)


def read_alone(project: Project, discovery: Discovery) -> Reading:
    """The files that are no Python, each on its own."""
    from promptlint.frontends import chat_template, jinja, prompt_file

    alone = Reading()
    if discovery.jinja:
        alone += jinja.read(project, discovery.jinja)
    if discovery.prompts:
        alone += prompt_file.read(project, discovery.prompts, templates=jinja.read_template)
    if discovery.jinja or discovery.prompts:
        alone += chat_template.read(project, (*discovery.jinja, *discovery.prompts))
    return alone


@contextmanager
def _reading_alone(project: Project, discovery: Discovery) -> Iterator[Callable[[], Reading]]:
    """Read what is no Python while the caller reads Python: in a process of its own when there is much to read, else when it is asked for."""
    from promptlint.frontends import workers

    def work(channel: workers.Channel) -> None:
        channel.send((read_alone(project, discovery), project.learned()))

    many = len(discovery.files) >= MANY_FILES and len(discovery.jinja) + len(discovery.prompts) > 0
    helper = workers.start(work) if many and workers.cores() > 1 else None
    if helper is None:
        yield lambda: read_alone(project, discovery)
        return

    def finish() -> Reading:
        try:
            reading, learned = helper.receive()
        except workers.LostError:
            return read_alone(project, discovery)
        project.learn(learned)
        return cast("Reading", reading)

    with helper:
        yield finish


def resolve_rules(names: Iterable[str], rules: Rules, where: str) -> frozenset[str]:
    """Rules by name, former name, category or `all`. Raises UserError with the nearest name for an unknown one."""
    found: set[str] = set()
    for name in names:
        canonical = rules.canonical(name)
        if name == "all":
            found.update(rules)
        elif name in CATEGORIES:
            found.update(rule.name for rule in rules.values() if rule.category == name)
        elif canonical is not None:
            found.add(canonical)
        else:
            raise UserError(f"{where}: {no_such_rule(name, rules, [*CATEGORIES, 'all'])}")
    return frozenset(found)


def selected_rules(settings: Settings) -> frozenset[str]:
    """Names of the rules that the settings ask for. Raises UserError for an unknown name."""
    rules = load_rules(settings.extra_rules)
    where = f"{settings.source}: " if settings.source else ""
    selected = resolve_rules(settings.select or ("all",), rules, f"{where}select")
    selected |= resolve_rules(settings.extend_select, rules, f"{where}extend-select")
    return selected - resolve_rules(settings.ignore, rules, f"{where}ignore")


def wanting(settings: Settings) -> Callable[[str, str], bool]:
    """Whether a rule (by name) is asked for in a file (path from the project root). Raises UserError for an unknown name in the settings."""
    return _Selection(settings, load_rules(settings.extra_rules)).wants


class _Selection:
    """Which findings the user wants to hear of."""

    def __init__(self, settings: Settings, rules: Rules) -> None:
        where = f"{settings.source}: " if settings.source else ""
        self.rules = selected_rules(settings)
        self.per_file = [
            (pattern, resolve_rules(names, rules, f"{where}per-file-ignores"))
            for pattern, names in settings.per_file_ignores
        ]
        self.persona = PERSONAS.index(settings.persona)
        self.confidence = Confidence(CONFIDENCES.index(settings.confidence))

    def wants(self, rule: str, relative: str) -> bool:
        """Whether the rule was asked for in that file (path relative to the project root)."""
        if rule not in self.rules:
            return False
        name = relative.rsplit("/", 1)[-1]
        return not any(rule in names and matches_glob(relative, name, pattern) for pattern, names in self.per_file)

    def shows(self, finding: Finding) -> bool:
        """Whether persona and confidence let the finding through."""
        return PERSONAS.index(finding.persona) <= self.persona and finding.confidence >= self.confidence


class _Paths:
    """Between printed paths, absolute paths and paths relative to the project root."""

    def __init__(self, analysis: Analysis) -> None:
        project = analysis.project
        self.root = project.root
        self.working_directory = project.working_directory
        self.given = {project.display(path): path for path in project.given}

    def relative(self, shown: str) -> str:
        """A printed path relative to the project root, which is where patterns and fingerprints count from."""
        path = self.given.get(shown) or absolute(self.working_directory / shown)
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()


def _report(analysis: Analysis, request: Request, selection: _Selection) -> model.CheckReport:
    paths = _Paths(analysis)
    kept, suppressed, hidden = _filtered(analysis, request, selection, paths)
    prints = _fingerprints([*kept, *suppressed, *hidden], paths)
    items = tuple(_item(finding, prints[id(finding)], analysis) for finding in kept)
    sites = [
        site for site in analysis.result.call_sites if _is_call_site(site.prompt) and site.prompt.path in paths.given
    ]
    call_sites = sorted((_call_site(site) for site in sites), key=lambda site: (site.path, site.line, site.id))
    unsupported = _unsupported(analysis, paths)
    readings = Counter(site.reading for site in call_sites)
    severities = Counter(item.severity for item in items)
    parsed = {path for path in analysis.reading.parsed if path in paths.given}
    files = {analysis.project.display(path) for path in _readable(analysis.discovery)}
    refused = {item.path for item in unsupported} - parsed
    return model.CheckReport(
        version=__version__,
        assumptions={**analysis.assumptions.as_json(), **analysis.result.assumptions},
        findings=items,
        call_sites=tuple(call_sites),
        chat_templates=tuple(
            _template(verdict) for verdict in analysis.reading.templates if verdict.path in paths.given
        ),
        unsupported=unsupported,
        suppressed=len(suppressed),
        summary=model.Summary(
            files=len(files),
            parsed=len(parsed),
            call_sites=len(call_sites),
            read_fully=readings["fully"],
            read_partly=readings["partly"],
            not_read=readings["not"],
            findings={severity: severities[severity] for severity in ("high", "medium", "low")},
            hidden=len(hidden),
            texts=sum(not _is_call_site(prompt) and prompt.path in paths.given for prompt in analysis.reading.prompts),
        ),
        rules={name: _card(analysis.rules[name]) for name in sorted({item.rule for item in items})},
        unusable=bool(refused) and files <= refused,
        withheld=tuple(sorted(prints[id(finding)] for finding in (*suppressed, *hidden))),
    )


def _is_call_site(prompt: Prompt) -> bool:
    """A template on its own is no call site: nothing is sent there."""
    return prompt.origin != "template"


def _readable(discovery: Discovery) -> Iterator[Path]:
    """The given files that are read for themselves, not only when code loads them."""
    return (item.path for item in discovery.listed if item.given and item.role in ("python", "jinja", "prompt"))


def _filtered(
    analysis: Analysis, request: Request, selection: _Selection, paths: _Paths
) -> tuple[list[Finding], list[Finding], list[Finding]]:
    """Shown findings in order, suppressed ones, and hidden ones."""
    notes = _suppressions(analysis, paths)
    used: set[Suppression] = set()
    kept: list[Finding] = []
    suppressed: list[Finding] = []
    hidden: list[Finding] = []
    for finding in analysis.result.findings:
        if not _in_scope(finding, request, paths) or not selection.wants(
            finding.rule, paths.relative(finding.span.path)
        ):
            continue
        allowing = [note for note in notes.get(finding.span.path, ()) if _allows(note, finding, analysis.rules)]
        used.update(allowing)
        if not selection.shows(finding):
            hidden.append(finding)
        elif allowing:
            suppressed.append(finding)
        else:
            kept.append(finding)
    for finding in _housekeeping(notes, used, analysis.rules, selection, paths):
        if selection.shows(finding):
            kept.append(finding)
        else:
            hidden.append(finding)
    kept.sort(key=lambda each: (-each.tokens_lost, each.span, each.rule, each.expression))
    return kept, suppressed, hidden


def _in_scope(finding: Finding, request: Request, paths: _Paths) -> bool:
    if finding.span.path in paths.given:
        return True
    return request.changed and any(note.span.path in paths.given for note in finding.trace)


def _suppressions(analysis: Analysis, paths: _Paths) -> dict[str, list[Suppression]]:
    """The suppressions of the given files and of the files that have a finding, by printed path."""
    found = {}
    reported = {finding.span.path for finding in analysis.result.findings}
    wanted = set(_readable(analysis.discovery)) | {absolute(paths.working_directory / shown) for shown in reported}
    for path in sorted(wanted):
        source = analysis.project.source(path)
        if source is not None:
            notes = read_suppressions(source)
            if notes:
                found[source.path] = notes
    return found


def _allows(note: Suppression, finding: Finding, rules: Rules) -> bool:
    return note.allows(finding.span.line) and finding.rule in {rules.canonical(name) for name in note.rules}


def _housekeeping(
    notes: Mapping[str, Sequence[Suppression]],
    used: set[Suppression],
    rules: Rules,
    selection: _Selection,
    paths: _Paths,
) -> Iterator[Finding]:
    """Suppressions without a reason, and those that suppress nothing although their rules ran."""
    for path, each in notes.items():
        if path not in paths.given:
            continue
        relative = paths.relative(path)
        for note in each:
            unknown = [name for name in note.rules if rules.canonical(name) is None]
            ran = [
                name
                for name in note.rules
                if name not in unknown and selection.wants(rules.canonical(name) or name, relative)
            ]
            listed = ", ".join(note.rules)
            if not note.reason and NO_REASON in rules and selection.wants(NO_REASON, relative):
                yield _remark(rules[NO_REASON], note.span, f"`allow[{listed}]` gives no reason", listed)
            if UNUSED not in rules or not selection.wants(UNUSED, relative):
                continue
            if unknown or not note.rules:
                yield _remark(rules[UNUSED], note.span, _unknown_message(unknown, rules), listed)
            elif ran and note not in used:
                yield _remark(rules[UNUSED], note.span, f"`allow[{listed}]` suppresses nothing here", listed)


def _unknown_message(unknown: Sequence[str], rules: Rules) -> str:
    if not unknown:
        return "`allow[]` names no rule"
    near = difflib.get_close_matches(unknown[0], list(rules), n=1)
    return f"there is no rule `{unknown[0]}` to allow" + (f"; did you mean `{near[0]}`?" if near else "")


def _remark(rule: Rule, span: Span, message: str, expression: str) -> Finding:
    return Finding(
        rule.name, rule.severity, Confidence.HIGH, rule.persona, span, message, expression=expression, help=rule.help
    )


def _fingerprints(findings: Sequence[Finding], paths: _Paths) -> dict[int, str]:
    """By id of the object. Equal findings are counted from the top of the file, also those that are not shown, so that neither cost, persona nor a
    suppression of one changes the fingerprint of another.
    """
    occurrences: Counter[tuple[str, ...]] = Counter()
    prints: dict[int, str] = {}
    for finding in sorted(findings, key=lambda each: (each.span, each.rule)):
        anchored = finding.at(replace(finding.span, path=paths.relative(finding.span.path)))
        key = (finding.rule, finding.span.path, finding.function, "".join(finding.expression.split()))
        prints[id(finding)] = anchored.fingerprint(occurrences[key])
        occurrences[key] += 1
    return prints


def _item(finding: Finding, fingerprint: str, analysis: Analysis) -> model.FindingItem:
    span = finding.span
    source = analysis.project.source(absolute(analysis.project.working_directory / span.path))
    return model.FindingItem(
        rule=finding.rule,
        severity=finding.severity,
        confidence=finding.confidence.word,
        persona=finding.persona,
        path=span.path,
        line=span.line,
        column=span.column,
        end_line=span.end_line,
        end_column=span.end_column,
        message=finding.message,
        expression=finding.expression,
        volatility=finding.volatility.word if finding.volatility is not None else None,
        block=finding.block.value if finding.block is not None else None,
        call_site=finding.call_site,
        tokens_behind=finding.tokens_behind,
        tokens_lost=finding.tokens_lost,
        hit_rate_now=finding.hit_rate_now,
        hit_rate_if_fixed=finding.hit_rate_if_fixed,
        trace=tuple(_place(note) for note in finding.trace),
        related=tuple(_place(note) for note in finding.related),
        fix=fix_item(finding.fix),
        fingerprint=fingerprint,
        help=finding.help,
        hint=finding.hint,
        source=source.line_text(span.line) if source is not None else "",
        function=finding.function,
    )


def _place(note: Note) -> model.Place:
    return model.Place(note.span.path, note.span.line, note.span.column, note.note, note.call_site)


def fix_item(fix: Fix | None) -> model.FixItem | None:
    """A fix in report form."""
    if fix is None:
        return None
    spans = [(edit.span, edit.text) for edit in fix.edits]
    edits = [
        model.EditItem(span.path, span.line, span.column, span.end_line, span.end_column, text) for span, text in spans
    ]
    return model.FixItem(fix.title, fix.applicability, tuple(edits))


def _call_site(site: CallSite) -> model.CallSiteItem:
    prompt = site.prompt
    return model.CallSiteItem(
        id=site.id,
        path=prompt.path,
        line=prompt.span.line,
        sink=prompt.sink,
        provider=prompt.provider,
        model=prompt.model,
        structured_output=prompt.structured_output,
        blocks=tuple(
            model.BlockItem(
                kind=block.kind.value,
                role=block.role,
                volatility=block.volatility.word,
                growth=block.growth.value,
                tokens=block.tokens,
                static_tokens=block.static_tokens,
                name=block.name,
                path=block.path,
                line=block.line,
            )
            for block in site.blocks
        ),
        prompt_tokens=site.prompt_tokens,
        cacheable_prefix_tokens=site.cacheable_prefix_tokens,
        estimated_hit_rate=site.estimated_hit_rate,
        cache_key=site.cache_key,
        resolution=site.resolution,
        unresolved=tuple(
            model.UnresolvedItem(
                part.expression, part.reason, part.span.path, part.span.line, site.next_step(part.reason)
            )
            for part in site.unresolved
        ),
    )


def _template(verdict: TemplateVerdict) -> model.TemplateItem:
    return model.TemplateItem(
        path=verdict.path,
        verdict=verdict.verdict,
        drops_reasoning=verdict.drops_reasoning,
        moves_tools=verdict.moves_tools,
        moves_system=verdict.moves_system,
        date=verdict.date,
        line=verdict.line,
        reusable_share=verdict.reusable_share,
    )


def _unsupported(analysis: Analysis, paths: _Paths) -> tuple[model.UnsupportedItem, ...]:
    """What was not analysed in the given paths, each place once, in order of place."""
    rows = {(item.path, item.line, item.reason) for item in analysis.discovery.problems}
    rows |= {(item.path, item.line, item.reason) for item in analysis.reading.unread if item.path in paths.given}
    told = {path for path, _, _ in rows}
    for path, reason in analysis.project.refused.items():
        shown = analysis.project.display(path)
        if shown in paths.given and shown not in told:
            rows.add((shown, 1, reason))
    return tuple(model.UnsupportedItem(*row) for row in sorted(rows))


def _card(rule: Rule) -> model.RuleCard:
    return model.RuleCard(rule.name, rule.category, rule.summary, rule.severity, rule.persona, rule.help, rule.body)
