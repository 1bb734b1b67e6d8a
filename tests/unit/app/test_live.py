"""A project that stays read: the second look says what a fresh check says."""

import gc
import shutil
from pathlib import Path

import pytest

from promptlint.app import live as live_module
from promptlint.app.check import Request, check
from promptlint.app.live import Live, Stopped
from promptlint.config import Settings
from promptlint.frontends.python import warm

ROOT = Path(__file__).parents[3]


def rows(report):
    return [(one.rule, one.path, one.line, one.column, one.message, one.tokens_lost) for one in report.findings]


def fresh(folder, overlay):
    return rows(check(Settings(folder), Request((folder,), folder, overlay), use_cache=False))


@pytest.fixture
def desk(tmp_path):
    shutil.copytree(ROOT / "examples" / "support_bot", tmp_path / "desk")
    return tmp_path / "desk"


def test_a_look_is_a_check(desk):
    live = Live(Settings(desk))
    path = desk / "support" / "desk.py"
    text = path.read_text("utf-8")
    assert rows(live.look({}).report) == fresh(desk, {})
    for changed in ("\n\n" + text, text.replace("{datetime.now().isoformat()}", ""), text + "\ndef (", text):
        overlay = {path: changed}
        assert rows(live.look(overlay, quick=True).report) == fresh(desk, overlay)
    assert rows(live.look({}).report) == fresh(desk, {})


def test_templates_and_files_on_disk(desk):
    live = Live(Settings(desk))
    live.look({})
    template = desk / "support" / "prompts" / "mail.jinja"
    overlay = {template: "Hello.\n" + template.read_text("utf-8")}
    assert rows(live.look(overlay, quick=True).report) == fresh(desk, overlay)
    template.write_text("{{ customer_name }}", "utf-8")
    live.forget(template)
    assert rows(live.look({}, quick=True).report) == fresh(desk, {})
    shutil.copy(desk / "support" / "desk.py", desk / "support" / "second.py")
    live.forget_files()
    assert rows(live.look({}, quick=True).report) == fresh(desk, {})


def test_only_what_changed_is_read_again(desk, monkeypatch):
    live = Live(Settings(desk))
    live.look({})
    taken = []
    monkeypatch.setattr(
        warm, "_taken", lambda run, owner, work, old=warm._taken: (taken.append(owner), old(run, owner, work))[1]
    )
    path = desk / "support" / "mail.py"
    live.look({path: path.read_text("utf-8") + "\n"}, quick=True)
    owners = {getattr(owner, "module", owner).path for owner in taken}
    assert owners == {path}
    taken.clear()
    live.look({path: path.read_text("utf-8") + "\n"}, quick=True)
    assert taken == []


def test_a_stopped_look_leaves_nothing_behind(desk):
    live = Live(Settings(desk))
    live.look({})
    path = desk / "support" / "desk.py"
    text = path.read_text("utf-8")
    calls = iter([False] * 4 + [True] * 100)
    with pytest.raises(Stopped):
        live.look({path: text.replace("{datetime.now().isoformat()}", "")}, quick=True, stop=lambda: next(calls))
    assert rows(live.look({path: "\n" + text}, quick=True).report) == fresh(desk, {path: "\n" + text})


def test_a_fork_leaves_no_trace(desk):
    live = Live(Settings(desk))
    path = desk / "support" / "desk.py"
    text = path.read_text("utf-8")
    before = rows(live.look({}).report)
    live.fork().look({path: text.replace("{datetime.now().isoformat()}", "")}, quick=True)
    assert rows(live.look({}, quick=True).report) == before


def test_functions_without_a_prompt_are_not_read_again_wherever_they_stand_now(tmp_path, monkeypatch):
    path = tmp_path / "app.py"
    text = (
        "import anthropic\n\n\n"
        "def title(prompt):\n    return prompt.format(name='a')\n\n\n"
        f"def ask(question):\n    system = 'Question: ' + question + {'Answer from the manual only. ' * 40!r}\n"
        "    return anthropic.Anthropic().messages.create(model='m', max_tokens=9, system=system, messages=[])\n"
    )
    path.write_text(text, "utf-8")
    live = Live(Settings(tmp_path))
    assert rows(live.look({}).report)
    taken = []
    monkeypatch.setattr(
        warm, "_taken", lambda run, owner, work, old=warm._taken: (taken.append(owner), old(run, owner, work))[1]
    )

    def names():
        found = {owner.name for owner in taken if isinstance(owner, warm.FunctionInfo)}
        taken.clear()
        return found

    for lines in (1, 2):
        overlay = {path: "\n" * lines + text}
        assert rows(live.look(overlay, quick=True).report) == fresh(tmp_path, overlay)
        assert names() == {"ask"}
    overlay = {path: text.replace("name='a'", "name='b'")}
    live.look(overlay, quick=True)
    assert names() == {"title", "ask"}
    live.look(overlay)
    assert names() == {"title", "ask"}


def test_a_full_look_sees_a_prompt_that_comes_from_elsewhere(tmp_path):
    path, other = tmp_path / "app.py", tmp_path / "texts.py"
    path.write_text(
        "from texts import opening\n\n\ndef ask(question):\n    prompt = opening()\n    return prompt.format(question=question)\n"
    )
    text = f"def opening():\n    return {'Question: {question}. ' + 'You are a helper. Answer from the manual only. ' * 40!r}\n"
    other.write_text("def opening():\n    return ''\n")
    live = Live(Settings(tmp_path))
    assert not rows(live.look({}).report)
    live.look({other: text}, quick=True)
    assert rows(live.look({other: text}).report) == fresh(tmp_path, {other: text}) != []


def test_what_looks_leave_is_out_of_the_collectors_sight_and_does_not_pile_up(desk, monkeypatch):
    collected = []
    monkeypatch.setattr(live_module.gc, "collect", lambda: collected.append(True))
    live = Live(Settings(desk))
    path = desk / "support" / "desk.py"
    live.look({})
    assert len(collected) == 1
    before = gc.get_freeze_count()
    for number in range(live_module.TIDIED_AFTER + 1):
        live.look({path: "\n" * number + path.read_text("utf-8")}, quick=True)
        assert len(collected) == (1 if number < live_module.TIDIED_AFTER else 2)
    assert gc.get_freeze_count() > before
