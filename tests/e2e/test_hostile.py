"""The promises of SECURITY.md, each by an attempt to break it: projects that want to run, write, reach out, exhaust, or paint the terminal."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from promptlint.app import record
from promptlint.app.atomic import write_text
from promptlint.app.check import Request, check
from promptlint.app.measured import load_measured
from promptlint.app.traffic import open_traffic
from promptlint.catalog.models import model_from_config
from promptlint.cli import cli, crash_report
from promptlint.config import FORMATS, Settings
from promptlint.errors import UserError
from promptlint.frontends.jinja import lex, tree
from promptlint.report import render
from promptlint.traffic.read import Traffic

TOP = Path(__file__).resolve().parents[2]
RULES = "Answer from the manual only. " * 40
APP = f"""import datetime, openai
RULES = "{RULES}"
openai.OpenAI().chat.completions.create(model="gpt-4o", messages=[{{"role": "system", "content": f"Now: {{datetime.datetime.now()}} {{RULES}}"}}])
"""


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path


def run(folder: Path, *arguments: str, **more) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(TOP), "PROMPTLINT_WORKERS": "1"}
    return subprocess.run([sys.executable, "-m", "promptlint", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False, **more)  # fmt: skip


def report_of(folder: Path):
    return check(Settings(folder, persona="auditor"), Request((folder,), folder), use_cache=False)


def reasons(report) -> str:
    return "\n".join(item.reason for item in report.unsupported)


def test_nothing_of_the_project_is_executed_written_or_connected(tmp_path):
    project, beside = tmp_path / "project", tmp_path / "beside"
    beside.mkdir()
    bait = f"import pathlib\npathlib.Path({str(beside / 'executed')!r}).write_text(__name__)\n"
    modules = "yaml jinja2 click libcst numpy msgspec tiktoken pathspec quicktok sitecustomize usercustomize conftest setup tomllib json_ app"
    for name in modules.split():
        put(project, f"{name}.py", bait)
    put(project, "click/__init__.py", bait)
    put(project, "yaml/__init__.py", bait)
    put(project, "agent.py", bait + "import yaml, app\n" + APP)
    put(
        project,
        "pyproject.toml",
        '[project]\nname = "p"\n[project.entry-points.pytest11]\nx = "conftest"\n[tool.promptlint]\n',
    )
    put(project, "p.egg-info/entry_points.txt", "[console_scripts]\npromptlint = conftest:main\n")
    put(project, "prompts/escape.j2", "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}{{ cycler.__init__.__globals__.os.system('touch " + str(beside / "executed") + "') }}")  # fmt: skip
    put(
        project,
        "prompts/object.yaml",
        f"system: !!python/object/apply:os.system ['touch {beside / 'executed'}']\nx: You are {{a}}. {RULES}\n",
    )
    # A network that answers nothing: whoever connects leaves a mark.
    guard = put(tmp_path, "guard/sitecustomize.py", f"import socket\ndef refuse(*_):\n    open({str(beside / 'connected')!r}, 'w')\n    raise OSError('no network')\nsocket.socket.connect = refuse\n")  # fmt: skip
    before = sorted(tmp_path.rglob("*"))
    environment = {**os.environ, "PYTHONPATH": f"{guard.parent}{os.pathsep}{TOP}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-m", "promptlint", "check", ".", "--output-format", "concise"], cwd=project, env=environment, capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "clock-in-prefix" in done.stdout
    new = [path for path in tmp_path.rglob("*") if path not in before]
    assert list(beside.iterdir()) == []
    assert all(".promptlint_cache" in path.parts for path in new)


def test_what_the_cache_keeps_is_private_and_holds_no_prompt(tmp_path):
    put(tmp_path, "agent.py", APP)
    put(tmp_path, "pyproject.toml", "[tool.promptlint]\n")
    assert run(tmp_path, "check").returncode == 1
    kept = [path for path in (tmp_path / ".promptlint_cache").iterdir() if path.suffix == ".json"]
    assert kept
    for path in kept:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "Answer from the manual only. Answer" not in path.read_text()


def test_lock_baseline_and_output_are_private_when_new_and_keep_their_mode(tmp_path):
    put(tmp_path, "agent.py", APP)
    put(tmp_path, "pyproject.toml", "[tool.promptlint]\n")
    put(tmp_path, "b.json", "").chmod(0o644)
    assert run(tmp_path, "show", "--write-lock").returncode == 0
    assert run(tmp_path, "check", "--write-baseline", "b.json").returncode == 0
    assert run(tmp_path, "check", "-o", "out.json", "--output-format", "json").returncode == 1
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("promptlint.lock", "b.json", "out.json")]
    assert modes == [0o600, 0o644, 0o600]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = put(tmp_path, "kept.json", "old")
    code = f"import resource, signal, pathlib\nfrom promptlint.app.atomic import write_text\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\nwrite_text(pathlib.Path({str(path)!r}), 'x' * 5000)"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(TOP)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "File too large" in done.stderr
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["kept.json"]


def test_a_full_disk_leaves_no_broken_cache_and_no_broken_source(tmp_path):
    put(tmp_path, "agent.py", APP)
    put(tmp_path, "pyproject.toml", "[tool.promptlint]\n")
    put(tmp_path, "promptlint.lock", "{}")

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    assert run(tmp_path, "check", preexec_fn=limit).returncode == 1
    done = run(tmp_path, "check", "--fix", "--unsafe-fixes", preexec_fn=limit)
    assert done.returncode in (1, 2)
    assert (tmp_path / "agent.py").read_text() == APP
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith((".writing-", ".promptlint-", ".agent"))]
    assert run(tmp_path, "check").returncode == 1


def test_an_interrupt_leaves_whole_files(tmp_path):
    for number in range(12):
        put(tmp_path, f"agent{number}.py", APP)
    put(tmp_path, "pyproject.toml", "[tool.promptlint]\n")
    environment = {**os.environ, "PYTHONPATH": str(TOP)}
    for delay in (0.15, 0.4, 0.8):
        with subprocess.Popen([sys.executable, "-m", "promptlint", "check", "-o", "out.txt"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as process:  # fmt: skip
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
        out = tmp_path / "out.txt"
        assert not out.exists() or out.read_text().rstrip().splitlines()[-1]
        for path in (tmp_path / ".promptlint_cache").glob("*.json"):
            json.loads(path.read_text())
        assert not list(tmp_path.rglob(".promptlint-*.tmp"))


def test_a_link_stays_one_and_what_is_no_file_is_written_to(tmp_path):
    target = put(tmp_path, "target", "old")
    (tmp_path / "link").symlink_to(target)
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "new"
    write_text(Path("/dev/null"), "gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_link_in_the_place_of_the_cache_or_of_a_file_in_it_is_not_followed(tmp_path, monkeypatch):
    victim = put(tmp_path, "home/tokens.json", '{"mine": true}')
    project = tmp_path / "project"
    put(project, "app.py", APP)
    (project / ".promptlint_cache").symlink_to(victim.parent)
    settings, request = Settings(project), Request((project,), project)
    assert check(settings, request).findings
    assert [path.name for path in victim.parent.iterdir()] == ["tokens.json"]
    (project / ".promptlint_cache").unlink()
    (project / ".promptlint_cache").mkdir()
    (project / ".promptlint_cache/tokens.json").symlink_to(victim)
    put(project, "app.py", APP.replace("manual", "book of the links"))  # text that was not counted before
    assert check(settings, request).findings
    assert victim.read_text() == '{"mine": true}'
    kept = project / ".promptlint_cache/tokens.json"
    assert kept.stat().st_size > 2
    assert not kept.is_symlink()

    # Keys of recordings are tidied up: of what a link leads to, nothing may go.
    monkeypatch.chdir(project)
    letters = [put(tmp_path, f"home/letters/{number}", "dear") for number in range(70)]
    (project / ".promptlint_cache/record-keys").symlink_to(letters[0].parent)
    record.keep_key(b"k" * 32)
    assert len(list(letters[0].parent.iterdir())) == 70


def test_names_links_and_loops(tmp_path):
    project, outside = tmp_path / "project", put(tmp_path, "outside/secret.py", APP)
    for name in ("-rf.py", "--fix.py", "-", "a b.py", "\x1b[31mred\x07.py", "new\nline.py", "\u202eevil.py"):
        put(project, name if name.endswith(".py") else f"{name}.py", APP)
    (project / "loop").symlink_to(project)
    (project / "self.py").symlink_to(project / "self.py")
    (project / "out.py").symlink_to(outside)
    os.mkfifo(project / "pipe.py")
    done = run(project, "check", ".", "--no-cache")
    assert done.returncode == 1
    assert not set(done.stdout + done.stderr) & {"\x1b", "\x07", "\u202e"}
    fixed = run(project, "check", "--fix", "--unsafe-fixes", "--no-cache", ".")
    assert fixed.returncode in (0, 1), fixed.stderr
    assert outside.read_text() == APP
    assert "agent" not in run(project, "check", "--", "-rf.py").stderr


@pytest.mark.parametrize("form", FORMATS)
def test_escapes_of_a_terminal_stay_escapes(tmp_path, form):
    put(
        tmp_path,
        "a\x1b[2Jb.py",
        APP.replace("Now:", "\x1b]0;title\x07\u202e Now:").replace(
            "datetime.datetime.now()", "datetime.datetime.now()"
        ),
    )
    text = render(report_of(tmp_path), form, color=False)
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\x9b"}


DEEP = 100_000
HUGE = {
    "brackets": "(" * DEEP + "x" + ")" * DEEP,
    "nots": "not " * DEEP + "x",
    "attributes": "a" + ".b" * DEEP,
    "calls": "f" + "()" * DEEP,
    "sum": "+".join(["RULES"] * DEEP),
    "width": "f'{1:>9999999999}'",
    "percent-width": "'%999999999999d' % 1",
    "format-width": "'{:>9999999999}'.format(1)",
    "product": "'a' * 10**10",
    "power": "str(9**9**9)",
    "replaced": "('a' * 100000).replace('a', 'b' * 100000)",
    "keys": "'" + "%(" * 50_000 + "' % {}",
    "slots": "'" + "{a} " * 100_000 + "'.format(a=1)",
    "nested-strings": 'f"{' * 500 + "x" + '}"' * 500,
    "range": "''.join(str(i) for i in range(10**12))",
}
DOUBLED = {
    "text": ("s = f'ab{x}'\n", "s = s + s\n"),
    "slots": ("s = f'ab{x}'\n", "s = f'{s}{s}'\n"),
    "list": ("s = [x]\n", "s = s + s\n"),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_program_that_would_grow_without_end_does_not(tmp_path, name):
    put(tmp_path, "agent.py", APP.replace("RULES", "RULES", 1) + f"openai.OpenAI().chat.completions.create(model='m', messages=[{{'role': 'system', 'content': {HUGE[name]}}}])\n")  # fmt: skip
    used = time.process_time()
    report_of(tmp_path)
    assert time.process_time() - used < 20


@pytest.mark.parametrize("name", DOUBLED)
def test_values_that_double_themselves_are_reported(tmp_path, name):
    first, again = DOUBLED[name]
    put(tmp_path, "agent.py", "import openai\n" + first + again * 100 + "openai.OpenAI().chat.completions.create(model='m', messages=[{'role': 'system', 'content': str(s)}])\n")  # fmt: skip
    assert "too large to follow" in reasons(report_of(tmp_path))


@pytest.mark.parametrize("name, template", [
    ("brackets", "{{ " + "(" * 20_000 + "x" + ")" * 20_000 + " }}"), ("filters", "{{ x" + "|upper" * 20_000 + " }}"), ("ifs", "{% if x %}" * 5_000 + "{% endif %}" * 5_000),
    ("itself", "{% include 'a.j2' %}{% extends 'a.j2' %}"), ("macros", "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}"), ("doubled", "{% set a = x %}" + "{% set a = a ~ a %}" * 200 + "{{ a }}"),
    ("chat-loop", "{% for m in messages %}{{ m.content }}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"),
    ("chat-memory", "{% for m in messages %}{{ m.content }}{{ '%99999999999d'|format(1) }}{% endfor %}"),
])  # fmt: skip
def test_templates_without_end(tmp_path, name, template):
    put(tmp_path, "prompts/a.j2", f"You are a helper. {template} {RULES}")
    report_of(tmp_path)


def test_a_template_of_tags_alone_is_named_and_not_read(tmp_path, monkeypatch):
    put(tmp_path, "prompts/a.j2", "You are a helper. " + "{{ x }} " * 600_000)
    monkeypatch.setattr(lex, "environment", None)
    assert "more than 50,000 tags" in reasons(report_of(tmp_path))


def test_a_template_that_includes_itself_twice_is_parsed_once(tmp_path, monkeypatch):
    parsed = []
    parse = tree.parse
    monkeypatch.setattr(tree, "parse", lambda text, where, **more: parsed.append(text) or parse(text, where, **more))
    put(tmp_path, "prompts/a.j2", "You are a helper. {% include 'a.j2' %} x {% include 'a.j2' %} " + RULES)
    report_of(tmp_path)
    assert 1 <= len(parsed) <= 3  # as a root, and as what is included


def test_data_files_that_unfold(tmp_path):
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
    )
    put(tmp_path, "prompts/bomb.yaml", bomb + f"system: You are {{name}}. {RULES}\n")
    put(tmp_path, "prompts/deep.json", "[" * DEEP + "]" * DEEP)
    put(tmp_path, "prompts/number.json", '{"a": ' + "9" * 50_000 + f', "system": "You are {{x}}. {RULES}"}}')
    put(tmp_path, "prompts/slots.json", '{"system": "' + "You are {x}. " * 50_000 + '"}')
    put(tmp_path, "prompts/self.yaml", "a: &a [*a]\n")
    report_of(tmp_path)


@pytest.mark.parametrize(
    "read",
    [model_from_config, load_measured, lambda path: open_traffic(["-"], tools=path)],
    ids=["model", "measured", "tools"],
)
def test_json_that_nests_without_end_is_an_error_of_one_line(tmp_path, read):
    with pytest.raises(UserError, match="deep"):
        read(put(tmp_path, "deep.json", "[" * 200_000))


@pytest.mark.parametrize("name", ["promptlint.toml", "extra/providers/own.toml"])
def test_settings_that_nest_without_end_are_an_error_of_one_line(tmp_path, name):
    put(tmp_path, "promptlint.toml", 'extra-rules = ["extra"]\n')
    put(tmp_path, name, "x = " + "[" * 20_000 + "\n")
    done = run(tmp_path, "providers")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not valid TOML" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "cookie", ["utf-7", "rot13", "zlib_codec", "punycode", "undefined", "idna", "no-such", "raw_unicode_escape"]
)
def test_odd_encodings(tmp_path, cookie):
    put(tmp_path, "agent.py", f"# coding: {cookie}\n{APP}")
    put(tmp_path, "nul.py", APP.encode() + b"\0")
    put(tmp_path, "wide.py", APP.encode("utf-16"))
    assert "nul.py" in {item.path.rpartition("/")[2] for item in report_of(tmp_path).unsupported}


def test_a_file_beyond_the_bound_is_named(tmp_path):
    put(tmp_path, "agent.py", f'X = "{"prompt " * 800_000}"\n')
    assert "larger than 5 MB" in reasons(report_of(tmp_path))


class Bomb:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_traffic_that_wants_more_than_to_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "dump.pkl", pickle.dumps({"requests": [(Bomb(), Bomb(), 1.0, 2.0)]}))
    body = gzip.compress(b"\0" * (200 << 20), 1)
    import base64

    packed = base64.b64encode(body).decode()
    put(
        tmp_path,
        "cassette.yaml",
        f"interactions:\n- request:\n    uri: https://api.openai.com/v1/chat/completions\n    body: !!binary {packed}\n  response: {{}}\nversion: 1\n",
    )
    put(tmp_path, "deep.jsonl", "[" * DEEP + "\n" + '{"a":' * DEEP + "\n")
    put(tmp_path, "otlp.jsonl", json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": "5x"}}]}]}]}]}) + "\n")  # fmt: skip
    traffic = Traffic([tmp_path])
    list(traffic)
    assert not (tmp_path / "executed").exists()
    assert any("unfolds to more than" in problem.reason for problem in traffic.problems)


def test_a_crash_report_names_places_and_no_text(monkeypatch):
    def fail():
        try:
            raise KeyError("sk-secret-key")
        except KeyError as error:
            raise ValueError("the prompt says: obey") from error

    with pytest.raises(ValueError) as caught:
        fail()
    text = crash_report(caught.value)
    assert "KeyError" in text
    assert "ValueError" in text
    assert "in fail" in text
    assert "PROMPTLINT_TRACEBACK" in text
    assert "sk-secret-key'" not in text.replace('raise KeyError("sk-secret-key")', "")
    assert "the prompt says: obey\n" not in text
    monkeypatch.setenv("PROMPTLINT_TRACEBACK", "full")
    assert "ValueError: the prompt says: obey" in crash_report(caught.value)


def test_an_internal_error_ends_with_the_report(monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("sk-1234 in a message")

    monkeypatch.setattr("promptlint.app.check.check", broken)
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", "--no-cache", str(TOP / "examples/support_bot")])
    assert ended.value.code == 2
    text = capsys.readouterr().err
    assert "RuntimeError" in text
    assert "this is a bug in promptlint" in text
    assert "RuntimeError: " not in text
