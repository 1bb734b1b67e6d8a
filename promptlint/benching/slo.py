"""Goodput: the highest rate of requests at which a server still keeps its promises, and the servers that a load needs.

Each swept rate is an open load: requests arrive whether or not earlier ones are answered, so a server that cannot keep up builds a queue and breaks the bound on its
time to first token. A rate is kept when every bound holds over all its answers together, no request failed, and no answer reports what cannot be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from promptlint.errors import UserError

__all__ = ["Bound", "Goodput", "goodput", "parse_rates", "parse_slo"]

_FIGURES = ("ttft", "tpot", "itl", "e2e")
_SPREADS = ("mean", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Bound:
    """One promise: the figure (a name of Figures.values) stays at or below `limit` milliseconds."""

    figure: str
    limit: float

    def words(self) -> str:
        """As it is written on the command line."""
        return f"{self.figure.removesuffix('_ms')}={self.limit:g}"


def parse_slo(text: str) -> tuple[Bound, ...]:
    """`ttft_p99=500,tpot_p99=50`, milliseconds. Raises UserError."""
    found = []
    for part in text.split(","):
        name, sign, number = part.strip().partition("=")
        figure, _, spread = name.rpartition("_")
        if not sign or figure not in _FIGURES or spread not in _SPREADS:
            raise UserError(
                f"--slo {part.strip()!r}: FIGURE_SPREAD=MILLISECONDS is expected, with {', '.join(_FIGURES)} and {', '.join(_SPREADS)}, e.g. ttft_p99=500"
            )
        found.append(Bound(f"{name}_ms", _positive("--slo", number.removesuffix("ms"))))
    return tuple(found)


def parse_rates(text: str) -> tuple[float, ...]:
    """`1,2,4,8` requests a second, ascending. Raises UserError."""
    rates = [_positive("--rate-sweep", part) for part in text.split(",")]
    return tuple(sorted(set(rates)))


def _positive(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 < value < 1e9):
        raise UserError(f"{option}: {text.strip()!r}: a number above 0 is expected")
    return value


@dataclass(frozen=True, slots=True)
class Goodput:
    """What a sweep says of one target, rates in requests a second. `kept` is None when no swept rate was kept; `broken` is the lowest rate that was not, None when all were.

    `why` names the bound that broke, with its value. `gpus` is what the asked load needs, None without a load or a kept rate.
    """

    kept: float | None
    broken: float | None
    why: str
    gpus: int | None

    @property
    def at_least(self) -> bool:
        """The sweep ended before the limit was found: the goodput may be higher."""
        return self.kept is not None and self.broken is None


def goodput(
    swept: Mapping[float, Mapping[str, float]],
    failed: Mapping[float, int],
    bounds: Sequence[Bound],
    *,
    load: float | None,
    gpus_per_server: int,
) -> Goodput:
    """Goodput from the figures of each swept rate. A rate above one that broke does not count: it was kept by luck."""
    kept: float | None = None
    for rate in sorted(swept):
        why = _broken(swept[rate], failed.get(rate, 0), bounds)
        if why:
            return Goodput(kept, rate, why, _gpus(kept, load, gpus_per_server))
        kept = rate
    return Goodput(kept, None, "", _gpus(kept, load, gpus_per_server))


def _broken(values: Mapping[str, float], failed: int, bounds: Sequence[Bound]) -> str:
    if failed:
        return f"{failed} request{'s' if failed > 1 else ''} failed or contradicted what was sent"
    for bound in bounds:
        value = values.get(bound.figure)
        if value is None and not bound.figure.startswith(("itl", "tpot")):
            return f"{bound.figure} is not known"
        if value is not None and value > bound.limit:  # an answer of one token has no time between tokens
            return f"{bound.figure.removesuffix('_ms')} is {value:,.1f} ms, the bound {bound.limit:g}"
    return ""


def _gpus(kept: float | None, load: float | None, each: int) -> int | None:
    return None if kept is None or load is None else each * math.ceil(load / kept - 1e-9)
