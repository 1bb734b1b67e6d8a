"""One small sample of every format: what a file holds, the format it is recognised as, and what must come out."""

from __future__ import annotations

import json

SYSTEM = "You answer for the library."
USER = "Is it open today?"
MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": USER}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "hours",
            "description": "d",
            "parameters": {"type": "object", "properties": {"b": {}, "a": {}}},
        },
    }
]
OPENAI_USAGE = {"prompt_tokens": 900, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 512}}
ANTHROPIC_USAGE = {
    "input_tokens": 88,
    "cache_read_input_tokens": 512,
    "cache_creation_input_tokens": 300,
    "output_tokens": 7,
}
ANSWER = {"role": "assistant", "content": "Yes."}


def line(row):
    return json.dumps(row) + "\n"


def otlp(attributes):
    rows = [
        {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
        for key, value in attributes.items()
    ]
    span = {"traceId": "t", "spanId": "s1", "startTimeUnixNano": "1772614800000000000", "attributes": rows}
    return line({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})


PARTS = [{"role": "user", "parts": [{"type": "text", "content": USER}]}]
OTEL_TOOLS = [{"type": "function", "name": "hours", "parameters": {"type": "object"}}]
GENAI = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.conversation.id": "c1",
    "gen_ai.system_instructions": json.dumps([{"type": "text", "content": SYSTEM}]),
    "gen_ai.input.messages": json.dumps(PARTS),
    "gen_ai.tool.definitions": json.dumps(OTEL_TOOLS),
    "gen_ai.usage.input_tokens": 900,
    "gen_ai.usage.cache_read.input_tokens": 512,
    "gen_ai.usage.output_tokens": 7,
}
OPENINFERENCE = {
    "openinference.span.kind": "LLM",
    "llm.model_name": "gpt-4o",
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": SYSTEM,
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.content": USER,
    "llm.tools.0.tool.json_schema": json.dumps(TOOLS[0]),
    "llm.token_count.prompt": 900,
    "llm.token_count.prompt_details.cache_read": 512,
    "llm.token_count.completion": 7,
    "session.id": "c1",
}
RESPONSE = {"model": "gpt-4o", "choices": [{"message": ANSWER}], "usage": OPENAI_USAGE}

# format name -> (text of the file, whether the tools are in it)
CHAT = {
    "openai": line({"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS, "usage": OPENAI_USAGE}),
    "openai-batch": line(
        {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS}, "response": {"status_code": 200, "body": RESPONSE}}
    ),
    "exchange": line({"request": {"body": {"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS}}, "response": {"body": RESPONSE}}),
    "litellm": line(
        {"id": "x", "litellm_call_id": "r1", "call_type": "acompletion", "startTime": 1772614800.5, "model": "gpt-4o", "messages": MESSAGES, "model_parameters": {"tools": TOOLS}, "response": RESPONSE, "prompt_tokens": 900, "completion_tokens": 7, "cache_hit": False}
    ),
    "litellm-spend": line(
        {"request_id": "r1", "call_type": "acompletion", "spend": 0.1, "startTime": "2026-03-04T09:00:00Z", "model": "gpt-4o", "messages": "{}", "proxy_server_request": json.dumps({"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS}), "response": json.dumps(RESPONSE), "metadata": "{}", "prompt_tokens": 900}
    ),
    "langfuse": line(
        {"id": "r1", "traceId": "t", "type": "GENERATION", "startTime": "2026-03-04T09:00:00Z", "input": {"messages": MESSAGES, "tools": TOOLS}, "output": ANSWER, "model": "gpt-4o", "usageDetails": {"input": 388, "input_cached_tokens": 512, "output": 7}, "promptName": "desk", "promptVersion": 3, "sessionId": "c1"}
    ),
    "langsmith": line(
        {"id": "r1", "run_type": "llm", "start_time": "2026-03-04T09:00:00", "extra": {"invocation_params": {"model": "gpt-4o", "tools": TOOLS}}, "inputs": {"messages": [[{"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "SystemMessage"], "kwargs": {"content": SYSTEM, "type": "system"}}, {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"], "kwargs": {"content": USER, "type": "human"}}]]}, "outputs": {"usage_metadata": {"input_tokens": 900, "output_tokens": 7, "input_token_details": {"cache_read": 512}}}}
    ),
    "helicone": line(
        {"request_id": "r1", "request_created_at": "2026-03-04T09:00:00Z", "request_body": {"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS}, "response_body": RESPONSE}
    ),
    "openinference": line({"name": "ChatCompletion", "span_id": "s1", "attributes": OPENINFERENCE}),
    "vcr": f"""interactions:
- request:
    body: '{json.dumps({"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS})}'
    headers: {{}}
    method: POST
    uri: https://api.openai.com/v1/chat/completions
  response:
    body:
      string: '{json.dumps(RESPONSE)}'
    status: {{code: 200, message: OK}}
- request: {{body: '', method: GET, uri: 'https://example.org/other'}}
  response: {{body: {{string: ''}}, status: {{code: 200, message: OK}}}}
version: 1
""",
    "aiperf": line({"timestamp": 1, "payload": {"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS, "usage": OPENAI_USAGE}}),
    "aiperf-inputs": line({"data": [{"session_id": "c1", "payloads": [{"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS, "usage": OPENAI_USAGE}]}]}),
    "sglang-agentic": line({"metadata": {}, "conversations": [[{"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS, "usage": OPENAI_USAGE, "prompt_tokens": 900}]]}),
    "sagemaker": line({"captureData": {"endpointInput": {"data": json.dumps({"model": "gpt-4o", "messages": MESSAGES, "tools": TOOLS})}, "endpointOutput": {"data": json.dumps(RESPONSE)}}, "eventMetadata": {"eventId": "r1", "inferenceTime": "2026-03-04T09:00:00Z"}}),
}  # fmt: skip

PROMPT = 'You answer for the library.\nQuestion: it\'s "open"?'
IDS = [1, 2, 3, 4, 5]
# format name -> text of the file; the record holds PROMPT, IDS or hash ids
OTHER = {
    "openai-completions": line({"model": "m", "prompt": PROMPT}),
    "canonical": line({"token_ids": IDS, "output_tokens": [9], "timestamp": 5}),
    "vllm": f"INFO 11-30 19:00:00 [api_server.py:1] started\nDEBUG 11-30 19:00:01 [request_logger.py:49] Request cmpl-1 details: prompt: {PROMPT!r}, prompt_token_ids: {IDS}, prompt_embeds shape: None.\nINFO 11-30 19:00:01 [request_logger.py:60] Generated response cmpl-1: output: 'x', finish_reason: stop\n",
    "sglang": "[2026-03-04 09:00:00] "
    + line({"timestamp": "2026-03-04T09:00:00.5", "event": "request.received", "rid": "r1", "obj": {"text": PROMPT}})
    + "[2026-03-04 09:00:01] "
    + line({"timestamp": "2026-03-04T09:00:01.5", "event": "request.finished", "rid": "r1", "obj": {"rid": "r1", "text": PROMPT, "input_ids": None}, "out": {"text": " yes", "meta_info": {"prompt_tokens": 900, "cached_tokens": 512, "completion_tokens": 7}}}),
    "mooncake": line({"timestamp": 27482, "input_length": 1030, "output_length": 500, "hash_ids": [46, 47, 48]}),
    "bailian": line({"chat_id": 7, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 40, "output_length": 5, "type": "text", "turn": 1, "hash_ids": [1, 2, 3]}),
    "dynamo": line({"schema": "dynamo.request.trace.v1", "event_type": "request_end", "request": {"request_id": "r1", "model": "m", "cached_tokens": 16, "replay": {"trace_block_size": 16, "input_length": 40, "input_sequence_hashes": [11, 12, 13]}}}),
    "weka": line({"id": "run", "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0.5, "type": "n", "in": 130, "out": 4, "hash_ids": [1, 2, 3]}]}),
    "sharegpt": line({"id": "c", "conversations": [{"from": "human", "value": USER}, {"from": "gpt", "value": "Yes."}, {"from": "human", "value": "Thanks"}, {"from": "gpt", "value": "."}]}),
}  # fmt: skip
SGLANG_TEXT = f"[2026-03-04 09:00:01] Finish: obj=GenerateReqInput(rid='r1', text={PROMPT!r}, input_ids=None, sampling_params={{'temperature': 0, 'stop': ['),', '(']}}, stream=False, custom=<object at 0x7f>), out={{'text': ' yes', 'meta_info': {{'id': 'r1', 'prompt_tokens': 900, 'cached_tokens': 512, 'completion_tokens': 7}}}}\n"
