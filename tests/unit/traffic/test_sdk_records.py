"""Records built with the real classes of each SDK read back unchanged.

Run in the job that installs the SDKs, with PROMPTLINT_SDK=1: there a missing package is a failure; elsewhere the test is not run.
"""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os

import pytest
import traffic_samples as S

from promptlint.traffic.read import Traffic
from promptlint.traffic.record import CACHE_READ, CACHE_WRITE, INPUT, OUTPUT

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("ignore")]
USAGE = {INPUT: 900, CACHE_READ: 512, OUTPUT: 7}


def need(name):
    if os.environ.get("PROMPTLINT_SDK"):
        return importlib.import_module(name)
    return pytest.importorskip(name)


def one(tmp_path, text):
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    traffic = Traffic([path])
    (record,) = traffic
    assert traffic.problems == []
    return record


def chat(record, usage=USAGE):
    assert record.messages == S.MESSAGES
    assert json.dumps(record.tools) == json.dumps(S.TOOLS)
    assert record.model == "gpt-4o"
    assert record.usage == usage


def openai_response():
    need("openai")
    from openai.types.chat import ChatCompletion

    row = {**S.RESPONSE, "id": "c", "created": 1, "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop", "message": S.ANSWER}], "usage": {**S.OPENAI_USAGE, "total_tokens": 907}}  # fmt: skip
    return ChatCompletion.model_validate(row)


def test_openai(tmp_path):
    answer = openai_response()
    row = {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-4o", "messages": S.MESSAGES, "tools": S.TOOLS}, "response": {"body": answer.model_dump()}}  # fmt: skip
    record = one(tmp_path, S.line(row))
    chat(record)
    assert record.output["content"] == "Yes."


def test_openai_responses(tmp_path):
    need("openai")
    from openai.types.responses import ResponseUsage

    usage = ResponseUsage.model_validate({"input_tokens": 900, "input_tokens_details": {"cached_tokens": 512, "cache_write_tokens": 0}, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 907})  # fmt: skip
    record = one(
        tmp_path,
        S.line(
            {
                "model": "gpt-5",
                "instructions": S.SYSTEM,
                "input": [{"role": "user", "content": S.USER}],
                "usage": usage.model_dump(),
            }
        ),
    )
    assert record.messages == [{"role": "user", "content": S.USER}]
    assert {name: record.usage[name] for name in USAGE} == USAGE


def test_anthropic(tmp_path):
    need("anthropic")
    from anthropic.types import Message

    usage = {**S.ANTHROPIC_USAGE, "cache_creation": {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 0}}
    answer = Message.model_validate({"id": "m", "type": "message", "role": "assistant", "model": "claude", "content": [{"type": "text", "text": "Yes."}], "stop_reason": "end_turn", "stop_sequence": None, "usage": usage})  # fmt: skip
    body = {"model": "claude", "system": S.SYSTEM, "messages": [{"role": "user", "content": S.USER}], "max_tokens": 9}
    record = one(tmp_path, S.line({"request": body, "response": json.loads(answer.model_dump_json())}))
    assert (record.system, record.messages) == (S.SYSTEM, body["messages"])
    assert record.usage == {INPUT: 900, CACHE_READ: 512, CACHE_WRITE: 300, OUTPUT: 7}


def test_litellm(tmp_path):
    need("litellm")
    from litellm.types.utils import ModelResponse, StandardLoggingPayload

    answer = ModelResponse(**openai_response().model_dump()).model_dump()
    known = StandardLoggingPayload.__annotations__
    row = {"id": "x", "litellm_call_id": "r1", "call_type": "acompletion", "startTime": 1772614800.5, "endTime": 1772614801.5, "model": "gpt-4o", "messages": S.MESSAGES, "model_parameters": {"tools": S.TOOLS}, "response": answer, "prompt_tokens": 900, "completion_tokens": 7, "cache_hit": None, "metadata": {}}  # fmt: skip
    assert set(row) <= set(known)
    record = one(tmp_path, json.dumps(StandardLoggingPayload(**row), default=str) + "\n")
    chat(record)
    assert record.id == "r1"


def test_langfuse(tmp_path):
    need("langfuse")
    from langfuse.api import ObservationV2

    now = dt.datetime(2026, 3, 4, 9, tzinfo=dt.UTC)
    fields = {"id": "r1", "trace_id": "t", "start_time": now, "project_id": "p", "type": "GENERATION", "input": json.dumps({"messages": S.MESSAGES, "tools": S.TOOLS}), "model": "gpt-4o", "usage_details": {"input": 388, "input_cached_tokens": 512, "output": 7}, "session_id": "c1"}  # fmt: skip
    made = ObservationV2(**fields)
    for text in (made.json(), made.model_dump_json()):  # camel case as on the wire, snake case as in Python
        record = one(tmp_path, text + "\n")
        chat(record)
        assert (record.session_id, record.timestamp) == ("c1", now.timestamp() * 1000)


def test_langsmith(tmp_path):
    need("langsmith")
    from langsmith.schemas import Run

    text = S.CHAT["langsmith"]
    row = {
        **json.loads(text),
        "id": "6f0c2b9a-0000-4000-8000-000000000001",
        "name": "ChatOpenAI",
        "trace_id": "6f0c2b9a-0000-4000-8000-000000000001",
    }
    made = Run(**row)
    dump = made.model_dump_json() if hasattr(made, "model_dump_json") else made.json()
    chat(one(tmp_path, dump + "\n"))


def test_openinference(tmp_path):
    need("openinference.semconv.trace")
    from openinference.semconv.trace import (
        MessageAttributes,
        OpenInferenceSpanKindValues,
        SpanAttributes,
        ToolAttributes,
    )

    message = f"{SpanAttributes.LLM_INPUT_MESSAGES}.%d.%s"
    attributes = {
        SpanAttributes.OPENINFERENCE_SPAN_KIND: OpenInferenceSpanKindValues.LLM.value,
        SpanAttributes.LLM_MODEL_NAME: "gpt-4o",
        SpanAttributes.SESSION_ID: "c1",
        f"{SpanAttributes.LLM_TOOLS}.0.{ToolAttributes.TOOL_JSON_SCHEMA}": json.dumps(S.TOOLS[0]),
        SpanAttributes.LLM_TOKEN_COUNT_PROMPT: 900,
        SpanAttributes.LLM_TOKEN_COUNT_PROMPT_DETAILS_CACHE_READ: 512,
        SpanAttributes.LLM_TOKEN_COUNT_COMPLETION: 7,
    }
    for index, row in enumerate(S.MESSAGES):
        attributes[message % (index, MessageAttributes.MESSAGE_ROLE)] = row["role"]
        attributes[message % (index, MessageAttributes.MESSAGE_CONTENT)] = row["content"]
    record = one(tmp_path, S.line({"name": "ChatCompletion", "attributes": attributes}))
    chat(record)
    assert record.session_id == "c1"


def test_opentelemetry(tmp_path):
    need("opentelemetry.sdk.trace")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names

    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    known = {getattr(names, name) for name in dir(names) if name.startswith("GEN_AI")}
    assert set(S.GENAI) <= known
    with provider.get_tracer("t").start_as_current_span("chat gpt-4o") as span:
        span.set_attributes(S.GENAI)
    (finished,) = exporter.get_finished_spans()
    record = one(tmp_path, finished.to_json(indent=None) + "\n")
    assert record.messages == [{"role": "user", "content": S.USER}]
    assert (record.system, record.tools, record.usage) == (S.SYSTEM, S.OTEL_TOOLS, USAGE)


def test_vcr(tmp_path):
    need("vcr")
    from vcr.request import Request
    from vcr.serialize import serialize
    from vcr.serializers import yamlserializer

    body = {"model": "gpt-4o", "messages": S.MESSAGES, "tools": S.TOOLS}
    sent = Request(
        "POST", "https://api.openai.com/v1/chat/completions", json.dumps(body), {"content-type": "application/json"}
    )
    got = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": json.dumps(S.RESPONSE).encode()}}
    path = tmp_path / "cassette.yaml"
    path.write_text(serialize({"requests": [sent], "responses": [got]}, yamlserializer))
    (record,) = Traffic([path])
    chat(record)


def test_parquet(tmp_path):
    pyarrow = need("pyarrow")
    import pyarrow.parquet as pq

    from promptlint.traffic.readers.base import Options

    rows = [
        {
            "conversation": S.MESSAGES,
            "functions_json": json.dumps(S.TOOLS),
            "model": "gpt-4o",
            "usage": json.dumps(S.OPENAI_USAGE),
        }
    ]
    pq.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    traffic = Traffic(
        [tmp_path / "t.parquet"], options=Options(columns={"messages": "conversation", "tools": "functions_json"})
    )
    (record,) = traffic
    assert traffic.problems == []
    chat(record)
