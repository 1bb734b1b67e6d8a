"""One module per family of formats. A reader turns one parsed object into records and never guesses: what it cannot read it refuses, with the field.

`FORMATS` is the order in which a record is tried: the formats with the most telling keys first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from promptlint.errors import UserError
from promptlint.traffic.readers import aggregates, blocks, bodies, conversations, otel, platforms, server_logs, wrapped
from promptlint.traffic.readers.base import Format

__all__ = ["FORMATS", "by_name", "format_of"]

FORMATS: tuple[Format, ...] = (
    bodies.BATCH,
    bodies.ANTHROPIC_BATCH,
    bodies.ANTHROPIC_RESULT,
    blocks.DYNAMO,
    server_logs.SGLANG,
    server_logs.SGLANG_RECEIVED,
    server_logs.VLLM,
    aggregates.LAUNCH,
    aggregates.PROMETHEUS_JSON,
    aggregates.USAGE,
    aggregates.KV_EVENTS,
    otel.OTLP,
    platforms.LANGFUSE,
    platforms.LANGSMITH,
    platforms.LITELLM_SPEND,
    platforms.LITELLM,
    platforms.HELICONE,
    otel.OTEL,
    wrapped.CASSETTE,
    wrapped.AGENTIC,
    wrapped.PAYLOADS,
    wrapped.SAGEMAKER,
    blocks.WEKA,
    blocks.BAILIAN,
    blocks.AIPERF,
    blocks.MOONCAKE,
    conversations.SHAREGPT,
    conversations.CONVERSATIONS,
    bodies.EXCHANGE,
    bodies.CANONICAL,
    bodies.BODY,
    bodies.COMPLETION,
)

_PLAIN_FIELDS = frozenset(
    [
        "timestamp",
        "id",
        "session_id",
        "model",
        "namespace",
        "call_site",
        "messages",
        "tools",
        "system",
        "prompt",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "stream",
        "stop",
        "seed",
        "n",
        "user",
        "tool_choice",
        "response_format",
        "usage",
        "output",
        "output_length",
    ]
)
_HASH_FIELDS = frozenset(
    {"hash_ids", "timestamp", "input_length", "output_length", "id", "session_id", "namespace", "block_size"}
)
_PLAIN = (bodies.CANONICAL, bodies.BODY, bodies.COMPLETION)


def format_of(row: Mapping[str, Any]) -> Format | None:
    """The first format that the record looks like; None when there is none. Most records have only fields that no special format asks about."""
    if "hash_ids" in row and row.keys() <= _HASH_FIELDS:
        return blocks.MOONCAKE
    tried = _PLAIN if row.keys() <= _PLAIN_FIELDS else FORMATS
    for form in tried:
        if form.matches(row):
            return form
    return None


def by_name(name: str) -> Format:
    """The format of that name. Raises UserError when there is none."""
    for form in FORMATS:
        if form.name == name:
            return form
    raise UserError(f"unknown traffic format {name!r}; one of: {', '.join(sorted(form.name for form in FORMATS))}")
