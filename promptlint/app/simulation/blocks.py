"""A run over blocks: the convention of published block traces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from promptlint.app.simulation.beside import bottleneck
from promptlint.app.simulation.run import Run
from promptlint.app.simulation.sample import Sampler
from promptlint.app.simulation.setup import Setup
from promptlint.caches.block_lru import BlockLru
from promptlint.caches.bounds import BlockBounds, BoundTokens
from promptlint.caches.request import Outcome
from promptlint.caches.stack_distances import StackDistances
from promptlint.caches.tally import Sums
from promptlint.errors import UserError
from promptlint.report.simulate import CurvePoint, SimulateReport

__all__ = ["BlockRun"]


class BlockRun(Run):
    """block-lru: the run at one capacity, and the stack distances that give every other one."""

    def __init__(self, setup: Setup, sampler: Sampler | None) -> None:
        super().__init__(setup, setup.block_size, sampler)
        self._distances = StackDistances() if setup.curve else None
        self.hits = 0
        self.blocks = 0
        self.block_size = setup.block_size
        self._cache: BlockLru | None = None
        self._bounds: BlockBounds | None = None
        self._sizes: set[int] = set()  # of runs that were absorbed
        self._absorbed = [0, 0, 0, 0]  # their bounds: content, capacity, depth first in blocks, content in tokens

    def replay(self, requests: Iterable[Any]) -> None:
        for request in requests:
            if self._cache is None:
                self.block_size = self.tally.unit = request.block_size
                room = None if self.setup.capacity is None else self.setup.capacity // self.block_size
                self._cache = BlockLru(room)
                if self.setup.bounds:
                    self._bounds = BlockBounds(room)
            elif request.block_size != self.block_size:
                raise _two_sizes(self.block_size, request.block_size)
            found = self._cache.admit(request)
            size = request.block_size
            outcome = Outcome(request.length, found.cached_tokens, found.written * size, found.evicted * size)
            self.note(request, outcome)
            counted = self.tally.served > self.setup.warm_up
            if self._distances is not None:
                self._distances.admit(request, counted=counted)
            if self._bounds is not None:
                self._bounds.add(request, counted=counted)
            if counted:
                self.hits += found.hits
                self.blocks += len(request.blocks)

    def partial(self) -> dict[str, Any]:
        bounds = None
        if self._bounds is not None:
            found = self._bounds.blocks()
            bounds = [found.content, found.capacity, found.depth_first, self._bounds.content_tokens]
        size = None if self._cache is None else self.block_size
        return super().partial() | {"hits": self.hits, "blocks": self.blocks, "block_size": size, "bounds": bounds}

    def absorb(self, partial: Mapping[str, Any]) -> None:
        super().absorb(partial)
        self.hits += partial["hits"]
        self.blocks += partial["blocks"]
        size = partial["block_size"]
        if size is not None:
            if self._sizes and size not in self._sizes:
                raise _two_sizes(min(self._sizes), size)
            self._sizes.add(size)
            self.block_size = self.tally.unit = size
        if partial["bounds"] is not None:
            self._absorbed = [one + other for one, other in zip(self._absorbed, partial["bounds"], strict=True)]

    def denominator(self) -> str:
        """The partial last block counts as one, so these are not only the full ones."""
        return super().denominator().replace("full blocks", "all blocks")

    def curve(self, _: Callable[[], Iterable[Any]]) -> tuple[CurvePoint, ...]:
        assert self._distances is not None
        rates = self._distances.rates
        points: list[int | None] = [*self._distances.knees(), None]
        scale = self.block_size / self.setup.sample
        return tuple(
            CurvePoint(None if point is None else round(point * scale), *reversed(rates(point))) for point in points
        )

    def report(self, curve: tuple[CurvePoint, ...]) -> SimulateReport:
        total = self.tally.total
        block_rate = self.hits / self.blocks if self.blocks else 0.0
        rate = block_rate if self.setup.denominator == "full-blocks" else total.hit_rate
        bounds, bottleneck = self._judged(rate, total)
        return SimulateReport(
            engine="block-lru",
            engine_version="",
            unit=self.block_size,
            capacity_tokens=self.setup.capacity,
            schedule=None,
            driver="one request at a time",
            denominator=self.denominator(),
            requests=total.requests,
            prompt_tokens=total.prompt_tokens,
            cached_tokens=total.cached_tokens,
            written_tokens=total.written_tokens,
            hit_rate=rate,
            block_hit_rate=block_rate,
            request_hit_rate=total.request_hit_rate,
            evicted_tokens=total.evicted_tokens,
            bounds=bounds,
            bottleneck=bottleneck,
            groups=self.groups(),
            curve=curve,
            settings={"block": self.block_size},
            sampling=self.sampling(),
        )

    def _judged(self, rate: float, total: Sums) -> tuple[dict[str, float | None], str | None]:
        """Bounds in blocks; as a share of tokens they count every block as full, up to what the content allows."""
        if not self.setup.bounds or not self.blocks:
            return {}, None
        found, content_tokens = self._bound_blocks()
        if self.setup.denominator == "full-blocks":
            scale, content = 1 / self.blocks, found.content / self.blocks
        else:
            scale, content = self.block_size / total.prompt_tokens, content_tokens / total.prompt_tokens
        capacity = min(content, found.capacity * scale)
        bounds: dict[str, float | None] = {"content": content, "capacity": capacity}
        bounds["depth_first"] = None if found.depth_first is None else min(content, found.depth_first * scale)
        return bounds, bottleneck(rate, rate, content, ())

    def _bound_blocks(self) -> tuple[BoundTokens, int]:
        """The bounds in blocks, and the content bound in tokens; those of absorbed runs, whose memory had no limit, are added."""
        if self._bounds is None:
            content, capacity, depth_first, tokens = self._absorbed
            return BoundTokens(content, capacity, depth_first), tokens
        return self._bounds.blocks(), self._bounds.content_tokens


def _two_sizes(one: int, other: int) -> UserError:
    return UserError(f"blocks of {one} and of {other} tokens in one log: give --block-size")
