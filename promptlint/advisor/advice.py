"""Everything that is said about one pool: engines side by side, levers, the verdict with its reasons, caveats, and what would change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from promptlint.advisor.estimate import (
    EngineResult,
    Given,
    Lever,
    Pool,
    bounds,
    content_bound,
    levers,
    pool_of,
    pressure,
    simulate,
    traffic,
)
from promptlint.advisor.verdict import Facts, Reason, RuleBook, Verdict, decide
from promptlint.advisor.workload import (
    MAX_REQUESTS,
    BlockSpec,
    Workload,
    best_order,
    check,
    synthesise,
    tokens_of,
    warm_up,
)
from promptlint.caches.breakpoint import ProviderCache
from promptlint.caches.request import Request
from promptlint.catalog.engines import Caveat, load_engines
from promptlint.catalog.providers import Terms, page_for, resolve
from promptlint.errors import UserError
from promptlint.serving.cost import break_even_requests

__all__ = ["PoolAdvice", "advise_pool"]

_RULE = "rules/verdict.toml"
_SIMULATED = "simulation of SGLang 0.5.23 and vLLM 0.32.0"
_PRESSURES = (0.7, 0.5, 0.35, 0.25)  # shares of the pool at which the tipping point is looked for


@dataclass(frozen=True, slots=True)
class Cause:
    """What may explain an observed hit rate, and the command that confirms it."""

    cause: str
    why: str
    confirm_with: str


@dataclass(frozen=True, slots=True)
class PoolAdvice:
    """The advice on one pool. `facts` are what the rule saw; `tipping` is None when nothing that was tried tips the verdict."""

    workload: Workload
    pool: Pool | None
    engines: tuple[EngineResult, ...]
    levers: tuple[tuple[Lever, Lever], ...]
    facts: Facts
    verdict: Verdict
    reasons: tuple[Reason, ...]
    caveats: tuple[str, ...]
    would_change_if: tuple[str, ...]
    order_now: tuple[str, ...]
    order_then: tuple[str, ...]
    measurement: str
    causes: tuple[Cause, ...] = ()


def advise_pool(workload: Workload, book: RuleBook, *, tipping: bool = True, given: Given | None = None) -> PoolAdvice:
    """Simulate, look at the levers, and decide. With `given` real traffic is simulated, and the description only says what serves it.

    Raises UserError for a description that cannot be true.
    """
    if given is not None:
        given = _answered(workload, given)
        workload = _as_sent(workload, given)
    check(workload)
    if workload.current == "provider":
        if given is not None:
            raise UserError(
                f"{workload.source or workload.name}: traffic of a provider is replayed by `promptlint simulate --engine {workload.provider}`"
            )
        return _advise_provider(workload, book)
    pool = pool_of(workload)
    requests = traffic(workload, given=given)
    bound = content_bound(workload, requests)
    _check_observed(workload, bound)
    kinds = load_engines()
    engines = [
        simulate(workload, pool, requests, name, schedule)
        for name in workload.engines
        for schedule in kinds[name].schedules
    ]
    base = _current(workload, engines)
    found, tuned = levers(workload, base, engines, given)
    facts = _facts(workload, pool, requests, engines, base, found, tuned, bound, book, given)
    verdict = decide(facts, book)
    reasons = _reasons(facts, workload, verdict, book)
    if not facts["plain_attention"]:  # these would be the figures of another model
        engines = []
        found = [pair for pair in found if pair[0].name == "prompts" and verdict.verdict == "fix-prompts-first"]
    changes = [
        *_would_change(facts, verdict, book),
        *(_tipping(workload, pool, requests, facts, book) if tipping else ()),
    ]
    return PoolAdvice(
        workload,
        pool,
        tuple(engines),
        tuple(found),
        facts,
        verdict,
        reasons,
        _caveats(workload, pool, base, requests),
        tuple(changes),
        () if workload.order == "mixed" or given else tuple(block.label for block in workload.prompt),
        () if given else tuple(block.label for block in best_order(workload.prompt)),
        _measurement(workload),
        _causes(workload, facts),
    )


def _answered(workload: Workload, given: Given) -> Given:
    """Traffic whose answers are known, or else have the length that the description states. Raises UserError when neither is known: decoding would cost nothing."""
    if all(request.output for request in given.now):
        return given
    if workload.output <= 1:
        raise UserError(
            f"{workload.source or workload.name}: output: the traffic does not say how long its answers are; state the mean number of tokens"
        )

    def filled(request: Request) -> Request:
        return (
            request
            if request.output
            else replace(request, output=tokens_of(workload.seed, ("output", request.id), workload.output))
        )

    return Given(tuple(filled(request) for request in given.now), tuple(filled(request) for request in given.then))


def _as_sent(workload: Workload, given: Given) -> Workload:
    """The workload with the mean sizes and the arrival rate that real traffic has."""
    count = len(given.now)
    prompt = max(1, round(sum(request.prompt_tokens for request in given.now) / count))
    output = max(1, round(sum(request.output_tokens for request in given.now) / count))
    times = [request.timestamp for request in given.now]
    span = max(times) - min(times)
    rate = workload.arrivals or ((count - 1) / span if span > 0 and times == sorted(times) else None)
    return replace(
        workload,
        prompt=(BlockSpec("other", prompt, name="prompts as sent"),),
        output=output,
        arrivals=rate,
        order="fixed",
        turns=1,
        branches=1,
        requests=count,
    )


def _advise_provider(workload: Workload, book: RuleBook) -> PoolAdvice:
    """The same for a pool that an API serves: its own cache terms, and what another order of the prompt would save. Engines do not come into it."""
    page = page_for(workload.provider, workload.model, workload.extra_rules)
    if page is None:
        raise UserError(
            f"{workload.source or workload.name}: provider {workload.provider!r} is not in rules/providers; see `promptlint providers`"
        )
    terms = resolve(page, workload.model)
    orders = (workload.prompt if workload.order != "mixed" else None, best_order(workload.prompt))
    now, then = (_provider_run(workload, terms, order) for order in orders)
    _check_observed(workload, content_bound(workload, synthesise(workload, order=orders[1])))
    facts: dict[str, float | bool | str] = {
        "current": "provider",
        "hit_rate": now.hit_rate,
        "content_bound": content_bound(workload, synthesise(workload)),
        "prompts.hit_rate_gain": then.hit_rate - now.hit_rate,
        "prompts.gain": now.cost / then.cost,
        "routing.hit_rate_gain": 0.0,
        "pressure": 0.0,
        "input_cost": now.cost,
        "input_cost_then": then.cost,
    }
    verdict = decide(facts, book)
    source = f"replay by the terms of {terms.title}, {terms.verified}"
    reasons = [
        Reason("hit_rate", now.hit_rate, "share of prompt tokens", source),
        Reason("prompts.hit_rate_gain", then.hit_rate - now.hit_rate, "share of prompt tokens", source),
        Reason("input_cost", now.cost, "share of the uncached input price, writes included", source),
        Reason("input_cost_then", then.cost, "the same in the best order", source),
    ]
    if terms.input_price is not None:
        facts |= {
            "input_dollars": now.dollars(terms.input_price),
            "input_dollars_then": then.dollars(terms.input_price),
        }
        prices = f"{terms.input_price:g} $ per million input tokens, {terms.title}, {terms.verified}"
        reasons += [
            Reason("input_dollars", now.dollars(terms.input_price), "$ per 1,000 requests, writes included", prices),
            Reason("input_dollars_then", then.dollars(terms.input_price), "the same in the best order", prices),
        ]
    if terms.read is not None:
        reasons.append(
            Reason(
                "break_even",
                break_even_requests(terms.write(), terms.read),
                "requests within a lifetime from which caching pays",
                source,
            )
        )
    caveats = [f"low-confidence terms: {', '.join(terms.low_confidence)}"] if terms.low_confidence else []
    caveats += [f"a prefix below {terms.minimum:,} tokens is not cached"] if terms.minimum else []
    lever = Lever(
        "prompts",
        "blocks in the order "
        + ", ".join(block.label for block in orders[1])
        + "; the gain is a factor on the input's cost",
        then.hit_rate,
        then.hit_rate - now.hit_rate,
        0.0,
        now.cost / then.cost,
        None,
    )
    return PoolAdvice(
        workload,
        None,
        (),
        ((lever, lever),),
        facts,
        verdict,
        tuple(reasons),
        tuple(caveats),
        tuple(_would_change(facts, verdict, book)),
        () if workload.order == "mixed" else tuple(block.label for block in workload.prompt),
        tuple(block.label for block in orders[1]),
        "promptlint diagnose TRAFFIC  (the usage fields of the provider's answers against these figures)",
        _causes(workload, facts),
    )


@dataclass(frozen=True, slots=True)
class _ProviderRun:
    hit_rate: float
    cost: float  # of the input, as a share of its uncached price
    prompt: float  # tokens of a request

    def dollars(self, price: float) -> float:
        """What the input of 1,000 requests costs at so many dollars per million tokens."""
        return self.cost * self.prompt * price / 1000


def _provider_run(workload: Workload, terms: Terms, order: Sequence[BlockSpec] | None) -> _ProviderRun:
    cache = ProviderCache(terms)
    outcomes = [cache.admit(request) for request in synthesise(workload, order=order)]
    kept = outcomes[warm_up(workload, len(outcomes)) :]
    prompt, cached, written = (
        sum(getattr(one, name) for one in kept) for name in ("prompt_tokens", "cached_tokens", "written_tokens")
    )
    read = 1.0 if terms.read is None else terms.read
    paid = prompt - cached - written + cached * read + written * terms.write()
    return _ProviderRun(cached / prompt, paid / prompt, prompt / len(kept))


def _check_observed(workload: Workload, bound: float) -> None:
    observed = workload.observed_hit_rate
    if observed is not None and observed > bound + 0.02:
        raise UserError(
            f"{workload.source or workload.name}: observed_hit_rate: {observed:.1%} is above {bound:.1%}, what a cache without limit reaches on the described prompts: "
            "the description shares less than the traffic did"
        )


def _current(workload: Workload, engines: Sequence[EngineResult]) -> EngineResult:
    """What runs today, on its default schedule; vLLM stands in where nothing or a provider runs."""
    wanted = workload.current if workload.current in workload.engines else "vllm"
    return next((result for result in engines if result.engine == wanted), engines[0])


def _best(engines: Sequence[EngineResult], name: str) -> EngineResult | None:
    return max(
        (result for result in engines if result.engine == name),
        key=lambda result: result.requests_per_second,
        default=None,
    )


def unknown_penalties(workload: Workload, pool: Pool) -> list[Caveat]:
    """Caveats that may cost SGLang speed on this GPU and that the description gives no factor for. Whoever runs SGLang already pays it."""
    if workload.current == "sglang" or "sglang" in workload.decode_penalty or "sglang" not in workload.engines:
        return []
    return [caveat for caveat in _applying(workload, pool) if caveat.cost_unknown]


def _applying(workload: Workload, pool: Pool) -> list[Caveat]:
    weights = workload.weights or pool.model.weights
    return [
        caveat
        for engine in load_engines().values()
        for caveat in engine.caveats
        if caveat.applies(pool.gpu, weights, structured=workload.structured > 0)
    ]


def _facts(  # each is a result that the facts are read from
    workload: Workload,
    pool: Pool,
    requests: Sequence[Request],
    engines: Sequence[EngineResult],
    base: EngineResult,
    found: Sequence[tuple[Lever, Lever]],
    tuned: EngineResult,
    bound: float,
    book: RuleBook,
    given: Given | None,
) -> dict[str, float | bool | str]:
    by_name = {alone.name: (alone, stacked) for alone, stacked in found}
    sglang, vllm = _best(engines, "sglang"), _best(engines, "vllm")
    low, high = book.thresholds["engine_factor_low"], book.thresholds["engine_factor_high"]
    facts: dict[str, float | bool | str] = {
        "current": workload.current,
        "only_sglang": workload.engines == ("sglang",),
        "only_vllm": workload.engines == ("vllm",),
        "plain_attention": not pool.model.special_attention,
        "attention": pool.model.special_attention or "plain",
        "hit_rate": base.hit_rate,
        "content_bound": bound,
        "pressure": pressure(workload, pool, requests),
        "cache_gain": _cache_gain(workload, pool, base, given),
        **{
            f"bound.{name}" if name != "prefill_share" else name: value
            for name, value in bounds(workload, pool, base.hit_rate).items()
        },
        "penalty_unknown": bool(unknown_penalties(workload, pool)),
        "measured": set(workload.measured) == {"sglang", "vllm"},
        "replicas": float(workload.replicas),
    }
    for name, (alone, _) in by_name.items():
        facts[f"{name}.gain"] = alone.gain
        facts[f"{name}.hit_rate_gain"] = alone.hit_rate_gain
    routing = by_name["routing"][1]
    facts["tuning.hit_rate_gain"] = tuned.hit_rate - routing.hit_rate
    facts["tuning.gain"] = by_name["settings"][1].gain / routing.gain if routing.gain else 1.0
    if sglang and vllm:
        gain = sglang.requests_per_second / vllm.requests_per_second
        facts |= {"engine_gain": gain, "engine_gain_low": gain * low, "engine_gain_high": gain * high}
        other = by_name["engine"][1].requests_per_second
        after = other / tuned.requests_per_second if base.engine == "vllm" else tuned.requests_per_second / other
        facts |= {"engine_gain_tuned": after, "engine_gain_tuned_low": after * low}
    if facts["measured"]:
        plain = workload.measured["sglang"] / workload.measured["vllm"]
        facts["measured_ratio"] = plain if workload.measured_ratio is None else workload.measured_ratio
    elif workload.measured:
        raise UserError(
            f"{workload.source or workload.name}: measured: requests a second of both engines are needed to compare them"
        )
    return facts


def _cache_gain(workload: Workload, pool: Pool, base: EngineResult, given: Given | None) -> float:
    """Throughput with the prefix cache over throughput without it, on the engine that runs."""
    with_cache, without = replace(workload, prefix_caching=True), replace(workload, prefix_caching=False)
    on = (
        base
        if workload.prefix_caching
        else simulate(with_cache, pool, traffic(with_cache, given=given), base.engine, base.schedule, timed=False)
    )
    off = (
        base
        if not workload.prefix_caching
        else simulate(without, pool, traffic(without, given=given), base.engine, base.schedule, timed=False)
    )
    return on.requests_per_second / off.requests_per_second


_LOW, _HIGH = "engine_factor_low", "engine_factor_high"  # stand for a source that names the threshold
_UNITS = {
    "hit_rate": ("share of prompt tokens", _SIMULATED),
    "content_bound": ("share of prompt tokens", "cache without limit"),
    "pressure": ("tokens wanted / tokens of the pool", "capacity formula and replay"),
    "cache_gain": ("factor on requests a second", _SIMULATED),
    "bound.simple": ("speed-up by caching at most, 1 / (1 - h)", "cost model"),
    "bound.amdahl": (
        "speed-up by time saved at most, given the prefill share; shared KV also makes room for a larger batch",
        "cost model",
    ),
    "prefill_share": ("share of GPU time without a cache", "cost model"),
    "prompts.gain": ("factor on requests a second", _SIMULATED),
    "prompts.hit_rate_gain": ("share of prompt tokens", _SIMULATED),
    "routing.gain": ("factor on requests a second", _SIMULATED),
    "routing.hit_rate_gain": ("share of prompt tokens", _SIMULATED),
    "capacity.gain": ("factor on requests a second", _SIMULATED),
    "settings.gain": ("factor on requests a second", _SIMULATED),
    "tuning.hit_rate_gain": ("share of prompt tokens", _SIMULATED),
    "tuning.gain": ("factor on requests a second", _SIMULATED),
    "engine_gain": ("SGLang / vLLM, requests a second", _SIMULATED),
    "engine_gain_low": ("SGLang / vLLM at the low end", _LOW),
    "engine_gain_high": ("SGLang / vLLM at the high end", _HIGH),
    "engine_gain_tuned": ("SGLang / vLLM after tuning", _SIMULATED),
    "engine_gain_tuned_low": ("SGLang / vLLM after tuning, low end", _LOW),
    "measured_ratio": ("SGLang / vLLM, requests a second", "your own measurement"),
    "attention": ("", "rules/models"),
    "penalty_unknown": ("", "rules/engines/sglang.toml"),
    "current": ("", "workload"),
}
_ALWAYS = (
    "hit_rate",
    "content_bound",
    "cache_gain",
    "bound.simple",
    "bound.amdahl",
    "prefill_share",
    "pressure",
    "engine_gain",
    "engine_gain_low",
    "engine_gain_high",
)


def _unit(name: str, book: RuleBook) -> tuple[str, str]:
    """Unit and source of a fact."""
    unit, source = _UNITS.get(name, ("", "workload"))
    return unit, f"simulation x {book.thresholds[source]:.2f}, {_RULE}" if source in {_LOW, _HIGH} else source


_UNMODELLED = (
    "attention",
    "content_bound",
    "prompts.hit_rate_gain",
)  # what can be said of a model whose attention is not modelled


def _reasons(facts: Facts, workload: Workload, verdict: Verdict, book: RuleBook) -> tuple[Reason, ...]:
    """The facts that the deciding rule looked at, then those that every reader asks for."""
    decided = [condition.split()[0] for condition in verdict.rule.when]
    asked = (*_ALWAYS, "measured_ratio", "prompts.hit_rate_gain") if facts["plain_attention"] else _UNMODELLED
    names = [name for name in dict.fromkeys((*decided, *asked)) if name in facts and name != "plain_attention"]
    reasons = [Reason(name, facts[name], *_unit(name, book)) for name in names]
    reasons = [replace(one, source=workload.measured_words) if one.fact == "measured_ratio" else one for one in reasons]
    if workload.structured:
        potential = (
            1 / (1 - workload.structured * workload.forced)
            if workload.structured * workload.forced < 1
            else float("inf")
        )
        reasons.append(
            Reason(
                "structured.potential",
                round(potential, 3),
                "factor on decode steps, not realised by either engine today",
                "share of forced tokens in the workload",
            )
        )
    return tuple(reasons)


def _caveats(workload: Workload, pool: Pool, base: EngineResult, requests: Sequence[Request]) -> tuple[str, ...]:
    found = [f"{caveat.fact} ({caveat.source}, {caveat.on})" for caveat in _applying(workload, pool)]
    model, gpu = pool.model, pool.gpu
    if model.special_attention:
        found.append(
            f"{model.name} has {model.special_attention} attention: prefix reuse of such layers is not modelled, so no figure of an engine is given; the content bound counts equal tokens only"
        )
    elif workload.arrivals and workload.arrivals > base.requests_per_second:
        found.append(
            f"{workload.arrivals:g} requests a second arrive and {base.requests_per_second:.2f} can be served: the queue grows without end, and times to the first token "
            "are those of the requests that were simulated"
        )
    values = max((block.distinct for block in workload.prompt), default=0)
    if values * 4 > len(requests):
        found.append(
            f"{len(requests):,} requests are simulated for a block of {values:,} values: reuse of values that come back later than that is not seen; "
            f"set `requests` (up to {MAX_REQUESTS:,}) to see more of it"
        )
    if model.is_moe:
        found.append(
            "the engine factor 0.95 to 1.29 is evidence from dense models; for a mixture of experts it is an assumption"
        )
    if not gpu.measured:
        found.append(f"the efficiencies of {gpu.name} are estimates that no measurement checked")
    unit, reason = load_engines()["sglang"].unit_for(model, gpu)
    if reason:
        found.append(f"SGLang is simulated with pages of {unit} tokens: {reason}")
    found.append(
        "the 29 % that is often quoted for SGLang was measured on unique prompts without reuse: it is engine overhead, not caching, and newer runs see parity"
    )
    found.append(
        "the verdict says nothing about the quality of answers; quantisation, context window and sampling defaults of a server do change them"
    )
    if workload.order == "mixed" or tuple(best_order(workload.prompt)) != workload.prompt:
        found.append(
            "moving text changes what a model reads: 12 of 15 templates kept their meaning in the SGLang paper (appendix D.2), accuracy moved by -6 to +14 points in the GGR paper"
        )
    return tuple(found)


_IN_WORDS = {
    "prompts.hit_rate_gain": "what another order of the prompt adds to the hit rate",
    "prompts.gain": "what another order of the prompt brings in throughput",
    "routing.hit_rate_gain": "what a cache-aware router adds to the hit rate",
    "routing.gain": "what a cache-aware router brings in throughput",
    "settings.gain": "what another setting of the running engine brings in throughput",
    "tuning.gain": "what room and settings together bring in throughput",
    "pressure": "the pool pressure (tokens wanted / tokens of the pool)",
    "cache_gain": "what caching brings in throughput",
    "engine_gain_low": "SGLang's throughput over vLLM's at the low end of the engine factor",
    "engine_gain_high": "SGLang's throughput over vLLM's at the high end of the engine factor",
    "engine_gain_tuned_low": "SGLang's throughput over that of the tuned engine at the low end of the engine factor",
}
_SYMBOLS = {">=": "is at least", ">": "is above", "<=": "is at most", "<": "is below", "==": "is", "!=": "is not"}


def _condition(name: str, symbol: str, word: str, value: float | bool | str, book: RuleBook) -> str:
    """A condition of the rule as a reader says it, with what the fact is today."""
    limit: float | str = book.thresholds.get(word, word)
    shown = f"{limit:.2f}" if isinstance(limit, float) else limit
    return f"{_IN_WORDS.get(name, name)} {_SYMBOLS[symbol]} {shown} (now {value:.2f})"


def _would_change(facts: Facts, verdict: Verdict, book: RuleBook) -> list[str]:
    changes = []
    for rule, condition in verdict.near:
        name, symbol, word = condition.split()
        if name in facts and isinstance(facts[name], float):
            changes.append(f"{rule.verdict} if {_condition(name, symbol, word, facts[name], book)}")
        elif name == "measured_ratio":
            changes.append(
                f"{rule.verdict} if your own run shows SGLang faster by {100 * (book.thresholds['margin'] - 1):.0f} % or more"
            )
    if facts.get("penalty_unknown"):
        changes.append(
            "the cost of disabled CUDA graphs once it is known: set decode_penalty.sglang to the measured factor (1 if graphs can be captured)"
        )
    if facts.get("current") == "provider":
        if verdict.verdict == "fix-prompts-first":
            changes.append(
                "once the prompt is in the recommended order: what is left is to stay, and to compare the bill with that of a server of one's own"
            )
        return changes
    if not facts.get("measured") and not any("your own run" in change for change in changes):
        changes.append(
            f"your own run of both engines on this workload, if one is faster by {100 * (book.thresholds['margin'] - 1):.0f} % or more"
        )
    return changes


def _tipping(workload: Workload, pool: Pool, requests: Sequence[Request], facts: Facts, book: RuleBook) -> list[str]:
    """The pool pressure from which SGLang's order and eviction win at the low end of the engine factor, found by shrinking the pool."""
    if "engine_gain" not in facts or not facts["plain_attention"]:
        return []
    low, margin = book.thresholds["engine_factor_low"], book.thresholds["margin"]
    if float(facts["engine_gain_low"]) >= margin:
        return []
    longest = max(request.prompt_tokens + request.output_tokens for request in requests)
    for share in _PRESSURES:
        target = _tokens_for(pool, float(facts["pressure"]), share)
        if target < 4 * longest:
            break
        tight = replace(pool, tokens=target)
        sglang = simulate(workload, tight, requests, "sglang", "lpm", timed=False)
        vllm = simulate(workload, tight, requests, "vllm", timed=False)
        if sglang.requests_per_second / vllm.requests_per_second * low >= margin:
            found = float(facts["pressure"]) * pool.tokens / target
            return [
                f"adopt-sglang if the pool pressure exceeds about {found:.1f} (now {float(facts['pressure']):.1f}): from there SGLang's lpm order wins at the low end of the engine factor"
            ]
    return []


def _tokens_for(pool: Pool, now: float, share: float) -> int:
    """Tokens of a pool under 1 / share pressure, if it is below that today; else that share of today's pool."""
    return int(pool.tokens * min(1.0, now) * share) if now < 1 else int(pool.tokens * share)


def _measurement(workload: Workload) -> str:
    source = f" --workload {workload.source}" if workload.source else ""
    return f"promptlint bench --target http://HOST:8000 --target http://HOST:30000{source}  (both servers, same GPU, same weights, warm and cold, at the arrival rate of production)"


def _causes(workload: Workload, facts: Facts) -> tuple[Cause, ...]:
    """Why the observed hit rate may be what it is, best supported first. None when nothing was observed, or it is what the description leads one to expect."""
    observed = workload.observed_hit_rate
    if observed is None:
        return ()
    expected, bound, tight = float(facts["hit_rate"]), float(facts["content_bound"]), float(facts["pressure"])
    gap = max(0.0, bound - observed)
    then = expected + float(facts["prompts.hit_rate_gain"])
    rows: list[tuple[float, Cause]] = []
    if then - expected > 0.02:
        rows.append(
            (
                then - expected,
                Cause(
                    "text that changes stands ahead of text that does not",
                    f"the order as described allows {expected:.1%}, the best order {then:.1%}",
                    "promptlint check . ; promptlint diagnose TRAFFIC",
                ),
            )
        )
    else:
        rows.append(
            (
                0.3 * gap,
                Cause(
                    "a clock, an id or an unordered list in the head of the prompt",
                    f"the description allows {expected:.1%} but {observed:.1%} was observed: something in the code may change what is described as fixed",
                    "promptlint check . ; promptlint diagnose TRAFFIC",
                ),
            )
        )
    routed = float(facts["routing.hit_rate_gain"])
    if workload.replicas > 1:
        rows.append(
            (
                0.25 * gap + routed,
                Cause(
                    "requests with one prefix go to different replicas",
                    f"{workload.replicas} replicas behind {workload.router}; a cache-aware router gains {100 * routed:.0f} points here",
                    f"promptlint simulate TRAFFIC --replicas {workload.replicas} --router {workload.router}",
                ),
            )
        )
    rows.append(
        (
            (0.2 * tight if tight < 1 else 0.9) * gap,
            Cause(
                "the cache is too small, and evicts",
                f"the pool pressure is {tight:.2f}; from 1 on, something that would be reused is evicted",
                "promptlint simulate TRAFFIC --curve",
            ),
        )
    )
    rows.append(
        (
            0.9 * gap if not workload.prefix_caching else 0.1 * gap,
            Cause(
                "prefix caching is switched off, or a salt, LoRA or key separates the requests",
                "equal prompts then share nothing",
                "promptlint diagnose TRAFFIC --observed " + f"{observed:.2f}",
            ),
        )
    )
    if bound < 0.3:
        rows.append(
            (
                1 - bound,
                Cause(
                    "the prompts share little",
                    f"a cache without limit reaches {bound:.1%} on the described prompts",
                    "promptlint simulate TRAFFIC --capacity-tokens unlimited",
                ),
            )
        )
    return tuple(cause for weight, cause in sorted(rows, key=lambda row: -row[0]) if weight > 0)
