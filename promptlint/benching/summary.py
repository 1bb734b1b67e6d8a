"""The figures of one run, and of repetitions compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any

from promptlint.benching.drive import Run
from promptlint.benching.statistics import Interval, holm, mean_interval, paired, percentile

__all__ = ["COMPARED", "Comparison", "Figures", "compare", "figures", "intervals"]

_SHARES = (("p50", 0.50), ("p95", 0.95), ("p99", 0.99))
COMPARED = ("requests_per_second", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms", "e2e_p50_ms", "hit_rate")
"""The figures whose differences are tested; more would only cost each of them power."""


@dataclass(slots=True)
class Figures:
    """One run in figures. `values` holds those that exist: a server that reports no cached tokens has no `hit_rate`, answers of one token have no `itl_...`.

    Units: `..._ms` milliseconds, `..._per_second`, `wall_s` seconds, rates as shares. `failed` counts requests by kind of failure with the first one's words,
    `resent` those that were sent twice because a kept connection had closed.
    """

    values: dict[str, float]
    requests: int
    answered: int
    prompt_tokens: int
    cached_tokens: int | None
    output_tokens: int
    failed: dict[str, int] = field(default_factory=dict)
    first_failure: str = ""
    lies: int = 0
    first_lie: str = ""
    gone: str = ""
    flushed: bool = False
    resent: int = 0
    server: dict[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Every request answered, nothing reported that cannot be."""
        return self.answered == self.requests and not self.lies and not self.gone

    def to_json(self) -> dict[str, Any]:
        """The figures as a JSON object."""
        return {
            **self.values,
            "requests": self.requests,
            "answered": self.answered,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "failed": self.failed,
            "first_failure": self.first_failure,
            "contradictions": self.lies,
            "first_contradiction": self.first_lie,
            "given_up": self.gone,
            "flushed": self.flushed,
            "resent": self.resent,
            "server": self.server,
        }


def figures(run: Run, sent: Sequence[int], *, flushed: bool, server: Mapping[str, float] | None = None) -> Figures:
    """The figures of a run. `sent`: prompt tokens of each request, used where the server does not count them."""
    good = [answer for answer in run.answers if answer.ok]
    values: dict[str, float] = {"wall_s": run.wall}
    if good and run.wall > 0:
        output = sum(answer.output_tokens or answer.events for answer in good)
        values["requests_per_second"] = len(good) / run.wall
        values["output_tokens_per_second"] = output / run.wall
        _spread(values, "ttft", [answer.ttft for answer in good])
        _spread(values, "e2e", [answer.latency for answer in good])
        _spread(values, "itl", [gap for answer in good for gap in answer.gaps])
        _spread(values, "tpot", [tpot for answer in good if (tpot := answer.tpot) is not None])
    if run.answers:
        values["late_p99_ms"] = 1000 * percentile(run.late, 0.99)
    if run.lag:
        values["client_lag_p99_ms"] = 1000 * percentile(run.lag, 0.99)
    prompt = sum(answer.prompt_tokens or sent[answer.index] for answer in good)
    reported = [answer.cached_tokens for answer in good if answer.cached_tokens is not None]
    cached = sum(reported) if good and len(reported) == len(good) else None
    if cached is not None and prompt:
        values["hit_rate"] = cached / prompt
    failed = Counter(answer.kind for answer in run.answers if not answer.ok)
    if len(run.answers) < len(sent):
        failed["not sent"] = len(sent) - len(run.answers)
    return Figures(
        values,
        len(sent),
        len(good),
        prompt,
        cached,
        sum(answer.output_tokens or answer.events for answer in good),
        dict(failed),
        next((answer.error for answer in run.answers if not answer.ok), ""),
        sum(1 for answer in run.answers if answer.lies),
        next((answer.lies[0] for answer in run.answers if answer.lies), ""),
        run.gone,
        flushed,
        sum(answer.resent for answer in run.answers),
        dict(server or {}),
    )


def _spread(values: dict[str, float], name: str, seconds: Sequence[float]) -> None:
    """Mean and percentiles in milliseconds."""
    if not seconds:
        return
    values[f"{name}_mean_ms"] = 1000 * fsum(seconds) / len(seconds)
    for word, share in _SHARES:
        values[f"{name}_{word}_ms"] = 1000 * percentile(seconds, share)


def intervals(runs: Sequence[Figures], level: float) -> dict[str, Interval]:
    """Mean over the repetitions of each figure that all of them have. No figure lies below 0, no rate above 1: intervals end there."""
    shared = [name for name in (runs[0].values if runs else ()) if all(name in run.values for run in runs)]
    found = {name: mean_interval([run.values[name] for run in runs], level) for name in shared}
    return {name: _cut(one, 1.0 if name == "hit_rate" else math.inf) for name, one in found.items()}


def _cut(one: Interval, most: float) -> Interval:
    if one.low is None or one.high is None:
        return one
    return replace(one, low=max(0.0, one.low), high=min(most, one.high))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The second target against the first in one figure: `difference` is second - first, `ratio` second / first of the means, None where the first is 0.

    `ratio_low` and `ratio_high` bound the ratio (the interval of the difference over the first's mean). `different`: called so with all figures of the pair together
    being wrong at most as often as the level allows.
    """

    figure: str
    difference: Interval
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    different: bool


def compare(first: Sequence[Figures], second: Sequence[Figures], level: float) -> list[Comparison]:
    """The figures of two targets, repetition k of one paired with repetition k of the other; only whole pairs count."""
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a.whole and b.whole]
    if not pairs:
        return []
    found: dict[str, Interval] = {}
    bases: dict[str, float] = {}
    for name in COMPARED:
        if all(name in a.values and name in b.values for a, b in pairs):
            before = [a.values[name] for a, _ in pairs]
            found[name] = paired(before, [b.values[name] for _, b in pairs], level)
            bases[name] = fsum(before) / len(before)
    called = holm({name: one.p for name, one in found.items()}, level) if len(pairs) > 1 else set()
    return [Comparison(name, one, *_ratios(one, bases[name]), different=name in called) for name, one in found.items()]


def _ratios(difference: Interval, base: float) -> tuple[float | None, float | None, float | None]:
    if base <= 0:
        return None, None, None
    low, high = difference.low, difference.high
    return (
        1 + difference.mean / base,
        None if low is None else max(0.0, 1 + low / base),
        None if high is None else 1 + high / base,
    )
