"""Replaying a share of the sessions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, ClassVar

from promptlint.caches.block_lru import BlockRequest
from promptlint.caches.request import TOKEN_BYTES, Request

__all__ = ["Sampler"]


class Sampler:
    """Chooses a share of the sessions by a hash that is the same in every run.

    A request without a session id belongs to one by what it begins with. How much of the beginning is looked at is
    learnt from the first requests: as little as tells conversations apart (no beginning stands for more than one in
    twenty), so that the turns of one conversation stay together although all of them share a system prompt.
    """

    LEARN: ClassVar = 1_000  # requests
    LARGEST: ClassVar = 0.05  # share of requests that one session may have
    DEPTHS: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # blocks, or 32 tokens each

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.depth: int | None = None

    def __call__(self, requests: Iterable[Any]) -> Iterator[Any]:
        feed = iter(requests)
        if self.depth is None:
            head = list(islice(feed, self.LEARN))
            self.depth = self._learn([request for request in head if request.session is None])
            feed = chain(head, feed)
        limit = self.rate * 2**64
        for request in feed:
            if int.from_bytes(hashlib.sha256(self.key(request)).digest()[:8], "big") < limit:
                yield request

    def key(self, request: Request | BlockRequest) -> bytes:
        """The session of a request."""
        return request.session.encode() if request.session is not None else self._begin(request, self.depth or 1)

    @staticmethod
    def _begin(request: Request | BlockRequest, depth: int) -> bytes:
        if isinstance(request, BlockRequest):  # a block's id stands for everything before it
            return str(request.blocks[min(depth, len(request.blocks)) - 1]).encode()
        return repr(request.namespace).encode() + request.prompt[: 32 * depth * TOKEN_BYTES]

    def _learn(self, requests: list[Any]) -> int:
        for depth in self.DEPTHS:
            largest = Counter(self._begin(request, depth) for request in requests).most_common(1)
            if not largest or largest[0][1] <= self.LARGEST * len(requests):
                return depth
        return self.DEPTHS[0]
