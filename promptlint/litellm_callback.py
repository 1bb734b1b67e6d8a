"""LiteLLM callback: records requests where LiteLLM sends them, also inside its proxy, without any hook.

    import litellm
    from promptlint.litellm_callback import Recorder

    litellm.callbacks = [Recorder("promptlint-traffic.jsonl")]

In the proxy's configuration: `litellm_settings: callbacks: promptlint.litellm_callback.handler`. One canonical record a line, once the answer is there; text is disguised
unless `keep_text` is set (for `handler`: PROMPTLINT_KEEP_TEXT=1; its file: PROMPTLINT_FILE).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from promptlint.recording.child._promptlint_recorder import exchange, frames, settings, sink
from promptlint.traffic.record import milliseconds, usage_of

__all__ = ["Recorder"]

_PARAMETERS = (
    "tools",
    "functions",
    "tool_choice",
    "response_format",
    "prompt_cache_key",
    "cache_control",
    "thinking",
    "reasoning_effort",
    "stream",
    "temperature",
    "max_tokens",
)


class Recorder(CustomLogger):  # type: ignore[misc] # litellm is not typed here
    """Writes a record for every successful call. An error of ours is swallowed: logging must not fail a call."""

    def __init__(self, file: str | Path = "promptlint-traffic.jsonl", *, keep_text: bool = False) -> None:
        super().__init__()
        self.file = str(Path(file).absolute())
        self.key = b"" if keep_text else secrets.token_bytes(16)
        self.sites: dict[str, tuple[str, int]] = {}
        if not settings.root:
            settings.root = settings.base = str(Path.cwd())
        if self.key:
            from promptlint.app.record import keep_key

            keep_key(self.key)

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: Any) -> None:
        """The one moment at which the caller is still on the stack."""
        del model, messages
        exchange.guard(self._remember, kwargs)

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        exchange.guard(self._record, kwargs, response_obj, start_time, end_time)

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        exchange.guard(self._record, kwargs, response_obj, start_time, end_time)

    def _remember(self, kwargs: Mapping[str, Any]) -> None:
        identity = str(kwargs.get("litellm_call_id", ""))
        if identity and identity not in self.sites:
            self.sites[identity] = frames.call_site()

    def _record(self, kwargs: Mapping[str, Any], response: Any, start: Any, end: Any) -> None:
        identity = str(kwargs.get("litellm_call_id", ""))
        site, line = self.sites.pop(identity, ("", 0))
        began, ended = milliseconds(start), milliseconds(end)
        row: dict[str, Any] = {"timestamp": began, "id": identity, "model": kwargs.get("model", "")}
        if site:
            row["call_site"] = site
        given = kwargs.get("optional_params") or {}
        row |= {name: given[name] for name in _PARAMETERS if name in given}
        messages = kwargs.get("messages")
        if isinstance(messages, str):
            row["prompt"] = messages
        else:
            row["messages"] = messages
        usage = getattr(response, "usage", None)
        dump = getattr(usage, "model_dump", None)
        dumped = dump() if dump is not None else usage
        if isinstance(dumped, Mapping):
            row["usage"] = usage_of(dumped)
        about: dict[str, Any] = {"library": "litellm", "line": line, "pid": os.getpid()}
        if began is not None and ended is not None:
            about["latency_ms"] = round(ended - began, 3)
        sink.append(self.file, sink.encoded({**row, "recorded": about}, self.key))


def __getattr__(name: str) -> Any:
    """`handler`, made when it is first asked for: the proxy names a callback by module and attribute."""
    if name != "handler":
        raise AttributeError(name)
    made = Recorder(
        os.environ.get("PROMPTLINT_FILE", "promptlint-traffic.jsonl"),
        keep_text=bool(os.environ.get("PROMPTLINT_KEEP_TEXT")),
    )
    globals()["handler"] = made
    return made
