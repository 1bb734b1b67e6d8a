"""The HTTP clients: each is hooked where every request of it passes, with the body as it will be sent and the answer as the program reads it.

Hooks sit on `Client.send`, not on transports, so that clients with a mock transport are seen too. An answer that the program streams is read along: we look at
each piece as the program takes it.
"""

from __future__ import annotations

import functools
import sys
import zlib
from typing import Any

from .exchange import Call, UnderWay, begin, guard

__all__ = ["patch_aiohttp", "patch_botocore", "patch_httpx", "patch_requests"]

_MARK = "_promptlint_hooked"


def _hook(owner: Any, name: str, make: Any) -> None:
    """Replace a method by what `make` builds around it; once."""
    original = owner.__dict__.get(name)
    if original is None or getattr(original, _MARK, False):
        return
    wrapper = functools.wraps(original)(make(original))
    setattr(wrapper, _MARK, True)
    setattr(owner, name, wrapper)


# httpx and httpx2


def patch_httpx(module: Any) -> None:
    """`Client.send` and `AsyncClient.send` of httpx or of httpx2, which have one interface."""
    library = module.__name__

    def sync(original: Any) -> Any:
        def send(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
            call = guard(_httpx_call, library, request)
            if call is None:
                return original(self, request, *arguments, **options)
            with UnderWay(call):
                response = original(self, request, *arguments, **options)
            guard(_httpx_answer, module, call, response, options.get("stream", False))
            return response

        return send

    def asynchronous(original: Any) -> Any:
        async def send(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
            call = guard(_httpx_call, library, request)
            if call is None:
                return await original(self, request, *arguments, **options)
            with UnderWay(call):
                response = await original(self, request, *arguments, **options)
            guard(_httpx_answer, module, call, response, options.get("stream", False))
            return response

        return send

    _hook(module.Client, "send", sync)
    _hook(module.AsyncClient, "send", asynchronous)


def _httpx_call(library: str, request: Any) -> Call | None:
    if request.method not in {"POST", "PUT"}:
        return None
    content = getattr(request, "_content", None)  # absent while a stream that we must not read
    return None if content is None else begin(library, str(request.url), content, request.headers)


def _httpx_answer(module: Any, call: Call, response: Any, stream: bool) -> None:
    call.answered(response.status_code, response.headers)
    if not stream or getattr(response, "_content", None) is not None:
        call.piece(response.content)
        call.end()
        return
    decode = _decoder(response.headers.get("content-encoding", ""))
    if isinstance(response.stream, module.AsyncByteStream):
        response.stream = _async_tee(module.AsyncByteStream)(response.stream, call, decode)
    else:
        response.stream = _sync_tee(module.SyncByteStream)(response.stream, call, decode)


def _decoder(encoding: str) -> Any:
    """Undoes a content encoding piece by piece; None for one that the standard library cannot, whose answer we then leave unread."""
    kind = encoding.strip().lower()
    if kind in {"", "identity"}:
        return bytes
    if kind in {"gzip", "x-gzip", "deflate"}:
        return zlib.decompressobj(47 if "gzip" in kind else zlib.MAX_WBITS).decompress
    if kind == "zstd":
        return (
            __import__("compression.zstd", fromlist=["ZstdDecompressor"]).ZstdDecompressor().decompress
        )  # Python 3.14
    return None


def _piece(call: Call, decode: Any, data: bytes) -> None:
    if decode is not None:
        call.piece(decode(data))


@functools.cache
def _sync_tee(base: type) -> Any:
    class Tee(base):  # type: ignore[misc]
        """A response's stream with us looking over the reader's shoulder."""

        def __init__(self, stream: Any, call: Call, decode: Any) -> None:
            self._inner, self._call, self._decode = stream, call, decode

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def __iter__(self) -> Any:
            try:
                for data in self._inner:
                    guard(_piece, self._call, self._decode, data)
                    yield data
            except Exception as error:
                guard(self._call.failed, error)
                raise
            guard(self._call.end)

        def close(self) -> None:
            guard(self._call.end)
            self._inner.close()

    return Tee


@functools.cache
def _async_tee(base: type) -> Any:
    class Tee(base):  # type: ignore[misc]
        """As above, for asynchronous readers."""

        def __init__(self, stream: Any, call: Call, decode: Any) -> None:
            self._inner, self._call, self._decode = stream, call, decode

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def __aiter__(self) -> Any:
            try:
                async for data in self._inner:
                    guard(_piece, self._call, self._decode, data)
                    yield data
            except Exception as error:
                guard(self._call.failed, error)
                raise
            guard(self._call.end)

        async def aclose(self) -> None:
            guard(self._call.end)
            await self._inner.aclose()

    return Tee


# requests


def patch_requests(module: Any) -> None:
    """`Session.send`, through which adapters and redirects go too."""

    def make(original: Any) -> Any:
        def send(self: Any, request: Any, **options: Any) -> Any:
            call = guard(_requests_call, request)
            if call is None:
                return original(self, request, **options)
            with UnderWay(call):
                response = original(self, request, **options)
            guard(_requests_answer, call, response)
            return response

        return send

    _hook(module.Session, "send", make)


def _requests_call(request: Any) -> Call | None:
    if request.method not in {"POST", "PUT"} or not isinstance(request.body, (bytes, str)):
        return None
    return begin("requests", request.url, request.body, request.headers)


def _requests_answer(call: Call, response: Any) -> None:
    call.answered(response.status_code, response.headers)
    if getattr(response, "_content_consumed", False):
        call.piece(response.content or b"")
        call.end()
        return
    original = response.iter_content

    def iter_content(*arguments: Any, **options: Any) -> Any:
        return _read_along(call, original(*arguments, **options))

    response.iter_content = iter_content
    close = response.close

    def closed() -> None:
        guard(call.end)
        close()

    response.close = closed


def _read_along(call: Call, pieces: Any) -> Any:
    try:
        for data in pieces:
            guard(call.piece, data.encode("utf-8") if isinstance(data, str) else data)
            yield data
    except Exception as error:
        guard(call.failed, error)
        raise
    guard(call.end)


# aiohttp


def patch_aiohttp(module: Any) -> None:
    """`ClientSession._request`, which every method of a session calls."""
    streams = sys.modules.get("aiohttp.streams")

    def make(original: Any) -> Any:
        async def request(self: Any, method: str, url: Any, **options: Any) -> Any:
            call = guard(_aiohttp_call, self, method, url, options)
            if call is None:
                return await original(self, method, url, **options)
            with UnderWay(call):
                response = await original(self, method, url, **options)
            guard(_aiohttp_answer, streams, call, response)
            return response

        return request

    _hook(module.ClientSession, "_request", make)


def _aiohttp_call(session: Any, method: str, url: Any, options: dict[str, Any]) -> Call | None:
    if method.upper() not in {"POST", "PUT"}:
        return None
    content = options.get("json")
    if content is None:
        content = options.get("data")
        content = getattr(content, "_value", content)  # aiohttp's payload objects
    build = getattr(session, "_build_url", None)
    return begin("aiohttp", str(build(url) if build is not None else url), content, options.get("headers"))


def _aiohttp_answer(streams: Any, call: Call, response: Any) -> None:
    call.answered(response.status, response.headers)
    if getattr(response, "_body", None) is not None:
        call.piece(response._body)  # noqa: SLF001 - read already
        call.end()
        return
    content = response.content
    kind = type(content)
    if streams is None or kind is not streams.StreamReader or not hasattr(kind, "_read_nowait_chunk"):
        call.end()
        return
    take = kind._read_nowait_chunk  # noqa: SLF001 - every way of reading goes through it

    def read_nowait_chunk(self: Any, n: int) -> Any:
        data = take(self, n)
        guard(_taken, call, self, data)
        return data

    # The reader has slots, so the method goes on a class of its own.
    content.__class__ = type(kind.__name__, (kind,), {"__slots__": (), "_read_nowait_chunk": read_nowait_chunk})


def _taken(call: Call, content: Any, data: bytes) -> None:
    call.piece(data)
    if content.at_eof():
        call.end()


# botocore


def patch_botocore(module: Any) -> None:
    """`BaseClient._make_api_call`: one call however often it is repeated below, and seen with a stubbed client too."""

    def make(original: Any) -> Any:
        def call_api(self: Any, operation_name: str, api_params: Any) -> Any:
            call = guard(_botocore_call, self, operation_name, api_params)
            if call is None:
                return original(self, operation_name, api_params)
            with UnderWay(call):
                response = original(self, operation_name, api_params)
            guard(_botocore_answer, call, response)
            return response

        return call_api

    _hook(module.BaseClient, "_make_api_call", make)


_BEDROCK = frozenset(["Converse", "ConverseStream", "InvokeModel", "InvokeModelWithResponseStream"])


def _botocore_call(client: Any, operation: str, params: Any) -> Call | None:
    if operation not in _BEDROCK or not isinstance(params, dict):
        return None
    endpoint = str(getattr(client.meta, "endpoint_url", ""))
    verb = {"Converse": "converse", "ConverseStream": "converse-stream", "InvokeModel": "invoke"}.get(
        operation, "invoke-with-response-stream"
    )
    url = f"{endpoint}/model/{params.get('modelId', '')}/{verb}"
    if "Invoke" in operation:
        body = params.get("body")
        read = getattr(body, "getvalue", None)
        return begin("botocore", url, read() if read is not None else body, None)
    body = {key: value for key, value in params.items() if key != "modelId"}
    return begin("botocore", url, {"model": params.get("modelId", ""), **body}, None)


def _botocore_answer(call: Call, response: Any) -> None:
    from .bodies import answer_usage

    about = response.get("ResponseMetadata", {})
    call.answered(about.get("HTTPStatusCode", 200), {})
    stream = response.get("stream")
    body = response.get("body")
    if stream is None and hasattr(body, "_parse_event"):
        stream = body
    if stream is not None and hasattr(stream, "_parse_event"):
        parse = stream._parse_event  # noqa: SLF001 - the one place where events become objects

        def parse_event(raw: Any) -> Any:
            event = parse(raw)
            guard(_botocore_event, call, event)
            return event

        stream._parse_event = parse_event  # noqa: SLF001
        return
    if body is not None and hasattr(body, "read"):
        read = body.read

        def read_along(*arguments: Any, **options: Any) -> Any:
            data = read(*arguments, **options)
            guard(call.piece, data)
            if not data or (not arguments and not options):
                guard(call.end)
            return data

        body.read = read_along
        return
    call.usage(answer_usage(response))
    call.end()


def _botocore_event(call: Call, event: Any) -> None:
    import json

    from .bodies import answer_usage

    if not isinstance(event, dict):
        return
    chunk = event.get("chunk")
    if isinstance(chunk, dict) and isinstance(chunk.get("bytes"), bytes):
        event = json.loads(chunk["bytes"])
    found = answer_usage(event)
    if found:
        call.usage(found)
    if "metadata" in event or event.get("type") == "message_stop":
        call.end()
