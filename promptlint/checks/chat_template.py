"""What rendering synthetic conversations showed of chat templates, as findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding
from promptlint.ir import BlockKind, Confidence, TemplateVerdict, Volatility
from promptlint.source import Span

__all__ = ["Params", "check"]


@dataclass(frozen=True, slots=True)
class Params:
    """`fault`: rewrites-history, drops-reasoning, moves-tools, date or generation-prompt-not-replayed."""

    fault: str


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding for each template over messages with this fault, at the line that causes it.

    A template that drops reasoning or moves tools rewrites its history too: the narrower name speaks. The conversation has no
    size in the source: the share that the synthetic one loses is taken of the profile's expected history, for requests that continue a session.
    """
    for verdict in context.reading.templates:
        if not _has(verdict, params.fault):
            continue
        line = (verdict.date_line if params.fault == "date" else 0) or verdict.line or 1
        behind, lost = _cost(context, verdict, params.fault)
        yield Raised(
            finding(
                rule,
                context,
                Span(verdict.path, line, 1, line, 1, exact=False),
                _message(verdict, params.fault),
                confidence=Confidence.HIGH,
                expression=params.fault,
                volatility=Volatility.DAY if params.fault == "date" else Volatility.TURN,
                block=BlockKind.SYSTEM if params.fault == "date" else BlockKind.HISTORY,
                behind=behind,
                lost=lost,
            )
        )


def _has(verdict: TemplateVerdict, fault: str) -> bool:
    rewrites = verdict.verdict == "rewrites-history"
    moves = verdict.moves_tools or verdict.moves_system
    if fault == "date":
        return verdict.date != "never"
    if fault == "drops-reasoning":
        return rewrites and verdict.drops_reasoning
    if fault == "moves-tools":
        return rewrites and moves
    if fault == "rewrites-history":
        return rewrites and not verdict.drops_reasoning and not moves
    return verdict.verdict == fault


def _cost(context: Context, verdict: TemplateVerdict, fault: str) -> tuple[int, float]:
    """Tokens behind the place, and those of them expected to be lost a request."""
    profile = context.assumptions.profile
    history = profile.size_of_kind(BlockKind.HISTORY)
    if fault == "date":
        behind = profile.size_of_kind(BlockKind.SYSTEM) + history
        return behind, behind * profile.miss_share(Volatility.DAY)
    behind = round(history * verdict.lost_share)
    return behind, behind * max(0.0, 1 - 2 * profile.miss_share(Volatility.SESSION))


def _message(verdict: TemplateVerdict, fault: str) -> str:
    template = f"the chat template `{verdict.name}`" if verdict.name else "the chat template"
    if fault == "date":
        when = " when there is no system message" if verdict.date == "without-system" else ""
        return f"{template} prints today's date{when}: one miss a day per prefix"
    told = {
        "drops-reasoning": "drops the reasoning of earlier answers",
        "moves-tools": _moved(verdict) + " behind newer messages as the conversation grows",
        "rewrites-history": "writes earlier messages differently once newer ones follow",
    }.get(fault, "does not write a finished answer behind the generation prompt that began it")
    return f"{template} {told}: {verdict.reusable_share:.0%} of the next request is reusable at worst"


def _moved(verdict: TemplateVerdict) -> str:
    if not verdict.moves_system:
        return "moves the tools"
    return "moves the tools and the system message" if verdict.moves_tools else "moves the system message"
