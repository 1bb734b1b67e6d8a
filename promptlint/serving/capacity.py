"""How many tokens of keys and values a GPU has room for, per rank, with the arithmetic spelled out.

KV bytes of one token:

    attention by heads   2 * layers * KV heads * head size * bytes        (Llama-3.1-8B: 2*32*8*128*2 = 131,072)
    latent (MLA)         layers * (latent + rope) * bytes                 (DeepSeek-V3: 61*(512+64)*2 = 70,272)
    sliding window       a layer with window w keeps min(context, w) tokens of a sequence
    linear layers        a fixed state per sequence, nothing per token
    sparse attention     the keys of the indexer on top: one byte an element and a 4-byte scale per token and layer

What one rank of a tensor-parallel group holds is not that divided by the group's size. KV heads are cut until each rank has one, and repeated beyond: a rank
holds max(1, KV heads / tp). A latent cannot be cut and is whole on every rank. With data-parallel attention each rank is a cache of its own, attended by
tp / dp ranks. The pool of a rank is memory * 0.88 - weights; the 0.88 stands for activations, graphs and slack, and is close to what both engines leave
(SGLang derives mem_fraction_static, vLLM takes gpu_memory_utilization 0.92 and profiles activations).
"""

from __future__ import annotations

from dataclasses import dataclass

from promptlint.catalog.hardware import Gpu
from promptlint.catalog.models import BITS, Model
from promptlint.errors import UserError

__all__ = ["MEMORY_FRACTION", "Capacity", "capacity", "explain_capacity", "kv_bytes", "kv_bytes_per_token"]

MEMORY_FRACTION = 0.88  # share of the memory that weights and KV pool take together
_GB = 1e9
_INDEXER_SCALE = 4  # bytes of the quantisation scale of one indexer key


@dataclass(frozen=True, slots=True)
class Capacity:
    """The KV pool of one cache (one replica), see `capacity`. Bytes are of one rank; tokens are what the cache holds, the same on every rank."""

    model: Model
    gpu: Gpu
    tensor_parallel: int
    data_parallel: int
    attention_parallel: (
        int  # ranks that share one copy of the sequence; tensor_parallel, or less with data-parallel attention
    )
    kv_dtype: str
    weights_dtype: str
    memory_bytes: float
    weight_bytes: float
    pool_bytes: float
    kv_bytes_per_token: float
    context: int  # length of a sequence for which window layers and states were counted; 0 when it plays no part
    tokens: int
    replicas: int  # caches of this size
    gpus: int


def _check_parallel(model: Model, parallel: int) -> None:
    if parallel < 1:
        raise UserError(f"tensor parallel {parallel}: at least 1 is expected")
    heads = model.heads
    if heads % parallel:
        raise UserError(f"tensor parallel {parallel} does not divide the {heads} heads of {model.name}")
    if not model.is_latent and model.kv_heads % parallel and parallel % model.kv_heads:
        raise UserError(
            f"tensor parallel {parallel} and the {model.kv_heads} KV heads of {model.name} do not divide each other; both engines refuse that"
        )


def _layer_bytes(model: Model, parallel: int, size: float, *, window: bool) -> float:
    """Bytes that one token takes in one attention layer on one rank."""
    if model.is_latent:
        index = model.index_head_dim + _INDEXER_SCALE if model.index_topk else 0
        return (model.kv_lora_rank + model.rope_dim) * size + index
    heads = (model.window_kv_heads or model.kv_heads) if window else model.kv_heads
    key = (model.window_head_dim or model.head_dim) if window else model.head_dim
    value = ((model.window_value_dim or model.value_dim) if window else model.value_dim) or key
    return max(1, heads // parallel) * (key + value) * size


def _size(kv_dtype: str) -> float:
    if kv_dtype not in BITS:
        raise UserError(f"KV cache type {kv_dtype!r}: unknown; one of {', '.join(BITS)}")
    return BITS[kv_dtype] / 8


def kv_bytes(model: Model, tokens: int, *, kv_dtype: str = "bf16", parallel: int = 1) -> float:
    """Bytes on one rank that one sequence of `tokens` tokens holds: window layers hold at most their window, linear layers their state whatever the length."""
    size = _size(kv_dtype)
    full = model.full_layers * tokens * _layer_bytes(model, parallel, size, window=False)
    window = (
        model.window_layers * min(tokens, model.window) * _layer_bytes(model, parallel, size, window=True)
        if model.window_layers
        else 0.0
    )
    return full + window + (model.state_bytes / parallel if tokens else 0.0)


def kv_bytes_per_token(model: Model, *, kv_dtype: str = "bf16", parallel: int = 1, context: int = 0) -> float:
    """Bytes of one token on one rank; `parallel` is the number of ranks that share the sequence.

    With `context`, the mean over a sequence of that length, so that windows and states are counted as they are held; without, every attention layer counts
    in full and no state does: what one more token costs before any window is full.
    """
    if context:
        return kv_bytes(model, context, kv_dtype=kv_dtype, parallel=parallel) / context
    size = _size(kv_dtype)
    full = model.full_layers * _layer_bytes(model, parallel, size, window=False)
    return full + (
        model.window_layers * _layer_bytes(model, parallel, size, window=True) if model.window_layers else 0.0
    )


def _rank_weights(model: Model, tensor: int, attention: int, weights: str | None) -> float:
    """Weight bytes of one rank. Attention is cut over the ranks that share a sequence, everything else over the whole group.

    K and V projections repeated for tp > KV heads and the latent's own projections are counted as cut: below one percent of the weights.
    """
    mixing, rest = model.weight_parts(weights)
    return mixing / attention + rest / tensor


def capacity(
    model: Model,
    gpu: Gpu,
    *,
    tensor_parallel: int = 1,
    data_parallel: int = 1,
    dp_attention: bool = False,
    kv_dtype: str = "bf16",
    weights: str | None = None,
    context: int = 0,
    memory_fraction: float = MEMORY_FRACTION,
) -> Capacity:
    """The KV pool of `model` on `gpu`.

    Plain data parallelism multiplies whole replicas (GPUs = tp * dp, each replica a cache of its own). With `dp_attention` the `data_parallel` caches share
    one group of `tensor_parallel` GPUs. `context` is the typical sequence length; it matters only for window and linear layers and defaults to 8,192 there.

    Raises UserError when the weights do not fit, or the parallel sizes do not divide the heads.
    """
    if data_parallel < 1:
        raise UserError(f"data parallel {data_parallel}: at least 1 is expected")
    if not 0 < memory_fraction <= 1:
        raise UserError(f"memory fraction {memory_fraction}: a share above 0 and at most 1 is expected")
    if dp_attention and tensor_parallel % data_parallel:
        raise UserError(f"data-parallel attention: {data_parallel} caches do not divide {tensor_parallel} GPUs")
    attention = tensor_parallel // data_parallel if dp_attention else tensor_parallel
    _check_parallel(model, attention)
    if (model.window_layers or model.linear_layers) and not context:
        context = min(8192, model.context or 8192)
    if not (model.window_layers or model.linear_layers):
        context = 0
    memory = gpu.memory * _GB
    weight_bytes = _rank_weights(model, tensor_parallel, attention, weights)
    pool = memory * memory_fraction - weight_bytes
    per_token = kv_bytes_per_token(model, kv_dtype=kv_dtype, parallel=attention, context=context)
    tokens = int(pool // per_token) if pool > 0 else 0
    if tokens < 1:
        raise UserError(
            f"{model.name} ({weights or model.weights}) does not fit on {gpu.name} with tensor parallel {tensor_parallel}: {weight_bytes / _GB:.1f} GB of weights a "
            f"GPU, {memory * memory_fraction / _GB:.1f} GB usable of {gpu.memory:g}{_smallest(model, gpu, weights, memory_fraction)}"
        )
    return Capacity(
        model,
        gpu,
        tensor_parallel,
        data_parallel,
        attention,
        kv_dtype,
        weights or model.weights,
        memory,
        weight_bytes,
        pool,
        per_token,
        context,
        tokens,
        data_parallel,
        tensor_parallel if dp_attention else tensor_parallel * data_parallel,
    )


def _smallest(model: Model, gpu: Gpu, weights: str | None, fraction: float) -> str:
    for parallel in (1, 2, 4, 8, 16, 32, 64):
        if (
            not model.heads % parallel
            and _rank_weights(model, parallel, parallel, weights) < gpu.memory * _GB * fraction
        ):
            return f"; it fits from tensor parallel {parallel} on"
    return ""


def explain_capacity(found: Capacity, *, prefix: int = 2000, sequences: int = 16) -> str:
    """The arithmetic behind a capacity, line by line, and what one shared prefix of `prefix` tokens costs against `sequences` copies of it."""
    model, gpu = found.model, found.gpu
    size = _size(found.kv_dtype)
    lines = [
        f"{model.name} on {gpu.name}: {found.tensor_parallel} GPU(s) a replica, {found.replicas} cache(s), KV in {found.kv_dtype}, weights in {found.weights_dtype}"
    ]
    lines.append(
        f"KV bytes of one token on one rank{f' (mean over {found.context:,} tokens)' if found.context else ''}:"
    )
    lines += [f"  {line}" for line in _token_lines(found, size)]
    lines.append(f"  = {found.kv_bytes_per_token:,.0f} bytes")
    lines.append("KV pool of one rank:")
    share = (found.pool_bytes + found.weight_bytes) / found.memory_bytes
    lines.append(
        f"  {found.memory_bytes / _GB:g} GB x {share:.2f} - {found.weight_bytes / _GB:.2f} GB weights = {found.pool_bytes / _GB:.2f} GB"
    )
    lines.append(
        f"  / {found.kv_bytes_per_token:,.0f} bytes = {found.tokens:,} tokens a cache"
        + (f", {found.replicas} caches that share nothing" if found.replicas > 1 else "")
    )
    # Whole-model bytes: ranks that repeat a head or a latent are counted once each, since the memory is spent.
    one = kv_bytes(model, prefix, kv_dtype=found.kv_dtype, parallel=found.attention_parallel) * found.attention_parallel
    ranks = f" on {found.attention_parallel} ranks together" if found.attention_parallel > 1 else ""
    lines.append(
        f"A resident prefix of {prefix:,} tokens{ranks}: {one:,.0f} bytes once, {one * sequences:,.0f} bytes for {sequences} sequences without reuse"
    )
    if model.special_attention:
        lines.append(
            f"Note: {model.name} has {model.special_attention} attention; how much of a prefix its layers can reuse is not modelled, so this is memory only."
        )
    if model.source:
        lines.append(f"Shape: {model.source}; GPU: {gpu.source}")
    return "\n".join(lines)


def _token_lines(found: Capacity, size: float) -> list[str]:
    model, parallel = found.model, found.attention_parallel
    unit = f"{size:g} byte{'s' if size != 1 else ''}"
    lines = []
    if model.is_latent:
        lines.append(
            f"{model.full_layers} layers x ({model.kv_lora_rank} latent + {model.rope_dim} rope) x {unit}; the latent is whole on each of {parallel} rank(s)"
        )
        if model.index_topk:
            lines.append(
                f"+ {model.full_layers} layers x ({model.index_head_dim} + {_INDEXER_SCALE}) bytes of indexer keys"
            )
        return lines
    if model.full_layers:
        heads = max(1, model.kv_heads // parallel)
        value = model.value_dim or model.head_dim
        pair = f"2 x {model.head_dim}" if value == model.head_dim else f"({model.head_dim} + {value})"
        lines.append(
            f"{model.full_layers} layers x {heads} KV heads (max(1, {model.kv_heads} / {parallel})) x {pair} x {unit}"
        )
    if model.window_layers:
        heads = max(1, (model.window_kv_heads or model.kv_heads) // parallel)
        key = model.window_head_dim or model.head_dim
        value = model.window_value_dim or model.value_dim or key
        lines.append(
            f"+ {model.window_layers} window layers x {heads} KV heads x ({key} + {value}) x {unit} x min(1, {model.window:,} / {found.context:,})"
        )
    if model.linear_layers:
        lines.append(
            f"+ {model.linear_layers} linear layers: {model.state_bytes / parallel:,.0f} bytes of state a sequence / {found.context:,}"
        )
    return lines
