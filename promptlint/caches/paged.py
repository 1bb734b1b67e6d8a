"""vLLM's automatic prefix caching, request by request.

Imitates vllm 0.32.0: `vllm/v1/core/kv_cache_manager.py` and `block_pool.py`, full attention. The semantics: a KV block
holds `block_size` tokens and is known by the hash of its tokens, its parent's hash and its namespace; only full blocks
are cached, from the moment they are scheduled; the last prompt token is always recomputed; free blocks wait in one
queue, a finished request's at the tail with its deepest block first, blocks without a hash at the head; a block loses
its hash when it is taken from the queue. Two blocks may carry the same hash: they are not merged, and the one that has
been there longest is found first.

The engine keeps a record per block. Here neighbouring blocks that share one fate are one record: a hash chain is a path
in a tree, so `Node` is a run of blocks in that tree (cut where prompts part) and `Copy` is one physical instance of
such a run. Every copy of a node covers the whole node; a cut splits all of them. Blocks leave from the deep end of
the copy at the head of the queue, one by one, exactly in the engine's order. Because every request that holds a block
holds one for each block before it, and frees them deepest first, a run can only be shortened at its deep end.

Left out: sliding-window and Mamba groups, partial-block hits, multimodal hashes, KV transfer; blocks without a hash
went to the tail in 0.10.2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from promptlint.caches.radix import UNLIMITED
from promptlint.caches.request import TOKEN_BYTES, Match, Outcome, Request, common_prefix
from promptlint.errors import UserError

__all__ = ["Copy", "Hold", "Node", "PagedCache"]


class Node:
    """A run of full blocks below its parent, with the physical copies of it in the order in which they were cached."""

    __slots__ = ("children", "copies", "key", "parent", "run")

    def __init__(self, key: Any, run: bytes, parent: Node | None) -> None:
        self.key = key
        self.run = run
        self.parent = parent
        self.children: dict[Any, Node] = {}
        self.copies: list[Copy] = []


class Copy:
    """Physical blocks for one node; in the free queue while `refs` is 0."""

    __slots__ = ("after", "before", "node", "refs")

    def __init__(self, node: Node | None) -> None:
        self.node: Node = node  # type: ignore[assignment]  # only the queue's sentinel has none
        self.refs = 0
        self.before = self
        self.after = self


class Hold:
    """The blocks of a running request: `table` from the first to the deepest, then `raw` blocks without a hash.

    `cached` is how many bytes of its tokens the table covers, `node` the tree node at its end.
    """

    __slots__ = ("cached", "namespace", "node", "raw", "table")

    def __init__(self, root: Node, namespace: Hashable) -> None:
        self.table: list[Copy] = []
        self.raw = 0
        self.cached = 0
        self.node = root
        self.namespace = namespace

    def blocks(self, block_bytes: int) -> int:
        return self.cached // block_bytes + self.raw


class PagedCache:
    """A pool of `capacity // block_size` usable blocks; the engine's null block comes on top.

    Args:
        capacity: tokens of KV memory; None never evicts.
        block_size: tokens per KV block.
    """

    def __init__(self, capacity: int | None = None, block_size: int = 16) -> None:
        if block_size < 1:
            raise UserError(f"block size {block_size} is not positive")
        self.block_size = block_size
        self.blocks = UNLIMITED if capacity is None else capacity // block_size
        self._block = block_size * TOKEN_BYTES
        self.free = self.blocks
        self.evicted = 0  # blocks
        self._blank = self.blocks  # free blocks without a hash, all at the head of the queue
        self._queue = Copy(None)  # sentinel: `after` is the head, `before` the tail
        self._held: set[Hold] = set()
        self.root = Node(None, b"", None)

    # --- the interface of a cache

    def lookup(self, request: Request) -> Match:
        """Cached prompt tokens that `admit` would report. Changes nothing."""
        end = self._last_hit(len(request.prompt))
        node, at = self.root, 0
        while at < end:
            child = node.children.get(self._key(node, request.namespace or None, request.prompt, at))
            if child is None:
                break
            same = common_prefix(child.run, request.prompt, at, end)
            at += same - same % self._block
            if same < len(child.run):
                break
            node = child
        return Match(at // TOKEN_BYTES)

    def admit(self, request: Request) -> Outcome:
        """Serve one request while no other one runs."""
        tokens = request.stored
        prompt = len(request.prompt)
        block = self._block
        need = -(-len(tokens) // block)
        if need > self.blocks:
            return Outcome(prompt // TOKEN_BYTES, 0, refused=f"needs {need * self.block_size} tokens of KV memory")
        if request.kept is not None:
            return self._admit_kept(request, request.stored)
        evicted = self.evicted
        hold, cached = self.find(request.namespace, tokens, prompt)
        self.take(hold, need)
        written = self.publish(hold, tokens, len(tokens))
        self.release(hold)
        return Outcome(
            prompt // TOKEN_BYTES, cached // TOKEN_BYTES, written, (self.evicted - evicted) * self.block_size
        )

    def _admit_kept(self, request: Request, kept: bytes) -> Outcome:
        """Serve a request whose prompt is looked up, but of which `kept` is stored."""
        prompt = len(request.prompt)
        need = -(-prompt // self._block)
        if need > self.blocks:
            return Outcome(prompt // TOKEN_BYTES, 0, refused=f"needs {need * self.block_size} tokens of KV memory")
        evicted = self.evicted
        hold, cached = self.find(request.namespace, request.prompt, prompt)
        self.take(hold, need)
        self.release(hold)
        hold, _ = self.find(request.namespace, kept, len(kept) + TOKEN_BYTES)
        self.take(hold, -(-len(kept) // self._block))
        written = self.publish(hold, kept, len(kept))
        self.release(hold)
        lost = (self.evicted - evicted) * self.block_size
        return Outcome(prompt // TOKEN_BYTES, cached // TOKEN_BYTES, written, lost)

    # --- steps of a running request, for schedulers

    def find(self, namespace: Hashable, tokens: bytes, length: int) -> tuple[Hold, int]:
        """The longest run of cached blocks at the start of `tokens[:length]`, without its last token; bytes found.

        Nothing is taken yet: the blocks stay in the free queue until `take`.
        """
        namespace = namespace or None  # the engine treats an empty salt as none
        hold = Hold(self.root, namespace)
        end = self._last_hit(length)
        block = self._block
        node, at = self.root, 0
        while at < end:
            child = node.children.get(tokens[at : at + block] if at else self._key(node, namespace, tokens, 0))
            if child is None:
                break
            run = child.run
            if not tokens.startswith(run, at, end):
                same = common_prefix(run, tokens, at, end)
                child = self._split(child, same - same % block)
            node = child
            at += len(node.run)
            hold.table.append(node.copies[0])
            if node.run is not run:
                break
        hold.node, hold.cached = node, at
        return hold, at

    def cost(self, hold: Hold, need: int) -> int:
        """Free blocks that it takes to let a found, not yet taken, hold own `need` blocks."""
        idle = sum(len(copy.node.run) for copy in hold.table if copy.refs == 0) // self._block
        return max(0, need - hold.cached // self._block) + idle

    def take(self, hold: Hold, need: int) -> None:
        """Take the found blocks out of the queue and allocate up to `need` blocks in all; they must be there."""
        for copy in hold.table:
            if copy.refs == 0:
                self._unlink(copy)
                self.free -= len(copy.node.run) // self._block
            copy.refs += 1
        self._held.add(hold)
        self.grow(hold, need)

    def grow(self, hold: Hold, need: int) -> None:
        """Allocate until a taken hold owns `need` blocks."""
        short = need - hold.cached // self._block - hold.raw
        if short > 0:
            self._allocate(short)
            hold.raw += short

    def publish(self, hold: Hold, tokens: bytes, end: int) -> int:
        """Cache the full blocks of `tokens[:end]`; returns the tokens that are newly cached."""
        block = self._block
        upto = end - end % block
        at, node = hold.cached, hold.node
        if upto <= at:
            return 0
        start = at
        if node is not self.root and not node.children and len(node.copies) == 1 and node.copies[0].refs == 1:
            node.run += tokens[at:upto]  # nobody else can see where the old run ended
            at = upto
        while at < upto:
            key = tokens[at : at + block] if at else self._key(node, hold.namespace, tokens, 0)
            child = node.children.get(key)
            if child is None:
                child = Node(key, tokens[at:upto], node)
                node.children[key] = child
            elif not tokens.startswith(child.run, at, upto):
                same = common_prefix(child.run, tokens, at, upto)
                child = self._split(child, same - same % block)
            copy = Copy(child)
            copy.refs = 1
            child.copies.append(copy)
            hold.table.append(copy)
            at += len(child.run)
            node = child
        hold.node, hold.cached = node, upto
        hold.raw -= (upto - start) // block
        return (upto - start) // TOKEN_BYTES

    def release(self, hold: Hold) -> None:
        """Give all blocks back: the deepest first to the tail of the queue, those without a hash to its head."""
        for copy in reversed(hold.table):
            copy.refs -= 1
            if copy.refs == 0:
                self._link(copy, self._queue.before)
                self.free += len(copy.node.run) // self._block
        self._blank += hold.raw
        self.free += hold.raw
        hold.raw = 0
        self._held.discard(hold)

    def free_blocks(self) -> Iterator[tuple[Node, int]]:
        """The free queue behind its blanks, head first: runs and how many blocks each has."""
        copy = self._queue.after
        while copy is not self._queue:
            yield copy.node, len(copy.node.run) // self._block
            copy = copy.after

    # --- inside

    def _last_hit(self, length: int) -> int:
        """Bytes of the full blocks that a prompt of `length` bytes may find: its last token is always computed."""
        size = max(0, length - TOKEN_BYTES)
        return size - size % self._block

    def _key(self, node: Node, namespace: Hashable, tokens: bytes, at: int) -> Any:
        first = tokens[at : at + self._block]
        return (namespace, first) if node is self.root and namespace is not None else first

    def _allocate(self, count: int) -> None:
        assert count <= self.free, "callers check the free blocks first"
        self.free -= count
        blank = min(count, self._blank)
        self._blank -= blank
        count -= blank
        self.evicted += count
        while count:
            copy = self._queue.after
            blocks = len(copy.node.run) // self._block
            if count < blocks:
                self._trim(copy, count)
                return
            self._drop(copy)
            count -= blocks

    def _trim(self, copy: Copy, count: int) -> None:
        """Evict the deepest `count` blocks of a copy that has more."""
        node = copy.node
        keep = len(node.run) - count * self._block
        if len(node.copies) == 1:
            assert not node.children, "a block never outlives the blocks before it"
            node.run = node.run[:keep]
        else:
            self._split(node, keep)  # `copy` stands for the lower half now
            self._drop(copy)

    def _drop(self, copy: Copy) -> None:
        """Evict a whole copy from the queue."""
        self._unlink(copy)
        node = copy.node
        node.copies.remove(copy)
        if not node.copies:
            assert not node.children, "a block never outlives the blocks before it"
            assert node.parent is not None
            del node.parent.children[node.key]

    def _split(self, node: Node, size: int) -> Node:
        """Cut a node and all its copies after `size` bytes; returns the upper half. Nothing moves in the queue."""
        parent = node.parent
        assert parent is not None
        upper = Node(node.key, node.run[:size], parent)
        parent.children[node.key] = upper
        node.run = node.run[size:]
        node.key = node.run[: self._block]
        node.parent = upper
        upper.children[node.key] = node
        for copy in node.copies:
            half = Copy(upper)
            half.refs = copy.refs
            upper.copies.append(half)
            if copy.refs:
                for hold in self._held:
                    if copy in hold.table:
                        hold.table.insert(hold.table.index(copy), half)
            else:
                self._link(half, copy)  # the deeper half is reused first
        return upper

    @staticmethod
    def _unlink(copy: Copy) -> None:
        copy.before.after = copy.after
        copy.after.before = copy.before

    @staticmethod
    def _link(copy: Copy, before: Copy) -> None:
        after = before.after
        copy.before, copy.after = before, after
        before.after = copy
        after.before = copy
