"""The canonical record: one request, with its text or its token ids, and what the server said about it.

A record keeps what was sent as it was sent: key order, unknown fields, the shape of the content. Nothing is sorted or normalised
but the usage numbers, because the fault that is looked for may be the order of keys.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "CACHE_READ",
    "CACHE_WRITE",
    "INPUT",
    "OUTPUT",
    "REASONING",
    "Place",
    "Record",
    "Unreadable",
    "milliseconds",
    "usage_of",
]

# OpenTelemetry GenAI attribute names. Input tokens are all prompt tokens, cached ones included.
INPUT = "gen_ai.usage.input_tokens"
OUTPUT = "gen_ai.usage.output_tokens"
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE = "gen_ai.usage.cache_creation.input_tokens"
REASONING = "gen_ai.usage.reasoning.output_tokens"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands: the file as given, and the 1-based line (or the ordinal in a file without lines)."""

    file: str
    line: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Unreadable(Exception):
    """A record that a reader refuses. `field` is the part of the record that is wrong, as a path, or empty."""

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field


NOWHERE = Place("")


@dataclass(slots=True)
class Record:
    """One request.

    Exactly one of `messages`, `prompt`, `token_ids` and `hash_ids` says what was sent; all are None for a record that has only
    `usage`. `timestamp` is in milliseconds. `output` is the answering message or text where the log has it, `output_tokens` its ids.
    `parameters` are the other fields of the request's body that belong to the cache key or to routing (`tool_choice`, `prompt_cache_key`, ...),
    `extra` every field that we have no name for. `shape` tells how the body spells its parts, so that a path can address them.
    """

    place: Place = NOWHERE
    format: str = "canonical"
    id: str = ""
    session_id: str = ""
    timestamp: float | None = None
    model: str = ""
    namespace: str = ""
    call_site: str = ""
    system: Any = None
    tools: list[Any] | None = None
    messages: list[Any] | None = None
    prompt: str | None = None
    token_ids: list[int] | None = None
    hash_ids: list[Any] | None = None
    block_size: int | None = None
    input_length: int | None = None
    output: Any = None
    output_tokens: list[int] | None = None
    output_length: int | None = None
    usage: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    shape: str = "chat"  # chat, responses or anthropic
    notes: tuple[str, ...] = ()
    given_id: int | None = None  # the id where the log spells it as a number, so that results can be joined to it
    ids_field: str = "token_ids"  # how the log spells the field of the token ids
    empty_key: bool = False  # the namespace is given and empty: SGLang keeps that apart from none

    @property
    def has_text(self) -> bool:
        """Whether the record holds the text of its prompt."""
        return self.messages is not None or self.prompt is not None

    @property
    def is_request(self) -> bool:
        """Whether the record says what was sent, and not only what it cost."""
        return self.has_text or self.token_ids is not None or self.hash_ids is not None

    @property
    def disguised(self) -> str:
        """The name of the key under which `promptlint record` replaced the words of the text; empty where text is as it was sent."""
        about = self.extra.get("recorded")
        name = about.get("disguised") if isinstance(about, Mapping) else None
        return name if isinstance(name, str) else ""

    @property
    def cached_tokens(self) -> int | None:
        """Cached prompt tokens that the server reported, or None."""
        return self.usage.get(CACHE_READ)

    @property
    def usage_adds_up(self) -> bool:
        """Whether the report has both numbers of a hit rate, and no more cached tokens than prompt tokens: what contradicts itself is in no rate."""
        cached, whole = self.usage.get(CACHE_READ), self.usage.get(INPUT)
        return cached is not None and whole is not None and cached <= whole

    def to_json(self) -> dict[str, Any]:
        """The canonical JSON object; fields without a value are left out, unknown ones are kept at the end."""
        row: dict[str, Any] = {}
        for name in ("timestamp", "id", "session_id", "model", "namespace", "call_site"):
            value = getattr(self, name)
            if value is not None and value != "":
                row[name] = _whole(value) if name == "timestamp" else value
        if self.shape == "responses":
            row |= _present({"instructions": self.system, "tools": self.tools, "input": self.messages})
        else:
            row |= _present({"tools": self.tools, "system": self.system, "messages": self.messages})
        row |= _present(
            {
                "prompt": self.prompt,
                "token_ids": self.token_ids,
                "hash_ids": self.hash_ids,
                "block_size": self.block_size,
                "input_length": self.input_length,
                "output": self.output,
                "output_tokens": self.output_tokens,
                "output_length": self.output_length,
            }
        )
        if self.usage:
            row["usage"] = self.usage
        return row | {k: v for k, v in (self.parameters | self.extra).items() if k not in row}


def _present(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if value is not None}


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value


def milliseconds(value: Any, unit: str = "ms") -> float | None:
    """A timestamp in milliseconds since 1970 (or since the trace began). `unit` tells what a bare number counts: ms, s, ns.

    ISO 8601 texts and datetime objects carry their own unit; a text without a zone is taken as UTC. None for what is no time.
    """
    factor = {"ms": 1.0, "s": 1000.0, "us": 1e-3, "ns": 1e-6}[unit]
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return float(value) * factor if value == value and abs(value) < 1e30 else None  # noqa: PLR0124 - NaN
    if isinstance(value, dt.datetime):
        moment = value
    elif isinstance(value, str):
        text = value.strip()
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            try:
                return float(text) * factor
            except ValueError:
                return None
    else:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return moment.timestamp() * 1000.0


def _number(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)) and 0 <= value < 1e15:
        return int(value)
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return None


def _first(usage: Mapping[str, Any], *paths: str) -> int | None:
    """The first number found under one of the dotted paths (a key may itself hold dots)."""
    for path in paths:
        value: Any = usage.get(path)
        if value is None and "." in path:
            head, _, tail = path.partition(".")
            inner = usage.get(head)
            value = inner.get(tail) if isinstance(inner, Mapping) else None
        number = _number(value)
        if number is not None:
            return number
    return None


def usage_of(usage: Any) -> dict[str, int]:
    """Usage numbers of any provider under OpenTelemetry's names, with prompt tokens that include the cached ones.

    OpenAI (chat and responses), DeepSeek, Gemini, LangChain and LiteLLM count cached tokens within the input; Anthropic and Bedrock leave reads and
    writes out, so they are added. Unknown shapes give an empty dict, never a guess.
    """
    if not isinstance(usage, Mapping):
        return {}
    found: dict[str, int | None] = {}
    found[CACHE_READ] = _first(
        usage, CACHE_READ, "cache_read.input_tokens", "prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
        "input_token_details.cache_read", "cache_read_input_tokens", "cacheReadInputTokens", "cacheReadInputTokenCount", "prompt_cache_hit_tokens",
        "cachedContentTokenCount", "cached_content_token_count", "input_cached_tokens", "input_cache_read", "cached_tokens",
        "cache_read_tokens", "input_cache_read_tokens", "prompt_details.cache_read",
    )  # fmt: skip
    found[CACHE_WRITE] = _first(
        usage, CACHE_WRITE, "cache_creation.input_tokens", "prompt_tokens_details.cache_write_tokens", "input_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens", "input_token_details.cache_creation", "cache_creation_input_tokens", "cacheWriteInputTokens",
        "cacheWriteInputTokenCount", "input_cache_creation", "cache_write_tokens", "cache_creation_tokens", "prompt_details.cache_write",
    )  # fmt: skip
    if found[CACHE_WRITE] is None and isinstance(usage.get("cache_creation"), Mapping):
        parts = [_number(value) for value in usage["cache_creation"].values()]
        found[CACHE_WRITE] = sum(part for part in parts if part is not None)
    whole = _first(
        usage,
        INPUT,
        "gen_ai.usage.prompt_tokens",
        "prompt_tokens",
        "promptTokenCount",
        "prompt_token_count",
        "promptTokens",
    )
    if whole is None:
        whole = _first(usage, "input_tokens", "inputTokens", "input", "prompt")
        apart = any(usage.get(key) is not None for key in _APART) and not any(key in usage for key in _WITHIN)
        if whole is not None and apart:
            whole += (found[CACHE_READ] or 0) + (found[CACHE_WRITE] or 0)
    if whole is None and usage.get("prompt_cache_miss_tokens") is not None:
        whole = (found[CACHE_READ] or 0) + (_number(usage["prompt_cache_miss_tokens"]) or 0)
    found[INPUT] = whole
    found[OUTPUT] = _first(
        usage, OUTPUT, "gen_ai.usage.completion_tokens", "completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount",
        "candidates_token_count", "output", "completion",
    )  # fmt: skip
    found[REASONING] = _first(
        usage, REASONING, "completion_tokens_details.reasoning_tokens", "output_tokens_details.reasoning_tokens",
        "output_token_details.reasoning", "thoughtsTokenCount",
    )  # fmt: skip
    order = (INPUT, CACHE_READ, CACHE_WRITE, OUTPUT, REASONING)
    return {name: number for name in order if (number := found[name]) is not None}


# Names that appear only where the input count leaves the cached tokens out, and those that show the opposite.
_APART = (
    "cache_read_input_tokens", "cache_creation_input_tokens", "cacheReadInputTokens", "cacheWriteInputTokens",
    "cacheReadInputTokenCount", "cacheWriteInputTokenCount", "input_cached_tokens", "input_cache_read", "input_cache_creation",
    "cache_read_tokens", "input_cache_read_tokens",
)  # fmt: skip
_WITHIN = ("input_tokens_details", "input_token_details")
