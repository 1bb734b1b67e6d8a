"""Which leaf of the radix tree goes first.

Each strategy of SGLang 0.5.23 maps a node to a key; the evictable leaf with the smallest key is dropped. The server's
command line offers lru, lfu, slru and priority; fifo, mru and filo exist in its code only.
tlru spares what a conversation's next prompt needs to meet a latency target; its targets are 0 by default, and then no
leaf lies beyond what is needed and the order is that of lru (checked against the engine). Other targets are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from promptlint.errors import UserError

if TYPE_CHECKING:
    from promptlint.caches.radix import Node

__all__ = ["STRATEGIES", "Strategy", "strategy"]

SLRU_PROTECTED_HITS = 2  # an insert through a node this often moves it from the probationary to the protected segment


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to order leaves.

    Attributes:
        key: smallest first.
        falls: a touch can lower the key. Otherwise keys only grow, and a stale heap entry is a lower bound.
        counts_hits: the key reads `Node.hits`.
        reads_priority: the key reads `Node.priority`.
    """

    name: str
    key: Callable[[Node], Any]
    falls: bool = False
    counts_hits: bool = False
    reads_priority: bool = False


STRATEGIES = {
    entry.name: entry
    for entry in (
        Strategy("lru", lambda node: node.recency),
        Strategy("tlru", lambda node: node.recency),
        Strategy("lfu", lambda node: (node.hits, node.recency), counts_hits=True),
        Strategy("fifo", lambda node: node.created),
        Strategy("mru", lambda node: -node.recency, falls=True),
        Strategy("filo", lambda node: -node.created, falls=True),
        Strategy("priority", lambda node: (node.priority, node.recency), reads_priority=True),
        Strategy("slru", lambda node: (node.hits >= SLRU_PROTECTED_HITS, node.recency), counts_hits=True),
    )
}


def strategy(name: str) -> Strategy:
    """The strategy of that name. Raises UserError when there is none."""
    found = STRATEGIES.get(name)
    if found is None:
        raise UserError(f"unknown eviction policy {name!r}; known: {', '.join(STRATEGIES)}")
    return found
