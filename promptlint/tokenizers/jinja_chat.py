"""Chat templates in Jinja: rendered in jinja2's sandbox, and cut into runs at the special tokens that the *template* wrote.

A special token that stands in a message is text. To keep the two apart, every spelling of one in the values is replaced by a private mark
before rendering and put back afterwards.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from promptlint.errors import UserError
from promptlint.tokenizers.render import Conversation, Rendered
from promptlint.tokenizers.segments import Run, Special

__all__ = ["JinjaChat", "load"]

_OPEN, _CLOSE = "\ue000", "\ue001"
_LONGEST = 64 << 20
"""Characters of the longest rendered prompt; a template that writes more is refused."""
_SPELLED = re.compile(r"<\|[^|<>\s]{1,64}\|>|<\uff5c[^\uff5c<>\n]{1,64}\uff5c>|</?s>|\[/?(?:INST|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS|SYSTEM_PROMPT)\]|<(?:start|end)_of_turn>|<bos>|<eos>")  # fmt: skip


class JinjaChat:
    """Renders conversations with one Jinja chat template.

    `specials` are the special tokens by text; without them those of the usual spellings count. Rendering twice, with and without the answer,
    tells what the model said; where the second text is no continuation of the first, the answer is left out of the cache.
    """

    def __init__(
        self, source: str, name: str, *, specials: Sequence[str] = (), variables: Mapping[str, Any] | None = None
    ) -> None:
        from jinja2 import TemplateError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        self.name = name
        self.variables = dict(variables or {})
        known = sorted((re.escape(one) for one in specials if one), key=len, reverse=True)
        self.pattern = re.compile("|".join(known)) if known else _SPELLED
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        self._date = ""
        environment.globals["strftime_now"] = lambda form: self._moment().strftime(form)
        try:
            self.template = environment.from_string(source)
        except TemplateError as error:
            raise UserError(f"{name}: not a Jinja template: {error}") from error

    def _moment(self) -> dt.datetime:
        return dt.datetime.fromisoformat(self._date) if self._date else dt.datetime(2024, 7, 26, tzinfo=dt.UTC)

    def __call__(self, conversation: Conversation) -> Rendered:
        from promptlint.tokenizers.templates import as_chat

        self._date = conversation.date
        system, messages = as_chat(conversation)
        head = [] if system is None else [{"role": "system", "content": system}]
        rows = [*head, *messages]
        text = self._render(rows, conversation.tools, prompt=True)
        answer: list[Run] = []
        if conversation.answer is not None:
            said = conversation.answer
            said = dict(said) if isinstance(said, Mapping) else {"role": "assistant", "content": str(said)}
            whole = self._render([*rows, said], conversation.tools, prompt=False)
            if whole.startswith(text):
                answer = self._runs(whole[len(text) :].removesuffix("\n"))
        return Rendered(self._runs(text), answer)

    def _render(self, messages: list[Any], tools: Sequence[Any] | None, *, prompt: bool) -> str:
        values: dict[str, Any] = {"bos_token": "", "eos_token": "", **self.variables}
        values |= {
            "messages": self._hidden(messages),
            "tools": self._hidden(list(tools)) if tools else None,
            "add_generation_prompt": prompt,
        }
        found = []
        size = 0
        try:
            for piece in self.template.generate(**values):
                size += len(piece)
                if size > _LONGEST:
                    raise UserError(f"{self.name}: the template writes more than {_LONGEST >> 20} million characters")
                found.append(piece)
        except UserError:
            raise
        except Exception as error:
            raise ValueError(f"{self.name}: {type(error).__name__}: {error}") from error
        return "".join(found)

    def _hidden(self, value: Any) -> Any:
        """The value with every spelled special token replaced by its private mark."""
        if isinstance(value, str):
            return self.pattern.sub(lambda match: _OPEN + "".join(chr(0xE100 + (ord(char) & 0xFF)) if ord(char) < 0x100 else char for char in match.group()) + _CLOSE, value)  # fmt: skip
        if isinstance(value, Mapping):
            return {key: self._hidden(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._hidden(item) for item in value]
        return value

    def _runs(self, text: str) -> list[Run]:
        runs: list[Run] = []
        at = 0
        for match in self.pattern.finditer(text):
            if match.start() > at:
                runs.append(_shown(text[at : match.start()]))
            runs.append(Special(match.group()))
            at = match.end()
        if at < len(text):
            runs.append(_shown(text[at:]))
        return runs


_HIDDEN = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")


def _shown(text: str) -> str:
    """Put the hidden spellings back."""
    return _HIDDEN.sub(
        lambda match: "".join(
            chr(ord(char) - 0xE100) if 0xE100 <= ord(char) < 0xE200 else char for char in match.group(1)
        ),
        text,
    )


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """As transformers writes it: no HTML escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)


def load(path: Path) -> JinjaChat:
    """The template of a `.jinja` file, a tokenizer_config.json, or a directory that holds one of them. Raises UserError."""
    if path.is_dir():
        for name in ("chat_template.jinja", "chat_template.json", "tokenizer_config.json"):
            if (path / name).is_file():
                return load_file(path / name, path)
        raise UserError(f"{path}: holds no chat template (chat_template.jinja or tokenizer_config.json)")
    return load_file(path, path.parent)


def load_file(path: Path, folder: Path) -> JinjaChat:
    """The template of one file, with the special tokens of the configuration beside it."""
    try:
        template: Any = path.read_text("utf-8")
        config = folder / "tokenizer_config.json"
        settings = json.loads(config.read_text("utf-8")) if config.is_file() else {}
        if path.suffix == ".json":
            settings = {**settings, **json.loads(template)}
            template = settings.get("chat_template", "")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: {error}") from error
    if isinstance(template, list):  # named templates: the default one
        template = next((row.get("template", "") for row in template if row.get("name") == "default"), "")
    if not isinstance(template, str) or not template:
        raise UserError(f"{path}: holds no chat template")
    decoder = settings.get("added_tokens_decoder") or {}
    specials = [row.get("content", "") for row in decoder.values() if isinstance(row, dict) and row.get("special")]
    variables = {
        key: _token(settings[key])
        for key in ("bos_token", "eos_token", "pad_token", "unk_token")
        if settings.get(key) is not None
    }
    return JinjaChat(
        template, str(path), specials=[*specials, *variables.values()] if specials else (), variables=variables
    )


def _token(value: Any) -> str:
    return str(value.get("content", "")) if isinstance(value, dict) else str(value)
