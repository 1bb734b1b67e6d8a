"""The result document `promptlint.bench/1`: everything that was measured, compared and doubted, as plain data. Renderers and `advise --measured` read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from promptlint.benching.drive import Run
from promptlint.benching.measure import Cell, Measurement, Settings, Target, Trial
from promptlint.benching.slo import Bound, Goodput, goodput
from promptlint.benching.statistics import Interval
from promptlint.benching.summary import Comparison, compare, figures, intervals

__all__ = ["SCHEMA", "About", "document", "request_rows", "status"]

SCHEMA = "promptlint.bench/1"
_LAG_MS, _LAG_SHARE = 2.0, 0.2  # of the median time to first token
_JSON_BEGINS = '{["-0123456789tfn'
_FAR = 0.02  # hit rates further apart than this are worth a word


@dataclass(frozen=True, slots=True)
class About:
    """What the document says about the run beside its figures. `bounds` and `load` (requests a second wanted) are for goodput, `gpus` those of one target."""

    version: str
    started: str
    workload: Mapping[str, Any]
    bounds: tuple[Bound, ...] = ()
    load: float | None = None
    gpus: int = 1


def status(found: Measurement) -> str:
    """One word: unusable (a target could not be measured at all), refused, interrupted, unfair (measured, but requests failed or a server contradicted itself), or complete."""
    if found.unusable:
        return "unusable"
    if found.denied:
        return "refused"
    if not found.finished:
        return "interrupted"
    whole = all(trial.figures.whole for cell in found.cells for trial in cell.trials)
    return "complete" if whole and not found.lost else "unfair"


def document(found: Measurement, targets: Sequence[Target], settings: Settings, about: About) -> dict[str, Any]:
    """The whole result."""
    names = [target.name for target in targets]
    cells = [_cell(cell, names, settings.level) for cell in found.cells]
    promises = _promises(found, names, about)
    return {
        "schema": SCHEMA,
        "version": about.version,
        "started": about.started,
        "status": status(found),
        "workload": dict(about.workload),
        "settings": {
            "repetitions": settings.repetitions,
            "level": settings.level,
            "order": "interleaved, one repetition of each target in turn",
            "temperature": 0,
            "fixed_length": settings.fixed_length,
            "warm_up_requests": settings.warm_up,
            "seed": settings.seed,
            "vocabulary": [settings.low, settings.high],
            "timeout_s": settings.limits.idle,
        },
        "targets": [_target(target, found, promises, settings) for target in targets],
        "cells": cells,
        "goodput": promises,
        "unusable": dict(found.unusable),
        "lost": dict(found.lost),
        "refused": [one.words for one in found.refused],
        "warnings": list(dict.fromkeys([*(one.words for one in found.objections if not one.refuse), *_doubts(found)])),
    }


def _target(
    target: Target, found: Measurement, promises: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    facts = found.facts.get(target.name)
    rate, basis = _capacity(target.name, found, promises, settings.level)
    return {
        "name": target.name,
        "url": target.server.url,
        "engine": facts.engine if facts else "unknown",
        "facts": facts.to_json() if facts else None,
        "requests_per_second": rate,
        "basis": basis,
    }


def _capacity(
    name: str, found: Measurement, promises: Sequence[Mapping[str, Any]], level: float
) -> tuple[float | None, str]:
    """What the target can do, and how that is known. At a fixed rate every server that keeps up does the same: that says nothing."""
    for cell in found.cells:
        if cell.load.closed and not cell.structured:
            known = intervals([trial.figures for trial in cell.of(name) if trial.figures.whole], level)
            if "requests_per_second" in known:
                return known["requests_per_second"].mean, f"closed loop, {cell.load.words()}, {cell.variant}"
    for row in promises:
        if row["target"] == name and row["kept"] is not None:
            return row["kept"], f"goodput under {row['slo']}" + (", at least" if row["at_least"] else "")
    if not any(cell.of(name) for cell in found.cells):
        return None, "not measured"
    return None, "not measured: at a fixed rate every server that keeps up answers as much"


def _cell(cell: Cell, names: Sequence[str], level: float) -> dict[str, Any]:
    return {
        "variant": cell.variant,
        "load": cell.load.words(),
        "closed": cell.load.closed,
        "rate": cell.load.rate or None,
        "concurrency": cell.load.concurrency or None,
        "structured": cell.structured,
        "shared_tokens": cell.overlap,
        "targets": [_in_cell(cell, name, level) for name in names if cell.of(name)],
        "comparisons": [
            {
                "first": names[0],
                "second": name,
                "figures": [_comparison(one) for one in _compared(cell, names[0], name, level)],
            }
            for name in names[1:]
            if cell.of(names[0]) and cell.of(name)
        ],
    }


def _compared(cell: Cell, first: str, second: str, level: float) -> list[Comparison]:
    """Pairs of one repetition each; one that only one target finished has no partner."""
    a, b = ({trial.repetition: trial.figures for trial in cell.of(name)} for name in (first, second))
    both = sorted(a.keys() & b.keys())
    return compare([a[number] for number in both], [b[number] for number in both], level)


def _in_cell(cell: Cell, name: str, level: float) -> dict[str, Any]:
    trials = cell.of(name)
    return {
        "target": name,
        "figures": {
            figure: _interval(one)
            for figure, one in intervals([trial.figures for trial in trials if trial.figures.whole], level).items()
        },
        "expected": _expected(trials),
        "repetitions": [{"repetition": trial.repetition, **trial.figures.to_json()} for trial in trials],
    }


def _interval(one: Interval) -> dict[str, Any]:
    return {"mean": one.mean, "low": one.low, "high": one.high, "repetitions": one.count}


def _comparison(one: Comparison) -> dict[str, Any]:
    return {
        "figure": one.figure,
        "difference": one.difference.mean,
        "low": one.difference.low,
        "high": one.difference.high,
        "p": one.difference.p,
        "ratio": one.ratio,
        "ratio_low": one.ratio_low,
        "ratio_high": one.ratio_high,
        "different": one.different,
        "pairs": one.difference.count,
    }


def _expected(trials: Sequence[Trial]) -> dict[str, Any] | None:
    """Observed against simulated cached tokens over all runs of a target in a cell."""
    known = [
        trial
        for trial in trials
        if trial.expected and trial.figures.cached_tokens is not None and not trial.figures.lies
    ]
    if not known:
        return None
    expected = observed = ours = theirs = differing = compared = 0
    exact, as_text = True, False
    for trial in known:
        assert trial.expected is not None
        exact, as_text = exact and trial.expected.exact, as_text or trial.as_text
        for answer in trial.run.answers:
            if answer.ok and answer.cached_tokens is not None:
                simulated, tokens = trial.expected.cached_tokens[answer.index], trial.prompt_tokens[answer.index]
                expected += simulated
                observed += answer.cached_tokens
                ours += tokens
                theirs += answer.prompt_tokens or tokens
                compared += 1
                differing += simulated != answer.cached_tokens
    if not ours or not theirs:
        return None
    return {
        "model": known[0].expected.model if known[0].expected else "",
        "hit_rate": expected / ours,
        "observed_hit_rate": observed / theirs,
        "requests": compared,
        "requests_that_differ": None if as_text else differing,
        "exact": exact and not as_text,
    }


def _promises(found: Measurement, names: Sequence[str], about: About) -> list[dict[str, Any]]:
    """Goodput of each target in each variant, from the open loads."""
    if not about.bounds:
        return []
    rows = []
    for variant, structured in dict.fromkeys((cell.variant, cell.structured) for cell in found.cells):
        for name in names:
            swept: dict[float, Mapping[str, float]] = {}
            failed: dict[float, int] = {}
            for cell in found.cells:
                trials = [trial for trial in cell.of(name) if not trial.run.interrupted]
                if cell.load.closed or not trials or (cell.variant, cell.structured) != (variant, structured):
                    continue
                together = Run(
                    [answer for trial in trials for answer in trial.run.answers], fsum(t.run.wall for t in trials)
                )
                whole = figures(together, trials[0].prompt_tokens, flushed=False)
                swept[cell.load.rate] = whole.values
                failed[cell.load.rate] = sum(t.figures.requests - t.figures.answered + t.figures.lies for t in trials)
            if name in found.lost:
                row = Goodput(None, None, "the target was given up", None)
                rows.append({"target": name, "variant": variant, "structured": structured, **_goodput(row, about)})
            elif swept:
                row = goodput(swept, failed, about.bounds, load=about.load, gpus_per_server=about.gpus)
                rows.append({"target": name, "variant": variant, "structured": structured, **_goodput(row, about)})
    return rows


def _goodput(row: Goodput, about: About) -> dict[str, Any]:
    return {
        "slo": ",".join(bound.words() for bound in about.bounds),
        "kept": row.kept,
        "broken": row.broken,
        "why": row.why,
        "at_least": row.at_least,
        "load": about.load,
        "gpus": row.gpus,
    }


def _doubts(found: Measurement) -> list[str]:
    """What the runs themselves cast doubt on."""
    said = _of_client(found)
    for cell in found.cells:
        for name in dict.fromkeys(trial.target for trial in cell.trials):
            trials = cell.of(name)
            expected = _expected(trials)
            if expected and _far(expected, trials):
                said.append(
                    f"{name} ({cell.variant}, {cell.load.words()}): hit rate {100 * expected['observed_hit_rate']:.1f} %, "
                    f"expected {100 * expected['hit_rate']:.1f} % ({expected['model']})"
                )
            missed = [str(trial.repetition) for trial in trials if not trial.figures.flushed]
            if found.facts[name].flush and missed:
                said.append(
                    f"{name} did not empty its cache when asked before repetition {', '.join(missed)} ({cell.variant}, {cell.load.words()})"
                )
            if cell.structured:
                said += _of_schema(name, trials)
            for trial in trials:
                said += _of_trial(name, trial)
    return said


def _far(expected: Mapping[str, Any], trials: Sequence[Trial]) -> bool:
    """Whether the observed hit rate is none that the model can explain: between all under way together and one at a time lies what chance decides."""
    rates = [expected["hit_rate"]]
    for trial in trials:
        if trial.expected is not None and trial.expected.alone:
            rates.append(sum(trial.expected.alone) / sum(trial.prompt_tokens))
    return not min(rates) - _FAR <= expected["observed_hit_rate"] <= max(rates) + _FAR


def _of_schema(name: str, trials: Sequence[Trial]) -> list[str]:
    """A server that does not know `response_format` may pass over it, and is then compared with one that follows a grammar."""
    answers = [answer for trial in trials for answer in trial.run.answers if answer.ok and answer.begin]
    other = [answer for answer in answers if answer.begin[0] not in _JSON_BEGINS]
    if not other:
        return []
    return [
        f"{name} seems to pass over the schema: {len(other):,} of {len(answers):,} answers do not begin as JSON does, the first with {other[0].begin!r}"
    ]


def _of_trial(name: str, trial: Trial) -> list[str]:
    made, said = trial.figures, []
    if made.lies:
        said.append(
            f"{name} contradicts itself in {made.lies} answer{'s' if made.lies > 1 else ''} of repetition {trial.repetition}, the first: {made.first_lie}"
        )
    if made.resent:
        said.append(
            f"{name} closed {made.resent} kept connections before it answered in repetition {trial.repetition}; those requests were sent once more"
        )
    said += _of_server(name, trial)
    # What the user's own interruption left unsent is no fault of the server.
    failed = {kind: count for kind, count in made.failed.items() if not (trial.run.interrupted and kind == "not sent")}
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.items())
        said.append(
            f"{name} left {sum(failed.values())} of {made.requests} requests of repetition {trial.repetition} unanswered ({kinds}); the first: {made.first_failure}"
        )
    return said


def _of_server(name: str, trial: Trial) -> list[str]:
    """What the server's own counters say that its answers do not."""
    made, counted, said = trial.figures, trial.figures.server, []
    seen = counted.get("prompt_tokens", 0.0)
    if made.answered == made.requests and seen > 1.02 * made.prompt_tokens + max(trial.prompt_tokens):
        said.append(
            f"somebody else uses {name}: its counters show {seen:,.0f} prompt tokens in repetition {trial.repetition}, {made.prompt_tokens:,} were of this benchmark"
        )
    if counted.get("preemptions"):
        said.append(
            f"{name} had to interrupt {counted['preemptions']:,.0f} requests for want of KV memory in repetition {trial.repetition}: the load is too much for its pool"
        )
    return said


def _of_client(found: Measurement) -> list[str]:
    """Where the client itself was so slow that its own work is a good part of the times that it reports."""
    worst: dict[str, float] = {}
    for cell in found.cells:
        for trial in cell.trials:
            lag, first = (trial.figures.values.get(name, 0.0) for name in ("client_lag_p99_ms", "ttft_p50_ms"))
            if lag > max(_LAG_MS, _LAG_SHARE * first):
                worst[trial.target] = max(worst.get(trial.target, 0.0), lag)
    if not worst:
        return []
    named = ", ".join(f"{name} {lag:.1f} ms" for name, lag in worst.items())
    return [
        f"the client was late itself (p99 of its event loop: {named}): differences of that size may be its own; measure from an idle machine"
    ]


def request_rows(found: Measurement) -> list[dict[str, Any]]:
    """One row for each answer, for --per-request."""
    rows = []
    for cell in found.cells:
        for trial in cell.trials:
            for answer in trial.run.answers:
                rows.append(
                    {
                        "target": trial.target,
                        "variant": cell.variant,
                        "load": cell.load.words(),
                        "structured": cell.structured,
                        "repetition": trial.repetition,
                        "request": answer.index + 1,
                        "sent_s": round(answer.sent, 6),
                        "ttft_ms": round(1000 * answer.ttft, 3) if answer.ok else None,
                        "e2e_ms": round(1000 * answer.latency, 3) if answer.ok else None,
                        "prompt_tokens": answer.prompt_tokens,
                        "cached_tokens": answer.cached_tokens,
                        "expected_cached_tokens": trial.expected.cached_tokens[answer.index]
                        if trial.expected
                        else None,
                        "output_tokens": answer.output_tokens,
                        "error": answer.error or None,
                        "contradictions": answer.lies,
                    }
                )
    return rows
