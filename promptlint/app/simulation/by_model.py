"""A provider's cache for traffic of several models: each request meets the terms of the model that it names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from promptlint.caches.breakpoint import ProviderCache
from promptlint.caches.request import Match, Outcome, Request
from promptlint.catalog.providers import Terms

__all__ = ["ByModel", "Priced", "model_of", "summed"]


def model_of(request: Request) -> str:
    """The model that a request names; "" for none."""
    return next((name for kind, name in request.labels if kind == "model"), "")


class ByModel:
    """One `ProviderCache` for each model. Models share nothing: the model is part of every provider's cache key.

    Args:
    terms_of: the terms of a model, of the default one for "".
    make: an empty cache under these terms.
    """

    def __init__(self, terms_of: Callable[[str], Terms], make: Callable[[Terms], ProviderCache]) -> None:
        self._terms_of = terms_of
        self._make = make
        self._caches: dict[str, ProviderCache] = {}

    def _cache(self, request: Request) -> ProviderCache:
        model = model_of(request)
        if model not in self._caches:
            self._caches[model] = self._make(self._terms_of(model))
        return self._caches[model]

    def lookup(self, request: Request) -> Match:
        """See `ProviderCache.lookup`."""
        return self._cache(request).lookup(request)

    def admit(self, request: Request) -> Outcome:
        """See `ProviderCache.admit`."""
        return self._cache(request).admit(request)

    @property
    def spilled(self) -> int:
        """Requests that went to another machine than the first."""
        return sum(cache.spilled for cache in self._caches.values())


class Priced:
    """What requests under one model's terms cost, in tokens counted apart. `ttl`: lifetime of what names none; the default one when empty."""

    def __init__(self, terms: Terms, ttl: str) -> None:
        self.terms = terms
        self._default = ttl or (terms.ttls[0][0] if terms.ttls else "")
        self.prompt_tokens = self.cached_tokens = 0
        self.written: dict[str, int] = {}  # tokens by lifetime

    def add(self, outcome: Outcome) -> None:
        """Count one request."""
        self.prompt_tokens += outcome.prompt_tokens
        self.cached_tokens += outcome.cached_tokens
        for name, tokens in outcome.written_at or (("", outcome.written_tokens),):
            self.written[name or self._default] = self.written.get(name or self._default, 0) + tokens

    def partial(self) -> list[Any]:
        """The counts as JSON values, for `absorb`."""
        return [self.prompt_tokens, self.cached_tokens, self.written]

    def absorb(self, partial: Sequence[Any]) -> None:
        """Add the counts of other requests."""
        self.prompt_tokens += partial[0]
        self.cached_tokens += partial[1]
        for name, tokens in partial[2].items():
            self.written[name] = self.written.get(name, 0) + tokens

    @property
    def units(self) -> float:
        """Cost as a number of uncached tokens. The terms must have a read price."""
        fresh = self.prompt_tokens - self.cached_tokens - sum(self.written.values())
        paid = sum(tokens * self.terms.write(name) for name, tokens in self.written.items())
        return fresh + self.cached_tokens * (self.terms.read or 0.0) + paid

    def dollars(self) -> tuple[float, float] | None:
        """The same in dollars, and what it would be without a cache; None where no price is listed."""
        price = self.terms.input_price
        if price is None or self.terms.read is None:
            return None
        return self.units * price / 1e6, self.prompt_tokens * price / 1e6


def summed(parts: list[Priced]) -> dict[str, Any] | None:
    """Input cost relative to no caching, and dollars where all prices are listed; None where a read price is unknown or nothing was counted."""
    prompt_tokens = sum(part.prompt_tokens for part in parts)
    if not prompt_tokens or any(part.terms.read is None for part in parts):
        return None
    found: dict[str, Any] = {"relative_input_cost": round(sum(part.units for part in parts) / prompt_tokens, 6)}
    names = sorted({name for part in parts for name in part.written})
    if len(names) > 1:
        found |= {f"written_tokens_{name}": sum(part.written.get(name, 0) for part in parts) for name in names}
    dollars = [part.dollars() for part in parts]
    if all(each is not None for each in dollars):
        paid = [each for each in dollars if each is not None]
        found["input_dollars"] = round(sum(each[0] for each in paid), 6)
        found["input_dollars_without_cache"] = round(sum(each[1] for each in paid), 6)
    return found
