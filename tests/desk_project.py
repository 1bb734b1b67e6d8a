"""Small projects with prompts, and git histories of them, for the tests of baseline, lock, diff and the GitHub side."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from click.testing import CliRunner

from promptlint.cli import cli

RULES = "Answer from the manual only. Name the page that you used.\n" * 75

CLOCKED = f'''\
import datetime as dt

import anthropic

RULES = """{RULES}"""


def ask(client: anthropic.Anthropic, question: str):
    system = f"Now: {{dt.datetime.now()}}\\n{{RULES}}"
    return client.messages.create(model="m", max_tokens=9, system=system, messages=[{{"role": "user", "content": question}}])
'''
STILL = CLOCKED.replace('f"Now: {dt.datetime.now()}\\n{RULES}"', "RULES")
assert STILL != CLOCKED


def promptlint(*args: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in this process, which spares loading the tokenizer for each call."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(cli, [str(arg) for arg in args], env=environment, prog_name="promptlint")
    return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)


def project(folder: Path, **files: str) -> Path:
    """A project with these Python files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text("")
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def git(folder: Path, *args: str) -> str:
    """Run git there, free of the machine's own settings."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | {
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org",
    }  # fmt: skip
    return subprocess.run(
        ["git", "-C", str(folder), *args], check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


def commit(folder: Path) -> str:
    """Everything in the folder as one more commit; its hash."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "work")
    return git(folder, "rev-parse", "HEAD")
