"""Cache markers that a library does not pass on to the provider."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis.estimate import hit_rate
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding
from promptlint.checks.marks import changes, tokens_of
from promptlint.ir import Confidence

__all__ = ["Params", "check"]

SITE_BY_SITE = True


@dataclass(frozen=True, slots=True)
class Params:
    """`min_tokens`: a prefix below every provider's minimum would not have been cached with the marker either."""

    min_tokens: int = 512


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each such marker behind a prefix that would have been worth one."""
    for site in context.sites:
        items = site.rendered.main()
        for position, item in enumerate(items):
            block = item.block
            last = position + 1 == len(items) or items[position + 1].block_index != item.block_index
            if not last or block is None or block.lost_breakpoint is None:
                continue
            marked = items[: position + 1]
            if tokens_of(marked) < params.min_tokens or changes(marked) is not None:
                continue
            lost = hit_rate(marked, context.assumptions.profile) * tokens_of(marked)
            yield Raised(
                finding(
                    rule,
                    context,
                    block.lost_breakpoint,
                    "the library drops a marker in this place: the provider never sees it",
                    confidence=Confidence.MEDIUM,
                    site=site,
                    expression=block.name,
                    block=block.kind,
                    behind=tokens_of(marked),
                    lost=lost,
                )
            )
