"""The cache markers of a call site, and the provider's terms that decide what they are worth. Shared by the checks on breakpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from promptlint.analysis import CallSite, Item
from promptlint.catalog.providers import Fact, Terms, load_providers, resolve
from promptlint.ir import Block, BlockChoice, BlockNode, BlockRepeat, Volatility, blocks_of
from promptlint.source import Span

__all__ = ["Limits", "Mark", "changes", "limits_of", "marks_of", "tokens_of"]

_CODE_UNKNOWN = "?"  # the lifetime of a marker that code decides


@dataclass(frozen=True, slots=True)
class Mark:
    """A marker at the end of a block. `items` are all parts of the prompt up to it; `ttl` None is the default lifetime; `repeated`: once for each
    element of a list; `known`: whether its lifetime is written in the source.
    """

    span: Span
    block: Block
    items: tuple[Item, ...]
    ttl: str | None
    repeated: bool

    @property
    def known(self) -> bool:
        return self.ttl != _CODE_UNKNOWN


@dataclass(frozen=True, slots=True)
class Limits:
    """A provider's terms, and its minimum in tokens: the smallest and largest of its models where the model is unknown."""

    terms: Terms
    least: int
    most: int


def marks_of(site: CallSite) -> list[Mark]:
    """The markers that stand in the longest form of the prompt, in rendered order."""
    found: list[Mark] = []
    items = site.rendered.main()
    listed = set(_listed(site.prompt.blocks))
    for position, item in enumerate(items):
        block = item.block
        last = position + 1 == len(items) or items[position + 1].block_index != item.block_index
        if last and block is not None and block.breakpoint is not None:
            repeated = block.breakpoint in listed and not item.guards
            found.append(Mark(block.breakpoint, block, items[: position + 1], block.breakpoint_ttl, repeated))
    return found


def _listed(nodes: Iterable[BlockNode]) -> Iterator[Span]:
    """Markers that are written inside the construct that repeats them. One that stands elsewhere was put on a single element later."""
    for node in nodes:
        if isinstance(node, BlockRepeat):
            for block in blocks_of(node.body):
                if block.breakpoint is not None and node.span.contains(block.breakpoint):
                    yield block.breakpoint
            yield from _listed(node.body)
        elif isinstance(node, BlockChoice):
            for arm in node.arms:
                yield from _listed(arm)


def limits_of(site: CallSite) -> Limits | None:
    """The terms that a call site's prompt is cached under; of a provider without its model, only where all its models match alike."""
    terms = site.rendered.terms
    if terms is not None:
        return Limits(terms, terms.minimum, terms.minimum)
    if not site.prompt.provider or site.prompt.model:
        return None
    pages = [
        page
        for page in load_providers(site.rendered.assumptions.extra_rules).values()
        if site.prompt.provider in page.words
    ]
    if len(pages) != 1 or "mode" not in pages[0].facts or pages[0].facts["mode"].models:
        return None
    minimum = pages[0].facts.get("minimum", Fact("minimum", 0))
    every = (minimum.value, *minimum.models.values())
    return Limits(resolve(pages[0]), min(every), max(every))


def tokens_of(items: Sequence[Item]) -> int:
    """Expected tokens of these parts."""
    return sum(item.tokens for item in items)


def changes(items: Sequence[Item], least: Volatility = Volatility.TURN) -> Item | None:
    """The part that changes at least as often as `least`; of several, the one that is known best. A growing history is none."""
    changing = [item for item in items if not item.append and item.own >= least]
    return max(changing, key=lambda item: (item.confidence, item.own, -item.index), default=None)
