"""The diagnosis as values; `report` prints them."""

from __future__ import annotations

from dataclasses import dataclass, field

from promptlint.advisor.diagnose.misses import Miss
from promptlint.traffic.record import Place

__all__ = ["Cause", "Diagnosis", "Divergence", "Likely"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where one request left its best earlier relative. Numbers count records from 1 in time order.

    `char` is the 0-based offset of the first differing character in the text at `path`, `token` the number of whole tokens ahead of it in that text,
    `prompt_token` those ahead of it in the prompt. `tokens_lost`: prompt tokens that the cache would have had without this difference.
    """

    request: int
    id: str
    relative: int
    path: str
    char: int
    token: int
    prompt_token: int
    rule: str
    cause: str
    was: str
    now: str
    tokens_lost: int = 0
    call_site: str = ""
    hole: str = ""
    observed_cached_tokens: int | None = None
    place: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """One class of divergence over all requests. `hit_rate_if_fixed`: expected hit rate if only this were repaired."""

    rule: str
    requests: int
    tokens_lost: int
    hit_rate_if_fixed: float


@dataclass(frozen=True, slots=True)
class Likely:
    """A possible reason for a low hit rate, why it may be, and the command or experiment that would confirm it."""

    cause: str
    why: str
    confirm_with: str


@dataclass(slots=True)
class Diagnosis:
    """What happened to the prefix of every request. Rates are expected ones: cached prompt tokens / prompt tokens, cache without limit.

    Answers enter it with the next prompt that holds them, so the rate is a little below what an engine reaches that keeps its answers.

    `starts` counts requests that begin a conversation or ask something new behind a shared head: they share all there is to share.
    `misses` are requests that found less than their text allows, for a reason that the text does not show. `too_deep` are records whose JSON is nested too deeply to be written as text. `observed_hit_rate` is from the records' own usage, None where no record has any.
    """

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    starts: int = 0
    tokenizer: str = ""
    divergences: list[Divergence] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    likely: list[Likely] = field(default_factory=list)
    observed_prompt_tokens: int | None = None
    observed_cached_tokens: int | None = None
    misses: list[Miss] = field(default_factory=list)
    too_deep: list[Place] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Expected hit rate with a cache without limit."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def observed_hit_rate(self) -> float | None:
        """Observed hit rate of the records that report usage."""
        if not self.observed_prompt_tokens or self.observed_cached_tokens is None:
            return None
        return self.observed_cached_tokens / self.observed_prompt_tokens
