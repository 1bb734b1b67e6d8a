"""What no cache could beat: three upper bounds on the hit rate of a traffic, from one pass over it.

content      unlimited memory, one request at a time: everything that could be reused is.
capacity     with the given memory, whatever is evicted. Memory is an area, tokens times requests: a token that is
             reused g requests after its last use must have lain idle in the cache while g - 1 other requests ran, and
             beside a running request only `capacity` minus its own tokens lie idle. The shortest intervals are packed
             into the area first. This is the upper bound PFOO-U of Berger, Beckmann and Harchol-Balter (SIGMETRICS
             2018). It assumes the order of the traffic; a scheduler that reorders may pass it.
depth first  the optimum over all orders, theorem 3.1 of the SGLang paper (Zheng et al., 2024): visiting the radix tree
             of all prompts depth first computes every edge once, given room for the longest request. Answers are left
             out, as in the theorem. None when the memory is smaller than that.

All three follow the engine's rules: whole pages, and the last token is always computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace

from promptlint.caches.block_lru import BlockRequest
from promptlint.caches.request import TOKEN_BYTES, Request
from promptlint.caches.runs import RunTree

__all__ = ["BlockBounds", "BoundTokens", "Bounds"]


@dataclass(slots=True)
class _Use:
    last: int = 0  # the last request that had these tokens
    prompt: bool = False  # part of some prompt, not only of an answer
    ended: bool = False  # a prompt ended here, on a page boundary


@dataclass(frozen=True, slots=True)
class BoundTokens:
    """Cached prompt tokens that cannot be exceeded; `depth_first` is None where the theorem does not apply."""

    content: int
    capacity: int
    depth_first: int | None


class Bounds:
    """Feed it every served request in order, then ask for `tokens`.

    Args:
        capacity: tokens of memory; None for unlimited.
        page_size: tokens per page or block.
        recompute_last: the last token of a prompt is always computed, as in the engines.
    """

    def __init__(self, capacity: int | None, page_size: int = 1, *, recompute_last: bool = True) -> None:
        self.page_size = page_size
        self._last = TOKEN_BYTES if recompute_last else 0
        self._capacity = capacity
        self._tree: RunTree[_Use] = RunTree(page_size, _Use, lambda use: replace(use, ended=False))
        self._clock = 0
        self._idle: Counter[int] = Counter()  # requests that lay between two uses -> tokens reused after them
        self._area = 0
        self._content = 0
        self._once = 0  # tokens that a depth-first visit finds in the cache
        self._longest = 0

    def add(self, request: Request, *, counted: bool = True) -> int:
        """Take note of a request; returns the prompt tokens that an unlimited cache would have had.

        A request that is not `counted` (warm-up) fills the cache only.
        """
        self._clock += 1
        prompt, stored = request.prompt, request.stored
        pages = -(-max(len(prompt), len(stored)) // (self.page_size * TOKEN_BYTES))
        self._longest = max(self._longest, pages * self.page_size)
        if self._capacity is not None:
            self._area += max(0, self._capacity - pages * self.page_size)
        found = self._prompt(request.namespace, prompt, counted=counted)
        if stored is not prompt and stored != prompt:
            for node in self._tree.insert(request.namespace, stored, len(stored))[0]:
                node.note.last = self._clock
        if counted:
            self._content += found
        return found

    def tokens(self) -> BoundTokens:
        """The bounds on the cached prompt tokens of all counted requests so far."""
        fits = self._capacity is None or self._capacity >= self._longest
        capacity = self._content if self._capacity is None else _packed(self._idle, self._area)
        return BoundTokens(self._content, capacity, self._once if fits else None)

    def _prompt(self, namespace: Hashable, prompt: bytes, *, counted: bool) -> int:
        """Insert a prompt and count what of it was there before."""
        limit = self._tree.floor(len(prompt) - self._last)
        path, new = self._tree.insert(namespace, prompt, len(prompt))
        at = reused = 0
        old = self._tree.floor(len(prompt)) - new
        for node in path:
            use = node.note
            if at < old:
                usable = max(0, min(at + len(node.run), limit) - at) // TOKEN_BYTES
                reused += usable
                if counted:
                    self._idle[self._clock - use.last - 1] += usable
                    self._once += node.tokens if use.prompt else 0
            use.prompt = True
            use.last = self._clock
            at += len(node.run)
        if path and at == len(prompt):
            use = path[-1].note
            if use.ended and not new and counted and self._last:
                self._once -= self.page_size  # an exact repeat computes its last page again
            use.ended = True
        return reused


class BlockBounds:
    """The same bounds, in blocks, by the convention of `block_lru`: an id says all that a path in a tree would, answers are not stored, and the last token counts as any other.

    Attributes:
        content_tokens: prompt tokens in the blocks of `content`, of which the last may be partial.
    """

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._last: dict[Hashable, int] = {}  # block -> the last request that had it
        self._clock = 0
        self._idle: Counter[int] = Counter()
        self._area = 0
        self._content = 0
        self.content_tokens = 0
        self._longest = 0

    def add(self, request: BlockRequest, *, counted: bool = True) -> None:
        """Take note of a request. One that is not `counted` (warm-up) fills the cache only."""
        self._clock = clock = self._clock + 1
        blocks, last = request.blocks, self._last
        self._longest = max(self._longest, len(blocks))
        if self._capacity is not None:
            self._area += max(0, self._capacity - len(blocks))
        if counted:
            found = run = since = 0
            for block in blocks:
                before = last.get(block)
                if before is None:
                    break
                found += 1
                if before != since:  # a prefix was mostly used as a whole: one gap for all of its blocks
                    if run:
                        self._idle[clock - since - 1] += run
                    since, run = before, 0
                run += 1
            if found:
                self._idle[clock - since - 1] += run
                self._content += found
                self.content_tokens += request.tokens(found)
        last.update(dict.fromkeys(blocks, clock))

    def blocks(self) -> BoundTokens:
        """The bounds on the blocks that hit, of all counted requests so far."""
        fits = self._capacity is None or self._capacity >= self._longest
        capacity = self._content if self._capacity is None else _packed(self._idle, self._area)
        return BoundTokens(self._content, capacity, self._content if fits else None)


def _packed(idle_times: Counter[int], area: int) -> int:
    """Tokens of the reuses whose idle times fit into the area, the shortest first."""
    tokens = 0
    for idle, count in sorted(idle_times.items()):
        fit = count if idle == 0 else min(count, area // idle)
        tokens += fit
        area -= fit * idle
        if fit < count:
            break
    return tokens
