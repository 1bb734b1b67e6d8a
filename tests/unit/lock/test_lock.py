"""The lock: a cache key that changed without it fails, anything else does not."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from desk_project import CLOCKED, STILL, project, promptlint

from promptlint.app.lock import lock_schema


@pytest.fixture
def locked(tmp_path):
    folder = project(tmp_path / "p", app=STILL)
    done = promptlint("show", "--no-cache", "--write-lock", cwd=folder)
    assert done.returncode == 0
    assert done.stderr.endswith("promptlint.lock\n")
    return folder


def check(folder, *args):
    return promptlint(
        "check", "--no-cache", "--exit-zero" if "--exit-zero" in args else "--locked", "--locked", *args, cwd=folder
    )


def test_it_holds_key_tokens_and_order(locked):
    data = json.loads((locked / "promptlint.lock").read_text())
    ((site, row),) = data["call_sites"].items()
    assert site.startswith("app.py::ask::anthropic")
    shown = json.loads(promptlint("show", "--output-format", "json", cwd=locked).stdout)["call_sites"][0]
    assert row == {
        "cache_key": shown["cache_key"],
        "prefix_tokens": shown["cacheable_prefix_tokens"],
        "blocks": [block["kind"] for block in shown["blocks"]],
    }
    assert row["prefix_tokens"] > 800


def test_it_follows_its_published_schema(locked, request):
    published = Path(__file__).parents[3] / "promptlint" / "schemas" / "lock.json"
    text = json.dumps(lock_schema(), indent=2) + "\n"
    if request.config.getoption("--update-golden"):
        published.write_text(text, "utf-8")
    assert published.read_text("utf-8") == text, "run pytest --update-golden"
    data = json.loads((locked / "promptlint.lock").read_text())
    jsonschema.validate(data, lock_schema())
    data["call_sites"]["x"] = {"cache_key": "sha256:0"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, lock_schema())


def test_moved_lines_and_other_folders_change_nothing(locked):
    (locked / "app.py").write_text("import os\n\n" + STILL)
    (locked / "deep").mkdir()
    assert (check(locked).returncode, check(locked).stderr) == (0, "")
    assert promptlint("check", "--no-cache", "--locked", "..", cwd=locked / "deep").returncode == 0


def test_a_changed_key_fails_until_the_lock_is_written(locked):
    (locked / "app.py").write_text(STILL.replace("Answer from", "Reply from", 1))
    done = check(locked)
    assert done.returncode == 1
    assert "app.py::ask::anthropic" in done.stderr
    assert "the cache key changed" in done.stderr
    assert check(locked, "--exit-zero").returncode == 0
    promptlint("show", "--no-cache", "--write-lock", cwd=locked)
    assert check(locked).returncode == 0


def test_new_and_gone_call_sites_are_named_and_do_not_fail(locked):
    (locked / "app.py").rename(locked / "desk.py")
    done = check(locked)
    assert done.returncode == 0
    assert "desk.py::ask::anthropic.messages.create: not in promptlint.lock yet" in done.stderr
    assert "but gone from the code" in done.stderr
    assert "gone" not in check(locked, "desk.py").stderr


def test_writing_for_some_paths_keeps_the_rest(locked):
    (locked / "other.py").write_text(CLOCKED)
    promptlint("show", "--no-cache", "--write-lock", "other.py", cwd=locked)
    sites = json.loads((locked / "promptlint.lock").read_text())["call_sites"]
    assert [site.split("::")[0] for site in sites] == ["app.py", "other.py"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"schema": "promptlint.lock/1", "call_sites": {"a": {}}}',
        '{"schema": "promptlint.lock/1", "call_sites": {"a": {"cache_key": "k", "prefix_tokens": 1e400, "blocks": []}}}',
        '{"schema": "promptlint.lock/1", "call_sites": {"a": {"cache_key": "k", "prefix_tokens": 1, "blocks": "tools"}}}',
        '{"schema": "x"}',
        "<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> theirs\n",
    ],
)
def test_a_lock_that_is_none(locked, content):
    (locked / "promptlint.lock").write_text(content)
    for done in (check(locked), promptlint("show", "--no-cache", "--write-lock", cwd=locked)):
        assert done.returncode == 2
        assert done.stderr.startswith("promptlint: error: ")
        assert "promptlint.lock: " in done.stderr
        assert "remove it" in done.stderr
    (locked / "promptlint.lock").unlink()  # what the message says
    assert promptlint("show", "--no-cache", "--write-lock", cwd=locked).returncode == 0
    assert check(locked).returncode == 0


def test_no_lock(tmp_path):
    done = check(project(tmp_path / "p", app=STILL))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no lock" in done.stderr
