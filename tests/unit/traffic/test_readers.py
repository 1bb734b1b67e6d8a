"""Every format is recognised by itself and read whole; what cannot be read is named."""

from __future__ import annotations

import json

import pytest
import traffic_samples as S

from promptlint.errors import UserError
from promptlint.traffic.read import Traffic, load
from promptlint.traffic.readers import FORMATS, by_name
from promptlint.traffic.readers.base import Options
from promptlint.traffic.record import CACHE_READ, CACHE_WRITE, INPUT, OUTPUT, Record, milliseconds, usage_of


def read(tmp_path, text, name="t.jsonl", **options):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    traffic = Traffic([path], **options)
    return traffic, list(traffic)


@pytest.mark.parametrize("name", sorted(S.CHAT))
def test_chat_formats(tmp_path, name):
    traffic, (record,) = read(tmp_path, S.CHAT[name])
    assert traffic.problems == []
    assert record.format == name
    assert record.messages == S.MESSAGES
    assert json.dumps(record.tools) == json.dumps(S.TOOLS)  # key order too
    assert record.model == "gpt-4o"
    assert record.usage == {INPUT: 900, CACHE_READ: 512, OUTPUT: 7}


@pytest.mark.parametrize("encoding", ["otlp", "flat", "event", "structured"])
def test_opentelemetry(tmp_path, encoding):
    structured = {k: json.loads(v) if isinstance(v, str) and v[:1] in "[{" else v for k, v in S.GENAI.items()}
    text = {
        "otlp": S.otlp(S.GENAI),
        "flat": S.line({"name": "chat gpt-4o", "context": {"span_id": "s1"}, "start_time": "2026-03-04T09:00:00Z", "attributes": S.GENAI}),
        "event": S.line({"name": "chat", "span_id": "s1", "attributes": {"gen_ai.request.model": "gpt-4o"}, "events": [{"name": "gen_ai.client.inference.operation.details", "attributes": S.GENAI}]}),
        "structured": S.line({"span_id": "s1", "attributes": structured}),
    }[encoding]  # fmt: skip
    traffic, (record,) = read(tmp_path, text)
    assert traffic.problems == []
    assert record.system == S.SYSTEM
    assert record.messages == [{"role": "user", "content": S.USER}]
    assert record.tools == S.OTEL_TOOLS
    assert (record.model, record.session_id, record.id) == ("gpt-4o", "c1", "s1")
    assert record.usage == {INPUT: 900, CACHE_READ: 512, OUTPUT: 7}


def test_opentelemetry_old_attributes_and_events(tmp_path):
    rows = [
        {"attributes": {"gen_ai.system": "openai", "gen_ai.prompt": json.dumps(S.MESSAGES), "gen_ai.usage.prompt_tokens": 900}},
        {"attributes": {"gen_ai.system": "openai", "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": S.SYSTEM, "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": S.USER}},
        {"attributes": {"gen_ai.system": "openai"}, "events": [{"name": "gen_ai.system.message", "attributes": {"content": S.SYSTEM}}, {"name": "gen_ai.user.message", "attributes": {"content": S.USER}}]},
    ]  # fmt: skip
    _, records = read(tmp_path, "".join(map(S.line, rows)))
    assert [record.messages for record in records] == [S.MESSAGES] * 3


def test_opentelemetry_without_content_counts_for_its_usage(tmp_path):
    row = {
        "attributes": {
            "gen_ai.request.model": "m",
            "gen_ai.usage.input_tokens": 9,
            "gen_ai.usage.cache_read.input_tokens": 3,
        }
    }
    traffic, (record,) = read(tmp_path, S.line(row))
    assert not record.is_request
    assert record.usage[CACHE_READ] == 3
    assert any("CAPTURE_MESSAGE_CONTENT" in note for note in traffic.notes)


@pytest.mark.parametrize("name", sorted(S.OTHER))
def test_other_formats(tmp_path, name):
    traffic, records = read(tmp_path, S.OTHER[name], "t.log" if name in {"vllm", "sglang"} else "t.jsonl")
    assert traffic.problems == []
    assert {record.format for record in records} == {name}
    record = records[-1]
    if record.hash_ids is not None:
        assert len(record.hash_ids) == 3
        assert record.block_size == {"mooncake": 512, "bailian": 16, "dynamo": 16, "weka": 64}[name]
    elif record.token_ids is not None:
        assert record.token_ids == S.IDS
    elif record.messages is None:
        assert record.prompt == S.PROMPT


def test_sglang_text_lines(tmp_path):
    traffic, (record,) = read(tmp_path, S.SGLANG_TEXT, "server.log")
    assert traffic.problems == []
    assert (record.prompt, record.id, record.output) == (S.PROMPT, "r1", " yes")
    assert record.usage[CACHE_READ] == 512


def test_sglang_received_lines_are_read_when_asked_for(tmp_path):
    traffic, records = read(tmp_path, S.OTHER["sglang"], "server.log", format="sglang-received")
    assert len(records) == 2
    assert traffic.problems == []


@pytest.mark.parametrize("style", ["json", "text"])
def test_sglang_level_2_is_refused_with_the_reason(tmp_path, style):
    long = "word " * 1000
    if style == "json":
        text = S.line(
            {"event": "request.finished", "rid": "r", "obj": {"text": long[:1024] + "..." + long[-1024:]}, "out": {}}
        )
    else:
        text = f"Finish: obj=GenerateReqInput(rid='r', text={long[:1024]!r} ... {long[-1024:]!r}, input_ids=None), out={{}}\n"
    traffic, records = read(tmp_path, text, "server.log")
    assert records == []
    (problem,) = traffic.problems
    assert "--log-requests-level 3" in problem.reason
    assert problem.field == "obj.text"


def test_sglang_level_1_has_no_prompt(tmp_path):
    traffic, records = read(tmp_path, S.line({"event": "request.finished", "rid": "r", "obj": {"rid": "r"}, "out": {}}))
    assert records == []
    assert "level 3" in traffic.problems[0].reason


def test_a_broken_vllm_line_is_a_problem_and_a_broken_time_is_none(tmp_path):
    line = "DEBUG {} [request_logger.py:49] Request cmpl-{} details: prompt: 'Is it open?', prompt_token_ids: {}, prompt_embeds shape: None.\n"
    text = line.format("11-30 19:00:01", 1, "[1, 2 4]") + line.format("13-41 29:00:01", 2, "[1, 2, 4]")
    traffic, (record,) = read(tmp_path, text, "server.log")
    assert (record.token_ids, record.timestamp) == ([1, 2, 4], None)
    (problem,) = traffic.problems
    assert (problem.line, problem.field) == (1, "prompt_token_ids")


def test_vllm_info_lines_have_no_prompt(tmp_path):
    traffic, records = read(
        tmp_path,
        "INFO 11-30 19:00:01 [l.py:1] Received request a: params: SamplingParams(), lora_request: None.\n",
        "v.log",
    )
    assert records == []
    assert "VLLM_LOGGING_LEVEL=DEBUG" in traffic.problems[0].reason


def test_vllm_lines_cut_by_max_log_len_are_refused(tmp_path):
    text = f"Request a details: prompt: {'x' * 20!r}, prompt_token_ids: {list(range(20))}, prompt_embeds shape: None.\n"
    traffic, records = read(tmp_path, text, "v.log")
    assert records == []
    assert "--max-log-len" in traffic.problems[0].reason


def test_anthropic_bodies_batches_and_usage(tmp_path):
    body = {"model": "claude-sonnet-4-5", "system": [{"type": "text", "text": S.SYSTEM, "cache_control": {"type": "ephemeral"}}], "tools": [{"name": "hours", "input_schema": {}}], "messages": [{"role": "user", "content": S.USER}], "max_tokens": 9}  # fmt: skip
    text = S.line(body) + S.line({"requests": [{"custom_id": "a", "params": body}, {"custom_id": "b", "params": body}]}) + S.line({"custom_id": "a", "result": {"type": "succeeded", "message": {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "usage": S.ANTHROPIC_USAGE}}})  # fmt: skip
    traffic, records = read(tmp_path, text)
    assert traffic.problems == []
    assert [record.format for record in records] == [
        "anthropic",
        "anthropic-batch",
        "anthropic-batch",
        "anthropic-batch",
    ]
    assert records[0].system == body["system"]
    joined = load(Traffic([tmp_path / "t.jsonl"]))
    assert len(joined) == 3
    assert joined[1].usage == {INPUT: 900, CACHE_READ: 512, CACHE_WRITE: 300, OUTPUT: 7}


def test_responses_bodies(tmp_path):
    text = S.line({"model": "gpt-5", "instructions": S.SYSTEM, "input": S.USER, "previous_response_id": "r0"})
    traffic, (record,) = read(tmp_path, text)
    assert (record.system, record.messages) == (S.SYSTEM, [{"role": "user", "content": S.USER}])
    assert any("previous_response_id" in note for note in traffic.notes)


def test_conversations_need_their_name_and_give_one_request_an_answer(tmp_path):
    row = {
        "session": "s",
        "messages": [
            *S.MESSAGES,
            S.ANSWER,
            {"role": "user", "content": "And tomorrow?"},
            {"role": "assistant", "content": "No."},
        ],
    }
    _, records = read(tmp_path, S.line(row), format="conversations", options=Options(tools=S.TOOLS))
    assert [len(record.messages) for record in records] == [2, 4]
    assert all(record.tools == S.TOOLS and record.session_id == "s" for record in records)
    assert records[0].output == S.ANSWER


@pytest.mark.parametrize(
    "text",
    [
        S.CHAT["openai"] * 2,
        json.dumps([json.loads(S.CHAT["openai"])] * 2),
        json.dumps([json.loads(S.CHAT["openai"])] * 2, indent=1),
    ],
)
def test_lines_arrays_and_indented_documents(tmp_path, text):
    traffic, records = read(tmp_path, text)
    assert len(records) == 2
    assert traffic.problems == []


@pytest.mark.parametrize("first", ['{"messages": [', '{"messages": [{"role": "user", "content": "cut'])
def test_a_first_line_that_is_cut_loses_nothing_else(tmp_path, first):
    traffic, records = read(tmp_path, first + "\n" + S.CHAT["openai"] * 2)
    assert len(records) == 2
    assert [problem.line for problem in traffic.problems] == [1]


def test_a_document_whose_first_line_is_not_a_bare_bracket(tmp_path):
    text = json.dumps([json.loads(S.CHAT["openai"])] * 2, indent=1)
    traffic, records = read(tmp_path, "[ " + text[1:].lstrip().replace("{", "{ ", 1))
    assert (len(records), traffic.problems) == (2, [])


def test_canonical_record_round_trip_keeps_order_and_unknown_fields(tmp_path):
    row = {"timestamp": 5, "id": "r", "session_id": "s", "model": "m", "namespace": "n", "call_site": "a.py::f::x", "tools": S.TOOLS, "messages": S.MESSAGES, "output_length": 3, "usage": {INPUT: 9, CACHE_READ: 1}, "tool_choice": "auto", "zeta": {"b": 1, "a": 2}}  # fmt: skip
    _, (record,) = read(tmp_path, S.line(row))
    assert json.dumps(record.to_json()) == json.dumps(row)
    _, (again,) = read(tmp_path, S.line(record.to_json()))
    assert again.to_json() == row


def test_prometheus_text_and_range(tmp_path):
    text = '# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total{model_name="m"} 1000.0\nvllm:prefix_cache_hits_total{model_name="m"} 250.0\nvllm:num_preemptions_total{model_name="m"} 3.0\nvllm:time_to_first_token_seconds_sum{model_name="m"} 8.0\nvllm:time_to_first_token_seconds_count{model_name="m"} 4.0\n'  # fmt: skip
    traffic, (record,) = read(tmp_path, text, "metrics.txt")
    assert traffic.problems == []
    assert (record.usage, record.model) == ({INPUT: 1000, CACHE_READ: 250}, "m")
    assert (record.extra["preemptions"], record.extra["ttft_seconds"]) == (3, 2.0)
    series = [{"metric": {"__name__": f"sglang:{name}_total", "model_name": "m"}, "values": values} for name, values in (("prompt_tokens", [[0, "100"], [1, "400"], [2, "50"]]), ("cached_tokens", [[0, "0"], [1, "120"]]))]  # fmt: skip
    _, (record,) = read(tmp_path, S.line({"status": "success", "data": {"resultType": "matrix", "result": series}}))
    assert record.usage == {INPUT: 350, CACHE_READ: 120}  # a counter that falls has restarted


@pytest.mark.parametrize("value", ["+Inf", "1" + "0" * 400])
def test_a_counter_of_prometheus_that_no_counter_can_hold_is_a_problem(tmp_path, value):
    text = f'vllm:prefix_cache_queries_total{{model_name="m"}} {value}\nvllm:prefix_cache_hits_total{{model_name="m"}} 250.0\nvllm:prefix_cache_queries_total{{model_name="m"}} 1000.0\n'
    traffic, (record,) = read(tmp_path, text, "metrics.txt")
    assert record.usage == {INPUT: 1000, CACHE_READ: 250}
    (problem,) = traffic.problems
    assert problem.line == 1
    assert "not a number" in problem.reason


def test_usage_exports(tmp_path):
    _, records = read(
        tmp_path,
        "date,model,input_tokens,input_cached_tokens,output_tokens\n2026-03-04,gpt-4o,1000,80,5\n",
        "usage.csv",
    )
    assert records[0].usage == {INPUT: 1000, CACHE_READ: 80, OUTPUT: 5}
    page = {"object": "page", "data": [{"starting_at": "2026-03-04T00:00:00Z", "results": [{"uncached_input_tokens": 20, "cache_read_input_tokens": 70, "cache_creation": {"ephemeral_5m_input_tokens": 6, "ephemeral_1h_input_tokens": 4}, "output_tokens": 5}]}]}  # fmt: skip
    _, records = read(tmp_path, json.dumps(page, indent=1), "usage.json")
    assert records[0].usage == {INPUT: 100, CACHE_READ: 70, CACHE_WRITE: 10, OUTPUT: 5}


def test_tables_without_usage_are_refused_with_their_columns(tmp_path):
    traffic, records = read(tmp_path, "TIMESTAMP,ContextTokens\n1,2\n", "azure.csv")
    assert records == []
    assert "ContextTokens" in traffic.problems[0].reason


def test_launch_lines_and_events(tmp_path):
    text = "python -m sglang.launch_server --model-path m --page-size 64 --tp 8 --mem-fraction-static=0.8\n[2026-03-04 09:00:00] server_args=ServerArgs(model_path='m', page_size=1, schedule_policy='lpm')\n"
    _, records = read(tmp_path, text, "launch.log")
    assert records[0].extra == {"engine": "sglang", "page_size": 64, "tensor_parallel": 8, "memory_share": 0.8}
    assert (records[1].extra["page_size"], records[1].extra["schedule"]) == (1, "lpm")
    events = {
        "ts": 1.5,
        "events": [
            {"type": "BlockStored", "block_hashes": [1, 2], "token_ids": [1] * 32, "block_size": 16},
            ["BlockRemoved", [1]],
        ],
    }
    _, (record,) = read(tmp_path, S.line(events))
    assert record.extra == {"stored_blocks": 2, "stored_tokens": 32, "removed_blocks": 1, "cleared": 0}


def test_problems_name_file_line_and_field(tmp_path):
    text = (
        S.CHAT["openai"]
        + '{"messages": [{"role": "user", "content": 5}]}\n{"messages": [{"content": "x"}]}\n{"broken\n{"a": 1}\n'
        + S.CHAT["openai"]
    )
    traffic, records = read(tmp_path, text)
    assert len(records) == 2
    assert [(problem.line, problem.field) for problem in traffic.problems] == [
        (2, "messages[0].content"),
        (3, "messages[0].role"),
        (4, ""),
        (5, ""),
    ]
    assert "its fields: a" in traffic.problems[3].reason


def test_strict_ends_at_the_first_problem(tmp_path):
    with pytest.raises(UserError, match=r"t\.jsonl:1: messages\[0\]"):
        read(tmp_path, '{"messages": [5]}\n', strict=True)


def test_mixed_formats_in_one_folder(tmp_path):
    for name in ("openai", "litellm", "langsmith"):
        (tmp_path / f"{name}.jsonl").write_text(S.CHAT[name])
    (tmp_path / "mixed.jsonl").write_text(S.CHAT["helicone"] + S.OTHER["mooncake"])
    (tmp_path / "README.md").write_text("# notes\n")
    traffic = Traffic([tmp_path])
    assert sorted(record.format for record in traffic) == ["helicone", "langsmith", "litellm", "mooncake", "openai"]
    assert [problem.file.rpartition("/")[2] for problem in traffic.problems] == ["README.md"]


def test_unknown_format_name():
    with pytest.raises(UserError, match="unknown traffic format"):
        by_name("nonsense")
    assert len({form.name for form in FORMATS}) == len(FORMATS)


def test_mooncake_block_size_must_fit(tmp_path):
    traffic, records = read(
        tmp_path, S.line({"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [1, 2, 3]})
    )
    assert records == []
    assert "--block-size" in traffic.problems[0].reason
    _, records = read(
        tmp_path,
        S.line({"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [1, 2, 3]}),
        options=Options(block_size=16),
    )
    assert records[0].block_size == 16


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}, {INPUT: 100, CACHE_READ: 64}),
        ({"promptTokenCount": 100, "cachedContentTokenCount": 64, "candidatesTokenCount": 5}, {INPUT: 100, CACHE_READ: 64, OUTPUT: 5}),
        ({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 5}, {INPUT: 100, CACHE_READ: 64, OUTPUT: 5}),
        ({"inputTokens": 36, "cacheReadInputTokens": 64, "cacheWriteInputTokens": 0, "outputTokens": 5}, {INPUT: 100, CACHE_READ: 64, CACHE_WRITE: 0, OUTPUT: 5}),
        ({"prompt_tokens": 100, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 0}, {INPUT: 100, CACHE_READ: 64, CACHE_WRITE: 0}),
        ({"input_tokens": 36, "cache_creation": {"ephemeral_5m_input_tokens": 14}, "cache_read_input_tokens": 50}, {INPUT: 100, CACHE_READ: 50, CACHE_WRITE: 14}),
        ({"nonsense": 3}, {}),
    ],
)  # fmt: skip
def test_usage_counts_cached_tokens_within_the_prompt(usage, expected):
    assert usage_of(usage) == expected


@pytest.mark.parametrize(("value", "unit", "expected"), [("1970-01-01T00:00:01Z", "ms", 1000.0), (1.5, "s", 1500.0), ("12", "ms", 12.0), ("soon", "ms", None), (float("nan"), "ms", None), (True, "ms", None)])  # fmt: skip
def test_times(value, unit, expected):
    assert milliseconds(value, unit) == expected


def test_time_order_keeps_records_without_a_time_behind_their_neighbour():
    from promptlint.traffic.read import in_time_order

    rows = [Record(id="b", timestamp=2.0), Record(id="c"), Record(id="a", timestamp=1.0)]
    assert [record.id for record in in_time_order(rows)] == ["a", "b", "c"]


def test_dynamo_envelopes_payloads_and_tools(tmp_path):
    end = json.loads(S.OTHER["dynamo"])
    rows = [
        {"timestamp": 5, "event": end},
        {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "tool": {"tool_call_id": "t"}},
        {
            "schema": "dynamo.request.trace.v1",
            "event_type": "request_payload",
            "request": {"request_id": "r2", "payload": {"messages": S.MESSAGES}},
        },
        {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": {"request_id": "r3"}},
    ]
    traffic, records = read(tmp_path, "".join(map(S.line, rows)))
    assert [(record.id, record.hash_ids) for record in records] == [("r1", [11, 12, 13]), ("r2", None)]
    assert records[1].messages == S.MESSAGES
    assert [problem.line for problem in traffic.problems] == [4]


def test_json_that_is_nested_too_deeply_to_be_written_is_a_problem_and_nothing_else_is_lost(tmp_path):
    from promptlint.app import diagnose
    from promptlint.app.requests import Renderer, Requests
    from promptlint.app.traffic import Tokens, lines, measure

    deep = '{"messages":[{"role":"user","content":' + "[" * 900 + "]" * 900 + "}]}\n"
    path = tmp_path / "deep.jsonl"
    path.write_text(deep + '{"messages":[{"role":"user","content":"hello"}]}\n')
    traffic = Traffic([path])
    assert measure(traffic, Tokens("cl100k_base", "provider")).requests == 2
    assert [problem.line for problem in traffic.problems] == [1]
    found = diagnose.run(Traffic([path]))
    assert (found.diagnosis.requests, [problem.line for problem in found.problems]) == (1, [1])
    requests = Requests(Traffic([path]), render=Renderer("provider", "cl100k_base", marks=False))
    assert (len(list(requests)), [problem.line for problem in requests.problems]) == (1, [1])
    content = []
    for _ in range(5000):
        content = [content]
    refused = []
    rows = [Record(messages=[{"role": "user", "content": content}]), Record(prompt="hello")]
    assert len(list(lines(rows, lambda _place, reason: refused.append(reason)))) == 1
    assert refused == ["nested too deeply"]


def test_a_pipe_in_a_folder_is_named_and_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text('{"prompt":"hello"}\n')
    traffic = Traffic([tmp_path])
    assert len(list(traffic)) == 1
    assert [problem.reason for problem in traffic.problems] == ["not a regular file"]


def test_utf_16_and_seconds_are_called_by_name(tmp_path):
    path = tmp_path / "wide.jsonl"
    path.write_text('{"prompt":"hello"}\n', "utf-16")
    traffic = Traffic([path])
    assert not list(traffic)
    assert "UTF-16" in traffic.problems[0].reason
    path.write_text('{"prompt":"hello","timestamp":1772600000}\n')
    assert list(traffic)
    assert any("seconds" in note for note in traffic.notes)


def test_loaded_records_share_equal_messages_and_only_those(tmp_path):
    """A log repeats a conversation in each of its requests; memory follows the distinct messages."""
    turns = [{"role": role, "content": f"{role} {turn}"} for turn in range(20) for role in ("user", "assistant")]
    rows = [{"messages": turns[:upto], "tools": [{"name": "f"}]} for upto in range(1, 41)]
    odd = [[("x", 1), ("y", 2)], [("y", 2), ("x", 1)], [("x", True), ("y", 2)], [("x", 1.0), ("y", 2)]]
    rows += [{"messages": [{"role": "user", "content": [dict(pairs)]}]} for pairs in odd]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    records = load(Traffic([path]))
    assert [json.dumps(record.messages) for record in records] == [json.dumps(row["messages"]) for row in rows]
    assert len({id(message) for record in records for message in record.messages}) == len(turns) + len(odd)
    assert len({id(record.tools) for record in records if record.tools}) == 1
