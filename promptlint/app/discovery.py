"""Which files belong to a project, which of them are linted, and why the others are not.

A walk yields every file that may be read as context. Files beneath the given paths are *given*: findings are reported
there. Of the given files those that are prompts by their name or place are read *alone* (templates and prompt files);
other text is read only when the code loads it. Whatever is left out is listed with its reason, so that `--show-files` can tell.
"""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.ir import Unread

__all__ = ["Discovery", "Listed", "discover", "project_root"]

JINJA_SUFFIXES = frozenset({".jinja", ".jinja2", ".j2"})
PROMPT_SUFFIXES = frozenset({".prompty", ".prompt"})
PROSE_SUFFIXES = frozenset({".md", ".txt"})
DATA_SUFFIXES = frozenset({".yaml", ".yml", ".json", ".toml"})
TOKENIZER_FILES = frozenset({"tokenizer_config.json", "chat_template.json"})  # where model folders keep a chat template
PROMPT_FOLDERS = frozenset({"prompts", "templates"})
# What ruff leaves out by default, and our own cache. A folder with a pyvenv.cfg is a virtual environment whatever its name.
_DEFAULT_EXCLUDE = (
    ".bzr .direnv .eggs .git .git-rewrite .hg .ipynb_checkpoints .mypy_cache .nox .pants.d .promptlint_cache .pyenv .pytest_cache "
    ".pytype .ruff_cache .svn .tox .venv .vscode __pycache__ __pypackages__ buck-out node_modules site-packages venv"
)
NEVER_WALKED = frozenset(_DEFAULT_EXCLUDE.split())
BUILD_OUTPUT = frozenset(
    {"build", "dist", "_build"}
)  # only directly beneath the project root: deeper they are package names
TEST_FOLDERS = frozenset({"test", "tests", "__tests__"})
TEST_FILES = ("test_*.py", "*_test.py", "conftest.py")


@dataclass(frozen=True, slots=True)
class Listed:
    """One file or folder of the walk. `role`: python, jinja, prompt, context, or skipped with the reason in `why`."""

    path: Path
    role: str
    why: str
    given: bool


@dataclass(slots=True)
class Discovery:
    """The outcome of a walk. Paths are absolute and in name order; `problems` are for the reader's eye, one line each."""

    root: Path
    files: list[Path] = field(default_factory=list)
    given: set[Path] = field(default_factory=set)
    jinja: list[Path] = field(default_factory=list)
    prompts: list[Path] = field(default_factory=list)
    listed: list[Listed] = field(default_factory=list)
    problems: list[Unread] = field(default_factory=list)
    unlisted: str = ""  # digest of the names of all other files: code may load them, so a new one may matter

    def add(self, path: Path) -> None:
        """Take in one more given file, whatever its name: text that stands in for a file need not exist on disk."""
        suffix = path.suffix.lower()
        role = "python" if suffix == ".py" else "jinja" if suffix in JINJA_SUFFIXES else "prompt"
        if path not in self.files:
            self.files.append(path)
            self.files.sort()
        self.listed = [item for item in self.listed if item.path != path] + [
            Listed(path, role, "named on the command line", True)
        ]
        self.given.add(path)
        for files, kind in ((self.jinja, "jinja"), (self.prompts, "prompt")):
            if role == kind and path not in files:
                files.append(path)


def project_root(first: Path) -> Path:
    """Nearest folder with a pyproject.toml or promptlint.toml at or above the path, else the nearest with .git, else the path's folder."""
    start = first if first.is_dir() else first.parent
    return _marked(start) or start


def _marked(start: Path) -> Path | None:
    """The nearest folder that says it is a project, at or above a folder."""
    for markers in (("pyproject.toml", "promptlint.toml"), (".git",)):
        for folder in (start, *start.parents):
            if any((folder / marker).exists() for marker in markers):
                return folder
    return None


def absolute(path: str | Path) -> Path:
    """The path without `.` and `..`, links unresolved: findings name a file as the user does."""
    return Path(os.path.abspath(path))  # noqa: PTH100  # pathlib has no function that keeps links


def check_given(paths: Iterable[Path]) -> None:
    """Raise UserError for the first path that does not exist or is a link that leads nowhere."""
    for path in paths:
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            what = "is a link to nothing" if path.is_symlink() else "does not exist"
            raise UserError(f"{path}: {what}") from None
        except OSError as error:
            raise UserError(f"{path}: {error.strerror or error}") from error
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UserError(f"{path}: is neither a file nor a folder; `-` reads stdin")


def discover(settings: Settings, paths: Sequence[Path], *, display: Path) -> Discovery:
    """Walk the project and the given paths (absolute). `display` is the folder that problems' paths are printed relative to.

    Raises UserError when a given path does not exist. Folders and files that cannot be read are reported in `problems`.
    """
    check_given(paths)
    walk = _Walk(settings, display)
    for path in paths:
        walk.add_given(path)
    if settings.root not in walk.walked:
        walk.add_context(settings.root)
    return walk.finish()


class _Walk:
    def __init__(self, settings: Settings, display: Path) -> None:
        self.settings = settings
        self.display = display
        self.found = Discovery(settings.root)
        self.walked: set[Path] = set()
        self.seen: set[str] = set()
        self.told: set[str] = set()  # skipped folders and files that are listed already
        self.reported: set[tuple[str, str]] = set()
        self.others = hashlib.blake2b(digest_size=16)
        self.ignores = _Ignores(settings.root) if settings.respect_gitignore else None
        self.lone = False
        self.exclude = _Globs((*settings.exclude, *settings.extend_exclude))
        self.include = _Globs((*settings.include, *settings.extend_include))

    def add_given(self, path: Path) -> None:
        """Everything beneath a path that the user named; a named file whatever its name is."""
        if path.is_dir():
            self.walked.add(path)
            self._folder(path, given=True, tests=self._in_tests(path), ignores=not self._ignored_above(path))
        elif str(path) not in self.seen:
            self.seen.add(str(path))
            why = self._left_out(path) if self.settings.force_exclude else ""
            if why:
                self._skip(str(path), why, given=True)
            else:
                self._file(str(path), path.name, given=True, named=True)

    def _left_out(self, path: Path) -> str:
        """Why a walk of the project would not have come to a file; empty where it would, or where it is none of the project."""
        root = self.settings.root
        if not path.is_relative_to(root):
            return ""
        for folder in reversed(path.parents[: len(path.relative_to(root).parts) - 1]):
            if self.ignores is not None:
                self.ignores.load(str(folder))
            why = self._folder_reason(str(folder), folder.name, self.ignores, self.settings.tests)
            if why:
                return why
        return self._file_reason(str(path), path.name, self.ignores, self.settings.tests)

    def add_context(self, root: Path) -> None:
        """The rest of the project, read as context only.

        A lone file whose folder nothing marks as a project may lie among a home folder's strangers: beside it only packages and folders of prompts count.
        """
        self.lone = not self.walked and _marked(root) is None
        self._folder(root, given=False, tests=self.settings.tests, ignores=True)

    def finish(self) -> Discovery:
        found = self.found
        found.unlisted = self.others.hexdigest()
        found.files.sort()
        found.jinja.sort()
        found.prompts.sort()
        found.listed.sort(key=lambda item: item.path)
        return found

    def _in_tests(self, path: Path) -> bool:
        """Whether tests are wanted here: by the settings, or because the user named a folder of tests."""
        if self.settings.tests:
            return True
        try:
            parts = path.relative_to(self.settings.root).parts
        except ValueError:
            return False
        return any(part in TEST_FOLDERS for part in parts)

    def _ignored_above(self, path: Path) -> bool:
        return self.ignores is not None and self.ignores.ignores_folder_or_parent(path)

    def _folder(self, top: Path, *, given: bool, tests: bool, ignores: bool) -> None:
        """Walk one tree without recursion, names in order; every file is visited once."""
        rules = self.ignores if ignores else None
        stack = [(str(top), _in_package(top, self.settings.root), _in_prompts(top, self.settings.root))]
        while stack:
            folder, package, prompts = stack.pop()
            try:
                with os.scandir(folder) as entries:
                    rows = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                self._problem(folder, f"folder cannot be read: {error.strerror or error}")
                continue
            names = {row.name for row in rows}
            if "CACHEDIR.TAG" in names and folder != str(top):
                self._skip(folder, "cache folder", given)
                continue
            package = package or "__init__.py" in names
            if rules is not None and ".gitignore" in names:
                rules.load(folder)
            below = []
            for row in rows:
                try:
                    is_folder = row.is_dir(follow_symlinks=False)
                    is_link = row.is_symlink()
                except OSError as error:
                    self._problem(row.path, f"cannot be read: {error.strerror or error}")
                    continue
                if is_link and not self._link(row, given):
                    continue
                if is_folder:
                    why = self._folder_reason(row.path, row.name, rules, tests)
                    if why:
                        self._skip(row.path, why, given)
                    else:
                        below.append((row.path, package, prompts or row.name.lower() in PROMPT_FOLDERS))
                elif row.path not in self.seen:
                    self.seen.add(row.path)
                    self._entry(row, rules, tests=tests, given=given, package=package, prompts=prompts)
            stack.extend(reversed(below))

    def _link(self, row: os.DirEntry[str], given: bool) -> bool:
        """Whether to read a link. Links to folders are not followed: what lies in the project is walked anyway."""
        try:
            target = os.stat(row.path)  # noqa: PTH116  # hot loop on strings
        except OSError as error:
            self._skip(row.path, "broken link", given)
            if error.errno == errno.ELOOP:
                self._problem(row.path, "symbolic link loop, not followed")
            return False
        if stat.S_ISDIR(target.st_mode):
            self._skip(row.path, "link to a folder", given)
            here = os.path.realpath(os.path.dirname(row.path))  # noqa: PTH120
            there = os.path.realpath(row.path)
            if here == there or here.startswith(there.rstrip(os.sep) + os.sep):
                self._problem(row.path, "symbolic link loop, not followed")
            return False
        if not stat.S_ISREG(target.st_mode):
            return False
        inside = os.path.realpath(row.path).startswith(os.path.realpath(self.settings.root) + os.sep)
        if inside:
            self._skip(row.path, "link to a file of the project", given)
        return not inside

    def _folder_reason(self, path: str, name: str, rules: _Ignores | None, tests: bool) -> str:
        if name in NEVER_WALKED or name.endswith((".egg-info", ".dist-info")):
            return "excluded by default"
        if name in BUILD_OUTPUT and os.path.dirname(path) == str(self.settings.root):  # noqa: PTH120
            return "excluded by default"
        if not tests and name in TEST_FOLDERS:
            return "test folder"
        if self.exclude.matches(path, self.settings.root):
            return "excluded by the configuration"
        if os.path.exists(os.path.join(path, "pyvenv.cfg")):  # noqa: PTH110, PTH118
            return "virtual environment"
        if self.lone and os.path.dirname(path) == str(self.settings.root) and not self._belongs(path, name):  # noqa: PTH120
            return "beside a lone file, and no package"
        if rules is not None and rules.ignored(path, folder=True):
            return "ignored by .gitignore"
        return ""

    def _belongs(self, path: str, name: str) -> bool:
        return name.lower() in PROMPT_FOLDERS or os.path.exists(os.path.join(path, "__init__.py"))  # noqa: PTH110, PTH118

    def _file_reason(self, path: str, name: str, rules: _Ignores | None, tests: bool) -> str:
        if not tests and name.endswith(".py") and any(fnmatch.fnmatchcase(name, pattern) for pattern in TEST_FILES):
            return "test file"
        if self.exclude.matches(path, self.settings.root):
            return "excluded by the configuration"
        if rules is not None and rules.ignored(path, folder=False):
            return "ignored by .gitignore"
        return ""

    def _entry(
        self, row: os.DirEntry[str], rules: _Ignores | None, *, tests: bool, given: bool, package: bool, prompts: bool
    ) -> None:
        suffix = os.path.splitext(row.name)[1].lower()  # noqa: PTH122
        wanted = (suffix in _KNOWN and row.name not in _SETTINGS) or self.include.matches(row.path, self.settings.root)
        if not wanted or not row.is_file():
            self.others.update(os.fsencode(row.path) + b"\0")
            return
        why = self._file_reason(row.path, row.name, rules, tests)
        if why:
            self._skip(row.path, why, given)
        else:
            self._file(row.path, row.name, given=given, package=package, prompts=prompts)

    def _file(
        self, path: str, name: str, *, given: bool, named: bool = False, package: bool = False, prompts: bool = False
    ) -> None:
        suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122
        place = Path(path)
        if suffix == ".ipynb":
            if given:
                self._problem(path, "notebooks are not supported")
            self.found.listed.append(Listed(place, "skipped", "notebooks are not supported", given))
            return
        why = "named on the command line" if named else ""
        role = "context"
        included = not named and self.include.matches(path, self.settings.root)
        if suffix == ".py":
            role, why = "python", why or "Python"
        elif suffix in JINJA_SUFFIXES:
            role, why = "jinja", why or "Jinja template"
        elif named or suffix in PROMPT_SUFFIXES or included:
            role, why = "prompt", why or ("included by the configuration" if included else "prompt file")
        elif name in TOKENIZER_FILES:
            role, why = "prompt", "a model's folder keeps its chat template here"
        elif suffix in PROSE_SUFFIXES and prompts:
            role, why = "prompt", "text in a folder of prompts"
        elif suffix in DATA_SUFFIXES and (package or prompts):
            role, why = "prompt", "data in a package; read when its strings look like prompts"
        else:
            why = "read when the code loads it"
        self.found.files.append(place)
        self.found.listed.append(Listed(place, role, why, given))
        if given:
            self.found.given.add(place)
            if role == "jinja":
                self.found.jinja.append(place)
            elif role == "prompt":
                self.found.prompts.append(place)

    def _skip(self, path: str, why: str, given: bool) -> None:
        if path not in self.told:
            self.told.add(path)
            self.found.listed.append(Listed(Path(path), "skipped", why, given))

    def _problem(self, path: str, reason: str) -> None:
        if (path, reason) in self.reported:
            return
        self.reported.add((path, reason))
        shown = os.path.relpath(path, self.display).replace(os.sep, "/")
        self.found.problems.append(Unread(shown, 1, reason))


_SETTINGS = frozenset({"pyproject.toml", "promptlint.toml"})
_KNOWN = frozenset({".py", ".ipynb"}) | JINJA_SUFFIXES | PROMPT_SUFFIXES | PROSE_SUFFIXES | DATA_SUFFIXES


def _parts_above(path: Path, root: Path) -> Iterator[Path]:
    """The path and its parents, up to the root."""
    yield path
    for parent in path.parents:
        if path == root or not parent.is_relative_to(root):
            return
        yield parent


def _in_package(path: Path, root: Path) -> bool:
    return any((folder / "__init__.py").is_file() for folder in _parts_above(path, root))


def _in_prompts(path: Path, root: Path) -> bool:
    return any(folder.name.lower() in PROMPT_FOLDERS for folder in _parts_above(path, root))


class _Globs:
    """Patterns of the configuration: a name ("*_old.py"), or a path relative to the project root ("app/gen/*.py", "vendor")."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = patterns

    def matches(self, path: str, root: Path) -> bool:
        if not self.patterns:
            return False
        name = os.path.basename(path)  # noqa: PTH119
        relative = os.path.relpath(path, root).replace(os.sep, "/")
        return any(matches_glob(relative, name, pattern) for pattern in self.patterns)


def matches_glob(relative: str, name: str, pattern: str) -> bool:
    """Whether a pattern without a slash matches the name or a folder of the path, one with a slash the path or a folder above it."""
    pattern = pattern.rstrip("/").removeprefix("./")
    if "/" not in pattern:
        return fnmatch.fnmatchcase(name, pattern) or any(
            fnmatch.fnmatchcase(part, pattern) for part in relative.split("/")
        )
    return fnmatch.fnmatchcase(relative, pattern) or fnmatch.fnmatchcase(relative, f"{pattern}/*")


class _IgnoreFile:
    """One .gitignore. Most paths match none of its patterns: one search for all of them together tells so."""

    def __init__(self, lines: Sequence[str]) -> None:
        from pathspec import GitIgnoreSpec

        self.spec = GitIgnoreSpec.from_lines(lines)
        sources = [pattern.regex.pattern for pattern in self.spec.patterns if pattern.regex is not None]
        self.any = re.compile("|".join(f"(?:{_NAMED_GROUP.sub('(?:', source)})" for source in sources))

    def verdict(self, relative: str) -> bool | None:
        """True: ignored; False: explicitly not; None: the file says nothing about the path."""
        if self.any.search(relative) is None:
            return None
        return self.spec.check_file(relative).include


_NAMED_GROUP = re.compile(r"\(\?P<\w+>")  # joined patterns may not name a group twice


class _Ignores:
    """The .gitignore files of a tree: the deepest file that says something about a path decides, as in git."""

    def __init__(self, root: Path) -> None:
        self.files: dict[str, _IgnoreFile] = {}
        top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
        self.load(str(top), ".git/info/exclude")
        folder = root
        while True:
            self.load(str(folder))
            if folder in (top, folder.parent):
                break
            folder = folder.parent

    def load(self, folder: str, name: str = ".gitignore") -> None:
        """Read one ignore file; one that cannot be read says nothing."""
        key = folder if name == ".gitignore" else f"{folder}{os.sep}"
        if key in self.files:
            return
        try:
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:  # noqa: PTH118, PTH123
                lines = file.read().splitlines()
        except OSError:
            return
        lines = [line for line in lines if line.strip() and not line.startswith("#")]
        if lines:
            self.files[key] = _IgnoreFile(lines)

    def ignored(self, path: str, *, folder: bool) -> bool:
        """Whether the deepest .gitignore with an opinion ignores the path; folders above it are taken to be walked."""
        if not self.files:
            return False
        above = path
        while True:
            parent = os.path.dirname(above)  # noqa: PTH120
            if parent == above:
                break
            above = parent
            for key in (above, f"{above}{os.sep}"):
                file = self.files.get(key)
                if file is not None:
                    relative = path[len(above.rstrip(os.sep)) + 1 :].replace(os.sep, "/") + ("/" if folder else "")
                    verdict = file.verdict(relative)
                    if verdict is not None:
                        return verdict
        return False

    def ignores_folder_or_parent(self, path: Path) -> bool:
        """Whether a folder that the user named is itself ignored: then it was wanted all the same."""
        return any(self.ignored(str(folder), folder=True) for folder in (path, *path.parents))
