"""Adding up what requests found: hit rates by one stated denominator, in all and by group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from promptlint.caches.request import Outcome

__all__ = ["DENOMINATORS", "Sums", "Tally"]

DENOMINATORS = ("prompt-tokens", "full-blocks")


@dataclass(slots=True)
class Sums:
    """Totals over requests, in tokens where not said otherwise.

    `units`, `cached_units`: full pages or blocks of the prompts, and those of them that were cached.
    """

    requests: int = 0
    hits: int = 0  # requests with any cached token
    prompt_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    evicted_tokens: int = 0
    units: int = 0
    cached_units: int = 0
    written_at: dict[str, int] = field(default_factory=dict)  # written tokens by the lifetime that they are billed at

    def add(self, outcome: Outcome, unit: int) -> None:
        prompt, cached, written, evicted, _, written_at = outcome
        self.requests += 1
        if cached:
            self.hits += 1
            self.cached_tokens += cached
            self.cached_units += cached // unit
        self.prompt_tokens += prompt
        self.units += prompt // unit
        self.written_tokens += written
        for name, tokens in written_at:
            self.written_at[name] = self.written_at.get(name, 0) + tokens
        self.evicted_tokens += evicted

    def merge(self, other: Sums) -> None:
        """Add what was counted elsewhere."""
        for name in self.__slots__:
            if name != "written_at":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, tokens in other.written_at.items():
            self.written_at[name] = self.written_at.get(name, 0) + tokens

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens over all prompt tokens."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def block_hit_rate(self) -> float:
        """Cached full units over full units of the prompts."""
        return self.cached_units / self.units if self.units else 0.0

    @property
    def request_hit_rate(self) -> float:
        """Share of requests that found anything."""
        return self.hits / self.requests if self.requests else 0.0


@dataclass(slots=True)
class Tally:
    """Sums in all and by label; the first `warm_up` requests are served but not counted.

    Attributes:
        unit: tokens of a page or block.
        refused: requests that could not be served, as (id, reason).
    """

    unit: int
    warm_up: int = 0
    total: Sums = field(default_factory=Sums)
    groups: dict[tuple[str, str], Sums] = field(default_factory=dict)
    refused: list[tuple[object, str]] = field(default_factory=list)
    served: int = 0

    def add(self, request_id: object, labels: Iterable[tuple[str, str]], outcome: Outcome) -> None:
        if outcome.refused is not None:
            self.refused.append((request_id, outcome.refused))
            return
        self.served += 1
        if self.served <= self.warm_up:
            return
        self.total.add(outcome, self.unit)
        for label in labels:
            sums = self.groups.get(label)
            if sums is None:
                sums = self.groups[label] = Sums()
            sums.add(outcome, self.unit)
