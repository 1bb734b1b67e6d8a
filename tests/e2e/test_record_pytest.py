"""Recording test runs: pytest-xdist workers under the wrapper command and under the option, and the fixture `prompt_cache`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx", reason="not run: needs httpx")
ROOT = Path(__file__).parents[2]

CLIENT = """
import httpx
client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={"usage": {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 40}}})))
RULES = "Answer from the manual only, politely, in two sentences. " * 10

def send(messages, system=RULES, **more):
    return client.post("http://model/v1/chat/completions", json={"model": "m", "messages": [{"role": "system", "content": system}, *messages], **more})

class Agent:
    def __init__(self, keep=True):
        self.history, self.keep = [], keep

    def step(self, text):
        self.history.append({"role": "user", "content": text})
        if not self.keep:
            self.history = self.history[-1:]
        send(self.history)
        self.history.append({"role": "assistant", "content": "Yes."})
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "agent.py").write_text(CLIENT)
    return tmp_path


def run(project, *command, **env):
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def texts(project, name):
    lines = (project / name).read_text("utf-8").splitlines()
    return [json.loads(line)["messages"][-1]["content"] for line in lines]


MANY = """
import agent, pytest
@pytest.mark.parametrize("number", range(6))
def test_sends(number):
    agent.send([{"role": "user", "content": f"number {number}"}])
"""


def test_workers_of_xdist_are_recorded(project):
    (project / "test_many.py").write_text(MANY)
    done = run(
        project,
        "promptlint",
        "record",
        "--keep-text",
        "-o",
        "out.jsonl",
        "--",
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "xdist",
        "-n",
        "2",
        "test_many.py",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(texts(project, "out.jsonl")) == [f"number {number}" for number in range(6)]
    found = [json.loads(line) for line in (project / "out.jsonl").read_text("utf-8").splitlines()]
    assert {row["call_site"] for row in found} == {"agent.py::send"}
    assert [row["timestamp"] for row in found] == sorted(row["timestamp"] for row in found)


def test_the_option_records_without_the_wrapper(project):
    (project / "test_many.py").write_text(MANY)
    done = run(
        project,
        "pytest",
        "-q",
        "-p",
        "xdist",
        "-p",
        "promptlint.pytest_plugin",
        "-n",
        "2",
        "--promptlint-record",
        "out.jsonl",
        "--promptlint-keep-text",
        "test_many.py",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(texts(project, "out.jsonl")) == [f"number {number}" for number in range(6)]
    assert "recorded 6 requests from 1 call site" in done.stdout
    assert (project / "out.jsonl").stat().st_mode & 0o777 == 0o600


FIXTURE = """
import agent, pytest

def test_append_only(prompt_cache):
    one = agent.Agent()
    one.step("first"); one.step("second"); one.step("third")
    assert len(prompt_cache) == 3
    prompt_cache.append_only()
    prompt_cache.hit_rate(0.5)
    prompt_cache.hit_rate(0.4, observed=True)

def test_truncated_history_fails(prompt_cache):
    one = agent.Agent(keep=False)
    one.step("first"); one.step("second")
    with pytest.raises(AssertionError, match=r"(?s)request 2 does not continue request 1: messages\\[1\\].content differs at character 0.*'first'.*'second'"):
        prompt_cache.append_only()

def test_a_changed_head_fails(prompt_cache):
    agent.send([{"role": "user", "content": "same"}], system="Now 10:41. " + agent.RULES)
    agent.send([{"role": "user", "content": "same"}], system="Now 10:42. " + agent.RULES)
    with pytest.raises(AssertionError, match=r"messages\\[0\\].content differs at character 8"):
        prompt_cache.same_prefix(0, 1)
    with pytest.raises(AssertionError, match=r"(?s)expected hit rate .* is below 90.0%.*request 2 left request 1"):
        prompt_cache.hit_rate(0.9)
    with pytest.raises(AssertionError, match="observed hit rate 40.0% is below 50.0%"):
        prompt_cache.hit_rate(0.5, observed=True)

def test_same_prefix(prompt_cache):
    agent.send([{"role": "user", "content": "one"}])
    agent.Agent().step("two")
    prompt_cache.same_prefix(0, 1)
    prompt_cache.same_prefix(0, -1, tokens=80)
    prompt_cache.same_prefix("agent.py", "send")
    with pytest.raises(AssertionError, match="not 5,000"):
        prompt_cache.same_prefix(0, 1, tokens=5000)
    prompt_cache.clear()
    agent.send([{"role": "user", "content": "one"}], tools=[{"type": "function", "function": {"name": "search"}}])
    agent.send([{"role": "user", "content": "one"}])
    with pytest.raises(AssertionError, match="do not begin alike: "):
        prompt_cache.same_prefix(0, 1)

def test_another_model_and_nothing_sent(prompt_cache):
    with pytest.raises(AssertionError, match="no request to a model was sent"):
        prompt_cache.append_only()
    agent.client.post("http://model/v1/chat/completions", json={"model": "a", "messages": [{"role": "user", "content": "x"}]})
    agent.client.post("http://model/v1/chat/completions", json={"model": "b", "messages": [{"role": "user", "content": "x"}]})
    with pytest.raises(AssertionError, match="model b"):
        prompt_cache.append_only()
    assert [row["model"] for row in prompt_cache.requests] == ["a", "b"]
    with pytest.raises(AssertionError, match=r"sent from: test_fixture.py::test_another_model_and_nothing_sent"):
        prompt_cache.append_only(call_site="elsewhere.py")

def test_only_this_test_s_requests(prompt_cache):
    assert len(prompt_cache) == 0
"""


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_fixture_turns_a_fault_into_a_red_test(project, wrapped):
    (project / "test_fixture.py").write_text(FIXTURE)
    tests = ["pytest", "-q", "-p", "promptlint.pytest_plugin", "test_fixture.py"]
    command = ["promptlint", "record", "-o", "out.jsonl", "--", sys.executable, "-m", *tests] if wrapped else tests
    done = run(project, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_the_plugin_costs_little_where_it_is_not_used(project):
    code = "import sys, promptlint.pytest_plugin; print(sorted(name for name in sys.modules if name.startswith('promptlint')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['promptlint', 'promptlint.pytest_plugin']"
