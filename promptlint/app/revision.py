"""A git revision as a folder of files, without touching the user's checkout.

The files are written to a temporary folder through a temporary index: no working tree, branch, index or list of worktrees of the user's
repository changes, and no hook runs, as one would with `git worktree add`. A shallow clone serves as long as it holds the revision.
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

from promptlint.app.check import Request
from promptlint.app.discovery import absolute
from promptlint.config import Settings
from promptlint.errors import UserError

__all__ = ["Checkout", "checked_out", "hunks", "merge_base", "resolve"]

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

    Raises UserError when there is no git, no repository, or no such commit.
    """
    top = _top(inside)
    commit = resolve(revision, inside)
    with tempfile.TemporaryDirectory(prefix="promptlint-") as temporary:
        base = Path(temporary).resolve()
        folder = base / "files"
        folder.mkdir()
        index = {"GIT_INDEX_FILE": str(base / "index"), "GIT_LFS_SKIP_SMUDGE": "1"}  # large files are no prompts
        _git(["read-tree", commit], top, index)
        _git(["checkout-index", "--all", "--force", f"--prefix={folder}/"], top, index)
        yield Checkout(folder, top, commit)


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
        "--relative",
        "--dst-prefix=b/",
        "--unified=3",
    ]
    done = _run([*shown, base, *([head] if head else []), "--"], inside)
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


def _git(arguments: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    done = _run(arguments, folder, environment)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise UserError(f"git {arguments[0]}: {lines[-1]}")


def _run(
    arguments: list[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    # A git hook's own variables would lead to another repository or index.
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX")
    }
    try:
        return subprocess.run(  # noqa: S603  # arguments are a list; a revision comes behind --end-of-options
            ["git", "-C", str(folder), *arguments],  # noqa: S607  # the user's git, wherever it is
            env={**inherited, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except OSError as error:
        raise UserError(f"git cannot be run: {error.strerror or error}") from error
