"""What a workload would do on an engine: both engines' cache models and schedulers on the same traffic, with the cost model's service times.

The closed loop keeps a number of requests under way and gives throughput at saturation; when the description has an arrival rate, requests also arrive at their times
and that run gives the times to the first token. The first requests fill the caches one after the other, before the clock starts: what is compared is a server that has
been up for a while, not how well it starts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from promptlint.advisor.workload import BlockSpec, Workload, best_order, synthesise, warm_up
from promptlint.caches.fleet import Fleet, glide, paced, router
from promptlint.caches.paged import PagedCache
from promptlint.caches.paged_scheduler import PagedScheduler
from promptlint.caches.radix import RadixCache
from promptlint.caches.radix_scheduler import RadixScheduler
from promptlint.caches.request import Request
from promptlint.caches.schedule import Finished, Scheduler, Step
from promptlint.catalog.engines import Engine, load_engines
from promptlint.catalog.hardware import Gpu, resolve_gpu
from promptlint.catalog.models import Model, resolve_model
from promptlint.errors import UserError
from promptlint.serving.capacity import Capacity, capacity, kv_bytes_per_token
from promptlint.serving.cost import MAX_BATCH, Cost, amdahl_bound, speedup_bound, steady_state

__all__ = ["EngineResult", "Lever", "Pool", "levers", "pool_of", "simulate"]

MAX_REPLICAS = 8  # simulated; a larger fleet is scaled down together with its arrivals
TIMED_REQUESTS = 300  # of the run by arrival times, whose many small steps are slow to simulate
UTILISATION = 0.8  # a replica is planned to be busy this share of the time


@dataclass(frozen=True, slots=True)
class Pool:
    """The hardware side of a workload: model, GPU, and the KV pool of one replica."""

    model: Model
    gpu: Gpu
    capacity: Capacity
    tokens: int  # of the KV pool, host tier included
    host_tokens: int

    def cost(self, workload: Workload, engine: str) -> Cost:
        """The cost model of one replica under an engine."""
        return Cost(
            self.model,
            self.gpu,
            workload.tensor_parallel,
            workload.kv_dtype,
            workload.weights or None,
            decode_penalty=workload.decode_penalty.get(engine, 1.0),
        )


@dataclass(frozen=True, slots=True)
class EngineResult:
    """One engine and schedule on the workload. Rates are of the whole pool, times of a request; `seconds` are means per request and `share` their shares."""

    engine: str
    schedule: str
    unit: int
    hit_rate: float
    prompt_tokens: int
    prefill_tokens: int
    requests_per_second: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    seconds: dict[str, float]
    refused: int

    @property
    def share(self) -> dict[str, float]:
        """Shares of a request's time: prefill, decode, queue."""
        total = sum(self.seconds.values())
        return {name: value / total if total else 0.0 for name, value in self.seconds.items()}


@dataclass(frozen=True, slots=True)
class Lever:
    """What one change brings over the workload as it is, on the engine that runs. `gain` is a factor on throughput, `gpus` meet the bound on the first token."""

    name: str
    change: str
    hit_rate: float
    hit_rate_gain: float
    requests_per_second: float
    gain: float
    gpus: int | None


def pool_of(workload: Workload) -> Pool:
    """The pool of a workload. Raises UserError when the model does not fit the GPU, or a request neither the pool nor the model's context."""
    try:
        return _pool_of(workload)
    except UserError as error:
        where = workload.source or workload.name
        raise error if str(error).startswith(where) else UserError(f"{where}: {error}") from error


def _pool_of(workload: Workload) -> Pool:
    model, gpu = resolve_model(workload.model, workload.extra_rules), resolve_gpu(workload.gpu, workload.extra_rules)
    longest = workload.longest_tokens
    if model.context and longest > model.context:
        raise UserError(
            f"a request of {longest:,} tokens (prompt{', history' if longest > workload.prompt_tokens + workload.output else ''} and answer) is longer than the "
            f"{model.context:,} tokens that {model.name} reads"
        )
    found = capacity(
        model,
        gpu,
        tensor_parallel=workload.tensor_parallel,
        data_parallel=1,
        kv_dtype=workload.kv_dtype,
        weights=workload.weights or None,
        context=longest if model.window_layers or model.linear_layers else 0,
    )
    per_token = (
        kv_bytes_per_token(model, kv_dtype=workload.kv_dtype, parallel=workload.tensor_parallel)
        * workload.tensor_parallel
    )
    host = int(workload.host_cache_gb * 1e9 / per_token)
    if longest > found.tokens:
        raise UserError(
            f"a request of {longest:,} tokens does not fit into the {found.tokens:,} tokens that {model.name} leaves on {gpu.name}"
        )
    return Pool(model, gpu, found, found.tokens + host, host)


def _fleet(workload: Workload, pool: Pool, engine: Engine, schedule: str, earlier: Sequence[Request]) -> Fleet:
    """The replicas of one engine behind the workload's router, which have served the earlier requests."""
    unit, _ = engine.unit_for(pool.model, pool.gpu)
    step = engine.step_tokens(pool.gpu)
    count = min(workload.replicas, MAX_REPLICAS)
    caches: list[PagedCache] | list[RadixCache]
    if engine.name == "vllm":
        paged = [PagedCache(pool.tokens, unit) for _ in range(count)]
        caches = paged
        replicas: list[Scheduler] = [
            PagedScheduler(one, schedule, max_batched_tokens=step, max_running=MAX_BATCH) for one in paged
        ]
    else:
        radix = [RadixCache(pool.tokens, unit, chunk=step) for _ in range(count)]
        caches = radix
        replicas = [RadixScheduler(one, schedule, max_running=MAX_BATCH) for one in radix]
    routing = router(workload.router, count)
    served = [0] * count
    for request in earlier:
        index = routing.route(request, served)
        caches[index].admit(request)
        served[index] += 1
    return Fleet(replicas, routing)


def _isolated(requests: Iterable[Request]) -> list[Request]:
    """The same requests, none of which may reuse another's tokens: an engine with its prefix cache off."""
    return [replace(request, namespace=f"off-{index}") for index, request in enumerate(requests)]


def _service(cost: Cost) -> Callable[[Step], float]:
    def seconds(step: Step) -> float:
        if not (step.prefill_tokens or step.decodes):
            return 1e-4  # a turn in which nothing fits: the scheduler asks again at once
        return cost.step(
            new=step.prefill_tokens,
            cached=step.context_tokens,
            prefills=step.prefills,
            decodes=step.decodes,
            context=step.decode_context,
        )

    return seconds


def _saturated(
    fleet: Fleet, requests: Sequence[Request], service: Callable[[Step], float], window: int
) -> Iterator[Finished]:
    """A closed loop with a clock: `window` requests are under way until the traffic ends.

    Each replica has a clock of its own. The one whose next step that does more than decode begins first makes that step; a replica that is sent a request has
    first come as far as the moment in which it is sent.
    """
    feed = iter(requests)
    clocks = [0.0] * len(fleet.replicas)
    due: dict[int, float] = {}  # of each busy replica: when that step begins
    sent: dict[object, float] = {}
    first: dict[object, float] = {}
    now = 0.0

    def look(index: int) -> None:
        calm = fleet.replicas[index].calm()
        due[index] = clocks[index] + (calm.steps * service(calm.mean(calm.steps)) if calm.steps else 0.0)

    while True:
        while len(sent) < window and (request := next(feed, None)) is not None:
            index = fleet.choose(request)
            replica = fleet.replicas[index]
            clocks[index] = max(clocks[index], now) if replica.idle else glide(replica, clocks[index], now, service)
            fleet.give(index, request)
            sent[request.id] = now
            look(index)
        if not due:
            return
        index = min(due, key=due.__getitem__)
        clocks[index] = glide(fleet.replicas[index], clocks[index], math.inf, service)
        step = fleet.advance(index)
        clocks[index] += service(step)
        now = clocks[index]
        for request in step.first_tokens:
            first.setdefault(request.id, now)
        for done in step.finished:
            name = done.request.id
            yield Finished(done.request, done.outcome, sent.pop(name), first.pop(name, now), now)
        if fleet.replicas[index].idle:
            del due[index]
        else:
            look(index)


def simulate(
    workload: Workload, pool: Pool, requests: Sequence[Request], engine: str, schedule: str = "", *, timed: bool = True
) -> EngineResult:
    """Run the requests through one engine over the pool's replicas.

    With `timed` and an arrival rate, a second run by arrival times gives the times to the first token; else they are those at saturation.
    """
    kind = load_engines()[engine]
    schedule = schedule or kind.schedules[0]
    replicas = min(workload.replicas, MAX_REPLICAS)
    scale = workload.replicas / replicas
    service = _service(pool.cost(workload, engine))
    window = max(1, round(workload.concurrency / scale))
    start = warm_up(workload, len(requests))
    earlier, requests = requests[:start], requests[start:]
    finished = list(_saturated(_fleet(workload, pool, kind, schedule, earlier), requests, service, window))
    rate = len(finished) / max(done.end for done in finished) * scale
    counted = [done for done in finished if done.outcome.refused is None]
    refused = sum(done.outcome.refused is not None for done in finished)
    timed_runs = finished
    if timed and workload.arrivals:
        stretched = [replace(request, timestamp=request.timestamp * scale) for request in requests[:TIMED_REQUESTS]]
        timed_runs = list(paced(_fleet(workload, pool, kind, schedule, earlier), stretched, service))
    cost = pool.cost(workload, engine)
    floor = pool.gpu.host_floor_ms / 1e3
    ttfts = sorted(done.first_token - done.arrival + floor for done in timed_runs)
    prompt = sum(done.outcome.prompt_tokens for done in counted)
    cached = sum(done.outcome.cached_tokens for done in counted)
    return EngineResult(
        engine,
        schedule,
        kind.unit_for(pool.model, pool.gpu)[0],
        cached / prompt if prompt else 0.0,
        sum(done.outcome.prompt_tokens for done in finished),
        sum(done.outcome.prompt_tokens - done.outcome.cached_tokens for done in finished),
        rate,
        _quantile(ttfts, 0.50) * 1e3,
        _quantile(ttfts, 0.99) * 1e3,
        _split(timed_runs, cost),
        refused,
    )


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else 0.0


def _split(finished: Sequence[Finished], cost: Cost) -> dict[str, float]:
    """Mean seconds of a request: its own prefill if it ran alone, decoding, and the rest of the wait for the first token."""
    count = max(1, len(finished))
    prefill = queue = decode = 0.0
    for done in finished:
        waited = done.first_token - done.arrival
        own = min(
            waited, cost.prefill(done.outcome.prompt_tokens - done.outcome.cached_tokens, done.outcome.cached_tokens)
        )
        prefill += own
        queue += waited - own
        decode += done.end - done.first_token
    return {"prefill": prefill / count, "decode": decode / count, "queue": queue / count}


def content_bound(workload: Workload, requests: Sequence[Request]) -> float:
    """Hit rate of one cache without limit, page 1, warmed up like every other figure: no engine, schedule or capacity exceeds it by more than the warm-up's luck."""
    cache = RadixCache()
    outcomes = [cache.admit(request) for request in requests]
    kept = outcomes[warm_up(workload, len(outcomes)) :]
    prompt = sum(outcome.prompt_tokens for outcome in kept)
    return sum(outcome.cached_tokens for outcome in kept) / prompt if prompt else 0.0


def pressure(workload: Workload, pool: Pool, requests: Sequence[Request]) -> float:
    """Tokens wanted at once / tokens of one replica's pool; from 1 on, something is evicted that would have been reused.

    Wanted are the capacity at which one request after the other reaches 95 % of what an unlimited cache reaches (by bisection over the radix tree, in arrival
    order), and the tokens of the other requests that are under way.
    """
    share = requests[:: min(workload.replicas, MAX_REPLICAS)] if workload.router == "round-robin" else requests
    goal = 0.95 * _replay_hits(share, None)
    longest = max(request.prompt_tokens + request.output_tokens for request in share)
    low, high = longest, sum(request.prompt_tokens + request.output_tokens for request in share)
    while high > 1.03 * low:
        middle = (low + high) // 2
        if _replay_hits(share, middle) >= goal:
            high = middle
        else:
            low = middle
    window = min(MAX_BATCH, max(1, workload.concurrency / workload.replicas))  # what waits holds no tokens
    bound = content_bound(workload, requests)
    private = sum(request.prompt_tokens * (1 - bound) + request.output_tokens for request in share) / len(share)
    return (high + (window - 1) * private) / pool.tokens


def _replay_hits(requests: Sequence[Request], tokens: int | None) -> int:
    """Cached tokens of one request after the other in a tree of that size."""
    cache = RadixCache(tokens)
    return sum(cache.admit(request).cached_tokens for request in requests)


def gpus_needed(workload: Workload, pool: Pool, result: EngineResult) -> int | None:
    """GPUs that serve the arrival rate at the planned utilisation and keep the mean time to the first token under the bound. None without an arrival rate.

    Queueing by M/D/1: a request waits rho / (2 (1 - rho)) prefill times before its own. None too when a prefill alone is longer than the bound.
    """
    if not workload.arrivals or result.requests_per_second <= 0:
        return None
    per_replica = result.requests_per_second / workload.replicas
    replicas = max(1, math.ceil(workload.arrivals / (per_replica * UTILISATION)))
    if workload.ttft_ms:
        cost = pool.cost(workload, result.engine)
        mean = workload.prompt_tokens
        prefill = cost.prefill(mean * (1 - result.hit_rate), mean * result.hit_rate)
        floor = pool.gpu.host_floor_ms / 1e3
        if prefill + floor > workload.ttft_ms / 1e3:
            return None
        while True:
            load = workload.arrivals / (replicas * per_replica)
            wait = load / (2 * (1 - load)) * prefill if load < 1 else math.inf
            if wait + prefill + floor <= workload.ttft_ms / 1e3:
                break
            replicas += 1
    return replicas * workload.tensor_parallel


@dataclass(frozen=True, slots=True)
class _Variant:
    """One change of the workload, as a lever applies it."""

    name: str
    change: str
    apply: Callable[[Workload], Workload]
    order: bool = False  # sends the blocks in the best order
    engine: str = ""  # runs on this engine with its best schedule
    schedules: tuple[str, ...] = ()


def levers(
    workload: Workload, base: EngineResult, engines: Sequence[EngineResult] = (), given: Given | None = None
) -> tuple[list[tuple[Lever, Lever]], EngineResult]:
    """Each lever alone and on top of those before it, in the order prompts, routing, capacity, settings, engine; and the result with all but the engine.

    A lever that changes nothing (prompts in their best order already, one replica) is listed with a gain of 1, and so is, in the best order, one that would only cost. `engines` are results on the workload as it is.
    """
    found: list[tuple[Lever, Lever]] = []
    runs = _Runs(workload, engines, given)
    grown, ordered = workload, False
    schedules: tuple[str, ...] = ()
    tuned = base
    for variant in _variants(workload, base, given):
        alone = runs.best(variant.apply(workload), variant.engine, order=variant.order, schedules=variant.schedules)
        if variant.engine != base.engine:
            stacked = runs.best(grown, variant.engine, order=ordered, schedules=variant.schedules)
        else:
            tried = variant.apply(grown), ordered or variant.order, variant.schedules or schedules
            stacked = runs.best(tried[0], base.engine, order=tried[1], schedules=tried[2])
            if stacked.requests_per_second >= tuned.requests_per_second:
                grown, ordered, schedules = tried
                tuned = stacked
            else:  # a lever that costs more than it brings is left out of what follows
                stacked = tuned
        found.append((_lever(variant, alone, base, workload), _lever(variant, stacked, base, grown)))
    return found, tuned


class _Runs:
    """Simulations at saturation, each made once: most levers change nothing on most workloads."""

    def __init__(self, workload: Workload, known: Sequence[EngineResult], given: Given | None) -> None:
        self._given = given
        self._known = {self._key(workload, result.engine, result.schedule, order=False): result for result in known}
        by_engine: dict[str, EngineResult] = {}
        for result in known:
            if (
                result.engine not in by_engine
                or result.requests_per_second > by_engine[result.engine].requests_per_second
            ):
                by_engine[result.engine] = result
        self._fastest = {engine: result.schedule for engine, result in by_engine.items()}

    @staticmethod
    def _key(workload: Workload, engine: str, schedule: str, *, order: bool) -> tuple[object, ...]:
        return (workload.kv_dtype, workload.router, workload.prefix_caching, engine, schedule, order)

    def best(self, workload: Workload, engine: str, *, order: bool, schedules: tuple[str, ...]) -> EngineResult:
        """The schedule with the highest throughput. Where several may be chosen and one is known to win on the workload as it is, that one stands for all."""
        if self._given is not None:
            order = order and self._given.then != self._given.now
        else:
            order = order and (workload.order == "mixed" or best_order(workload.prompt) != workload.prompt)
        names = schedules or load_engines()[engine].schedules[:1]
        if len(names) > 1 and engine in self._fastest:
            names = (self._fastest[engine],)
        return max(
            (self._run(workload, engine, name, order=order) for name in names),
            key=lambda result: result.requests_per_second,
        )

    def _run(self, workload: Workload, engine: str, schedule: str, *, order: bool) -> EngineResult:
        key = self._key(workload, engine, schedule, order=order)
        if key not in self._known:
            requests = traffic(workload, best_order(workload.prompt) if order else None, self._given)
            self._known[key] = simulate(workload, pool_of(workload), requests, engine, schedule, timed=False)
        return self._known[key]


@dataclass(frozen=True, slots=True)
class Given:
    """Real traffic in place of a description: the requests as they were sent, and the same in the recommended order (or as they were, where none is better)."""

    now: tuple[Request, ...]
    then: tuple[Request, ...]


def traffic(workload: Workload, order: Sequence[BlockSpec] | None = None, given: Given | None = None) -> list[Request]:
    """The requests of a workload as its engine sees them: without a prefix cache no two share a token. With `given` traffic any `order` means the recommended one."""
    if given is not None:
        requests = list(given.now if order is None else given.then)
    else:
        requests = synthesise(workload, order=order)
    return requests if workload.prefix_caching else _isolated(requests)


def _variants(workload: Workload, base: EngineResult, given: Given | None) -> list[_Variant]:
    def fp8(one: Workload) -> Workload:
        return replace(one, kv_dtype="fp8") if one.kv_dtype in {"bf16", "fp16"} else one

    settings = load_engines()[base.engine].schedules
    other = "sglang" if base.engine == "vllm" else "vllm"
    capacity_text = (
        "KV cache in fp8 (twice the tokens)"
        if workload.kv_dtype in {"bf16", "fp16"}
        else "KV cache is in 8 bits already"
    )
    settings_text = "prefix caching on" if not workload.prefix_caching else ""
    if len(settings) > 1:
        settings_text = ", ".join(filter(None, (settings_text, f"schedule {' or '.join(settings[1:])}")))
    return [
        _Variant(
            "prompts",
            "the recommended orders"
            if given
            else "blocks in the order " + ", ".join(block.label for block in best_order(workload.prompt)),
            lambda one: one,
            order=True,
            engine=base.engine,
        ),
        _Variant(
            "routing",
            "cache-aware router" if workload.replicas > 1 else "one replica: nothing to route",
            lambda one: replace(one, router="cache-aware") if one.replicas > 1 else one,
            engine=base.engine,
        ),
        _Variant("capacity", capacity_text, fp8, engine=base.engine),
        _Variant(
            "settings",
            settings_text or "defaults are in force",
            lambda one: replace(one, prefix_caching=True),
            engine=base.engine,
            schedules=settings,
        ),
        *(
            [
                _Variant(
                    "engine",
                    f"{other} with its best schedule",
                    lambda one: one,
                    engine=other,
                    schedules=load_engines()[other].schedules,
                )
            ]
            if other in workload.engines
            else []
        ),
    ]


def _lever(variant: _Variant, result: EngineResult, base: EngineResult, workload: Workload) -> Lever:
    return Lever(
        variant.name,
        variant.change,
        result.hit_rate,
        result.hit_rate - base.hit_rate,
        result.requests_per_second,
        result.requests_per_second / base.requests_per_second if base.requests_per_second else 1.0,
        gpus_needed(workload, pool_of(variant.apply(workload)), result),
    )


def bounds(workload: Workload, pool: Pool, hit_rate: float) -> dict[str, float]:
    """What caching can bring at most: 1 / (1 - h), and Amdahl's law with the prefill share of GPU time without a cache."""
    state = steady_state(
        pool.cost(workload, "vllm"),
        prompt=workload.prompt_tokens,
        output=workload.output,
        pool_tokens=pool.tokens,
        concurrency=max(1, workload.concurrency / workload.replicas),
    )
    return {
        "prefill_share": state.prefill_share,
        "simple": speedup_bound(hit_rate),
        "amdahl": amdahl_bound(hit_rate, state.prefill_share),
    }
