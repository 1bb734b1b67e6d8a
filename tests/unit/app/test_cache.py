"""Cached reports: served while nothing has changed, ignored in every other case, and harmless when damaged."""

from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from promptlint.app import cache as storage
from promptlint.app import check as pipeline
from promptlint.app.check import Request, check
from promptlint.checks.runner import CheckResult
from promptlint.config import Settings
from promptlint.ir import Reading


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "p.txt").write_text("hello\n")
    runs: list[Path] = []

    def read(project, discovery, extra):
        runs.append(project.root)
        for path in discovery.files:
            project.source(path)
        project.source(tmp_path / "elsewhere.cfg")  # code looked for a file that is not there
        return Reading()

    monkeypatch.setattr(pipeline, "read_project", read)
    monkeypatch.setattr(
        pipeline, "run", lambda reading, rules, assumptions: CheckResult((), (), {"profile": "typical"})
    )
    return tmp_path, runs


def once(root: Path, **changes: object):
    return check(replace(Settings(root), **changes), Request((root,), root))


def test_second_run_reads_nothing(project):
    root, runs = project
    first = once(root)
    assert once(root) == first
    assert len(runs) == 1
    check(Settings(root), Request((root,), root), use_cache=False)
    assert len(runs) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "a.py").write_text("x = 2\n"),
        lambda root: (root / "prompts/p.txt").write_text("hello!\n"),
        lambda root: (root / "b.py").write_text(""),
        lambda root: (root / "a.py").unlink(),
        lambda root: (root / "elsewhere.cfg").write_text(""),
        lambda root: (root / "new.tpl").write_text(""),  # code may look for it
    ],
)
def test_any_change_is_noticed(project, change):
    root, runs = project
    once(root)
    change(root)
    once(root)
    assert len(runs) == 2


def test_a_python_file_that_was_looked_at_without_being_read_counts(project, monkeypatch):
    root, _ = project
    runs = []
    monkeypatch.setattr(pipeline, "read_project", lambda project, *_, **_more: runs.append(project) or Reading())
    once(root)
    once(root)
    assert len(runs) == 1
    (root / "a.py").write_text("x = 'now a prompt'\n")
    once(root)
    assert len(runs) == 2


def test_contents_count_and_not_times(project):
    root, runs = project
    once(root)
    os.utime(root / "a.py", (1, 1))
    once(root)
    assert len(runs) == 1
    same_size = root / "a.py"
    state = same_size.stat()
    same_size.write_text("x = 3\n")
    os.utime(same_size, ns=(state.st_atime_ns, state.st_mtime_ns))
    once(root)
    assert len(runs) == 2


def test_settings_and_request_are_part_of_the_key(project):
    root, runs = project
    once(root)
    for changes in ({"persona": "auditor"}, {"ignore": ("housekeeping",)}, {"profile": "high"}):
        once(root, **changes)
    check(Settings(root), Request((root / "a.py",), root))
    check(Settings(root), Request((root,), root, changed=True))
    assert len(runs) == 6
    once(root, output_format="json", fail_on="high")
    assert len(runs) == 6


def test_our_own_code_and_rules_are_part_of_the_key(project, monkeypatch, tmp_path):
    root, runs = project
    once(root)
    monkeypatch.setattr(storage, "_own_digest", lambda: "another version")
    once(root)
    extra = tmp_path / "rules"
    extra.mkdir()
    once(root, extra_rules=(extra,))
    (extra / "x.toml").write_text("")
    once(root, extra_rules=(extra,))
    assert len(runs) == 4


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"files": {}, "report": {}}',
        b'{"files": [], "report": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_damaged_entries_are_ignored(project, damage):
    root, runs = project
    expected = once(root)
    (entry,) = (root / storage.FOLDER).glob("check-*.json")
    entry.write_bytes(damage)
    assert once(root) == expected
    assert len(runs) == 2
    assert once(root) == expected
    assert len(runs) == 2


def test_entries_are_private_and_marked(project):
    root, _ = project
    once(root)
    folder = root / storage.FOLDER
    (entry,) = folder.glob("check-*.json")
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    assert (folder / ".gitignore").read_text() == "*\n"
    assert (folder / "CACHEDIR.TAG").exists()
    assert [path.name for path in folder.iterdir() if path.name.startswith(".writing")] == []


def test_an_entry_holds_the_report_and_digests_only(project):
    root, _ = project
    (root / "a.py").write_text('SECRET = "the text of a prompt"\n')
    once(root)
    (entry,) = (root / storage.FOLDER).glob("check-*.json")
    assert "the text of a prompt" not in entry.read_text()
    assert set(json.loads(entry.read_text())) == {"files", "report"}


def test_a_folder_that_cannot_be_written_costs_nothing_else(project):
    root, runs = project
    (root / "blocked").write_text("a file, not a folder")
    report = once(root, cache_dir=root / "blocked" / "cache")
    assert report.summary.files == 2
    once(root, cache_dir=root / "blocked" / "cache")
    assert len(runs) == 2


def test_parallel_runs(project):
    root, _ = project
    reports = []
    threads = [threading.Thread(target=lambda: reports.append(once(root))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 8
    assert all(report == reports[0] for report in reports)
    assert len(list((root / storage.FOLDER).glob("check-*.json"))) == 1
    assert not list((root / storage.FOLDER).glob(".writing-*"))


def test_a_cache_inside_the_project_is_none_of_its_files(project):
    root, runs = project
    for _ in range(2):
        once(root, cache_dir=root / "out" / "cache")
    assert len(runs) == 1


def test_old_entries_are_removed(project, monkeypatch):
    root, _ = project
    monkeypatch.setattr(storage, "MAX_ENTRIES", 2)
    for profile in ("low", "typical", "high"):
        once(root, profile=profile)
    assert len(list((root / storage.FOLDER).glob("check-*.json"))) == 2
    assert storage.clear(root / storage.FOLDER) == 2


def test_token_counts_are_remembered_between_runs(project, monkeypatch):
    from promptlint import tokenizers
    from promptlint.analysis import assumptions

    root, _ = project
    monkeypatch.setattr(assumptions, "remembered", {})
    monkeypatch.setattr(storage, "remembered", assumptions.remembered)
    text = "a text of its own for this test"
    assumptions.count_tokens.cache_clear()
    monkeypatch.setattr(
        pipeline, "run", lambda *_: (assumptions.count_tokens("o200k_base", text), CheckResult((), (), {}))[1]
    )
    once(root)
    counts = json.loads((root / storage.FOLDER / "tokens.json").read_text())
    assert list(counts.values()) == [8]
    assert text not in str(counts)
    assumptions.count_tokens.cache_clear()
    assumptions.remembered.clear()
    monkeypatch.setattr(tokenizers, "get", lambda name: pytest.fail("an encoding was loaded"))
    once(root, profile="high")
    (root / storage.FOLDER / "tokens.json").write_text("{broken")
    assumptions.remembered.clear()
    once(root, profile="low")
