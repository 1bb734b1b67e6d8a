"""A plain tree of token runs with a note on every node: what routers, bounds and provider caches are built on.

The engines' trees (`radix`, `paged`) are classes of their own: locks, slots and eviction are what they are about.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Generic, TypeVar

from promptlint.caches.request import TOKEN_BYTES, common_prefix

__all__ = ["RunNode", "RunTree"]

Note = TypeVar("Note")


class RunNode(Generic[Note]):
    """A run of whole units below its parent. `note` is the user's."""

    __slots__ = ("children", "key", "note", "parent", "run")

    def __init__(self, key: Any, run: bytes, parent: RunNode[Note] | None, note: Note) -> None:
        self.key = key
        self.run = run
        self.parent = parent
        self.children: dict[Any, RunNode[Note]] = {}
        self.note = note

    @property
    def tokens(self) -> int:
        return len(self.run) // TOKEN_BYTES


class RunTree(Generic[Note]):
    """Runs of `unit` tokens and multiples.

    Args:
        unit: tokens; nodes begin and end on its multiples.
        fresh: makes the note of a new node.
        copied: makes the note of the new upper half from that of the node that is cut.
    """

    def __init__(self, unit: int, fresh: Callable[[], Note], copied: Callable[[Note], Note]) -> None:
        self._unit = unit * TOKEN_BYTES
        self._fresh = fresh
        self._copied = copied
        self.root: RunNode[Note] = RunNode(None, b"", None, fresh())

    def floor(self, size: int) -> int:
        """Bytes of whole units in `size` bytes."""
        return size - size % self._unit if size > 0 else 0

    def find(self, namespace: Hashable, tokens: bytes, end: int) -> Iterator[tuple[RunNode[Note], int]]:
        """The nodes along `tokens[:end]`, each with the bytes of it that agree (whole units). Changes nothing."""
        node, at = self.root, 0
        end = self.floor(end)
        while at < end:
            child = node.children.get(self._key(namespace, tokens, at))
            if child is None:
                return
            same = self.floor(common_prefix(child.run, tokens, at, end))
            yield child, same
            if same < len(child.run):
                return
            node = child
            at += same

    def insert(self, namespace: Hashable, tokens: bytes, end: int) -> tuple[list[RunNode[Note]], int]:
        """The path of `tokens[:end]` in whole units, made where it is missing, and the bytes of it that are new."""
        path: list[RunNode[Note]] = []
        node, at, new = self.root, 0, 0
        end = self.floor(end)
        while at < end:
            key = self._key(namespace, tokens, at)
            child = node.children.get(key)
            if child is None:
                new = end - at
                child = RunNode(key, tokens[at:end], node, self._fresh())
                node.children[key] = child
            elif not tokens.startswith(child.run, at, end):
                child = self._split(child, self.floor(common_prefix(child.run, tokens, at, end)))
            path.append(child)
            at += len(child.run)
            node = child
        return path, new

    def _key(self, namespace: Hashable, tokens: bytes, at: int) -> Any:
        first = tokens[at : at + self._unit]
        return (namespace, first) if at == 0 and namespace is not None else first

    def _split(self, node: RunNode[Note], size: int) -> RunNode[Note]:
        parent = node.parent
        assert parent is not None
        upper = RunNode(node.key, node.run[:size], parent, self._copied(node.note))
        parent.children[node.key] = upper
        node.run = node.run[size:]
        node.key = node.run[: self._unit]
        node.parent = upper
        upper.children[node.key] = node
        return upper
