"""Arguments beside the text that are part of the cache key, changed within one conversation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, Item
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.finding import Note
from promptlint.ir import BlockKind, Confidence, Hole, Parameter, Text, Volatility

__all__ = ["Params", "check"]

_NOT_TEXT = frozenset({BlockKind.SCHEMA})
"""Blocks that are told apart as parameters: another schema is another cache key, even though it is no message."""


@dataclass(frozen=True, slots=True)
class Params:
    """`parameters`: arguments that providers make part of the cache key. `min_tokens_behind`: of the conversation that the sites share."""

    parameters: tuple[str, ...]
    min_tokens_behind: int = 32


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding where a call site goes on with the conversation of another under other parameters, and where one changes its own in a loop.

    Two sites of one function, or of one class that keeps its conversation in an attribute, belong to one conversation when the messages of the one begin
    with all messages of the other: the same places in the source, a history of the same name.
    """
    sites = [site for site in context.sites if site.prompt.origin == "sink"]
    groups: dict[tuple[str, str, str | None], list[CallSite]] = {}
    for site in sites:
        groups.setdefault((site.prompt.path, _owner(site), site.prompt.provider), []).append(site)
        yield from _changing(context, rule, params, site)
    for members in groups.values():
        for number, later in enumerate(members):
            for earlier in members[:number]:
                if earlier.prompt.span != later.prompt.span and _continues(earlier, later):
                    yield from _differs(context, rule, params, earlier, later)
                    break


def _owner(site: CallSite) -> str:
    """The function of a call site, or its class where the history is an attribute of the object."""
    kept = any(
        item.append and isinstance(item.node, Hole) and item.node.expression.startswith("self.")
        for item in site.rendered.main()
    )
    function = site.prompt.function
    return function.rpartition(".")[0] if kept and "." in function else function


def _messages(site: CallSite) -> tuple[tuple[object, ...], ...]:
    """The parts of the messages, each by what makes it the same at another call site."""
    return tuple(_identity(item) for item in _texts(site))


def _identity(item: Item) -> tuple[object, ...]:
    if item.append and isinstance(item.node, Hole):
        return (item.node.expression,)
    if item.kind is BlockKind.TOOLS and isinstance(item.node, Text):
        return (item.node.value,)  # the JSON of a list of tools has the place of the call, not one of its own
    return item.node, item.block_index


def _texts(site: CallSite) -> list[Item]:
    return [item for item in site.rendered.main() if item.kind not in _NOT_TEXT]


def _continues(earlier: CallSite, later: CallSite) -> bool:
    one, other = _messages(earlier), _messages(later)
    shorter, longer = sorted((one, other), key=len)
    # A shared system text alone is two conversations.
    talks = any(item.append or item.kind is BlockKind.QUESTION for item in _texts(earlier))
    return bool(shorter) and talks and longer[: len(shorter)] == shorter


def _differs(context: Context, rule: Rule, params: Params, earlier: CallSite, later: CallSite) -> Iterator[Raised]:
    tokens = sum(item.tokens for item in _texts(earlier))
    if tokens < params.min_tokens_behind:
        return
    first, second = _keyed(earlier, params), _keyed(later, params)
    for name in sorted(first.keys() | second.keys()):
        if first.get(name) == second.get(name) or not _in_key(later, name):
            continue
        parameter = next((one for one in later.prompt.parameters if one.name == name), None)
        doubtful = later.prompt.provider is None or any(_unknown(site, name) for site in (earlier, later))
        yield Raised(
            finding(
                rule,
                context,
                parameter.span if parameter is not None else later.prompt.span,
                f"`{name}` differs from the call that began this conversation ({earlier.prompt.path}:{earlier.prompt.span.line}):"
                " its messages are computed again",
                confidence=Confidence.LOW if doubtful else Confidence.MEDIUM,
                site=later,
                expression=name,
                block=BlockKind.HISTORY,
                related=[Note(earlier.prompt.span, "the same conversation with another value", earlier.id)],
                behind=tokens,
                # One of two calls finds what the other wrote.
                lost=tokens / 2,
            )
        )


def _keyed(site: CallSite, params: Params) -> dict[str, str]:
    found = {
        parameter.name: parameter.value.value if isinstance(parameter.value, Text) else parameter.value.expression
        for parameter in site.prompt.parameters
        if parameter.name in params.parameters
    }
    schema = [item for item in site.rendered.main() if item.kind in _NOT_TEXT]
    if schema and "response_format" in params.parameters:
        found["response_format"] = "".join(
            item.node.value if isinstance(item.node, Text) else getattr(item.node, "expression", "") for item in schema
        )
    return found


def _in_key(site: CallSite, name: str) -> bool:
    """Whether the provider's terms, where they are known, make the argument part of the cache key."""
    terms = site.rendered.terms
    return terms is None or not terms.cache_key or any(key.split(".")[0] == name for key in terms.cache_key)


def _unknown(site: CallSite, name: str) -> bool:
    """Whether the argument may hold another value than is seen, or hide among keyword arguments."""
    return any(
        parameter.name == "**" or (parameter.name == name and isinstance(parameter.value, Hole) and _low(parameter))
        for parameter in site.prompt.parameters
    )


def _low(parameter: Parameter) -> bool:
    return isinstance(parameter.value, Hole) and parameter.value.confidence < Confidence.MEDIUM


def _changing(context: Context, rule: Rule, params: Params, site: CallSite) -> Iterator[Raised]:
    """A value that changes between the calls of one conversation."""
    history = [item for item in site.rendered.main() if item.append]
    tokens = sum(item.tokens for item in history)
    if tokens < params.min_tokens_behind:
        return
    for parameter in site.prompt.parameters:
        value = parameter.value
        if parameter.name not in params.parameters or not isinstance(value, Hole) or value.volatility < Volatility.TURN:
            continue
        if not _in_key(site, parameter.name):
            continue
        yield Raised(
            finding(
                rule,
                context,
                parameter.span,
                f"`{parameter.name}` (`{short(value.expression)}`) changes within the conversation: its messages are computed again",
                # A name tells what a text is about; it does not tell that a setting is another one at each turn.
                confidence=Confidence.MEDIUM if value.confidence is Confidence.HIGH else Confidence.LOW,
                site=site,
                expression=value.expression,
                volatility=value.volatility,
                block=BlockKind.HISTORY,
                trace=value.steps,
                behind=tokens,
                lost=tokens / 2,
            )
        )
