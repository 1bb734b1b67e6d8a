"""Transcripts: one conversation a line. Each assistant message is one request, whose prompt is all that stands before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from promptlint.traffic.readers.base import Format, Options, as_list, text_or_none
from promptlint.traffic.readers.bodies import messages_of
from promptlint.traffic.record import Place, Record, milliseconds

__all__ = ["CONVERSATIONS", "SHAREGPT", "requests_of"]

_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "bard": "assistant", "bing": "assistant", "assistant": "assistant", "system": "system", "tool": "tool"}  # fmt: skip


def requests_of(
    row: Mapping[str, Any], messages: list[Any], place: Place, options: Options, name: str
) -> Iterator[Record]:
    """The requests of one conversation, in order, all of one session."""
    session = next(
        (text for key in ("session_id", "session", "conversation_id", "id") if (text := text_or_none(row.get(key)))),
        str(place),
    )
    tools = as_list(row["tools"], "tools") if row.get("tools") is not None else options.tools
    system = row.get("system")
    model, stamp = text_or_none(row.get("model")), row.get("timestamp")
    shape = "anthropic" if system is not None else "chat"
    for index, message in enumerate(messages):
        if message.get("role") != "assistant":
            continue
        when = message.get("timestamp", stamp)
        yield Record(
            place,
            name,
            f"{session}:{index}",
            session,
            None if when is None else milliseconds(when),
            model,
            system=system,
            tools=tools,
            messages=messages[:index],
            output=message,
            shape=shape,
        )


def _read(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    yield from requests_of(row, messages_of(row.get("messages"), "messages"), place, options, "conversations")


def _read_sharegpt(row: Mapping[str, Any], place: Place, options: Options) -> Iterator[Record]:
    field = next(key for key in ("conversations", "conversation", "items") if key in row)
    messages = []
    for index, turn in enumerate(as_list(row[field], field)):
        if not isinstance(turn, Mapping):
            from promptlint.traffic.record import Unreadable

            raise Unreadable("expected a turn object", f"{field}[{index}]")
        role = text_or_none(turn.get("from", turn.get("role", "user" if index % 2 == 0 else "assistant")))
        text = next(
            (turn[key] for key in ("value", "content", "text", "markdown") if isinstance(turn.get(key), str)), None
        )
        if text is None:
            from promptlint.traffic.record import Unreadable

            raise Unreadable("a turn without text", f"{field}[{index}].value")
        messages.append({"role": _ROLES.get(role, role), "content": text})
    yield from requests_of(row, messages, place, options, "sharegpt")


CONVERSATIONS = Format(
    "conversations", "one conversation a line; every assistant message is one request", lambda _row: False, _read
)
SHAREGPT = Format(
    "sharegpt",
    "ShareGPT conversations (from, value)",
    lambda row: isinstance(row.get("conversations", row.get("conversation")), list) and _turns(row),
    _read_sharegpt,
)


def _turns(row: Mapping[str, Any]) -> bool:
    turns = row.get("conversations", row.get("conversation"))
    return isinstance(turns, list) and (not turns or (isinstance(turns[0], Mapping) and "messages" not in turns[0]))
