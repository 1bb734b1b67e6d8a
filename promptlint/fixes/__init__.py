"""Edits that repair findings: what could be changed, where, and how sure it is to change nothing else.

A fixer is a function of a finding and the sources. It yields fixes, the best first, and knows nothing of whether they help: whoever writes them reads the
project again with the edits and drops what does not. Applicability: `safe` (only an order becomes fixed), `unsafe` (text, time or identity
changes), `display-only` (text moves: what a model reads changes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from promptlint.finding import Finding, Fix
from promptlint.fixes import clock, keys, messages, move, newest, order
from promptlint.fixes.code import Desk

__all__ = ["FIXERS", "Desk", "propose"]

Fixer = Callable[[Finding, Desk], Iterator[Fix]]

FIXERS: Mapping[str, tuple[Fixer, ...]] = {
    "unordered-iteration": (order.fixed_order,),
    "unsorted-listing": (order.sorted_listing,),
    "unsorted-json": (order.sorted_keys,),
    "clock-in-prefix": (clock.coarsened, move.moved_behind, newest.into_newest_message),
    "template-clock": (clock.coarsened, move.moved_behind, newest.into_newest_message),
    "cache-key-per-request": (keys.stable_key,),
    "message-inserted-at-front": (messages.appended,),
    "block-order-differs": (messages.swapped,),
    "tool-order-differs": (messages.swapped,),
    "breakpoint-missing": (messages.marked,),
    "breakpoint-on-volatile": (messages.split_at_marker,),
    "head-and-tail-in-one-message": (messages.split_message,),
    "random-order": (order.drawn_once, move.moved_behind),
    **dict.fromkeys(
        (
            "random-in-prefix",
            "request-data-before-static",
            "user-data-before-shared",
            "context-before-static",
            "counter-in-prefix",
            "host-state-in-prefix",
            "import-time-value-in-prefix",
            "volatile-block-first",
            "template-random",
        ),
        (move.moved_behind, newest.into_newest_message),
    ),
    "volatile-system-message": (newest.into_newest_message, move.moved_behind),
}


def propose(finding: Finding, desk: Desk) -> tuple[Fix, ...]:
    """The fixes of a finding, best first; none for a rule or a place that we cannot repair."""
    found: list[Fix] = []
    for fixer in FIXERS.get(finding.rule, ()):
        for fix in fixer(finding, desk):
            if fix not in found:
                found.append(fix)
    return tuple(found)
