"""A large project is read in parts, by as many processes as there are cores: the report must not show it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from promptlint.app import check as pipeline
from promptlint.app.check import Request, check
from promptlint.config import Settings
from promptlint.frontends import workers
from promptlint.frontends.python import parts
from promptlint.report import model

needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin", reason="processes are not copied here"
)

RULES = "Answer from the manual only, and name the page on which you found the answer. " * 20
FILES = {
    "a_base.py": """
        import anthropic
        from z_texts import RULES, heading

        class Assistant:
            def __init__(self, client: anthropic.Anthropic):
                self.client = client

            def intro(self) -> str:
                return ""

            def ask(self, question):
                system = self.intro() + RULES
                return self.client.messages.create(
                    model="m", max_tokens=9, system=system, messages=[{"role": "user", "content": question}])

        def send(system, question):
            return anthropic.Anthropic().messages.create(
                model="m", max_tokens=9, system=system, messages=[{"role": "user", "content": question}])

        def greet(question):
            return send(heading() + RULES, question)
        """,
    "m_prompts/system.txt": "You are a helper of {user_name}. " + RULES,
    "m_template.jinja": "Now: {{ now() }}\n" + RULES,
    "m_broken.py": "def (:\n    prompt = \n",
    "z_texts.py": f"""
        import datetime

        RULES = {RULES!r}

        def heading():
            return f"Now: {{datetime.datetime.now()}}. "
        """,
    "z_users.py": """
        import uuid
        from a_base import Assistant, send
        from z_texts import RULES

        class Tracing(Assistant):
            def intro(self) -> str:
                return f"Request {uuid.uuid4()}. "

        def ask(question, tenant):
            return send(f"Request {uuid.uuid4()}. " + RULES, question)

        def trim(messages):
            messages.append({"role": "user", "content": "?"})
            return messages[-10:]
        """,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    monkeypatch.setattr(parts, "PARTED", 2)
    monkeypatch.setattr(pipeline, "MANY_FILES", 2)
    return tmp_path


def report(root: Path, monkeypatch: pytest.MonkeyPatch, processes: int) -> str:
    """The JSON report of a run with that many processes."""
    monkeypatch.setenv("PROMPTLINT_WORKERS", str(processes))
    return json.dumps(model.dump(check(Settings(root), Request((root,), root), use_cache=False)))


def places(report: str) -> set[tuple[str, str]]:
    """Rule and path of each finding."""
    return {(finding.rule, finding.path) for finding in model.load(json.loads(report)).findings}


def test_the_parts_see_one_another(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = places(report(project, monkeypatch, 1))
    assert ("clock-in-prefix", "z_texts.py") in found or ("clock-in-prefix", "a_base.py") in found
    assert {path for rule, path in found if rule == "random-in-prefix"} == {
        "z_users.py"
    }  # a caller and a subclass elsewhere
    assert ("template-clock", "m_template.jinja") in found


@needs_fork
def test_one_process_and_several_give_the_same_report(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    start = workers.start

    def counting(work):
        worker = start(work)
        started.append(worker.process)
        return worker

    monkeypatch.setattr(workers, "start", counting)
    alone = report(project, monkeypatch, 1)
    assert not started
    assert report(project, monkeypatch, 2) == alone
    assert len(started) == 2  # the other part, and what is no Python
    assert report(project, monkeypatch, 8) == alone


@needs_fork
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_killed_process_loses_nothing(project: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Helpers die at their first, second or third word to the parent."""
    alone = report(project, monkeypatch, 1)
    here = os.getpid()
    send, said = workers.Channel.send, []

    def dying(self, value):
        if os.getpid() != here:
            if len(said) >= after:
                os.kill(os.getpid(), signal.SIGKILL)
            said.append(value)
        send(self, value)

    monkeypatch.setattr(workers.Channel, "send", dying)
    assert report(project, monkeypatch, 2) == alone


@needs_fork
def test_an_interrupt_ends_all_processes_without_a_traceback(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group, in the middle of the work."""
    slow = "from promptlint.frontends.python.parts import Part; import time; Part.survey = lambda self: time.sleep(60)"
    small = "from promptlint.frontends.python import parts; parts.PARTED = 2"
    for number in range(4):
        (tmp_path / f"m{number}.py").write_text('def f(c): return c.chat([{"role": "user", "content": "hello"}])\n')
    process = subprocess.Popen(
        [sys.executable, "-c", f"{slow}; {small}; from promptlint.cli import main; main()", "check", "--no-cache", "."],
        cwd=tmp_path,
        env={**os.environ, "PROMPTLINT_WORKERS": "2", "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while len(members(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(members(process.pid)) == 2
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode not in {0, None}
    assert b"Traceback" not in errors
    assert not members(process.pid)


def members(group: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(entry.parent.name))
    return found
