"""The pipeline behind `promptlint simulate`: traffic to requests to a cache model to a report.

`simulate` takes requests, wherever they come from, so that other commands can replay their own; `app.requests` makes
them from the records of traffic logs.
"""

from __future__ import annotations

import gc
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar

from promptlint.caches.block_lru import BlockLru, BlockRequest, StackDistances
from promptlint.caches.bounds import Bounds
from promptlint.caches.endless import EndlessCache
from promptlint.caches.fleet import ROUTERS, Fleet, paced, router, serve
from promptlint.caches.paged import PagedCache
from promptlint.caches.paged_scheduler import PagedScheduler
from promptlint.caches.radix import RadixCache, Tree
from promptlint.caches.radix_scheduler import RadixScheduler
from promptlint.caches.request import TOKEN_BYTES, Outcome, Request, pack
from promptlint.caches.schedule import ConstantRate, Finished, Scheduler, ServiceTime, closed_loop
from promptlint.caches.tally import DENOMINATORS, Sums, Tally
from promptlint.errors import UserError
from promptlint.report.simulate import CurvePoint, GroupRow, ReplicaRow, Sampling, SimulateReport

__all__ = ["ENGINES", "Result", "Sampler", "Setup", "bottleneck", "simulate"]

ENGINES = ("sglang", "vllm", "block-lru")
VERSIONS = {"sglang": "0.5.23", "vllm": "0.32.0", "block-lru": ""}
OFFERED = ("lru", "lfu", "slru")  # eviction policies that a server of today can be started with
ENOUGH = 0.9  # of what the content allows: nothing but the content is worth changing then
_REPLAYED = frozenset(
    ("mode", "block", "minimum", "lookback", "max_breakpoints", "ttl", "read", "write")
)  # terms that a replay rests on
CURVE_POINTS = 8  # capacities that are tried side by side


@dataclass(frozen=True, slots=True)
class Setup:
    """What to simulate. Sizes in tokens.

    Attributes:
        engine: sglang, vllm, block-lru, or a provider that rules/providers knows.
        capacity: room of one replica; None is unlimited.
        schedule: a scheduler's policy, or None for one request at a time.
        window: requests of the closed loop; `pace` "arrivals" uses timestamps instead.
        batch_tokens: prompt tokens of one prefill batch (SGLang), token budget of a step (vLLM).
        max_running: requests that run at once; None is the engine's default.
        warm_up: requests that are served before counting begins.
        sample: share of the sessions to replay, with the capacity scaled alike.
        service_time: what a step costs with `pace`.
        delay: seconds until a provider lets a written prefix be read.
        overflow: whether a provider sends requests above its rate for one prefix to other machines.
        extra_rules: the user's own folders, whose providers/*.toml override shipped terms.
        bounds: compute the upper bounds and the bottleneck beside the run.
    """

    engine: str = "sglang"
    capacity: int | None = None
    page_size: int = 1
    block_size: int = 16
    eviction: str = "lru"
    tree: Tree = "unified"
    chunk: int = 0
    schedule: str | None = None
    window: int = 64
    pace: str | None = None
    batch_tokens: int | None = None
    max_running: int | None = None
    replicas: int = 1
    router: str = "round-robin"
    denominator: str = "prompt-tokens"
    warm_up: int = 0
    curve: bool = False
    sample: float = 1.0
    service_time: ServiceTime = field(default_factory=ConstantRate)
    model: str = ""
    ttl: str = ""
    delay: float = 0.0
    overflow: bool = True
    extra_rules: tuple[Path, ...] = ()
    bounds: bool = True

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise UserError(f"--replicas {self.replicas}: at least 1 is needed")
        if self.router not in ROUTERS:
            raise UserError(f"unknown router {self.router!r}; known: {', '.join(ROUTERS)}")
        if self.denominator not in DENOMINATORS:
            raise UserError(f"unknown denominator {self.denominator!r}; known: {', '.join(DENOMINATORS)}")
        if not 0 < self.sample <= 1:
            raise UserError(f"--sample {self.sample:g}: a share above 0 and at most 1 is needed")
        if self.capacity is not None and self.capacity < 1:
            raise UserError(f"--capacity-tokens {self.capacity}: a positive number or `unlimited` is needed")
        if self.window < 1:
            raise UserError(f"--window {self.window}: at least 1 is needed")
        if self.pace and not self.schedule:
            raise UserError("--pace needs --schedule: without a scheduler requests do not overlap")
        if self.schedule and self.engine not in {"sglang", "vllm"}:
            raise UserError(f"--schedule: {self.engine} has no scheduler that is modelled")
        if self.replicas > 1 and self.engine == "block-lru":
            raise UserError("--replicas needs --engine sglang or vllm, or a provider")

    @property
    def unit(self) -> int:
        """Tokens per page or block."""
        return self.page_size if self.engine == "sglang" else self.block_size

    @property
    def is_provider(self) -> bool:
        return self.engine not in ENGINES


@dataclass(frozen=True, slots=True)
class Result:
    """The report; (id, prompt tokens, cached tokens) of each request in file order; (id, reason) of those not served."""

    report: SimulateReport
    per_request: list[tuple[Any, int, int]]
    refused: list[tuple[Any, str]]


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


# --- replay


def simulate(
    setup: Setup,
    requests: Iterable[Request | BlockRequest],
    *,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Replay requests and add up what they found.

    Ids must be unique. `requests` is iterated once, or three times with `setup.curve` for an engine other than block-lru. `progress` is
    called with the number of requests served so far, every now and then. Raises UserError when there is no request.
    """
    capacity = setup.capacity
    if setup.sample < 1:
        setup = replace(
            setup, capacity=None if setup.capacity is None else max(setup.unit, round(setup.capacity * setup.sample))
        )
    sampler = Sampler(setup.sample) if setup.sample < 1 else None
    run = _BlockRun(setup, sampler) if setup.engine == "block-lru" else _TokenRun(setup, sampler)
    order: list[Any] = []
    with _no_collector():
        run.replay(_noted(requests if sampler is None else sampler(requests), order, progress))
    if not run.results:
        raise UserError("no request to replay" + (f" in the sample of {setup.sample:g}" if sampler is not None else ""))
    curve = run.curve(lambda: requests if sampler is None else sampler(requests)) if setup.curve else ()
    report = replace(run.report(curve), capacity_tokens=capacity)
    return Result(report, [(name, *run.results[name]) for name in order], run.tally.refused)


@contextmanager
def _no_collector() -> Iterator[None]:
    """The caches leave no garbage in cycles, and a collector that walks millions of live nodes makes time quadratic."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _noted(requests: Iterable[Any], order: list[Any], progress: Callable[[int], None] | None) -> Iterator[Any]:
    for count, request in enumerate(requests, 1):
        order.append(request.id)
        if progress is not None and count % 256 == 0:
            progress(count)
        yield request


class _Run:
    """What both kinds of runs share: the tally, the results by id, the error of a sample."""

    def __init__(self, setup: Setup, unit: int, sampler: Sampler | None) -> None:
        self.setup = setup
        self._sampler = sampler
        self.tally = Tally(unit, setup.warm_up)
        self.results: dict[Any, tuple[int, int]] = {}
        self._sessions: dict[bytes, list[int]] = {}

    def note(self, request: Request | BlockRequest, outcome: Outcome) -> None:
        self.results[request.id] = (outcome.prompt_tokens, outcome.cached_tokens)
        self.tally.add(request.id, request.labels, outcome)
        if self._sampler is not None and outcome.refused is None:
            sums = self._sessions.setdefault(self._sampler.key(request), [0, 0])
            sums[0] += outcome.prompt_tokens
            sums[1] += outcome.cached_tokens

    def sampling(self) -> Sampling | None:
        """The standard error of a ratio of sums over sampled sessions (Cochran, Sampling Techniques, 6.4)."""
        if self.setup.sample >= 1:
            return None
        sums = list(self._sessions.values())
        count, total = len(sums), sum(prompt for prompt, _ in sums)
        error = None
        if count > 1 and total:
            rate = self.tally.total.hit_rate
            spread = sum((cached - rate * prompt) ** 2 for prompt, cached in sums)
            error = math.sqrt((1 - self.setup.sample) * count / (count - 1) * spread) / total
        return Sampling(self.setup.sample, count, error)

    def rate(self, sums: Sums) -> float:
        return sums.block_hit_rate if self.setup.denominator == "full-blocks" else sums.hit_rate

    def share(self, tokens: int, sums: Sums) -> float:
        """Tokens that could be cached, by the denominator of `rate`."""
        whole = sums.units * self.tally.unit if self.setup.denominator == "full-blocks" else sums.prompt_tokens
        return tokens / whole if whole else 0.0

    def denominator(self) -> str:
        whole = "full blocks of the prompts" if self.setup.denominator == "full-blocks" else "all prompt tokens"
        return whole + (f", after the first {self.setup.warm_up:,} requests" if self.setup.warm_up else "")

    def groups(self) -> tuple[GroupRow, ...]:
        return tuple(
            GroupRow(kind, name, sums.requests, sums.prompt_tokens, sums.cached_tokens, self.rate(sums))
            for (kind, name), sums in sorted(
                self.tally.groups.items(), key=lambda item: (item[0][0], -item[1].prompt_tokens, item[0][1])
            )
        )


class _BlockRun(_Run):
    """block-lru: the run at one capacity, and the stack distances that give every other one."""

    def __init__(self, setup: Setup, sampler: Sampler | None) -> None:
        super().__init__(setup, setup.block_size, sampler)
        self.distances = StackDistances()
        self.hits = 0
        self.blocks = 0
        self.block_size = setup.block_size
        self._cache: BlockLru | None = None
        self._bounds: Bounds | None = None  # a block is one token to it

    def replay(self, requests: Iterable[Any]) -> None:
        for request in requests:
            if self._cache is None:
                self.block_size = self.tally.unit = request.block_size
                room = None if self.setup.capacity is None else self.setup.capacity // self.block_size
                self._cache = BlockLru(room)
                if self.setup.bounds:
                    self._bounds = Bounds(room, recompute_last=False)
            elif request.block_size != self.block_size:
                raise UserError(
                    f"blocks of {self.block_size} and of {request.block_size} tokens in one log: give --block-size"
                )
            found = self._cache.admit(request)
            size = request.block_size
            outcome = Outcome(request.length, found.cached_tokens, found.written * size, found.evicted * size)
            self.note(request, outcome)
            counted = self.tally.served > self.setup.warm_up
            self.distances.admit(request, counted=counted)
            if self._bounds is not None:
                self._bounds.add(Request(request.id, pack(request.blocks)), counted=counted)
            if counted:
                self.hits += found.hits
                self.blocks += len(request.blocks)

    def denominator(self) -> str:
        """The partial last block counts as one, so these are not only the full ones."""
        return super().denominator().replace("full blocks", "all blocks")

    def curve(self, _: Callable[[], Iterable[Any]]) -> tuple[CurvePoint, ...]:
        points: list[int | None] = [*self.distances.knees(), None]
        scale = self.block_size / self.setup.sample
        return tuple(
            CurvePoint(None if point is None else round(point * scale), *reversed(self.distances.rates(point)))
            for point in points
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
        if self._bounds is None or not self.blocks:
            return {}, None
        found = self._bounds.tokens()
        if self.setup.denominator == "full-blocks":
            scale, content = 1 / self.blocks, found.content / self.blocks
        else:
            scale, content = self.block_size / total.prompt_tokens, self.distances.rates(None)[1]
        capacity = min(content, found.capacity * scale)
        bounds: dict[str, float | None] = {"content": content, "capacity": capacity}
        bounds["depth_first"] = None if found.depth_first is None else min(content, found.depth_first * scale)
        return bounds, bottleneck(rate, rate, content, ())


class _TokenRun(_Run):
    """An engine or a provider over tokens: one cache or a fleet, one request at a time or under a scheduler."""

    def __init__(self, setup: Setup, sampler: Sampler | None) -> None:
        self._provider = _provider_terms(setup) if setup.is_provider else None
        unit = setup.unit if self._provider is None else max(1, self._provider.block)
        super().__init__(setup, unit, sampler)
        self._endless = EndlessCache(unit) if _never_evicts(setup) else None
        needs_bounds = setup.bounds and self._provider is None and self._endless is None
        self._beside = _Beside(self, unit) if needs_bounds else None
        self._depth_first = 0
        self.replica_sums = [Sums() for _ in range(setup.replicas)]
        self.stats: dict[str, int] = {}
        self._routed = False  # whether a request gave a routing key
        self._caches: list[Any] = []  # of a run without a scheduler
        self._waits: list[float] = []
        self._ends: list[float] = []

    def cache(self, capacity: int | None, eviction: str = "") -> Any:
        """A fresh cache of the set-up, with another capacity or eviction policy."""
        setup = self.setup
        if setup.engine == "sglang":
            return RadixCache(
                capacity, setup.page_size, eviction=eviction or setup.eviction, tree=setup.tree, chunk=setup.chunk
            )
        if setup.engine == "vllm":
            return PagedCache(capacity, setup.block_size)
        from promptlint.caches.breakpoint import ProviderCache

        assert self._provider is not None
        return ProviderCache(self._provider, ttl=setup.ttl, delay=setup.delay, overflow=setup.overflow)

    def scheduler(self, cache: Any) -> Scheduler:
        setup = self.setup
        assert setup.schedule is not None
        options: dict[str, Any] = {} if setup.max_running is None else {"max_running": setup.max_running}
        if setup.engine == "sglang":
            if setup.batch_tokens is not None:
                options["max_prefill_tokens"] = setup.batch_tokens
            return RadixScheduler(cache, setup.schedule, **options)
        if setup.batch_tokens is not None:
            options["max_batched_tokens"] = setup.batch_tokens
        return PagedScheduler(cache, setup.schedule, **options)

    def replay(self, requests: Iterable[Any]) -> None:
        setup = self.setup
        requests = requests if self._beside is None else self._beside.watching(requests)
        if self._endless is not None:
            self._unlimited(self._endless, requests)
        elif setup.schedule is not None:
            self._scheduled(requests)
        elif setup.replicas > 1:
            caches = [self.cache(setup.capacity) for _ in range(setup.replicas)]
            self._caches = caches
            for request, replica, outcome in serve(caches, router(setup.router, setup.replicas), requests):
                self._served(request, replica, outcome)
        else:
            cache = self.cache(setup.capacity)
            self._caches = [cache]
            for request in requests:
                self._served(request, 0, cache.admit(request))

    def _unlimited(self, cache: EndlessCache, requests: Iterable[Request]) -> None:
        """The bounds come with it: what memory without limit reaches is all that the content allows."""
        for request in requests:
            before = cache.depth_first
            self._served(request, 0, cache.admit(request))
            if self.tally.served > self.setup.warm_up:
                self._depth_first += cache.depth_first - before

    def _served(self, request: Request, replica: int, outcome: Outcome) -> None:
        self.note(request, outcome)
        self._routed = self._routed or bool(request.route)
        if outcome.refused is not None:
            return
        if self.tally.served > self.setup.warm_up:
            self.replica_sums[replica].add(outcome, self.tally.unit)

    def _scheduled(self, requests: Iterable[Request]) -> None:
        setup = self.setup
        caches = [self.cache(setup.capacity) for _ in range(setup.replicas)]
        fleet = Fleet([self.scheduler(cache) for cache in caches], router(setup.router, setup.replicas))
        done: Iterator[Finished]
        done = paced(fleet, requests, setup.service_time) if setup.pace else closed_loop(fleet, requests, setup.window)
        for one in done:
            self._served(one.request, one.replica, one.outcome)
            if setup.pace and one.outcome.refused is None:
                self._waits.append(one.first_token - one.arrival)
                self._ends.append(one.end)
        self.stats = fleet.stats
        # Which request an eviction belongs to is not known when many run at once: the sum is.
        size = 1 if setup.engine == "sglang" else setup.block_size
        self.tally.total.evicted_tokens = sum(cache.evicted for cache in caches) * size

    def curve(self, again: Callable[[], Iterable[Any]]) -> tuple[CurvePoint, ...]:
        """Runs side by side, one request at a time, at capacities that double up to what the traffic can fill."""
        if self._provider is not None:
            raise UserError("--curve: providers publish no capacity")
        unit = self.tally.unit
        largest = distinct = 0
        unlimited = self.cache(None)
        for request in again():
            distinct += unlimited.admit(request).written_tokens
            largest = max(largest, -(-len(request.stored) // TOKEN_BYTES))
        largest = -(-largest // unit) * unit + unit
        steps = max(1, CURVE_POINTS - 1)
        ratio = max(1.0, distinct / largest) ** (1 / steps)
        capacities = sorted({round(largest * ratio**step) // unit * unit for step in range(steps + 1)})
        caches = [(capacity, self.cache(capacity), Sums()) for capacity in capacities]
        rest = (None, self.cache(None), Sums())
        for count, request in enumerate(again(), 1):
            for _, cache, sums in (*caches, rest):
                outcome = cache.admit(request)
                if outcome.refused is None and count > self.setup.warm_up:
                    sums.add(outcome, unit)
        return tuple(
            CurvePoint(
                None if capacity is None else round(capacity / self.setup.sample), sums.hit_rate, sums.block_hit_rate
            )
            for capacity, _, sums in (*caches, rest)
        )

    def report(self, curve: tuple[CurvePoint, ...]) -> SimulateReport:
        setup, total = self.setup, self.tally.total
        bounds, bottleneck = self._judged(total)
        if setup.schedule is None:
            driver = "one request at a time"
        else:
            driver = "paced by arrivals" if setup.pace else f"closed loop of {setup.window}"
        settings: dict[str, Any] = {}
        if setup.engine == "sglang":
            settings = {"page": setup.page_size, "eviction": setup.eviction, "tree": setup.tree, "chunk": setup.chunk}
        elif setup.engine == "vllm":
            settings = {"block": setup.block_size}
        elif self._provider is not None:
            settings = {
                "mode": self._provider.mode,
                "minimum": self._provider.minimum,
                "model": self._provider.model or "default",
            }
            weak = [name for name in self._provider.low_confidence if name in _REPLAYED]
            if weak:
                settings["low_confidence"] = " and ".join(weak)
            if self._provider.routing_needed and not self._routed:
                settings["routing"] = "one machine, as with a routing key: an upper bound"
            if spilled := sum(cache.spilled for cache in self._caches):
                settings["overflow"] = f"{spilled:,} requests above {self._provider.overflow_rpm} a minute"
        if setup.replicas > 1:
            settings |= {"replicas": setup.replicas, "router": setup.router}
        return SimulateReport(
            engine=setup.engine,
            engine_version=VERSIONS.get(setup.engine, f"terms of {self._provider.verified}" if self._provider else ""),
            unit=self.tally.unit,
            capacity_tokens=setup.capacity,
            schedule=setup.schedule,
            driver=driver,
            denominator=self.denominator(),
            requests=total.requests,
            prompt_tokens=total.prompt_tokens,
            cached_tokens=total.cached_tokens,
            written_tokens=total.written_tokens,
            hit_rate=self.rate(total),
            block_hit_rate=total.block_hit_rate,
            request_hit_rate=total.request_hit_rate,
            evicted_tokens=total.evicted_tokens,
            bounds=bounds,
            bottleneck=bottleneck,
            cost=self._cost(),
            groups=self.groups(),
            replicas=tuple(
                ReplicaRow(index, sums.requests, sums.prompt_tokens, sums.cached_tokens, self.rate(sums))
                for index, sums in enumerate(self.replica_sums)
            ),
            curve=curve,
            settings=settings,
            stats=self.stats,
            times=self._times(),
            sampling=self.sampling(),
            refused=len(self.tally.refused),
        )

    def _judged(self, total: Sums) -> tuple[dict[str, float | None], str | None]:
        if self._beside is not None:
            return self._beside.judge(total)
        if self._endless is None or not self.setup.bounds or not total.prompt_tokens:
            return {}, None
        content = self.rate(total)
        return {
            "content": content,
            "capacity": content,
            "depth_first": self.share(self._depth_first, total),
        }, "content"

    def _cost(self) -> dict[str, Any] | None:
        """Input cost relative to no caching, and dollars where prices are listed."""
        terms = self._provider
        if terms is None or terms.read is None or not self.tally.total.prompt_tokens:
            return None
        total = self.tally.total
        fresh = total.prompt_tokens - total.cached_tokens - total.written_tokens
        default = self.setup.ttl or (terms.ttls[0][0] if terms.ttls else "")
        written: dict[str, int] = {}
        for name, tokens in (total.written_at or {"": total.written_tokens}).items():
            written[name or default] = written.get(name or default, 0) + tokens
        units = fresh + total.cached_tokens * terms.read
        units += sum(tokens * terms.write(name) for name, tokens in written.items())
        found: dict[str, Any] = {"relative_input_cost": round(units / total.prompt_tokens, 6)}
        if len(written) > 1:
            found |= {f"written_tokens_{name}": tokens for name, tokens in sorted(written.items())}
        dollars = terms.money(fresh, total.cached_tokens)
        if dollars is not None:
            dollars += sum(terms.money(0, 0, tokens, ttl=name) or 0.0 for name, tokens in written.items())
            found["input_dollars"] = round(dollars, 6)
            found["input_dollars_without_cache"] = round(terms.money(total.prompt_tokens, 0) or 0.0, 6)
        return found

    def _times(self) -> dict[str, float] | None:
        if not self._waits:
            return None
        waits = sorted(self._waits)

        def quantile(share: float) -> float:
            return round(waits[min(len(waits) - 1, int(share * len(waits)))], 6)

        return {"ttft_p50_s": quantile(0.5), "ttft_p99_s": quantile(0.99), "end_s": round(max(self._ends), 6)}


def _never_evicts(setup: Setup) -> bool:
    """Whether the run is one radix cache without limit and one request at a time: pages apart, no setting of the engine then changes a number."""
    return setup.engine == "sglang" and setup.capacity is None and setup.schedule is None and setup.replicas == 1


class _Beside:
    """What runs beside a simulation, over the same requests in file order, to say what the result could have been.

    The upper bounds; the same memory in one cache, one request at a time; and that with the other eviction policies that
    a server offers. With several replicas the memory is that of all of them together.
    """

    def __init__(self, run: _TokenRun, unit: int) -> None:
        setup = run.setup
        self._share = run.share
        self._unit = unit
        self._warm_up = setup.warm_up
        self._room = setup.capacity
        self._capacity = None if setup.capacity is None else setup.capacity * setup.replicas
        self._bounds = Bounds(self._capacity, unit)
        policies = set(OFFERED if setup.engine == "sglang" and self._capacity is not None else ()) - {setup.eviction}
        if setup.schedule or setup.replicas > 1:  # else the run itself is that
            policies.add(setup.eviction)
        self._others = {name: (run.cache(self._capacity, name), Sums()) for name in sorted(policies)}
        self._own = setup.eviction

    def watching(self, requests: Iterable[Request]) -> Iterator[Request]:
        """The requests, each seen here first; those that do not fit are left out, as in the run itself."""
        count = 0
        for request in requests:
            pages = -(-max(len(request.prompt), len(request.stored)) // (self._unit * TOKEN_BYTES))
            if self._room is None or pages * self._unit <= self._room:
                count += 1
                counted = count > self._warm_up
                self._bounds.add(request, counted=counted)
                for cache, sums in self._others.values():
                    outcome = cache.admit(request)
                    if counted:
                        sums.add(outcome, self._unit)
            yield request

    def judge(self, reached: Sums) -> tuple[dict[str, float | None], str | None]:
        """The bounds by the run's denominator, and the bottleneck of the run.

        content    nine tenths of what the content allows are reached
        schedule   else, the same memory in one cache, one request at a time, would gain most
        policy     else, another eviction policy on offer would gain more than half of what memory without limit would
        capacity   else
        """
        rates = {name: sums.hit_rate for name, (_, sums) in self._others.items()}
        plain = rates.pop(self._own, reached.hit_rate)
        sums = self._others[self._own][1] if self._own in self._others else reached
        if not sums.prompt_tokens:
            return {}, None
        tokens = self._bounds.tokens()
        bounds = {
            "content": self._share(tokens.content, sums),
            "capacity": self._share(tokens.capacity, sums),
            "depth_first": None if tokens.depth_first is None else self._share(tokens.depth_first, sums),
        }
        content = tokens.content / sums.prompt_tokens
        return bounds, bottleneck(reached.hit_rate, plain, content, rates.values())


def bottleneck(reached: float, plain: float, content: float, others: Iterable[float]) -> str:
    """See `_Beside.judge`. `plain` is the hit rate without scheduler and router, `others` under other policies."""
    if reached >= ENOUGH * content:
        return "content"
    if plain - reached > content - plain:
        return "schedule"
    best = max(others, default=plain)
    return "policy" if best - plain > (content - plain) / 2 else "capacity"


def _provider_terms(setup: Setup) -> Any:
    from promptlint.catalog.providers import page_for, resolve

    page = page_for(setup.engine, setup.model, setup.extra_rules)
    if page is None:
        raise UserError(
            f"unknown engine {setup.engine!r}: {', '.join(ENGINES)}, or a provider of `promptlint providers`"
        )
    return resolve(page, setup.model)
