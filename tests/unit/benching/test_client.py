"""The client's framing, however the network cuts an answer, and its limits."""

import asyncio
import errno
import socket
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stand_in_server import Behaviour, StandIn

from promptlint.benching.client import Client, Limits, Server, _Connection, _os_words
from promptlint.errors import UserError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


class Wire:
    """A transport that goes nowhere."""

    def __init__(self):
        self.closed = False

    def write(self, data):
        pass

    def abort(self):
        self.closed = True


def receive(parts, *, lost=False):
    """The reply to one request whose answer arrives in these parts; None while it is not complete."""

    async def main():
        connection = _Connection()
        connection.transport, connection.open = Wire(), True
        done = connection.begin(b"GET / HTTP/1.1\r\n\r\n")
        for part in parts:
            if not done.done():
                connection.data_received(part)
        if lost and not done.done():
            connection.connection_lost(None)
        return (connection.reply if done.done() else None), connection.reusable

    return asyncio.run(main())


def cut(data, places):
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if b > a]


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 400), max_size=12))
def test_chunks_survive_any_cut(bodies, places):
    data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    data += b"".join(f"{len(body):X};x=1\r\n".encode() + body + b"\r\n" for body in bodies) + b"0\r\n\r\n"
    reply, reusable = receive(cut(data, places))
    assert reply is not None
    assert reply.body == b"".join(bodies)
    assert not reply.error
    assert reusable
    assert receive(cut(data[:-1], places))[0] is None  # not a byte too early


@settings(max_examples=40)
@given(st.binary(max_size=60), st.lists(st.integers(0, 200), max_size=8))
def test_a_body_of_known_length_survives_any_cut(body, places):
    reply, reusable = receive(cut(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body, places))
    assert (reply.body, reply.error, reusable) == (body, "", True)


def test_a_body_without_length_ends_with_the_connection():
    assert receive([HEAD + b"\r\n", b"all of it"])[0] is None
    reply, reusable = receive([HEAD + b"\r\n", b"all of it"], lost=True)
    assert (reply.body, reply.error, reusable) == (b"all of it", "", False)


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "protocol", "not HTTP/1"),
        (b"HTTP/2 200\r\n\r\n", "protocol", "not HTTP/1"),
        (HEAD + b"Content-Length: -4\r\n\r\n", "protocol", "content-length"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "protocol", "chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n", "protocol", "bytes"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nabcde\r\n0\r\n\r\n", "protocol", "chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n", "protocol", "chunk"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-6\r\n", "protocol", "chunk"),  # would lead back to itself
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 5000, "protocol", "does not end"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nx: " + b"a" * 70_000, "protocol", "trailers"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000, "protocol", "does not end"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "dropped", "in the middle"),
        (HEAD + b"Content-Length: 9\r\n\r\nabc", "dropped", "in the middle"),
        (b"", "dropped", "before any answer"),
    ],
)
def test_what_is_no_whole_answer(data, kind, words):
    reply, reusable = receive([data] if data else [], lost=True)
    assert reply.kind == kind
    assert words in reply.error
    assert not reusable


@pytest.mark.parametrize(
    ("url", "shown", "port", "secure"),
    [
        ("http://localhost:8000", "http://localhost:8000", 8000, False),
        ("localhost:8000/v1/", "http://localhost:8000", 8000, False),
        ("https://api.example.org/llm/v1", "https://api.example.org/llm", 443, True),
        ("http://[::1]:30000", "http://[::1]:30000", 30000, False),
        ("http://müller.example:80", "http://xn--mller-kva.example:80", 80, False),
    ],
)
def test_urls(url, shown, port, secure):
    server = Server.parse(url)
    assert (server.url, server.port, server.secure) == (shown, port, secure)


@pytest.mark.parametrize(
    "url",
    [
        "", "http://", "ftp://x", "http://x:port", "http://x?y=1", "http://u:p@x", "http://x:0", "http://x:99999", "http:/x:80",
        "http://[::1", "http://[x]:80", "http://a..b:80", f"http://{'a' * 70}", "http://a b:80", "http://x/a b", "http://x/\u20ac",
    ],
)  # fmt: skip
def test_what_is_no_url(url):
    with pytest.raises(UserError):
        Server.parse(url)


def test_an_ipv6_address_stands_in_brackets_in_the_request():
    data = Client(Server.parse("http://[::1]:30000"), Limits()).encode("GET", "/")
    assert b"\r\nhost: [::1]:30000\r\n" in data


def ask(url, path="/v1/models", **limits):
    async def main():
        client = Client(Server.parse(url), Limits(**{"connect": 1.0, "idle": 0.3, "total": 1.0, **limits}))
        try:
            return await client.get(path)
        finally:
            client.close()

    return asyncio.run(main())


def test_nothing_waits_without_a_limit():
    with socket.socket() as deaf:  # accepts by its backlog, never answers
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        started = time.monotonic()
        reply = ask(f"http://127.0.0.1:{deaf.getsockname()[1]}")
    assert (reply.kind, reply.error) == ("timeout", "no answer in 0.3 s")
    assert time.monotonic() - started < 3


def test_a_port_where_nobody_listens():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    reply = ask(f"http://127.0.0.1:{port}")
    assert (reply.kind, reply.error) == ("connect", "no connection: connection refused")


def test_a_limit_of_this_machine_is_none_of_the_server():
    assert "ulimit -n" in _os_words(OSError(errno.EMFILE, "Too many open files"))


def test_a_name_that_does_not_resolve():
    assert ask("http://no-such-host.invalid").kind == "connect"


def test_connections_that_the_server_has_closed_are_opened_anew():
    """A server closes idle connections after some seconds: while the other target is measured."""
    with StandIn(Behaviour()) as server:

        async def main():
            client = Client(Server.parse(server.url), Limits())
            await client.warm(3)
            while len(server._open) < 3:  # noqa: ASYNC110  # another thread's
                await asyncio.sleep(0.01)
            server._loop.call_soon_threadsafe(lambda: [one.close() for one in list(server._open)])
            while any(one.open for one in client._idle):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await client.warm(3)
            assert len([one for one in client._idle if one.open]) == 3
            reply = await client.get("/version")
            assert (reply.status, reply.resent) == (200, False)
            client.close()

        asyncio.run(main())
        assert server.connections == 6


def test_connections_are_kept():
    with StandIn(Behaviour()) as server:

        async def main():
            client = Client(Server.parse(server.url), Limits())
            await client.warm(3)
            for _ in range(5):
                assert (await client.get("/version")).status == 200
            client.close()

        asyncio.run(main())
        assert server.connections == 3


@settings(max_examples=200)
@given(
    st.binary(max_size=200),
    st.sampled_from(
        [b"", HEAD + b"\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", HEAD + b"Content-Length: 20\r\n\r\n"]
    ),
    st.lists(st.integers(0, 300), max_size=4),
)
def test_any_bytes_end_as_a_reply_or_an_error(noise, head, places):
    reply, _ = receive(cut(head + noise, places), lost=True)
    assert reply is not None
    assert reply.error or reply.status == 200 or head == b""
    assert reply.kind in {"", "dropped", "protocol"}
