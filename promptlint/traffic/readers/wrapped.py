"""Objects that hold several requests or wrap one: cassettes in JSON, SGLang's agentic traces, AIPerf's payload files, SageMaker's data capture."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from promptlint.traffic.readers.base import Format, Options, as_list, as_object, parsed, text_or_none
from promptlint.traffic.readers.bodies import add_response, record_of
from promptlint.traffic.record import Place, Record, Unreadable, milliseconds

__all__ = ["AGENTIC", "CASSETTE", "PAYLOADS", "SAGEMAKER"]


def _read_cassette(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    from promptlint.traffic.readers.file_formats import cassette

    for item in cassette(row, place, options):
        if isinstance(item, Record):
            yield item
        elif isinstance(item[1], Unreadable):
            raise item[1]


def _inside(error: Unreadable, where: str) -> Unreadable:
    return Unreadable(error.reason, f"{where}.{error.field}" if error.field else where)


def _read_agentic(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """SGLang's agentic traces: conversations as lists of requests, each with its whole message list."""
    for number, conversation in enumerate(as_list(row["conversations"], "conversations")):
        for step, item in enumerate(as_list(conversation, f"conversations[{number}]")):
            where = f"conversations[{number}][{step}]"
            entry = as_object(item, where)
            try:
                record = record_of(entry, place, "sglang-agentic", options)
            except Unreadable as error:
                raise _inside(error, where) from error
            record.session_id = record.session_id or f"{place.line}:{number}"
            record.id = record.id or f"{place.line}:{number}:{step}"
            tokens = entry.get("prompt_tokens")
            record.input_length = tokens if isinstance(tokens, int) else record.input_length
            yield record


def _read_payloads(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """AIPerf's inputs.json: sessions with the bodies that were sent."""
    sessions = as_list(row["data"], "data") if "data" in row else [row]
    for number, item in enumerate(sessions):
        session = as_object(item, f"data[{number}]")
        for step, payload in enumerate(as_list(session.get("payloads"), f"data[{number}].payloads")):
            where = f"data[{number}].payloads[{step}]"
            try:
                record = record_of(as_object(payload, where), place, "aiperf-inputs", options)
            except Unreadable as error:
                raise _inside(error, where) from error
            record.session_id = text_or_none(session.get("session_id"))
            yield record


def _read_sagemaker(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """Data capture of a SageMaker endpoint: the body as a JSON text or base64."""
    capture = as_object(row["captureData"], "captureData")
    body = _captured(capture.get("endpointInput"), "captureData.endpointInput")
    try:
        record = record_of(as_object(body, "captureData.endpointInput.data"), place, "sagemaker", options)
    except Unreadable as error:
        raise _inside(error, "captureData.endpointInput.data") from error
    if capture.get("endpointOutput") is not None:
        add_response(record, _captured(capture["endpointOutput"], "captureData.endpointOutput"))
    meta = row.get("eventMetadata")
    if isinstance(meta, Mapping):
        record.id = text_or_none(meta.get("eventId"))
        record.timestamp = milliseconds(meta.get("inferenceTime"))
    yield record


def _captured(part: Any, field: str) -> Any:
    holder = as_object(part, field)
    data = holder.get("data")
    if holder.get("encoding") == "BASE64" and isinstance(data, str):
        try:
            data = base64.b64decode(data).decode("utf-8")
        except ValueError as error:
            raise Unreadable(f"not base64 text: {error}", f"{field}.data") from error
    return parsed(data, f"{field}.data")


def _lists(row: Mapping[str, Any]) -> bool:
    rows = row.get("conversations")
    return isinstance(rows, list) and bool(rows) and isinstance(rows[0], list)


CASSETTE = Format(
    "vcr", "VCR cassettes (YAML or JSON)", lambda row: isinstance(row.get("interactions"), list), _read_cassette
)
AGENTIC = Format("sglang-agentic", "SGLang's agentic traces", _lists, _read_agentic)
PAYLOADS = Format(
    "aiperf-inputs",
    "AIPerf's inputs.json",
    lambda row: (
        "payloads" in row
        or (
            isinstance(row.get("data"), list)
            and bool(row["data"])
            and isinstance(row["data"][0], Mapping)
            and "payloads" in row["data"][0]
        )
    ),
    _read_payloads,
)
SAGEMAKER = Format("sagemaker", "SageMaker data capture", lambda row: "captureData" in row, _read_sagemaker)
