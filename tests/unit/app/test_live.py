"""A project that stays read: the second look says what a fresh check says."""

import ast
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


@pytest.fixture
def taken(monkeypatch):
    """The names of the functions and files whose steps are taken; cleared by the test."""
    names = []

    def note(run, owner, work, old=warm._taken):
        names.append(getattr(owner, "qualname", None) or owner.path.name)
        return old(run, owner, work)

    monkeypatch.setattr(warm, "_taken", note)
    return names


def test_what_only_moved_is_not_read_again(desk, taken):
    live = Live(Settings(desk))
    live.look({})
    for path in sorted((desk / "support").glob("*.py")):
        text = path.read_text("utf-8")
        statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
        for line in (1, statements[-1].lineno, len(text.splitlines()) + 1):
            lines = text.splitlines(keepends=True)
            lines.insert(line - 1, "# a note\n")
            live.look({})
            taken.clear()
            changed = {path: "".join(lines)}
            assert rows(live.look(changed, quick=True).report) == fresh(desk, changed)
            assert taken == [], line


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


PROGRAM = {
    "rules.py": f"RULES = {'Answer from the manual only. ' * 40!r}\nOTHER = 'x'\nLAST = 'z'\n",
    "words.py": "from datetime import datetime\n\n\ndef opening():\n    return f'It is {datetime.now()}.'\n\n\ndef unused():\n    return 1\n",
    "app.py": "import anthropic\nfrom rules import OTHER, RULES\nfrom words import opening\n\n\n"
    "def send(system):\n"
    "    return anthropic.Anthropic().messages.create(model='m', max_tokens=9, system=system, messages=[])\n\n\n"
    "def dated(question):\n    return send(opening() + RULES)\n\n\n"
    "def plain(question):\n    return send('Question: ' + question + RULES)\n\n\n"
    "def short(question):\n    return send(OTHER + 'You are a helper. ' * 40 + question)\n",
}


@pytest.fixture
def program(tmp_path):
    for name, text in PROGRAM.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("words.py", "It is", "It is now", {"dated"}),
        ("words.py", "return 1", "return 2", set()),
        ("words.py", "def unused", "def opening2", set()),
        ("rules.py", "manual", "handbook", {"dated", "plain", "short"}),  # one statement imports both names
        ("rules.py", "'z'", "'y'", set()),
        ("app.py", "'Question: '", "'Asked: '", {"plain"}),
        ("app.py", "model='m'", "model='n'", {"send", "dated", "plain", "short"}),
    ],
)
def test_what_reads_a_changed_part_is_read_again(program, taken, file, old, new, expected):
    live = Live(Settings(program))
    assert rows(live.look({}).report)
    taken.clear()
    changed = {program / file: PROGRAM[file].replace(old, new)}
    assert rows(live.look(changed, quick=True).report) == fresh(program, changed)
    assert set(taken) == expected
    taken.clear()
    live.look(changed, quick=True)
    assert taken == []


def test_a_function_that_is_worth_following_now_is_followed(tmp_path):
    """Nobody read its body before: it was too long for what it held."""
    dull = "\n".join(f"    part_{number} = {number}" for number in range(12))
    path = tmp_path / "app.py"
    text = (
        "import anthropic\nfrom datetime import datetime\n\nRULES = 'Answer from the manual only. ' * 40\n\n\n"
        "def ask(question):\n    lines = ['You are a helper.']\n    widen(lines)\n    lines.append(RULES)\n"
        "    system = ' '.join(lines)\n"
        "    return anthropic.Anthropic().messages.create(model='m', max_tokens=9, system=system, messages=[])\n\n\n"
        f"def widen(lines):\n{dull}\n"
    )
    path.write_text(text)
    live = Live(Settings(tmp_path))
    assert not rows(live.look({}).report)
    line = "lines.append(f'It is {datetime.now()} now, and the shop is open from nine in the morning until six.')"
    changed = {path: text.replace("part_5 = 5", line)}
    assert rows(live.look(changed, quick=True).report) == fresh(tmp_path, changed) != []


def test_a_hasty_look_leaves_other_files_to_the_next_one(program, taken):
    (program / "far.py").write_text(
        "from app import send\n\n\ndef far(prompt):\n    return send('Far. ' * 60 + prompt)\n"
    )
    live = Live(Settings(program))
    live.look({})
    taken.clear()
    for name in ("n", "o"):  # what waits goes on waiting while more is typed
        changed = {program / "app.py": PROGRAM["app.py"].replace("model='m'", f"model='{name}'")}
        look = live.look(changed, quick=True, hasty=True)
        assert look.waiting
    assert set(taken) == {"send", "dated", "plain", "short"}
    taken.clear()
    look = live.look(changed, quick=True)
    assert not look.waiting
    assert set(taken) == {"far"}
    assert look.report.call_sites == check(Settings(program), Request((program,), program, changed)).call_sites


def test_the_list_of_messages_of_another_file_has_its_place_in_the_function_that_was_read(tmp_path):
    (tmp_path / "texts.py").write_text(
        "\n\n\n\ndef opening(name):\n    messages = [{'role': 'system', 'content': f'{name} ' + 'Be kind. ' * 60}]\n    return messages\n"
    )
    (tmp_path / "app.py").write_text(
        "from texts import opening\n\n\ndef begin(name, prompt):\n    opened = opening(name)\n"
        "    opened.append({'role': 'user', 'content': prompt.format(name=name)})\n    return opened\n"
    )
    prompts = Live(Settings(tmp_path)).look({}).analysis.reading.prompts
    places = {(prompt.path, prompt.span.path) for prompt in prompts}
    assert ("app.py", "app.py") in {(Path(one).name, Path(other).name) for one, other in places}
    for prompt in prompts:
        assert prompt.span.line <= len((tmp_path / Path(prompt.span.path).name).read_text().splitlines())


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
