"""Reading a revision runs nothing that the repository's own configuration names."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from desk_project import commit, git

from promptlint.app.revision import checked_out, hunks
from promptlint.errors import UserError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "app.py").write_text("one = 1\n")
    (folder / "link").symlink_to("app.py")
    (folder / "naïve name.txt").write_bytes(b"caf\xe9\r\nno end")
    (folder / ".gitattributes").write_text("*.py filter=own diff=own\n*.txt filter=own\n")
    commit(folder)
    return folder


def arm(folder: Path) -> Path:
    """Lets the repository's configuration name a program at every place where git takes one; the file that tells of a run."""
    ran = folder.parent / "ran"
    program = folder.parent / "program"
    program.write_text(f'#!/bin/sh\necho "$0 $*" >> "{ran}"\ncat\n')
    program.chmod(0o755)
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    for key in (
        "core.fsmonitor",
        "diff.external",
        "filter.own.clean",
        "filter.own.smudge",
        "filter.own.process",
        "diff.own.command",
        "diff.own.textconv",
        "core.sshCommand",
        "core.pager",
        "core.alternateRefsCommand",
    ):
        git(folder, "config", key, str(program))
    git(folder, "config", "filter.own.required", "true")
    ran.unlink(missing_ok=True)
    return ran


def test_the_files_are_those_that_git_stores(repository: Path) -> None:
    with checked_out("HEAD", repository) as checkout:
        assert (checkout.folder / "naïve name.txt").read_bytes() == b"caf\xe9\r\nno end"
        assert (checkout.folder / "link").readlink() == Path("app.py")
        assert (checkout.folder / "link").read_text() == "one = 1\n"
        assert checkout.place(repository / "app.py") == checkout.folder / "app.py"


def test_no_program_of_the_repository_runs(repository: Path) -> None:
    ran = arm(repository)
    (repository / "app.py").write_text("one = 1\ntwo = 2\n")
    with checked_out("HEAD", repository) as checkout:
        assert (checkout.folder / "app.py").read_text() == "one = 1\n"
    assert hunks("HEAD", repository) == {"app.py": [(1, 2)]}
    assert not ran.exists(), ran.read_text()
    # The same configuration does run programs for who does not take care.
    with contextlib.suppress(subprocess.CalledProcessError):
        git(repository, "diff", "HEAD")
    assert ran.exists()


def test_what_a_clone_left_out_is_not_fetched(repository: Path, tmp_path: Path) -> None:
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", repository.as_uri(), "partial")
    with pytest.raises(UserError, match="does not hold the file"), checked_out("HEAD", tmp_path / "partial"):
        pass


def test_no_protocol_that_the_repository_allows_is_used(repository: Path, tmp_path: Path) -> None:
    git(repository, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", repository.as_uri(), "partial")
    clone, ran = tmp_path / "partial", tmp_path / "ran"
    git(clone, "config", "protocol.ext.allow", "always")
    git(clone, "config", "remote.origin.url", f"ext::sh -c touch% {ran}")
    with pytest.raises(UserError, match="does not hold the file"), checked_out("HEAD", clone):
        pass
    assert not ran.exists()
    with pytest.raises(subprocess.CalledProcessError):
        git(clone, "cat-file", "-p", "HEAD:app.py")
    assert ran.exists()


def test_a_filter_that_cannot_be_switched_off_is_refused(repository: Path) -> None:
    ran = arm(repository)
    (repository / ".gitattributes").write_text("*.py filter=a=b\n")
    git(repository, "config", "filter.a=b.clean", str(repository.parent / "program"))
    (repository / "app.py").write_text("two = 2\n")
    with pytest.raises(UserError, match="cannot be switched off"):
        hunks("HEAD", repository)
    assert not ran.exists(), ran.read_text()


def test_a_forged_tree_writes_nothing_through_its_links(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    def written(kind: str, content: bytes) -> str:
        """An object as it is, which git itself would not make."""
        command = ["git", "-C", str(repository), "hash-object", "--literally", "-t", kind, "-w", "--stdin"]
        return subprocess.run(command, input=content, capture_output=True, check=True).stdout.decode().strip()

    def tree(*entries: tuple[str, str, str]) -> str:
        return written(
            "tree", b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(sha) for mode, name, sha in entries)
        )

    link = written("blob", str(outside).encode())
    for mode in ("100644", "120000"):
        inner = tree((mode, "e", link))
        forged = git(repository, "commit-tree", "-m", "x", tree(("120000", "d", link), ("40000", "d", inner)))
        with pytest.raises(UserError, match="temporary folder"), checked_out(forged, repository):
            pass
    assert list(outside.iterdir()) == []
