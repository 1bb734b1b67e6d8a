"""Requests whose text was in the cache, and which still found less: what the terms of the provider, the times and the reported numbers say of the reason.

Texts decide what could have been found (a cache without limit); this compares it with what was found. Where nothing was reported, only a reason that the published terms
make certain is named. The first that fits:

- `below-minimum`: the prompt is shorter than the provider caches;
- `cache-parameter-differs`: a parameter that is part of the cache key differs from the relative's;
- `cache-key-per-request`: the routing key or salt differs from the relative's;
- `lifetime-passed`: the prefix was used last longer ago than an entry lives;
- `moved-to-another-replica`: nothing of these, but less was reported than the text allows, and no request that shared as much had gone to this replica;
- `evicted`: the same, and this replica had seen the text;
- `evicted-or-elsewhere`: the same, where the log does not name the replica (see `replica_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from promptlint.catalog.providers import Terms, page_for, resolve
from promptlint.tokenizers.render import compact
from promptlint.traffic.record import INPUT, Record

__all__ = ["Miss", "miss_of", "parameters_of", "replica_of"]

CLOSE = 0.05
"""Share of a prompt by which expected and reported tokens may differ: templates and tokenizers are approximations."""
LEAST = 64
"""Tokens below which a difference is not worth a line."""
_KEYS = ("prompt_cache_key", "cache_salt")
_APART = frozenset({"model", "tools", "system", "systemInstruction", "images", *_KEYS})
"""Parts of a cache key that are compared elsewhere: with the text, as another model, or as a routing key."""


@dataclass(frozen=True, slots=True)
class Miss:
    """One request that found less than its text allows. Tokens are the report's own where it has any, else counted ones; `observed` is None without a report."""

    request: int
    id: str
    relative: int
    reason: str
    cause: str
    expected_cached_tokens: int
    observed_cached_tokens: int | None
    tokens_lost: int
    place: str = ""


def miss_of(
    now: Record,
    before: Record,
    seen: set[tuple[str, str]],
    *,
    number: int,
    relative: int,
    expected: int,
    total: int,
    here: int | None = None,
) -> Miss | None:
    """What request `number` lost beside its text, `expected` of `total` counted tokens being shared with the record `before`, number `relative`.

    `seen` are the parameters of all requests so far (see `parameters_of`): a value that an earlier one had too may have found that one's entry.
    `here` are the counted tokens that an earlier request to the same replica shares, None where the log does not say which replica served it.
    """
    observed, size = now.cached_tokens, now.usage.get(INPUT, total)
    if observed is not None:
        expected = round(expected * size / total) if total else 0
    lost = expected - (observed or 0)
    if lost < max(LEAST, CLOSE * size):
        return None
    found = next(_reasons(now, before, _terms(now.model), size, seen), None)
    if found is None and observed is not None:
        found = _lost(now, before, None if here is None else round(here * size / total) if total else 0, expected, size)
    if found is None:
        return None
    reason, cause = found
    return Miss(number, now.id, relative, reason, cause, expected, observed, lost, str(now.place))


_REPLICA = (
    "replica",
    "replica_id",
    "worker",
    "worker_id",
    "instance",
    "instance_id",
    "pod",
    "host",
    "hostname",
    "server",
    "backend",
    "api_base",
)
"""Fields of a record that name the machine or process which served it, as routers and gateways write them; the first that is given counts."""


def replica_of(record: Record) -> str:
    """Who served a request, as the log names it; empty where it does not."""
    given = (record.extra.get(name) for name in _REPLICA) if record.extra else ()
    return next((str(value) for value in given if isinstance(value, (str, int)) and value != ""), "")


def _lost(now: Record, before: Record, here: int | None, expected: int, size: int) -> tuple[str, str]:
    """Why text that was in some cache was not found, when nothing else explains it. `here`: tokens of it that this replica had seen."""
    if here is None:
        return "evicted-or-elsewhere", "the cache had dropped the text, or another machine had it"
    if expected - here >= max(LEAST, CLOSE * size):
        other = replica_of(before)
        to = f"went to {other[:40]}" if other else "named no replica"
        return "moved-to-another-replica", f"the relative {to}, this request to {replica_of(now)[:40]}"
    return "evicted", f"{replica_of(now)[:40]} had seen the text and dropped it"


@cache
def _terms(model: str) -> Terms | None:
    """The terms of the provider that the model's name tells; None for a model that nobody's page knows."""
    page = page_for("", model) if model else None
    return resolve(page, model) if page is not None else None


def parameters_of(record: Record) -> Iterator[tuple[str, str]]:
    """What of a request belongs to the cache key or the routing, beside its text: names and values."""
    terms = _terms(record.model)
    for name in (*(terms.cache_key if terms is not None else ()), *_KEYS):
        if name in _KEYS or name not in _APART:
            yield name, compact(_parameter(record, name))


def _reasons(
    now: Record, before: Record, terms: Terms | None, size: int, seen: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Reasons that the records show, the more certain first."""
    if terms is not None and size < terms.minimum:
        yield "below-minimum", f"{size:,} prompt tokens; {terms.title} caches from {terms.minimum:,}"
    for name, text in parameters_of(now):
        was, new = _parameter(before, name), _parameter(now, name)
        if was == new or (name, text) in seen:
            continue
        if name in _KEYS:
            yield "cache-key-per-request", f"{name} is another than the relative's"
        else:
            yield "cache-parameter-differs", f"{name} changed from {_short(was)} to {_short(new)}"
    lifetime = _lifetime(terms, before, now) if terms is not None else None
    if lifetime is not None and now.timestamp is not None and before.timestamp is not None:
        gap = (now.timestamp - before.timestamp) / 1000.0
        if gap > lifetime:
            yield "lifetime-passed", f"last used {gap:,.0f} s before; entries live {lifetime:,} s"


def _parameter(record: Record, name: str) -> Any:
    """A parameter by its path in the body ("text.format"); None where it is not sent."""
    value: Any = record.parameters
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _short(value: Any) -> str:
    """A parameter's value for a message: words and numbers as they are, structures by their kind or name, never their text."""
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return str(value.get("type", "another structure"))[:40]
    return compact(value)[:40] if not isinstance(value, str) else value[:40]


def _lifetime(terms: Terms, *records: Record) -> int | None:
    """Seconds that an entry lives: the longest that one of the records asked for, else the default; None where it is not published."""
    offered = dict(terms.ttls)
    asked = [offered.get(word) for record in records for word in _asked(record)]
    known = [seconds for seconds in asked if seconds is not None]
    return max(known) if known else terms.ttl_seconds


def _asked(record: Record) -> Iterator[str]:
    """Lifetimes named by the markers and parameters of a request."""
    retention = record.parameters.get("prompt_cache_retention")
    if isinstance(retention, str):
        yield retention
    waiting: list[Any] = [record.system, record.tools, record.messages, record.parameters.get("cache_control")]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            ttl = value.get("ttl")
            if isinstance(ttl, str):
                yield ttl
            waiting += [item for item in value.values() if isinstance(item, (Mapping, list))]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            waiting += [item for item in value if isinstance(item, (Mapping, list))]
