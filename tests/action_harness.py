"""Runs the steps of a composite action as a GitHub runner does: expressions, environment, outputs, the commands that a step prints.

Inputs may reach a script through `env` only: an expression inside `run` is refused. The actions that ours uses are played by functions, by name; `install` is
replaced by a script that runs the code under test. Nothing here knows what the action does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
_TOKEN = re.compile(r"\s*(&&|\|\||==|!=|\(|\)|'(?:[^']|'')*'|[\w.-]+)")


@dataclass
class Finished:
    """What became of a run of the action."""

    failed: bool = False
    outputs: dict[str, str] = field(default_factory=dict)
    summary: str = ""
    log: str = ""
    annotations: list[tuple[str, str]] = field(default_factory=list)
    used: list[tuple[str, dict[str, str]]] = field(default_factory=list)


def run_action(
    workspace: Path,
    temporary: Path,
    inputs: Mapping[str, str],
    github: Mapping[str, Any],
    environment: Mapping[str, str],
    play: Mapping[str, Callable[[dict[str, str]], None]],
) -> Finished:
    """Run action.yml in a workspace. `github` is the context of that name, `environment` what the runner sets, `play` stands for other actions."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    unknown = inputs.keys() - action["inputs"].keys()
    assert not unknown, unknown
    context: dict[str, Any] = {"github": dict(github), "steps": {}}
    defaults = {name: expand(str(item.get("default", "")), context) for name, item in action["inputs"].items()}
    context["inputs"] = {**defaults, **inputs}
    done = Finished()
    for step in action["runs"]["steps"]:
        condition = str(step.get("if", "true"))
        if (done.failed and "always()" not in condition) or not truthy(evaluate(condition, context)):
            continue
        if "uses" in step:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"]), f"not pinned: {step['uses']}"
            given = {key: expand(str(value), context) for key, value in step.get("with", {}).items()}
            name = step["uses"].partition("@")[0]
            done.used.append((name, given))
            if name in play:
                play[name](given)
            continue
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an expression in a script is an injection"
        if step.get("id") == "install":
            install(temporary)
            continue
        variables = {key: expand(str(value), context) for key, value in step.get("env", {}).items()}
        outputs = _run(step["run"], workspace, temporary, {**environment, **variables}, done)
        context["steps"][step["id"]] = {"outputs": outputs}
    done.outputs = {name: expand(item["value"], context) for name, item in action["outputs"].items()}
    return done


def install(temporary: Path) -> None:
    """What the install step leaves, with the code under test and the Python of the tests."""
    script = temporary / "promptlint-venv" / "bin" / "promptlint"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m promptlint "$@"\n')
    script.chmod(0o755)


def _run(script: str, workspace: Path, temporary: Path, variables: Mapping[str, str], done: Finished) -> dict[str, str]:
    files = {name: temporary / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for path in files.values():
        path.write_text("")
    step = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=workspace,
        env={"PATH": os.environ["PATH"], "HOME": str(temporary), "RUNNER_TEMP": str(temporary), **{name: str(path) for name, path in files.items()}, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
        timeout=120,
    )  # fmt: skip
    done.failed |= step.returncode != 0
    done.log += step.stdout
    done.summary += files["GITHUB_STEP_SUMMARY"].read_text("utf-8")
    done.annotations += commands(step.stdout)
    return parse_outputs(files["GITHUB_OUTPUT"].read_text("utf-8"))


def commands(log: str) -> list[tuple[str, str]]:
    """The workflow commands that a runner would obey in a step's output, (command with properties, message); `stop-commands` is honoured."""
    found = []
    stopped = ""
    for line in log.splitlines():
        line = line.strip()
        if stopped:
            if line == f"::{stopped}::":
                stopped = ""
            continue
        match = re.match(r"::([^:]+)::(.*)", line) or re.search(r"##\[([\w-]+)[^\]]*\](.*)", line)
        if match and match[1] == "stop-commands":
            stopped = match[2]
        elif match:
            found.append((match[1], match[2]))
    return found


def parse_outputs(text: str) -> dict[str, str]:
    """GITHUB_OUTPUT in its multi-line form."""
    outputs = {}
    lines = iter(text.splitlines())
    for line in lines:
        name, _, delimiter = line.partition("<<")
        value = []
        for more in lines:
            if more == delimiter:
                break
            value.append(more)
        outputs[name] = "\n".join(value)
    return outputs


def expand(text: str, context: Mapping[str, Any]) -> str:
    """The text with its `${{ }}` evaluated."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: word(evaluate(match[1], context)), text)


def word(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def truthy(value: Any) -> bool:
    return value not in (None, "", False, 0)


def evaluate(text: str, context: Mapping[str, Any]) -> Any:
    """The part of GitHub's expression language that action.yml uses: strings, contexts, always(), ==, !=, && and ||."""
    text = text.strip().removeprefix("${{").removesuffix("}}").replace("always()", "true").strip()
    tokens = _TOKEN.findall(text)
    assert "".join(tokens) == re.sub(r"\s+(?=(?:[^']*'[^']*')*[^']*$)", "", text), f"cannot read {text!r}"
    value = _either(tokens, context)
    assert not tokens, tokens
    return value


def _either(tokens: list[str], context: Mapping[str, Any]) -> Any:
    value = _both(tokens, context)
    while tokens[:1] == ["||"]:
        tokens.pop(0)
        other = _both(tokens, context)
        value = value if truthy(value) else other
    return value


def _both(tokens: list[str], context: Mapping[str, Any]) -> Any:
    value = _compared(tokens, context)
    while tokens[:1] == ["&&"]:
        tokens.pop(0)
        other = _compared(tokens, context)
        value = other if truthy(value) else value
    return value


def _compared(tokens: list[str], context: Mapping[str, Any]) -> Any:
    value = _operand(tokens, context)
    if tokens[:1] in (["=="], ["!="]):
        equal = tokens.pop(0) == "=="
        return (word(value).lower() == word(_operand(tokens, context)).lower()) == equal
    return value


def _operand(tokens: list[str], context: Mapping[str, Any]) -> Any:
    token = tokens.pop(0)
    if token == "(":
        value = _either(tokens, context)
        assert tokens.pop(0) == ")"
        return value
    if token.startswith("'"):
        return token[1:-1].replace("''", "'")
    if token in ("true", "false"):
        return token == "true"
    value: Any = context
    for key in token.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def clone(repository: Path, commit: str, target: Path, depth: int) -> None:
    """What actions/checkout does: a shallow, detached checkout of one commit."""
    from desk_project import git

    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    git(target, "init", "-q")
    git(target, "fetch", "-q", "--depth", str(depth), f"file://{repository}", commit)
    git(target, "checkout", "-q", "--detach", "FETCH_HEAD")
