"""Fixed text that ends inside a token which the value behind it completes.

The embedded encodings, and nearly all others of today, cut text into words first, and a word takes the space in front of it along. So the last token
of "Question: " is a space of its own only as long as nothing follows; with a value behind it, the space belongs to the value's first token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite, Item
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.ir import Confidence, Hole, Text, Volatility

__all__ = ["PAGES", "Params", "at_stake", "check"]

SITE_BY_SITE = True

PAGES = (1, 16, 64)
"""Page sizes in tokens: SGLang's default, vLLM's default, and the large ones of fast attention kernels."""


@dataclass(frozen=True, slots=True)
class Params:
    """`min_tokens_ahead`: a shorter shared prefix is not worth a remark."""

    min_tokens_ahead: int = 32


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding where the cacheable prefix of a call site ends so."""
    for site in context.sites:
        end = _end(site)
        if end is None:
            continue
        text, hole = end
        items = site.rendered.main()
        tokens = sum(item.tokens for item in items[: items.index(hole)])
        assert isinstance(text.node, Text)
        assert isinstance(hole.node, Hole)
        if tokens < params.min_tokens_ahead or not _open(text.node.value):
            continue
        stake = at_stake(tokens)
        listed = ", ".join(f"{lost} at page size {page}" for page, lost in stake.items())
        yield Raised(
            finding(
                rule,
                context,
                hole.span,
                f"the text ahead of `{short(hole.node.expression)}` ends inside a token that the value may complete; tokens at stake: {listed}",
                confidence=Confidence.MEDIUM,
                site=site,
                expression=hole.node.expression,
                volatility=hole.own,
                block=hole.kind,
                behind=max(stake.values()),
                lost=float(stake[PAGES[0]]),
            )
        )


def at_stake(tokens: int) -> dict[int, int]:
    """By page size: how many tokens of a shared prefix fall off when its last token is another one. Whole pages are shared only."""
    return {page: tokens // page * page - (tokens - 1) // page * page for page in PAGES}


def _end(site: CallSite) -> tuple[Item, Item] | None:
    """The text and the value, next to each other in one block, between which the cacheable prefix ends."""
    items = site.rendered.main()
    at = next((index for index, item in enumerate(items) if item.own > Volatility.PROCESS or item.append), 0)
    if at == 0:
        return None
    before, item = items[at - 1], items[at]
    together = before.block_index == item.block_index and before.arms == item.arms
    inline = isinstance(before.node, Text) and isinstance(item.node, Hole) and not item.append
    return (before, item) if together and inline else None


def _open(text: str) -> bool:
    """Whether the last token of a text may go on: behind a space, a letter or a digit. A line's end, and most signs, close it."""
    return bool(text) and (text[-1] in " \t" or text[-1].isalnum())
