"""What people may share when bodies are off limits: metrics, usage exports, launch lines, KV-cache events.

Each gives records without a request: their `usage` counts towards the observed hit rate, their `extra` holds the other numbers (`requests`, `preemptions`,
`ttft_seconds`, `page_size`, …) that `traffic stats` prints.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from promptlint.traffic.readers.base import Format, Options
from promptlint.traffic.record import CACHE_READ, CACHE_WRITE, INPUT, OUTPUT, Place, Record, Unreadable, milliseconds

__all__ = ["KV_EVENTS", "LAUNCH", "PROMETHEUS_JSON", "USAGE", "launch", "prometheus", "table"]

# Counters of vLLM (v1/metrics/loggers.py of 0.32) and SGLang (observability/metrics_collector.py of 0.5.23); all of them in tokens or requests.
# Prometheus clients add `_total` to counters; older versions wrote it themselves.
_METRICS = {
    "vllm:prefix_cache_queries": INPUT,
    "vllm:prefix_cache_hits": CACHE_READ,
    "vllm:prompt_tokens": "prompt_tokens",
    "vllm:prompt_tokens_cached": "prompt_tokens_cached",
    "vllm:generation_tokens": OUTPUT,
    "vllm:num_preemptions": "preemptions",
    "vllm:request_success": "requests",
    "vllm:time_to_first_token_seconds_sum": "ttft_sum",
    "vllm:time_to_first_token_seconds_count": "ttft_count",
    "vllm:gpu_prefix_cache_queries": INPUT,
    "vllm:gpu_prefix_cache_hits": CACHE_READ,
    "sglang:prompt_tokens": INPUT,
    "sglang:cached_tokens": CACHE_READ,
    "sglang:generation_tokens": OUTPUT,
    "sglang:num_requests": "requests",
    "sglang:num_retracted_requests": "preemptions",
    "sglang:num_retractions": "preemptions",
    "sglang:time_to_first_token_seconds_sum": "ttft_sum",
    "sglang:time_to_first_token_seconds_count": "ttft_count",
    "sglang:cache_hit_rate": "cache_hit_rate",
    "sglang:evicted_tokens": "evicted_tokens",
}
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+(\S+))?\s*$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_MOST = 2.0**64


def prometheus(text: str, place: Place) -> Iterator[Record | tuple[Place, Unreadable]]:
    """The text format of a `/metrics` page: one record for each engine and model, values since the server's start."""
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.match(line)
        if match is None:
            yield Place(place.file, number), Unreadable("not a sample in the Prometheus text format")
            continue
        labels = dict(_LABEL.findall(match.group(2) or ""))
        try:
            value = _number(match.group(3))
        except ValueError:
            yield Place(place.file, number), Unreadable(f"not a number: {match.group(3)[:40]!r}")
            continue
        _sample(sums, match.group(1), labels, value)
    if not sums:
        raise Unreadable("holds no metric of vLLM or SGLang")
    for (engine, model), values in sums.items():
        yield _measured(values, engine, model, place)


def _number(value: Any) -> float:
    """A sample's value. Raises ValueError where no counter can have it: an infinite one, or one past 64 bits, could not be added up."""
    number = float(value)
    if abs(number) >= _MOST:  # NaN, which stands for "no sample", passes
        raise ValueError(value)
    return number


def _sample(sums: dict[tuple[str, str], dict[str, float]], name: str, labels: Mapping[str, str], value: float) -> None:
    meaning = _METRICS.get(name, _METRICS.get(name.removesuffix("_total"), ""))
    if not meaning or value != value:  # noqa: PLR0124 - NaN
        return
    model = labels.get("model_name", labels.get("model", ""))
    row = sums.setdefault((name.partition(":")[0], model), {})
    row[meaning] = max(row.get(meaning, 0.0), value) if meaning == "cache_hit_rate" else row.get(meaning, 0.0) + value


def _measured(values: Mapping[str, float], engine: str, model: str, place: Place) -> Record:
    usage = {name: int(values[name]) for name in (INPUT, CACHE_READ, OUTPUT) if name in values}
    if INPUT not in usage and "prompt_tokens" in values:
        usage[INPUT] = int(values["prompt_tokens"])
    if CACHE_READ not in usage and "prompt_tokens_cached" in values:
        usage[CACHE_READ] = int(values["prompt_tokens_cached"])
    if INPUT in usage and engine == "sglang" and CACHE_READ not in usage:
        usage[CACHE_READ] = 0  # the counter appears with the first hit
    extra: dict[str, Any] = {"engine": engine}
    for name in ("requests", "preemptions", "evicted_tokens"):
        if name in values:
            extra[name] = int(values[name])
    if values.get("ttft_count"):
        extra["ttft_seconds"] = values.get("ttft_sum", 0.0) / values["ttft_count"]
    if "cache_hit_rate" in values:
        extra["cache_hit_rate"] = values["cache_hit_rate"]
    return Record(place=place, format="prometheus", model=model, usage=usage, extra=extra)


def _read_range(row: Mapping[str, Any], place: Place, _options: Options) -> Iterator[Record]:
    """The JSON of a Prometheus query: the increase of each counter over the range (resets counted from zero), or its last value."""
    data = row["data"]
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for index, series in enumerate(data.get("result", ())):
        labels = series.get("metric", {})
        values = series.get("values", [series["value"]] if "value" in series else [])
        try:
            numbers = [_number(value) for _time, value in values]
        except (TypeError, ValueError):
            raise Unreadable("not a list of times and values", f"data.result[{index}].values") from None
        if not numbers:
            continue
        name = str(labels.get("__name__", ""))
        grown = sum(max(b - a, 0.0) if b >= a else b for a, b in pairwise(numbers)) if len(numbers) > 1 else numbers[0]
        _sample(sums, name, labels, numbers[-1] if "hit_rate" in name else grown)
    if not sums:
        raise Unreadable("holds no metric of vLLM or SGLang", "data.result")
    for (engine, model), found in sums.items():
        yield _measured(found, engine, model, place)


_COLUMNS = {
    INPUT: ("input_tokens", "prompt_tokens", "n_context_tokens_total", "input_tokens_total", "context_tokens", "usage_input_tokens"),
    CACHE_READ: ("input_cached_tokens", "cached_tokens", "cached_input_tokens", "n_cached_context_tokens_total", "usage_input_cache_read", "usage_input_tokens_cache_read", "cache_read_input_tokens"),
    CACHE_WRITE: ("cache_creation_input_tokens", "usage_input_tokens_cache_write_5m", "usage_input_tokens_cache_write_1h", "cache_write_tokens"),
    OUTPUT: ("output_tokens", "completion_tokens", "n_generated_tokens_total", "usage_output_tokens", "generated_tokens"),
}  # fmt: skip
_UNCACHED = ("uncached_input_tokens", "usage_input_tokens_no_cache", "input_tokens_no_cache", "input_uncached_tokens")


def _row_usage(row: Mapping[str, Any]) -> dict[str, int]:
    """Usage of one row of an export. Where the uncached input has its own column, the parts are added up."""
    names = {re.sub(r"\W+", "_", str(key).strip().lower()): value for key, value in row.items()}
    found: dict[str, int] = {}
    for target, columns in _COLUMNS.items():
        numbers = [number for column in columns if (number := _int(names.get(column))) is not None]
        if numbers:
            found[target] = sum(numbers) if target == CACHE_WRITE else numbers[0]
    uncached = next((number for column in _UNCACHED if (number := _int(names.get(column))) is not None), None)
    creation = names.get("cache_creation")
    if isinstance(creation, Mapping):
        found[CACHE_WRITE] = sum(_int(value) or 0 for value in creation.values())
    if uncached is not None:
        found[INPUT] = uncached + found.get(CACHE_READ, 0) + found.get(CACHE_WRITE, 0)
    return found if INPUT in found else {}


def _int(value: Any) -> int | None:
    try:
        return (
            int(float(str(value).replace(",", "")))
            if value not in {None, ""} and not isinstance(value, (dict, list))
            else None
        )
    except (TypeError, ValueError):
        return None


def _usage_record(row: Mapping[str, Any], place: Place, stamp: Any) -> Record | None:
    usage = _row_usage(row)
    if not usage:
        return None
    extra: dict[str, Any] = {}
    requests = _int(row.get("num_model_requests", row.get("num_requests", row.get("n_requests", row.get("requests")))))
    if requests is not None:
        extra["requests"] = requests
    return Record(
        place=place,
        format="usage-export",
        model=str(row.get("model") or ""),
        timestamp=milliseconds(stamp, "s"),
        usage=usage,
        extra=extra,
    )


def table(text: str, place: Place) -> Iterator[Record | tuple[Place, Unreadable]]:
    """A CSV export with a column of input tokens and one of cached tokens; other tables are refused with their columns."""
    reader = csv.DictReader(io.StringIO(text))
    try:
        for number, row in enumerate(reader, 2):
            cleaned = {str(key): value for key, value in row.items() if key is not None}
            stamp = next(
                (
                    cleaned[key]
                    for key in ("timestamp", "start_time", "date", "usage_date_utc", "usage_date", "day")
                    if cleaned.get(key)
                ),
                None,
            )
            record = _usage_record(cleaned, Place(place.file, number), stamp)
            if record is not None:
                yield record
            elif number == 2:
                raise Unreadable(
                    f"a table without input and cached tokens; its columns: {', '.join(list(cleaned)[:8])}"
                )
            else:
                yield Place(place.file, number), Unreadable("no number of input tokens")
    except csv.Error as error:
        raise Unreadable(f"not a readable CSV file: {error}") from error


def _read_usage(row: Mapping[str, Any], place: Place, _options: Options) -> Iterator[Record]:
    """Usage API pages of OpenAI (`start_time`, `results`) and Anthropic (`starting_at`, `results`): one record a result."""
    for index, bucket in enumerate(row["data"]):
        for position, result in enumerate(bucket.get("results", bucket.get("result", ()))):
            record = _usage_record(result, place, bucket.get("start_time", bucket.get("starting_at")))
            if record is None:
                raise Unreadable("a result without input tokens", f"data[{index}].results[{position}]")
            yield record


def _read_events(row: Mapping[str, Any], place: Place, _options: Options) -> Iterator[Record]:
    """A batch of KV-cache events: what was stored and removed, in blocks and tokens. They tell evictions, not requests."""
    events = row.get("events", [row])
    extra = {"stored_blocks": 0, "removed_blocks": 0, "stored_tokens": 0, "cleared": 0}
    for index, event in enumerate(events):
        kind, fields = _event(event)
        if kind == "BlockStored":
            blocks = len(fields.get("block_hashes") or ())
            extra["stored_blocks"] += blocks
            extra["stored_tokens"] += len(fields.get("token_ids") or ()) or blocks * int(fields.get("block_size") or 0)
        elif kind == "BlockRemoved":
            extra["removed_blocks"] += len(fields.get("block_hashes") or ())
        elif kind == "AllBlocksCleared":
            extra["cleared"] += 1
        else:
            raise Unreadable("not a KV-cache event", f"events[{index}]")
    yield Record(place=place, format="kv-events", timestamp=milliseconds(row.get("ts"), "s"), extra=extra)


def _event(event: Any) -> tuple[str, Mapping[str, Any]]:
    """Kind and fields of an event: an object with a type, or msgspec's array form (type, hashes, parent, tokens, block size, …)."""
    if isinstance(event, Mapping):
        return str(event.get("type", event.get("event", ""))), event
    if isinstance(event, list) and event and isinstance(event[0], str):
        names = (
            ("block_hashes", "parent_block_hash", "token_ids", "block_size")
            if event[0] == "BlockStored"
            else ("block_hashes",)
        )
        return event[0], dict(zip(names, event[1:], strict=False))
    return "", {}


_OPTIONS = {
    "page-size": "page_size", "block-size": "block_size", "tp": "tensor_parallel", "tp-size": "tensor_parallel", "tensor-parallel-size": "tensor_parallel",
    "dp": "data_parallel", "dp-size": "data_parallel", "data-parallel-size": "data_parallel", "mem-fraction-static": "memory_share",
    "gpu-memory-utilization": "memory_share", "model-path": "model", "model": "model", "schedule-policy": "schedule", "disable-radix-cache": "prefix_caching_off",
    "no-enable-prefix-caching": "prefix_caching_off", "chunked-prefill-size": "chunked_prefill", "max-num-batched-tokens": "batch_tokens",
    "kv-cache-dtype": "kv_dtype", "max-model-len": "context_length", "context-length": "context_length", "enable-prefix-caching": "prefix_caching",
    "max-total-tokens": "capacity_tokens", "num-gpu-blocks-override": "blocks", "attention-backend": "attention_backend",
}  # fmt: skip


def launch(line: str) -> Mapping[str, Any] | None:
    """The settings in a server's command line, or in the line in which it prints its arguments."""
    found: dict[str, Any] = {}
    if "ServerArgs(" in line:
        from promptlint.traffic.readers.server_logs import _fields, _python

        fields, _end = _fields(line, line.index("ServerArgs(") + len("ServerArgs("))
        given = {name: _python(text) for name, text in fields.items()}
        found["engine"] = "sglang"
    elif "non-default args:" in line:
        match = re.search(r"non-default args: (\{.*\})", line)
        if match is None:
            return None
        from promptlint.traffic.readers.server_logs import _python

        given = _python(match.group(1))
        given = given if isinstance(given, dict) else {}
        found["engine"] = "vllm"
    else:
        given = _command(line)
        found["engine"] = "sglang" if "sglang" in line else "vllm"
        if "vllm serve" in line:
            rest = line.split("vllm serve", 1)[1].split()
            if rest and not rest[0].startswith("-"):
                given.setdefault("model", rest[0])
    for name, value in given.items():
        target = _OPTIONS.get(str(name).replace("_", "-"))
        if target is not None and value is not None:
            found[target] = value
    return {"launch": found}


def _command(line: str) -> dict[str, Any]:
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    given: dict[str, Any] = {}
    for index, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        following = words[index + 1] if index + 1 < len(words) else ""
        given[name] = value if equals else (following if following and not following.startswith("-") else True)
    return {name: _literal(value) for name, value in given.items()}


def _literal(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def _read_launch(row: Mapping[str, Any], place: Place, _options: Options) -> Iterator[Record]:
    settings = dict(row["launch"])
    yield Record(place=place, format="launch", model=str(settings.pop("model", "")), extra=settings)


LAUNCH = Format(
    "launch", "command lines and argument lines of engine servers", lambda row: "launch" in row, _read_launch
)
PROMETHEUS_JSON = Format("prometheus", "Prometheus query results of vLLM or SGLang metrics (JSON; the text format too)", lambda row: row.get("status") == "success" and isinstance(row.get("data"), Mapping) and "result" in row["data"], _read_range)  # fmt: skip
USAGE = Format(
    "usage-export",
    "usage exports of OpenAI and Anthropic (JSON or CSV)",
    lambda row: (
        isinstance(row.get("data"), list)
        and bool(row["data"])
        and isinstance(row["data"][0], Mapping)
        and ("results" in row["data"][0] or "result" in row["data"][0])
    ),
    _read_usage,
)
KV_EVENTS = Format(
    "kv-events",
    "KV-cache events (block stored, block removed)",
    lambda row: (
        ("events" in row and "ts" in row) or row.get("type") in {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
    ),
    _read_events,
)
