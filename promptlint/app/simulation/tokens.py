"""A run over tokens: an engine's cache or a provider's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from promptlint.app.simulation.beside import Beside
from promptlint.app.simulation.by_model import ByModel, Priced, model_of, summed
from promptlint.app.simulation.run import Run
from promptlint.app.simulation.sample import Sampler
from promptlint.app.simulation.setup import ENGINES, VERSIONS, Setup
from promptlint.caches.endless import EndlessCache
from promptlint.caches.fleet import Fleet, paced, router, serve
from promptlint.caches.paged import PagedCache
from promptlint.caches.paged_scheduler import PagedScheduler
from promptlint.caches.radix import RadixCache
from promptlint.caches.radix_scheduler import RadixScheduler
from promptlint.caches.request import TOKEN_BYTES, Outcome, Request
from promptlint.caches.schedule import Finished, Scheduler, closed_loop
from promptlint.caches.tally import Sums
from promptlint.catalog.providers import Terms
from promptlint.errors import UserError
from promptlint.report.simulate import CurvePoint, ReplicaRow, SimulateReport

__all__ = ["TokenRun"]

_REPLAYED = frozenset(
    ("mode", "block", "minimum", "lookback", "max_breakpoints", "ttl", "read", "write")
)  # terms that a replay rests on
CURVE_POINTS = 8  # capacities that are tried side by side


class TokenRun(Run):
    """An engine or a provider over tokens: one cache or a fleet, one request at a time or under a scheduler."""

    def __init__(self, setup: Setup, sampler: Sampler | None) -> None:
        self._terms_of: dict[str, Terms] = {}  # by model, of a provider
        self._priced: dict[str, Priced] = {}  # by model, in order of appearance
        # An engine that nobody knows is said now, not at the first request.
        unit = max(1, _provider_terms(setup, setup.model).block) if setup.is_provider else setup.unit
        super().__init__(setup, unit, sampler)
        self._endless = EndlessCache(unit) if _never_evicts(setup) else None
        needs_bounds = setup.bounds and not setup.is_provider and self._endless is None
        self._beside = Beside(setup, unit, self.cache, self.share) if needs_bounds else None
        self._depth_first = 0
        self._apart = setup.replicas > 1
        self._is_priced = setup.is_provider
        self.replica_sums = [Sums() for _ in range(setup.replicas)] if self._apart else [self.tally.total]
        self.stats: dict[str, int] = {}
        self._spilled = 0  # of runs that were absorbed
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

        return ByModel(
            self._terms, lambda terms: ProviderCache(terms, ttl=setup.ttl, delay=setup.delay, overflow=setup.overflow)
        )

    def partial(self) -> dict[str, Any]:
        bounds = None if self._beside is None else self._beside.partial()
        spilled = sum(getattr(cache, "spilled", 0) for cache in self._caches)
        own = {"depth_first": self._depth_first, "routed": self._routed, "bounds": bounds, "spilled": spilled}
        priced = {model: part.partial() for model, part in self._priced.items()}
        return super().partial() | own | {"priced": priced}

    def absorb(self, partial: Mapping[str, Any]) -> None:
        super().absorb(partial)
        self._depth_first += partial["depth_first"]
        self._routed = self._routed or partial["routed"]
        self._spilled += partial["spilled"]
        for model, counts in partial["priced"].items():
            self._priced.setdefault(model, Priced(self._terms(model), self.setup.ttl)).absorb(counts)
        if self._beside is not None:
            self._beside.absorb(partial["bounds"])

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
        tally, warm_up = self.tally, self.setup.warm_up
        for request in requests:
            before = cache.depth_first
            self.note(request, cache.admit(request))
            if tally.served > warm_up:
                self._depth_first += cache.depth_first - before

    def _served(self, request: Request, replica: int, outcome: Outcome) -> None:
        if self._is_priced:
            self._note_price(request, outcome)
        self.note(request, outcome)
        self._routed = self._routed or bool(request.route)
        if outcome.refused is not None:
            return
        if self._apart and self.tally.served > self.setup.warm_up:
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
        if self.setup.is_provider:
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
        elif setup.is_provider:
            settings = self._provider_settings()
        if setup.replicas > 1:
            settings |= {"replicas": setup.replicas, "router": setup.router}
        return SimulateReport(
            engine=setup.engine,
            engine_version=VERSIONS.get(
                setup.engine, f"terms of {self._terms('').verified}" if setup.is_provider else ""
            ),
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

    def _provider_settings(self) -> dict[str, Any]:
        """The terms that the replay rests on; of several models, each value once."""
        every = [self._priced[model].terms for model in sorted(self._priced)]
        settings: dict[str, Any] = {
            "mode": _each(terms.mode for terms in every),
            "minimum": _each(terms.minimum for terms in every),
            "model": _each(terms.model or "default" for terms in every),
        }
        weak = dict.fromkeys(name for terms in every for name in terms.low_confidence if name in _REPLAYED)
        if weak:
            settings["low_confidence"] = " and ".join(weak)
        if any(terms.routing_needed for terms in every) and not self._routed:
            settings["routing"] = "one machine, as with a routing key: an upper bound"
        if spilled := sum((cache.spilled for cache in self._caches), self._spilled):
            rate = _each(terms.overflow_rpm for terms in every if terms.overflow_rpm is not None)
            settings["overflow"] = f"{spilled:,} requests above {rate} a minute"
        return settings

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

    def _terms(self, model: str) -> Terms:
        """The provider's terms of a model: of the one that the set-up names, else of the request's own."""
        model = self.setup.model or model
        if model not in self._terms_of:
            self._terms_of[model] = _provider_terms(self.setup, model)
        return self._terms_of[model]

    def _note_price(self, request: Request, outcome: Outcome) -> None:
        """Count what a request costs, under the terms of its model."""
        model = self.setup.model or model_of(request)
        if model not in self._priced:
            self._priced[model] = Priced(self._terms(model), self.setup.ttl)
        if outcome.refused is None and self.tally.served >= self.setup.warm_up:
            self._priced[model].add(outcome)

    def _cost(self) -> dict[str, Any] | None:
        """Input cost relative to no caching, and dollars where prices are listed."""
        return summed(list(self._priced.values())) if self._priced else None

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


def _each(values: Iterable[Any]) -> Any:
    """The value that all have, else all of them in a text, at most four."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) == 1:
        return distinct[0]
    return "/".join(map(str, distinct[:4])) + ("/…" if len(distinct) > 4 else "")


def _provider_terms(setup: Setup, model: str) -> Terms:
    from promptlint.catalog.providers import page_for, resolve

    page = page_for(setup.engine, model, setup.extra_rules)
    if page is None:
        raise UserError(
            f"unknown engine {setup.engine!r}: {', '.join(ENGINES)}, or a provider of `promptlint providers`"
        )
    return resolve(page, model)
