"""Operations on a list of messages that a cached prefix does not survive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding, short
from promptlint.ir import BlockKind, Confidence, HistoryEdit, Volatility
from promptlint.source import Span

__all__ = ["Params", "check"]


@dataclass(frozen=True, slots=True)
class Params:
    """`ops`: operations of `HistoryEdit`. `share_lost`: the share of the history whose reuse is lost, 0 to 1; `what` says what the operation does."""

    ops: tuple[str, ...]
    share_lost: float = 1.0
    what: str = "edits earlier messages"


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each such operation that is reached again for each request of a conversation.

    The history has no size in the source: the profile's expected one is lost, as far as it would have been reused within a session.
    """
    profile = context.assumptions.profile
    tokens = profile.size_of_kind(BlockKind.HISTORY)
    reused = max(0.0, 1 - 2 * profile.miss_share(Volatility.SESSION))
    sites = {site.id: site for site in context.sites}
    for edit, owner in _edits(context):
        if edit.op not in params.ops or not edit.per_call:
            continue
        site = sites.get(edit.call_site) or owner
        lost = tokens * reused * params.share_lost
        yield Raised(
            finding(
                rule,
                context,
                edit.span,
                _message(edit, params),
                confidence=edit.confidence,
                site=site,
                expression=edit.expression or edit.target,
                volatility=Volatility.TURN,
                block=BlockKind.HISTORY,
                trace=edit.steps,
                behind=round(tokens * params.share_lost),
                lost=lost,
                function=edit.function,
            ),
            subject=("history", edit.span),
        )


def _message(edit: HistoryEdit, params: Params) -> str:
    """The page's words, or those of the library's row when a framework does it behind one call or argument."""
    told = [step.note for step in edit.steps if step.span == edit.span]
    return (
        f"`{short(edit.expression or edit.target)}`: {told[0]}"
        if told
        else f"`{short(edit.expression or edit.target)}` {params.what}"
    )


def _edits(context: Context) -> Iterator[tuple[HistoryEdit, CallSite | None]]:
    """Every edit once, the ones of a call site first, because those know where they are sent; the surest of equal places."""
    found: dict[Span, tuple[HistoryEdit, CallSite | None]] = {}
    pairs: list[tuple[HistoryEdit, CallSite | None]] = [
        (edit, site) for site in context.sites for edit in site.prompt.edits
    ]
    pairs.extend((edit, None) for edit in context.reading.edits)
    for edit, site in pairs:
        known = found.get(edit.span)
        if known is None or (known[0].confidence < edit.confidence and known[0].confidence < Confidence.MEDIUM):
            found[edit.span] = (edit, site)
    yield from found.values()
