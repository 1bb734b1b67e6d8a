"""Request bodies as they go over the wire (OpenAI chat, responses and completions, Anthropic, Bedrock, Gemini), batches, and our own canonical record.

The canonical record is such a body with a few more fields, so one function reads them all: `record_of`. Other readers find the body
in their envelope and call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from promptlint.traffic.readers.base import Format, Options, as_list, as_object, kind, text_or_none
from promptlint.traffic.record import Place, Record, Unreadable, milliseconds, usage_of

__all__ = [
    "ANTHROPIC_BATCH",
    "BATCH",
    "BODY",
    "CANONICAL",
    "COMPLETION",
    "EXCHANGE",
    "SECONDS",
    "answer_of",
    "record_of",
]

# Fields of a body that are part of the cache key of some provider, or steer requests to a machine.
PARAMETERS = frozenset(
    [
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "text",
        "reasoning",
        "reasoning_effort",
        "verbosity",
        "thinking",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "cache_control",
        "cache_salt",
        "service_tier",
        "output_config",
        "context_management",
        "toolChoice",
        "toolConfig",
        "generationConfig",
        "cachedContent",
        "previous_response_id",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stop",
        "stop_sequences",
        "stream",
        "stream_options",
        "seed",
        "n",
        "user",
        "metadata",
        "store",
        "logprobs",
        "top_logprobs",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "sampling_params",
        "ignore_eos",
    ]
)
_ENVELOPE = frozenset(
    [
        "timestamp",
        "id",
        "session_id",
        "model",
        "namespace",
        "call_site",
        "tools",
        "functions",
        "messages",
        "system",
        "instructions",
        "input",
        "prompt",
        "text",
        "token_ids",
        "tokens",
        "input_ids",
        "hash_ids",
        "block_size",
        "input_length",
        "output",
        "output_tokens",
        "output_length",
        "usage",
        "arrival",
        "key",
        "contents",
        "systemInstruction",
        "system_instruction",
        "prompt_token_ids",
    ]
)

SECONDS = (1e9, 4e9)
"""As seconds these are 2001 to 2096; as milliseconds no log of today, and no trace that is shorter than eleven days."""


_ANSWER = frozenset({"id", "usage", "recorded"})
"""The fields of an answer's own line, which stands in a recording whose end nobody could write."""


def record_of(body: Mapping[str, Any], place: Place, name: str, options: Options) -> Record:
    """The record of one body or canonical line. Raises Unreadable, naming the field, for what is not one."""
    record = Record(place=place, format=name, model=text_or_none(body.get("model")))
    _envelope(record, body)
    _what_was_sent(record, body)
    tools = body.get("tools", body.get("functions"))
    if tools is None and isinstance(body.get("toolConfig"), Mapping):
        tools = body["toolConfig"].get("tools")
    if tools is None and options.tools is not None and record.messages is not None:
        tools = options.tools
    if tools is not None:
        record.tools = as_list(tools, "tools")
    for key, value in body.items():
        if key in PARAMETERS and not (key == "text" and record.prompt is value):
            record.parameters[key] = value
        elif key not in _ENVELOPE:
            record.extra[key] = value
    salt = record.parameters.get("cache_salt")
    if isinstance(salt, str) and not record.namespace:
        record.namespace = salt
    if record.parameters.get("previous_response_id"):
        record.notes += ("its prefix is kept by the server (previous_response_id), so only the new part is known",)
    return record


def _is_answer(row: Mapping[str, Any]) -> bool:
    return "recorded" in row and row.keys() <= _ANSWER


def _envelope(record: Record, body: Mapping[str, Any]) -> None:
    record.id = text_or_none(body.get("id"))
    if isinstance(body.get("id"), int) and not isinstance(body["id"], bool):
        record.given_id = body["id"]
    record.session_id = text_or_none(body.get("session_id"))
    field, given = _first_given(body, "namespace", "key")
    record.namespace = text_or_none(given)
    record.empty_key = given == ""
    if given not in (None, "") and not record.namespace:  # dropped, it would let tenants share
        raise Unreadable(f"expected text, found {kind(given)}", field)
    record.call_site = text_or_none(body.get("call_site"))
    if body.get("timestamp") is not None:
        record.timestamp = milliseconds(body["timestamp"])
        if record.timestamp is None:
            raise Unreadable(f"not a time: {str(body['timestamp'])[:40]!r}", "timestamp")
        if type(body["timestamp"]) in {int, float} and SECONDS[0] <= record.timestamp < SECONDS[1]:
            record.notes += ("a timestamp that looks like seconds since 1970 is read as milliseconds",)
    elif body.get("arrival") is not None:
        record.timestamp = milliseconds(body["arrival"], "s")
        if record.timestamp is None:
            raise Unreadable(f"not a time: {str(body['arrival'])[:40]!r}", "arrival")
    record.usage = usage_of(body.get("usage"))
    output = body.get("output")
    record.output = output
    if body.get("output_tokens") is not None:
        if isinstance(body["output_tokens"], int):
            record.output_length = body["output_tokens"]
        else:
            record.output_tokens = _ids(body["output_tokens"], "output_tokens")
    record.output_length = _length(body, "output_length") if record.output_length is None else record.output_length
    record.input_length = _length(body, "input_length")
    record.block_size = _length(body, "block_size")


_TOKENS = ("token_ids", "tokens", "input_ids", "prompt_token_ids")


def _first_given(body: Mapping[str, Any], *fields: str) -> tuple[str, Any]:
    """The first of the fields that is neither absent nor null, and its value; the first field and None without one."""
    return next(((field, body[field]) for field in fields if body.get(field) is not None), (fields[0], None))


def _length(body: Mapping[str, Any], field: str) -> int | None:
    value = body.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unreadable("expected a number of tokens, 0 or more", field)
    return value


def _ids(value: Any, field: str) -> list[int]:
    ids = as_list(value, field)
    if set(map(type, ids)) <= {int} and min(ids, default=0) >= 0:
        return ids
    for index, item in enumerate(ids):
        if type(item) is not int or item < 0:
            raise Unreadable("expected a token id, a whole number of 0 or more", f"{field}[{index}]")
    return ids


def _what_was_sent(record: Record, body: Mapping[str, Any]) -> None:
    """Fill the one field that says what was sent; the first of them in a fixed order wins."""
    if body.get("messages") is not None:
        record.messages = messages_of(body["messages"], "messages")
        record.system = _system(body.get("system"), "system")
        if record.system is not None:
            record.shape = "anthropic"
    elif "input" in body and ("hash_ids" not in body):
        record.shape = "responses"
        given = body["input"]
        record.messages = (
            [{"role": "user", "content": given}] if isinstance(given, str) else messages_of(given, "input", roles=False)
        )
        record.system = _system(body.get("instructions"), "instructions")
    elif body.get("contents") is not None:
        record.shape = "gemini"
        record.messages = messages_of(body["contents"], "contents", roles=False)
        record.system = body.get("systemInstruction", body.get("system_instruction"))
    elif (named := _first_given(body, *_TOKENS))[1] is not None:
        record.ids_field = named[0]
        record.token_ids = _ids(named[1], named[0])
    elif body.get("prompt") is not None:
        _prompt(record, body["prompt"], "prompt")
    elif isinstance(body.get("text"), str):
        record.prompt = body["text"]
    elif body.get("hash_ids") is not None:
        record.hash_ids = as_list(body["hash_ids"], "hash_ids")
        for index, item in enumerate(record.hash_ids):
            if not isinstance(item, (int, str)) or isinstance(item, bool):
                raise Unreadable("expected a block id", f"hash_ids[{index}]")
    elif not record.usage and not _is_answer(body):
        raise Unreadable("holds no messages, prompt, token ids or hash ids")


def _prompt(record: Record, value: Any, field: str) -> None:
    if isinstance(value, str):
        record.prompt = value
    elif isinstance(value, list) and value and all(type(item) is int for item in value):
        record.token_ids = _ids(value, field)
    elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        record.prompt = value[0]
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        record.messages = messages_of(value, field)
    else:
        raise Unreadable("expected one text or a list of token ids", field)


def messages_of(value: Any, field: str, *, roles: bool = True) -> list[Any]:
    """A list of messages, unchanged, after a look at its shape. With `roles` each message must name its role."""
    messages = as_list(value, field)
    for index, message in enumerate(messages):
        if type(message) is not dict and not isinstance(message, Mapping):  # the second question is a slow one
            raise Unreadable("expected a message object", f"{field}[{index}]")
        role = message.get("role")
        if roles and not isinstance(role, str):
            raise Unreadable("a message without a role", f"{field}[{index}].role")
        content = message.get("content")
        if content is not None and not isinstance(content, (str, list, Mapping)):
            raise Unreadable("expected text or a list of parts", f"{field}[{index}].content")
    return messages


def _system(value: Any, field: str) -> Any:
    if value is None or isinstance(value, (str, list)):
        return value
    raise Unreadable("expected text or a list of blocks", field)


def answer_of(response: Mapping[str, Any]) -> Any:
    """The answering message of a response body, as it is, or None: OpenAI chat and responses, Anthropic, completions."""
    choices = response.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return choices[0].get("message", choices[0].get("text"))
    if isinstance(response.get("output"), list):
        return response["output"]
    if response.get("role") == "assistant" and response.get("content") is not None:
        return {"role": "assistant", "content": response["content"]}
    return None


def add_response(record: Record, response: Any) -> None:
    """Take the usage, the answer and the model from a response body."""
    if not isinstance(response, Mapping):
        return
    usage = response.get("usage", response.get("usageMetadata"))
    record.usage = usage_of(usage) or record.usage
    if record.output is None:
        record.output = answer_of(response)
    if not record.model:
        record.model = text_or_none(response.get("model"))


def _read_body(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    name = (
        "anthropic" if "system" in row or _anthropic_tools(row) else "openai-responses" if "input" in row else "openai"
    )
    yield record_of(row, place, name, options)


def _anthropic_tools(row: Mapping[str, Any]) -> bool:
    tools = row.get("tools")
    return isinstance(tools, list) and bool(tools) and isinstance(tools[0], Mapping) and "input_schema" in tools[0]


def _read_canonical(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    yield record_of(row, place, "canonical", options)


def _read_completion(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    prompt = row.get("prompt")
    if isinstance(prompt, list) and len(prompt) > 1 and all(isinstance(item, str) for item in prompt):
        for index, text in enumerate(prompt):
            record = record_of({**row, "prompt": text}, place, "openai-completions", options)
            record.id = f"{record.id}[{index}]" if record.id else ""
            yield record
        return
    yield record_of(row, place, "openai-completions", options)


def _read_batch(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    custom = text_or_none(row.get("custom_id"))
    if "body" in row:
        body = as_object(row["body"], "body")
        try:
            record = record_of(body, place, "openai-batch", options)
        except Unreadable as error:
            raise Unreadable(error.reason, f"body.{error.field}" if error.field else "body") from error
    else:
        record = Record(place=place, format="openai-batch")
        if row.get("response") is None:
            raise Unreadable("a batch answer without a response", "response")
    record.id = custom
    record.extra |= {key: row[key] for key in ("method", "url") if key in row}
    response = row.get("response")
    if isinstance(response, Mapping):
        add_response(record, response.get("body"))
    yield record


def _read_anthropic_batch(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    many = row.get("requests")
    items = as_list(many, "requests") if many is not None else [row]
    for index, item in enumerate(items):
        where = f"requests[{index}]" if many is not None else ""
        entry = as_object(item, where)
        try:
            record = record_of(as_object(entry.get("params"), "params"), place, "anthropic-batch", options)
        except Unreadable as error:
            raise Unreadable(error.reason, ".".join(part for part in (where, "params", error.field) if part)) from error
        record.id = text_or_none(entry.get("custom_id"))
        record.shape = "anthropic"
        yield record


def _read_batch_result(row: Mapping[str, Any], place: Place, _options: Options) -> Iterator[Record]:
    record = Record(place=place, format="anthropic-batch", id=text_or_none(row.get("custom_id")))
    result = as_object(row["result"], "result")
    add_response(record, result.get("message"))
    yield record


_EXCHANGE = frozenset({"request", "request_body", "response", "response_body", "timestamp", "time", "created_at", "start_time", "startTime", "id", "request_id", "custom_id", "session_id", "sessionId"})  # fmt: skip


def _read_exchange(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """A request beside its response, the form in which proxies and loggers write (`{"request": body, "response": body}`)."""
    from promptlint.traffic.readers.base import parsed

    given = as_object(parsed(row.get("request", row.get("request_body")), "request"), "request")
    body = given.get("body", given)
    body = as_object(parsed(body, "request.body"), "request.body")
    try:
        record = record_of(body, place, "exchange", options)
    except Unreadable as error:
        raise Unreadable(error.reason, f"request.{error.field}") from error
    response = parsed(row.get("response", row.get("response_body")), "response")
    if isinstance(response, Mapping):
        add_response(record, parsed(response.get("body", response), "response.body"))
    for key in ("timestamp", "time", "created_at", "start_time", "startTime"):
        if row.get(key) is not None:
            record.timestamp = milliseconds(row[key])
            break
    record.id = text_or_none(row.get("id", row.get("request_id", row.get("custom_id")))) or record.id
    record.session_id = text_or_none(row.get("session_id", row.get("sessionId"))) or record.session_id
    record.extra |= {key: value for key, value in row.items() if key not in _EXCHANGE}
    yield record


def _is_canonical(row: Mapping[str, Any]) -> bool:
    if any(key in row for key in ("token_ids", "hash_ids", "tokens", "input_ids")):
        return True
    if "usage" in row:
        return not any(key in row for key in ("object", "choices", "messages", "input"))
    return _is_answer(row)


CANONICAL = Format("canonical", "one request a line, promptlint's own record", _is_canonical, _read_canonical)
BODY = Format(
    "body",
    "request bodies of OpenAI (chat, responses), Anthropic, Bedrock or Gemini, one a line",
    lambda row: (
        "messages" in row or "contents" in row or ("input" in row and ("model" in row or "instructions" in row))
    ),
    _read_body,
)
COMPLETION = Format(
    "completions",
    "bodies with one prompt text (OpenAI completions, SGLang generate, bench data)",
    lambda row: "prompt" in row or "text" in row,
    _read_completion,
)
BATCH = Format(
    "openai-batch",
    "OpenAI Batch input or output",
    lambda row: "custom_id" in row and ("body" in row or "response" in row),
    _read_batch,
)
ANTHROPIC_BATCH = Format(
    "anthropic-batch",
    "Anthropic message batches",
    lambda row: (
        (
            "requests" in row
            and isinstance(row["requests"], list)
            and bool(row["requests"])
            and "params" in _first(row["requests"])
        )
        or ("custom_id" in row and "params" in row)
    ),
    _read_anthropic_batch,
)
ANTHROPIC_RESULT = Format(
    "anthropic-batch-result",
    "results of an Anthropic batch",
    lambda row: "custom_id" in row and "result" in row,
    _read_batch_result,
)
EXCHANGE = Format(
    "exchange",
    "a request body beside its response, as proxies write them",
    lambda row: ("request" in row or "request_body" in row) and ("response" in row or "response_body" in row),
    _read_exchange,
)


def _first(items: list[Any]) -> Mapping[str, Any]:
    return items[0] if isinstance(items[0], Mapping) else {}
