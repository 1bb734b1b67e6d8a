"""Least-recently-used blocks, as published block traces count them; and the hit rate at every capacity in one pass.

The convention of the Mooncake trace (FAST'25) and of most tools that read it: a request is a list of block ids, where
an equal id means an equal prefix up to and including that block; its leading blocks that are present are hits, the
partial last block included, and the last token needs no recomputation; then it touches and inserts its blocks last to
first, and the least recently touched ones go until the capacity holds. No engine works exactly like this: blocks of
running requests are not locked, and outputs are not stored.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from promptlint.caches.request import TOKEN_BYTES, Request
from promptlint.errors import UserError

__all__ = ["BlockHits", "BlockLru", "BlockRequest", "Chains", "StackDistances"]


@dataclass(frozen=True, slots=True)
class BlockRequest:
    """A request as blocks.

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


@dataclass(frozen=True, slots=True)
class BlockHits:
    """What one request found: leading blocks present, and the tokens in them. `written`, `evicted` are blocks."""

    hits: int
    cached_tokens: int
    written: int = 0
    evicted: int = 0


class Chains:
    """Names the blocks of token prompts: equal name = equal tokens so far, in the same namespace.

    Memory follows the distinct blocks.
    """

    def __init__(self, block_size: int) -> None:
        if block_size < 1:
            raise UserError(f"block size {block_size} is not positive")
        self.block_size = block_size
        self._known: dict[tuple[Hashable, bytes], int] = {}

    def blocks(self, request: Request) -> BlockRequest:
        """The blocks of a prompt, the partial last one included."""
        size = self.block_size * TOKEN_BYTES
        parent: Hashable = ("root", request.namespace)
        names = []
        for at in range(0, len(request.prompt), size):
            key = (parent, request.prompt[at : at + size])
            parent = self._known.setdefault(key, len(self._known))
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
        for block in reversed(request.blocks):
            blocks[block] = None
            blocks.move_to_end(block)
        written, evicted = len(blocks) - before, 0
        if self.capacity is not None:
            evicted = max(0, len(blocks) - self.capacity)
            for _ in range(evicted):
                blocks.popitem(last=False)
        return BlockHits(found.hits, found.cached_tokens, written, evicted)


class StackDistances:
    """Hits of `BlockLru` at every capacity from one pass (Mattson et al., 1970).

    An LRU cache of C blocks holds the C most recently touched ones, so a block hits in exactly those caches that are
    larger than the number of blocks touched since. A leading run hits as a whole: what counts is the largest distance
    so far in the request. A Fenwick tree over the order of touches counts in O(log distinct blocks).
    """

    def __init__(self) -> None:
        self.blocks = 0  # of all requests
        self.length = 0  # prompt tokens of all requests
        self._hit_blocks: Counter[int] = Counter()  # capacity needed -> blocks that hit from there on
        self._hit_tokens: Counter[int] = Counter()
        self._slot: dict[Hashable, int] = {}  # of the last touch; later is larger
        self._next = 1
        self._tree = [0] * 1025

    def admit(self, request: BlockRequest, *, counted: bool = True) -> None:
        """Take note of a request. One that is not `counted` (warm-up) is only touched."""
        if counted:
            self._count(request)
        for block in reversed(request.blocks):
            self._touch(block)

    def _count(self, request: BlockRequest) -> None:
        self.blocks += len(request.blocks)
        self.length += request.length
        need = 0
        seen: set[Hashable] = set()
        for done, block in enumerate(request.blocks):
            slot = self._slot.get(block)
            if slot is None:
                break
            if block not in seen:
                need = max(need, self._newer(slot) + 1)
                seen.add(block)
            self._hit_blocks[need] += 1
            self._hit_tokens[need] += request.tokens(done + 1) - request.tokens(done)

    def hits(self, capacity: int | None) -> tuple[int, int]:
        """Blocks and tokens that hit with room for `capacity` blocks (None: without limit)."""
        return (
            sum(count for need, count in self._hit_blocks.items() if capacity is None or need <= capacity),
            sum(count for need, count in self._hit_tokens.items() if capacity is None or need <= capacity),
        )

    def rates(self, capacity: int | None) -> tuple[float, float]:
        """(block hit rate, token hit rate) at a capacity in blocks."""
        blocks, tokens = self.hits(capacity)
        return (blocks / self.blocks if self.blocks else 0.0, tokens / self.length if self.length else 0.0)

    def knees(self) -> Iterable[int]:
        """Capacities in blocks, doubling, up to the first that no larger one beats."""
        largest = max(self._hit_blocks, default=0)
        capacity = 1
        while capacity < largest:
            yield capacity
            capacity *= 2
        yield largest or 1

    # --- order of touches

    def _newer(self, slot: int) -> int:
        """Distinct blocks touched after the one at `slot`."""
        older = 0
        tree = self._tree
        while slot > 0:
            older += tree[slot]
            slot -= slot & -slot
        return len(self._slot) - older

    def _add(self, slot: int, change: int) -> None:
        tree = self._tree
        size = len(tree)
        while slot < size:
            tree[slot] += change
            slot += slot & -slot

    def _touch(self, block: Hashable) -> None:
        old = self._slot.get(block)
        if old is not None:
            self._add(old, -1)
        if self._next == len(self._tree):
            self._compact(block)
        self._slot[block] = self._next
        self._add(self._next, 1)
        self._next += 1

    def _compact(self, leaving: Hashable) -> None:
        """Number the touches anew, without gaps, and leave as much room again."""
        self._slot.pop(leaving, None)
        order = sorted(self._slot, key=self._slot.__getitem__)
        self._slot = {block: slot for slot, block in enumerate(order, 1)}
        live = len(order)
        size = max(1024, 2 * live + 1)
        tree = [0] * (size + 1)
        for slot in range(1, size + 1):  # a Fenwick tree of `live` ones in linear time
            tree[slot] += slot <= live
            parent = slot + (slot & -slot)
            if parent <= size:
                tree[parent] += tree[slot]
        self._tree = tree
        self._next = live + 1
