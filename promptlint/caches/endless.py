"""SGLang's radix cache with memory without limit, one request at a time: the outcomes of `radix.RadixCache`, without the work that only eviction needs.

Nothing is ever dropped, so locks, recency and slots decide nothing, and what a request finds is the longest prefix that any earlier request left (whole pages,
not the last token). Along the way the bound of a depth-first order is counted; the other two bounds of `bounds` are the result itself.
"""

from __future__ import annotations

from collections.abc import Hashable

from promptlint.caches.request import TOKEN_BYTES, Match, Outcome, Request, common_prefix

__all__ = ["EndlessCache", "Prefixes"]

_STEPS_BACK = 3
"""Nodes that are tried upwards from where the last run ended: the next turn of a conversation leaves it near its end."""


class _Node:
    __slots__ = ("below", "ends", "run")

    def __init__(self, run: bytes) -> None:
        self.run = run
        self.ends = False  # a prompt of whole units ends here
        self.below: dict[bytes, _Node] = {}


class Prefixes:
    """A set of token runs that tells how much of a run some member begins with, in whole units.

    The path of the run added last is kept: in a log the next run mostly continues it, and one comparison stands for the way down.
    """

    def __init__(self, unit: int) -> None:
        self._unit = unit * TOKEN_BYTES
        self._roots: dict[Hashable, _Node] = {}
        self._namespace: Hashable = None
        self._last = b""
        self._path: list[tuple[int, _Node]] = []  # byte at which a node begins, and the node

    def shared(self, namespace: Hashable, tokens: bytes, end: int) -> int:
        """Bytes of `tokens[:end]` that a member begins with. Changes nothing."""
        end -= end % self._unit
        path = self._start(namespace, tokens, end)
        return self._descend(path, tokens, end) if path else 0

    def add(self, namespace: Hashable, tokens: bytes, end: int) -> tuple[int, _Node]:
        """Add `tokens[:end]`; returns the bytes of it that were there before, and the node that it ends with."""
        end -= end % self._unit
        path = self._start(namespace, tokens, end)
        if not path:
            path = [(0, self._roots.setdefault(namespace, _Node(b"")))]
        at = self._descend(path, tokens, end)
        begin, node = path[-1]
        if at < begin + len(node.run):
            self._split(path, at)
        if at < end:
            new = _Node(tokens[at:end])
            path[-1][1].below[tokens[at : at + self._unit]] = new
            path.append((at, new))
        self._namespace, self._last, self._path = namespace, tokens[:end], path
        return at, path[-1][1]

    def _start(self, namespace: Hashable, tokens: bytes, end: int) -> list[tuple[int, _Node]]:
        """The path along `tokens` as far as it is known without looking: that of the last run, or the root; empty for a new namespace."""
        if namespace == self._namespace:
            path, last = self._path, self._last
            upto = len(last)
            for keep in range(len(path), max(0, len(path) - _STEPS_BACK), -1):
                if upto <= end and tokens.startswith(last if upto == len(last) else last[:upto]):
                    return path[:keep]
                upto = path[keep - 1][0]
        root = self._roots.get(namespace)
        return [] if root is None else [(0, root)]

    def _descend(self, path: list[tuple[int, _Node]], tokens: bytes, end: int) -> int:
        """Extend the path, whose nodes agree, as far as `tokens[:end]` agrees; returns the bytes that do, which may end within its last node."""
        unit = self._unit
        begin, node = path[-1]
        at = begin + len(node.run)
        while at < end:
            child = node.below.get(tokens[at : at + unit])
            if child is None:
                break
            path.append((at, child))
            if not tokens.startswith(child.run, at, end):
                same = common_prefix(child.run, tokens, at, end)
                return at + same - same % unit
            at += len(child.run)
            node = child
        return at

    def _split(self, path: list[tuple[int, _Node]], at: int) -> None:
        """Cut the last node of the path at byte `at`; the path then ends with the upper half."""
        begin, lower = path.pop()
        parent = path[-1][1]
        upper = _Node(lower.run[: at - begin])
        lower.run = lower.run[at - begin :]
        upper.below[lower.run[: self._unit]] = lower
        parent.below[upper.run[: self._unit]] = upper
        path.append((begin, upper))


class EndlessCache:
    """A prefix cache that never forgets.

    Attributes:
        depth_first: prompt tokens that a depth-first visit of all prompts so far finds in the cache (see `bounds`).
    """

    def __init__(self, page_size: int = 1) -> None:
        self._page = page_size * TOKEN_BYTES
        self._stored = Prefixes(page_size)
        self._prompts = Prefixes(page_size)
        self.depth_first = 0

    def lookup(self, request: Request) -> Match:
        """Cached prompt tokens that `admit` would report. Changes nothing."""
        found = self._stored.shared(request.namespace, request.prompt, len(request.prompt) - TOKEN_BYTES)
        return Match(found // TOKEN_BYTES)

    def admit(self, request: Request) -> Outcome:
        """Serve one request; the prompt and the answer but its last token are stored, or `kept` in place of both."""
        prompt, namespace, page = request.prompt, request.namespace, self._page
        total = len(prompt)
        if request.kept is not None:
            cached = self._stored.shared(namespace, prompt, total - TOKEN_BYTES)
            written = self._store(namespace, request.kept)
        else:
            found, _ = self._stored.add(namespace, prompt, total)
            last = total - TOKEN_BYTES
            cached = min(found, last - last % page)
            written = total - total % page - found
            if len(request.output) > TOKEN_BYTES:
                written += self._store(namespace, request.stored)
        shared, last_node = self._prompts.add(namespace, prompt, total)
        if shared == total and last_node.ends:
            shared -= page  # an exact repeat computes its last page again
        last_node.ends = last_node.ends or total % page == 0
        self.depth_first += shared // TOKEN_BYTES
        return Outcome(total // TOKEN_BYTES, cached // TOKEN_BYTES, written // TOKEN_BYTES)

    def _store(self, namespace: Hashable, tokens: bytes) -> int:
        """Add a run; returns the bytes of its whole pages that are new."""
        size = len(tokens)
        return size - size % self._page - self._stored.add(namespace, tokens, size)[0]
