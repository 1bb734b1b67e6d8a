"""A project that stays read: the second look says what a fresh check says."""

import shutil
from pathlib import Path

import pytest

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
