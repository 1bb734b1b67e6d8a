"""SGLang's radix cache with memory without limit, one request at a time: the outcomes of `radix.RadixCache`, without the work that only eviction needs.

Nothing is ever dropped, so locks, recency and slots decide nothing, and what a request finds is the longest prefix that any earlier request left (whole pages,
not the last token). Along the way the bound of a depth-first order is counted; the other two bounds of `bounds` are the result itself.
"""

from __future__ import annotations

from collections.abc import Hashable

from promptlint.caches.request import TOKEN_BYTES, Match, Outcome, Request, common_prefix

__all__ = ["EndlessCache"]

_STEPS_BACK = 3
"""Nodes that are tried upwards from where the last run ended: the next turn of a conversation leaves it near its end."""

_Path = list["_Node"]
"""Nodes from a root downwards."""


class _Node:
    """A run of whole pages. What holds for a node (`stored`, `asked`) holds for those above it.

    Attributes:
        run: packed tokens.
        upto: the byte of a prompt at which it ends; it begins where the node above it ends.
        stored: its tokens are in the cache.
        asked: some prompt goes to its end.
        ends: some prompt of whole pages ends with it.
    """

    __slots__ = ("asked", "below", "ends", "run", "stored", "upto")

    def __init__(self, run: bytes, upto: int, *, stored: bool = False, asked: bool = False) -> None:
        self.run = run
        self.upto = upto
        self.stored = stored
        self.asked = asked
        self.ends = False
        self.below: dict[bytes, _Node] = {}


class EndlessCache:
    """A prefix cache that never forgets.

    One tree holds what is stored and what was asked for, which is mostly the same. The path of the last run is kept: in a log the next run mostly
    continues it, and one comparison then stands for the way down.

    Attributes:
        depth_first: prompt tokens that a depth-first visit of all prompts so far finds in the cache (see `bounds`).
    """

    def __init__(self, page_size: int = 1) -> None:
        self._page = page_size * TOKEN_BYTES
        root = _Node(b"", 0, stored=True, asked=True)
        self._roots: dict[Hashable, _Node] = {None: root}
        self._namespace: Hashable = None
        self._last = b""  # the last run, in two parts
        self._tail = b""
        self._path: _Path = [root]
        self.depth_first = 0

    def lookup(self, request: Request) -> Match:
        """Cached prompt tokens that `admit` would report. Changes nothing."""
        end = self._floor(len(request.prompt) - TOKEN_BYTES)
        path = self._start(request.namespace, request.prompt, end)
        return Match(_stored(path, self._descend(path, request.prompt, end)) // TOKEN_BYTES if path else 0)

    def admit(self, request: Request) -> Outcome:
        """Serve one request; the prompt and the answer but its last token are stored, or `kept` in place of both."""
        prompt, namespace, page = request.prompt, request.namespace, self._page
        total = len(prompt)
        end = total - total % page
        path, at = self._find(namespace, prompt, end)
        found, asked = _stored(path, at), _asked(path, at)
        node = self._enter(path, at, prompt, end)
        self._namespace, self._path, self._last, self._tail = namespace, path, prompt[:end], b""
        _mark_asked(path)
        if request.kept is not None:
            written = self._keep(path, request, request.kept)
        else:
            _mark_stored(path)
            written = end - found
            if len(request.output) > TOKEN_BYTES:
                stored = request.stored
                written += self._floor(len(stored)) - self.store(namespace, stored)
        last = total - TOKEN_BYTES
        cached = min(found, last - last % page)
        if asked == total and node.ends:
            asked -= page  # an exact repeat computes its last page again
        if end == total:
            node.ends = True
        self.depth_first += asked // TOKEN_BYTES
        return Outcome(total // TOKEN_BYTES, cached // TOKEN_BYTES, written // TOKEN_BYTES)

    def store(self, namespace: Hashable, tokens: bytes) -> int:
        """Store a run; returns the bytes of its whole pages that were there before."""
        end = len(tokens) - len(tokens) % self._page
        path, at = self._find(namespace, tokens, end)
        found = _stored(path, at)
        self._enter(path, at, tokens, end)
        self._namespace, self._path, self._last, self._tail = namespace, path, tokens[:end], b""
        _mark_stored(path)
        return found

    def _keep(self, path: _Path, request: Request, kept: bytes) -> int:
        """Store what a request keeps; returns the bytes of its whole pages that are new. The path of its prompt tells the way as far as the two are known to agree."""
        shared = request.kept_after * TOKEN_BYTES
        if not shared:
            return self._floor(len(kept)) - self.store(request.namespace, kept)
        while path[-1].upto > shared:
            path.pop()
        begin = path[-1].upto
        tokens = request.prompt[begin:shared] + kept
        end = self._floor(begin + len(tokens))
        # The path, which `admit` has remembered, grows below to that of this run.
        self._last, self._tail = request.prompt[:begin], tokens[: end - begin]
        at = self._descend(path, tokens, end, begin) if path[-1].below else begin
        found = _stored(path, at)
        self._enter(path, at, tokens, end, begin)
        _mark_stored(path)
        return end - found

    def _floor(self, size: int) -> int:
        return size - size % self._page

    # --- the tree

    def _find(self, namespace: Hashable, tokens: bytes, end: int) -> tuple[_Path, int]:
        """The path along `tokens[:end]` as far as it is there, which is at least a root, and the bytes that agree."""
        last, tail = self._last, self._tail
        size = len(last) + len(tail)
        if (
            size <= end
            and tokens.startswith(last)
            and tokens.startswith(tail, len(last))
            and namespace == self._namespace
        ):
            path = self._path  # no copy: it becomes the path of this run
            if not path[-1].below:
                return path, size
        else:
            path = self._start(namespace, tokens, end)
        if not path:
            path = [self._roots.setdefault(namespace, _Node(b"", 0, stored=True, asked=True))]
        return path, self._descend(path, tokens, end)

    def _start(self, namespace: Hashable, tokens: bytes, end: int) -> _Path:
        """The path along `tokens` as far as it is known without looking: that of the last run, or the root; empty for a new namespace."""
        if namespace == self._namespace:
            path, last = self._path, memoryview(self._last)
            for keep in range(len(path), max(0, len(path) - _STEPS_BACK), -1):
                upto = path[keep - 1].upto
                if upto <= min(end, len(last)) and tokens.startswith(last[:upto]):
                    return path[:keep]
        root = self._roots.get(namespace)
        return [] if root is None else [root]

    def _descend(self, path: _Path, tokens: bytes, end: int, begin: int = 0) -> int:
        """Extend the path, whose nodes agree, as far as a run agrees that ends at byte `end`; returns the bytes that do, which may end within the path's last node.

        `tokens` are the bytes of the run from `begin` on.
        """
        page, node = self._page, path[-1]
        at, end = node.upto - begin, end - begin
        while at < end:
            child = node.below.get(tokens[at : at + page])
            if child is None:
                break
            path.append(child)
            if not tokens.startswith(child.run, at, end):
                same = common_prefix(child.run, tokens, at, end)
                return begin + at + same - same % page
            node, at = child, child.upto - begin
        return begin + at

    def _enter(self, path: _Path, at: int, tokens: bytes, end: int, begin: int = 0) -> _Node:
        """Make the path, of which `at` bytes agree, that of a run that ends at byte `end`; returns the node that it ends with. `tokens` are the bytes from `begin` on."""
        node = path[-1]
        if at < node.upto:
            node = self._split(path, at)
        if at < end:
            run = tokens[at - begin : end - begin]
            below = _Node(run, end)
            node.below[run[: self._page]] = below
            path.append(below)
            node = below
        return node

    def _split(self, path: _Path, at: int) -> _Node:
        """Cut the last node of the path at byte `at`; the path then ends with the upper half, which is returned."""
        lower = path.pop()
        parent = path[-1]
        size = at - parent.upto
        upper = _Node(lower.run[:size], at, stored=lower.stored, asked=lower.asked)
        lower.run = lower.run[size:]
        upper.below[lower.run[: self._page]] = lower
        parent.below[upper.run[: self._page]] = upper
        path.append(upper)
        return upper


def _stored(path: _Path, at: int) -> int:
    """Bytes that are stored, of the `at` that agree with the path."""
    for node in reversed(path):
        if node.stored:
            return min(node.upto, at)
    return 0


def _asked(path: _Path, at: int) -> int:
    """Bytes that some prompt begins with, of the `at` that agree with the path."""
    for node in reversed(path):
        if node.asked:
            return min(node.upto, at)
    return 0


def _mark_stored(path: _Path) -> None:
    for node in reversed(path):
        if node.stored:
            return
        node.stored = True


def _mark_asked(path: _Path) -> None:
    for node in reversed(path):
        if node.asked:
            return
        node.asked = True
