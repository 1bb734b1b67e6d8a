"""What every run has: results, sums by group, the error of a sample."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from promptlint.app.simulation.sample import Sampler
from promptlint.app.simulation.setup import Setup
from promptlint.caches.block_lru import BlockRequest
from promptlint.caches.request import Outcome, Request
from promptlint.caches.tally import Sums, Tally
from promptlint.report.simulate import GroupRow, Sampling

__all__ = ["Results", "Run"]


class Results:
    """(id, prompt tokens, cached tokens) of each request. Numbers are packed, so that ten million requests take 240 MB."""

    def __init__(self) -> None:
        self._names: Any = array("q")  # a list, once an id is no number
        self._prompts = array("q")
        self._cached = array("q")

    def add(self, name: Any, prompt: int, cached: int) -> None:
        """Take note of one request."""
        try:
            self._names.append(name)
        except (TypeError, OverflowError):
            self._names = [*self._names, name]
        self._prompts.append(prompt)
        self._cached.append(cached)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[tuple[Any, int, int]]:
        return zip(self._names, self._prompts, self._cached, strict=True)

    def sorted_as(self, names: list[Any]) -> Results:
        """The same results in the order of these ids."""
        rows = {name: (prompt, cached) for name, prompt, cached in self}
        found = Results()
        for name in names:
            found.add(name, *rows[name])
        return found


class Run:
    """What both kinds of runs share: the tally, the results, the error of a sample."""

    def __init__(self, setup: Setup, unit: int, sampler: Sampler | None) -> None:
        self.setup = setup
        self._sampler = sampler
        self.tally = Tally(unit, setup.warm_up)
        self.results = Results()
        self._sessions: dict[bytes, list[int]] = {}

    def note(self, request: Request | BlockRequest, outcome: Outcome) -> None:
        self.results.add(request.id, outcome.prompt_tokens, outcome.cached_tokens)
        self.tally.add(request.id, request.labels, outcome)
        if self._sampler is not None and outcome.refused is None:
            sums = self._sessions.setdefault(self._sampler.key(request), [0, 0])
            sums[0] += outcome.prompt_tokens
            sums[1] += outcome.cached_tokens

    def partial(self) -> dict[str, Any]:
        """What a run over some of the requests counted, as JSON values for `absorb`. Whole numbers: nothing is rounded on the way."""
        groups = [[*label, asdict(sums)] for label, sums in self.tally.groups.items()]
        return {"total": asdict(self.tally.total), "groups": groups, "served": self.tally.served}

    def absorb(self, partial: Mapping[str, Any]) -> None:
        """Add what a run over other requests counted, which no request of this one could have changed."""
        self.tally.total.merge(Sums(**partial["total"]))
        for kind, name, sums in partial["groups"]:
            self.tally.groups.setdefault((kind, name), Sums()).merge(Sums(**sums))
        self.tally.served += partial["served"]

    def sampling(self) -> Sampling | None:
        """The standard error of a ratio of sums over sampled sessions (Cochran, Sampling Techniques, 6.4)."""
        if self.setup.sample >= 1:
            return None
        sums = list(self._sessions.values())
        count, total = len(sums), sum(prompt for prompt, _ in sums)
        error = None
        if count > 1 and total:
            rate = self.tally.total.hit_rate
            spread = sum((cached - rate * prompt) ** 2 for prompt, cached in sums)
            error = math.sqrt((1 - self.setup.sample) * count / (count - 1) * spread) / total
        return Sampling(self.setup.sample, count, error)

    def rate(self, sums: Sums) -> float:
        return sums.block_hit_rate if self.setup.denominator == "full-blocks" else sums.hit_rate

    def share(self, tokens: int, sums: Sums) -> float:
        """Tokens that could be cached, by the denominator of `rate`."""
        whole = sums.units * self.tally.unit if self.setup.denominator == "full-blocks" else sums.prompt_tokens
        return tokens / whole if whole else 0.0

    def denominator(self) -> str:
        whole = "full blocks of the prompts" if self.setup.denominator == "full-blocks" else "all prompt tokens"
        return whole + (f", after the first {self.setup.warm_up:,} requests" if self.setup.warm_up else "")

    def groups(self) -> tuple[GroupRow, ...]:
        return tuple(
            GroupRow(kind, name, sums.requests, sums.prompt_tokens, sums.cached_tokens, self.rate(sums))
            for (kind, name), sums in sorted(
                self.tally.groups.items(), key=lambda item: (item[0][0], -item[1].prompt_tokens, item[0][1])
            )
        )
