"""Reports of earlier runs, kept so that a run with nothing changed costs no analysis.

One entry is one report. Its name is a hash of everything that decides the outcome but the contents of files: our own code
and rules, the settings, the request, the list of files. The entry holds a digest of every file that was read, and serves only while all of them still match;
so it is the contents that count, never times of modification. Files of more than `MAX_FILE_BYTES` are never read and are compared by size and time.

Parallel runs are safe: an entry is written beside its place and moved there in one step, readable by its owner only. A damaged entry,
or a folder that cannot be written, costs an analysis and nothing else. So does a symbolic link in the place of the folder: a project can bring one along,
and what it leads to is not ours to write or to tidy up. An entry holds no more of a prompt than the report does.

Beside the reports lie the token counts of texts, by digest: when one file has changed, the rest need not be counted again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from promptlint import __version__
from promptlint.analysis.assumptions import remembered
from promptlint.app.atomic import write_text
from promptlint.app.discovery import Discovery
from promptlint.catalog import rules_root
from promptlint.config import Settings
from promptlint.frontends.base import MAX_FILE_BYTES, Project
from promptlint.report import model

if TYPE_CHECKING:
    from promptlint.app.check import Request

__all__ = ["FOLDER", "Cache", "clear", "make_folder"]

FOLDER = ".promptlint_cache"
MAX_ENTRIES = 64  # the oldest ones beyond are removed
MAX_COUNTS = 100_000  # token counts that are kept, about 6 MB
_COUNTS = "tokens.json"  # token counts by encoding and digest of the text; exact, so they never go stale
_NOT_IN_KEY = frozenset({"cache_dir", "output_format", "fail_on", "source"})


class Cache:
    """The cached report of one request."""

    def __init__(self, settings: Settings, request: Request, discovery: Discovery, *, edits: bool = False) -> None:
        self.folder = settings.cache_dir or settings.root / FOLDER
        kind = "-edits" if edits else ""  # a report with the edits of its findings is an entry of its own
        self.path = self.folder / f"check-{_key(settings, request, discovery)}{kind}.json"
        self.overlaid = set(request.overlay or {})
        self.python = [path for path in discovery.files if path.suffix == ".py"]
        self.before: dict[Path, str] = {}  # digests of the Python files before the analysis: it looks at all of them
        self.known = 0  # token counts that stand in the cache already

    def load(self) -> model.CheckReport | None:
        """The report, if every file that it rests on is as it was; None otherwise. Never raises for what the entry holds."""
        try:
            data = json.loads(self.path.read_bytes())
            files = data["files"]
            if not isinstance(files, dict) or any(_digest(Path(path)) != known for path, known in files.items()):
                return None
            return model.load(data["report"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def prepare(self) -> None:
        """Before an analysis: note the state of the files that it will look at, and give it the token counts of earlier runs."""
        self.before = {path: _digest(path) for path in self.python}
        with contextlib.suppress(OSError, ValueError, RecursionError):
            counts = json.loads((self.folder / _COUNTS).read_bytes())
            if isinstance(counts, dict):
                remembered.update((key, number) for key, number in counts.items() if type(number) is int)
        self.known = len(remembered)

    def _store_counts(self) -> None:
        if len(remembered) > self.known:
            newest = dict(list(remembered.items())[-MAX_COUNTS:])
            write_text(self.folder / _COUNTS, json.dumps(newest, separators=(",", ":")), follow=False)

    def store(self, report: model.CheckReport, project: Project) -> None:
        """Keep a report. Nothing happens when the folder cannot be written."""
        known = self.before | project.digests  # what was read in full counts as it was when it was read
        read = set(known) | set(project.refused)
        files = {str(path): known.get(path) or _digest(path) for path in sorted(read - self.overlaid)}
        content = json.dumps({"files": files, "report": model.dump(report)}, separators=(",", ":"))
        with contextlib.suppress(OSError):
            make_folder(self.folder)
            write_text(self.path, content, follow=False)
            self._store_counts()
            _prune(self.folder)


def clear(folder: Path) -> int:
    """Remove every entry of a cache folder; how many there were."""
    removed = 0
    for path in folder.glob("check-*.json"):
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
    return removed


def _key(settings: Settings, request: Request, discovery: Discovery) -> str:
    digest = hashlib.sha256()
    for part in _parts(settings, request, discovery):
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()[:32]


def _parts(settings: Settings, request: Request, discovery: Discovery) -> Iterator[str]:
    yield _own_digest()
    for folder in settings.extra_rules:
        yield _tree_digest(folder)
    yield repr([(item.name, getattr(settings, item.name)) for item in fields(settings) if item.name not in _NOT_IN_KEY])
    yield repr((request.working_directory, request.paths, request.changed))
    for path, text in sorted((request.overlay or {}).items()):
        yield f"{path}\0{text}"
    for item in discovery.listed:
        if item.role != "skipped":
            yield f"{item.path}\0{item.role}\0{item.given}"
    yield discovery.unlisted
    for problem in discovery.problems:
        yield repr(problem)


@cache
def _own_digest() -> str:
    """Of everything of ours that decides the outcome: version, code, rules, and the Python that runs them."""
    code = _tree_digest(Path(__file__).resolve().parents[1])
    return f"{__version__} {sys.version_info[:2]} {code} {_tree_digest(rules_root())}"


def _tree_digest(folder: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".toml", ".md")):
                path = Path(base, name)
                digest.update(f"{path.relative_to(folder)}\0".encode())
                with contextlib.suppress(OSError):
                    digest.update(path.read_bytes())
    return digest.hexdigest()


def _digest(path: Path) -> str:
    """Of a file's content; of its size and time where it is too large to be read; of its absence."""
    try:
        state = path.stat()
        if state.st_size > MAX_FILE_BYTES:
            return f"large {state.st_size} {state.st_mtime_ns}"
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except FileNotFoundError:
        return "absent"
    except OSError as error:
        return f"unreadable {error.errno}"


def make_folder(folder: Path) -> None:
    """Create the folder, marked for git and for backup tools as something to leave out. Raises OSError, also for a link that has the folder's usual name."""
    if folder.name == FOLDER and folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "is a symbolic link", str(folder))
    if folder.is_dir():
        return
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", "utf-8")
    (folder / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n", "utf-8")


def _prune(folder: Path) -> None:
    entries = []
    for path in folder.glob("check-*.json"):
        with contextlib.suppress(OSError):
            entries.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(entries)[:-MAX_ENTRIES]:
        with contextlib.suppress(OSError):
            path.unlink()
