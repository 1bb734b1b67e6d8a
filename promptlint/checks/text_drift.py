"""The same block with other whitespace or wording at another call site."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.analysis import CallSite
from promptlint.analysis.identity import Unit, units
from promptlint.catalog.rules import Rule
from promptlint.checks.base import Context, Raised, finding
from promptlint.finding import Note
from promptlint.ir import Confidence

__all__ = ["Params", "check"]


@dataclass(frozen=True, slots=True)
class Params:
    """`min_tokens_behind`: how long a text must be to be looked at, in tokens; `min_tokens_apart`: how much of it is lost at least.
    `min_similarity`: share of equal words from which two texts count as the same block, 0 to 1. Texts behind more than `max_head` fixed
    tokens could not be shared anyway.
    """

    min_tokens_behind: int = 64
    min_tokens_apart: int = 32
    min_similarity: float = 0.97
    max_head: int = 16


def check(context: Context, rule: Rule, params: Params) -> Iterator[Raised]:
    """A finding at the later of two texts that say the same with other characters."""
    leading: list[tuple[CallSite, Unit, tuple[str, ...]]] = []
    texts: set[str] = set()
    for site in context.sites:
        unit = _leading(site, params)
        if unit is not None and unit.key not in texts:
            texts.add(unit.key)
            leading.append((site, unit, tuple(unit.key.split())))
    buckets: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, (_, _, words) in enumerate(leading):
        buckets[words[:4]].append(number)
        buckets[words[-4:]].append(number)
    done: set[int] = set()
    for numbers in buckets.values():
        for position, later in enumerate(numbers):
            if later in done:
                continue
            for earlier in numbers[:position]:
                if earlier != later and _same(leading[earlier][2], leading[later][2], params):
                    done.add(later)
                    lost = _not_shared(leading[earlier][1], leading[later][1])
                    if lost >= params.min_tokens_apart:
                        yield _raise(context, rule, leading[earlier], leading[later], lost)
                    break


def _leading(site: CallSite, params: Params) -> Unit | None:
    """The first long fixed text of a site, when hardly any other fixed text stands ahead of it."""
    unit = next((unit for unit in units(site.rendered) if unit.tokens >= params.min_tokens_behind), None)
    if unit is None:
        return None
    head = sum(item.tokens for item in site.rendered.main() if item.index < unit.index)
    return unit if head <= params.max_head else None


def _same(one: tuple[str, ...], other: tuple[str, ...], params: Params) -> bool:
    if one == other:
        return True
    if abs(len(one) - len(other)) > (1 - params.min_similarity) * max(len(one), len(other)):
        return False
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio() >= params.min_similarity


def _not_shared(earlier: Unit, unit: Unit) -> int:
    """Tokens of the later text behind the first character that differs."""
    at = next(
        (index for index, pair in enumerate(zip(earlier.key, unit.key, strict=False)) if pair[0] != pair[1]),
        min(len(earlier.key), len(unit.key)),
    )
    return round(unit.tokens * (1 - at / max(len(unit.key), 1)))


def _raise(
    context: Context,
    rule: Rule,
    one: tuple[CallSite, Unit, tuple[str, ...]],
    other: tuple[CallSite, Unit, tuple[str, ...]],
    behind: int,
) -> Raised:
    (earlier_site, earlier, earlier_words), (site, unit, words) = one, other
    only_space = earlier_words == words
    how = "other whitespace" if only_space else "slightly other words"
    return Raised(
        finding(
            rule,
            context,
            unit.span,
            f"same text with {how} as in {earlier.span.path}:{earlier.span.line}; {behind} tokens are not shared",
            confidence=_confidence(earlier_site, site, only_space=only_space),
            site=site,
            behind=behind,
            lost=behind / context.assumptions.profile.requests_per_day,
            expression=unit.name or unit.key[:40],
            related=[Note(earlier.span, "the other spelling", earlier_site.id)],
        )
    )


def _confidence(earlier: CallSite, site: CallSite, *, only_space: bool) -> Confidence:
    """High for other whitespace; low where no call is known to send one of the texts, which may then belong to another task."""
    if "template" in {earlier.prompt.origin, site.prompt.origin}:
        return Confidence.LOW
    return Confidence.HIGH if only_space else Confidence.MEDIUM
