"""The verdict where only prompts are known: from code under a profile, or from traffic, without a GPU and a load.

Whether another order comes first can be said, and with a provider what it saves. Which engine is faster cannot, and is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from promptlint.advisor.verdict import Reason, RuleBook, Verdict, decide
from promptlint.catalog.providers import Terms
from promptlint.serving.cost import break_even_requests, saving

__all__ = ["Order", "OrdersAdvice", "judge"]

_NEXT = "promptlint advise --workload FILE  (examples/workloads shows how model, GPU and load are described)"
_CHECK = "promptlint diagnose TRAFFIC  (the usage fields of the provider's answers against these figures)"


@dataclass(frozen=True, slots=True)
class Order:
    """What one call site sends. `tokens` are prompt tokens over all its requests; the rates are their cached share.

    Attributes:
        now: as it is.
        marked: in the same order, with breakpoints where the provider wants them; `now` elsewhere.
        then: in the recommended order, with such breakpoints.
    """

    tokens: float
    now: float
    marked: float
    then: float


@dataclass(frozen=True, slots=True)
class OrdersAdvice:
    """The verdict on the prompts that one model is sent."""

    pool: str
    model: str
    current: str
    verdict: Verdict
    reasons: tuple[Reason, ...]
    would_change_if: tuple[str, ...]
    caveats: tuple[str, ...]
    measurement: str


def judge(
    pool: str,
    model: str,
    current: str,
    orders: Sequence[Order],
    terms: Terms | None,
    book: RuleBook,
    *,
    source: str,
    requests: float = 0,
) -> OrdersAdvice:
    """The verdict on call sites of one model. `source` says what their rates rest on; `requests` is how many there are behind `tokens`, for prices (0: unknown)."""
    total = sum(order.tokens for order in orders) or 1.0
    now = sum(order.tokens * order.now for order in orders) / total
    marked = sum(order.tokens * order.marked for order in orders) / total
    then = sum(order.tokens * order.then for order in orders) / total
    facts: dict[str, float | bool | str] = {
        "current": current,
        "only_prompts": True,
        "hit_rate": now,
        "breakpoints.hit_rate_gain": marked - now,
        "prompts.hit_rate_gain": then - marked,
        "priced": False,
    }
    unit = "share of prompt tokens"
    reasons = [Reason("hit_rate", now, unit, source), Reason("prompts.hit_rate_gain", then - marked, unit, source)]
    if marked - now > 0.001:
        reasons.insert(1, Reason("breakpoints.hit_rate_gain", marked - now, unit, source))
    caveats = []
    read = terms.read if terms is not None and current == "provider" else None
    if terms is not None and read is not None:
        facts |= {"priced": True, "prompts.gain": 1 / (1 - saving(marked, then, read))}
        reasons += _prices(terms, read, now, then, total / requests if requests else 0.0)
        if terms.write() > 1:
            caveats.append(
                f"tokens that are written to the cache cost {terms.write():g} times the input price; the figures above leave writes out, a workload file counts them"
            )
        if terms.low_confidence:
            caveats.append(f"low-confidence terms: {', '.join(terms.low_confidence)}")
    if then - marked > 0.001:
        caveats.append(
            "moving text changes what a model reads: 12 of 15 templates kept their meaning in the SGLang paper (appendix D.2), accuracy moved by -6 to +14 points in the GGR paper"
        )
    verdict = decide(facts, book)
    return OrdersAdvice(
        pool,
        model,
        current,
        verdict,
        tuple(reasons),
        tuple(_would_change(verdict, current, then - marked, book)),
        tuple(caveats),
        _CHECK if current == "provider" else _NEXT,
    )


def _prices(terms: Terms, read: float, now: float, then: float, prompt: float) -> list[Reason]:
    """What the input costs now and then: h r + 1 - h of its uncached price, and in dollars where a price is listed and the prompt's length known."""
    dated = f"{terms.title}, {terms.verified}: a cached token at {read:g} of the input price"
    costs = [rate * read + 1 - rate for rate in (now, then)]
    rows = [
        Reason("input_cost", costs[0], "share of the uncached input price", dated),
        Reason("input_cost_then", costs[1], "the same as recommended", dated),
    ]
    if terms.input_price is not None and prompt:
        dollars = [cost * prompt * terms.input_price / 1000 for cost in costs]
        rows += [
            Reason("input_dollars", dollars[0], f"$ per 1,000 requests of {prompt:,.0f} prompt tokens", dated),
            Reason("input_dollars_then", dollars[1], "the same as recommended", dated),
        ]
    if (requests := break_even_requests(terms.write(), read)) is not None:
        rows.append(Reason("break_even", requests, "requests within a lifetime from which caching pays", dated))
    return rows


def _would_change(verdict: Verdict, current: str, gain: float, book: RuleBook) -> list[str]:
    points = book.thresholds["points"]
    changes = []
    if verdict.verdict == "fix-prompts-first":
        changes.append(
            f"once the prompts are in the recommended order: then less than {100 * points:.0f} points are left to gain"
        )
    else:
        changes.append(
            f"fix-prompts-first if another order of the prompts gained {100 * points:.0f} points of hit rate or more (now {100 * gain:.1f}): "
            "recorded traffic may show values that the code does not"
        )
    if current != "provider":
        changes.append("a described workload (--workload): model, GPU and load decide about engines")
    return changes
