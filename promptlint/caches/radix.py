"""SGLang's radix cache, request by request.

Imitates sglang 0.5.23: `srt/mem_cache/unified_radix_cache.py` (the tree that a default server runs, "unified"), and
`srt/mem_cache/radix_cache.py` ("radix", the default up to 0.5.20; "radix-nosplit" is that class without the cut at the
end of the prompt). The semantics in one paragraph: a node holds a run of tokens; a request is matched over all but its
last token, in whole pages; where prompts part, the node is split; what was computed is inserted after every prefill
chunk, after the prefill, and at the end together with the answer (but its last token); nodes of running requests are
locked; when memory runs short, whole unlocked leaves are dropped in the order of the eviction strategy.

Left out: the host tier (HiCache), sliding-window and Mamba layers, speculative decoding.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush, heapreplace
from typing import Any, Literal

from promptlint.caches.eviction import Strategy, strategy
from promptlint.caches.request import TOKEN_BYTES, Match, Outcome, Request, common_prefix
from promptlint.errors import UserError

__all__ = ["TREES", "UNLIMITED", "Hold", "Node", "RadixCache", "Tree"]

Tree = Literal["unified", "radix", "radix-nosplit"]
TREES: tuple[Tree, ...] = ("unified", "radix", "radix-nosplit")
UNLIMITED = 1 << 62  # tokens; more than any trace holds, so that memory never runs short


class Node:
    """A run of whole pages below its parent.

    `locks` counts the running requests that use it. `recency` and `created` are ticks of the cache's own clock.
    `queued` says that an entry of the eviction heap stands for it.
    """

    __slots__ = ("children", "created", "hits", "key", "locks", "parent", "priority", "queued", "recency", "run")

    created: int
    hits: int
    priority: int
    recency: int

    def __init__(self, key: Any, run: bytes, parent: Node | None, tick: int) -> None:
        self.key = key  # under which the parent knows it: the first page, at the root with the namespace
        self.run = run
        self.parent = parent
        self.children: dict[Any, Node] = {}
        self.locks = 0
        self.recency = tick
        self.created = tick
        self.hits = 0
        self.priority = 0
        self.queued = False

    @property
    def tokens(self) -> int:
        return len(self.run) // TOKEN_BYTES


class Hold:
    """A running request's claim on the cache: the nodes it locks and the slots that it owns alone.

    Offsets are bytes of packed tokens. `shared` bytes belong to the tree (always whole pages), slots for the bytes
    behind them up to `computed` are the request's own. `counted` bytes have had their hit counted.
    """

    __slots__ = ("computed", "counted", "namespace", "node", "priority", "prompt_end", "shared")

    def __init__(self, node: Node, shared: int, request: Request) -> None:
        self.node = node
        self.shared = shared
        self.computed = shared
        self.counted = 0
        self.namespace = request.namespace
        self.priority = request.priority or 0
        self.prompt_end = len(request.prompt)


class RadixCache:
    """A tree of token runs with room for `capacity` tokens (whole pages).

    Args:
        capacity: tokens of KV memory; None never evicts.
        page_size: tokens per page; matches, splits and inserts are in whole pages.
        eviction: name of a strategy in `eviction.STRATEGIES`.
        tree: which class of the engine to imitate.
        chunk: prefill in steps of this many tokens, each inserted when done; 0 prefills in one step.
    """

    def __init__(
        self,
        capacity: int | None = None,
        page_size: int = 1,
        *,
        eviction: str = "lru",
        tree: Tree = "unified",
        chunk: int = 0,
    ) -> None:
        if page_size < 1:
            raise UserError(f"page size {page_size} is not positive")
        if chunk < 0:
            raise UserError(f"chunk {chunk} is negative")
        self.page_size = page_size
        self.capacity = UNLIMITED if capacity is None else capacity // page_size * page_size
        self.chunk = chunk
        self.strategy: Strategy = strategy(eviction)
        self._page = page_size * TOKEN_BYTES
        self._marks = self.strategy.counts_hits or self.strategy.reads_priority
        self._splits_prompt = tree != "radix-nosplit"
        self._split_is_new = tree != "unified"  # only fifo and filo see it
        self._tick = 0
        self._serial = 0
        self.root = Node(None, b"", None, 0)
        self.root.locks = 1  # never evicted
        self.free = self.capacity
        self.evictable = 0
        self.evicted = 0
        self._heap: list[tuple[Any, int, Node]] = []

    # --- the interface of a cache

    def lookup(self, request: Request) -> Match:
        """Cached prompt tokens that `admit` would report. Changes nothing."""
        end = self._floor(len(request.prompt) - TOKEN_BYTES)
        node, at = self.root, 0
        while at < end:
            child = node.children.get(self._key(node, request.namespace, request.prompt, at))
            if child is None:
                break
            same = common_prefix(child.run, request.prompt, at, end)
            at += self._floor(same)
            if same < len(child.run):
                break
            node = child
        return Match(at // TOKEN_BYTES)

    def admit(self, request: Request) -> Outcome:
        """Serve one request while no other one runs."""
        total = len(request.prompt)
        answer = max(0, len(request.output) - TOKEN_BYTES)
        need = -(-(total + answer) // self._page) * self.page_size
        if need > self.capacity:
            return Outcome(total // TOKEN_BYTES, 0, refused=f"needs {need} tokens of KV memory")
        if request.kept is not None:
            return self._admit_kept(request, request.stored)
        if self.chunk:
            return self._admit_chunked(request, answer)
        return self._admit_whole(request, answer)

    def _admit_whole(self, request: Request, answer: int) -> Outcome:
        """The common case, without a hold: only the deepest node needs protection, and only the last touch counts."""
        prompt = request.prompt
        total = len(prompt)
        page = self._page
        depth = upto = total - total % page
        private = 0 if depth == total else self.page_size  # tokens of the partial last page
        evicted = self.evicted
        node, cached = self._descend(request.namespace, prompt, total - TOKEN_BYTES)
        need = (total - cached) // TOKEN_BYTES + (self.page_size if page > TOKEN_BYTES else 0)
        if need > self.free:
            node.locks += 1
            self.evict(need - self.free)
            node.locks -= 1
        node, written = self._insert(node, cached, prompt, upto, request)
        self.free -= written // TOKEN_BYTES
        if answer:
            self.free -= private
            node.locks += 1
            self._decode(total, answer)
            node.locks -= 1
            self.free += (self._ceil(total + answer) - upto) // TOKEN_BYTES
            depth = total + answer - (total + answer) % page
            tail = prompt[upto:] + request.output[:answer]
            node, new = self._insert(node, 0, tail, depth - upto, request)
            written += new
            self.free -= new // TOKEN_BYTES
        self.evictable += written // TOKEN_BYTES
        self._touch(node)
        if self._marks:
            self._mark_alone(node, depth, request.priority or 0, upto)
        if not node.children:
            self._queue(node)
        return Outcome(total // TOKEN_BYTES, cached // TOKEN_BYTES, written // TOKEN_BYTES, self.evicted - evicted)

    def _mark_alone(self, node: Node, depth: int, priority: int, prompt_end: int) -> None:
        """One hit for every node of the path; its priority, and one more for the prompt where answer pages follow."""
        preferred = self._splits_prompt and 0 < prompt_end < depth
        while node is not self.root:
            node.hits += 1
            node.priority = max(node.priority, priority + (preferred and depth <= prompt_end))
            depth -= len(node.run)
            node = node.parent  # type: ignore[assignment]

    def _admit_chunked(self, request: Request, answer: int) -> Outcome:
        """The prefill in chunks, each inserted when it is done."""
        tokens = request.prompt
        total = len(tokens)
        evicted = self.evicted
        written = 0
        hold = self.open(request, tokens)
        cached = hold.shared
        step = self.chunk * TOKEN_BYTES
        while total - hold.computed > step:
            self.extend(hold, hold.computed + step)
            written += self.checkpoint(hold, tokens, hold.computed)
        self.extend(hold, total)
        if answer:
            written += self.checkpoint(hold, tokens, total)
            self._decode(total, answer)
            hold.computed += answer
            tokens += request.output[:answer]
        written += self.close(hold, tokens)
        return Outcome(total // TOKEN_BYTES, cached // TOKEN_BYTES, written, self.evicted - evicted)

    def _admit_kept(self, request: Request, kept: bytes) -> Outcome:
        """Serve a request whose prompt is looked up, but of which `kept` is stored."""
        total, size = len(request.prompt), len(kept)
        need = -(-max(total, size) // self._page) * self.page_size
        if need > self.capacity:
            return Outcome(total // TOKEN_BYTES, 0, refused=f"needs {need} tokens of KV memory")
        evicted = self.evicted
        hold = self.open(request, request.prompt)
        cached = hold.shared
        self.extend(hold, total)
        self.drop(hold)
        node, at = self.match(request.namespace, kept, size)
        self.lock(node)
        hold = Hold(node, at, request)
        self.extend(hold, size)
        written = self.close(hold, kept)
        return Outcome(total // TOKEN_BYTES, cached // TOKEN_BYTES, written, self.evicted - evicted)

    # --- steps of a running request, for schedulers

    def match(self, namespace: Hashable, tokens: bytes, limit: int) -> tuple[Node, int]:
        """Walk down as far as whole pages of `tokens[:limit]` agree: the last node, and the bytes matched.

        As in the engine, a look changes the tree: the node that the match ends in is split there, and the whole path,
        with the unmatched remainder of the split node, becomes recent.
        """
        node, at = self._descend(namespace, tokens, limit)
        self._touch(node)
        return node, at

    def open(self, request: Request, tokens: bytes) -> Hold:
        """Match all but the last token and lock the path."""
        node, at = self.match(request.namespace, tokens, len(tokens) - TOKEN_BYTES)
        self.lock(node)
        return Hold(node, at, request)

    def extend(self, hold: Hold, end: int) -> None:
        """Take slots for the tokens up to byte `end` of the prefill, evicting what is needed.

        With pages larger than a token the engine asks for one page more than the tokens need.
        """
        tokens = (end - hold.computed) // TOKEN_BYTES
        if tokens <= 0:
            return
        need = tokens if self.page_size == 1 else tokens + self.page_size
        if need > self.free:
            self.evict(need - self.free)
        self._take(hold, end)

    def decode(self, hold: Hold, tokens: int = 1) -> None:
        """Take the slots of output tokens. The engine wants a free page at every step, even inside a page."""
        if self.free < self.page_size:
            self.evict(self.page_size - self.free)
        self._take(hold, hold.computed + tokens * TOKEN_BYTES)

    def checkpoint(self, hold: Hold, tokens: bytes, end: int) -> int:
        """Insert the whole pages of `tokens[:end]` and keep them locked; returns the tokens that were new."""
        upto = end - end % self._page
        node, new = self._insert(hold.node, hold.shared, tokens, upto, hold)
        self.evictable += new // TOKEN_BYTES
        step = node
        while step is not hold.node:
            if step.locks == 0:
                self.evictable -= len(step.run) // TOKEN_BYTES
            step.locks += 1
            step = step.parent  # type: ignore[assignment]  # hold.node is above
        self._touch(node)
        self._mark_path(hold, node, upto)
        # The pages that another request had put there first are given back; the new leaf takes over the others.
        self.free += (upto - new - hold.shared) // TOKEN_BYTES
        hold.node, hold.shared = node, upto
        if self._splits_prompt:
            self._separate_answer(hold)
        return new // TOKEN_BYTES

    def close(self, hold: Hold, tokens: bytes) -> int:
        """Insert everything that was computed, unlock, and give back the partial last page; returns the new tokens."""
        new = self.checkpoint(hold, tokens, hold.computed)
        self.drop(hold)
        return new

    def drop(self, hold: Hold) -> None:
        """Unlock and give back the request's own slots without an insert (retraction)."""
        self.free += (self._ceil(hold.computed) - hold.shared) // TOKEN_BYTES
        self.unlock(hold.node)

    def lock(self, node: Node) -> None:
        """Protect the path to the root from eviction."""
        root = self.root
        while node is not root:
            if node.locks == 0:
                self.evictable -= len(node.run) // TOKEN_BYTES
            node.locks += 1
            node = node.parent  # type: ignore[assignment]  # only the root has none

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        root = self.root
        while node is not root:
            node.locks -= 1
            if node.locks == 0:
                self.evictable += len(node.run) // TOKEN_BYTES
                if not node.children:
                    self._queue(node)
            node = node.parent  # type: ignore[assignment]

    def evict(self, tokens: int) -> int:
        """Drop whole leaves until `tokens` are freed or no unlocked leaf is left; returns the tokens freed."""
        freed = 0
        heap, key_of = self._heap, self.strategy.key
        while freed < tokens and heap:
            key, serial, node = heap[0]
            parent = node.parent
            if node.locks or node.children or parent is None:
                heappop(heap)
                node.queued = False
                continue
            now = key_of(node)
            if now != key:
                if self.strategy.falls:
                    heappop(heap)  # a newer entry was pushed when the key fell
                else:
                    heapreplace(heap, (now, serial, node))
                continue
            del parent.children[node.key]
            node.parent = None
            freed += len(node.run) // TOKEN_BYTES
            if parent.children or parent.locks or (parent.queued and not self.strategy.falls):
                heappop(heap)
            else:
                parent.queued = True
                heapreplace(heap, (key_of(parent), serial, parent))
        self.free += freed
        self.evictable -= freed
        self.evicted += freed
        return freed

    def nodes(self) -> Iterator[Node]:
        """All nodes but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    # --- inside

    def _floor(self, size: int) -> int:
        return size - size % self._page if size > 0 else 0

    def _ceil(self, size: int) -> int:
        return -(-size // self._page) * self._page

    def _key(self, node: Node, namespace: Hashable, tokens: bytes, at: int) -> Any:
        first = tokens[at : at + self._page]
        return (namespace, first) if node is self.root and namespace is not None else first

    def _take(self, hold: Hold, end: int) -> None:
        self.free -= (self._ceil(end) - self._ceil(hold.computed)) // TOKEN_BYTES
        hold.computed = end

    def _descend(self, namespace: Hashable, tokens: bytes, limit: int) -> tuple[Node, int]:
        """`match` without the touch."""
        page = self._page
        end = limit - limit % page
        node, at = self.root, 0
        if end > 0:
            first = tokens[:page]
            child = node.children.get(first if namespace is None else (namespace, first))
            while child is not None:
                run = child.run
                if not tokens.startswith(run, at, end):
                    same = common_prefix(run, tokens, at, end)
                    same -= same % page
                    return self._split(child, same), at + same
                node = child
                at += len(run)
                if at == end:
                    break
                child = node.children.get(tokens[at : at + page])
        return node, at

    def _insert(self, node: Node, at: int, tokens: bytes, upto: int, owner: Request | Hold) -> tuple[Node, int]:
        """Make `tokens[at:upto]` the path below `node`: its last node, and the bytes that were not there before."""
        page = self._page
        while at < upto:
            key = tokens[at : at + page] if at else self._key(node, owner.namespace, tokens, 0)
            child = node.children.get(key)
            if child is None:
                self._tick += 1
                child = Node(key, tokens[at:upto], node, self._tick)
                child.priority = owner.priority or 0
                node.children[key] = child
                return child, upto - at
            if not tokens.startswith(child.run, at, upto):
                same = common_prefix(child.run, tokens, at, upto)
                child = self._split(child, same - same % page)
            at += len(child.run)
            node = child
        return node, 0

    def _decode(self, start: int, size: int) -> None:
        """Slots for `size` bytes of output behind `start` bytes; at page 1 in one go, which evicts the same leaves."""
        page = self.page_size
        if page == 1:
            tokens = size // TOKEN_BYTES
            if tokens > self.free:
                self.evict(tokens - self.free)
            self.free -= tokens
            return
        for at in range(start, start + size, TOKEN_BYTES):
            if self.free < page:
                self.evict(page - self.free)
            if at % self._page == 0:
                self.free -= page

    def _queue(self, node: Node) -> None:
        if node.queued and not self.strategy.falls:
            return
        node.queued = True
        self._serial += 1
        heappush(self._heap, (self.strategy.key(node), self._serial, node))

    def _touch(self, node: Node) -> None:
        """Make the path recent, parents a little older than their children."""
        self._tick += 1 << 20  # leaves room for the depth of a path
        tick = self._tick
        if self.strategy.falls and node.locks == 0 and not node.children:
            node.recency = tick
            self._queue(node)
        root = self.root
        while node is not root:
            node.recency = tick
            tick -= 1
            node = node.parent  # type: ignore[assignment]

    def _split(self, node: Node, size: int) -> Node:
        """Cut a node's run after `size` bytes; returns the new upper half. The lower half becomes recent."""
        parent = node.parent
        assert parent is not None
        self._tick += 1
        upper = Node(node.key, node.run[:size], parent, self._tick)
        if not self._split_is_new:
            upper.created = node.created
        upper.locks, upper.hits, upper.priority = node.locks, node.hits, node.priority
        node.run = node.run[size:]
        node.key = node.run[: self._page]
        node.parent = upper
        node.recency = self._tick
        upper.children[node.key] = node
        parent.children[upper.key] = upper
        if self.strategy.falls and node.locks == 0 and not node.children:
            self._queue(node)
        return upper

    def _mark_path(self, hold: Hold, node: Node, depth: int) -> None:
        """Count a hit for each node that this request had not inserted before, and hand down its priority."""
        if self.strategy.counts_hits:
            step, at = node, depth
            while at > hold.counted:
                step.hits += 1
                at -= len(step.run)
                step = step.parent  # type: ignore[assignment]  # the root is at 0
            hold.counted = max(hold.counted, depth)
        if self.strategy.reads_priority:
            self._raise(node, hold.priority)

    def _raise(self, node: Node, priority: int) -> None:
        while node is not self.root:
            node.priority = max(node.priority, priority)
            node = node.parent  # type: ignore[assignment]

    def _separate_answer(self, hold: Hold) -> None:
        """Insert the prompt once more when answer pages lie behind it: cut there, and prefer it by one step.

        Without it eviction could only drop an answer together with its prompt.
        """
        end = self._floor(hold.prompt_end)
        node, depth = hold.node, hold.shared
        if not 0 < end < depth:
            return
        while depth - len(node.run) >= end:
            depth -= len(node.run)
            node = node.parent  # type: ignore[assignment]
        if depth > end:
            node = self._split(node, end - (depth - len(node.run)))
        if self.strategy.reads_priority:
            self._raise(node, hold.priority + 1)
