"""The CI recipes of the README and docs/ci.md do what they say: their commands run as they stand there, and their YAML is what its reader expects."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from xml.etree.ElementTree import parse

import pytest
import yaml
from action_harness import ROOT, install
from desk_project import CLOCKED, STILL, commit, git, project

PAGES = "".join((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/ci.md"))


def recipe(name: str) -> dict:
    """A YAML recipe by the comment that names its file."""
    return yaml.safe_load(re.search(rf"```yaml\n(# {re.escape(name)}\n.*?)```", PAGES, re.DOTALL)[1])


@pytest.fixture
def change(tmp_path):
    """A repository whose newest commit brings a clock; its base, and how a line of shell runs there."""
    folder = project(tmp_path / "p", app=STILL, old=CLOCKED)
    base = commit(folder)
    (folder / "app.py").write_text(CLOCKED)
    commit(folder)
    install(tmp_path)

    def shell(line: str, **environment: str) -> int:
        path = f"{tmp_path / 'promptlint-venv' / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-ec", line], cwd=folder, env={"PATH": path, "HOME": str(tmp_path), **environment}, check=False
        ).returncode

    return folder, base, shell


def test_gitlab(change):
    folder, base, shell = change
    job = recipe(".gitlab-ci.yml")["promptlint"]
    quality, diff = job["script"]
    assert shell(quality) == 0
    found = json.loads((folder / job["artifacts"]["reports"]["codequality"]).read_text())
    assert {item["check_name"] for item in found} == {"clock-in-prefix"}
    assert all(
        item["location"]["lines"] if "lines" in item["location"] else item["location"]["positions"] for item in found
    )
    assert shell(diff, CI_MERGE_REQUEST_DIFF_BASE_SHA=base) == 1
    assert shell(diff, CI_MERGE_REQUEST_DIFF_BASE_SHA="HEAD") == 0


def test_plain_ci(change):
    folder, base, shell = change
    lines = re.search(r"with `BASE` the revision to compare with:\n\n```sh\n(.*?)```", PAGES, re.DOTALL)[1].splitlines()
    assert [shell(line, BASE=base) for line in lines] == [1, 1]
    assert len(list(parse(folder / "promptlint.xml").iter("failure"))) == 1
    assert "94 % → 0&#46;3 %" in (folder / "promptlint.md").read_text()
    assert [shell(line, BASE="HEAD") for line in lines] == [0, 0]
    assert git(folder, "status", "--porcelain", "--untracked-files=no") == ""


def test_github_recipes_use_inputs_that_exist():
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    for name in (".github/workflows/promptlint.yml", ".github/workflows/promptlint-forks.yml"):
        workflow = recipe(name)
        (job,) = workflow["jobs"].values()
        assert job["steps"][0].get("with", {}).keys() <= action["inputs"].keys()
        assert "contents" not in workflow["permissions"] or workflow["permissions"]["contents"] == "read"
    assert recipe(".github/workflows/promptlint-forks.yml")[True]["workflow_run"]["workflows"] == [
        recipe(".github/workflows/promptlint.yml")["name"]
    ]


def test_the_action_passes_every_input_through_the_environment():
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    text = json.dumps(action["runs"])
    assert all(f"inputs.{name} " in text for name in action["inputs"])
    assert all("${{" not in step.get("run", "") for step in action["runs"]["steps"])
    pinned = (ROOT / ".github" / "action" / "requirements.txt").read_text()
    dependencies = re.search(
        r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.DOTALL | re.MULTILINE
    )[1]
    for name in re.findall(r'"([\w-]+)', dependencies):
        assert f"\n{name.lower()}==" in pinned, f"{name} is not pinned for the action"


def test_published_hooks():
    hooks = yaml.safe_load(Path(ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert [(hook["id"], hook.get("pass_filenames", True)) for hook in hooks] == [
        ("promptlint", True),
        ("promptlint-project", False),
    ]
