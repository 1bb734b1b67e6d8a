"""Model interfaces of frameworks, for the runs in which no request ever leaves: tests with fake models.

Every call is noted; it becomes a record only when nothing was sent below it (see `exchange`). Methods are wrapped in each class that has its own, when the class is made.
"""

from __future__ import annotations

import functools
import inspect
import json
from contextlib import asynccontextmanager
from typing import Any

from .exchange import Call, current, finish_model_call, guard, model_call

__all__ = ["patch_langchain", "patch_pydantic_ai"]

_MARK = "_promptlint_hooked"


def _each_subclass(base: Any, names: tuple[str, ...], begin: Any) -> None:
    """Wrap the methods of those names in `base` and in all classes below it, present and future."""

    def wrap(cls: Any) -> None:
        for name in names:
            method = cls.__dict__.get(name)
            if inspect.isfunction(method) and not getattr(method, _MARK, False):
                wrapper = _wrapped(method, begin)
                setattr(wrapper, _MARK, True)
                setattr(cls, name, wrapper)

    def wrap_all(cls: Any) -> None:
        for inner in cls.__subclasses__():
            guard(wrap, inner)
            wrap_all(inner)

    before = base.__dict__.get("__init_subclass__")

    def init_subclass(cls: Any, /, **options: Any) -> None:
        if before is not None:
            before.__func__(cls, **options)
        else:
            super(base, cls).__init_subclass__(**options)
        guard(wrap, cls)

    base.__init_subclass__ = classmethod(init_subclass)
    guard(wrap, base)
    wrap_all(base)


def _wrapped(method: Any, begin: Any) -> Any:
    """The method with its calls noted, whichever kind of function it is."""
    if hasattr(method, "__wrapped__") and inspect.isasyncgenfunction(method.__wrapped__):
        return _context(method, begin)
    if inspect.isasyncgenfunction(method):
        return _async_generator(method, begin)
    if inspect.isgeneratorfunction(method):
        return _generator(method, begin)
    if inspect.iscoroutinefunction(method):
        return _coroutine(method, begin)
    return _function(method, begin)


def _set(call: Call | None) -> Any:
    return current.set(call) if call is not None else None


def _reset(token: Any) -> None:
    if token is not None:
        try:
            current.reset(token)
        except ValueError:  # ended in another context, which has a state of its own
            return


def _function(method: Any, begin: Any) -> Any:
    @functools.wraps(method)
    def call_it(*arguments: Any, **options: Any) -> Any:
        call = guard(begin, *arguments)
        token = _set(call)
        try:
            return method(*arguments, **options)
        finally:
            _reset(token)
            finish_model_call(call)

    return call_it


def _coroutine(method: Any, begin: Any) -> Any:
    @functools.wraps(method)
    async def call_it(*arguments: Any, **options: Any) -> Any:
        call = guard(begin, *arguments)
        token = _set(call)
        try:
            return await method(*arguments, **options)
        finally:
            _reset(token)
            finish_model_call(call)

    return call_it


def _generator(method: Any, begin: Any) -> Any:
    @functools.wraps(method)
    def call_it(*arguments: Any, **options: Any) -> Any:
        call = guard(begin, *arguments)
        items = method(*arguments, **options)
        try:
            while True:
                token = _set(call)
                try:
                    item = next(items)
                except StopIteration:
                    return
                finally:
                    _reset(token)
                yield item
        finally:
            items.close()
            finish_model_call(call)

    return call_it


def _async_generator(method: Any, begin: Any) -> Any:
    @functools.wraps(method)
    async def call_it(*arguments: Any, **options: Any) -> Any:
        call = guard(begin, *arguments)
        items = method(*arguments, **options)
        try:
            while True:
                token = _set(call)
                try:
                    item = await items.__anext__()
                except StopAsyncIteration:
                    return
                finally:
                    _reset(token)
                yield item
        finally:
            await items.aclose()
            finish_model_call(call)

    return call_it


def _context(method: Any, begin: Any) -> Any:
    @functools.wraps(method)
    @asynccontextmanager
    async def call_it(*arguments: Any, **options: Any) -> Any:
        call = guard(begin, *arguments)
        token = _set(call)
        try:
            async with method(*arguments, **options) as stream:
                yield stream
        finally:
            _reset(token)
            finish_model_call(call)

    return call_it


# LangChain


def patch_langchain(module: Any) -> None:
    """`_generate`, `_stream` and their asynchronous forms of every chat model."""
    _each_subclass(module.BaseChatModel, ("_generate", "_agenerate", "_stream", "_astream"), _langchain_call)


_ROLES = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
}


def _langchain_call(model: Any, messages: Any, *_others: Any) -> Call | None:
    name = getattr(model, "model_name", None) or getattr(model, "model", None)
    body: dict[str, Any] = {"model": name if isinstance(name, str) else type(model).__name__}
    body["messages"] = [_langchain_message(message) for message in messages]
    return model_call("langchain", body)


def _langchain_message(message: Any) -> dict[str, Any]:
    kind = getattr(message, "type", "")
    row: dict[str, Any] = {"role": getattr(message, "role", None) or _ROLES.get(kind, kind), "content": message.content}
    calls = getattr(message, "tool_calls", None)
    if calls:
        row["tool_calls"] = [
            {
                "id": call.get("id"),
                "type": "function",
                "function": {
                    "name": call.get("name"),
                    "arguments": json.dumps(call.get("args"), ensure_ascii=False, default=str),
                },
            }
            for call in calls
        ]
    identity = getattr(message, "tool_call_id", None)
    if identity:
        row["tool_call_id"] = identity
    return row


# pydantic-ai


def patch_pydantic_ai(module: Any) -> None:
    """`request` and `request_stream` of every model."""
    _each_subclass(module.Model, ("request", "request_stream"), _pydantic_call)


def _pydantic_call(
    model: Any, messages: Any, _settings: Any = None, parameters: Any = None, *_others: Any
) -> Call | None:
    body: dict[str, Any] = {"model": str(getattr(model, "model_name", type(model).__name__))}
    tools = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema},
        }
        for kind in ("function_tools", "output_tools")
        for tool in getattr(parameters, kind, None) or ()
    ]
    if tools:
        body["tools"] = tools
    body["messages"] = [row for message in messages for row in _pydantic_messages(message)]
    instructions = next(
        (text for message in reversed(messages) if (text := getattr(message, "instructions", None))), None
    )
    if instructions:
        body["messages"].insert(0, {"role": "system", "content": instructions})
    return model_call("pydantic-ai", body)


def _pydantic_messages(message: Any) -> Any:
    """The rows of one message: a request's parts are messages of their own, an answer's parts are one."""
    answer: dict[str, Any] = {"role": "assistant", "content": ""}
    for part in message.parts:
        kind = part.part_kind
        if kind == "system-prompt":
            yield {"role": "system", "content": part.content}
        elif kind == "user-prompt":
            yield {"role": "user", "content": _pydantic_content(part.content)}
        elif kind in {"tool-return", "retry-prompt"}:
            written = getattr(part, "model_response_str", None) or getattr(part, "model_response", None)
            text = written() if callable(written) else str(part.content)
            if getattr(part, "tool_name", None) is None:
                yield {"role": "user", "content": text}
            else:
                yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}
        elif kind == "text":
            answer["content"] += part.content
        elif kind == "tool-call":
            arguments = part.args_as_json_str()
            answer.setdefault("tool_calls", []).append(
                {
                    "id": part.tool_call_id,
                    "type": "function",
                    "function": {"name": part.tool_name, "arguments": arguments},
                }
            )
    if getattr(message, "kind", "") == "response":
        yield answer


def _pydantic_content(content: Any) -> Any:
    if isinstance(content, str):
        return content
    return [
        {"type": "text", "text": item} if isinstance(item, str) else {"type": type(item).__name__, "value": str(item)}
        for item in content
    ]
