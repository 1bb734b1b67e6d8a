"""What our own cache models expect of a server under the same requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from promptlint.benching.servers import Facts
from promptlint.caches.endless import EndlessCache
from promptlint.caches.paged import PagedCache
from promptlint.caches.paged_scheduler import PagedScheduler
from promptlint.caches.radix import RadixCache
from promptlint.caches.radix_scheduler import RadixScheduler
from promptlint.caches.request import Request
from promptlint.caches.schedule import closed_loop

__all__ = ["Expected", "expect", "shared_share"]

_VLLM_BLOCK = 16  # where the server does not say


@dataclass(frozen=True, slots=True)
class Expected:
    """Cached tokens by request, and the model that says so. `exact`: one request at a time, so that each figure is comparable; else only the sum is.

    `alone`: what each finds when none is under way with another. Requests of an open load meet less often than those of the loop that stands in for it.
    """

    cached_tokens: tuple[int, ...]
    model: str
    exact: bool
    alone: tuple[int, ...] = ()


def expect(facts: Facts, requests: Sequence[Request], concurrency: int) -> Expected:
    """Replay the requests, which arrive at a cold cache: one after the other, or `concurrency` at a time under the engine's own scheduler.

    Of an unknown engine only the bound is known: what a cache without limit and with pages of one token would find.
    """
    capacity = facts.capacity_tokens
    room = f"{capacity:,} tokens" if capacity else "a pool without limit (not reported)"
    if facts.prefix_caching is False:
        return Expected((0,) * len(requests), "no prefix caching", exact=True)
    if facts.engine == "vllm":
        unit = facts.unit or _VLLM_BLOCK
        # `capacity_tokens` leaves out the block that holds nothing, as the model does.
        cache = PagedCache(capacity, unit)
        words = f"vLLM, blocks of {unit}{'' if facts.unit else ' (assumed)'}, {room}"
        alone = PagedCache(capacity, unit)
        return _run(cache, PagedScheduler(cache) if concurrency > 1 else None, alone, requests, concurrency, words)
    if facts.engine == "sglang":
        unit = facts.unit or 1
        tree = RadixCache(capacity, unit)
        words = f"SGLang, pages of {unit}{'' if facts.unit else ' (assumed)'}, {room}"
        policy = facts.schedule if facts.schedule in {"lpm", "dfs-weight", "lof", "fcfs"} else "fcfs"
        alone_tree = RadixCache(capacity, unit)
        return _run(
            tree, RadixScheduler(tree, policy) if concurrency > 1 else None, alone_tree, requests, concurrency, words
        )
    bound = EndlessCache(1)
    found = tuple(bound.admit(request).cached_tokens for request in requests)
    return Expected(found, "what the content allows (the engine is not known)", exact=False)


def _run(
    cache: PagedCache | RadixCache,
    scheduler: PagedScheduler | RadixScheduler | None,
    other: PagedCache | RadixCache,
    requests: Sequence[Request],
    concurrency: int,
    words: str,
) -> Expected:
    if scheduler is None:
        return Expected(
            tuple(cache.admit(request).cached_tokens for request in requests),
            f"{words}, one request at a time",
            exact=True,
        )
    alone = tuple(other.admit(request).cached_tokens for request in requests)
    found = {done.request.id: done.outcome.cached_tokens for done in closed_loop(scheduler, requests, concurrency)}
    return Expected(
        tuple(found.get(request.id, 0) for request in requests),
        f"{words}, {concurrency} at a time",
        exact=False,
        alone=alone,
    )


def shared_share(requests: Sequence[Request]) -> float:
    """The share of prompt tokens that any cache could find: the workload's overlap."""
    cache = EndlessCache(1)
    total = sum(request.prompt_tokens for request in requests)
    return sum(cache.admit(request).cached_tokens for request in requests) / total if total else 0.0
