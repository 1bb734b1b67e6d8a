"""A request as a row of texts in the order in which a prefix cache meets them, each with its path in the body.

Tools come first, then the system text, then the messages. A text is one part; tools, tool calls and other structures are one part each,
as compact JSON with their key order. Within a message the role stands first and the content before the calls, as chat templates write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from promptlint.tokenizers.render import compact, unmarked
from promptlint.traffic.record import Record

__all__ = ["Part", "parts_of"]

_FIRST = (
    "role",
    "type",
    "name",
    "tool_call_id",
    "call_id",
    "reasoning_content",
    "reasoning",
    "content",
    "parts",
    "tool_calls",
    "function_call",
)
_ORDERED = frozenset(_FIRST)
_NOT_SENT = frozenset({"id", "status", "timestamp", "created_at", "usage", "finish_reason"})
"""Fields of a message that loggers add. `id` and `status` of a Responses item are sent, but are no text that a model reads."""
_ROOTS = {"chat": ("system", "messages"), "anthropic": ("system", "messages"), "responses": ("instructions", "input"), "gemini": ("systemInstruction", "contents")}  # fmt: skip
_TOKEN_BASE = 0x100
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class Part:
    """One text and where it stands in the body.

    `text` is what is compared, `written` how the body spells it where that differs: a text part `{"type": "text", "text": T}` reads the same
    as the plain text T, so a message that changes from one form to the other does not count as changed. `slot` is the path without indices.
    `message` is the index of its message, -1 ahead of all messages; `role` is that message's.
    """

    path: str
    slot: str
    text: str
    message: int = -1
    role: str = ""
    written: str | None = None

    @property
    def spelled(self) -> str:
        """The text at `path` as the body has it; structures as compact JSON."""
        return self.text if self.written is None else self.written


def parts_of(record: Record, written: dict[int, tuple[Any, str]] | None = None) -> list[Part]:
    """The parts of a record, in rendered order. Token ids become one part with one character an id, block ids one part each.

    `written` remembers the JSON of tool lists by identity: readers give the records of one transcript the same list.
    """
    if record.prompt is not None:
        return [Part("prompt", "prompt", record.prompt, 0, "user")]
    if record.token_ids is not None:
        return [Part("token_ids", "token_ids", _as_text(record.token_ids), 0, "user")]
    if record.hash_ids is not None:
        return [
            Part(f"hash_ids[{index}]", "hash_ids", str(item), index, "user")
            for index, item in enumerate(record.hash_ids)
        ]
    found: list[Part] = []
    system, messages = _ROOTS[record.shape]
    if record.messages is not None:  # without tools the part is empty, so that tools which come or go are seen as such
        found.append(Part("tools", "tools", _tools(record.tools, written) if record.tools else ""))
    if record.system is not None:
        found.extend(_content(record.system, system, "content", -1, "system"))
    for index, message in enumerate(record.messages or ()):
        found.extend(_message(message, f"{messages}[{index}]", index))
    return found


def _tools(tools: list[Any], written: dict[int, tuple[Any, str]] | None) -> str:
    known = written.get(id(tools)) if written is not None else None
    if known is not None and known[0] is tools:
        return known[1]
    text = compact(unmarked(tools))
    if written is not None:
        if len(written) > 64:
            written.clear()
        written[id(tools)] = (tools, text)
    return text


def _message(message: Any, path: str, index: int) -> Iterator[Part]:
    role = str(message.get("role", message.get("type", "")))
    names = [name for name in _FIRST if name in message]
    names += [name for name in message if name not in _ORDERED and name not in _NOT_SENT]
    if "content" not in names and "tool_calls" in names:  # the same as a content of null
        names.insert(names.index("tool_calls"), "content")
    for name in names:
        value = message.get(name)
        if value is not None:
            yield from _content(value, f"{path}.{name}", name, index, role)
        elif name == "content":
            yield Part(f"{path}.content", "content", "", index, role)


def _content(value: Any, path: str, slot: str, index: int, role: str) -> Iterator[Part]:
    if isinstance(value, str):
        yield Part(path, slot, value, index, role)
    elif isinstance(value, list) and slot in {"content", "parts"}:
        for position, item in enumerate(unmarked(value)):
            place = f"{path}[{position}]"
            if isinstance(item, str):
                yield Part(place, slot, item, index, role)
            elif isinstance(item, dict) and isinstance(item.get("text"), str) and set(item) <= {"type", "text"}:
                yield Part(place, slot, item["text"], index, role, compact(item))
            else:
                yield Part(place, slot, compact(item), index, role)
    else:
        yield Part(path, slot, compact(unmarked(value)), index, role)


def _as_text(ids: list[int]) -> str:
    """One character an id: no id meets a surrogate, and ids beyond Unicode fold, which vocabularies never reach."""
    text = []
    for one in ids:
        code = (one + _TOKEN_BASE) % 0x110000
        text.append(chr(code if code not in _SURROGATES else code + 0x100000))
    return "".join(text)
