"""Inlay hints: where the cacheable prefix of a prompt ends, and after how many tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lsprotocol import types

from promptlint.analysis import CallSite
from promptlint.lsp.positions import Positions
from promptlint.source import Span

__all__ = ["ends", "hints"]


def ends(sites: Iterable[CallSite]) -> Iterator[tuple[Span, CallSite]]:
    """The first part of each prompt that requests do not share. A prompt that they share to its end has none."""
    for site in sites:
        shared = len(site.rendered.prefix())
        main = site.rendered.main()
        if shared < len(main):
            yield main[shared].span, site


def hints(sites: Iterable[CallSite], shown: str, positions: Positions, first: int, last: int) -> list[types.InlayHint]:
    """The hints of one file (by printed path) between two lines, 1-based and inclusive."""
    places: dict[tuple[int, int], list[CallSite]] = {}
    for span, site in ends(sites):
        if span.path == shown and first <= span.line <= last:
            places.setdefault((span.line, span.column), []).append(site)
    return [
        types.InlayHint(
            position=positions.position(*place),
            label=f"cacheable prefix ends here: {_tokens(found)}",
            padding_right=True,
            padding_left=True,
            tooltip=types.MarkupContent(types.MarkupKind.PlainText, _tooltip(found)),
        )
        for place, found in sorted(places.items())
    ]


def _tokens(sites: list[CallSite]) -> str:
    counts = sorted({site.cacheable_prefix_tokens for site in sites})
    word = "token" if counts == [1] else "tokens"
    return f"{counts[0]:,} {word}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} {word}"


def _tooltip(sites: list[CallSite]) -> str:
    return "\n".join(
        f"{site.id}: {site.cacheable_prefix_tokens:,} of {site.prompt_tokens:,} tokens are shared by all requests"
        for site in sites
    )
