"""What belongs to a project, what is linted, and what is left out with which reason."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from promptlint.app.discovery import discover, project_root
from promptlint.config import Settings
from promptlint.errors import UserError


def tree(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def walk(root: Path, *paths: str, **changes: object):
    settings = replace(Settings(root), **changes)
    return discover(settings, [root / path for path in paths] or [root], display=root)


def roles(found, root: Path) -> dict[str, str]:
    return {
        item.path.relative_to(root).as_posix(): item.why if item.role == "skipped" else item.role
        for item in found.listed
    }


def test_root_is_the_nearest_project_file_else_git_else_the_folder(tmp_path):
    tree(tmp_path, "repo/.git/HEAD", "repo/app/promptlint.toml", "repo/app/a/b.py", "repo/other/c.py", "alone/d.py")
    assert project_root(tmp_path / "repo/app/a") == tmp_path / "repo/app"
    assert project_root(tmp_path / "repo/app/a/b.py") == tmp_path / "repo/app"
    assert project_root(tmp_path / "repo/other/c.py") == tmp_path / "repo"
    assert project_root(tmp_path / "alone") == tmp_path / "alone"


def test_beside_a_lone_file_only_packages_and_folders_of_prompts_are_read(tmp_path):
    names = "a.py", "b.py", "pkg/__init__.py", "pkg/sub/c.py", "prompts/p.txt", "strangers/d.py"
    tree(tmp_path, *(f"{folder}/{name}" for folder in ("home", "project") for name in names), "project/pyproject.toml")
    found = roles(walk(tmp_path / "home", "a.py"), tmp_path / "home")
    assert found == {
        "a.py": "python", "b.py": "python", "pkg/__init__.py": "python", "pkg/sub/c.py": "python", "prompts/p.txt": "prompt",
        "strangers": "beside a lone file, and no package",
    }  # fmt: skip
    assert roles(walk(tmp_path / "home", "strangers"), tmp_path / "home")["strangers/d.py"] == "python"
    assert roles(walk(tmp_path / "project", "a.py"), tmp_path / "project")["strangers/d.py"] == "python"


def test_roles_by_name_and_place(tmp_path):
    tree(
        tmp_path,
        "a.py", "b.jinja", "c.j2", "d.prompty", "e.prompt", "notes.md", "data.yaml", "run.sh",
        "prompts/f.txt", "prompts/g.md", "prompts/deep/h.yaml", "pkg/__init__.py", "pkg/i.yaml", "pkg/sub/j.json", "pkg/k.txt",
    )  # fmt: skip
    found = walk(tmp_path)
    assert roles(found, tmp_path) == {
        "a.py": "python", "b.jinja": "jinja", "c.j2": "jinja", "d.prompty": "prompt", "e.prompt": "prompt", "notes.md": "context",
        "data.yaml": "context", "prompts/f.txt": "prompt", "prompts/g.md": "prompt", "prompts/deep/h.yaml": "prompt",
        "pkg/__init__.py": "python", "pkg/i.yaml": "prompt", "pkg/sub/j.json": "prompt", "pkg/k.txt": "context",
    }  # fmt: skip
    assert [path.name for path in found.jinja] == ["b.jinja", "c.j2"]
    assert set(found.files) == found.given


def test_only_given_paths_are_given_but_all_is_context(tmp_path):
    tree(tmp_path, "pyproject.toml", "app/a.py", "lib/b.py", "lib/c.jinja")
    found = walk(tmp_path, "app")
    assert found.given == {tmp_path / "app/a.py"}
    assert found.files == [tmp_path / "app/a.py", tmp_path / "lib/b.py", tmp_path / "lib/c.jinja"]
    assert found.jinja == []


def test_tests_are_off_by_default_and_on_when_named(tmp_path):
    tree(tmp_path, "a.py", "test_a.py", "a_test.py", "conftest.py", "tests/helper.py", "tests/deep/p.jinja")
    assert roles(walk(tmp_path), tmp_path) == {
        "a.py": "python", "test_a.py": "test file", "a_test.py": "test file", "conftest.py": "test file", "tests": "test folder",
    }  # fmt: skip
    assert walk(tmp_path, "test_a.py").given == {tmp_path / "test_a.py"}
    assert walk(tmp_path, "tests").given == {tmp_path / "tests/helper.py", tmp_path / "tests/deep/p.jinja"}
    assert len(walk(tmp_path, tests=True).given) == 6


def test_a_folder_above_the_root_called_tests_says_nothing(tmp_path):
    root = tmp_path / "tests" / "case"
    tree(root, "a.py")
    assert walk(root).given == {root / "a.py"}


def test_folders_never_walked(tmp_path):
    tree(
        tmp_path,
        ".venv/a.py",
        "node_modules/b.py",
        "env/pyvenv.cfg",
        "env/c.py",
        "build/d.py",
        "pkg/build/e.py",
        "x.egg-info/f.py",
    )
    assert roles(walk(tmp_path), tmp_path) == {
        ".venv": "excluded by default", "node_modules": "excluded by default", "env": "virtual environment",
        "build": "excluded by default", "pkg/build/e.py": "python", "x.egg-info": "excluded by default",
    }  # fmt: skip
    assert walk(tmp_path, "build").given == {tmp_path / "build/d.py"}


def test_notebooks_are_a_problem_to_report(tmp_path):
    tree(tmp_path, "a.ipynb", "b.py")
    found = walk(tmp_path)
    assert [(item.path, item.reason) for item in found.problems] == [("a.ipynb", "notebooks are not supported")]
    assert found.given == {tmp_path / "b.py"}


def test_gitignore_nested_negated_and_from_above(tmp_path):
    tree(
        tmp_path,
        ".git/info/exclude",
        "gen/a.py",
        "gen/keep.py",
        "app/b.py",
        "app/tmp_c.py",
        "app/sub/tmp_d.py",
        "app/local/e.py",
        "secret.py",
    )
    (tmp_path / ".gitignore").write_text("gen/*\n!gen/keep.py\ntmp_*.py\n")
    (tmp_path / "app/.gitignore").write_text("/local/\n!tmp_c.py\n")
    (tmp_path / ".git/info/exclude").write_text("secret.py\n")
    ignored = {name for name, role in roles(walk(tmp_path), tmp_path).items() if role == "ignored by .gitignore"}
    assert ignored == {"gen/a.py", "app/sub/tmp_d.py", "app/local", "secret.py"}
    below = discover(Settings(tmp_path / "app"), [tmp_path / "app"], display=tmp_path)
    assert below.given == {tmp_path / "app/b.py", tmp_path / "app/tmp_c.py"}
    assert walk(tmp_path, "gen/a.py", "app/local").given == {tmp_path / "gen/a.py", tmp_path / "app/local/e.py"}
    assert len(walk(tmp_path, respect_gitignore=False).given) == 7


def test_include_and_exclude(tmp_path):
    tree(tmp_path, "a.py", "old/b.py", "app/gen/c.py", "notes.tpl", "app/d.md")
    found = walk(
        tmp_path, exclude=("old",), extend_exclude=("app/gen/*.py",), include=("*.tpl",), extend_include=("app/*.md",)
    )
    assert {path.name for path in found.given} == {"a.py", "notes.tpl", "d.md"}
    assert [path.name for path in found.prompts] == ["d.md", "notes.tpl"]
    assert walk(tmp_path, "old/b.py", exclude=("old",)).given == {tmp_path / "old/b.py"}


def test_a_named_file_is_always_read(tmp_path):
    tree(tmp_path, "a.weird", "notes.txt")
    found = walk(tmp_path, "a.weird", "notes.txt")
    assert found.prompts == [tmp_path / "a.weird", tmp_path / "notes.txt"]


def test_missing_paths_and_broken_links_are_errors(tmp_path):
    tree(tmp_path, "a.py")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name, words in (("nope", "does not exist"), ("dangling", "is a link to nothing"), ("loop", "symbolic links")):
        with pytest.raises(UserError, match=words):
            walk(tmp_path, "a.py", name)


def test_pipes_are_never_opened(tmp_path):
    tree(tmp_path, "a.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert walk(tmp_path).given == {tmp_path / "a.py"}
    with pytest.raises(UserError, match="neither a file nor a folder; `-` reads stdin"):
        walk(tmp_path, "pipe.py")


def test_link_loops_are_told_and_the_walk_ends(tmp_path):
    tree(tmp_path, "a/b/c.py")
    (tmp_path / "a/b/up").symlink_to("..")
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    found = walk(tmp_path)
    assert found.given == {tmp_path / "a/b/c.py"}
    assert sorted(item.path for item in found.problems) == ["a/b/up", "x", "y"]
    assert {item.reason for item in found.problems} == {"symbolic link loop, not followed"}


def test_links_to_files_outside_are_read_inside_are_not(tmp_path):
    tree(tmp_path, "project/a.py", "shared/b.py")
    (tmp_path / "project/outside.py").symlink_to("../shared/b.py")
    (tmp_path / "project/inside.py").symlink_to("a.py")
    found = walk(tmp_path / "project")
    assert {path.name for path in found.given} == {"a.py", "outside.py"}


def test_unreadable_folder(tmp_path, monkeypatch):
    tree(tmp_path, "locked/a.py", "b.py")
    real = os.scandir

    def scandir(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = walk(tmp_path)
    assert [(item.path, item.reason) for item in found.problems] == [
        ("locked", "folder cannot be read: Permission denied")
    ]
    assert found.given == {tmp_path / "b.py"}


def test_nested_and_repeated_paths_count_once(tmp_path):
    tree(tmp_path, "app/a.py", "app/sub/b.py", "app/test_c.py")
    found = walk(tmp_path, "app", "app/sub", "app/a.py")
    assert found.files == [tmp_path / "app/a.py", tmp_path / "app/sub/b.py"]
    assert len(found.listed) == 3


def test_force_exclude_holds_for_named_files(tmp_path):
    tree(
        tmp_path,
        "pyproject.toml",
        "a.py",
        "test_a.py",
        "old/b.py",
        "tests/c.py",
        "node_modules/d.py",
        "gen/e.py",
        "x/gen.py",
    )
    (tmp_path / ".gitignore").write_text("gen/\n")
    names = ("a.py", "test_a.py", "old/b.py", "tests/c.py", "node_modules/d.py", "gen/e.py", "x/gen.py")
    assert len(walk(tmp_path, *names, exclude=("old",)).given) == 7
    found = walk(tmp_path, *names, exclude=("old",), force_exclude=True)
    assert found.given == {tmp_path / "a.py", tmp_path / "x/gen.py"}
    assert {item.why for item in found.listed if item.role == "skipped"} >= {
        "test file", "test folder", "excluded by the configuration", "excluded by default", "ignored by .gitignore",
    }  # fmt: skip


def test_a_models_folder_keeps_its_chat_template_in_json(tmp_path):
    tree(tmp_path, "model/tokenizer_config.json", "model/chat_template.json", "model/config.json")
    found = walk(tmp_path)
    assert sorted(path.name for path in found.prompts) == ["chat_template.json", "tokenizer_config.json"]
