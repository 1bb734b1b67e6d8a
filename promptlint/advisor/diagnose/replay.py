"""What a cause costs: the traffic once more, with that cause repaired in every request, through the same search for relatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from promptlint.advisor.diagnose.causes import classify, repaired
from promptlint.advisor.diagnose.model import Cause, Diagnosis
from promptlint.advisor.diagnose.trie import Match, Node, Tree
from promptlint.traffic.parts import Part
from promptlint.traffic.record import Record

__all__ = ["Row", "counter_of", "price"]

MAX_REPAIRS = 8
"""Repairs of one request: several values of one kind may stand in one prompt."""


@dataclass(slots=True)
class Row:
    """One request during the diagnosis. `node` is its end in the tree, from which its parts can be read again; `count` counts its texts.

    `key` is the space in which it finds relatives: namespace, model, and what the log says of the prompt (text, token ids or block ids: they cannot be compared).
    `cached` and `total` are expected cached tokens and all prompt tokens, `rule` is that of its divergence, empty where it has none.
    """

    number: int
    key: tuple[str, str, str]
    count: Callable[[str], int]
    call_site: str = ""
    node: Node = field(default_factory=lambda: Node(None, None))
    cached: int = 0
    total: int = 0
    rule: str = ""

    def same_site(self, other: Row) -> bool:
        """Whether both may come from one place in the code: unless both name one and the names differ."""
        return not self.call_site or not other.call_site or self.call_site == other.call_site


def counter_of(record: Record, count: Callable[[str], int]) -> Callable[[str], int]:
    """How the texts of a record's parts are counted: ids count themselves, a hashed block its size."""
    if record.token_ids is not None:
        return len
    if record.hash_ids is not None:
        size = record.block_size or 1
        return lambda text: size if text else 0
    return count


def price(found: Diagnosis, rows: Sequence[Row]) -> None:
    """Fill in the tokens lost of each divergence, and rank the causes by the tokens that they lose."""
    lost: dict[int, int] = {row.number: 0 for row in rows}
    for rule in dict.fromkeys(divergence.rule for divergence in found.divergences):
        own = [divergence for divergence in found.divergences if divergence.rule == rule]
        gained = _Replay(rows, rule).gains()
        for divergence in own:
            # Another model's cache cannot be repaired in the text: what is lost there is known already.
            lost[divergence.request] = (
                divergence.tokens_lost if divergence.path == "model" else gained[divergence.request - 1]
            )
        regained = sum(gained) + sum(divergence.tokens_lost for divergence in own if divergence.path == "model")
        rate = min((found.cached_tokens + regained) / found.prompt_tokens, 1.0) if found.prompt_tokens else 0.0
        found.causes.append(Cause(rule, len(own), sum(lost[divergence.request] for divergence in own), rate))
    found.causes.sort(key=lambda cause: (-cause.tokens_lost, -cause.requests, cause.rule))
    found.divergences = [replace(divergence, tokens_lost=lost[divergence.request]) for divergence in found.divergences]


class _Replay:
    """The traffic with every difference of one rule repaired."""

    def __init__(self, rows: Sequence[Row], rule: str) -> None:
        self.rows = rows
        self.rule = rule
        self.trees: dict[tuple[str, str, str], Tree] = {}
        self.ends: list[Node] = []

    def gains(self) -> list[int]:
        """Cached tokens that each request gains."""
        return [self._gain(row) for row in self.rows]

    def _gain(self, row: Row) -> int:
        tree = self.trees.setdefault(row.key, Tree())
        parts = row.node.parts()
        match = tree.match(parts)
        touched = False
        # A request that did not diverge needs a repair too when its relative was repaired away from it.
        if row.rule or row.total - _unmatched(parts, match, row.count) < row.cached:
            parts, match, touched = self._repaired(tree, row, parts, match)
        self.ends.append(tree.insert(parts, row.number))
        expected = min(row.total - _unmatched(parts, match, row.count), max(row.total - 1, 0))
        return max(expected - row.cached, 0) if touched else 0

    def _repaired(self, tree: Tree, row: Row, parts: list[Part], match: Match) -> tuple[list[Part], Match, bool]:
        """Repair differences until one of another rule, or none, is met."""
        touched = False
        for _ in range(MAX_REPAIRS):
            if match.whole or match.relative < 0 or match.depth >= len(parts):
                break
            was = self.ends[match.relative - 1].parts()
            same_site = row.same_site(self.rows[match.relative - 1])
            change = classify(was, parts, match.depth, match.chars, same_site=same_site)
            # A repaired relative may look otherwise than the sent one did (a counter that steps by two): the divergence keeps its rule.
            ours = change.rule == self.rule or (row.rule == self.rule and not touched)
            fixed = repaired(was, parts, match.depth, change) if ours else None
            if fixed is None:
                break
            better = tree.match(fixed)
            if (better.depth, better.chars) <= (match.depth, match.chars):
                break
            parts, match, touched = fixed, better, True
        return parts, match, touched


def _unmatched(parts: Sequence[Part], match: Match, count: Callable[[str], int]) -> int:
    """Tokens of the row behind its match. Repairs put text in ahead of the match only, so what is behind is the request's own."""
    left = sum(count(part.text) for part in parts[match.depth :])
    if match.depth < len(parts) and match.chars:
        left -= count(parts[match.depth].text[: match.chars])
    return max(left, 0)
