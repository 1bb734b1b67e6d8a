"""The statistics of a comparison: percentiles, intervals for a paired difference, and what may be called different.

Two servers are measured in turn, A B A B ..., and repetition k of both sees the same requests under nearly the same conditions of the machine. So the differences
d_k = b_k - a_k are the sample, not the two series: what both share (a slow minute, a long prompt) cancels. With few repetitions their mean follows Student's t, and
the interval mean(d) +- t * s / sqrt(n) holds the true difference as often as its level says, also for n = 3. A bootstrap does not do that for small n.

Several figures of one comparison are several chances for a false alarm. `holm` (Holm 1979) keeps the chance that equal servers are called different in any of them
below the level. The t distribution is computed here (incomplete beta function by its continued fraction, Abramowitz and Stegun 26.5.8 and 26.7.1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Interval", "holm", "mean_interval", "paired", "percentile", "student_p", "student_quantile"]

_TINY = 1e-300


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie, linear between neighbours; `values` must not be empty and need not be sorted."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method; converges fast for x < (a + 1) / (a + b + 2)."""
    c, d = 1.0, 1.0 / max(1.0 - (a + b) * x / (a + 1.0), _TINY)
    value = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + term / c
            c = c if abs(c) > _TINY else _TINY
            step = d * c
            value *= step
        if abs(step - 1.0) < 1e-14:
            break
    return value


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, 1.0 - x) / b


def student_p(t: float, freedom: int) -> float:
    """The chance that |T| is at least |t|, for Student's T with that many degrees of freedom."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))


def student_quantile(level: float, freedom: int) -> float:
    """The t with P(|T| < t) = level; 0 < level < 1."""
    low, high = 0.0, 1.0
    while student_p(high, freedom) > 1.0 - level:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2.0
        low, high = (middle, high) if student_p(middle, freedom) > 1.0 - level else (low, middle)
        if high - low < 1e-12 * high:
            break
    return (low + high) / 2.0


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its interval at `level`, from `count` repetitions. `low` and `high` are None with one repetition: it shows no spread.

    `p` is the chance of a mean at least this far from 0 if the truth were 0.
    """

    mean: float
    low: float | None
    high: float | None
    level: float
    count: int
    p: float

    @property
    def holds_zero(self) -> bool:
        """Whether 0 lies in the interval; without an interval nothing is ruled out."""
        return self.low is None or self.high is None or self.low <= 0.0 <= self.high


def mean_interval(values: Sequence[float], level: float) -> Interval:
    """The mean of at least one value with Student's interval. Values without any spread give an interval of no width."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, None, None, level, 1, 1.0)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    error = spread / math.sqrt(count)
    if error <= 1e-12 * abs(mean):  # rounding, not spread
        return Interval(mean, mean, mean, level, count, 0.0 if mean else 1.0)
    reach = student_quantile(level, count - 1) * error
    return Interval(mean, mean - reach, mean + reach, level, count, student_p(mean / error, count - 1))


def paired(before: Sequence[float], after: Sequence[float], level: float) -> Interval:
    """The mean of after - before, repetition by repetition; both have the same length, at least 1."""
    return mean_interval([b - a for a, b in zip(before, after, strict=True)], level)


def holm(chances: Mapping[str, float], level: float) -> set[str]:
    """The names that may be called different, with a chance below 1 - level that any of them is called so wrongly."""
    found: set[str] = set()
    for rank, name in enumerate(sorted(chances, key=chances.__getitem__)):
        if chances[name] > (1.0 - level) / (len(chances) - rank):
            break
        found.add(name)
    return found
