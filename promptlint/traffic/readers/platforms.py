"""Exports of tracing platforms and gateways: LiteLLM, Langfuse, LangSmith, Helicone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from promptlint.traffic.readers.base import Format, Options, as_object, parsed, text_or_none
from promptlint.traffic.readers.bodies import add_response, record_of
from promptlint.traffic.record import Place, Record, Unreadable, milliseconds, usage_of

__all__ = ["HELICONE", "LANGFUSE", "LANGSMITH", "LITELLM", "LITELLM_SPEND"]

_NO_MESSAGES = (
    "holds no messages: storing prompts is switched off (store_prompts_in_spend_logs, or turn_off_message_logging)"
)
_LANGCHAIN_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "developer": "developer",
}


def _read_litellm(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """A StandardLoggingPayload. The tools live in `model_parameters`; `cache_hit` is LiteLLM's own response cache and says nothing here."""
    settings = parsed(row.get("model_parameters") or {}, "model_parameters")
    body = {**(settings if isinstance(settings, Mapping) else {}), "model": row.get("model")}
    messages = parsed(row.get("messages"), "messages") if _is_json(row.get("messages")) else row.get("messages")
    if isinstance(messages, str):
        body["prompt"] = messages
    elif isinstance(messages, Mapping) and "messages" in messages:
        body |= messages
    elif messages:
        body["messages"] = messages
    else:
        raise Unreadable(_NO_MESSAGES, "messages")
    record = record_of(body, place, "litellm", options)
    record.id = text_or_none(row.get("litellm_call_id", row.get("id")))
    record.session_id = text_or_none(row.get("session_id"))
    record.timestamp = milliseconds(row.get("startTime"), "s")
    response = parsed(row.get("response"), "response") if _is_json(row.get("response")) else row.get("response")
    add_response(record, response)
    if not record.usage:
        record.usage = usage_of(
            {key: row[key] for key in ("prompt_tokens", "completion_tokens") if row.get(key) is not None}
        )
    metadata = row.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("usage_object"), Mapping):
        record.usage = usage_of(metadata["usage_object"]) or record.usage
    yield record


def _is_json(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}


def _read_spend(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """A row of LiteLLM's spend logs: the full body is in `proxy_server_request`, where prompts are stored at all."""
    body: Any = parsed(row["proxy_server_request"], "proxy_server_request") if row.get("proxy_server_request") else {}
    if isinstance(body, Mapping) and isinstance(body.get("body"), Mapping):
        body = body["body"]
    if not isinstance(body, Mapping) or not any(body.get(key) for key in ("messages", "input", "prompt")):
        messages = parsed(row.get("messages"), "messages") if _is_json(row.get("messages")) else row.get("messages")
        if not messages:
            raise Unreadable(_NO_MESSAGES, "messages")
        body = {"messages": messages}
    record = record_of({"model": row.get("model"), **body}, place, "litellm-spend", options)
    record.id = text_or_none(row.get("request_id"))
    record.session_id = text_or_none(row.get("session_id"))
    record.timestamp = milliseconds(row.get("startTime"), "s")
    add_response(
        record, parsed(row.get("response"), "response") if _is_json(row.get("response")) else row.get("response")
    )
    metadata = parsed(row["metadata"], "metadata") if _is_json(row.get("metadata")) else row.get("metadata")
    if isinstance(metadata, Mapping):
        record.usage = (
            usage_of(metadata.get("usage_object")) or usage_of(metadata.get("additional_usage_values")) or record.usage
        )
    if not record.usage:
        record.usage = usage_of(
            {key: row[key] for key in ("prompt_tokens", "completion_tokens") if row.get(key) is not None}
        )
    yield record


def _get(row: Mapping[str, Any], *names: str) -> Any:
    """The first value that is there: exporters write names in camel or snake case."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def _read_langfuse(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    given = row.get("input")
    given = parsed(given, "input") if _is_json(given) else given
    settings = _get(row, "modelParameters", "model_parameters")
    body: dict[str, Any] = dict(settings) if isinstance(settings, Mapping) else {}
    if isinstance(given, list):
        body["messages"] = [_langchain_message(message) for message in given]
    elif isinstance(given, Mapping):
        body |= given
        if isinstance(given.get("messages"), list):
            body["messages"] = [_langchain_message(message) for message in given["messages"]]
    elif isinstance(given, str):
        body["prompt"] = given
    else:
        raise Unreadable("a generation without its input", "input")
    body.setdefault("model", _get(row, "model", "providedModelName", "provided_model_name"))
    record = record_of(body, place, "langfuse", options)
    record.id = text_or_none(row.get("id"))
    record.session_id = text_or_none(_get(row, "sessionId", "session_id"))
    record.timestamp = milliseconds(_get(row, "startTime", "start_time"))
    record.usage = usage_of(_get(row, "usageDetails", "usage_details", "usage")) or record.usage
    record.output = row.get("output")
    name, version = _get(row, "promptName", "prompt_name"), _get(row, "promptVersion", "prompt_version")
    if name:
        record.extra |= {"prompt_name": name, "prompt_version": version}
    yield record


def _read_langsmith(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    inputs = as_object(row.get("inputs"), "inputs")
    extra = row.get("extra")
    settings = extra.get("invocation_params", {}) if isinstance(extra, Mapping) else {}
    settings = settings if isinstance(settings, Mapping) else {}
    body: dict[str, Any] = {key: value for key, value in settings.items() if not key.startswith("_")}
    messages = inputs.get("messages", inputs.get("input") if isinstance(inputs.get("input"), list) else None)
    if isinstance(messages, list) and messages and isinstance(messages[0], list):  # LangChain sends batches of one
        messages = messages[0]
    if isinstance(messages, list):
        body["messages"] = [_langchain_message(message) for message in messages]
        for key in ("tools", "system"):
            if inputs.get(key) is not None:
                body[key] = inputs[key]
    elif isinstance(inputs.get("prompts"), list) and len(inputs["prompts"]) == 1:
        body["prompt"] = inputs["prompts"][0]
    elif isinstance(inputs.get("prompt"), str):
        body["prompt"] = inputs["prompt"]
    else:
        raise Unreadable("a model run without messages or a prompt", "inputs")
    body.setdefault("model", settings.get("model_name", inputs.get("model")))
    record = record_of(body, place, "langsmith", options)
    record.id = text_or_none(row.get("id"))
    metadata = extra.get("metadata") if isinstance(extra, Mapping) else None
    session = (
        metadata.get("session_id", metadata.get("thread_id", metadata.get("conversation_id")))
        if isinstance(metadata, Mapping)
        else None
    )
    record.session_id = text_or_none(session)
    record.timestamp = milliseconds(row.get("start_time"))
    outputs = row.get("outputs")
    if isinstance(outputs, Mapping):
        add_response(record, outputs)
        record.usage = usage_of(outputs.get("usage_metadata")) or record.usage or _generation_usage(outputs)
    if not record.usage and row.get("prompt_tokens") is not None:
        record.usage = usage_of(
            {
                "input_tokens": row["prompt_tokens"],
                "input_token_details": row.get("prompt_token_details") or {},
                "output_tokens": row.get("completion_tokens"),
            }
        )
    yield record


def _generation_usage(outputs: Mapping[str, Any]) -> dict[str, int]:
    """Usage within LangChain's generations, or in its `llm_output`."""
    output = outputs.get("llm_output")
    if isinstance(output, Mapping):
        found = usage_of(output.get("token_usage", output.get("usage")))
        if found:
            return found
    generations = outputs.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    if isinstance(generations, Mapping):
        message = generations.get("message")
        inner = message.get("kwargs", message) if isinstance(message, Mapping) else {}
        return usage_of(inner.get("usage_metadata"))
    return {}


def _langchain_message(message: Any) -> Any:
    """A message of LangChain (serialised constructor, or `type` in place of `role`) in the chat form; others unchanged."""
    if not isinstance(message, Mapping) or "role" in message:
        return message
    fields = message.get("kwargs") if isinstance(message.get("kwargs"), Mapping) else message.get("data", message)
    fields = fields if isinstance(fields, Mapping) else {}
    kind = text_or_none(fields.get("type", message.get("type")))
    if kind not in _LANGCHAIN_ROLES:
        names = message.get("id")
        last = names[-1] if isinstance(names, list) and names else ""
        kind = str(last).removesuffix("Chunk").removesuffix("Message").lower()
    if kind not in _LANGCHAIN_ROLES:
        return message
    row: dict[str, Any] = {"role": _LANGCHAIN_ROLES[kind], "content": fields.get("content")}
    extra = fields.get("additional_kwargs")
    calls = fields.get("tool_calls") or (extra.get("tool_calls") if isinstance(extra, Mapping) else None)
    if calls:
        row["tool_calls"] = [_langchain_call(call) for call in calls]
    for name in ("name", "tool_call_id"):
        if fields.get(name) is not None:
            row[name] = fields[name]
    return row


def _langchain_call(call: Any) -> Any:
    if not isinstance(call, Mapping) or "function" in call:
        return call
    from promptlint.tokenizers.render import compact

    arguments = call.get("args")
    text = arguments if isinstance(arguments, str) else compact(arguments)
    return {"id": call.get("id"), "type": "function", "function": {"name": call.get("name"), "arguments": text}}


def _read_helicone(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    """A row of a Helicone export. Its fields have changed over time, so the body is taken from wherever it is."""
    holder = row.get("request") if isinstance(row.get("request"), Mapping) else row
    assert isinstance(holder, Mapping)
    given = _get(holder, "request_body", "body", "requestBody", "heliconeRequestBody") or _get(
        row, "request_body", "requestBody"
    )
    if given is None:
        raise Unreadable("exported without bodies (use --include-body)", "request_body")
    body = as_object(parsed(given, "request_body"), "request_body")
    record = record_of(body, place, "helicone", options)
    record.id = text_or_none(_get(row, "request_id", "helicone_request_id", "id")) or text_or_none(holder.get("id"))
    properties = _get(row, "request_properties", "properties")
    if isinstance(properties, Mapping):
        record.session_id = text_or_none(properties.get("Helicone-Session-Id", properties.get("helicone-session-id")))
    record.timestamp = milliseconds(_get(row, "request_created_at", "created_at") or _get(holder, "created_at"))
    answer = row.get("response")
    answer = answer.get("body", answer) if isinstance(answer, Mapping) else _get(row, "response_body", "responseBody")
    add_response(record, parsed(answer, "response_body") if _is_json(answer) else answer)
    if not record.usage:
        record.usage = usage_of({"prompt_tokens": row.get("prompt_tokens"), "completion_tokens": row.get("completion_tokens"), "cached_tokens": row.get("prompt_cache_read_tokens")})  # fmt: skip
    yield record


LITELLM = Format(
    "litellm",
    "LiteLLM logging payloads",
    lambda row: "call_type" in row and ("litellm_call_id" in row or "model_parameters" in row) and "messages" in row,
    _read_litellm,
)
LITELLM_SPEND = Format(
    "litellm-spend",
    "LiteLLM spend logs",
    lambda row: "proxy_server_request" in row or ("call_type" in row and "spend" in row and "request_id" in row),
    _read_spend,
)
LANGFUSE = Format(
    "langfuse",
    "Langfuse generations",
    lambda row: (
        row.get("type") == "GENERATION"
        and "input" in row
        and any(key in row for key in ("traceId", "trace_id", "startTime", "start_time"))
    ),
    _read_langfuse,
)
LANGSMITH = Format(
    "langsmith", "LangSmith model runs", lambda row: row.get("run_type") == "llm" and "inputs" in row, _read_langsmith
)
HELICONE = Format(
    "helicone",
    "Helicone exports",
    lambda row: (
        any(str(key).lower().startswith("helicone") for key in row)
        or "request_created_at" in row
        or ("request_body" in row and "request_id" in row)
    ),
    _read_helicone,
)
