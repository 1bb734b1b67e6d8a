"""Messages to rendered text: what a model sees of tools, system text and messages, as runs that are tokenised one by one.

Modes: `plain-tags` (a documented neutral rendering, for comparisons), the chat templates of `templates.py`, and `provider` (an
approximation of a closed provider's rendering: the documented order, with role tags of a plausible size).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Protocol

from promptlint.tokenizers import ID_BYTES
from promptlint.tokenizers.segments import Run, SegmentTokenizer

__all__ = [
    "Conversation",
    "Rendered",
    "Renderer",
    "compact",
    "content_text",
    "family",
    "packed",
    "plain_tags",
    "renderer",
    "unmarked",
]


_COMPACT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


def compact(value: Any) -> str:
    """Compact JSON: separators `,` and `:`, not ASCII-escaped, key order kept."""
    return _COMPACT(value)


_MARKERS = frozenset({"cache_control", "prompt_cache_breakpoint"})


def unmarked(value: Any) -> Any:
    """The value without cache markers: they are no part of what is compared, and move from turn to turn by design."""
    if isinstance(value, list):
        return [
            unmarked(item) for item in value if not (isinstance(item, dict) and len(item) == 1 and "cachePoint" in item)
        ]
    if isinstance(value, dict) and not _MARKERS.isdisjoint(value):
        return {key: item for key, item in value.items() if key not in _MARKERS}
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        return {key: unmarked(item) for key, item in value.items()}
    return value


@dataclass(slots=True)
class Conversation:
    """What a request sends, in the shape of its body. `answer` is the message that came back, where it is known; `date` what a dated template prints."""

    messages: Sequence[Any]
    tools: Sequence[Any] | None = None
    system: Any = None
    answer: Any = None
    date: str = ""


@dataclass(slots=True)
class Rendered:
    """The prompt as runs, and what enters the cache behind it.

    The prompt ends with the generation prompt. `answer` continues it: the tokens that the model produced, its stop token included. What is `stored`
    replaces both, where what is cached afterwards is not the prompt plus the answer.

    Prompts of one transcript share their beginning: `head` is then a list that only grows, and its first `upto` runs stand in front of `tail` in the prompt and of
    `kept` in what is stored.
    """

    tail: list[Run] = field(default_factory=list)
    answer: list[Run] = field(default_factory=list)
    kept: list[Run] | None = None
    head: list[Run] | None = None
    upto: int = 0

    @property
    def prompt(self) -> list[Run]:
        """All runs of the prompt."""
        return self.tail if self.head is None else [*self.head[: self.upto], *self.tail]

    @property
    def stored(self) -> list[Run] | None:
        """All runs of what is cached in place of prompt and answer, where that is not those two."""
        return self.kept if self.kept is None or self.head is None else [*self.head[: self.upto], *self.kept]


class Renderer(Protocol):
    """Renders a conversation. Raises ValueError for one that the format cannot express."""

    def __call__(self, conversation: Conversation, /) -> Rendered: ...


def content_text(content: Any) -> str:
    """The text of a message's content: texts as they are, parts joined, anything else as compact JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_part_text(part) for part in content)
    return compact(content)


def _part_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, Mapping):
        text = part.get("text")
        if isinstance(text, str):
            return text
        if part.get("type") == "tool_result":
            return content_text(part.get("content"))
    return compact(part)


_ENDING = "<|assistant|>\n"


class PlainTags:
    """The render mode `plain-tags`.

    The compact JSON of the tools and a line feed; each message as `<|role|>`, line feed, content (a list: its compact JSON), the compact
    JSON of `tool_calls` if any, line feed, `<|end|>`, line feed; a prompt ends with `<|assistant|>` and a line feed. Each of these is one run. What
    enters the cache is the prompt without its ending, and the answer as a message.

    Requests of one transcript share their message objects, so the text of an object is made once (and the object kept, so that its identity means it).
    """

    _MOST = 20_000

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, str]] = {}
        self._tools: Any = None
        self._system: Any = None
        self._messages: tuple[Any, ...] = ()
        self._head: list[Run] = []  # what these three are rendered to

    def __call__(self, conversation: Conversation) -> Rendered:
        head = self._grown(conversation)
        answer, kept = conversation.answer, None
        if answer is not None:
            said = type(answer) is dict or isinstance(answer, Mapping)
            kept = [self._once(answer, _tagged) if said else _tagged({"role": "assistant", "content": answer})]
        return Rendered([_ENDING], [], kept, head, len(head))

    def _grown(self, conversation: Conversation) -> list[Run]:
        """The runs of tools, system text and messages: those of the call before and more, where it began with the very same objects; else a new list."""
        tools, system, messages = conversation.tools, conversation.system, conversation.messages
        at = len(self._messages)
        if (
            tools is not self._tools
            or system is not self._system
            or at > len(messages)
            or not all(map(is_, self._messages, messages))
        ):
            self._head, at = [], 0
            self._tools, self._system = tools, system
            if tools:
                self._head.append(self._once(tools, _listed))
            if system is not None:
                self._head.append(_tagged({"role": "system", "content": system}))
        made = self._made
        for message in messages[at:]:
            known = made.get(id(message))  # mostly the answer that was kept before
            self._head.append(known[1] if known is not None and known[0] is message else self._once(message, _tagged))
        self._messages = tuple(messages)
        return self._head

    def _once(self, value: Any, write: Callable[[Any], str]) -> str:
        known = self._made.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        if len(self._made) >= self._MOST:
            self._made.clear()
        text = write(value)
        self._made[id(value)] = (value, text)
        return text


def packed(rendered: Rendered, segments: SegmentTokenizer) -> tuple[bytes, bytes, bytes | None, int]:
    """Packed ids of the prompt, of the answer behind it, and of what is stored in place of both where the rendering says that: behind so many tokens of the prompt."""
    answer = segments.packed(rendered.answer) if rendered.answer else b""
    kept = None if rendered.kept is None else segments.packed(rendered.kept)
    tail = segments.packed(rendered.tail)
    if rendered.head is None:
        return tail, answer, kept, 0
    prompt = segments.continued(rendered.head, rendered.upto, tail)
    shared = len(prompt) - len(tail)
    if kept is not None and kept.startswith(tail):  # as a message begins with what a prompt ends with
        shared, kept = len(prompt), kept[len(tail) :]
    return prompt, answer, kept, shared // ID_BYTES


def plain_tags(conversation: Conversation) -> Rendered:
    """One conversation in the render mode `plain-tags`."""
    return PlainTags()(conversation)


def _listed(tools: Any) -> str:
    return compact(tools) + "\n"


def _tagged(message: Any) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else compact(content)
    calls = message.get("tool_calls")
    return f"<|{message.get('role')}|>\n{text}{compact(calls) if calls else ''}\n<|end|>\n"


_FAMILIES = (("qwen", "qwen3"), ("qwq", "qwen3"), ("llama-3", "llama3"), ("llama3", "llama3"), ("meta-llama", "llama3"), ("mistral", "mistral"),
    ("mixtral", "mistral"), ("gpt-oss", "gpt-oss"), ("hermes", "chatml"), ("yi-", "chatml"), ("internlm", "chatml"))  # fmt: skip


def family(model: str) -> str:
    """The render mode of a model by its name: the template of an open family, else `provider`."""
    name = model.lower()
    return next((mode for key, mode in _FAMILIES if key in name), "provider")


def renderer(mode: str) -> Renderer:
    """The renderer of a mode: `plain-tags`, one of `templates.TEMPLATES`, or the path of a Jinja chat template. Raises UserError."""
    from pathlib import Path

    from promptlint.errors import UserError
    from promptlint.tokenizers.templates import TEMPLATES

    if mode == "plain-tags":
        return PlainTags()
    if mode in TEMPLATES:
        return TEMPLATES[mode]
    if Path(mode).exists():
        from promptlint.tokenizers.jinja_chat import load

        return load(Path(mode))
    raise UserError(
        f"unknown render mode {mode!r}; one of: plain-tags, {', '.join(TEMPLATES)}, or a chat template's file or folder"
    )
