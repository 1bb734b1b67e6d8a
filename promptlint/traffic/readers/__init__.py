"""One module per family of formats. A reader turns one parsed object into records and never guesses: what it cannot read it refuses, with the field.

`FORMATS` is the order in which a record is tried: the formats with the most telling keys first.
"""

from __future__ import annotations

from promptlint.errors import UserError
from promptlint.traffic.readers import aggregates, blocks, bodies, conversations, otel, platforms, server_logs, wrapped
from promptlint.traffic.readers.base import Format

__all__ = ["FORMATS", "by_name"]

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


def by_name(name: str) -> Format:
    """The format of that name. Raises UserError when there is none."""
    for form in FORMATS:
        if form.name == name:
            return form
    raise UserError(f"unknown traffic format {name!r}; one of: {', '.join(sorted(form.name for form in FORMATS))}")
