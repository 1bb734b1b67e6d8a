"""What counts as a request to a model, by the shape of its body, and what an answer says of its cost."""

from __future__ import annotations

import json

import pytest

from promptlint.recording.child._promptlint_recorder.bodies import Answer, answer_usage, bare, request_body

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
HOST = "http://localhost:8000"


@pytest.mark.parametrize(
    "path, body",
    [
        ("/v1/chat/completions", CHAT),
        ("/anything/else", CHAT),
        ("/v1/messages", {**CHAT, "system": "s", "max_tokens": 1}),
        ("/v1/completions", {"model": "m", "prompt": "hi"}),
        ("/v1/completions", {"model": "m", "prompt": [1, 2, 3]}),
        ("/v1/responses", {"model": "m", "input": "hi"}),
        ("/v1/responses", {"model": "m", "input": [{"role": "user", "content": "hi"}], "instructions": "s"}),
        ("/v1beta/models/gemini-2:generateContent", {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
        ("/openai/deployments/gpt-4o/chat/completions", {"messages": CHAT["messages"]}),
        ("/model/anthropic.claude%3A0/invoke", {"messages": CHAT["messages"], "max_tokens": 1}),
        ("/generate", {"text": "hi", "sampling_params": {}}),
        ("/api/generate", {"model": "llama3", "prompt": "hi"}),
    ],
)
def test_requests_to_a_model(path, body):
    found = request_body(HOST + path, json.dumps(body).encode())
    assert found is not None
    assert found.items() >= body.items()
    assert request_body(HOST + path, body) == found


@pytest.mark.parametrize("path, model", [
    ("/v1beta/models/gemini-2:streamGenerateContent?alt=sse", "gemini-2"),
    ("/openai/deployments/gpt-4o/chat/completions?api-version=1", "gpt-4o"),
    ("/model/anthropic.claude%3A0/converse-stream", "anthropic.claude:0"),
])  # fmt: skip
def test_the_model_of_the_path(path, model):
    body = {"contents": [{"parts": [{"text": "hi"}]}]} if "gemini" in path else {"messages": CHAT["messages"]}
    assert request_body(HOST + path, body)["model"] == model


@pytest.mark.parametrize(
    "path, body",
    [
        ("/v1/embeddings", {"model": "m", "input": "hi"}),
        ("/v1/anything", {"model": "m", "input": ["hi", "ho"]}),
        ("/v1/messages/count_tokens", CHAT),
        ("/v1beta/models/g:countTokens", {"contents": [{"parts": []}]}),
        ("/v1/images/generations", {"model": "m", "prompt": "a cat"}),
        ("/v1/moderations", {"model": "m", "input": "hi"}),
        ("/v1/audio/speech", {"model": "m", "input": "hi", "voice": "v"}),
        ("/tokenize", CHAT),
        ("/v1/rerank", {"model": "m", "query": "q", "documents": ["d"]}),
        ("/api/public/ingestion", {"batch": [CHAT]}),
        ("/chat", {"messages": CHAT["messages"]}),
        ("/chat", {"model": "m", "messages": ["hi"]}),
        ("/chat", {"model": "m", "messages": []}),
        ("/chat", {"model": 3, "prompt": "hi"}),
    ],
)
def test_others_are_not(path, body):
    assert request_body(HOST + path, json.dumps(body)) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", "text", None, 7, b"\xff\xfe{}", "{" * 100_000])
def test_what_is_no_json_object(content):
    assert request_body(HOST + "/v1/chat/completions", content) is None


def test_an_address_without_its_secrets():
    assert bare("https://user:pass@host:1/v1/x?key=secret#top") == "https://host:1/v1/x"


@pytest.mark.parametrize(
    "event, usage",
    [
        ({"usage": {"prompt_tokens": 3, "x": None}}, {"prompt_tokens": 3}),
        ({"message": {"usage": {"input_tokens": 3}}}, {"input_tokens": 3}),
        ({"response": {"usage": {"input_tokens": 3}}}, {"input_tokens": 3}),
        ({"metadata": {"usage": {"inputTokens": 3}}}, {"inputTokens": 3}),
        (
            [{"usageMetadata": {"promptTokenCount": 3}}, {"usageMetadata": {"candidatesTokenCount": 1}}],
            {"promptTokenCount": 3, "candidatesTokenCount": 1},
        ),
        ({"meta_info": {"prompt_tokens": 3, "cached_tokens": 1, "id": "x"}}, {"prompt_tokens": 3, "cached_tokens": 1}),
        ({"prompt_eval_count": 3, "eval_count": 1}, {"prompt_tokens": 3, "completion_tokens": 1}),
        ({"usage": None}, {}),
        ("text", {}),
    ],
)
def test_usage_in_all_its_spellings(event, usage):
    assert answer_usage(event) == usage


def test_a_stream_is_read_along_whatever_its_pieces():
    events = [{"choices": [{"delta": {"content": "x" * 50}}]}, {"choices": [], "usage": {"prompt_tokens": 9}}]
    data = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events).encode() + b"data: [DONE]\n\n"
    for size in (1, 7, 64, len(data)):
        answer = Answer("text/event-stream; charset=utf-8")
        for at in range(0, len(data), size):
            answer.feed(data[at : at + size])
            assert len(answer.rest) <= 120
        assert answer.usage == {"prompt_tokens": 9}
        assert answer.complete


def test_later_events_add_to_earlier_ones():
    answer = Answer("text/event-stream")
    answer.feed(b'data: {"type":"message_start","message":{"usage":{"input_tokens":5,"output_tokens":1}}}\n')
    answer.feed(b'data: {"type":"message_delta","usage":{"output_tokens":9}}\ndata: {"type":"message_stop"}\n')
    assert answer.usage == {"input_tokens": 5, "output_tokens": 9}
    assert answer.complete


@pytest.mark.parametrize("kind", ["application/json", ""])
def test_a_whole_answer_and_lines_under_another_name(kind):
    whole, lines = Answer(kind), Answer(kind)
    whole.feed(b'{\n "usage": {"prompt_')
    whole.feed(b'tokens": 4}}')
    whole.end()
    lines.feed(b'{"a": 1}\n{"prompt_eval_count": 4, "eval_count": 2}\n')
    lines.end()
    assert whole.usage == {"prompt_tokens": 4}
    assert lines.usage == {"prompt_tokens": 4, "completion_tokens": 2}


def test_an_endless_line_is_given_up():
    answer = Answer("text/event-stream")
    for _ in range(40):
        answer.feed(b"x" * (1 << 20))
    assert len(answer.rest) <= 16 << 20
    answer.feed(b'\ndata: {"usage": {"prompt_tokens": 1}}\n')
    assert answer.usage == {"prompt_tokens": 1}
