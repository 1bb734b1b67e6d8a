"""A server that speaks the protocol of the real ones, with our own cache models behind it, and faults on demand.

It listens on 127.0.0.1 in a thread of its own. `Behaviour` says which engine it plays, how fast it is, and what is wrong with it. Requests that run at the same time share
nothing but the cache: times are those given, plus what the machine needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from promptlint.caches.paged import PagedCache
from promptlint.caches.radix import RadixCache
from promptlint.caches.request import Request, pack

MODEL = "tiny/llama"


@dataclass
class Behaviour:
    """Delays in seconds. `faults` maps the number of a completion request (from 1) to what happens to it; "*" stands for all others.

    Faults: status:CODE, close (before answering), cut (in the middle), hang, hang-midway, not-http, garbage (an event that is no JSON), no-done, no-finish,
    error-event, wrong-model, wrong-usage, all-cached, short, endless, silent (a stream without tokens), slow:SECONDS (between tokens).
    """

    engine: str = "vllm"
    model: str = MODEL
    unit: int = 16
    capacity: int | None = 100_000
    first: float = 0.0
    per_new_token: float = 0.0
    between: float = 0.0
    faults: dict[Any, str] = field(default_factory=dict)
    dies_after: int = 0
    reports_cached: bool = True
    can_flush: bool = True
    metrics: bool = True
    dtype: str = "bfloat16"
    quantization: str | None = None
    context: int = 32_768
    sampling: str = "vllm"
    key: str = ""
    keep_alive: bool = True
    listed: Any = None
    hang_on_models: bool = False
    old_names: bool = False  # SGLang before /server_info


class StandIn:
    """`with StandIn(Behaviour(...)) as server: server.url`. What it saw: `requests` (bodies), `cached` (tokens of each), `flushes`, `connections`."""

    def __init__(self, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour or Behaviour()
        self.requests: list[dict[str, Any]] = []
        self.cached: list[int] = []
        self.flushes = 0
        self.connections = 0
        self.queried = self.hits = self.made = 0
        self.url = ""
        self._count = 0
        self._cache = self._empty()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._open: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it has died already
            self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _empty(self) -> PagedCache | RadixCache:
        one = self.behaviour
        return RadixCache(one.capacity, one.unit) if one.engine == "sglang" else PagedCache(one.capacity, one.unit)

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._end.wait()
        server.close()
        for writer in list(self._open):
            writer.transport.abort()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    def _stop(self) -> None:
        self._end.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, TimeoutError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split("\r\n")[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        path = target.partition("?")[0]
        if self.behaviour.key and headers.get("authorization") != f"bearer {self.behaviour.key}":
            await self._send(writer, 401, {"error": {"message": "no key"}})
        elif path in {"/v1/completions", "/v1/chat/completions"} and method == "POST":
            return await self._complete(writer, json.loads(body), chat="chat" in path)
        else:
            await self._about(writer, path)
        return self.behaviour.keep_alive

    async def _about(self, writer: asyncio.StreamWriter, path: str) -> None:
        one = self.behaviour
        if path == "/v1/models" and one.hang_on_models:
            await asyncio.sleep(3600)
        answer: Any = None
        if path == "/v1/models":
            card = {
                "id": one.model,
                "object": "model",
                "owned_by": one.engine,
                "root": one.model,
                "max_model_len": one.context,
            }
            answer = one.listed if one.listed is not None else {"object": "list", "data": [card]}
        elif path == "/version" and one.engine == "vllm":
            answer = {"version": "0.32.0"}
        elif path == "/server_info" and one.engine == "vllm" and one.can_flush:
            model = {
                "model": one.model,
                "dtype": f"torch.{one.dtype}",
                "quantization": one.quantization,
                "generation_config": one.sampling,
                "enforce_eager": False,
            }
            answer = {"vllm_config": {"model_config": model, "scheduler_config": {"policy": "fcfs"}}}
        elif path == ("/get_server_info" if one.old_names else "/server_info") and one.engine == "sglang":
            answer = {
                "model_path": one.model, "version": "0.5.23", "dtype": one.dtype, "quantization": one.quantization, "page_size": one.unit, "tp_size": 1,
                "max_total_num_tokens": one.capacity, "schedule_policy": "fcfs", "disable_radix_cache": False, "enable_cache_report": one.reports_cached,
                "sampling_defaults": "openai" if one.sampling == "vllm" else "model", "disable_cuda_graph": False,
            }  # fmt: skip
        elif path == "/metrics" and one.metrics:
            await self._send(writer, 200, self._metrics().encode())
            return
        elif one.can_flush and path == ("/flush_cache" if one.engine == "sglang" else "/reset_prefix_cache"):
            self.flushes += 1
            self._cache = self._empty()
            answer = {"success": True}
        await self._send(writer, 404 if answer is None else 200, answer or {"detail": "Not Found"})

    def _metrics(self) -> str:
        if self.behaviour.engine == "sglang":
            return (
                f'sglang:prompt_tokens_total{{m="x"}} {self.queried}\nsglang:cached_tokens_total{{m="x"}} {self.hits}\n'
            )
        blocks = (self.behaviour.capacity or 0) // self.behaviour.unit + 1
        return (
            f'vllm:cache_config_info{{block_size="{self.behaviour.unit}",enable_prefix_caching="True",num_gpu_blocks="{blocks}"}} 1.0\n'
            f'vllm:prefix_cache_queries_total{{e="0"}} {self.queried}\nvllm:prefix_cache_hits_total{{e="0"}} {self.hits}\n'
            f'vllm:generation_tokens_total{{e="0"}} {self.made}\n'
        )

    async def _send(self, writer: asyncio.StreamWriter, status: int, value: Any) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        close = "" if self.behaviour.keep_alive else "connection: close\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n{close}\r\n".encode() + body)
        await writer.drain()

    def _look_up(self, body: Mapping[str, Any]) -> tuple[int, int]:
        """Prompt tokens and how many of them are cached. Chat is one token a word here."""
        ids = body.get("prompt")
        if ids is None:
            words = json.dumps([body.get("tools"), body["messages"]]).split()
            ids = [hash(word) & 0x7FFFFFFF for word in words]
        request = Request(self._count, pack(ids), pack([0xF0000000 + self._count]) * body["max_tokens"])
        cached = self._cache.admit(request).cached_tokens
        self.queried += len(ids)
        self.hits += cached
        self.made += body["max_tokens"]
        self.cached.append(cached)
        return len(ids), cached

    async def _complete(self, writer: asyncio.StreamWriter, body: dict[str, Any], *, chat: bool) -> bool:
        one = self.behaviour
        self._count += 1
        number = self._count
        self.requests.append(body)
        if one.dies_after and number > one.dies_after:
            self._stop()
            return False
        fault, _, argument = one.faults.get(number, one.faults.get("*", "")).partition(":")
        if fault == "status":
            await self._send(writer, int(argument), {"error": {"message": "planted refusal"}})
            return True
        if fault == "close":
            return False
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "not-http":
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
            return False
        prompt, cached = self._look_up(body)
        await asyncio.sleep(one.first + one.per_new_token * (prompt - cached))
        close = b"" if one.keep_alive else b"connection: close\r\n"
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n" + close + b"\r\n"
        )
        await self._stream(writer, body, fault, argument, prompt, cached, chat=chat)
        return fault not in {"cut", "hang-midway"} and one.keep_alive

    async def _stream(
        self,
        writer: asyncio.StreamWriter,
        body: dict[str, Any],
        fault: str,
        argument: str,
        prompt: int,
        cached: int,
        *,
        chat: bool,
    ) -> None:
        one = self.behaviour
        wanted = body["max_tokens"]
        base = {
            "id": "x",
            "object": "chunk",
            "created": 1,
            "model": "another/model" if fault == "wrong-model" else body["model"],
        }
        made = 1 if fault == "short" else 0 if fault == "silent" else wanted
        gap = float(argument) if fault == "slow" else one.between
        place = 0
        while place < made or fault == "endless":
            if place:
                await asyncio.sleep(gap)
            last = place == made - 1 and fault not in {"no-finish", "endless"}
            if fault == "cut" and place >= made // 2:
                writer.transport.abort()
                return
            if fault == "hang-midway" and place >= made // 2:
                await asyncio.sleep(3600)
            if fault == "garbage" and place == 1:
                self._event(writer, b"{not json")
            if fault == "error-event" and place == 1:
                self._event(writer, json.dumps({"error": {"message": "planted"}}).encode())
            text = {"delta": {"content": "w "}} if chat else {"text": "w "}
            self._event(
                writer,
                json.dumps(
                    {**base, "choices": [{"index": 0, **text, "finish_reason": "length" if last else None}]}
                ).encode(),
            )
            await writer.drain()
            place += 1
        if fault == "silent":
            self._event(
                writer, json.dumps({**base, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}).encode()
            )
        usage: dict[str, Any] = {
            "prompt_tokens": prompt + (7 if fault == "wrong-usage" else 0),
            "completion_tokens": place,
        }
        if one.reports_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": prompt - 1 if fault == "all-cached" else cached}
        self._event(writer, json.dumps({**base, "choices": [], "usage": usage}).encode())
        if fault != "no-done":
            self._event(writer, b"[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    @staticmethod
    def _event(writer: asyncio.StreamWriter, data: bytes) -> None:
        event = b"data: " + data + b"\n\n"
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
