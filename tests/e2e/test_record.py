"""`promptlint record` on small programs that send requests to a local server: what is recorded, and that the program never notices."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from promptlint.cli import cli
from promptlint.traffic.record import CACHE_READ, INPUT

ROOT = Path(__file__).parents[2]
pytest.importorskip("httpx", reason="not run: needs httpx")
pytest.importorskip("requests", reason="not run: needs requests")

HEAD = """
import asyncio, os, sys
import httpx, requests
import llm_server
URL = llm_server.start() + "/v1/chat/completions"
def body(text, **more):
    return {"model": "m", "messages": [{"role": "system", "content": "You are PRIVATEWORD."}, {"role": "user", "content": text}], **more}
"""


@pytest.fixture
def project(tmp_path):
    """A folder that is a project of its own, with the server beside the program."""
    (tmp_path / "pyproject.toml").write_text("")
    shutil.copy(ROOT / "tests" / "llm_server.py", tmp_path)
    return tmp_path


def record(project, *command, options=("--keep-text",), env=None, **more):
    """Run `promptlint record` there; the finished process."""
    return subprocess.run(
        [sys.executable, "-m", "promptlint", "record", "-o", "out.jsonl", *options, "--", *command],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        **more,
    )


def program(project, text, name="app.py"):
    (project / name).write_text(HEAD + text)


def rows(project):
    return [json.loads(line) for line in (project / "out.jsonl").read_text("utf-8").splitlines()]


CLIENTS = """
def plain():
    httpx.post(URL, json=body("httpx"), headers={"authorization": "Bearer hidden"})
    with httpx.stream("POST", URL, json=body("httpx stream", stream=True)) as answer:
        assert [line for line in answer.iter_lines() if line][-1] == "data: [DONE]"
    requests.post(URL, json=body("requests"))
    answer = requests.post(URL, json=body("requests stream", stream=True), stream=True)
    assert [line for line in answer.iter_lines() if line][-1] == b"data: [DONE]"
    requests.get(URL.replace("/v1/chat/completions", "/health"))

class Agent:
    async def ask(self):
        async with httpx.AsyncClient() as client:
            await client.post(URL, json=body("httpx async"))
            async with client.stream("POST", URL, json=body("httpx async stream", stream=True)) as answer:
                assert "".join([piece async for piece in answer.aiter_text()]).endswith("data: [DONE]\\n\\n")

def flaky():
    for _ in range(2):
        answer = httpx.post(URL, json=body("retried", user="flaky"))
    assert answer.status_code == 200

plain(); asyncio.run(Agent().ask()); flaky()
httpx.post(URL.replace("chat/completions", "embeddings"), json={"model": "m", "input": "no prompt"})
"""


def test_every_request_once_in_order_with_usage_and_call_site(project):
    program(project, CLIENTS)
    done = record(project, sys.executable, "app.py")
    assert done.returncode == 0, done.stderr
    found = rows(project)
    assert [row["messages"][-1]["content"] for row in found] == [
        "httpx", "httpx stream", "requests", "requests stream", "httpx async", "httpx async stream", "retried",
    ]  # fmt: skip
    assert [row["call_site"] for row in found] == ["app.py::plain"] * 4 + ["app.py::Agent.ask"] * 2 + ["app.py::flaky"]
    assert all(row["usage"][INPUT] == 50 and row["usage"][CACHE_READ] == 32 for row in found)
    lines = (project / "app.py").read_text().splitlines()
    assert 'body("requests")' in lines[found[2]["recorded"]["line"] - 1]
    assert found[-1]["recorded"]["attempts"] == 2
    assert all(row["recorded"]["latency_ms"] > 0 for row in found)
    assert found[1]["recorded"]["ttft_ms"] <= found[1]["recorded"]["latency_ms"]
    assert "recorded 7 requests from 3 call sites in out.jsonl" in done.stderr


def test_a_library_s_coroutine_in_a_task_belongs_to_who_made_it(project):
    program(
        project,
        """
async def gathered(client):
    await asyncio.gather(*[client.post(URL, json=body(f"gather {number}")) for number in range(2)])

async def made(client):
    await asyncio.create_task(client.post(URL, json=body("task")))

async def own(client):
    async def inner():
        await client.post(URL, json=body("own"))
    await asyncio.create_task(inner())

async def main():
    async with httpx.AsyncClient() as client:
        await gathered(client); await made(client); await own(client)

asyncio.run(main())
""",
    )
    assert record(project, sys.executable, "app.py").returncode == 0
    assert {row["messages"][-1]["content"]: row["call_site"] for row in rows(project)} == {
        "gather 0": "app.py::gathered", "gather 1": "app.py::gathered", "task": "app.py::made", "own": "app.py::own.inner",
    }  # fmt: skip


def test_what_a_server_in_the_process_sends_on_is_a_request_of_its_own(project):
    program(
        project,
        """
async def proxy(scope, receive, send):
    asked = (await receive())["body"]
    async with httpx.AsyncClient() as client:
        answer = await client.post(URL, json=body("rewritten"))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": answer.content})

async def main():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(proxy)) as client:
        await client.post("http://proxy/v1/chat/completions", json=body("asked"))

class Through(httpx.BaseTransport):
    def handle_request(self, request):
        return httpx.Response(200, content=requests.post(URL, data=request.content).content)

asyncio.run(main())
httpx.Client(transport=Through()).post(URL, json=body("one client on another"))
""",
    )
    assert record(project, sys.executable, "app.py").returncode == 0
    assert [row["messages"][-1]["content"] for row in rows(project)] == ["asked", "rewritten", "one client on another"]


def test_no_header_but_the_allowed_ones_and_nobody_else_may_read(project):
    program(project, CLIENTS)
    record(project, sys.executable, "app.py")
    text = (project / "out.jsonl").read_text("utf-8")
    assert "hidden" not in text
    assert '"x-request-id":"req-1"' in text
    assert (project / "out.jsonl").stat().st_mode & 0o777 == 0o600


def test_text_is_disguised_and_still_diagnosed(project):
    program(
        project,
        """
for number in range(3):
    httpx.post(URL, json={"model": "m", "messages": [
        {"role": "system", "content": f"Request 7f3a9c2b{number}e1d4\\n" + "Answer from the Lisbon manual only. " * 40}, {"role": "user", "content": "Where?"}]})
""",
    )
    record(project, sys.executable, "app.py")
    kept = diagnosed(project)
    record(project, sys.executable, "app.py", options=())
    assert "Lisbon" not in (project / "out.jsonl").read_text("utf-8")
    found = diagnosed(project)
    places = ("request", "relative", "path", "char", "rule")
    assert [[one[name] for name in places] for one in found["divergences"]] == [
        [one[name] for name in places] for one in kept["divergences"]
    ]
    assert len(found["divergences"]) == 2
    assert found["causes"][0]["tokens_lost"] == pytest.approx(kept["causes"][0]["tokens_lost"], rel=0.1)


def promptlint(project, *arguments):
    """Another command of ours in that folder, without a process of its own."""
    with contextlib.chdir(project):
        return CliRunner().invoke(cli, arguments)


def diagnosed(project):
    return json.loads(promptlint(project, "diagnose", "out.jsonl", "--output-format", "json").stdout)


def test_check_reads_a_disguised_recording(project):
    (project / "bot.py").write_text(
        "import openai\n"
        'RULES = "Answer from the manual only, in two sentences, and never guess. " * 20\n'
        "def answer(name, question):\n"
        '    return openai.OpenAI().chat.completions.create(model="m", messages=[\n'
        '        {"role": "system", "content": f"You help {name}s friends.\\n{RULES}"}, {"role": "user", "content": question}])\n'
    )
    program(
        project,
        """
sys.path.insert(0, "."); RULES = "Answer from the manual only, in two sentences, and never guess. " * 20
for name in ("Ann", "Bob", "Ann"):
    httpx.post(URL, json={"model": "m", "messages": [{"role": "system", "content": f"You help {name}s friends.\\n{RULES}"}, {"role": "user", "content": "Why?"}]})
""",
    )
    record(project, sys.executable, "app.py", options=())
    command = ("traffic", "stats", "out.jsonl", "--code", "bot.py")
    said = promptlint(project, *command).stdout
    assert "bot.py::answer::openai.chat.completions.create: 3 requests" in said
    assert "name: 2 values in 3 requests" in said
    shutil.rmtree(project / ".promptlint_cache")
    gone = promptlint(project, *command)
    assert gone.exit_code == 2
    assert "key is not on this machine" in gone.stderr


def test_the_exit_status_is_the_command_s(project):
    program(project, "sys.exit(3)")
    assert record(project, sys.executable, "app.py").returncode == 3


def test_a_command_that_cannot_be_run_costs_no_recording(project):
    program(project, 'httpx.post(URL, json=body("kept"))')
    assert record(project, sys.executable, "app.py").returncode == 0
    before = (project / "out.jsonl").read_bytes()
    done = record(project, "no-such-command")
    assert done.returncode == 2
    assert done.stderr == "promptlint: error: no-such-command: cannot be run: No such file or directory\n"
    assert (project / "out.jsonl").read_bytes() == before
    (project / "out.jsonl").unlink()
    assert record(project, "no-such-command").returncode == 2
    assert not (project / "out.jsonl").exists()


def test_a_link_stays_a_link(project):
    program(project, 'httpx.post(URL, json=body("linked"))')
    (project / "out.jsonl").symlink_to(project / "elsewhere.jsonl")
    assert record(project, sys.executable, "app.py").returncode == 0
    assert (project / "out.jsonl").is_symlink()
    assert [row["usage"][INPUT] for row in rows(project)] == [50]


@pytest.mark.parametrize("option", ["--keep-text", "--append"])
def test_a_pipe_is_no_file_to_write(project, option):
    os.mkfifo(project / "out.jsonl")
    done = record(project, sys.executable, "-c", "", options=(option,))
    assert done.returncode == 2
    assert "is not a file" in done.stderr


def test_a_fork_while_another_thread_begins_a_request(project):
    """The thread that holds the recorder's lock does not exist in the child, which must not wait for it."""
    program(
        project,
        """
from _promptlint_recorder import exchange
exchange._lock.acquire()  # as a thread does for a moment
child = os.fork()
if child == 0:
    import signal
    signal.alarm(20)
    httpx.post(URL, json=body("from the child"))
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
    )
    done = record(project, sys.executable, "app.py")
    assert done.returncode == 0, done.stderr
    assert [row["messages"][-1]["content"] for row in rows(project)] == ["from the child"]


def test_a_killed_program_leaves_its_requests_and_its_signal(project):
    program(project, 'httpx.post(URL, json=body("before"))\nos.kill(os.getpid(), 9)')
    done = record(project, sys.executable, "app.py")
    assert done.returncode == -signal.SIGKILL
    assert [row["messages"][-1]["content"] for row in rows(project)] == ["before"]


def test_when_promptlint_is_killed_too_the_file_can_be_read_as_it_is(project):
    """Answers stand in lines of their own then: they belong to their requests, and are nothing that could not be read."""
    program(
        project,
        """
httpx.post(URL, json=body("first"))
httpx.post(URL, json=body("second", user="flaky"))
httpx.post(URL, json=body("third"))
for process in (os.getppid(), os.getpid()): os.kill(process, 9)
""",
    )
    assert record(project, sys.executable, "app.py").returncode == -signal.SIGKILL
    left = (project / "out.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line).keys() == {"id", "recorded"} for line in left].count(True) == 1  # an answer without usage
    for command in ("simulate", "diagnose"):
        done = CliRunner().invoke(cli, [command, str(project / "out.jsonl"), "--output-format", "json"])
        assert done.exit_code == 0
        assert done.stderr == ""
        report = json.loads(done.stdout)
        assert report["requests"] == 3
        assert not report.get("problems")
        assert not report.get("summary", {}).get("unreadable")
        if command == "simulate":
            assert report["observed"]["requests"] == 2
            assert report["observed"]["hit_rate"] == 32 / 50


def test_a_request_that_is_killed_on_its_way_is_there(project):
    program(
        project,
        """
import socket, threading, time
silent = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: (silent.accept(), time.sleep(0.3), os.kill(os.getpid(), 15)), daemon=True).start()
httpx.post(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/chat/completions", json=body("unanswered"), timeout=30)
""",
    )
    assert record(project, sys.executable, "app.py").returncode == -signal.SIGTERM
    assert rows(project)[0]["messages"][-1]["content"] == "unanswered"


def test_a_full_disk_costs_records_only(project):
    program(
        project,
        'for number in range(4): assert httpx.post(URL, json=body("x" * 3000)).status_code == 200\nprint("all fine")',
    )

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))

    done = record(project, sys.executable, "-B", "app.py", preexec_fn=little_room, env={"PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all fine\n"
    assert "could not be written to its end" in done.stderr
    assert 1 <= len(rows(project)) < 4  # what was whole is in order, what was not is gone
    assert all(row["messages"] for row in rows(project))


def test_a_recorder_with_a_fault_of_its_own_is_not_noticed(project):
    program(project, 'import httpx._models\nhttpx.Request.url = property(lambda self: 1 / 0)\nprint("alive")')
    done = record(project, sys.executable, "app.py")
    assert done.returncode == 0
    assert done.stdout == "alive\n"
    assert "nothing was recorded" in done.stderr


def test_an_existing_sitecustomize_runs_too(project):
    theirs = project / "site"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = __name__\n")
    program(project, 'print(theirs, sys.modules["sitecustomize"].__file__)\nhttpx.post(URL, json=body("hi"))')
    done = record(project, sys.executable, "app.py", env={"PYTHONPATH": f"{theirs}{os.pathsep}{ROOT}"})
    assert done.stdout.split() == ["sitecustomize", str(theirs / "sitecustomize.py")]
    assert len(rows(project)) == 1


def test_starting_costs_few_imports(project):
    (project / "app.py").write_text("import sys; print(*sorted(sys.modules))")
    plain = set(
        subprocess.run(
            [sys.executable, "app.py"], cwd=project, capture_output=True, text=True, check=True
        ).stdout.split()
    )
    more = set(record(project, sys.executable, "app.py").stdout.split()) - plain
    ours = {"_promptlint_recorder", "_promptlint_recorder.sink"}
    assert more - ours <= {"sitecustomize", "__future__"}


def test_subprocesses_are_recorded(project):
    program(project, 'httpx.post(URL, json=body("child"))', "child.py")
    program(
        project,
        'import subprocess\nhttpx.post(URL, json=body("parent"))\nsubprocess.run([sys.executable, "child.py"], check=True)',
    )
    record(project, sys.executable, "app.py")
    found = rows(project)
    assert [row["messages"][-1]["content"] for row in found] == ["parent", "child"]
    assert len({row["recorded"]["pid"] for row in found}) == 2


def test_what_was_not_recorded_is_explained(project):
    (project / "app.py").write_text("print('quiet')")
    assert "no library for one was imported" in record(project, sys.executable, "app.py").stderr
    (project / "openai.py").write_text("")
    (project / "app.py").write_text("import openai")
    assert "imported openai, but no request" in record(project, sys.executable, "app.py").stderr
    assert "no Python process of `true`" in record(project, "true").stderr


def test_a_second_recording_replaces_or_adds_and_never_overwrites_a_stranger(project):
    program(project, "httpx.post(URL, json=body(sys.argv[1]))")
    texts = lambda: [row["messages"][-1]["content"] for row in rows(project)]  # noqa: E731
    record(project, sys.executable, "app.py", "one")
    record(project, sys.executable, "app.py", "two")
    assert texts() == ["two"]
    record(project, sys.executable, "app.py", "three", options=("--keep-text", "--append"))
    assert texts() == ["two", "three"]
    (project / "out.jsonl").write_text("import os\n")
    done = record(project, sys.executable, "app.py", "four")
    assert done.returncode == 2
    assert (project / "out.jsonl").read_text() == "import os\n"


def test_a_command_that_cannot_run(project):
    done = record(project, "no-such-command")
    assert done.returncode == 2
    assert "no-such-command: cannot be run" in done.stderr
