"""Time of a prefill and of a decode step on one GPU group, and the steady state of continuous batching.

A roofline: a step takes the longer of its arithmetic and its memory traffic, each at the share of the peak that engines reach (rules/hardware), plus a constant.
With P the parameters that a token is multiplied with, A the operations of attention between two tokens, W weight bytes and KV bytes of one token:

    prefill(new, cached) = max((2 P new + A (new cached + new (new + 1) / 2)) / compute,  (W + (new + cached) KV) / bandwidth) + 1 ms
    decode(batch, s)     = max((W + batch s KV) / bandwidth,  batch (2 P + A s) / compute) + 0.6 ms

Checked against a grid of 108 kernel-level times of Llama-3.1-8B and -70B on five GPUs (mean absolute error 3 to 13 % at TP1), a measured TTFT curve, and published
throughputs; tests/unit/serving/test_cost.py holds those checks with their tolerances. What it leaves out: the host beside one floor per GPU, overlap of prefill and decode in one
step, communication beyond one factor for tensor parallelism, pipeline parallelism, speculative decoding, and any difference between two engines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from promptlint.catalog.hardware import Gpu
from promptlint.catalog.models import BITS, Model
from promptlint.errors import UserError
from promptlint.serving.capacity import kv_bytes

__all__ = [
    "PREFILL_STEP_TOKENS",
    "Cost",
    "SteadyState",
    "amdahl_bound",
    "break_even_requests",
    "saving",
    "speedup_bound",
    "steady_state",
]

PREFILL_OVERHEAD_S = 1e-3  # launch and scheduling of one prefill step
DECODE_OVERHEAD_S = 0.6e-3
TENSOR_PARALLEL_FACTOR = 0.8  # two all-reduces a layer; without it 70B at TP4 comes out 10 to 35 % too fast
PREFILL_STEP_TOKENS = 8192  # prefills of several requests share a step of this many new tokens
MAX_BATCH = 256  # running requests, both engines' order of magnitude


@dataclass(frozen=True, slots=True)
class Cost:
    """Times of one replica: `model` over `tensor_parallel` GPUs of one kind. All times are GPU seconds unless they say TTFT.

    Attributes:
        decode_penalty: factor on the decode step, 1 or more: what a disabled graph capture costs, measured by the user.
    """

    model: Model
    gpu: Gpu
    tensor_parallel: int = 1
    kv_dtype: str = "bf16"
    weights: str | None = None
    eff_compute: float | None = None  # overrides the table's
    eff_memory: float | None = None
    decode_penalty: float = 1.0
    _matmul: int = field(
        init=False, repr=False, compare=False
    )  # sums over the shape, made once: a simulation asks for a million steps
    _weight_bytes: float = field(init=False, repr=False, compare=False)
    _expert_bytes: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        expert = self.model.expert_params * BITS[self.weights or self.model.weights] / 8
        object.__setattr__(self, "_weight_bytes", self.model.weight_bytes(self.weights))  # the class is frozen
        object.__setattr__(self, "_expert_bytes", expert)
        object.__setattr__(self, "_matmul", self.model.matmul_params)

    @property
    def _scale(self) -> float:
        return self.tensor_parallel * (TENSOR_PARALLEL_FACTOR if self.tensor_parallel > 1 else 1.0)

    @property
    def compute(self) -> float:
        """Operations a second that the group reaches. 8-bit weights run at twice the rate where the GPU has 8-bit units (Ada, Hopper, Blackwell, CDNA3)."""
        eight_bit = BITS[self.weights or self.model.weights] == BITS["fp8"] and self.gpu.architecture not in {
            "ampere",
            "",
        }
        return (
            self.gpu.tflops
            * 1e12
            * (self.eff_compute or self.gpu.eff_compute)
            * self._scale
            * (2.0 if eight_bit else 1.0)
        )

    @property
    def bandwidth(self) -> float:
        """Bytes a second that the group reaches."""
        return self.gpu.bandwidth * 1e9 * (self.eff_memory or self.gpu.eff_memory) * self._scale

    def _attention(self, pairs: float, context: float, *, decode: bool) -> float:
        """Operations of attention over `pairs` query-key pairs in sequences of `context` tokens."""
        model = self.model
        if model.is_latent:
            # Decoding multiplies with the latent itself; prefill expands it to heads first.
            width = (
                2 * model.kv_lora_rank + model.rope_dim
                if decode
                else model.nope_dim + model.rope_dim + (model.value_dim or model.head_dim)
            )
            seen = min(1.0, model.index_topk / context) if model.index_topk and context else 1.0
            return 2 * model.full_layers * model.heads * width * pairs * seen
        full = model.full_layers * (model.head_dim + (model.value_dim or model.head_dim))
        key = model.window_head_dim or model.head_dim
        window = (
            model.window_layers
            * (key + (model.window_value_dim or key))
            * (min(1.0, model.window / context) if context else 1.0)
        )
        return 2 * model.heads * (full + window) * pairs

    def _weight_traffic(self, tokens: float) -> float:
        """Weight bytes read by a step over `tokens` tokens: of the routed experts only those that some token chose."""
        if not self.model.is_moe:
            return self._weight_bytes
        touched = 1.0 - math.pow(1.0 - self.model.experts_per_token / self.model.experts, tokens)
        return self._weight_bytes - self._expert_bytes * (1.0 - touched)

    def _kv(self, tokens: float) -> float:
        """KV bytes of a sequence of `tokens` tokens on all ranks together."""
        return (
            kv_bytes(self.model, round(tokens), kv_dtype=self.kv_dtype, parallel=self.tensor_parallel)
            * self.tensor_parallel
        )

    def prefill(self, new: float, cached: float = 0.0, requests: float = 1.0) -> float:
        """Seconds to compute `new` prompt tokens behind `cached` ones, for `requests` such requests in one step. Each request computes at least one token."""
        new = max(1.0, new)
        pairs = new * cached + new * (new + 1) / 2
        work = requests * (2 * self._matmul * new + self._attention(pairs, new + cached, decode=False))
        traffic = self._weight_traffic(requests * new) + requests * self._kv(new + cached)
        return max(work / self.compute, traffic / self.bandwidth) + PREFILL_OVERHEAD_S

    def prefill_share(self, new: float, cached: float = 0.0, waiting: float = MAX_BATCH) -> float:
        """Seconds of prefill per request when short prefills share a step, as both engines do under load: at most `waiting` of them are there to share."""
        together = max(1.0, min(PREFILL_STEP_TOKENS / max(1.0, new), waiting))
        return self.prefill(new, cached, together) / together

    def decode(self, batch: float, context: float) -> float:
        """Seconds of one decode step of `batch` sequences with `context` tokens each."""
        work = batch * (2 * self._matmul + self._attention(context, context, decode=True))
        traffic = self._weight_traffic(batch) + batch * self._kv(context)
        return (max(traffic / self.bandwidth, work / self.compute) + DECODE_OVERHEAD_S) * self.decode_penalty

    def step(
        self,
        *,
        new: float = 0.0,
        cached: float = 0.0,
        prefills: float = 1.0,
        decodes: float = 0.0,
        context: float = 0.0,
    ) -> float:
        """Seconds of one forward pass: `new` prompt tokens of `prefills` requests behind `cached` ones, and a token for each of `decodes` sequences.

        `context` is what those sequences hold together; the prefills are taken to be of equal size. Prefill and decode in one pass are charged one after the
        other: what an engine gains by overlapping them is overhead of the engine, which a cache model must not claim to know.
        """
        parts = max(1.0, prefills)
        seconds = self.prefill(new / parts, cached / parts, parts) if new else 0.0
        return seconds + (self.decode(decodes, context / decodes) if decodes else 0.0)

    def ttft(self, new: float, cached: float = 0.0, queue: float = 0.0) -> float:
        """Seconds to the first token of a request that waits `queue` seconds: the queue, its prefill and the host's floor."""
        return queue + self.prefill(new, cached) + self.gpu.host_floor_ms / 1e3


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Continuous batching at saturation of one replica. Times are seconds per request; the shares add up to 1."""

    requests_per_second: float
    batch: float
    prefill: float
    decode: float
    bound_by: str  # what limits the batch: "concurrency", "pool" or "engine"

    @property
    def prefill_share(self) -> float:
        """Share of GPU time that goes into prefill."""
        return self.prefill / (self.prefill + self.decode)

    def output_tokens_per_second(self, output: float) -> float:
        """Produced tokens a second."""
        return self.requests_per_second * output


def steady_state(
    cost: Cost,
    *,
    prompt: float,
    output: float,
    hit_rate: float = 0.0,
    pool_tokens: float = float("inf"),
    shared_tokens: float | None = None,
    concurrency: float = MAX_BATCH,
) -> SteadyState:
    """Requests a second at saturation for requests of `prompt` and `output` tokens of which the share `hit_rate` of the prompt is cached.

    The batch is what the pool holds: the shared prefix once (`shared_tokens`, default prompt * hit_rate) and for each request its own tokens. Raises UserError for a
    request that the pool cannot hold and for figures that no workload has.
    """
    if prompt < 1 or output < 1:
        raise UserError(f"prompt of {prompt:g} and output of {output:g} tokens: at least one each is expected")
    if not 0 <= hit_rate <= 1:
        raise UserError(f"hit rate {hit_rate:g}: a share between 0 and 1 is expected")
    if concurrency < 1:
        raise UserError(f"concurrency {concurrency:g}: at least one request at a time is expected")
    new = max(1.0, prompt * (1.0 - hit_rate))  # the last token is always computed
    cached = prompt - new
    shared = cached if shared_tokens is None else shared_tokens
    fits = (pool_tokens - shared) / (new + output)
    if fits < 1 - 1e-6:  # float slack: what fits without a cache fits with one
        raise UserError(
            f"one request of {prompt + output:,.0f} tokens does not fit into a pool of {pool_tokens:,.0f} tokens"
        )
    fits = max(1.0, fits)
    batch = min(MAX_BATCH, concurrency, fits)
    bound_by = "pool" if batch == fits else "concurrency" if batch == concurrency else "engine"
    prefill = cost.prefill_share(new, cached, batch)
    decode = output * cost.decode(batch, prompt + output / 2) / batch if output > 1 else 0.0
    return SteadyState(1.0 / (prefill + decode), batch, prefill, decode, bound_by)


def speedup_bound(hit_rate: float) -> float:
    """Caching can at most leave out the cached share of all work: 1 / (1 - h)."""
    return float("inf") if hit_rate >= 1 else 1.0 / (1.0 - hit_rate)


def amdahl_bound(hit_rate: float, prefill_share: float) -> float:
    """The same when only the share `prefill_share` of GPU time (without cache) is prefill: 1 / ((1 - h) f + (1 - f))."""
    return 1.0 / ((1.0 - hit_rate) * prefill_share + (1.0 - prefill_share))


def saving(before: float, after: float, read: float) -> float:
    """Share of the input cost saved when the hit rate goes from `before` to `after` and a cached token costs `read` of an uncached one.

    1 - (h2 r + 1 - h2) / (h1 r + 1 - h1); reproduces the seven OpenAI savings of the GGR paper's table (arXiv 2403.05821) with r = 0.5.
    """
    return 1.0 - (after * read + 1.0 - after) / (before * read + 1.0 - before)


def break_even_requests(write: float, read: float) -> int | None:
    """Smallest number of requests within the lifetime for which caching a prefix costs less than not caching it; None when it never does.

    One request writes the prefix at `write` times the input price, the others read it: w + (n - 1) r < n.
    """
    if read >= 1.0:
        return None
    requests = 1
    while write + (requests - 1) * read >= requests:
        requests += 1
    return requests
