"""What is a request to a language model, and what an answer says of its cost. The shape of the body decides, never the name of the host."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["Answer", "answer_usage", "bare", "request_body"]

_OTHER = re.compile(
    r"(?i)(?:^|/|:)(?:embed\w*|batchEmbedContents|embedContent|countTokens|count_tokens|tokenize|moderations?|rerank|score|classify|"
    r"images?|videos?|audio|speech|transcriptions?|translations?|files?|fine_tuning|ingest\w*|otlp|traces?|feedback|datasets?)(?:/|$|:)"
)
"""Words in a path that tell another service whose bodies look alike: embeddings, token counts, pictures, telemetry."""
_NOT_TEXT = frozenset(
    [
        "encoding_format",
        "dimensions",
        "voice",
        "size",
        "quality",
        "num_inference_steps",
        "input_type",
        "query",
        "documents",
    ]
)
"""Fields of bodies that ask for vectors, sound, pictures or an order of documents."""
_MODEL_IN_PATH = re.compile(r"/(?:models|model|deployments)/([^/]+?)(?::\w+|/(?:chat/completions|completions|responses|messages|invoke\S*|converse\S*))?$")  # fmt: skip
_RECOGNISED = 16 << 20
_USAGE = (b'"usage', b'"meta_info"', b'"prompt_eval_count"', b'"prompt_tokens"')


def bare(url: str) -> str:
    """The address without what may hold secrets: user, password, query, fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme else parts.path


def request_body(url: str, content: Any) -> dict[str, Any] | None:
    """The body as a dict where it is a request to a language model, with the model of the path where the body names none; else None.

    `content` is bytes, text, or the object that will be written as JSON.
    """
    if isinstance(content, (bytes, bytearray, memoryview)):
        content = bytes(content)
        if len(content) < 2 or content.lstrip()[:1] != b"{":
            return None
    elif isinstance(content, str):
        if content.lstrip()[:1] != "{":
            return None
    elif not isinstance(content, dict):
        return None
    path = urlsplit(url).path
    if _OTHER.search(path):
        return None
    body = content
    if not isinstance(content, dict):
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            return None
    if not isinstance(body, dict):
        return None
    if "model" not in body:
        found = _MODEL_IN_PATH.search(path)
        if found:
            body = {"model": unquote(found.group(1)), **body}
    return body if _is_request(body) else None


def _is_request(body: dict[str, Any]) -> bool:
    if _NOT_TEXT & body.keys():
        return False
    named = isinstance(body.get("model"), str)
    messages = body.get("messages")
    if isinstance(messages, list) and messages:
        return named and all(isinstance(item, dict) and isinstance(item.get("role"), str) for item in messages)
    contents = body.get("contents")
    if isinstance(contents, list) and contents:
        return named and all(isinstance(item, dict) and "parts" in item for item in contents)
    if named and isinstance(body.get("prompt"), (str, list)) and body["prompt"]:
        return True
    given = body.get("input")
    if named and given:
        return isinstance(given, str) or (isinstance(given, list) and all(isinstance(item, dict) for item in given))
    return "sampling_params" in body and bool(body.get("text") or body.get("input_ids"))


def answer_usage(event: Any) -> dict[str, Any]:
    """The usage numbers in one answer or one event of a stream, as the provider spells them; empty where it has none."""
    if isinstance(event, list):
        merged: dict[str, Any] = {}
        for item in event:
            merged.update(answer_usage(item))
        return merged
    if not isinstance(event, dict):
        return {}
    found: dict[str, Any] = {}
    for holder in (event, event.get("message"), event.get("response"), event.get("metadata")):
        if isinstance(holder, dict):
            for name in ("usage", "usageMetadata", "usage_metadata"):
                if isinstance(holder.get(name), dict):
                    found.update({key: value for key, value in holder[name].items() if value is not None})
    meta = event.get("meta_info")  # SGLang's own interface
    if isinstance(meta, dict):
        found.update({key: meta[key] for key in ("prompt_tokens", "completion_tokens", "cached_tokens") if key in meta})
    if isinstance(event.get("prompt_eval_count"), int):  # Ollama
        found.update(prompt_tokens=event["prompt_eval_count"], completion_tokens=event.get("eval_count", 0))
    return found


class Answer:
    """Reads an answer beside its reader: pieces come in as the program takes them, only an unfinished line is kept.

    A stream of events or of JSON lines is parsed line by line, and only lines that speak of usage. Any other answer is kept whole up to 16 MB and parsed at its end.
    """

    def __init__(self, content_type: str) -> None:
        kind = content_type.lower()
        self.by_line = "event-stream" in kind or "ndjson" in kind or "jsonl" in kind
        self.usage: dict[str, Any] = {}
        self.complete = False
        self.rest = b""
        self.skipping = False

    def feed(self, data: bytes) -> None:
        """One more piece."""
        if not self.by_line:
            if not self.skipping:
                self.rest += data
                self.skipping = len(self.rest) > _RECOGNISED
            return
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        if len(self.rest) > _RECOGNISED:
            self.rest, self.skipping = b"", True
        for line in lines:
            if self.skipping:  # the end of a line whose beginning was given up
                self.skipping = False
            else:
                self._line(line)

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            line = line[5:]
        line = line.strip()
        if line == b"[DONE]" or b'"message_stop"' in line:
            self.complete = True
        if line[:1] == b"{" and any(word in line for word in _USAGE):
            self._parse(line)
        if b'"response.completed"' in line:
            self.complete = True

    def _parse(self, data: bytes) -> bool:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            return False
        self.usage.update(answer_usage(event))
        return True

    def end(self) -> None:
        """No more pieces will come."""
        rest, self.rest = self.rest, b""
        if not rest or self.skipping:
            return
        if self.by_line:
            self._line(rest)
        elif any(word in rest for word in _USAGE) and not self._parse(rest):
            for line in rest.split(b"\n"):  # JSON lines under another name
                self._line(line)
