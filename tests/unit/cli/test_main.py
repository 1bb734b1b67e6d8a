"""The command line itself: lazy commands, one line of help each, exit statuses, whose turn an error is."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from promptlint.cli import LazyGroup, cli, main, short_help
from promptlint.errors import UserError

FOLDER = Path(importlib.import_module("promptlint.cli").__file__).parent
COMMANDS = cli.list_commands(click.Context(cli))
HEAVY = {
    "yaml",
    "libcst",
    "jinja2",
    "tiktoken",
    "quicktok",
    "numpy",
    "msgspec",
    "pathspec",
    "promptlint.catalog",
    "promptlint.ir",
    "pathlib",
}


def run(*args: str, **extra):
    return CliRunner().invoke(cli, args, prog_name="promptlint", **extra)


def test_there_is_a_command_for_each_file():
    assert {"check", "show", "explain", "rules"} <= set(COMMANDS)
    files = {path.stem.replace("_", "-") for path in FOLDER.glob("*.py") if not path.name.startswith("_")}
    assert set(COMMANDS) == files


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_its_files(name):
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.help
    assert short_help(name).endswith("."), "the first line of the module's docstring is its line in the list"
    assert run(name, "--help").exit_code == 0


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["-h"]])
def test_help_and_version_load_nothing_heavy(args):
    code = (
        f"import sys; sys.argv[1:] = {args!r}\n"
        "import click, runpy\n"
        "before = set(sys.modules)\n"
        "from promptlint.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "print(*sorted(set(sys.modules) - before), sep='\\n', file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert not loaded & HEAVY
    assert {name for name in loaded if name.startswith("promptlint")} <= {
        "promptlint", "promptlint.cli", "promptlint.errors",
    }  # fmt: skip


def test_unknown_commands_and_options():
    result = run("chek")
    assert result.exit_code == 2
    assert "No such command 'chek'. Did you mean 'check'?" in result.stderr
    assert run("check", "--nope").exit_code == 2
    assert run("nothing-like-it").exit_code == 2


def group(function) -> LazyGroup:
    class One(LazyGroup):
        def get_command(self, ctx, cmd_name):
            return click.Command(cmd_name, callback=function)

    return One("promptlint")


def raising(error):
    def function():
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "status", "words"),
    [
        (lambda: None, 0, ""),
        (lambda: 0, 0, ""),
        (lambda: 1, 1, ""),
        (
            raising(UserError("config.toml:3: no\nsuch \x1b[31mkey")),
            2,
            "promptlint: error: config.toml:3: no such \\x1b[31mkey\n",
        ),
        (raising(click.UsageError("wrong")), 2, "wrong"),
        (raising(KeyboardInterrupt()), 130, "interrupted"),
        (raising(click.Abort()), 130, "interrupted"),
        (raising(ZeroDivisionError("ours")), 2, "this is a bug in promptlint"),
    ],
)
def test_exit_statuses(function, status, words):
    result = CliRunner().invoke(group(function), ["check"])
    assert result.exit_code == status
    assert words in result.stderr
    assert ("Traceback" in result.stderr) == (words.startswith("this is a bug"))


def test_a_reader_that_goes_away_is_no_error():
    code = "import sys; sys.argv[1:] = ['rules']\nfrom promptlint.cli import main\nmain()\n"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() in (0, 141)


@pytest.mark.parametrize("arguments", [["rules"], ["--help"], ["traffic", "synth", "chat"]])
@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_a_stdout_that_takes_nothing_is_one_line(arguments, where):
    """A full disk behind a redirection, and a stdout that was closed before we began."""
    code = f"import sys; sys.argv[1:] = {arguments!r}\nfrom promptlint.cli import main\nmain()\n"
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {where}', sys.executable, code], capture_output=True, text=True, check=False
    )
    quiet = where == ">&-" and arguments == ["--help"]  # click prints its own texts to no stdout without a word
    assert (done.returncode, done.stderr.count("\n")) == ((0, 0) if quiet else (2, 1)), done.stderr
    assert quiet or done.stderr.startswith(
        ("promptlint: error: output cannot be written: ", "promptlint: error: stdout is closed")
    )


def test_main_ends_the_process(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["promptlint", "--version"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("promptlint ")
