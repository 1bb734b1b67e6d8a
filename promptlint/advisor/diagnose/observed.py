"""What may explain a hit rate that is known as a number only: combinations of causes that would produce it, and the experiment that tells them apart.

Each call site has the rate that its prompt allows when every finding is repaired. A finding multiplies it by the share that it leaves; circumstances outside the
prompt multiply it too:

- a prompt below the provider's minimum length is not cached at all;
- an entry that lives T seconds is still there with probability 1 - exp(-rate * T) when requests of one call site arrive at `rate` a second (Poisson);
- a router that ignores prefixes finds a conversation's entry on one of R machines with probability 1 / R.

The model is coarse on purpose: it ranks explanations, and the experiment decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from promptlint.advisor.diagnose.model import Likely

__all__ = ["Circumstances", "Factor", "Site", "explain"]

MOST_FACTORS = 6
"""Findings that are combined; the others are too small to matter."""
GUESS = 0.03
OMITTED = 0.002
_NOTHING = 0.01
_FAR = 0.3
CERTAIN = 0.02
"""Predictions closer to the observed rate than this count as reproducing it."""


@dataclass(frozen=True, slots=True)
class Site:
    """One call site: its share of the prompt tokens, prompt length in tokens (0: not known), and the hit rate that its text allows with no finding."""

    name: str
    weight: float
    prompt_tokens: int
    clean: float


@dataclass(frozen=True, slots=True)
class Factor:
    """A finding: at its call site (all, when empty) the rate is multiplied by `leaves`."""

    name: str
    site: str
    leaves: float
    confirm: str


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is assumed outside the prompt. `rate`: requests a second of one call site; `lifetime` in seconds; `machines`: numbers of machines to try."""

    minimum: int = 1024
    lifetime: float = 300.0
    rate: float = 0.1
    machines: tuple[int, ...] = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class _Outside:
    name: str
    why: str
    confirm: str
    kind: str
    machines: int = 1


def _outside(found: Circumstances) -> list[_Outside]:
    alive = 1 - math.exp(-found.rate * found.lifetime)
    rows = [
        _Outside(
            f"prompts below the minimum of {found.minimum:,} tokens are not cached",
            "a provider ignores short prefixes without a word",
            "send the longest prompt twice within ten seconds and read the cached tokens: some show that caching is on, and length decides",
            "minimum",
        ),
        _Outside(
            f"entries live {found.lifetime:,.0f} s at {found.rate:.3g} requests a second",
            f"an entry is still there in {alive:.0%} of the cases",
            "send one prompt twice, ten seconds apart, then once more after twice the lifetime: hit, then miss shows the lifetime",
            "lifetime",
        ),
    ]
    rows += [
        _Outside(
            f"requests are spread over {count} machines without regard to their prefix",
            f"an entry is found on one of {count} machines",
            "send one prompt ten times in a row: hits now and then show the routing, and a routing key (prompt_cache_key, session affinity) makes them steady",
            "routing",
            count,
        )
        for count in found.machines
    ]
    return rows


def explain(
    observed: float, sites: Sequence[Site], factors: Sequence[Factor], around: Circumstances, *, most: int = 3
) -> list[Likely]:
    """The explanations that come closest to the observed rate; each with its experiment. No cause at all is an explanation too.

    Every subset of the dearest findings is combined with up to two circumstances of different kinds. Findings stand in the code, circumstances are guessed: each of the
    latter costs `GUESS` of distance, each finding that is left out `OMITTED`. Of explanations with the same kinds of circumstances only the best is listed, and a cause that changes
    nothing is not named.
    """
    chosen = sorted(factors, key=lambda one: one.leaves)[:MOST_FACTORS]
    outside = _outside(around)
    subsets = [part for size in range(len(chosen) + 1) for part in combinations(chosen, size)]
    surroundings = [
        part for size in range(3) for part in combinations(outside, size) if len({one.kind for one in part}) == size
    ]
    best: dict[tuple[str, ...], tuple[float, float, tuple[Factor | _Outside, ...]]] = {}
    for around_it in surroundings:
        kinds = tuple(sorted(one.kind for one in around_it))
        for findings in subsets:
            causes: tuple[Factor | _Outside, ...] = (*findings, *around_it)
            predicted = _predict(sites, causes, around)
            if any(
                abs(_predict(sites, [one for one in causes if one is not cause], around) - predicted) < _NOTHING
                for cause in around_it
            ):
                continue
            distance = (
                max(abs(predicted - observed) - CERTAIN, 0.0)
                + GUESS * len(around_it)
                + OMITTED * (len(chosen) - len(findings))
            )
            if kinds not in best or distance < best[kinds][0]:
                best[kinds] = (distance, predicted, causes)
    if best and best.get((), (0.0,))[0] > _FAR and not chosen:
        del best[()]
    ranked = sorted(best.values(), key=lambda row: row[0])[:most]
    # Under the assumed rate and lengths the others change nothing; the assumption may be wrong, so they fill up the list.
    weak = (_assumed(one, observed, sites, chosen, around) for one in outside if (one.kind,) not in best)
    ranked += [
        (1.0, _predict(sites, (*chosen, one), around), (one,))
        for one, _ in zip(weak, range(most - len(ranked)), strict=False)
    ]
    return [_likely(observed, predicted, causes) for _distance, predicted, causes in ranked]


def _assumed(
    one: _Outside, observed: float, sites: Sequence[Site], factors: Sequence[Factor], around: Circumstances
) -> _Outside:
    """A circumstance that changes nothing under what is assumed, with what would have to hold for it to explain the rate."""
    allowed = _predict(sites, factors, around)
    if one.kind != "lifetime" or not 0 < observed < allowed:
        return one
    every = -around.lifetime / math.log(1 - observed / allowed)
    return replace(one, why=f"{one.why}; with one request in {every:,.0f} s instead it would be {observed:.1%}")


def _predict(sites: Sequence[Site], causes: Sequence[Factor | _Outside], around: Circumstances) -> float:
    total = 0.0
    weights = sum(site.weight for site in sites) or 1.0
    alive = 1 - math.exp(-around.rate * around.lifetime)
    for site in sites:
        rate = site.clean
        for cause in causes:
            if isinstance(cause, Factor):
                rate *= cause.leaves if cause.site in {"", site.name} else 1.0
            elif cause.kind == "minimum":
                rate *= site.prompt_tokens >= around.minimum
            elif cause.kind == "lifetime":
                rate *= alive
            else:
                rate /= cause.machines
        total += site.weight * rate
    return total / weights


def _likely(observed: float, predicted: float, causes: Sequence[Factor | _Outside]) -> Likely:
    if not causes and observed - predicted > CERTAIN:
        why = f"{predicted:.1%} is expected with no fault at all, {observed:.1%} was observed: the traffic repeats more than is assumed, or other prompts are sent too"
        return Likely("more is reused than this code explains", why, "promptlint traffic stats TRAFFIC --code .")
    if not causes:
        return Likely("the prompts allow no more", f"{predicted:.1%} is expected with no fault at all; {observed:.1%} was observed", "promptlint show .")  # fmt: skip
    why = "; ".join(one.why for one in causes if isinstance(one, _Outside))
    return Likely(
        " and ".join(one.name for one in causes),
        f"predicts {predicted:.1%}, {observed:.1%} was observed" + (f"; {why}" if why else ""),
        # The experiment on circumstances is the cheaper one: it needs no change of code.
        next((one.confirm for one in causes if isinstance(one, _Outside)), causes[0].confirm),
    )
