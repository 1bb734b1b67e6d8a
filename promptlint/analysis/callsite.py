"""One call site as the report shows it: its blocks, how far its prefix is shared, what is expected to be reused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from promptlint.analysis.assumptions import Assumptions
from promptlint.analysis.estimate import hit_rate
from promptlint.analysis.render import Item, Rendered, render
from promptlint.catalog.providers import Terms
from promptlint.ir import BlockKind, Growth, Prompt, Unresolved, Volatility

__all__ = ["BlockSummary", "CallSite", "call_sites", "describe", "terms_used"]

_NEXT = {
    "database": "promptlint record -- COMMAND",
    "hub": "promptlint record -- COMMAND",
    "remote-tools": "promptlint record -- COMMAND",
    "dependency": "promptlint check PATH/TO/THE/DEPENDENCY",
    "dynamic-import": "promptlint record -- COMMAND",
    "budget": "promptlint record -- COMMAND",
    "file": "promptlint check PATH/TO/THE/FILE",
    "caller": "promptlint record -- COMMAND",
}


@dataclass(frozen=True, slots=True)
class BlockSummary:
    """A block in rendered order. `volatility` is its own highest one; `static_tokens` those of its fixed text."""

    kind: BlockKind
    role: str | None
    volatility: Volatility
    growth: Growth
    tokens: int
    static_tokens: int
    name: str
    path: str
    line: int


@dataclass(frozen=True, slots=True)
class CallSite:
    """Everything that the report says about one call site. Token counts are expected ones under the assumptions."""

    id: str
    rendered: Rendered
    blocks: tuple[BlockSummary, ...]
    prompt_tokens: int
    cacheable_prefix_tokens: int
    estimated_hit_rate: float
    cache_key: str

    @property
    def prompt(self) -> Prompt:
        """The prompt that the call site sends."""
        return self.rendered.prompt

    @property
    def resolution(self) -> float:
        """Share of the prompt's parts that was read, 0 to 1."""
        return self.prompt.resolution

    @property
    def unresolved(self) -> tuple[Unresolved, ...]:
        """What was not read, and why."""
        return self.prompt.unresolved

    @staticmethod
    def next_step(reason: str) -> str:
        """The command that would help with a part that was not read for this reason."""
        return _NEXT.get(reason, "promptlint record -- COMMAND")


def describe(rendered: Rendered) -> CallSite:
    """The call site of a rendered prompt."""
    return CallSite(
        rendered.id,
        rendered,
        _blocks(rendered),
        rendered.prompt_tokens,
        rendered.cacheable_prefix_tokens,
        hit_rate(rendered.main(), rendered.assumptions.profile, rendered.terms),
        cache_key(rendered),
    )


def call_sites(
    prompts: tuple[Prompt, ...], assumptions: Assumptions, make: Callable[[Prompt, str], CallSite] | None = None
) -> tuple[CallSite, ...]:
    """All call sites, in the order of the prompts. Equal ids are told apart by `#2`, `#3` and so on. `make`: gives that of a prompt and an id."""
    seen: dict[str, int] = {}
    sites = []
    for prompt in prompts:
        seen[prompt.id] = number = seen.get(prompt.id, 0) + 1
        site_id = prompt.id if number == 1 else f"{prompt.id}#{number}"
        sites.append(make(prompt, site_id) if make is not None else describe(render(prompt, assumptions, site_id)))
    return tuple(sites)


def terms_used(sites: Iterable[CallSite]) -> dict[str, object]:
    """The provider terms behind the hit rates, for the report's `assumptions`: by provider page, what applied and when it was checked."""
    used: dict[str, object] = {}
    for site in sites:
        terms = site.rendered.terms
        if terms is not None:
            used[terms.provider] = {
                "minimum_tokens": terms.minimum,
                "match": terms.mode,
                "block_tokens": terms.block,
                "lifetime_seconds": terms.ttl_seconds,
                "breakpoints": _breakpoints(terms),
                "verified": terms.verified,
                "low_confidence": list(terms.low_confidence),
            }
    return dict(sorted(used.items()))


def _breakpoints(terms: Terms) -> str:
    if terms.mode != "breakpoint":
        return "none needed"
    own = {
        "latest-message": ", and the provider's own at the ends of the system text and of the latest message",
        "last-block": ", and one at the end of each request",
        "units": ", and the provider's own at fixed intervals",
    }
    return f"as marked{own.get(terms.implicit, '')}"


def cache_key(rendered: Rendered) -> str:
    """sha256 over tokenizer name, block kinds in rendered order, and the fixed text up to the end of the cacheable prefix."""
    kinds: list[str] = []
    last = -1
    for item in rendered.main():
        if item.block_index != last:
            kinds.append(item.kind.value)
            last = item.block_index
    text = "".join(item.node.value for item in rendered.prefix() if hasattr(item.node, "value"))
    content = "\0".join((rendered.encoding, ",".join(kinds), text))
    return "sha256:" + hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()


def _blocks(rendered: Rendered) -> tuple[BlockSummary, ...]:
    groups: dict[int, list[Item]] = {}
    for item in rendered.main():
        if item.block is not None:
            groups.setdefault(item.block_index, []).append(item)
    return tuple(_block(items) for items in groups.values())


def _block(items: list[Item]) -> BlockSummary:
    block = items[0].block
    assert block is not None
    append = any(item.append for item in items)
    return BlockSummary(
        block.kind,
        block.role,
        max(getattr(item.node, "volatility", item.own) if item.append else item.own for item in items),
        Growth.APPEND if append else block.growth,
        sum(item.tokens for item in items),
        sum(item.tokens for item in items if item.is_text and item.own is Volatility.STATIC),
        block.name,
        block.span.path,
        block.span.line,
    )
