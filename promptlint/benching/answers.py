"""From the bytes of an answer to its figures, after the clock has stopped; and what in it contradicts what was sent.

An answer is a stream of server-sent events, `data: {...}` until `data: [DONE]`, of the OpenAI completions or chat protocol, with the usage in the last event. A server
that breaks off, answers as another model, or reports usage that cannot be is caught here: its figures would be compared with honest ones.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from typing import Any

from promptlint.benching.client import Reply

__all__ = ["Answer", "read_answer"]

_MAX_WORDS = 240
_BEGIN = 20  # characters that tell whether an answer is JSON
_NO_COUNT = 1 << 53  # as many tokens as no answer has; beyond it a float is no longer exact


@dataclass(slots=True)
class Answer:
    """One request and its answer. Times in seconds on the clock of the run, which starts with its first request.

    Attributes:
        index: place of the request in the workload.
        due: when it was to be sent; `sent`: when it was.
        first, last: when its first and last token arrived; 0 without any.
        gaps: seconds between events that carried tokens.
        error: why it failed, "" for success; `kind` is then one of connect, timeout, dropped, protocol, status, truncated.
        lies: what it reported that cannot be true; it still counts as answered.
        begin: the first characters of its text.
        calls: an event carried a part of a tool call; a server may cut what one token brought into several such events.
        events: those that carried tokens; a server may put several tokens into one. `has_text`: one of them had a text.
        cached_tokens: None where the server does not report it.
    """

    index: int
    due: float = 0.0
    sent: float = 0.0
    first: float = 0.0
    last: float = 0.0
    ended: float = 0.0
    gaps: array[float] = field(default_factory=lambda: array("f"))  # compact: a run has millions of them
    events: int = 0
    has_text: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    finish: str = ""
    model: str = ""
    error: str = ""
    kind: str = ""
    lies: list[str] = field(default_factory=list)
    resent: bool = False
    calls: bool = False
    begin: str = ""

    @property
    def ok(self) -> bool:
        """Whether the answer came whole."""
        return not self.error

    @property
    def ttft(self) -> float:
        """Time to first token, seconds."""
        return self.first - self.sent

    @property
    def latency(self) -> float:
        """Time to the last token, seconds."""
        return self.last - self.sent

    @property
    def tpot(self) -> float | None:
        """Time per output token after the first, seconds; None for an answer of one token."""
        tokens = self.output_tokens or self.events
        return (self.last - self.first) / (tokens - 1) if tokens > 1 else None


def read_answer(reply: Reply, index: int, due: float, start: float) -> Answer:
    """The answer in a reply. `start` is the perf_counter reading at which the clock of the run began, `due` is on that clock."""
    answer = Answer(index, due, reply.sent - start, ended=reply.ended - start, resent=reply.resent)
    if reply.status >= 400 or (reply.status and reply.status != 200):
        answer.kind, answer.error = "status", f"status {reply.status}: {_message(reply)}"[:_MAX_WORDS] + _when(reply)
        return answer
    done = False
    rest: list[bytes] = []  # of a line whose end is in a later piece
    for stamp, piece in reply.pieces:
        *lines, last = piece.split(b"\n")
        if lines:
            lines[0] = b"".join((*rest, lines[0]))
            rest.clear()
        rest.append(last)
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                continue
            try:
                event = json.loads(data)
            except (ValueError, RecursionError):
                event = None
            if not isinstance(event, dict):
                answer.kind, answer.error = "protocol", f"an event that is no JSON object: {_shown(data)}"
                return answer
            if "error" in event:
                answer.kind, answer.error = "status", f"error in the stream: {_shown(json.dumps(event['error']))}"
                return answer
            _event(answer, event, stamp - start)
    if reply.error:
        answer.kind, answer.error = reply.kind, reply.error
    elif not answer.events and not done:
        answer.kind, answer.error = "protocol", f"no stream of events came back: {reply.text(80)!r}"
    elif not done or not answer.finish:
        answer.kind, answer.error = (
            "truncated",
            f"the stream ended after {answer.events} events without "
            + ("[DONE]" if answer.finish else "a finish_reason"),
        )
    elif not answer.events:
        answer.kind, answer.error = "truncated", "the answer holds no token"
    return answer


def _event(answer: Answer, event: dict[str, Any], stamp: float) -> None:
    model = event.get("model")
    if isinstance(model, str) and model:
        answer.model = model
    usage = event.get("usage")
    if isinstance(usage, dict):
        _usage(answer, usage)
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
    if choice is None:
        return
    if _carries(choice, answer):
        if not answer.events:
            answer.first = stamp
        else:
            answer.gaps.append(stamp - answer.last)
        answer.last = stamp
        answer.events += 1
    finish = choice.get("finish_reason")
    if isinstance(finish, str):
        answer.finish = finish


def _carries(choice: dict[str, Any], answer: Answer) -> bool:
    """Whether the event brings a token. Chat begins with an event for the role alone, and an event may say nothing but why the answer ended.

    A server without a tokenizer sends an empty text for each token; then the last event, which also says that the length was reached, brings one too.
    """
    if choice.get("token_ids"):
        return True
    if "delta" in choice:
        delta = choice["delta"] if isinstance(choice["delta"], dict) else {}
        answer.calls = answer.calls or bool(delta.get("tool_calls"))
        _begin(answer, delta.get("content"))
        return any(delta.get(name) for name in ("content", "reasoning_content", "reasoning", "tool_calls"))
    if "text" not in choice:
        return False
    if choice["text"]:
        answer.has_text = True
        _begin(answer, choice["text"])
        return True
    return not choice.get("finish_reason") or (choice["finish_reason"] == "length" and not answer.has_text)


def _begin(answer: Answer, text: Any) -> None:
    if len(answer.begin) < _BEGIN and isinstance(text, str):
        answer.begin = (answer.begin + text).lstrip()[:_BEGIN]


def _usage(answer: Answer, usage: dict[str, Any]) -> None:
    answer.prompt_tokens = _count(answer, usage, "prompt_tokens")
    answer.output_tokens = _count(answer, usage, "completion_tokens")
    details = usage.get("prompt_tokens_details")
    if isinstance(details, dict):
        answer.cached_tokens = _count(answer, details, "cached_tokens")


def _count(answer: Answer, usage: dict[str, Any], name: str) -> int | None:
    """A count of tokens; None where there is none. What is no count at all is a lie, for it was meant to be one."""
    value = usage.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < _NO_COUNT):
        return value
    words = f"usage gives {name} as {_shown(json.dumps(value))[:40]}"
    if words not in answer.lies:  # some servers repeat the usage in each event
        answer.lies.append(words)
    return None


def _when(reply: Reply) -> str:
    """What to do about a server that has enough."""
    if reply.status != 429:
        return ""
    after = reply.headers.get("retry-after", "")
    wait = f" (it asks to wait: Retry-After {after[:40]})" if after else ""
    return f"{wait}; it limits what it takes, a smaller --concurrency or --rate may stay below that"


def _message(reply: Reply) -> str:
    """What the server says about a refusal."""
    try:
        value = json.loads(reply.body)
    except (ValueError, RecursionError):
        return reply.text()
    if isinstance(value, dict):
        inner = value.get("error", value)
        words = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(words, str):
            return words
    return reply.text()


def _shown(data: bytes | str) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return text[:120]
