"""Routing keys and salts: new with each request, or missing where requests need one to meet their cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite
from promptlint.analysis.estimate import hit_rate
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.ir import Confidence, Hole, Parameter, Step, Volatility

__all__ = ["Params", "check"]

_MINUTES = 24 * 60
_NEW_EACH_TIME = frozenset({"random", "clock", "counter"})


@dataclass(frozen=True, slots=True)
class Params:
    """`keys`: arguments and headers that steer requests or separate caches. `missing`: the rule for calls without one. `min_tokens_lost`: expected tokens a request."""

    keys: tuple[str, ...]
    missing: bool = False
    min_tokens_lost: int = 32


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each call that names a key which no later request repeats, or that names none although its requests are spread over machines."""
    for site in context.sites:
        if site.prompt.origin != "sink":
            continue
        given = [parameter for parameter in site.prompt.parameters if parameter.name in params.keys]
        if params.missing:
            yield from _missing(context, rule, params, site)
            continue
        for parameter in given:
            yield from _new_each_time(context, rule, params, site, parameter)


def _new_each_time(
    context: Context, rule: Rule, params: Params, site: CallSite, parameter: Parameter
) -> Iterator[Raised]:
    value = parameter.value
    if not isinstance(value, Hole):
        return
    origins = [
        origin
        for origin in value.origins
        if origin.kind in _NEW_EACH_TIME and origin.volatility >= Volatility.TURN and not origin.at_import
    ]
    if not origins:
        return
    origin = max(origins, key=lambda each: (each.confidence, each.volatility))
    # What would be reused if the key stayed the same; the provider's own markers do not matter for that.
    best = hit_rate(site.rendered.main(), context.assumptions.profile, site.rendered.terms, best_breakpoint=True)
    lost = best * site.prompt_tokens
    if lost < params.min_tokens_lost:
        return
    yield Raised(
        finding(
            rule,
            context,
            parameter.span,
            f"`{parameter.name}` is new with each request (`{short(origin.expression)}`): no request meets the cache of another",
            confidence=origin.confidence,
            site=site,
            expression=value.expression,
            volatility=origin.volatility,
            trace=[*origin.steps, *([Step(origin.span, "value made here")] if origin.span != parameter.span else [])],
            behind=site.prompt_tokens,
            lost=lost,
        )
    )


def _missing(context: Context, rule: Rule, params: Params, site: CallSite) -> Iterator[Raised]:
    terms = site.rendered.terms
    if terms is None or not terms.routing_key:
        return
    # A header or an unknown keyword argument may be the key.
    if any(parameter.name in params.keys or parameter.name == "**" for parameter in site.prompt.parameters):
        return
    a_minute = context.assumptions.profile.requests_per_day / _MINUTES
    crowded = terms.overflow_rpm is not None and a_minute > terms.overflow_rpm
    if not terms.routing_needed and not crowded:
        return
    lost = site.estimated_hit_rate * site.prompt_tokens
    if lost < params.min_tokens_lost:
        return
    name = terms.routing_key[0]
    why = (
        f"{terms.title} keeps a cache on each machine, and spreads requests without `{name}` over them"
        if terms.routing_needed
        else f"{a_minute:.0f} requests a minute share one prefix without `{name}`; {terms.title} sends those above {terms.overflow_rpm} elsewhere"
    )
    yield Raised(
        finding(
            rule,
            context,
            site.prompt.span,
            why,
            confidence=Confidence.MEDIUM,
            site=site,
            expression=name,
            behind=round(lost),
            lost=lost if terms.routing_needed else lost * (1 - (terms.overflow_rpm or 0) / a_minute),
        )
    )
