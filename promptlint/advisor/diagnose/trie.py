"""The earlier relative of a request: the one that shares the longest prefix with it, in time that follows the new text only.

Requests are rows of parts. Equal parts are found by their hash; where a row leaves all earlier ones, a radix tree over the texts that stood there
tells how many characters it still shares, and with whom. Every node knows the latest request that passed, because on a tie the latest counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from promptlint.traffic.parts import Part

__all__ = ["Match", "Node", "Tree", "common"]


def common(a: str, b: str, at: int = 0, start: int = 0) -> int:
    """Length of the common prefix of `a[at:]` and `b[start:]`: compared in growing slices, so that the work is done in C."""
    limit = min(len(a) - at, len(b) - start)
    if a[at : at + limit] == b[start : start + limit]:
        return limit
    low, step = 0, 64
    while low + step < limit and a[at + low : at + low + step] == b[start + low : start + low + step]:
        low += step
        step *= 2
    high = min(low + step, limit)
    while high - low > 1:
        middle = (low + high) // 2
        if a[at + low : at + middle] == b[start + low : start + middle]:
            low = middle
        else:
            high = middle
    return low if low < limit and a[at + low] != b[start + low] else high


class _Text:
    """A stretch of text in the radix tree of the parts that follow one node."""

    __slots__ = ("below", "end", "latest", "node", "start", "text", "up")

    def __init__(self, text: str, start: int, end: int, up: _Text | None, latest: int) -> None:
        self.text = text
        self.start = start
        self.end = end
        self.up = up
        self.latest = latest
        self.below: dict[str, _Text] | None = (
            None  # most texts are followed by nothing: a dictionary each would be most of the memory
        )
        self.node: Node | None = None


class Node:
    """The place behind a part. `ended` is the latest request that ends here (-1: none), `open` how many of those nobody has continued yet."""

    __slots__ = ("ended", "latest", "leaf", "next", "open", "part", "texts", "up")

    def __init__(self, part: Part | None, up: Node | None) -> None:
        self.part = part
        self.up = up
        self.next: dict[tuple[str, str], Node] = {}
        self.texts: dict[str, _Text] = {}
        self.leaf: _Text | None = None
        self.latest = -1
        self.ended = -1
        self.open = 0

    def parts(self) -> list[Part]:
        """The parts from the root to here."""
        found = []
        node: Node | None = self
        while node is not None and node.part is not None:
            found.append(node.part)
            node = node.up
        found.reverse()
        return found


@dataclass(frozen=True, slots=True)
class Match:
    """How far a row of parts follows an earlier one.

    `depth` parts are equal, `chars` characters of the next one. `relative` is the latest of the requests that share all that, -1 when nobody is there.
    `whole`: the row ends here, or the relative does: nothing diverges. `path` are the nodes behind the equal parts, the root first.
    """

    depth: int
    chars: int
    relative: int
    whole: bool
    path: tuple[Node, ...]


class Tree:
    """The rows of parts seen so far in one namespace."""

    def __init__(self) -> None:
        self.root = Node(None, None)

    def match(self, parts: Sequence[Part]) -> Match:
        """The longest common prefix with an earlier row. Changes nothing."""
        node = self.root
        path = [node]
        for depth, part in enumerate(parts):
            following = node.next.get((part.slot, part.text))
            if following is None:
                return self._leave(node, part, depth, path, last=depth == len(parts) - 1)
            node = following
            path.append(node)
        return Match(len(parts), 0, node.latest, True, tuple(path))

    def _leave(self, node: Node, part: Part, depth: int, path: list[Node], *, last: bool) -> Match:
        tree = node.texts.get(part.slot)
        best, chars = _descend(tree, part.text) if tree is not None else (None, 0)
        if best is None or chars == 0:
            return Match(depth, 0, node.latest, node.latest == node.ended, tuple(path))
        continued = best.node is not None and best.node.ended == best.latest and chars == best.end
        return Match(depth, chars, best.latest, continued or (last and chars == len(part.text)), tuple(path))

    def insert(self, parts: Sequence[Part], number: int) -> Node:
        """Add a row; `number` must grow from call to call. Returns its last node."""
        node = self.root
        node.latest = number
        for part in parts:
            following = node.next.get((part.slot, part.text))
            if following is None:
                following = node.next[part.slot, part.text] = Node(part, node)
                following.leaf = _grow(node, part, number)
                following.leaf.node = following
            following.latest = number
            leaf = following.leaf
            while leaf is not None:
                leaf.latest = number
                leaf = leaf.up
            node = following
        node.ended = number
        return node


def _descend(tree: _Text, text: str) -> tuple[_Text, int]:
    """The deepest stretch that the text reaches, and the number of characters shared."""
    at = 0
    node = tree
    while at < len(text):
        following = node.below.get(text[at]) if node.below is not None else None
        if following is None:
            break
        length = common(text, following.text, at, following.start)
        length = min(length, following.end - following.start)
        at += length
        node = following
        if length < following.end - following.start:
            break
    return node, at


def _grow(node: Node, part: Part, number: int) -> _Text:
    """The leaf for a new text among those that follow a node."""
    text = part.text
    tree = node.texts.get(part.slot)
    if tree is None:
        tree = node.texts[part.slot] = _Text("", 0, 0, None, number)
    at = 0
    here = tree
    while at < len(text):
        if here.below is None:
            here.below = {}
        following = here.below.get(text[at])
        if following is None:
            leaf = here.below[text[at]] = _Text(text, at, len(text), here, number)
            return leaf
        size = following.end - following.start
        length = min(common(text, following.text, at, following.start), size)
        if length < size:
            upper = _Text(following.text, following.start, following.start + length, here, following.latest)
            here.below[text[at]] = upper
            following.start += length
            following.up = upper
            upper.below = {following.text[following.start]: following}
            following = upper
        at += length
        here = following
    return here
