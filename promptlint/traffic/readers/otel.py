"""OpenTelemetry spans and events: the GenAI conventions, old and new, and OpenInference (Arize Phoenix, OpenLLMetry's old attributes too).

Content is opt-in in all of them. A span without it still tells what it cost; the record is then kept for its usage, with a note.
Messages become the chat form (role, content, tool_calls), because that is what templates and paths speak.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from promptlint.traffic.readers.base import Format, Options, as_list, parsed, text_or_none
from promptlint.traffic.record import Place, Record, Unreadable, milliseconds, usage_of

__all__ = ["OTEL", "OTLP"]

_NO_CONTENT = "no message content was captured (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT)"
_BARE_TOOLS = "tool definitions without parameters: the tools look shorter than they are"
_TRUNCATABLE = {"gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.prompt"}
_MESSAGE_EVENTS = {"gen_ai.system.message": "system", "gen_ai.user.message": "user", "gen_ai.assistant.message": "assistant", "gen_ai.tool.message": "tool"}  # fmt: skip


def _value(value: Any) -> Any:
    """A value of OTLP's JSON encoding (`{"stringValue": …}`) or a plain one."""
    if not isinstance(value, Mapping):
        return value
    for key in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        if key in value:
            return value[key]
    if "intValue" in value:
        try:
            return int(value["intValue"])
        except (TypeError, ValueError, OverflowError):
            return None
    if "arrayValue" in value:
        return [_value(item) for item in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return _attributes(value["kvlistValue"].get("values"))
    return dict(value)


def _attributes(given: Any) -> dict[str, Any]:
    """Attributes as one flat object, whichever way they are written."""
    if isinstance(given, Mapping):
        return {str(key): _value(value) for key, value in given.items()}
    if isinstance(given, list):
        return {str(row.get("key")): _value(row.get("value")) for row in given if isinstance(row, Mapping)}
    return {}


def _flat(row: Mapping[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    """Nested attributes (`{"llm": {"input_messages": […]}}`, as Phoenix exports them) written flat."""
    flat: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping) and value and not prefix.startswith("gen_ai."):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        elif (
            isinstance(value, list)
            and value
            and all(isinstance(item, Mapping) for item in value)
            and not prefix.startswith("gen_ai.")
        ):
            for index, inner in enumerate(value):
                walk(f"{prefix}.{index}", inner)
        else:
            flat[prefix] = value

    for key, value in attributes.items():
        walk(key, value)
    for key, value in row.items():
        if key.startswith(("gen_ai.", "llm.", "attributes.")):
            flat.setdefault(key.removeprefix("attributes."), value)
    return flat


def _read_otlp(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    for resource in (*row.get("resourceSpans", ()), *row.get("resource_spans", ())):
        for scope in (*resource.get("scopeSpans", ()), *resource.get("scope_spans", ())):
            for span in scope.get("spans", ()):
                yield from _span(span, place, options)
    for resource in (*row.get("resourceLogs", ()), *row.get("resource_logs", ())):
        for scope in (*resource.get("scopeLogs", ()), *resource.get("scope_logs", ())):
            for entry in scope.get("logRecords", scope.get("log_records", ())):
                yield from _span(entry, place, options)


def _span(span: Mapping[str, Any], place: Place, _options: Options) -> Iterator[Record]:
    attributes = _flat(span, _attributes(span.get("attributes")))
    body = span.get("body")
    if isinstance(body, Mapping):
        inner = _value(body)
        if isinstance(inner, Mapping):
            attributes = {**{str(key): value for key, value in inner.items()}, **attributes}
    events = [event for event in span.get("events") or () if isinstance(event, Mapping)]
    for event in events:
        name = str(event.get("name", ""))
        if name in {"gen_ai.client.inference.operation.details", "gen_ai.content.prompt", "gen_ai.content.completion"}:
            attributes |= _attributes(event.get("attributes"))
    if not _about_a_model(attributes, events):
        return
    record = Record(
        place=place, format="openinference" if any(key.startswith("llm.") for key in attributes) else "opentelemetry"
    )
    record.timestamp = _time(span)
    record.id = _span_id(span)
    record.model = next((text for key in ("gen_ai.request.model", "llm.model_name", "gen_ai.response.model", "llm.request.model") if (text := text_or_none(attributes.get(key)))), "")  # fmt: skip
    record.session_id = next((text for key in ("gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id") if (text := text_or_none(attributes.get(key)))), "")  # fmt: skip
    record.usage = usage_of(attributes) or _old_usage(attributes)
    _fill(record, attributes, events)
    if record.messages is None and record.prompt is None:
        if not record.usage:
            raise Unreadable(_NO_CONTENT, "attributes")
        record.notes += (_NO_CONTENT,)
    for key in ("gen_ai.prompt.name", "llm.prompt_template.template", "llm.prompt_template.version", "llm.prompt_template.variables", "traceloop.prompt.template"):  # fmt: skip
        if attributes.get(key) is not None:
            record.extra[key] = attributes[key]
    yield record


def _about_a_model(attributes: Mapping[str, Any], events: list[Mapping[str, Any]]) -> bool:
    kind = attributes.get("openinference.span.kind")
    if kind is not None:
        return str(kind).upper() == "LLM"
    operation = attributes.get("gen_ai.operation.name", attributes.get("llm.request.type"))
    if operation in {"execute_tool", "invoke_agent", "create_agent", "embeddings", "embedding", "rerank"}:
        return False
    return any(key.startswith(("gen_ai.", "llm.")) for key in attributes) or any(
        str(event.get("name", "")).startswith("gen_ai.") for event in events
    )


def _time(span: Mapping[str, Any]) -> float | None:
    for key in ("startTimeUnixNano", "start_time_unix_nano", "timeUnixNano", "time_unix_nano", "observedTimeUnixNano"):
        if span.get(key):
            return milliseconds(int(span[key]), "ns")
    for key in ("start_time", "startTime", "timestamp"):
        if span.get(key):
            value = span[key]
            return milliseconds(value, "ns" if isinstance(value, int) and value > 10**16 else "ms")
    return None


def _span_id(span: Mapping[str, Any]) -> str:
    context = span.get("context")
    inner = context if isinstance(context, Mapping) else {}
    found = span.get("spanId", span.get("span_id", inner.get("span_id")))
    return text_or_none(found)


def _old_usage(attributes: Mapping[str, Any]) -> dict[str, int]:
    tokens = {key.removeprefix("llm.token_count.").removeprefix("llm.usage."): value for key, value in attributes.items() if key.startswith(("llm.token_count.", "llm.usage."))}  # fmt: skip
    return usage_of(tokens)


def _fill(record: Record, attributes: Mapping[str, Any], events: list[Mapping[str, Any]]) -> None:
    """Messages, system text, tools and the answer, from whichever encoding there is."""
    given = attributes.get("gen_ai.input.messages")
    if given is not None:
        record.messages = _messages(_loaded(given, "gen_ai.input.messages"), "gen_ai.input.messages")
        instructions = attributes.get("gen_ai.system_instructions")
        if instructions is not None:
            parts = _loaded(instructions, "gen_ai.system_instructions")
            record.system = parts if isinstance(parts, str) else _text_of(as_list(parts, "gen_ai.system_instructions"))
        said = attributes.get("gen_ai.output.messages")
        if said is not None:
            answers = _messages(_loaded(said, "gen_ai.output.messages"), "gen_ai.output.messages")
            record.output = answers[0] if answers else None
    elif any(key.startswith("llm.input_messages.") for key in attributes):
        record.messages = _indexed(attributes, "llm.input_messages", "message.")
        answers = _indexed(attributes, "llm.output_messages", "message.")
        record.output = answers[0] if answers else None
    elif any(re.match(r"gen_ai\.prompt\.\d+\.", key) for key in attributes):
        record.messages = _indexed(attributes, "gen_ai.prompt", "")
        answers = _indexed(attributes, "gen_ai.completion", "")
        record.output = answers[0] if answers else None
    elif attributes.get("gen_ai.prompt") is not None:
        text = attributes["gen_ai.prompt"]
        loaded = _loaded(text, "gen_ai.prompt") if isinstance(text, str) and text.lstrip()[:1] in {"[", "{"} else text
        if isinstance(loaded, str):
            record.prompt = loaded
        else:
            record.messages = _messages(
                loaded.get("messages") if isinstance(loaded, Mapping) else loaded, "gen_ai.prompt"
            )
    elif attributes.get("llm.prompts") is not None or attributes.get("llm.prompts.0.prompt.text") is not None:
        record.prompt = text_or_none(attributes.get("llm.prompts", attributes.get("llm.prompts.0.prompt.text"))) or None
    else:
        _from_events(record, events)
    _tools(record, attributes)


def _from_events(record: Record, events: list[Mapping[str, Any]]) -> None:
    """The older events, one a message."""
    messages = []
    for event in events:
        name = str(event.get("name", ""))
        inner = _attributes(event.get("attributes"))
        body = event.get("body")
        if isinstance(body, Mapping):
            inner |= _attributes(_value(body))
        if name in _MESSAGE_EVENTS:
            message = {"role": inner.get("role", _MESSAGE_EVENTS[name]), "content": inner.get("content")}
            if inner.get("tool_calls") is not None:
                message["tool_calls"] = _loaded(inner["tool_calls"], f"{name}.tool_calls")
            messages.append(message)
        elif name == "gen_ai.choice":
            record.output = _loaded(inner.get("message"), name) if inner.get("message") is not None else None
    if messages:
        record.messages = messages


def _tools(record: Record, attributes: Mapping[str, Any]) -> None:
    given = attributes.get("gen_ai.tool.definitions")
    tools: list[Any] = []
    if given is not None:
        tools = as_list(_loaded(given, "gen_ai.tool.definitions"), "gen_ai.tool.definitions")
    else:
        found = _numbered(attributes, "llm.tools") or _numbered(attributes, "llm.request.functions")
        for row in found:
            schema = row.get("tool.json_schema")
            tools.append(_loaded(schema, "llm.tools") if schema is not None else row)
        if not tools and attributes.get("llm.invocation_parameters") is not None:
            settings = _loaded(attributes["llm.invocation_parameters"], "llm.invocation_parameters")
            if isinstance(settings, Mapping):
                tools = list(settings.get("tools") or ())
                record.parameters |= {
                    key: value for key, value in settings.items() if key not in {"tools", "model", "messages"}
                }
    if tools:
        record.tools = tools
        if given is not None and not any(isinstance(tool, Mapping) and (tool.get("parameters") or tool.get("input_schema") or tool.get("function")) for tool in tools):  # fmt: skip
            record.notes += (_BARE_TOOLS,)


def _loaded(value: Any, field: str) -> Any:
    """The value behind a JSON text. Exporters cut long attributes, which shows as JSON that ends too early."""
    try:
        return parsed(value, field)
    except Unreadable as error:
        hint = (
            "; the exporter may have cut it (OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT)" if field in _TRUNCATABLE else ""
        )
        raise Unreadable(error.reason + hint, field) from error


def _messages(given: Any, field: str) -> list[Any]:
    found: list[Any] = []
    for index, message in enumerate(as_list(given, field)):
        if not isinstance(message, Mapping):
            raise Unreadable("expected a message object", f"{field}[{index}]")
        if isinstance(message.get("parts"), list):
            found.extend(_from_parts(message))
        else:
            found.append(dict(message))
    return found


def _from_parts(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A message of parts in the chat form. Results of several calls in one message become one message each."""
    role = text_or_none(message.get("role"))
    texts: list[Any] = []
    calls = []
    reasoning = []
    results = []
    for part in message["parts"]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "text":
            texts.append({"type": "text", "text": part.get("content", "")})
        elif kind == "tool_call":
            calls.append(
                {
                    "id": part.get("id"),
                    "type": "function",
                    "function": {"name": part.get("name"), "arguments": part.get("arguments")},
                }
            )
        elif kind == "tool_call_response":
            results.append(
                {
                    "role": "tool",
                    "tool_call_id": part.get("id"),
                    "content": _plain(part.get("response", part.get("result"))),
                }
            )
        elif kind in {"reasoning", "thinking"}:
            reasoning.append(str(part.get("content", "")))
        else:
            texts.append(part)
    yield from results
    if results and not texts and not calls:
        return
    row: dict[str, Any] = {"role": role}
    if message.get("name") is not None:
        row["name"] = message["name"]
    if reasoning:
        row["reasoning_content"] = "".join(reasoning)
    row["content"] = texts[0]["text"] if len(texts) == 1 and set(texts[0]) == {"type", "text"} else texts or None
    if calls:
        row["tool_calls"] = calls
    yield row


def _plain(value: Any) -> Any:
    from promptlint.tokenizers.render import compact

    return value if isinstance(value, (str, list)) or value is None else compact(value)


def _text_of(parts: list[Any]) -> Any:
    texts = [part.get("content") for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    if len(texts) == len(parts) == 1:
        return texts[0]
    return [
        {"type": "text", "text": part.get("content", "")}
        if isinstance(part, Mapping) and part.get("type") == "text"
        else part
        for part in parts
    ]


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Attributes `prefix.{i}.rest` as one object for each i, in order."""
    found: dict[int, dict[str, Any]] = {}
    start = len(prefix) + 1
    for key, value in attributes.items():
        if not key.startswith(prefix + "."):
            continue
        number, _, rest = key[start:].partition(".")
        if number.isdigit() and rest:
            found.setdefault(int(number), {})[rest] = value
    return [found[index] for index in sorted(found)]


def _indexed(attributes: Mapping[str, Any], prefix: str, inner: str) -> list[Any]:
    """Messages that are spread over numbered attributes."""
    messages = []
    for row in _numbered(attributes, prefix):
        fields = {key.removeprefix(inner): value for key, value in row.items()}
        message: dict[str, Any] = {"role": fields.get("role", "user")}
        for name in ("name", "tool_call_id"):
            if fields.get(name) is not None:
                message[name] = fields[name]
        parts = [_content_part(part) for part in _numbered(fields, "contents")]
        message["content"] = parts or fields.get("content")
        calls = [
            {
                "id": call.get("tool_call.id", call.get("id")),
                "type": "function",
                "function": {
                    "name": call.get("tool_call.function.name", call.get("name")),
                    "arguments": call.get("tool_call.function.arguments", call.get("arguments")),
                },
            }
            for call in _numbered(fields, "tool_calls")
        ]
        if calls:
            message["tool_calls"] = calls
        messages.append(message)
    return messages


def _content_part(part: Mapping[str, Any]) -> dict[str, Any]:
    fields = {key.removeprefix("message_content."): value for key, value in part.items()}
    if fields.get("type", "text") == "text":
        return {"type": "text", "text": fields.get("text", "")}
    return fields


def _is_span(row: Mapping[str, Any]) -> bool:
    attributes = row.get("attributes")
    keys: list[str] = []
    if isinstance(attributes, Mapping):
        keys = [str(key) for key in attributes]
    elif isinstance(attributes, list):
        keys = [str(item.get("key")) for item in attributes if isinstance(item, Mapping)]
    keys += list(row)
    return any(
        key.startswith(("gen_ai.", "llm.", "attributes.gen_ai.", "attributes.llm.", "openinference.")) or key == "llm"
        for key in keys
    ) or (isinstance(row.get("name"), str) and row["name"].startswith("gen_ai."))


OTLP = Format("otlp", "OpenTelemetry exports (resourceSpans, resourceLogs) with GenAI or OpenInference attributes", lambda row: any(key in row for key in ("resourceSpans", "resourceLogs", "resource_spans", "resource_logs")), _read_otlp)  # fmt: skip
OTEL = Format("opentelemetry", "single spans or events with GenAI or OpenInference attributes", _is_span, _span)
