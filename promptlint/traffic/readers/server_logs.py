"""Request lines in the logs of vLLM and SGLang servers.

A line becomes an object that the JSON readers take, or None when it is no request. Lines that are requests but lack the prompt are refused with
what to switch on: an estimate from half a prompt is worse than none.
"""

from __future__ import annotations

import ast
import contextlib
import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from promptlint.traffic.readers.base import Format, Options, as_object, text_or_none
from promptlint.traffic.readers.bodies import record_of
from promptlint.traffic.record import Place, Record, Unreadable, milliseconds, usage_of

__all__ = ["SGLANG", "SGLANG_RECEIVED", "VLLM", "parse_line"]

_CUT_LENGTH = 2048
"""Characters or items that SGLang keeps of a value at log level 2, half from each end (sglang 0.5.23, srt/utils/request_logger.py)."""
_LEVEL = "the log was written below level 3, which cuts or leaves out prompts: use --log-requests-level 3"

_PREFIX = re.compile(rb"^\[(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})[^\]]*\] ?")
_VLLM_TIME = re.compile(r"(?:DEBUG|INFO) (\d{2})-(\d{2}) (\d{2}):(\d{2}):(\d{2})")
_VLLM_DETAILS = re.compile(r"Request (\S+) details: prompt: ")
_VLLM_OLD = re.compile(r"Received request (\S+): prompt: ")
_VLLM_BARE = re.compile(r"Received request \S+: params: ")
_SGLANG_FINISH = re.compile(r"(Receive|Finish): obj=\w+\(")


def parse_line(data: bytes) -> Mapping[str, Any] | None:
    """The request in one line of a log as an object for the readers, or None for a line that is something else."""
    stamp = None
    head = _PREFIX.match(data)
    if head is not None:
        stamp = head.group(1).decode()
        data = data[head.end() :]
    if data[:1] == b"{":
        try:
            row = json.loads(data)
        except (ValueError, RecursionError):
            return None
        return row if isinstance(row, Mapping) else None
    if b"details: prompt: " in data or b"Received request " in data:
        return _vllm(data.decode("utf-8", "replace"))
    if b": obj=" in data:
        return _sglang_text(data.decode("utf-8", "replace"), stamp)
    if (
        b"server_args=ServerArgs(" in data
        or b"launch_server" in data
        or b"vllm serve" in data
        or b"non-default args" in data
    ):
        from promptlint.traffic.readers.aggregates import launch

        return launch(data.decode("utf-8", "replace"))
    return None


def _vllm(line: str) -> Mapping[str, Any] | None:
    match = _VLLM_DETAILS.search(line) or _VLLM_OLD.search(line)
    if match is None:
        if _VLLM_BARE.search(line):
            raise Unreadable("vLLM writes the prompt at debug level only: VLLM_LOGGING_LEVEL=DEBUG", "prompt")
        return None
    prompt, at = _literal(line, match.end())
    row: dict[str, Any] = {"vllm_request": match.group(1), "prompt": prompt}
    found = re.compile(r"prompt_token_ids: (\[[\d, ]*\]|None)").search(line, at)
    if found is not None and found.group(1) != "None":
        try:
            row["prompt_token_ids"] = json.loads(found.group(1))
        except ValueError:
            raise Unreadable("not a list of token ids", "prompt_token_ids") from None
    when = _VLLM_TIME.search(line)
    if when is not None:
        month, day, hour, minute, second = (int(part) for part in when.groups())
        # The log has no year; 2000 keeps the order and the distances, which is all that a replay needs.
        with contextlib.suppress(ValueError):  # no such day or hour: a request without a time
            row["timestamp"] = dt.datetime(2000, month, day, hour, minute, second, tzinfo=dt.UTC).timestamp() * 1000.0
    lora = re.compile(r"lora_name='([^']*)'").search(line, at)
    if lora is not None:
        row["namespace"] = lora.group(1)
    return row


def _literal(line: str, at: int) -> tuple[Any, int]:
    """The Python literal (text, None) that begins at an offset, and where it ends."""
    if line.startswith("None", at):
        return None, at + 4
    quote = line[at : at + 1]
    if quote not in {"'", '"'}:
        raise Unreadable("not a Python text", "prompt")
    end = at + 1
    while end < len(line) and line[end] != quote:
        end += 2 if line[end] == "\\" else 1
    if end >= len(line):
        raise Unreadable("the text has no end: the line was cut", "prompt")
    try:
        return ast.literal_eval(line[at : end + 1]), end + 1
    except (ValueError, SyntaxError) as error:
        raise Unreadable(f"not a Python text: {error}", "prompt") from error


def _read_vllm(row: Mapping[str, Any], place: Place, _options: Options) -> Iterator[Record]:
    prompt, ids = row.get("prompt"), row.get("prompt_token_ids")
    if prompt is None and ids is None:
        raise Unreadable("neither a prompt nor token ids", "prompt")
    if isinstance(prompt, str) and ids is not None and len(prompt) == len(ids) >= 16:
        raise Unreadable(f"prompt and token ids both end at {len(ids)}: cut by --max-log-len", "prompt")
    yield Record(
        place=place,
        format="vllm",
        id=text_or_none(row.get("vllm_request")),
        namespace=text_or_none(row.get("namespace")),
        timestamp=row.get("timestamp"),
        prompt=prompt if ids is None else None,
        token_ids=ids,
        extra={"text": prompt} if ids is not None and prompt else {},
    )


def _sglang_text(line: str, stamp: str | None) -> Mapping[str, Any] | None:
    match = _SGLANG_FINISH.search(line)
    if match is None:
        return None
    fields, end = _fields(line, match.end())
    out: Any = None
    if match.group(1) == "Finish":
        at = line.find(", out=", end)
        out = _python(line[at + 6 :]) if at >= 0 else None
    obj = {name: _python(text) for name, text in fields.items() if name in _WANTED}
    event = "request.finished" if match.group(1) == "Finish" else "request.received"
    return {"timestamp": stamp, "event": event, "rid": obj.get("rid"), "obj": obj, "out": out}


_WANTED = frozenset({"rid", "text", "input_ids", "lora_path", "extra_key", "cache_salt", "session_params"})


def _fields(line: str, at: int) -> tuple[dict[str, str], int]:
    """The fields of a dataclass written as `name=value, …)`, values as text, and the offset behind the closing bracket."""
    fields: dict[str, str] = {}
    depth = 0
    start = at
    index = at
    while index < len(line):
        char = line[index]
        if char in "'\"":
            index = _skip_text(line, index)
            continue
        if char in "([{<":
            depth += 1
        elif char in ")]}>" and depth:
            depth -= 1
        elif (char == "," and depth == 0) or (char == ")" and depth == 0):
            name, equals, value = line[start:index].partition("=")
            if equals:
                fields[name.strip()] = value
            start = index + 1
            if char == ")":
                return fields, index + 1
        index += 1
    raise Unreadable("the line was cut", "obj")


def _skip_text(line: str, at: int) -> int:
    quote = line[at]
    index = at + 1
    while index < len(line) and line[index] != quote:
        index += 2 if line[index] == "\\" else 1
    return index + 1


def _python(text: str) -> Any:
    """A Python literal, or the text itself where it is none. Raises Unreadable for a value that was cut in its middle."""
    if re.match(r"""^\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\[[^\]]*\]) \.\.\. ['"\[]""", text):
        raise Unreadable(_LEVEL, "obj.text")
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def _whole(value: Any, field: str) -> None:
    """Raise Unreadable for a value of the shape into which level 2 cuts long ones."""
    half = _CUT_LENGTH // 2
    if isinstance(value, str) and len(value) == _CUT_LENGTH + 3 and value[half : half + 3] == "...":
        raise Unreadable(_LEVEL, field)
    if isinstance(value, list):
        if len(value) == _CUT_LENGTH + 1 and value[half] == "...":
            raise Unreadable(_LEVEL, field)
        if value and not isinstance(value[0], int):
            for index, item in enumerate(value):
                _whole(item, f"{field}[{index}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _whole(item, f"{field}.{key}")


def _read_sglang(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    obj = as_object(row.get("obj"), "obj")
    for name in ("text", "input_ids", "messages", "prompt", "tools"):
        if obj.get(name) is not None:
            _whole(obj[name], f"obj.{name}")
    yield sglang_record(obj, row.get("out"), place, options, rid=row.get("rid"), stamp=row.get("timestamp"))


def sglang_record(
    obj: Mapping[str, Any], out: Any, place: Place, options: Options, *, rid: Any = None, stamp: Any = None
) -> Record:
    """The record of one request object of SGLang, with what came back. Ids win over text: they are what the cache saw."""
    ids, text = obj.get("input_ids"), obj.get("text")
    record = Record(place=place, format="sglang", id=text_or_none(rid if rid is not None else obj.get("rid")))
    if isinstance(ids, list) and ids and all(type(item) is int for item in ids):
        record.token_ids = ids
    elif isinstance(text, str):
        record.prompt = text
    elif obj.get("messages") is not None:
        record = record_of(obj, place, "sglang", options)
        record.id = record.id or text_or_none(rid)
    elif isinstance(text, list) or (isinstance(ids, list) and ids):
        raise Unreadable("a batch of prompts in one request", "obj.text")
    else:
        raise Unreadable(_LEVEL, "obj.text")
    record.timestamp = milliseconds(stamp)
    parts = [text_or_none(obj.get(key)) for key in ("lora_path", "extra_key", "cache_salt")]
    record.namespace = "/".join(part for part in parts if part)
    params = obj.get("session_params")
    if isinstance(params, Mapping):
        record.session_id = text_or_none(params.get("id"))
    out = out[0] if isinstance(out, list) and out else out
    if isinstance(out, Mapping):
        meta = out.get("meta_info")
        record.usage = usage_of(meta)
        produced = out.get("output_ids")
        if isinstance(produced, list) and all(type(item) is int for item in produced):
            record.output_tokens = produced
        elif isinstance(out.get("text"), str):
            record.output = out["text"]
        if isinstance(meta, Mapping) and isinstance(meta.get("completion_tokens"), int):
            record.output_length = meta["completion_tokens"]
    return record


VLLM = Format("vllm", "debug request lines of a vLLM server", lambda row: "vllm_request" in row, _read_vllm)
SGLANG = Format("sglang", "request logs of an SGLang server, level 3 (finished requests)", lambda row: row.get("event") == "request.finished", _read_sglang)  # fmt: skip
SGLANG_RECEIVED = Format(
    "sglang-received",
    "request logs of an SGLang server, level 3 (received requests)",
    lambda row: str(row.get("event", "")).startswith("request.received"),
    _read_sglang,
    only_named=True,
)
