"""The pipeline behind `promptlint diff`: two sides, each a report, a folder or a git revision, and what changed between them.

Call sites are matched by id; a file or a function that was renamed by its cache key, else by function and sink, each only where that is
unique. Findings are matched by fingerprint, which holds no line; what is left counts as moved when its call site was matched and rule
and expression are the same. Both sides of two revisions are read with the settings of the user's checkout.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from promptlint import __version__
from promptlint.advisor.reorder import propose_all
from promptlint.analysis import CallSite
from promptlint.app.check import Request, check_with_analysis
from promptlint.app.discovery import absolute
from promptlint.app.revision import checked_out
from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.finding import SEVERITIES
from promptlint.report.diff_model import (
    CallSiteChange,
    DiffReport,
    Headline,
    MovedFinding,
    OrderItem,
    ReplayItem,
    SideItem,
    VerdictItem,
)
from promptlint.report.model import CallSiteItem, CheckReport, FindingItem, from_json

__all__ = ["Side", "compare", "drop", "exceeded", "read_side", "verdicts"]

_VISIBLE = 0.005  # a change of half a point is the least that a rounded percentage shows


@dataclass(frozen=True, slots=True)
class Side:
    """One side that was read. `orders` and `sites` only where its code was at hand."""

    name: str
    commit: str | None
    report: CheckReport
    orders: tuple[OrderItem, ...] = ()
    sites: tuple[CallSite, ...] | None = None


def read_side(name: str, settings_of: Callable[[Path], Settings], request: Request, *, edits: bool = False) -> Side:
    """A report (a JSON file), a folder, or a revision of the repository that holds the working directory, in this order.

    `request` says which paths of a revision or of the working directory are looked at; any other folder is read whole, and its paths count
    from itself. `edits`: the report of a folder has the edits that repair its findings. Raises UserError when the name is none of these.
    """
    path = absolute(request.working_directory / name)
    if path.is_file():
        return Side(name, None, _read_report(path))
    if path.is_dir():
        if path != request.working_directory:
            request = replace(request, paths=(path,), working_directory=path)
        return _analysed(name, None, settings_of(path), request, edits=edits)
    settings = settings_of(absolute(request.working_directory / request.paths[0]))
    with checked_out(name, request.working_directory) as checkout:
        return _analysed(name, checkout.commit, checkout.settings(settings), checkout.request(request))


def _read_report(path: Path) -> CheckReport:
    try:
        return from_json(json.loads(path.read_text("utf-8")))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not a report of `promptlint check --output-format json`") from error


def _analysed(name: str, commit: str | None, settings: Settings, request: Request, *, edits: bool = False) -> Side:
    if not request.paths:
        raise UserError(f"{name}: holds none of the given paths")
    report, analysis = check_with_analysis(settings, request)
    if edits:
        from promptlint.app.fix import offer

        report = offer(settings, request, report, analysis)
    orders = tuple(
        OrderItem(each.call_site, each.before, each.after, each.hit_rate_now, each.hit_rate_then)
        for each in propose_all(analysis.result.call_sites)
        if each.by_terms  # other proposals count in the hit rates of a server of one's own, which stand nowhere else in the report
    )
    return Side(name, commit, report, orders, tuple(analysis.result.call_sites))


def compare(base: Side, head: Side, found: tuple[VerdictItem, ...] = (), traffic: tuple[str, ...] = ()) -> DiffReport:
    """What changed from base to head. `traffic` names logs that both sides render anew. Raises UserError when they cannot be."""
    pairs = _pairs(base.report.call_sites, head.report.call_sites)
    replicas = _replicas(head.report)
    rows = sorted((_change(one, other, replicas) for one, other in pairs), key=_weight)
    new, fixed, moved, same = _findings(base.report, head.report, pairs)
    in_table = {row.id for row in rows if row.status != "same"}
    changed = [row for row in rows if row.cache_key_changed]
    return DiffReport(
        version=__version__,
        base=_totals(base),
        head=_totals(head),
        headline=_headline(rows, new, fixed),
        call_sites=tuple(rows),
        new_findings=tuple(new),
        fixed_findings=tuple(fixed),
        moved_findings=tuple(moved),
        unchanged_findings=same,
        cache_keys_changed=len(changed),
        once_tokens=sum(row.once_tokens for row in changed),
        replicas=replicas,
        orders=tuple(order for order in head.orders if order.call_site in in_table),
        verdicts=found,
        replay=_replay(base, head, pairs, traffic),
        assumptions=head.report.assumptions,
        notes=(*_notes(base.report, head.report), *_too_short(rows, head.report)),
    )


def _replay(
    base: Side, head: Side, pairs: Sequence[tuple[CallSiteItem | None, CallSiteItem | None]], traffic: tuple[str, ...]
) -> ReplayItem | None:
    if not traffic:
        return None
    if base.sites is None or head.sites is None:
        raise UserError("--traffic needs the code of both sides: give folders or revisions, not reports")
    from promptlint.app.rerender import replay
    from promptlint.app.traffic import open_traffic
    from promptlint.traffic.read import load

    same = {one.id: other.id for one, other in pairs if one is not None and other is not None}
    return replay(load(open_traffic(traffic)), base.sites, head.sites, same)


def _replicas(report: CheckReport) -> int:
    value = report.assumptions.get("replicas", 1)
    return value if isinstance(value, int) and value > 0 else 1


def _totals(side: Side) -> SideItem:
    sites = side.report.call_sites
    rated = [(site.estimated_hit_rate, site.prompt_tokens) for site in sites if site.estimated_hit_rate is not None]
    weight = sum(tokens for _, tokens in rated)
    mean = round(sum(rate * tokens for rate, tokens in rated) / weight, 4) if weight else None
    return SideItem(
        side.name, side.commit, len(sites), sum(site.prompt_tokens for site in sites), mean, len(side.report.findings)
    )


# Which call sites are the same one.


def _pairs(
    base: Sequence[CallSiteItem], head: Sequence[CallSiteItem]
) -> list[tuple[CallSiteItem | None, CallSiteItem | None]]:
    pairs: list[tuple[CallSiteItem | None, CallSiteItem | None]] = []
    left, right = list(base), list(head)
    for key in (_by_id, _by_key, _by_function, _by_place_in_file, _by_file):
        for one, other in _unique_matches(left, right, key):
            pairs.append((one, other))
            left.remove(one)
            right.remove(other)
    return [*pairs, *((one, None) for one in left), *((None, other) for other in right)]


def _unique_matches(
    left: Iterable[CallSiteItem], right: Iterable[CallSiteItem], key: Callable[[CallSiteItem], Hashable]
) -> list[tuple[CallSiteItem, CallSiteItem]]:
    groups: dict[Hashable, tuple[list[CallSiteItem], list[CallSiteItem]]] = defaultdict(lambda: ([], []))
    for side, sites in enumerate((left, right)):
        for site in sites:
            groups[key(site)][side].append(site)
    return [(ones[0], others[0]) for ones, others in groups.values() if len(ones) == len(others) == 1]


def _by_id(site: CallSiteItem) -> Hashable:
    return site.id


def _by_key(site: CallSiteItem) -> Hashable:
    """The same fixed text in the same order: a renamed file or function. A prompt without fixed text has no such key."""
    return (site.cache_key, site.sink) if site.cacheable_prefix_tokens else id(site)


def _by_function(site: CallSiteItem) -> Hashable:
    """The same function of a file of the same name: a folder that was renamed, or two folders that are compared."""
    return site.path.rsplit("/", 1)[-1], site.id.removeprefix(site.path)


def _by_place_in_file(site: CallSiteItem) -> Hashable:
    """The same function with the same kinds of blocks: a file that was renamed."""
    return site.id.removeprefix(site.path), tuple(block.kind for block in site.blocks)


def _by_file(site: CallSiteItem) -> Hashable:
    """The only one left in its file with its sink: a renamed function whose prompt changed as well."""
    return site.path, site.sink


def _change(base: CallSiteItem | None, head: CallSiteItem | None, replicas: int) -> CallSiteChange:
    site = head or base
    assert site is not None
    key_changed = base is not None and head is not None and base.cache_key != head.cache_key
    row = CallSiteChange(
        id=site.id,
        base_id=base.id if base else None,
        status="new" if base is None else "gone" if head is None else "same",
        path=site.path,
        line=site.line,
        hit_rate_base=_rate(base),
        hit_rate_head=_rate(head),
        prompt_tokens_base=base.prompt_tokens if base else None,
        prompt_tokens_head=head.prompt_tokens if head else None,
        prefix_tokens_base=base.cacheable_prefix_tokens if base else None,
        prefix_tokens_head=head.cacheable_prefix_tokens if head else None,
        cache_key_base=base.cache_key if base else None,
        cache_key_head=head.cache_key if head else None,
        cache_key_changed=key_changed,
        blocks_base=tuple(block.kind for block in base.blocks) if base else (),
        blocks_head=tuple(block.kind for block in head.blocks) if head else (),
        once_tokens=head.cacheable_prefix_tokens * replicas if key_changed and head else 0,
    )
    differs = (
        key_changed
        or row.hit_rate_base != row.hit_rate_head
        or row.prompt_tokens_base != row.prompt_tokens_head
        or row.blocks_base != row.blocks_head
    )
    return replace(row, status="changed") if row.status == "same" and differs else row


def _rate(site: CallSiteItem | None) -> float | None:
    return None if site is None or site.estimated_hit_rate is None else round(site.estimated_hit_rate, 4)


def _weight(row: CallSiteChange) -> tuple[bool, float, str]:
    """Sort key: changed ones first, and of them what changed most in tokens served from the cache."""
    return row.status == "same", -abs(_served(row)), row.id


def _served(row: CallSiteChange) -> float:
    """Tokens per request that the change serves from the cache (negative: no longer)."""
    before = (row.hit_rate_base or 0.0) * (row.prompt_tokens_base or 0)
    after = (row.hit_rate_head or 0.0) * (row.prompt_tokens_head or 0)
    return after - before


# Which findings are the same one.


def _findings(
    base: CheckReport, head: CheckReport, pairs: Sequence[tuple[CallSiteItem | None, CallSiteItem | None]]
) -> tuple[list[FindingItem], list[FindingItem], list[MovedFinding], int]:
    before = {finding.fingerprint: finding for finding in base.findings}
    after = {finding.fingerprint: finding for finding in head.findings}
    left = [finding for finding in base.findings if finding.fingerprint not in after]
    new, moved = [], []
    renamed = {one.id: other.id for one, other in pairs if one is not None and other is not None}
    for finding in head.findings:
        if finding.fingerprint in before:
            continue
        origin = next((old for old in left if _is_moved(old, finding, renamed)), None)
        if origin is None:
            new.append(finding)
        else:
            left.remove(origin)
            moved.append(MovedFinding(origin.path, origin.line, finding))
    return new, left, moved, len(before.keys() & after.keys())


def _is_moved(old: FindingItem, new: FindingItem, renamed: dict[str, str]) -> bool:
    same_site = bool(old.call_site) and renamed.get(old.call_site) == new.call_site
    return (
        same_site and old.rule == new.rule and bool(old.expression) and old.expression.split() == new.expression.split()
    )


def _headline(
    rows: Sequence[CallSiteChange], new: Sequence[FindingItem], fixed: Sequence[FindingItem]
) -> Headline | None:
    """The largest visible change of a hit rate, a loss before a gain, with the dearest finding that came or went there."""
    visible = [
        row
        for row in rows
        if row.hit_rate_base is not None
        and row.hit_rate_head is not None
        and abs(row.hit_rate_head - row.hit_rate_base) >= _VISIBLE
    ]
    losses = [row for row in visible if (row.hit_rate_head or 0) < (row.hit_rate_base or 0)]
    for row in losses or visible:
        assert row.hit_rate_base is not None
        assert row.hit_rate_head is not None
        lost = row.hit_rate_head < row.hit_rate_base
        ids = {row.id} if lost else {row.base_id}
        causes = [
            finding
            for finding in (new if lost else fixed)
            if finding.expression
            and finding.tokens_behind
            and (finding.call_site in ids or any(place.call_site in ids for place in finding.related))
        ]
        cause = max(causes, key=lambda finding: finding.tokens_lost, default=None)
        return Headline(
            row.id,
            row.hit_rate_base,
            row.hit_rate_head,
            cause.expression if cause else None,
            cause.tokens_behind if cause else 0,
        )
    return None


def _notes(base: CheckReport, head: CheckReport) -> Iterator[str]:
    differing = sorted(
        name
        for name in base.assumptions.keys() | head.assumptions.keys()
        if name != "providers" and base.assumptions.get(name) != head.assumptions.get(name)
    )
    shared = [
        name
        for name in differing
        if name
        in (
            "profile",
            "tokenizer",
            "requests_per_day",
            "replicas",
            "users",
            "sessions",
            "turns",
            "tenants",
            "documents",
        )
    ]
    if shared:
        yield f"the sides rest on different assumptions ({', '.join(shared)}): their hit rates cannot be compared"
    if base.version != head.version:
        yield f"the sides were read by different versions ({base.version}, {head.version})"
    unread = sum(site.reading == "not" for site in head.call_sites)
    if unread:
        yield f"{unread} of {len(head.call_sites)} call sites of the head could not be read"


def _too_short(rows: Sequence[CallSiteChange], head: CheckReport) -> Iterator[str]:
    """Why a changed prompt has a hit rate of 0 although it has a cacheable prefix: its provider caches none of its length."""
    changed = {row.id for row in rows if row.status in ("new", "changed")}
    for site in head.call_sites:
        if site.id not in changed or not site.provider or site.estimated_hit_rate or not site.cacheable_prefix_tokens:
            continue
        from promptlint.catalog.providers import page_for, resolve

        page = page_for(site.provider, site.model or "")
        if page is not None and site.prompt_tokens < (least := resolve(page, site.model or "").minimum):
            yield (
                f"{site.id.rpartition('::')[0] or site.id}: {page.title} caches prompts from {least:,} tokens on, "
                f"this one has {site.prompt_tokens:,}"
            )


def drop(diff: DiffReport) -> float:
    """The largest fall of a call site's hit rate, in percentage points; 0 when none fell."""
    falls = [
        (row.hit_rate_base - row.hit_rate_head) * 100
        for row in diff.call_sites
        if row.hit_rate_base is not None and row.hit_rate_head is not None
    ]
    return max([0.0, *falls])


def exceeded(diff: DiffReport, *, fail_on: str | None, max_drop: float | None) -> list[str]:
    """Which thresholds the change passes, in words: new findings at or above a severity, a hit rate that falls by more points than allowed."""
    reasons = []
    if fail_on is not None:
        least = SEVERITIES.index(fail_on)
        number = sum(SEVERITIES.index(finding.severity) >= least for finding in diff.new_findings)
        if number:
            reasons.append(f"{number} new finding{'s' if number > 1 else ''} of severity {fail_on} or above")
    if max_drop is not None and round(drop(diff), 2) > max_drop:
        reasons.append(f"a hit rate falls by {drop(diff):.1f} points, {max_drop:g} are allowed")
    return reasons


def verdicts(workload: Path | None, traffic: tuple[str, ...], settings: Settings) -> tuple[VerdictItem, ...]:
    """The verdict on the workload that was given, with the traffic where there is some; none without a workload."""
    if workload is None:
        return ()
    from promptlint.app.advise import Asked, run

    advice = run(
        Asked(
            workload=workload, traffic=traffic, profile=settings.profile, tokenizer=settings.tokenizer, no_tipping=True
        )
    )
    return tuple(VerdictItem(row.pool, row.verdict, row.because) for row in advice.verdicts)
