"""Prompt-cache terms of API providers (rules/providers/*.toml): dated facts, each with its source and how sure we are.

A page holds the facts of one provider, or of one generation of its models. A fact has a value, and other values for models by glob (the longest pattern that
matches wins). `resolve` turns a page and a model into `Terms`, the form that checks, cache models and money work with.

Three match modes are enough for all of them:

    token       any common prefix is reused
    block       the common prefix is reused, floored to `block` tokens
    breakpoint  a prefix is reused only up to a stored end point: a mark of the caller, or one that the provider sets itself (`implicit`)
"""

from __future__ import annotations

import datetime as dt
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from promptlint.catalog import load_toml, toml_files
from promptlint.errors import UserError

__all__ = ["STALE_DAYS", "Fact", "Provider", "Source", "Terms", "load_providers", "page_for", "provider_at", "resolve"]

STALE_DAYS = 180  # vendors changed these terms several times within a year; older than this warns
MODES = ("token", "block", "breakpoint")
CONFIDENCE = ("high", "medium", "low")

# What a page may state, with the type of the value. A key outside this list is a typing error, never silently ignored.
_FACTS: dict[str, type | tuple[type, ...]] = {
    "control": list,  # how a request asks for caching: automatic, explicit-breakpoint, top-level, cached-object, key
    "mode": str,
    "block": int,  # tokens; for mode `block`
    "minimum": int,  # tokens below which nothing is cached
    "implicit": str,  # breakpoint that is set without a mark: "latest-message", "last-block", "units"; "" none
    "max_breakpoints": int,  # written per request
    "over_limit": str,  # of more marks: "refused", or "latest" (the latest ones count)
    "lookback": int,  # how many positions before a mark are tried
    "ttl": dict,  # name -> seconds of the lifetimes on offer; the first is the default
    "ttl_refresh": bool,  # a read starts the lifetime again
    "ttl_order": str,  # "longer-first" when marks of both lifetimes must stand in that order
    "read": (int, float),  # price of a cached token, as a multiple of the input price
    "write": (int, float, dict),  # of a written token; by lifetime where it differs
    "price": dict,  # {input, output} in dollars per million tokens
    "render_order": list,
    "visible": str,  # when a written prefix can be read: "first-token", "response-end"
    "routing_key": list,  # parameters or headers that steer requests to one machine
    "routing_needed": bool,  # without a key, requests with one prefix are spread over machines that share no cache
    "route_tokens": int,  # leading tokens that take part in routing
    "overflow_rpm": int,  # requests a minute per prefix and key above which some go elsewhere
    "cache_key": list,  # parameters that are part of the cache key beside the text
    "invalidation": list,  # rows {change, tools, system, messages}: which part of the cache survives a change
    "breakpoints_on": list,  # what may carry a mark
    "breakpoints_not_on": list,
    "usage": list,  # fields of the answer that report cached and written tokens
    "scope": str,
    "uncached_models": list,  # models without a price for cached tokens
    "note": str,
}


_COUNTS = {"block": 1, "minimum": 0, "max_breakpoints": 1, "lookback": 0, "route_tokens": 0, "overflow_rpm": 1}  # least


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact was read. `date` is the page's own, as exact as it is known: "2026", "2026-10" or "2026-10-13"."""

    name: str
    url: str
    date: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One term: its value, values of other models by glob, and where it comes from."""

    name: str
    value: Any
    models: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    confidence: str = "medium"
    note: str = ""
    conflict: str = ""

    def of(self, model: str) -> Any:
        """The value for a model; the general one where no pattern matches or the model is unknown."""
        return pick(self.models, model, self.value)


@dataclass(frozen=True, slots=True)
class Provider:
    """One page. `words` are the names by which SDK rows, traffic and users call the provider; `models` globs of the models that the page holds for,
    `hosts` those of its API, by which a client of another vendor's SDK tells where it sends.
    """

    name: str
    title: str
    words: tuple[str, ...]
    models: tuple[str, ...]
    default: bool  # the page that is taken when a model is unknown
    verified: dt.date
    facts: Mapping[str, Fact]
    path: Path
    hosts: tuple[str, ...] = ()

    def age_days(self, today: dt.date) -> int:
        """Days since the facts were last checked."""
        return (today - self.verified).days

    def low_confidence(self) -> tuple[Fact, ...]:
        """Facts that rest on third-party tests or on memory."""
        return tuple(fact for fact in self.facts.values() if fact.confidence == "low")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one model. Prices are multiples of the uncached input price, `input_price` and `output_price` dollars per million tokens (None: not listed).

    `ttls` are (name, seconds) pairs, the default first; seconds is None where the lifetime is not published. `writes` are (lifetime name, factor) pairs; one with
    an empty name holds for every lifetime. `guessed` names the facts that were not documented for this page and fell back to a neutral value.
    """

    provider: str
    title: str
    model: str
    mode: str
    block: int = 1
    minimum: int = 0
    automatic: bool = True
    explicit: bool = False
    implicit: str = ""
    max_breakpoints: int | None = None
    over_limit: str = "latest"
    lookback: int | None = None
    ttls: tuple[tuple[str, int | None], ...] = ()
    ttl_refresh: bool = True
    ttl_order: str = ""
    read: float | None = None
    writes: tuple[tuple[str, float], ...] = (("", 1.0),)
    input_price: float | None = None
    output_price: float | None = None
    render_order: tuple[str, ...] = ()
    visible: str = ""
    routing_key: tuple[str, ...] = ()
    routing_needed: bool = False
    overflow_rpm: int | None = None
    route_tokens: int | None = None
    cache_key: tuple[str, ...] = ()
    usage: tuple[str, ...] = ()
    low_confidence: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()
    verified: str = ""

    @property
    def ttl_seconds(self) -> int | None:
        """The default lifetime; None where it is not published."""
        return self.ttls[0][1] if self.ttls else None

    def write(self, ttl: str = "") -> float:
        """Price of a written token at a lifetime (default: the default one)."""
        wanted = ttl or (self.ttls[0][0] if self.ttls else "")
        table = dict(self.writes)
        return table.get(wanted, table.get("", next(iter(table.values()), 1.0)))

    def money(
        self, uncached: float, cached: float, written: float = 0.0, output: float = 0.0, ttl: str = ""
    ) -> float | None:
        """Dollars for tokens counted apart: `uncached` at the input price, `cached` read, `written` into the cache. None where no price is listed."""
        if self.input_price is None or self.read is None:
            return None
        tokens = uncached + cached * self.read + written * self.write(ttl)
        return (tokens * self.input_price + output * (self.output_price or 0.0)) / 1e6


def pick(table: Mapping[str, Any], model: str, default: Any) -> Any:
    """The value of the longest glob that matches the model's name, with or without what stands before its last slash or its vendor's dot."""
    names = _spellings(model)
    matching = [pattern for pattern in table if any(fnmatchcase(name, pattern.lower()) for name in names)]
    return table[max(matching, key=len)] if matching else default


def _spellings(model: str) -> tuple[str, ...]:
    """The names that a pattern may match: as given, without what stands before the last slash, and without region and vendor ("us.anthropic.")."""
    name = model.lower()
    short = name.rsplit("/", 1)[-1]
    parts = short.split(".")
    # Only a vendor before a dot is cut, never the "gpt-4" of gpt-4.1.
    vendorless = (
        ".".join(parts[1:])
        if parts[0] in {"anthropic", "amazon", "meta", "mistral", "deepseek", "qwen", "openai"}
        else short
    )
    if len(parts) > 2 and parts[0] in {"us", "eu", "apac", "global", "us-gov", "jp", "au"}:
        vendorless = ".".join(parts[2:])
    return tuple(dict.fromkeys((name, short, vendorless)))


@cache
def load_providers(extra: tuple[Path, ...] = ()) -> dict[str, Provider]:
    """Every page, by name. A page in the user's own folder with the same name overrides fact by fact. Raises UserError for what does not fit."""
    pages: dict[str, Provider] = {}
    waiting: list[tuple[Path, dict[str, Any]]] = [(path, load_toml(path)) for path in toml_files("providers", extra)]
    while waiting:
        rest = []
        for path, data in waiting:
            base = data.get("inherits")
            if base is not None and base not in pages:
                rest.append((path, data))
                continue
            page = _page(path, data, pages)
            pages[page.name] = page
        if len(rest) == len(waiting):
            path, data = rest[0]
            raise UserError(f"{path}: inherits {data.get('inherits')!r}, which is no page")
        waiting = rest
    return pages


def _page(path: Path, data: Mapping[str, Any], pages: Mapping[str, Provider]) -> Provider:
    name = data.get("name", path.stem)
    older = pages.get(name)  # the shipped page that a user's page of this name refines
    base = older or pages.get(data.get("inherits", ""))
    for key in ("source", "fact"):
        if not isinstance(data.get(key, {}), dict):
            raise UserError(f"{path}: {key}: a table is expected, e.g. [{key}.name]")
    try:
        sources = {
            key: Source(key, row["url"], str(row["date"]), row.get("note", ""))
            for key, row in data.get("source", {}).items()
        }
        verified = data["verified"]["on"] if "verified" in data else older.verified if older else None
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: a source needs url and date, the page verified.on: {error!r}") from error
    if not isinstance(verified, dt.date):
        raise UserError(f"{path}: verified.on: a date is expected, e.g. verified = {{ on = 2026-11-30 }}")
    for key in ("words", "models", "hosts"):
        if not isinstance(data.get(key, []), list) or not all(isinstance(word, str) for word in data.get(key, [])):
            raise UserError(f"{path}: {key}: a list of words is expected")
    facts = dict(base.facts) if base else {}
    for key, row in data.get("fact", {}).items():
        facts[key] = _fact(path, key, row, sources)
    if mode := facts.get("mode"):
        if unknown := {mode.value, *mode.models.values()} - set(MODES):
            raise UserError(f"{path}: mode {', '.join(map(repr, unknown))}: one of {', '.join(MODES)} is expected")
    else:
        raise UserError(f"{path}: the page states no mode")
    words = tuple(data.get("words", base.words if older and base else (name,)))
    models = tuple(data.get("models", base.models if base and older else ()))
    title = data.get("title", older.title if older else name)
    hosts = tuple(data.get("hosts", older.hosts if older else ()))
    return Provider(
        name,
        title,
        words,
        models,
        bool(data.get("default", older.default if older else False)),
        verified,
        facts,
        path,
        hosts,
    )


def _fact(path: Path, key: str, row: Any, sources: Mapping[str, Source]) -> Fact:
    if key not in _FACTS:
        close = difflib.get_close_matches(key, _FACTS, n=1)
        raise UserError(f"{path}: fact.{key}: no such fact" + (f"; did you mean {close[0]}?" if close else ""))
    if not isinstance(row, dict) or "value" not in row:
        raise UserError(f"{path}: fact.{key}: a table with `value` is expected")
    if unknown := set(row) - {"value", "models", "source", "confidence", "note", "conflict"}:
        raise UserError(f"{path}: fact.{key}: unknown keys {', '.join(sorted(unknown))}")
    models = row.get("models", {})
    if not isinstance(models, dict):
        raise UserError(f"{path}: fact.{key}: models: a table from a model's pattern to its value is expected")
    for value in (row["value"], *models.values()):
        if not isinstance(value, _FACTS[key]) or (isinstance(value, bool) and _FACTS[key] is not bool):
            raise UserError(f"{path}: fact.{key}: {value!r} does not fit")
        if (wanted := _expected(key, value)) is not None:
            raise UserError(f"{path}: fact.{key}: {value!r} does not fit: {wanted}")
    confidence = row.get("confidence", "medium")
    if confidence not in CONFIDENCE:
        raise UserError(f"{path}: fact.{key}: confidence {confidence!r}: one of {', '.join(CONFIDENCE)} is expected")
    named = row.get("source", [])
    named = [named] if isinstance(named, str) else named
    if missing := [source for source in named if source not in sources]:
        raise UserError(f"{path}: fact.{key}: source {missing[0]!r} is not listed under [source]")
    if not named:
        raise UserError(f"{path}: fact.{key}: a provider figure needs a source and its date")
    found = tuple(sources[source] for source in named)
    return Fact(
        key, row["value"], row.get("models", {}), found, confidence, row.get("note", ""), row.get("conflict", "")
    )


def _expected(key: str, value: Any) -> str | None:
    """What a value of the right type has to be beyond that, if it is not: numbers that count or price something, lists of words, tables of numbers."""
    if key in _COUNTS and value < _COUNTS[key]:
        return f"{_COUNTS[key]} or more is expected"
    if key in ("read", "write", "price") and not all(
        map(_is_factor, value.values() if isinstance(value, dict) else [value])
    ):
        return "numbers from 0 on are expected"
    if key == "over_limit" and value not in ("refused", "latest"):
        return "refused or latest is expected"
    if key == "ttl" and not all(type(seconds) is int and seconds >= 0 for seconds in value.values()):
        return "whole seconds are expected, 0 where they are not published"
    if isinstance(value, list) and key != "invalidation" and not all(isinstance(word, str) for word in value):
        return "a list of words is expected"
    return None


def _is_factor(number: Any) -> bool:
    return type(number) in (int, float) and math.isfinite(number) and number >= 0


def page_for(provider: str, model: str = "", extra: tuple[Path, ...] = ()) -> Provider | None:
    """The page of a provider (a page's name or one of its words) and model. None when no page knows the provider.

    Where a provider has several pages, the model's own wins, then the default one. Where no page knows the provider (a gateway, or none given), the model may
    say it: by its prefix ("anthropic/claude-…"), or by its name ("claude-…").
    """
    pages = load_providers(extra)
    word = provider.lower()
    candidates = [page for page in pages.values() if word and (word in page.words or word == page.name)]
    if word in pages and not any(word in page.words for page in candidates if page.name != word):
        candidates = [pages[word]]  # asked for by its own name
    if not candidates and "/" in model:
        prefix = model.split("/", 1)[0].lower()
        candidates = [page for page in pages.values() if prefix in page.words]
    known = bool(candidates)
    candidates = candidates or list(pages.values())
    fitting = {
        page.name: max((len(p) for p in page.models if pick({p: True}, model, False)), default=0) for page in candidates
    }
    best = max(candidates, key=lambda page: (fitting[page.name], page.default))
    return best if fitting[best.name] or known else None


def provider_at(url: str) -> str | None:
    """The provider whose API answers at an address ("https://api.x.ai/v1"); None where no page names its host."""
    host = urlsplit(url).hostname if "//" in url else None
    return next((page.words[0] for page in load_providers().values() if host in page.hosts), None)


def resolve(page: Provider, model: str = "") -> Terms:
    """The terms of a model under a page. What the page does not state gets the neutral value that promises least, and is listed in `guessed`."""
    guessed: list[str] = []

    def get(name: str, default: Any) -> Any:
        fact = page.facts.get(name)
        if fact is None:
            guessed.append(name)
            return default
        return fact.of(model)

    control = tuple(get("control", ["automatic"]))
    price = get("price", {})
    write = get("write", 1.0)
    read = page.facts["read"].of(model) if "read" in page.facts else None
    if (
        "uncached_models" in page.facts
        and model
        and pick(dict.fromkeys(page.facts["uncached_models"].value, True), model, False)
    ):
        read = 1.0
    ttl = get("ttl", {})
    return Terms(
        provider=page.name,
        title=page.title,
        model=model,
        mode=get("mode", "token"),
        block=get("block", 1),
        minimum=get("minimum", 0),
        automatic="automatic" in control,
        explicit="explicit-breakpoint" in control,
        implicit=get("implicit", ""),
        max_breakpoints=get("max_breakpoints", None),
        over_limit=get("over_limit", "latest"),
        lookback=get("lookback", None),
        ttls=tuple((name, seconds if seconds > 0 else None) for name, seconds in ttl.items()),
        ttl_refresh=get("ttl_refresh", True),
        ttl_order=get("ttl_order", ""),
        read=float(read) if read is not None else None,
        writes=tuple((name, float(factor)) for name, factor in write.items())
        if isinstance(write, dict)
        else (("", float(write)),),
        input_price=price.get("input"),
        output_price=price.get("output"),
        render_order=tuple(get("render_order", [])),
        visible=get("visible", ""),
        routing_key=tuple(get("routing_key", [])),
        routing_needed="routing_needed" in page.facts and bool(page.facts["routing_needed"].of(model)),
        overflow_rpm=get("overflow_rpm", None),
        route_tokens=get("route_tokens", None),
        cache_key=tuple(get("cache_key", [])),
        usage=tuple(get("usage", [])),
        low_confidence=tuple(fact.name for fact in page.low_confidence()),
        guessed=tuple(guessed),
        verified=page.verified.isoformat(),
    )
