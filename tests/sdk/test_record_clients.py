"""Recording with the real SDKs: OpenAI, Anthropic, LiteLLM, aiohttp, boto3 and plain httpx against a local server, and fake models of frameworks."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from promptlint.traffic.record import CACHE_READ, INPUT, OUTPUT

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.sdk

PROJECT = """
import asyncio
import llm_server
URL = llm_server.start()

def talk(text):
    return [{"role": "system", "content": "You are helpful."}, {"role": "user", "content": text}]

LAST = {"stream": True, "stream_options": {"include_usage": True}}

def test_openai():
    import openai
    client = openai.OpenAI(base_url=URL + "/v1", api_key="k", max_retries=2)
    client.chat.completions.create(model="m", messages=talk("openai"))
    assert [event for event in client.chat.completions.create(model="m", messages=talk("openai stream"), **LAST)]
    client.chat.completions.create(model="m", messages=talk("openai retried"), user="flaky-openai")

def test_openai_async():
    import openai
    async def work():
        client = openai.AsyncOpenAI(base_url=URL + "/v1", api_key="k")
        await client.chat.completions.create(model="m", messages=talk("openai async"))
        assert [event async for event in await client.chat.completions.create(model="m", messages=talk("openai async stream"), **LAST)]
    asyncio.run(work())

def test_anthropic():
    import anthropic
    client = anthropic.Anthropic(base_url=URL, api_key="k")
    one = {"model": "c", "max_tokens": 5, "system": "Be brief."}
    client.messages.create(**one, messages=talk("anthropic")[1:])
    with client.messages.stream(**one, messages=talk("anthropic stream")[1:]) as stream:
        assert "".join(stream.text_stream) == "hi"

def test_anthropic_async():
    import anthropic
    async def work():
        client = anthropic.AsyncAnthropic(base_url=URL, api_key="k")
        one = {"model": "c", "max_tokens": 5, "system": "Be brief."}
        await client.messages.create(**one, messages=talk("anthropic async")[1:])
        async with client.messages.stream(**one, messages=talk("anthropic async stream")[1:]) as stream:
            assert "".join([text async for text in stream.text_stream]) == "hi"
    asyncio.run(work())

def test_litellm():
    import litellm
    server = {"api_base": URL + "/v1", "api_key": "k"}
    litellm.completion(model="openai/m", messages=talk("litellm"), **server)
    assert [event for event in litellm.completion(model="openai/m", messages=talk("litellm stream"), **server, **LAST)]
    litellm.completion(model="anthropic/c", messages=talk("litellm anthropic"), api_base=URL, api_key="k")

def test_litellm_async():
    import litellm
    server = {"api_base": URL + "/v1", "api_key": "k"}
    async def work():
        await litellm.acompletion(model="openai/m", messages=talk("litellm async"), **server)
        assert [event async for event in await litellm.acompletion(model="openai/m", messages=talk("litellm async stream"), **server, **LAST)]
    asyncio.run(work())

def test_httpx():
    import httpx
    body = {"model": "m", "messages": talk("httpx")}
    httpx.post(URL + "/v1/chat/completions", json=body)
    with httpx.stream("POST", URL + "/v1/chat/completions", json={**body, "messages": talk("httpx stream"), "stream": True}) as answer:
        assert list(answer.iter_lines())

def test_httpx_async():
    import httpx
    async def work():
        async with httpx.AsyncClient() as client:
            await client.post(URL + "/v1/chat/completions", json={"model": "m", "messages": talk("httpx async")})
            async with client.stream("POST", URL + "/v1/chat/completions", json={"model": "m", "messages": talk("httpx async stream"), "stream": True}) as answer:
                assert [line async for line in answer.aiter_lines()]
    asyncio.run(work())

def test_aiohttp():
    import aiohttp
    async def work():
        async with aiohttp.ClientSession() as session:
            async with session.post(URL + "/v1/chat/completions", json={"model": "m", "messages": talk("aiohttp")}) as answer:
                assert (await answer.json())["usage"]
            async with session.post(URL + "/v1/chat/completions", json={"model": "m", "messages": talk("aiohttp stream"), "stream": True}) as answer:
                assert [line async for line in answer.content]
    asyncio.run(work())
"""
SENT = [
    "openai", "openai stream", "openai retried", "openai async", "openai async stream", "anthropic", "anthropic stream", "anthropic async", "anthropic async stream",
    "litellm", "litellm stream", "litellm anthropic", "litellm async", "litellm async stream", "httpx", "httpx stream", "httpx async", "httpx async stream",
    "aiohttp", "aiohttp stream",
]  # fmt: skip


@pytest.fixture
def project(tmp_path):
    for name in ("openai", "anthropic", "litellm", "httpx", "aiohttp"):
        pytest.importorskip(name, reason=f"not run: needs {name}")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "test_all.py").write_text(PROJECT)
    shutil.copy(ROOT / "tests" / "llm_server.py", tmp_path)
    return tmp_path


def record(project, *command, **more):
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    full = [
        sys.executable,
        "-m",
        "promptlint",
        "record",
        "--keep-text",
        "-o",
        "out.jsonl",
        "--",
        sys.executable,
        *command,
    ]
    return subprocess.run(full, cwd=project, env=env, capture_output=True, text=True, timeout=300, check=False, **more)


def rows(project):
    return [json.loads(line) for line in (project / "out.jsonl").read_text("utf-8").splitlines()]


def said(row):
    content = row["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def function(text):
    """The test that sends a text, as its call site."""
    library = text.split()[0]
    return f"test_all.py::test_{library}{'_async' if ' async' in text else ''}"


def site(text):
    return function(text) + (".work" if " async" in text or text.startswith("aiohttp") else "")


def check(found):
    assert [row["call_site"] for row in found] == [site(said(row)) for row in found]
    assert all(
        row["usage"][INPUT] == 50 and row["usage"][CACHE_READ] == 32 and row["usage"][OUTPUT] == 5 for row in found
    )
    assert {said(row): row["recorded"]["attempts"] for row in found if "attempts" in row["recorded"]} == {
        "openai retried": 2
    }


def test_every_request_once_in_order_with_usage_and_call_site(project):
    done = record(project, "-m", "pytest", "-q", "test_all.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [said(row) for row in rows(project)] == SENT
    check(rows(project))


def test_the_same_in_workers(project):
    pytest.importorskip("xdist", reason="not run: needs pytest-xdist")
    done = record(project, "-m", "pytest", "-q", "-p", "xdist", "-n", "2", "test_all.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(said(row) for row in rows(project)) == sorted(SENT)
    check(rows(project))


def test_with_a_full_disk_the_tests_pass(project):
    done = record(
        project,
        "-B",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "test_all.py",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "could not be written to its end" in done.stderr
    assert 0 < len((project / "out.jsonl").read_bytes()) <= 5000


FAKES = """
import asyncio
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

def chain():
    chain = ChatPromptTemplate.from_messages([("system", "You are brief."), ("human", "{q}")]) | FakeListChatModel(responses=["a", "b"])
    chain.invoke({"q": "invoke"})
    assert list(chain.stream({"q": "stream"}))
    asyncio.run(chain.ainvoke({"q": "ainvoke"}))

agent = Agent(TestModel(call_tools=[]), instructions="Be kind.")

def ask():
    agent.run_sync("run")
    async def work():
        async with agent.run_stream("run_stream") as answer:
            assert [text async for text in answer.stream_text()]
    asyncio.run(work())

chain(); ask()
"""


def test_fake_models_are_recorded_at_their_interface(tmp_path):
    pytest.importorskip("langchain_core", reason="not run: needs langchain-core")
    pytest.importorskip("pydantic_ai", reason="not run: needs pydantic-ai")
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "app.py").write_text(FAKES)
    done = record(tmp_path, "app.py")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path)
    assert [said(row) for row in found] == ["invoke", "stream", "ainvoke", "run", "run_stream"]
    assert [row["call_site"].split("::")[1] for row in found] == ["chain", "chain", "chain", "ask", "ask.work"]
    assert [row["messages"][0]["content"] for row in found] == ["You are brief."] * 3 + ["Be kind."] * 2
    assert "5 of them reached no HTTP client (fake models)" in done.stderr


BEDROCK = """
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import boto3
from botocore.stub import Stubber

ANSWER = {"output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "end_turn", "metrics": {"latencyMs": 1},
          "usage": {"inputTokens": 18, "outputTokens": 5, "totalTokens": 23, "cacheReadInputTokens": 32}}
INVOKED = {"content": [], "usage": {"input_tokens": 18, "cache_read_input_tokens": 32, "output_tokens": 5}}

class Handler(BaseHTTPRequestHandler):
    count = 0
    def log_message(self, *_): pass
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        Handler.count += 1
        data = json.dumps(ANSWER if "converse" in self.path else INVOKED).encode()
        self.send_response(503 if Handler.count == 1 else 200)
        self.send_header("content-type", "application/json"); self.send_header("content-length", str(len(data))); self.end_headers()
        self.wfile.write(data)

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = boto3.client("bedrock-runtime", region_name="x", endpoint_url=f"http://127.0.0.1:{server.server_port}", aws_access_key_id="a", aws_secret_access_key="b")
client.converse(modelId="c", system=[{"text": "Be brief."}], messages=[{"role": "user", "content": [{"text": "converse"}]}])
answer = client.invoke_model(modelId="c", body=json.dumps({"max_tokens": 5, "messages": [{"role": "user", "content": "invoke"}]}))
assert json.loads(answer["body"].read())["usage"]
with Stubber(client) as stub:
    stub.add_response("converse", ANSWER, None)
    client.converse(modelId="c", messages=[{"role": "user", "content": [{"text": "stubbed"}]}])
"""


def test_bedrock(tmp_path):
    pytest.importorskip("boto3", reason="not run: needs boto3")
    (tmp_path / "app.py").write_text(BEDROCK)
    done = record(tmp_path, "app.py")
    assert done.returncode == 0, done.stderr
    found = rows(tmp_path)
    assert [said(row) for row in found] == ["converse", "invoke", "stubbed"]
    assert [row.get("usage", {}).get(INPUT) for row in found] == [50, 50, 50]
    assert {row["model"] for row in found} == {"c"}


CALLBACK = """
import asyncio, time
import litellm, llm_server
from promptlint.litellm_callback import Recorder
litellm.callbacks = [Recorder("out.jsonl", keep_text=True)]
server = {"api_base": llm_server.start() + "/v1", "api_key": "k", "model": "openai/m"}
def whole():
    litellm.completion(messages=[{"role": "user", "content": "whole"}], **server)
async def asynchronous():
    await litellm.acompletion(messages=[{"role": "user", "content": "async"}], **server)
    await asyncio.sleep(1)
whole(); asyncio.run(asynchronous()); time.sleep(1)
"""


def test_the_litellm_callback(tmp_path):
    pytest.importorskip("litellm", reason="not run: needs litellm")
    (tmp_path / "app.py").write_text(CALLBACK)
    shutil.copy(ROOT / "tests" / "llm_server.py", tmp_path)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    found = sorted(rows(tmp_path), key=lambda row: row["timestamp"])
    assert [(said(row), row["call_site"]) for row in found] == [
        ("whole", "app.py::whole"),
        ("async", "app.py::asynchronous"),
    ]
    assert all(row["usage"][INPUT] == 50 and row["usage"][CACHE_READ] == 32 for row in found)
