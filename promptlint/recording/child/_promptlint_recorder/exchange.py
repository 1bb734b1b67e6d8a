"""One request on its way: its line is written when it leaves, a second line when the answer is known, so that a killed process still leaves the request.

A request that is made inside another one with the same body (a client built on another client) is the same request and has no line of its own; one with another body
is what a server within the process, such as a proxy under test, sends on. A call of
a model's interface has a line only when no request left below it: then the model is a fake, or speaks through something that we do not hook.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from contextvars import ContextVar
from typing import Any

from . import clock, frames, monotonic, sink
from .bodies import Answer, bare, request_body

__all__ = ["Call", "UnderWay", "begin", "current", "finish_model_call", "guard", "model_call"]

current: ContextVar[Call | None] = ContextVar("promptlint_recorder", default=None)
"""The request or call that is on its way in this context."""

_REQUEST_HEADERS = ("anthropic-version", "anthropic-beta", "openai-beta")
_RESPONSE_HEADERS = ("request-id", "x-request-id", "openai-processing-ms")
"""The only headers that are recorded; everything else may hold a secret."""
_RETRIED = frozenset([408, 409, 425, 429])
_RETRY_SECONDS = 120.0

_lock = threading.Lock()
_numbers = iter(range(1, 1 << 62))
_failed: dict[bytes, list[Call]] = {}
_recent: dict[bytes, Call] = {}
_MOST_RECENT = 512
_started = f"{int(clock() * 1000):x}"


def _free_lock() -> None:
    """In a forked process the thread that may have held the lock does not exist, so nobody would ever free it."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_lock)


def guard(function: Any, *arguments: Any) -> Any:
    """Run a part of the recorder; its errors are noted and give None."""
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 - the program must not notice
        sink.note(error)
        return None


class Call:
    """A request on its way. `sent`: something below it was recorded in its stead."""

    def __init__(
        self, row: dict[str, Any], about: dict[str, Any], body: dict[str, Any], key: bytes, *, http: bool
    ) -> None:
        self.row = row
        self.body = body
        self.about = about
        self.key = key
        self.http = http
        self.sent = False
        self.attempts = 1
        self.since = monotonic()
        self.first: float | None = None
        self.answer: Answer | None = None
        self.done = False

    def answered(self, status: int, headers: Any) -> None:
        """The head of the answer has come."""
        self.about["status"] = status
        kept = _kept(headers, _RESPONSE_HEADERS)
        if kept:
            self.about.setdefault("headers", {}).update(kept)
        if status in _RETRIED or status >= 500:
            self._failed()
        self.answer = Answer(_header(headers, "content-type"))

    def piece(self, data: bytes) -> None:
        """The program has taken a piece of the answer."""
        if self.done or self.answer is None or not data:
            return
        if self.first is None:
            self.first = monotonic()
        self.answer.feed(data)
        if self.answer.complete:
            self.end()

    def usage(self, usage: dict[str, Any]) -> None:
        """Usage numbers that come as an object."""
        if self.answer is None:
            self.answer = Answer("")
        self.answer.usage.update(usage)

    def failed(self, error: BaseException) -> None:
        """No answer came, or it broke off."""
        self.about["error"] = type(error).__name__
        self._failed()
        self.end()

    def _failed(self) -> None:
        with _lock:
            calls = _failed.setdefault(self.key, [])
            if self not in calls:
                calls.append(self)

    def end(self) -> None:
        """The answer is over: write what it cost."""
        if self.done:
            return
        self.done = True
        line: dict[str, Any] = {"id": self.row["id"]}
        if self.answer is not None:
            self.answer.end()
            if self.answer.usage:
                line["usage"] = self.answer.usage
        about: dict[str, Any] = {
            name: self.about[name] for name in ("status", "error", "headers") if name in self.about
        }
        about["latency_ms"] = round((monotonic() - self.since) * 1000.0, 3)
        if self.first is not None:
            about["ttft_ms"] = round((self.first - self.since) * 1000.0, 3)
        if self.attempts > 1:
            about["attempts"] = self.attempts
        line["recorded"] = about
        sink.write(line)


class UnderWay:
    """While a request is on its way: it is the current one of this context, and an error that comes up is noted and goes on."""

    __slots__ = ("_call", "_token")

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._token = current.set(self._call)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            guard(self._call.failed, error)
        current.reset(self._token)


def _header(headers: Any, name: str) -> str:
    """A header's value, whatever holds the headers: a mapping of any case, or pairs."""
    if headers is None:
        return ""
    try:
        pairs = headers.items() if hasattr(headers, "items") else headers
        for key, value in pairs:
            key = key.decode("latin-1") if isinstance(key, bytes) else str(key)
            if key.lower() == name:
                return value.decode("latin-1") if isinstance(value, bytes) else str(value)
    except (TypeError, ValueError):
        return ""
    return ""


def _kept(headers: Any, names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name in names if (value := _header(headers, name))}


def begin(library: str, url: str, content: Any, headers: Any) -> Call | None:
    """Record a request that is about to leave; None where it is none to a model, or part of one that is recorded already. Never raises."""
    outer = current.get()
    call: Call | None = guard(_begin, library, str(url), content, headers)
    if call is not None and outer is not None:
        outer.sent = True
    return call


def _begin(library: str, url: str, content: Any, headers: Any) -> Call | None:
    body = request_body(url, content)
    outer = current.get()
    if body is None or (outer is not None and outer.http and _written(body) == _written(outer.body)):
        return None
    about: dict[str, Any] = {"library": library, "url": bare(url)}
    kept = _kept(headers, _REQUEST_HEADERS)
    if kept:
        about["headers"] = kept
    call = _call(body, about, http=True)
    earlier = _earlier_attempt(call, _header(headers, "x-stainless-retry-count"))
    if earlier is not None:
        call.row, call.attempts = earlier.row, earlier.attempts + 1
        return call
    sink.write({**call.row, "recorded": call.about})
    return call


def _call(body: dict[str, Any], about: dict[str, Any], *, http: bool) -> Call:
    site, line = frames.call_site()
    outer = current.get()
    if (
        not site and outer is not None and "call_site" in outer.row
    ):  # in a thread of a framework, whose call the project made
        site, line = outer.row["call_site"], outer.about["line"]
    with _lock:
        number = next(_numbers)
    row: dict[str, Any] = {"timestamp": round(clock() * 1000.0, 3), "id": f"{_started}-{os.getpid()}-{number}"}
    if site:
        row["call_site"] = site
        about["line"] = line
    about["pid"] = os.getpid()
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if test:
        about["test"] = test.rpartition(" ")[0]
    row.update({name: value for name, value in body.items() if name not in row})
    text = _written(body)
    key = hashlib.blake2b(
        f"{about.get('url')}\0{site}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()
    return Call(row, about, body, key, http=http)


def _written(body: dict[str, Any]) -> str:
    return json.dumps(body, default=str)


def _earlier_attempt(call: Call, count: str) -> Call | None:
    """The failed attempt that a request repeats: same address, call site and body, not long ago."""
    with _lock:
        calls = [one for one in _failed.pop(call.key, ()) if call.since - one.since < _RETRY_SECONDS]
        earlier = calls.pop(0) if calls else None
        if calls:
            _failed[call.key] = calls
        if (
            earlier is None and count.isdigit() and int(count) > 0
        ):  # the client repeats what did not look like a failure
            earlier = _recent.get(call.key)
        _recent.pop(call.key, None)
        _recent[call.key] = call
        if len(_recent) > _MOST_RECENT:
            del _recent[next(iter(_recent))]
    return earlier


def model_call(library: str, body: dict[str, Any]) -> Call | None:
    """A call of a model's interface has begun; its line is written at its end, if nothing was sent below it. Never raises."""
    if current.get() is not None:
        return None
    call: Call | None = guard(lambda: _call(body, {"library": library, "fake": True}, http=False))
    return call


def finish_model_call(call: Call | None, usage: dict[str, Any] | None = None) -> None:
    """The model's interface has returned."""
    if call is None or call.done or call.sent:
        return
    call.done = True
    call.about["latency_ms"] = round((monotonic() - call.since) * 1000.0, 3)
    line = {**call.row, "recorded": call.about}
    if usage:
        line["usage"] = usage
    guard(sink.write, line)
