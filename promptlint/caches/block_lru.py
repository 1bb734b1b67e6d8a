"""Least-recently-used blocks, as published block traces count them (`stack_distances` has the hit rate at every capacity).

The convention of the Mooncake trace (FAST'25) and of most tools that read it: a request is a list of block ids, where
an equal id means an equal prefix up to and including that block; its leading blocks that are present are hits, the
partial last block included, and the last token needs no recomputation; then it touches and inserts its blocks last to
first, and the least recently touched ones go until the capacity holds. No engine works exactly like this: blocks of
running requests are not locked, and outputs are not stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from promptlint.caches.request import TOKEN_BYTES, Request
from promptlint.errors import UserError

__all__ = ["BlockHits", "BlockLru", "BlockRequest", "Chains"]


@dataclass(slots=True)
class BlockRequest:
    """A request as blocks. Nothing changes it; it is made by the million, and a frozen dataclass would cost four times more.

    Attributes:
        blocks: an id per block, first to last; equal id = equal prefix up to and including that block.
        length: prompt tokens; the last block may be partial.
        block_size: tokens of a full block.
    """

    id: Hashable
    blocks: Sequence[Hashable]
    length: int
    block_size: int
    session: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    def tokens(self, blocks: int) -> int:
        """Prompt tokens in the first `blocks` blocks."""
        return min(blocks * self.block_size, self.length)


class BlockHits(NamedTuple):
    """What one request found: leading blocks present, and the tokens in them. `written`, `evicted` are blocks."""

    hits: int
    cached_tokens: int
    written: int = 0
    evicted: int = 0


class Chains:
    """Names the blocks of token prompts: equal name = equal tokens so far, in the same namespace.

    Memory follows the distinct blocks. Names are halves (0.5, 1.5, ...): no hash id of another record of the log, a whole number or a text, equals one.
    """

    def __init__(self, block_size: int) -> None:
        if block_size < 1:
            raise UserError(f"block size {block_size} is not positive")
        self.block_size = block_size
        self._known: dict[tuple[Hashable, bytes], float] = {}

    def blocks(self, request: Request) -> BlockRequest:
        """The blocks of a prompt, the partial last one included."""
        size = self.block_size * TOKEN_BYTES
        parent: Hashable = ("root", request.namespace)
        names = []
        for at in range(0, len(request.prompt), size):
            key = (parent, request.prompt[at : at + size])
            parent = self._known.setdefault(key, len(self._known) + 0.5)
            names.append(parent)
        return BlockRequest(
            request.id, names, request.prompt_tokens, self.block_size, session=request.session, labels=request.labels
        )


class BlockLru:
    """An LRU list of block ids with room for `capacity` blocks; None never evicts."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self._blocks: OrderedDict[Hashable, None] = OrderedDict()

    def lookup(self, request: BlockRequest) -> BlockHits:
        """Leading blocks that are present. Changes nothing."""
        hits = 0
        for block in request.blocks:
            if block not in self._blocks:
                break
            hits += 1
        return BlockHits(hits, request.tokens(hits))

    def admit(self, request: BlockRequest) -> BlockHits:
        """Look up, touch and insert last to first, evict."""
        found = self.lookup(request)
        blocks = self._blocks
        before = len(blocks)
        touch = blocks.move_to_end
        for block in reversed(request.blocks):
            blocks[block] = None
            touch(block)
        written, evicted = len(blocks) - before, 0
        if self.capacity is not None:
            evicted = max(0, len(blocks) - self.capacity)
            for _ in range(evicted):
                blocks.popitem(last=False)
        return BlockHits(found.hits, found.cached_tokens, written, evicted)
