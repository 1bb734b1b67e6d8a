"""Options that commands share, output, and colours."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from promptlint.cli import _common, cli
from promptlint.cli._common import (
    emit,
    foreign_owners,
    settings_of,
    settings_options,
    use_color,
    warn,
    warn_unsupported,
)
from promptlint.errors import UserError
from promptlint.report.model import UnsupportedItem

NOTHING = click.command("x")(settings_options(lambda **given: given)).main([], standalone_mode=False)
NOTHING.pop("no_cache")
"""What click passes on when none of the options is given."""


def settings(root: Path, **given):
    return settings_of(root, {**NOTHING, **given})


def test_the_command_line_comes_after_the_file(tmp_path):
    (tmp_path / "promptlint.toml").write_text(
        'select = ["order"]\nignore = ["a"]\npersona = "auditor"\n[per-file-ignores]\n"x.py" = ["b"]\n'
    )
    plain = settings(tmp_path)
    assert (plain.root, plain.select, plain.persona) == (tmp_path, ("order",), "auditor")
    changed = settings(
        tmp_path,
        select=("history,tokens", "order"),
        ignore=("c",),
        persona="regular",
        per_file_ignores=("y/*.py:d,e",),
        exclude=("gen",),
        tests=True,
    )
    assert changed.select == ("history", "tokens", "order")
    assert changed.ignore == ("a", "c")
    assert changed.persona == "regular"
    assert changed.per_file_ignores == (("x.py", ("b",)), ("y/*.py", ("d", "e")))
    assert changed.extend_exclude == ("gen",)
    assert changed.tests
    assert settings(tmp_path, isolated=True).select == ()


def test_every_option_is_used(tmp_path):
    given = dict(NOTHING)
    settings_of(tmp_path, given)
    assert given == {}


def test_a_named_configuration_file(tmp_path):
    (tmp_path / "other.toml").write_text('persona = "pedantic"\n')
    assert settings(tmp_path, config=tmp_path / "other.toml").persona == "pedantic"


@pytest.mark.parametrize("text", ["nocolon", ":rule"])
def test_per_file_ignores_need_a_pattern(tmp_path, text):
    with pytest.raises(UserError, match="PATTERN:RULES"):
        settings(tmp_path, per_file_ignores=(text,))


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "output", "expected"),
    [
        ("auto", {}, True, None, True),
        ("auto", {}, False, None, False),
        ("auto", {}, True, Path("x"), False),
        ("auto", {"NO_COLOR": "1"}, True, None, False),
        ("auto", {"NO_COLOR": ""}, True, None, True),
        ("auto", {"FORCE_COLOR": "1"}, False, None, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, None, False),
        ("auto", {"TERM": "dumb"}, True, None, False),
        ("always", {"NO_COLOR": "1"}, False, None, True),
        ("never", {"FORCE_COLOR": "1"}, True, None, False),
    ],
)
def test_colors(monkeypatch, choice, environment, terminal, output, expected):
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert use_color(choice, output) is expected


def test_output_to_a_file_and_to_one_that_cannot_be_written(tmp_path):
    emit("ü\ud800\n", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_bytes() == "ü\\ud800\n".encode()
    with pytest.raises(UserError, match="cannot be written"):
        emit("x", tmp_path / "missing" / "out.txt")


def test_output_that_the_terminal_cannot_encode(monkeypatch):
    import io

    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    emit("ü…\n", None)
    assert raw.getvalue() == b"\\xfc\\u2026\n"


def test_warnings_are_escaped_and_a_long_list_is_cut(capsys):
    warn(["a\x1b[31m.py: bad", *(str(number) for number in range(30))])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "warning: a\\x1b[31m.py: bad"
    assert len(lines) == _common.MAX_WARNINGS + 1
    assert lines[-1].startswith("warning: and 11 more")


def test_another_distribution_that_owns_our_package(tmp_path, monkeypatch):
    monkeypatch.setattr(_common, "__file__", str(tmp_path / "promptlint" / "cli" / "_common.py"))
    for name, record in (("promptlint_cli-1.0", "promptlint/__init__.py,,\n"), ("promptlint_cache-0.1.0", "promptlint/__init__.py,,\n"), ("promptlint_x-1", "other.py,,\n")):  # fmt: skip
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "RECORD").write_text(record)
    assert foreign_owners() == ["promptlint_cli"]


def test_notebooks_share_one_warning(capsys):
    rows = [UnsupportedItem(path, 1, "no") for path in ("a.ipynb", "b.py", "c.ipynb")]
    warn_unsupported(rows)
    assert capsys.readouterr().err == "warning: b.py:1: no\nwarning: a.ipynb and 1 more: notebooks are not supported\n"
    warn_unsupported(rows[:1])
    assert capsys.readouterr().err == "warning: a.ipynb: notebooks are not supported\n"


@pytest.mark.parametrize(
    "words", [["diagnose", "--observed"], ["advise", "--observed"], ["diff", "HEAD", "--max-hit-rate-drop"]]
)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_refused(words, value):
    done = CliRunner().invoke(cli, [*words, value])
    assert done.exit_code == 2
    assert "Invalid value" in done.stderr
