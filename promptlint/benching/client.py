"""An HTTP/1.1 client that does as little as possible while the clock runs.

What a client does between two bytes of an answer ends up in the times that it reports. So this one stamps each piece of an answer in the callback in which the event
loop hands it over, keeps the bytes, follows nothing but the framing, and leaves parsing for later (`answers`). Connections are kept and used again; opening one is
not part of the time to first token. Nothing waits without a limit.

asyncio is all it needs. A general HTTP library adds its own work to every piece: with 32 streams of a token every 20 ms and 20 ms to the first, on two busy cores, this client
took 67 us of CPU time an event, parsing included, and saw a median time to first token of 36 ms; httpx took 301 us and saw 197 ms.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from promptlint.errors import UserError

__all__ = ["Client", "Limits", "Reply", "Server"]

_MAX_HEAD = 1 << 16
_MAX_LINE = 1 << 12  # bytes of the line that gives the size of a chunk
_MAX_BODY = 1 << 26  # bytes of one answer; a stream that is longer than this does not end
_HEX = re.compile(rb"[0-9a-fA-F]{1,15}")  # the size of a chunk; int() also takes signs and underscores
_NO_SPACE = re.compile(r"[!-~]*")  # what may stand in the first line of a request: it ends at a space


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait, seconds: for a connection, for the next byte of an answer (the first included), and for a whole answer."""

    connect: float = 10.0
    idle: float = 60.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens: parsed from an http or https URL, without a trailing /v1."""

    url: str
    host: str
    port: int
    path: str
    secure: bool

    @staticmethod
    def parse(url: str) -> Server:
        """The server of a URL. Raises UserError for what is none."""
        wrong = UserError(f"{url}: a URL like http://localhost:8000 is expected")
        try:
            parts = urlsplit(url if re.match(r"[a-z]+:/", url) else f"http://{url}")
            port = parts.port
            host = (parts.hostname or "").encode("idna").decode()  # as the resolver does; UnicodeError is a ValueError
        except ValueError:
            raise wrong from None
        if parts.scheme not in {"http", "https"} or not host or port == 0 or parts.query or parts.fragment:
            raise wrong
        if not _NO_SPACE.fullmatch(host) or not _NO_SPACE.fullmatch(parts.path):
            raise wrong
        if parts.username or parts.password:
            raise UserError("a password in a target's URL would end up in the result: use --api-key-env")
        path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
        secure = parts.scheme == "https"
        netloc = f"[{host}]" if ":" in host else host
        shown = f"{parts.scheme}://{netloc}{f':{port}' if port else ''}{path}"
        return Server(shown, host, port or (443 if secure else 80), path, secure)


@dataclass(slots=True)
class Reply:
    """What came back. `pieces` are the parts of the body with the moment (perf_counter, seconds) at which they arrived.

    `sent` is when the request was handed to the connection. `error` says in words what went wrong, "" for a reply that came whole; `kind` is then one of
    connect, timeout, dropped, protocol. A status of 400 or more is a whole reply. `resent`: a kept connection
    closed before anything came back, and the request was sent once more.
    """

    sent: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    ended: float = 0.0
    error: str = ""
    kind: str = ""
    resent: bool = False

    @property
    def body(self) -> bytes:
        """All of the body."""
        return b"".join(piece for _, piece in self.pieces)

    def json(self) -> Any:
        """The body as JSON; None for a reply that is none or did not succeed."""
        if self.error or self.status != 200:
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def text(self, limit: int = 200) -> str:
        """The beginning of the body on one line, for an error message."""
        return " ".join(self.body[: 4 * limit].decode("utf-8", "replace").split())[:limit]


class _Connection(asyncio.Protocol):
    """One connection; serves one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.open = False
        self.used = False  # it has carried a whole exchange before
        self._reply = Reply()
        self._done: asyncio.Future[None] | None = None
        self._last = 0.0
        self._buffer = bytearray()  # grows at its end at no cost: an answer of one long chunk comes in many parts
        self._size = 0
        self._in_head = True
        self._chunked = False
        self._left: int | None = (
            None  # bytes of the body or of the chunk still to come; None: until the connection closes
        )
        self._keep = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.open = True

    def begin(self, data: bytes) -> asyncio.Future[None]:
        """Send a request; the future is done when the reply is."""
        assert self.transport is not None
        self._reply, self._buffer, self._size, self._in_head, self._chunked, self._left, self._keep = (
            Reply(), bytearray(), 0, True, False, None, True
        )  # fmt: skip
        self._done = asyncio.get_running_loop().create_future()
        self._reply.sent = self._last = perf_counter()
        self.transport.write(data)
        return self._done

    @property
    def reply(self) -> Reply:
        """The reply so far."""
        return self._reply

    @property
    def last(self) -> float:
        """When something was last sent or received."""
        return self._last

    @property
    def reusable(self) -> bool:
        """Whether another exchange may follow."""
        return self.open and self._keep and self._done is None

    def data_received(self, data: bytes) -> None:
        now = self._last = perf_counter()
        if self._done is None:  # bytes that nobody asked for
            self.close()
            return
        try:
            self._take(data, now)
        except ValueError as error:
            self.fail("protocol", str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._done is None:
            return
        if not self._in_head and not self._chunked and self._left is None and exc is None:
            self._finish()  # a body without a length ends with the connection
        else:
            got = "before any answer" if self._in_head else "in the middle of the answer"
            self.fail("dropped", f"the server closed the connection {got}{f' ({exc})' if exc else ''}")

    def fail(self, kind: str, words: str) -> None:
        """End the exchange: it went wrong."""
        self._reply.kind, self._reply.error = kind, words
        self._finish()
        self.close()

    def close(self) -> None:
        """Close the connection at once."""
        self.open = False
        if self.transport is not None:
            self.transport.abort()

    def _finish(self) -> None:
        self._reply.ended = perf_counter()
        done, self._done = self._done, None
        if done is not None and not done.done():
            done.set_result(None)

    def _take(self, data: bytes, now: float) -> None:
        if self._in_head:
            self._buffer += data
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > _MAX_HEAD:
                    raise ValueError("the head of the answer does not end")
                if not b"HTTP/1.".startswith(bytes(self._buffer[:7])):
                    raise ValueError(f"this is not HTTP/1: {bytes(self._buffer[:40])!r}")
                return
            head, data, self._buffer = bytes(self._buffer[:end]), bytes(self._buffer[end + 4 :]), bytearray()
            if self._head(head):
                return
        if self._chunked:
            self._chunks(data, now)
            return
        if data:
            self._keep_piece(data, now)
            if self._left is not None:
                self._left -= len(data)
        if self._left is not None and self._left <= 0:
            self._finish()

    def _head(self, head: bytes) -> bool:
        """Read the status and the headers; True when that was the whole reply."""
        first, *rows = head.decode("latin-1").split("\r\n")
        parts = first.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise ValueError(f"this is not HTTP/1: {first[:40]!r}")
        if int(parts[1]) < 200:  # an interim answer such as 100 Continue; the real one follows
            raise ValueError(f"an interim answer {parts[1]} was not asked for")
        reply = self._reply
        reply.status, self._in_head = int(parts[1]), False
        for row in rows:
            name, _, value = row.partition(":")
            reply.headers[name.strip().lower()] = value.strip()
        self._keep = parts[0] != "HTTP/1.0" and reply.headers.get("connection", "").lower() != "close"
        self._chunked = "chunked" in reply.headers.get("transfer-encoding", "").lower()
        length = reply.headers.get("content-length")
        if self._chunked:
            self._left = 0
        elif length is not None:
            if not length.isdigit():
                raise ValueError(f"a content-length of {length[:20]!r}")
            self._left = int(length)
        elif reply.status in {204, 304}:
            self._left = 0
        else:
            self._keep = False
        if self._left == 0 and not self._chunked:
            self._finish()
            return True
        return False

    def _chunks(self, data: bytes, now: float) -> None:
        """Follow the chunks of the body; those that came together become one piece."""
        self._buffer += data
        at, found = 0, []
        buffer = self._buffer
        ended = False
        while True:
            line = buffer.find(b"\r\n", at)
            if line < 0:
                if len(buffer) - at > _MAX_LINE:
                    raise ValueError("the size of a chunk does not end")
                break
            size_text = bytes(buffer[at:line]).partition(b";")[0].strip()
            if not _HEX.fullmatch(size_text):
                raise ValueError(f"a chunk of the answer has the size {size_text[:20]!r}")
            size = int(size_text, 16)
            if size == 0:
                # The end is the empty line after the trailers, which nobody sends in practice.
                ended = buffer.startswith(b"\r\n", line + 2) or buffer.find(b"\r\n\r\n", line + 2) >= 0
                if not ended and len(buffer) - line > _MAX_HEAD:
                    raise ValueError("the trailers of the answer do not end")
                break
            if len(buffer) < line + 2 + size + 2:
                if size > _MAX_BODY:
                    raise ValueError(f"a chunk of {size:,} bytes")
                break
            found.append(bytes(buffer[line + 2 : line + 2 + size]))
            at = line + 2 + size + 2
        del buffer[:at]
        if found:
            self._keep_piece(b"".join(found), now)
        if ended:
            buffer.clear()
            self._finish()

    def _keep_piece(self, data: bytes, now: float) -> None:
        self._size += len(data)
        if self._size > _MAX_BODY:
            raise ValueError(f"the answer does not end: more than {_MAX_BODY >> 20} MB")
        self._reply.pieces.append((now, data))


class Client:
    """Requests to one server over connections that are kept. Use it in one event loop, and close it."""

    def __init__(self, server: Server, limits: Limits, headers: Mapping[str, str] | None = None) -> None:
        self.server = server
        self.limits = limits
        self._idle: deque[_Connection] = deque()
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._tls = ssl.create_default_context() if server.secure else None

    def encode(self, method: str, path: str, body: bytes = b"") -> bytes:
        """A request as bytes, ready to send."""
        name = self.server.host
        host = f"{f'[{name}]' if ':' in name else name}:{self.server.port}"
        head = f"{method} {self.server.path}{path} HTTP/1.1\r\nhost: {host}\r\naccept: */*\r\n{self._headers}"
        if body or method == "POST":
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        return f"{head}\r\n".encode("latin-1") + body

    async def ask(self, data: bytes, limits: Limits | None = None) -> Reply:
        """Send an encoded request and wait for the whole reply. Never raises for what the server or the network does: see Reply.error."""
        limits = limits or self.limits
        connection = await self._connection(limits)
        if isinstance(connection, Reply):
            return connection
        reply = await self._exchange(connection, data, limits)
        if connection.used and reply.kind == "dropped" and not reply.status:
            # A server may close a kept connection just when it is used again. It cannot be told from one that drops the request, so it is sent once more, and said.
            connection = await self._open(limits)
            if isinstance(connection, Reply):
                return connection
            reply = await self._exchange(connection, data, limits)
            reply.resent = True
        if connection.reusable:
            connection.used = True
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    async def get(self, path: str, limits: Limits | None = None) -> Reply:
        """GET a path below the server's URL."""
        return await self.ask(self.encode("GET", path), limits)

    async def post(self, path: str, value: Any = None, limits: Limits | None = None) -> Reply:
        """POST a value as JSON."""
        body = b"" if value is None else json.dumps(value).encode()
        return await self.ask(self.encode("POST", path, body), limits)

    async def warm(self, connections: int) -> None:
        """Open connections ahead of time, so that opening them falls into no measurement. Those that the server has closed meanwhile do not count."""
        self._idle = deque(one for one in self._idle if one.open)
        opened = await asyncio.gather(*(self._open(self.limits) for _ in range(connections - len(self._idle))))
        self._idle.extend(one for one in opened if isinstance(one, _Connection))

    def close(self) -> None:
        """Close all connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    async def _connection(self, limits: Limits) -> _Connection | Reply:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        return await self._open(limits)

    async def _open(self, limits: Limits) -> _Connection | Reply:
        loop = asyncio.get_running_loop()
        start = perf_counter()
        try:
            async with asyncio.timeout(limits.connect):
                _, connection = await loop.create_connection(
                    _Connection, self.server.host, self.server.port, ssl=self._tls
                )
                return connection
        except TimeoutError:
            words, kind = f"no connection within {limits.connect:g} s", "timeout"
        except (OSError, ssl.SSLError) as error:
            words, kind = f"no connection: {_os_words(error)}", "connect"
        return Reply(sent=start, ended=perf_counter(), error=words, kind=kind)

    @staticmethod
    async def _exchange(connection: _Connection, data: bytes, limits: Limits) -> Reply:
        done = connection.begin(data)
        reply = connection.reply
        try:
            while not done.done():
                now = perf_counter()
                left = min(connection.last + limits.idle, reply.sent + limits.total) - now
                if left <= 0:
                    idle = now - connection.last >= limits.idle
                    connection.fail("timeout", _waited(reply, limits, idle=idle))
                    break
                await asyncio.wait((done,), timeout=left)
        except asyncio.CancelledError:
            connection.fail("dropped", "given up")
            raise
        return reply


def _waited(reply: Reply, limits: Limits, *, idle: bool) -> str:
    if not idle:
        return f"the answer was not complete after {limits.total:g} s"
    return (
        f"no byte for {limits.idle:g} s in the middle of the answer"
        if reply.pieces
        else f"no answer in {limits.idle:g} s"
    )


def _os_words(error: OSError) -> str:
    """What went wrong, without the addresses that asyncio adds."""
    import errno
    import os

    if isinstance(error, ssl.SSLError):
        return str(error.reason or error).replace("_", " ").lower()
    if error.errno == errno.EMFILE:
        return "this process may open no more connections: raise its limit with ulimit -n, or ask for fewer requests at a time"
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
