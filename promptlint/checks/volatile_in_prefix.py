"""Values that change, rendered ahead of text that lives longer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from promptlint.analysis import CallSite, Cost, Item, cost_of, tokens_behind
from promptlint.analysis.place import expression_at, primary_location
from promptlint.catalog.names import load_names, words
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.finding import Note
from promptlint.ir import BlockKind, Confidence, Hole, Origin, Step, Volatility

__all__ = ["STRONG", "Params", "check", "origins_of"]

SITE_BY_SITE = True

STRONG = frozenset(
    {"clock", "random", "counter", "host", "unordered", "listing", "json", "shuffle", "user", "tenant", "session"}
)
"""Kinds of origin that are a fault of their own. The others only say what a value is for; one value has at most one of them."""

MAX_SURE_ORIGINS = 4
"""A value with more origins is an object through which much flows; that one of its sources is spelled in this text is a guess."""

NEWEST_MESSAGE_FACTOR = 3
"""Text behind a growing conversation is shared only by the calls of one turn, so a value ahead of it must hold up that much more."""

_OF_A_CLASS = re.compile(r"(?:cls|[A-Z][a-z]\w*)(?:\.\w+)+(?:\(['\"\w]*\))?")
"""An attribute of a class, or what a method of a class says of it."""

_ENTRY = re.compile(r"""\[["']([A-Za-z_]\w*)["']\]""")
"""An entry of a record: `record["name"]` says what `record.name` says."""

_RECORD = re.compile(r"[A-Za-z_]\w*")
_PASSAGES = frozenset({"context", "document"})
_IDS = frozenset({"id", "ids"})
_WHOLE_TEXT = frozenset({"text", "content", "contents", "body", "value", "data", "raw"})
"""Fields of a document that hold the document."""

_REPORTED_PER_PROCESS = frozenset({"clock", "random", "host", "unordered", "listing", "json", "shuffle"})
"""Values fixed at start-up are reported for these kinds only: settings, arguments of constructors and constants are what a cache wants."""


@dataclass(frozen=True, slots=True)
class Params:
    """What one rule is about.

    `sources`: kinds of origin; `sources_elsewhere`: kinds that count outside the system message of a growing conversation only;
    `sources_computed`: kinds that count where the value is the result of a call, not a name that may stay the same for a whole run. `at_import`,
    `in_template`: "any", "only" or "never". `growing_system`: "only" for values in the system message of a growing conversation.
    `fixed_only`: `min_tokens_behind` must be met by fixed text and values fixed at start-up alone; history and stable holes still count for the cost.
    `own_conversation`: the value stays the same for the conversation behind it, which therefore does not count.
    """

    sources: tuple[str, ...]
    sources_elsewhere: tuple[str, ...] = ()
    sources_computed: tuple[str, ...] = ()
    min_tokens_behind: int = 32
    fixed_only: bool = False
    own_conversation: bool = False
    at_import: str = "never"
    in_template: str = "any"
    growing_system: str = "any"
    min_volatility: str = "process"
    what: str = "value"


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each source of a hole that makes longer-lived text behind it uncacheable."""
    least = Volatility[params.min_volatility.upper()]
    for site in context.sites:
        items = site.rendered.items
        growing = bool(items) and (items[-1].append or site.rendered.grows_before(items[-1]))
        told: list[tuple[Item, Origin, Raised]] = []
        for item in site.rendered.items:
            hole = item.node
            if not isinstance(hole, Hole) or item.append or _inherits(item, hole):
                continue
            in_tools = item.kind is BlockKind.TOOLS  # a list of tools that changes is told of as such
            in_growing_system = growing and item.kind is BlockKind.SYSTEM
            if params.growing_system == "only" and not in_growing_system:
                continue
            sources = params.sources if in_growing_system else (*params.sources, *params.sources_elsewhere)
            if hole.origins and not any(_counts(_of_its_object(each, hole), sources, params) for each in hole.origins):
                continue
            for origin in origins_of(hole):
                if not _counts(origin, sources, params) or origin.volatility < least or not _fits(origin, hole, params):
                    continue
                if (
                    in_tools
                    and origin.kind not in STRONG
                    and item.over is None
                    and origin.volatility >= Volatility.SESSION
                ):
                    continue
                # Of the same value in several places the first is the fault; the others lose nothing more.
                if any(_repeats(item, origin, known, known_origin) for known, known_origin, _ in told):
                    continue
                for raised in _raise(context, rule, params, site=site, item=item, hole=hole, origin=origin):
                    first = next(
                        (index for index, known in enumerate(told) if _is_echo(item, origin, *known[:2])), None
                    )
                    if first is None:
                        told.append((item, origin, raised))
                    else:
                        told[first] = (*told[first][:2], _with_echo(told[first][2], raised))
        yield from (raised for _, _, raised in told)


def origins_of(hole: Hole) -> tuple[Origin, ...]:
    """The reasons why a hole changes that are faults of their own: every strong one, and the most volatile of the others.

    A kind that only says what a value is for says nothing where a strong source of the same volatility is known. A hole inside a loop over values
    inherits the loop's list, which is reported itself.
    """
    strong: dict[tuple[str, bool], Origin] = {}
    weak: list[Origin] = []
    for given in hole.origins:
        origin = _of_its_object(given, hole)
        if origin.kind in STRONG:
            key = (origin.kind, origin.at_import)
            known = strong.get(key)
            if known is None or (origin.confidence, origin.volatility) > (known.confidence, known.volatility):
                strong[key] = origin
        else:
            weak.append(origin)
    found = list(strong.values())
    if len(hole.origins) > MAX_SURE_ORIGINS:
        found = [
            origin if origin.expression in hole.expression else replace(origin, confidence=Confidence.LOW)
            for origin in found
        ]
    found = [replace(each, confidence=Confidence.LOW) if _is_mixed_host(each, hole) else each for each in found]
    if not hole.origins:
        weak.append(Origin("unknown", hole.volatility, hole.confidence, hole.expression, hole.span))
    # A value that a known source changes at each turn or more often is explained by it, whatever its name says of it.
    weak = [
        origin
        for origin in weak
        if not any(
            each.volatility >= min(origin.volatility, Volatility.TURN) and each.confidence >= origin.confidence
            for each in found
        )
    ]
    if weak:
        best = max(weak, key=lambda each: (each.confidence, each.volatility))
        found.append(replace(best, confidence=Confidence.LOW) if _is_called_setting(hole, best) else best)
    return tuple(found)


def _is_called_setting(hole: Hole, origin: Origin) -> bool:
    """Whether what is printed is fixed by all that its own spelling says, and the origin is only guessed from a name on the way or one of several.

    `persona`, `language` and `tool_name` speak of settings and tools; `Tool.name()` and `cls.title` belong to a class, not to a request.
    """
    if origin.confidence > Confidence.MEDIUM:
        return False
    name = _ENTRY.sub(r".\1", hole.expression.strip("{} "))
    if _OF_A_CLASS.fullmatch(name):
        return True
    fact = load_names().fact(name)
    if origin.kind != "counter" and fact.origin == "counter" and fact.confidence is Confidence.LOW:
        return True  # `i` numbers what a loop prints
    if "." in name and origin.kind in {"state", "request", "context"}:
        own = load_names().fact(name.rpartition(".")[2])
        if own.origin == "setting" and own.at == "last":
            return True  # the width of whatever is looked at
    fixed = fact.origin in {"setting", "tools"} and fact.confidence >= Confidence.MEDIUM
    return name.replace(".", "").isidentifier() and fixed and origin.kind != "tools"


def _is_mixed_host(origin: Origin, hole: Hole) -> bool:
    """Whether a value fixed at start-up only passes through what was read of the machine elsewhere: a path below a folder, for example."""
    elsewhere = origin.span.path != hole.span.path and len(hole.origins) > 1
    return origin.kind == "host" and origin.volatility is Volatility.PROCESS and elsewhere


def _of_its_object(origin: Origin, hole: Hole) -> Origin:
    """The origin of an object as one of the attribute that is printed.

    A counter that is another attribute of the same object makes the object a state; the attribute that is printed counts nothing. What stands in a
    field of a record that is called a document (`doc["title"]`) is a value of the request, unless the field's name speaks of text; a field that only
    puts the record into a class (`doc["country"]`) may be the same for all of them. The id of a passage is no passage.
    """
    if origin.kind == "context" and _is_field(origin, hole):
        category = load_names().categories.intersection(words(hole.name)[-1:])
        return replace(origin, kind="request", confidence=Confidence.LOW if category else origin.confidence)
    if origin.kind in _PASSAGES and not _IDS.isdisjoint(words(hole.name or hole.expression)):
        return replace(origin, kind="request")
    counted = origin.expression.rsplit(".", 1)
    printed = hole.expression.strip("{} ").rsplit(".", 1)
    if origin.kind != "counter" or len(counted) != 2 or len(printed) != 2:
        return origin
    attributes = counted[1].isidentifier() and printed[1].isidentifier()
    return replace(origin, kind="state") if attributes and counted[1] != printed[1] else origin


def _is_field(origin: Origin, hole: Hole) -> bool:
    record = _RECORD.match(origin.expression)
    if record is None or "(" in origin.expression or hole.name in {"", record[0]}:
        return False
    if record[0].endswith("s") or hole.name.lower() in _WHOLE_TEXT:
        return False
    facts = load_names()
    return facts.fact(record[0]).origin in _PASSAGES and facts.fact(hole.name).origin not in _PASSAGES


def _counts(origin: Origin, sources: tuple[str, ...], params: Params) -> bool:
    return origin.kind in sources or (origin.kind in params.sources_computed and "(" in origin.expression)


def _repeats(item: Item, origin: Origin, earlier: Item, earlier_origin: Origin) -> bool:
    """Whether an earlier part, rendered together with this one, prints the same value."""
    if not isinstance(item.node, Hole) or not isinstance(earlier.node, Hole):
        return False
    same = item.node.expression == earlier.node.expression and item.span.path == earlier.span.path
    return same and _together(item, earlier) and origin.confidence <= earlier_origin.confidence


def _together(item: Item, earlier: Item) -> bool:
    """Whether the earlier part is there whenever the later one is."""
    arms = dict(item.arms)
    return all(arms.get(choice, arm) == arm for choice, arm in earlier.arms)


def _is_echo(item: Item, origin: Origin, earlier: Item, earlier_origin: Origin) -> bool:
    """Whether a date goes stale together with an earlier one of the same text (today, yesterday, this month): it loses nothing by itself."""
    return (
        origin.volatility is Volatility.DAY is earlier_origin.volatility
        and origin.kind == earlier_origin.kind
        and origin.confidence <= earlier_origin.confidence
        and item.span.path == earlier.span.path
        and item.block_index == earlier.block_index
        and _together(item, earlier)
    )


def _with_echo(raised: Raised, echo: Raised) -> Raised:
    """The first finding with a note at the place of the other."""
    span = echo.finding.span
    if span == raised.finding.span:
        return raised
    note = Note(span, f"`{short(echo.finding.expression)}` here too")
    return replace(raised, finding=replace(raised.finding, related=(*raised.finding.related, note)))


def _inherits(item: Item, hole: Hole) -> bool:
    """Whether a part of a loop's body changes no more often than the loop's list, which is an item of its own and known at least as well."""
    over = item.over
    return over is not None and hole.volatility <= over.volatility and hole.confidence <= over.confidence


def _fits(origin: Origin, hole: Hole, params: Params) -> bool:
    if origin.volatility is Volatility.STATIC:
        return False
    if origin.volatility is Volatility.PROCESS and origin.kind not in _REPORTED_PER_PROCESS:
        return False
    if origin.volatility is Volatility.DAY and origin.kind != "clock":
        return False
    # A bare name in a template is filled by Python: the fault arises there.
    in_template = not origin.span.path.endswith((".py", ".pyi")) or hole.expression.startswith("{{")
    in_template = in_template and not origin.expression.strip("{} ").replace(".", "").isidentifier()
    return _allows(params.at_import, origin.at_import) and _allows(params.in_template, in_template)


def _allows(wanted: str, given: bool) -> bool:
    return wanted == "any" or (wanted == "only") == given


def _raise(
    context: Context, rule: Rule, params: Params, *, site: CallSite, item: Item, hole: Hole, origin: Origin
) -> Iterator[Raised]:
    limit = Volatility.DAY if params.fixed_only else origin.volatility
    needed = params.min_tokens_behind * (NEWEST_MESSAGE_FACTOR if site.rendered.grows_before(item) else 1)
    guessed = params.fixed_only and origin.kind not in STRONG
    # A new turn is written once, and what follows in it has a place that no other request shares.
    if (guessed or origin.kind == "counter") and site.rendered.talks_before(item):
        return
    if guessed and (item.is_reply or item.messages):
        return
    if tokens_behind(site.rendered, item, min(limit, origin.volatility), movable=guessed) < needed:
        return
    cost = cost_of(site.rendered, item, origin.volatility, movable=params.own_conversation, guessed=guessed)
    place = primary_location(site.rendered, item, origin.volatility)
    expression = expression_at(hole, place) or origin.expression
    steps = list(origin.steps) or ([Step(origin.span, _arises(origin))] if origin.span != place else [])
    yield Raised(
        finding(
            rule,
            context,
            place,
            _message(params.what, expression, origin, cost, item),
            confidence=min(
                origin.confidence, hole.confidence if hole.volatility == origin.volatility else Confidence.HIGH
            ),
            cost=cost,
            site=site,
            expression=expression,
            volatility=origin.volatility,
            block=item.kind,
            trace=[*steps, *hole.steps],
        ),
        # Values that come through one slot are moved by moving the slot: of those that are no source by themselves, one speaks for it.
        subject=(site.id, item.index, origin.kind) if origin.kind in STRONG else (place, "other"),
    )


def _arises(origin: Origin) -> str:
    return {"clock": "clock read here", "random": "random value made here", "host": "machine state read here"}.get(
        origin.kind, "value comes from here"
    )


def _message(what: str, expression: str, origin: Origin, cost: Cost, item: Item) -> str:
    where = "" if item.kind is BlockKind.OTHER else f" in the {item.kind.value} block"
    text = f"{what} `{short(expression)}`{where} stands ahead of {cost.told()}"
    if origin.volatility is Volatility.DAY:
        text += ": one miss a day per prefix"
    return text
