"""Traces of block hashes: Mooncake, Alibaba Bailian, NVIDIA Dynamo, AIPerf's extension of Mooncake, Weka agent traces.

A block id stands for the block *and everything before it*: equal ids are equal prefixes. The size of a block is the format's own
(Mooncake 512 tokens, Bailian 16) unless the record or `--block-size` says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from promptlint.traffic.readers.base import Format, Options, as_list, as_object, parsed, text_or_none
from promptlint.traffic.readers.bodies import SECONDS, record_of
from promptlint.traffic.record import Place, Record, Unreadable, milliseconds

__all__ = ["AIPERF", "BAILIAN", "DYNAMO", "MOONCAKE", "WEKA"]

MOONCAKE_BLOCK = 512
BAILIAN_BLOCK = 16


_TRACE = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
_WHOLE = {int}


def _read_mooncake(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    record = _trace_record(row, place) or record_of(row, place, "mooncake", options)
    record.block_size = options.block_size or record.block_size or MOONCAKE_BLOCK
    yield _checked(record)


def _trace_record(row: Mapping[str, Any], place: Place) -> Record | None:
    """What `record_of` makes of a row with the fields of the published trace alone, in a third of the time; None where anything needs a second look."""
    ids, stamp = row["hash_ids"], row.get("timestamp", 0)
    length, answer = row.get("input_length", 0), row.get("output_length", 0)
    if (
        type(length) is not int
        or type(answer) is not int
        or (type(stamp) is not int and type(stamp) is not float)
        or type(ids) is not list
        or length < 0
        or answer < 0
        or not 0 <= stamp < SECONDS[0]
        or not set(map(type, ids)) <= _WHOLE
        or not row.keys() <= _TRACE
    ):
        return None
    return Record(
        place=place,
        format="mooncake",
        timestamp=float(stamp) if "timestamp" in row else None,
        hash_ids=ids,
        input_length=length if "input_length" in row else None,
        output_length=answer if "output_length" in row else None,
    )


def _checked(record: Record) -> Record:
    """Raise Unreadable when the number of ids cannot belong to the stated length."""
    size, length, ids = record.block_size, record.input_length, record.hash_ids
    if size and length is not None and ids is not None and len(ids) not in {length // size, -(-length // size)}:
        raise Unreadable(
            f"{len(ids)} blocks of {size} tokens do not fit input_length {length}; set --block-size", "hash_ids"
        )
    return record


def _read_bailian(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    inner = {key: value for key, value in row.items() if key not in {"timestamp", "chat_id"}}
    record = record_of(inner, place, "bailian", options)
    record.id = text_or_none(row["chat_id"])
    record.timestamp = milliseconds(row.get("timestamp"), "s")
    record.block_size = options.block_size or record.block_size or BAILIAN_BLOCK
    yield _checked(record)


def _read_aiperf(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    if row.get("text_input") is not None:
        inner = {**row, "prompt": row["text_input"]}
        del inner["text_input"]
    else:
        inner = {**row, **as_object(row["payload"], "payload")}
        del inner["payload"]
    yield record_of(inner, place, "aiperf", options)


def _read_dynamo(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """A `request_end` record carries sequence-aware block hashes, a `request_payload` record the body; other events hold no request."""
    event = _inner(row, "event") or row
    kind = text_or_none(
        row.get("event_type", row.get("type", event.get("event_type", event.get("type", event.get("record_type")))))
    )
    request = _inner(event, "request") or event
    context = event.get("agent_context", event.get("session", row.get("agent_context")))
    stamp = next(
        (
            milliseconds(holder[key], unit)
            for holder in (request, event, row)
            for key, unit in _DYNAMO_TIMES
            if holder.get(key) is not None
        ),
        None,
    )
    replay = request.get("replay", event.get("replay"))
    if kind == "request_payload" or "payload" in request:
        body = as_object(parsed(request.get("payload", request.get("body")), "payload"), "payload")
        record = record_of(body.get("body", body), place, "dynamo", options)
    elif isinstance(replay, Mapping):
        hashes = as_list(replay.get("input_sequence_hashes"), "replay.input_sequence_hashes")
        record = Record(
            place=place,
            format="dynamo",
            hash_ids=list(hashes),
            block_size=options.block_size or replay.get("trace_block_size"),
            input_length=replay.get("input_length", request.get("input_tokens")),
            output_length=request.get("output_tokens"),
        )
        cached = request.get("cached_tokens")
        if isinstance(cached, int):
            from promptlint.traffic.record import CACHE_READ, INPUT

            record.usage = {CACHE_READ: cached} | (
                {INPUT: record.input_length} if record.input_length is not None else {}
            )
    elif kind in {"request_end", ""}:
        raise Unreadable("a finished request without replay hashes: record with replay data on", "replay")
    else:
        return  # tool and session events
    record.timestamp = stamp
    record.id = text_or_none(request.get("request_id", event.get("request_id", row.get("request_id"))))
    record.model = record.model or text_or_none(request.get("model"))
    if isinstance(context, Mapping):
        record.session_id = text_or_none(context.get("session_id", context.get("trajectory_id")))
    yield record


def _inner(row: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    value = row.get(key)
    return value if isinstance(value, Mapping) else None


_DYNAMO_TIMES = (
    ("request_received_ms", "ms"), ("event_time_unix_ms", "ms"), ("timestamp_ms", "ms"), ("timestamp_unix_ms", "ms"),
    ("timestamp", "ms"),
)  # fmt: skip


def _read_weka(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """One agent run: its requests in order, `t` in seconds, block ids valid within the run unless the scope is global."""
    size = row.get("block_size")
    run = text_or_none(row.get("id")) or str(place)
    local = row.get("hash_id_scope") not in {"global", None}
    for index, item in enumerate(as_list(row["requests"], "requests")):
        entry = as_object(item, f"requests[{index}]")
        if entry.get("hash_ids") is None:
            continue
        ids = as_list(entry["hash_ids"], f"requests[{index}].hash_ids")
        yield Record(
            place=place,
            format="weka",
            id=f"{run}:{index}",
            session_id=run,
            timestamp=milliseconds(entry.get("t"), "s"),
            hash_ids=[f"{run}:{one}" for one in ids] if local else ids,
            block_size=options.block_size or size,
            input_length=entry.get("in") if isinstance(entry.get("in"), int) else None,
            output_length=entry.get("out") if isinstance(entry.get("out"), int) else None,
        )


MOONCAKE = Format(
    "mooncake",
    "Mooncake traces of block hashes",
    lambda row: "hash_ids" in row and "chat_id" not in row,
    _read_mooncake,
)
BAILIAN = Format(
    "bailian",
    "Alibaba Bailian traces of block hashes",
    lambda row: "hash_ids" in row and "chat_id" in row,
    _read_bailian,
)
AIPERF = Format(
    "aiperf",
    "AIPerf traces with text_input or payload",
    lambda row: "text_input" in row or ("payload" in row and isinstance(row["payload"], Mapping)),
    _read_aiperf,
)


def _is_dynamo(row: Mapping[str, Any]) -> bool:
    """A record of the request trace, bare or in its sink's envelope."""
    inner = _inner(row, "event") or row
    return text_or_none(inner.get("schema")).startswith("dynamo.") or ("replay" in row and "request_id" in row)


DYNAMO = Format("dynamo", "NVIDIA Dynamo request traces", _is_dynamo, _read_dynamo)
WEKA = Format(
    "weka",
    "agent runs with block hashes (id, block_size, requests)",
    lambda row: "requests" in row and "block_size" in row,
    _read_weka,
)
