"""Who shares which prefix: the radix tree of all prompts of some traffic, with the tokens that each of its runs cost and saved.

It is a tree of the traffic, not of a cache: nothing is ever dropped. What was served from a cache comes from a simulation, request by request, so the sums
over the tree are the sums of that simulation, whatever the engine, the capacity and the order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from promptlint.caches.block_lru import BlockRequest
from promptlint.caches.request import TOKEN_BYTES, Request, common_prefix, pack

__all__ = ["Branch", "PrefixShares"]

WIDEST = 400
"""Branches that are kept apart; the others are summed up. More of them would be too narrow to be seen."""
LEAST = 1 / 400
"""Share of all prompt tokens below which a branch is summed up with its siblings."""
DEEPEST = 18
"""Levels that are kept apart."""

Name = Callable[[bytes, bytes], str]
"""Names a run of packed tokens; the first argument is some of what stands before it."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A run of tokens with which some requests go on, or (`merged` above 0) the sum of that many branches.

    Attributes:
        name: what it begins with, or whatever is known of it; empty where nothing is.
        labels: (kind, name) pairs that hold for all its requests, but not for all of its parent's.
        begin: tokens of the prompt before it.
        tokens: length of the run; 0 for a sum.
        requests: how many requests go through it. A sum of branches that lie below one another counts those at its top.
        prompt_tokens: all prompt tokens of these requests; those of a branch's children add up to at most its own.
        passed_tokens: tokens of this run times the requests; over the whole tree they add up to the prompt tokens of the traffic.
        cached_tokens: how many of `passed_tokens` were in the cache.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    begin: int
    tokens: int
    requests: int
    prompt_tokens: int
    passed_tokens: int
    cached_tokens: int
    children: tuple[Branch, ...] = ()
    merged: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the run's tokens that were in the cache."""
        return self.cached_tokens / self.passed_tokens if self.passed_tokens else 0.0


class _Node:
    """A run of tokens, and what went through it; `all_…` with everything below it."""

    __slots__ = (
        "all_cached", "all_nodes", "all_passed", "begin", "below", "cached", "end", "labels", "parent", "passed", "prompt_tokens", "requests", "run",
    )  # fmt: skip

    def __init__(self, run: bytes, parent: _Node | None) -> None:
        self.run = run
        self.parent = parent
        self.below: dict[bytes, _Node] = {}
        self.begin = self.end = self.requests = self.prompt_tokens = self.passed = self.cached = 0
        self.all_passed = self.all_cached = self.all_nodes = 0
        self.labels: frozenset[tuple[str, str]] | None = None


class PrefixShares:
    """Collects prompts as they pass; `tree` tells, once, what they shared when the simulation is over."""

    def __init__(self) -> None:
        self._roots: dict[Hashable, _Node] = {}
        self._ends: dict[
            Hashable, tuple[_Node, tuple[tuple[str, str], ...]]
        ] = {}  # by request: its last node, its labels
        self._size = 1

    def add(self, request: Request | BlockRequest) -> None:
        """Remember a prompt. Ids must be unique."""
        namespace: Hashable = None
        if isinstance(request, BlockRequest):  # a block is one token to the tree
            self._size = request.block_size
            prompt = pack(request.blocks)  # type: ignore[arg-type]  # the ids that readers give are numbers
        else:
            namespace, prompt = request.namespace, request.prompt
        node = self._roots.get(namespace)
        if node is None:
            node = self._roots[namespace] = _Node(b"", None)
        self._ends[request.id] = (_insert(node, prompt), request.labels)

    def tree(self, outcomes: Mapping[Hashable, tuple[int, int]], name: Name | None = None) -> Branch:
        """The tree, its branches by their size.

        Args:
            outcomes: prompt tokens and cached tokens by the id of a request; a request without an outcome does not count.
            name: gives branches their names; it is asked only for those that are kept apart.
        """
        order = self._nodes()
        alike = Counter((*self._ends[name], *outcome) for name, outcome in outcomes.items() if name in self._ends)
        for (last, labels, length, cached), number in alike.items():
            node: _Node | None = last
            while node is not None:
                _count(node, labels, length, cached, number, self._size)
                node = node.parent
        for node in reversed(order):  # children before parents
            node.all_passed += node.passed
            node.all_cached += node.cached
            node.all_nodes += node.requests > 0
            if node.parent is not None:
                node.parent.all_passed += node.all_passed
                node.parent.all_cached += node.all_cached
                node.parent.all_nodes += node.all_nodes
        widths = sorted((node.prompt_tokens for node in order), reverse=True)
        total = sum(root.prompt_tokens for root in self._roots.values())
        least = max(LEAST * total, widths[WIDEST] + 1 if len(widths) > WIDEST else 0)
        return _Builder(least, name).whole(self._roots, total)

    def _nodes(self) -> list[_Node]:
        """Every node, parents before children, with its place in the prompts."""
        order = []
        waiting = list(self._roots.values())
        while waiting:
            node = waiting.pop()
            node.begin = 0 if node.parent is None else node.parent.end
            node.end = node.begin + len(node.run) // TOKEN_BYTES * self._size
            order.append(node)
            waiting += node.below.values()
        return order


def _insert(node: _Node, prompt: bytes) -> _Node:
    """Make a prompt the path below a root; returns the node that it ends with, which stays the end of this prompt when it is split."""
    at, end = 0, len(prompt)
    while at < end:
        key = prompt[at : at + TOKEN_BYTES]
        child = node.below.get(key)
        if child is None:
            child = node.below[key] = _Node(prompt[at:], node)
            return child
        if not prompt.startswith(child.run, at):
            same = common_prefix(child.run, prompt, at, end)
            child = _split(child, same - same % TOKEN_BYTES)
        at += len(child.run)
        node = child
    return node


def _split(lower: _Node, size: int) -> _Node:
    """Cut a node's run after `size` bytes; returns the new upper part."""
    parent = lower.parent
    assert parent is not None
    upper = parent.below[lower.run[:TOKEN_BYTES]] = _Node(lower.run[:size], parent)
    lower.run = lower.run[size:]
    lower.parent = upper
    upper.below[lower.run[:TOKEN_BYTES]] = lower
    return upper


def _count(own: _Node, labels: tuple[tuple[str, str], ...], length: int, cached: int, number: int, size: int) -> None:
    """Add requests that go through a node; the last block of a prompt may be a partial one."""
    end = own.end if size == 1 else min(own.end, length)
    own.requests += number
    own.prompt_tokens += number * length
    own.passed += number * (end - own.begin)
    own.cached += number * min(max(cached - own.begin, 0), end - own.begin)
    own.labels = frozenset(labels) if own.labels is None else own.labels.intersection(labels)


class _Builder:
    """Turns nodes into branches and sums up what is too small to be kept apart."""

    def __init__(self, least: float, name: Name | None) -> None:
        self._least = least
        self._name = name or (lambda _before, _run: "")

    def whole(self, roots: Mapping[Hashable, _Node], total: int) -> Branch:
        """All requests; below them the namespaces, or where there is one, what its requests begin with."""
        known = {namespace: root for namespace, root in roots.items() if root.requests}
        common = (
            frozenset.intersection(*(root.labels or frozenset() for root in known.values())) if known else frozenset()
        )
        if len(known) == 1:
            children = self._below(next(iter(known.values())), b"", common, 1)
        else:
            order = sorted(known.items(), key=lambda item: -item[1].prompt_tokens)
            children = tuple(self._branch(root, b"", common, 1, _spelled(namespace)) for namespace, root in order)
        requests = sum(root.requests for root in known.values())
        return Branch("all requests", tuple(sorted(common)), 0, 0, requests, total, 0, 0, children)

    def _branch(
        self, own: _Node, before: bytes, common: frozenset[tuple[str, str]], level: int, name: str | None = None
    ) -> Branch:
        labels = own.labels or frozenset()
        return Branch(
            self._name(before, own.run) if name is None else name,
            tuple(sorted(labels - common)),
            own.begin,
            own.end - own.begin,
            own.requests,
            own.prompt_tokens,
            own.passed,
            own.cached,
            self._below(own, before + own.run, common | labels, level + 1),
        )

    def _below(self, node: _Node, before: bytes, common: frozenset[tuple[str, str]], level: int) -> tuple[Branch, ...]:
        below = sorted(
            (child for child in node.below.values() if child.requests), key=lambda child: -child.prompt_tokens
        )
        kept = [child for child in below if level <= DEEPEST and child.prompt_tokens >= self._least]
        rest = below[len(kept) :]
        tail = before[-_BEFORE * TOKEN_BYTES :]
        found = [self._branch(child, tail, common, level) for child in kept]
        if rest:
            found.append(
                Branch(
                    "", (), rest[0].begin, 0, sum(one.requests for one in rest), sum(one.prompt_tokens for one in rest),
                    sum(one.all_passed for one in rest), sum(one.all_cached for one in rest),
                    merged=sum(one.all_nodes for one in rest),
                )
            )  # fmt: skip
        return tuple(found)


_BEFORE = 512
"""Tokens before a branch that its name may be made with: what looks like a key is recognised by how it begins."""


def _spelled(namespace: Hashable) -> str:
    parts = namespace if isinstance(namespace, tuple) else (namespace,)
    return " ".join(str(part) for part in parts if part) or "default namespace"
