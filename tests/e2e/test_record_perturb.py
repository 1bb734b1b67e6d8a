"""`promptlint perturb` on a program with eight planted factors, and on programs with none, with noise and with trouble."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("httpx", reason="not run: needs httpx")
ROOT = Path(__file__).parents[2]

# Stands for the SDK: outside the project, and sends through a client that needs no server.
OPENAI = """
import httpx
client = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={})))
class Completions:
    def create(self, **body):
        return client.post("http://model/v1/chat/completions", json=body)
class OpenAI:
    def __init__(self):
        self.chat = type("Chat", (), {"completions": Completions()})
"""

EIGHT = """
import datetime, getpass, os, socket, uuid
from openai import OpenAI

RULES = "Answer from the manual only, in two short and polite sentences. " * 8

def build():
    tags = {"alpha", "beta", "gamma", "delta", "epsilon"}
    return (
        f"Now: {datetime.datetime.now().isoformat()}\\n{RULES}\\n"
        f"Tags: {', '.join(tags)}\\n{RULES}\\n"
        f"Folder: {os.getcwd()}\\n{RULES}\\n"
        f"User: {getpass.getuser()}\\n{RULES}\\n"
        f"Host: {socket.gethostname()}\\n{RULES}\\n"
        f"Request: {uuid.uuid4()}\\n{RULES}\\n"
        f"Stage: {os.environ.get('APP_STAGE', 'dev')}\\n{RULES}\\n"
        f"Notes: {' '.join(os.listdir('notes'))}\\n{RULES}\\n"
    )

def ask(question):
    return OpenAI().chat.completions.create(model="m", messages=[
        {"role": "system", "content": build()}, {"role": "user", "content": question}])

def main(questions):
    for question in questions:
        ask(question)

if __name__ == "__main__":
    main(["one", "two"])
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs" / "openai.py").write_text(OPENAI)
    folder = tmp_path / "bot"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("")
    (folder / "notes").mkdir()
    for name in ("a.md", "b.md", "c.md"):
        (folder / "notes" / name).touch()
    return folder


def perturb(project, text, *options):
    """The measurement of a program as JSON."""
    (project / "app.py").write_text(text)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "promptlint",
            "perturb",
            "-q",
            "--output-format",
            "json",
            *options,
            "--",
            sys.executable,
            "app.py",
        ],
        cwd=project,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{project.parent / 'stubs'}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_eight_factors_each_by_its_name_and_no_other(project):
    found = perturb(project, EIGHT, "--code", "app.py")
    assert found["calls"] == 2
    assert not found["noise"]
    assert not found["uneven"]
    assert not found["failed"]
    places = [(one["factor"], one["call_site"], one["pointer"], one["calls"], one["of"]) for one in found["varying"]]
    order = ["hash-seed", "clock", "cwd", "user", "host", "random", "environment", "listing"]
    assert places == [(name, "app.py::ask", "/messages/0/content", 2, 2) for name in order]

    # Each place lies behind its label, and holes stand in the prompt in the order in which they were written.
    chars = {one["factor"]: one["char"] for one in found["varying"]}
    written = ["clock", "hash-seed", "cwd", "user", "host", "random", "environment", "listing"]
    assert sorted(chars, key=chars.get) == written
    by_factor = {one["factor"]: one for one in found["varying"]}
    assert by_factor["clock"]["shift"] == "second"
    assert by_factor["environment"]["shift"] == "APP_STAGE"
    assert "Host: promptlint-host" in by_factor["host"]["now"]

    # The analysis of the code sees the same at each place. It reports all but the setting, which is fixed while a process runs and no finding.
    assert all(one["agrees"] for one in found["varying"])
    assert {name: bool(one["found_by"]) for name, one in by_factor.items()} == {
        name: name != "environment" for name in order
    }
    assert by_factor["random"]["hole"] == "uuid.uuid4()"
    assert by_factor["environment"]["guessed"] == "process"


def test_a_day_is_told_from_a_second(project):
    text = """
import datetime, time
from openai import OpenAI
today = datetime.date.today()
OpenAI().chat.completions.create(model="m", messages=[
    {"role": "system", "content": f"Today is {today}." + " Be brief." * 30 + f"\\nIt is {time.strftime('%H:%M')}."},
    {"role": "user", "content": f"Sent at {time.time()}"}])
"""
    found = perturb(project, text, "--factor", "clock")
    assert [(one["pointer"], one["shift"]) for one in found["varying"]] == [
        ("/messages/1/content", "second"),
        ("/messages/0/content", "hour"),
        ("/messages/0/content", "day"),
    ]


def test_what_varies_by_itself_is_noise_and_no_factor(project):
    text = """
import os
from openai import OpenAI
OpenAI().chat.completions.create(model="m", messages=[{"role": "system", "content": f"Process {os.getpid()}, host {os.uname().nodename}"}])
"""
    found = perturb(project, text, "--factor", "host", "--factor", "random")
    assert [one["char"] for one in found["noise"]]
    assert [one["factor"] for one in found["varying"]] == ["host"]


def test_a_steady_program_and_one_that_waits_by_the_clock(project):
    text = """
import time, logging, datetime, pickle, random
from openai import OpenAI
logging.basicConfig(format="%(asctime)s %(message)s"); logging.warning("log lines carry the time")
end = time.time() + 0.2
while time.time() < end:
    time.sleep(0.05)
now = datetime.datetime.now()
assert isinstance(pickle.loads(pickle.dumps(now)), datetime.datetime) and isinstance(now, datetime.date)
assert now + datetime.timedelta(days=1) > now and datetime.datetime(2020, 1, 1) < now
assert random.random() != random.random()
OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": "Always the same"}])
"""
    found = perturb(project, text, "--factor", "clock", "--factor", "random")
    assert found["status"] == 0
    assert not found["varying"]
    assert found["without_effect"] == ["clock", "random"]


def test_the_order_of_tools_and_uneven_calls(project):
    text = """
import os
from openai import OpenAI
tools = [{"type": "function", "function": {"name": name}} for name in {"search", "read", "write", "list", "run", "ask"}]
for _ in range(2 if os.environ.get("MORE") else 1):
    OpenAI().chat.completions.create(model="m", tools=tools, messages=[{"role": "user", "content": "Go"}])
"""
    found = perturb(project, text, "--factor", "hash-seed", "--factor", "environment")
    assert [(one["factor"], one["pointer"]) for one in found["varying"]] == [("hash-seed", "/tools")]
    assert found["uneven"] == {"environment (MORE)": "1 more of 1 calls"}


def test_a_program_that_prints_its_environment(project):
    text = """
import os
from openai import OpenAI
OpenAI().chat.completions.create(model="m", messages=[{"role": "user", "content": repr(sorted(os.environ.items()))}])
"""
    found = perturb(project, text, "--factor", "clock", "--factor", "random", "--factor", "environment")
    assert not found["noise"]
    assert {(one["factor"], one["shift"]) for one in found["varying"]} == {("environment", "PROMPTLINT_PERTURBED")}


def test_nothing_sent_is_an_error_with_the_reason(project):
    (project / "app.py").write_text("raise SystemExit('no key')")
    done = subprocess.run(
        [sys.executable, "-m", "promptlint", "perturb", "-q", "--", sys.executable, "app.py"],
        cwd=project, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "its last line: no key" in done.stderr
