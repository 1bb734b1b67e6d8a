"""What a running server says of itself: engine, version, model, number formats, window, cache; how to empty its cache; its own counters.

vLLM: GET /v1/models and /version; GET /server_info?config_format=json and POST /reset_prefix_cache only in development mode (VLLM_SERVER_DEV_MODE=1); cache blocks
in /metrics (`vllm:cache_config_info`). SGLang: GET /v1/models, /server_info (its arguments as resolved, and the pool size) and /model_info, POST /flush_cache;
/metrics with --enable-metrics. Read in vLLM 0.32.0 and SGLang 0.5.23. A fact that a server does not report stays None: it is never assumed.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from promptlint.benching.client import Client, Limits, Reply, Server

__all__ = ["Counters", "Facts", "Unusable", "counters", "flush", "read_counters", "read_facts"]

_ASKING = Limits(connect=5.0, idle=10.0, total=15.0)  # for a question about the server, not for an answer of the model


_DESCRIBING = Limits(connect=5.0, idle=60.0, total=60.0)
"""For /server_info: when first asked, vLLM looks at the whole machine (compilers, drivers, packages), which took over ten seconds on a busy one."""
_MANY = 1 << 53  # no server has so many tokens; beyond it a float is no longer exact


class Unusable(Exception):
    """A target that cannot be measured at all; the message says why and what to do."""


@dataclass(slots=True)
class Facts:
    """What a server reports; None is not reported. `capacity_tokens` is the KV pool of one replica, `unit` its page or block, both in tokens.

    `names` are the ways in which the server spells its model, `flush` the path that empties its cache, "" where there is none.
    """

    engine: str = "unknown"
    version: str | None = None
    model: str = ""
    names: tuple[str, ...] = ()
    context: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_dtype: str | None = None
    sampling: str | None = None
    unit: int | None = None
    capacity_tokens: int | None = None
    prefix_caching: bool | None = None
    schedule: str | None = None
    parallel: str | None = None
    eager: bool | None = None
    reports_cached: bool | None = None
    flush: str = ""
    metrics: bool = False

    def to_json(self) -> dict[str, Any]:
        """The facts by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "names"}


async def read_facts(client: Client, model: str | None, *, may_flush: bool) -> Facts:
    """Ask a server about itself. Raises Unusable for one that does not answer or does not list the model."""
    listed = await client.get("/v1/models", _ASKING)
    if listed.error:
        raise Unusable(listed.error + _advice(listed, client.server))
    if listed.status in {401, 403}:
        raise Unusable(f"GET /v1/models gives status {listed.status}: name the variable with the key in --api-key-env")
    if model is not None and listed.status in {404, 405, 501}:
        return Facts(model=model, names=(model,))  # a server that says nothing of itself, and is asked for no more
    value = listed.json()
    rows = value.get("data") if isinstance(value, dict) else None
    cards = [row for row in rows if isinstance(row, dict) and row.get("id")] if isinstance(rows, list) else []
    cards = [card for card in cards if isinstance(card["id"], str)]
    if not cards:
        raise Unusable(
            f"GET /v1/models gives status {listed.status} and no list of models; an OpenAI-compatible server is expected (where it lists none, name one with --model)"
        )
    ids = [card["id"] for card in cards]
    if model is None and len({_text(card.get("parent")) or card["id"] for card in cards}) > 1:
        raise Unusable(f"serves several models, choose one with --model: {', '.join(ids)}")
    card = next((card for card in cards if card["id"] == model), None) if model else cards[0]
    if card is None:
        raise Unusable(f"does not serve {model}; it serves {', '.join(ids)}")
    facts = Facts(model=card["id"], names=_names(card["id"], card.get("root")), context=_int(card.get("max_model_len")))
    owner = str(card.get("owned_by", "")).lower()
    facts.engine = owner if owner in {"vllm", "sglang"} else "unknown"
    version, info, described, metrics = await asyncio.gather(
        client.get("/version", _ASKING),
        client.get("/server_info?config_format=json", _DESCRIBING),
        client.get("/model_info", _ASKING),
        client.get("/metrics", _ASKING),
    )
    info_value, model_value = info.json(), described.json()
    if facts.engine == "sglang" and info_value is None and model_value is None:  # the names of older versions
        info, described = await asyncio.gather(
            client.get("/get_server_info", _ASKING), client.get("/get_model_info", _ASKING)
        )
        info_value, model_value = info.json(), described.json()
    text = metrics.body.decode("utf-8", "replace") if metrics.status == 200 and not metrics.error else ""
    if isinstance(info_value, dict) and isinstance(info_value.get("vllm_config"), dict):
        facts.engine = "vllm"
        _vllm_config(facts, info_value["vllm_config"])
    elif isinstance(info_value, dict) and "model_path" in info_value:
        facts.engine = "sglang"
        _sglang_arguments(facts, info_value)
    if facts.engine == "unknown":
        facts.engine = next((name for name in ("vllm", "sglang") if f"{name}:" in text), "unknown")
    version_value = version.json()
    if facts.version is None and isinstance(version_value, dict):
        facts.version = _text(version_value.get("version"))
    if isinstance(model_value, dict):
        facts.names = _names(*facts.names, model_value.get("model_path"), model_value.get("served_model_name"))
    _metric_facts(facts, text)
    if may_flush:
        facts.flush = await _flush_path(client, facts.engine)
    return facts


def _advice(reply: Reply, server: Server) -> str:
    """What to look at when a server cannot be reached."""
    if "refused" in reply.error:
        return "; nothing listens there: start the server, or correct the port"
    if "certificate" in reply.error.lower():
        return "; the variable SSL_CERT_FILE names a file with the certificate or its authority"
    if server.secure and reply.kind in {"connect", "timeout"}:
        return "; does it speak plain http?"
    if not server.secure and reply.kind in {"dropped", "protocol"}:
        return "; does it speak https?"
    return ""


def _names(*given: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in given if isinstance(name, str) and name))


def _int(value: Any) -> int | None:
    """A number of tokens or of devices; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MANY else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _format(value: Any) -> str | None:
    """A number format in one spelling; `auto` says nothing."""
    text = _text(value)
    if text is None or text.lower() in {"auto", "unspecified"}:
        return None
    text = text.lower().removeprefix("torch.")
    return {
        "bf16": "bfloat16",
        "fp8": "fp8_e4m3",
        "half": "float16",
        "fp16": "float16",
        "float": "float32",
        "fp32": "float32",
    }.get(text, text)


def _quantization(value: Any) -> str:
    """None is a fact here: the weights are not quantised."""
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _vllm_config(facts: Facts, config: Mapping[str, Any]) -> None:
    """Facts of vLLM's own configuration, which it shows in development mode."""
    model, cache, schedule, parallel = (
        part if isinstance(part := config.get(name), dict) else {}
        for name in ("model_config", "cache_config", "scheduler_config", "parallel_config")
    )
    facts.names = _names(*facts.names, model.get("model"))
    facts.dtype = _format(model.get("dtype"))
    if "quantization" in model:
        facts.quantization = _quantization(model["quantization"])
    facts.context = facts.context or _int(model.get("max_model_len"))
    facts.eager = model.get("enforce_eager") if isinstance(model.get("enforce_eager"), bool) else None
    if "generation_config" in model:
        own = "its own defaults" if model["generation_config"] == "vllm" else "the model's generation_config"
        overridden = model.get("override_generation_config")
        facts.sampling = own + (f" with {json.dumps(overridden, sort_keys=True)}" if overridden else "")
    facts.kv_dtype = _format(cache.get("cache_dtype"))
    facts.schedule = _text(schedule.get("policy"))
    facts.parallel = f"tensor {_int(parallel.get('tensor_parallel_size')) or 1}"


def _sglang_arguments(facts: Facts, info: Mapping[str, Any]) -> None:
    """Facts of SGLang's arguments as they were resolved at start-up."""
    facts.version = _text(info.get("version"))
    facts.names = _names(*facts.names, info.get("model_path"), info.get("served_model_name"))
    facts.dtype = _format(info.get("dtype"))
    if "quantization" in info:
        facts.quantization = _quantization(info["quantization"])
    facts.context = facts.context or _int(info.get("context_length"))
    facts.kv_dtype = _format(info.get("kv_cache_dtype"))
    if "sampling_defaults" in info:
        own = "its own defaults" if info["sampling_defaults"] == "openai" else "the model's generation_config"
        preferred = _text(info.get("preferred_sampling_params"))
        facts.sampling = own + (f" with {preferred}" if preferred else "")
    facts.unit = _int(info.get("page_size")) or 1
    facts.capacity_tokens = _int(info.get("max_total_num_tokens"))
    if isinstance(info.get("disable_radix_cache"), bool):
        facts.prefix_caching = not info["disable_radix_cache"]
    facts.schedule = _text(info.get("schedule_policy"))
    facts.parallel = f"tensor {_int(info.get('tp_size')) or 1}"
    if isinstance(info.get("disable_cuda_graph"), bool):
        facts.eager = info["disable_cuda_graph"] or info.get("cuda_graph_backend_decode") == "disabled"
    if isinstance(info.get("enable_cache_report"), bool):
        facts.reports_cached = info["enable_cache_report"]


_CACHE_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\}\s", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def _metric_facts(facts: Facts, text: str) -> None:
    """What the metrics page tells: vLLM's block size and number of blocks (block 0 holds nothing), SGLang's pool."""
    facts.metrics = "vllm:" in text or "sglang:" in text
    if found := _CACHE_INFO.search(text):
        labels = dict(_LABEL.findall(found[1]))
        block, count = (_digits(labels.get(name, "")) for name in ("block_size", "num_gpu_blocks"))
        if block and count and count > 1:
            facts.unit, facts.capacity_tokens = block, (count - 1) * block
        if labels.get("enable_prefix_caching") in {"True", "False"}:
            facts.prefix_caching = labels["enable_prefix_caching"] == "True"
        facts.kv_dtype = facts.kv_dtype or _format(labels.get("cache_dtype"))
    if facts.capacity_tokens is None:
        facts.capacity_tokens = _int(int(counters(text).values.get("sglang:max_total_num_tokens", 0.0)))


def _digits(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,12}", text) else None


async def _flush_path(client: Client, engine: str) -> str:
    """The path that empties the cache, tried once."""
    paths = {"vllm": ("/reset_prefix_cache",), "sglang": ("/flush_cache",)}
    for path in paths.get(engine, ("/reset_prefix_cache", "/flush_cache")):
        if await flush(client, path):
            return path
    return ""


async def flush(client: Client, path: str, attempts: int = 5) -> bool:
    """Empty the cache; a server that still holds blocks of the last requests is asked again, for about a second."""
    for attempt in range(attempts):
        reply = await client.post(path, limits=_ASKING)
        if reply.error or reply.status in {404, 405, 401, 403, 501}:
            return False
        value = reply.json()
        if reply.status == 200 and not (isinstance(value, dict) and value.get("success") is False):
            return True
        await asyncio.sleep(0.05 * 2**attempt)
    return False


@dataclass(frozen=True, slots=True)
class Counters:
    """A server's own counters at one moment, by name without `_total`, added up over their labels."""

    values: Mapping[str, float] = field(default_factory=dict)

    def since(self, before: Counters) -> dict[str, float]:
        """What was counted between the two moments, under plain names; empty when the server shows none or was started anew."""
        found = {}
        for name, metrics in _COUNTED.items():
            metric = next((one for one in metrics if one in self.values and one in before.values), None)
            if metric is not None and self.values[metric] >= before.values[metric]:
                found[name] = self.values[metric] - before.values[metric]
        return found


_COUNTED = {
    "queried_tokens": ("vllm:prefix_cache_queries", "sglang:prompt_tokens"),
    "cached_tokens": ("vllm:prefix_cache_hits", "sglang:cached_tokens"),
    "prompt_tokens": ("vllm:prompt_tokens", "sglang:prompt_tokens"),
    "output_tokens": ("vllm:generation_tokens", "sglang:generation_tokens"),
    "preemptions": ("vllm:num_preemptions", "sglang:num_retracted_requests"),
}
_SAMPLE = re.compile(r"^((?:vllm|sglang):\w+)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)


def counters(text: str) -> Counters:
    """The counters of a metrics page."""
    values: dict[str, float] = {}
    for name, number in _SAMPLE.findall(text):
        try:
            value = float(number)
        except ValueError:
            continue
        if not math.isfinite(value) or value >= _MANY:
            continue
        plain = name.removesuffix("_total")
        values[plain] = values.get(plain, 0.0) + value
    return Counters(values)


async def read_counters(client: Client) -> Counters:
    """The counters now; none when the server shows no metrics."""
    reply = await client.get("/metrics", _ASKING)
    return counters(reply.body.decode("utf-8", "replace")) if reply.status == 200 and not reply.error else Counters()
