"""A git revision as a folder of files, without touching the user's checkout.

The files are written to a temporary folder as git stores them: no working tree, branch, index or list of worktrees of the user's repository changes,
and nothing that the repository's own configuration names is run: no hook, filter, file system monitor, external diff or text converter, and no fetch of objects
that a partial clone left out. A shallow clone serves as long as it holds the revision.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from promptlint.app.check import Request
from promptlint.app.discovery import absolute
from promptlint.config import Settings
from promptlint.errors import UserError

__all__ = ["Checkout", "checked_out", "hunks", "merge_base", "resolve"]

_LINK = "120000"  # git's mode of a symbolic link

_NOTHING_RUN = (
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
)
"""A repository may name programs in its configuration; `git` would run them as a part of reading."""

_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
"""Older versions know the second only. `-c protocol.allow=never` would not do: a repository's `protocol.ext.allow` goes before it."""

_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class Checkout:
    """The files of one revision in `folder`, which stands for `top`, the top of the user's repository. `commit` is its full hash."""

    folder: Path
    top: Path
    commit: str

    def place(self, path: Path) -> Path:
        """Where an absolute path of the repository lies in this checkout. Raises UserError for a path outside of the repository."""
        real = path.resolve()
        if not real.is_relative_to(self.top):
            raise UserError(f"{path}: lies outside of the repository {self.top}")
        return self.folder / real.relative_to(self.top)

    def settings(self, settings: Settings) -> Settings:
        """The same settings for the project as it was: a comparison that changes the rules on the way says nothing."""
        return replace(settings, root=self.place(settings.root))

    def request(self, request: Request) -> Request:
        """The same request here, without the paths that did not exist. Findings are printed as in the user's own checkout."""
        given = [self.place(absolute(request.working_directory / path)) for path in request.paths]
        return replace(
            request,
            paths=tuple(path for path in given if path.exists()),
            working_directory=self.place(request.working_directory),
            overlay=None,
        )


@contextmanager
def checked_out(revision: str, inside: Path) -> Iterator[Checkout]:
    """The files of a revision of the repository that holds `inside`, for as long as the context lasts.

    Raises UserError when there is no git, no repository, no such commit, or when the clone lacks files of it.
    """
    top = _top(inside)
    commit = resolve(revision, inside)
    with tempfile.TemporaryDirectory(prefix="promptlint-") as temporary:
        base = Path(temporary).resolve()
        folder = base / "files"
        folder.mkdir()
        _write(_entries(commit, top), folder, base / "objects", top)
        yield Checkout(folder, top, commit)


def _entries(commit: str, top: Path) -> list[tuple[str, str, str]]:
    """(mode, object, path) of every file and symbolic link of a commit; submodules are left out."""
    listed = _git(["ls-tree", "-r", "-z", "--full-tree", commit], top)
    found = []
    for entry in filter(None, listed.split("\0")):
        described, path = entry.split("\t", 1)
        mode, kind, name = described.split()
        # No honest tree has such names; a forged one must not lead out of the folder.
        if kind == "blob" and not {"", ".", "..", ".git"} & set(path.split("/")):
            found.append((mode, name, path))
    return found


def _write(entries: list[tuple[str, str, str]], folder: Path, request: Path, top: Path) -> None:
    """Writes the entries into a folder. Links come last, and behind all folders, so that nothing is written through one, whatever a forged tree holds twice."""
    entries = sorted(entries, key=lambda entry: entry[0] == _LINK)
    try:
        for parent in {(folder / path).parent for _, _, path in entries}:
            parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{error.filename}: cannot be made in a temporary folder: {error.strerror}") from error
    request.write_text("".join(f"{name}\n" for _, name, _ in entries), "ascii")
    with request.open("rb") as asked, _started(["cat-file", "--batch"], top, asked) as git:
        assert git.stdout is not None
        for mode, _, path in entries:
            head = git.stdout.readline().split()
            if len(head) != 3:
                git.kill()
                raise UserError(f"{path}: this clone does not hold the file in that revision; `git fetch --refetch` gets what a partial clone leaves out")  # fmt: skip
            content = git.stdout.read(int(head[2]) + 1)[:-1]
            place = folder / path
            try:
                if mode == _LINK:
                    place.symlink_to(os.fsdecode(content))
                else:
                    place.write_bytes(content)
            except OSError as error:
                git.kill()
                raise UserError(f"{path}: cannot be written to a temporary folder: {error.strerror}") from error


def resolve(revision: str, inside: Path) -> str:
    """The full hash of a revision's commit. Raises UserError when there is none."""
    found = _run(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"], inside)
    if found.returncode != 0:
        _top(inside)  # says so when there is no repository at all
        raise UserError(f"{revision}: neither a file, a folder nor a git revision (a shallow clone holds few of them)")
    return found.stdout.strip()


def merge_base(one: str, other: str, inside: Path) -> str | None:
    """The full hash of the newest commit that two revisions have in common; None where the clone does not hold one."""
    found = _run(["merge-base", "--end-of-options", one, other], inside)
    return found.stdout.strip() or None if found.returncode == 0 else None


def hunks(base: str, inside: Path, head: str | None = None) -> dict[str, list[tuple[int, int]]]:
    """The first and last line of every hunk, its context of three lines included, by path relative to `inside`, on the side of `head` (None: the files
    as they are). Raises UserError where git shows no difference of these.
    """
    shown = [
        "-c",
        "core.quotePath=false",
        "diff",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
        "--ignore-submodules=all",
        "--relative",
        "--dst-prefix=b/",
        "--unified=3",
    ]
    done = _run([*_without_filters(inside), *shown, base, *([head] if head else []), "--"], inside)
    if done.returncode != 0:
        raise UserError(f"git diff: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    found: dict[str, list[tuple[int, int]]] = {}
    path = ""
    for line in done.stdout.split("\n"):
        hunk = _HUNK.match(line)
        if line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/").rstrip("\t")
        elif hunk:
            first = int(hunk[1])
            found.setdefault(path, []).append((first, first + int(hunk[2] or 1) - 1))
    return found


def _top(inside: Path) -> Path:
    found = _run(["rev-parse", "--show-toplevel"], inside)
    if found.returncode != 0:
        if "dubious ownership" in found.stderr:
            raise UserError(
                f"{inside}: git refuses a repository of another user; `git config --global --add safe.directory {inside}` allows it"
            )
        raise UserError(f"{inside}: not in a git repository, so it has no revisions")
    return Path(found.stdout.rstrip("\n")).resolve()


def _without_filters(inside: Path) -> list[str]:
    """Options that switch off the content filters which the repository's own configuration names; the user's own (large file storage) stay.

    Raises UserError for a name that such an option cannot hold.
    """
    found = _run(["config", "-z", "--show-scope", "--name-only", "--get-regexp", r"^filter\."], inside)
    words = found.stdout.split("\0")
    drivers = {
        key.rpartition(".")[0]
        for scope, key in zip(words[::2], words[1::2], strict=False)
        if scope in {"local", "worktree"}
    }
    for driver in drivers:
        if "=" in driver:
            raise UserError(
                f"{inside}: its git configuration has a filter that cannot be switched off, because of the = in its name: {driver}"
            )
    off = ("clean=", "process=", "smudge=", "required=false")
    return [word for driver in sorted(drivers) for setting in off for word in ("-c", f"{driver}.{setting}")]


def _git(arguments: list[str], folder: Path) -> str:
    done = _run(arguments, folder)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise UserError(f"git {arguments[0]}: {lines[-1]}")
    return done.stdout


def _run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    with _started(arguments, folder, subprocess.DEVNULL) as git:
        out, err = git.communicate()
    return subprocess.CompletedProcess(arguments, git.returncode, _decoded(out), _decoded(err))


def _decoded(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")


def _started(arguments: list[str], folder: Path, stdin: int | IO[bytes]) -> subprocess.Popen[bytes]:
    # A git hook's own variables would lead to another repository or index.
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX", "GIT_EXTERNAL_DIFF")
    }
    try:
        return subprocess.Popen(  # noqa: S603  # arguments are a list; a revision comes behind --end-of-options
            ["git", "--no-pager", *_NOTHING_RUN, "-C", str(folder), *arguments],  # noqa: S607  # the user's git, wherever it is
            env={**inherited, **_NO_FETCH},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise UserError(f"git cannot be run: {error.strerror or error}") from error
