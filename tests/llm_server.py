"""A local server that speaks chat completions, responses and Anthropic's messages, whole and streamed, for tests of what records requests.

It is also copied beside the little programs that these tests run: `python llm_server.py` is never needed, `start()` serves from a thread.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

OPENAI = {
    "prompt_tokens": 50,
    "completion_tokens": 5,
    "total_tokens": 55,
    "prompt_tokens_details": {"cached_tokens": 32},
}
ANTHROPIC = {"input_tokens": 18, "cache_read_input_tokens": 32, "cache_creation_input_tokens": 0, "output_tokens": 5}


def _chat_events():
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    yield {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield {**head, "choices": [], "usage": OPENAI}


def _message_events():
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    yield {"type": "message_start", "message": {**message, "usage": {**ANTHROPIC, "output_tokens": 1}}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}
    yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {"output_tokens": 5},
    }
    yield {"type": "message_stop"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    failures: ClassVar[dict[str, int]] = {}

    def log_message(self, *_arguments):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        user = str(body.get("user", ""))
        if user.startswith("flaky"):  # every other attempt fails
            self.failures[user] = self.failures.get(user, 0) + 1
            if self.failures[user] % 2:
                self.answer(500, {"error": {"message": "overloaded"}})
                return
        anthropic = "messages" in self.path
        if body.get("stream"):
            self.stream(_message_events() if anthropic else _chat_events(), named=anthropic)
        elif anthropic:
            text = [{"type": "text", "text": "hi"}]
            message = {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": text}
            self.answer(200, {**message, "stop_reason": "end_turn", "stop_sequence": None, "usage": ANTHROPIC})
        else:
            choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
            self.answer(
                200,
                {
                    "id": "1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                    "usage": OPENAI,
                },
            )

    def answer(self, status, content):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.send_header("x-request-id", "req-1")
        self.send_header("set-cookie", "session=hidden")
        self.end_headers()
        self.wfile.write(data)

    def stream(self, events, *, named):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events]
        for line in lines if named else [*lines, "data: [DONE]\n\n"]:
            data = line.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def start():
    """Serve from a thread of this process; returns the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
