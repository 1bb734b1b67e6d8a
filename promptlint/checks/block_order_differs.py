"""The same blocks in another order at another call site."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from promptlint.analysis import CallSite, Cost, Item
from promptlint.analysis.identity import Unit, common_prefix_tokens, units
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.finding import Note
from promptlint.ir import BlockKind, Confidence, Step, Text

__all__ = ["Params", "check"]


@dataclass(frozen=True, slots=True)
class Params:
    """`kind`: "tools" compares entries of tool lists, "text" everything else. Sites whose fixed heads differ by more than `max_unshared_head` tokens
    cannot share the blocks in any order, so nothing is said about them.
    """

    kind: str = "text"
    min_tokens_behind: int = 32
    max_unshared_head: int = 16


@dataclass(frozen=True, slots=True)
class _Layout:
    site: CallSite
    units: tuple[Unit, ...]

    def order(self, keys: frozenset[str]) -> tuple[str, ...]:
        return tuple(unit.key for unit in self.units if unit.key in keys)


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding at each call site whose order is not the one that most of the sites with these blocks use."""
    layouts = [_Layout(site, _units(site, params)) for site in context.sites]
    layouts = [layout for layout in layouts if len(layout.units) > 1]
    reported: set[tuple[str, frozenset[str]]] = set()
    for keys in _shared_sets(layouts):
        sharing = [layout for layout in layouts if keys <= {unit.key for unit in layout.units}]
        by_order: dict[tuple[str, ...], list[_Layout]] = defaultdict(list)
        for layout in sharing:
            by_order[layout.order(keys)].append(layout)
        if len(by_order) < 2:
            continue
        # The order of most sites; on a tie that of the site that comes first in the source.
        majority = max(by_order.values(), key=len)
        reference = majority[0]
        for group in by_order.values():
            for layout in group if group is not majority else ():
                if (layout.site.id, keys) in reported or not _could_share(reference, layout, keys, params):
                    continue
                found = _raise(
                    context, rule, params, reference=reference, layout=layout, keys=keys, votes=len(majority)
                )
                if found is not None:
                    reported.add((layout.site.id, keys))
                    yield found


def _units(site: CallSite, params: Params) -> tuple[Unit, ...]:
    if params.kind == "tools":
        return tuple(_tools(site))
    return tuple(unit for unit in units(site.rendered) if site.rendered.items[unit.index].kind is not BlockKind.TOOLS)


def _tools(site: CallSite) -> list[Unit]:
    """One unit for each tool: the elements of the list as it is rendered, or else one for each name."""
    items = [item for item in site.rendered.main() if item.kind is BlockKind.TOOLS and item.block is not None]
    pieces = [(item.node.value if isinstance(item.node, Text) else f"<{_expression(item)}>", item) for item in items]
    found: dict[str, Unit] = {}
    for key, item, tokens in _elements(pieces):
        assert item.block is not None
        placed = item.block.placed or item.block.span
        found.setdefault(key, Unit(key, key, tokens, item.span, placed, "", item.index))
    return list(found.values())


def _expression(item: Item) -> str:
    return getattr(item.node, "expression", "")


def _elements(pieces: Sequence[tuple[str, Item]]) -> Iterator[tuple[str, Item, int]]:
    """The elements of a list in JSON, each with its first part and its tokens. Without a list, each part is an element."""
    if not pieces or not pieces[0][0].lstrip().startswith("["):
        yield from ((text.strip(), item, item.tokens) for text, item in pieces if any(map(str.isalnum, text)))
        return
    depth, quoted, escaped = 0, False, False
    text, first, tokens = "", pieces[0][1], 0
    for piece, item in pieces:
        tokens += item.tokens
        for char in piece:
            if quoted:
                if escaped:
                    escaped = False
                elif char == "\\":
                    escaped = True
                elif char == '"':
                    quoted = False
            elif char == '"':
                quoted = True
            elif char in "[{":
                depth += 1
                if depth == 1:
                    continue
            elif char in "]}":
                depth -= 1
            if depth == 0 or (depth == 1 and char == "," and not quoted):
                if text.strip():
                    yield text.strip(), first, tokens
                text, tokens = "", 0
                continue
            if not text.strip():
                first = item
            text += char


def _shared_sets(layouts: Sequence[_Layout]) -> Iterator[frozenset[str]]:
    """The sets of blocks that two sites have in common, larger ones first; each once."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for number, layout in enumerate(layouts):
        for unit in layout.units:
            by_key[unit.key].append(number)
    pairs = {pair for numbers in by_key.values() if len(numbers) < 50 for pair in combinations(sorted(set(numbers)), 2)}
    sets = {
        frozenset(unit.key for unit in layouts[one].units) & frozenset(unit.key for unit in layouts[other].units)
        for one, other in sorted(pairs)
    }
    yield from sorted((keys for keys in sets if len(keys) > 1), key=lambda keys: (-len(keys), sorted(keys)))


def _could_share(one: _Layout, other: _Layout, keys: frozenset[str], params: Params) -> bool:
    return all(_unshared_head(layout, keys, params) <= params.max_unshared_head for layout in (one, other))


def _unshared_head(layout: _Layout, keys: frozenset[str], params: Params) -> int:
    """Tokens of fixed text ahead of the first shared block."""
    first = next(unit.index for unit in layout.units if unit.key in keys)
    tools = params.kind == "tools"
    return sum(
        item.tokens
        for item in layout.site.rendered.main()
        if item.index < first and item.is_text and (not tools or item.kind is BlockKind.TOOLS)
    )


def _raise(
    context: Context,
    rule: Rule,
    params: Params,
    *,
    reference: _Layout,
    layout: _Layout,
    keys: frozenset[str],
    votes: int,
) -> Raised | None:
    site = layout.site
    common = common_prefix_tokens(reference.site.rendered, site.rendered)
    shared = sum(unit.tokens for unit in layout.units if unit.key in keys)
    apart = max(0, shared - common)
    if params.kind == "tools":
        # All that follows the list is lost with it, where the two sites send the same.
        apart = max(
            apart, site.prompt_tokens - common if site.prompt.function == reference.site.prompt.function else apart
        )
    if apart < params.min_tokens_behind:
        return None
    here, there = _first_difference(layout, reference, keys)
    profile = context.assumptions.profile
    now = site.estimated_hit_rate
    names = " before ".join(short(_title(unit), 24) for unit in here)
    others = f"{votes} other call sites" if votes > 1 else "the other call site"
    return Raised(
        finding(
            rule,
            context,
            here[0].placed,
            f"{names}: the other way round at {others} ({reference.site.prompt.function or reference.site.prompt.path}); {apart} tokens not shared",
            confidence=Confidence.HIGH,
            site=site,
            # Each order is cached on its own; what is lost is one computation a day and replica for the second one.
            cost=Cost(apart, apart / profile.requests_per_day, now, now),
            expression=_title(here[0]),
            block=BlockKind.TOOLS if params.kind == "tools" else None,
            trace=[Step(unit.span, "this block") for unit in here],
            related=[Note(there[0].placed, "the order that most call sites use", reference.site.id)],
        )
    )


def _first_difference(
    layout: _Layout, reference: _Layout, keys: frozenset[str]
) -> tuple[tuple[Unit, Unit], tuple[Unit, Unit]]:
    """The first two blocks of each site from the place where their orders part."""
    mine = [unit for unit in layout.units if unit.key in keys]
    theirs = [unit for unit in reference.units if unit.key in keys]
    at = next(index for index, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one.key != other.key)
    return (mine[at], mine[at + 1]), (theirs[at], theirs[at + 1])


def _title(unit: Unit) -> str:
    return unit.name or unit.text.strip()
