"""One project in an editor: the open documents that belong to it, and the newest look at it."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promptlint.app.discovery import JINJA_SUFFIXES, PROMPT_SUFFIXES, project_root
from promptlint.app.live import Live, Look
from promptlint.config import Settings
from promptlint.frontends.python.newer_syntax import parse_newer

__all__ = ["CONFIGURATION", "Document", "Folder", "Seen", "root_of"]

CONFIGURATION = frozenset({"pyproject.toml", "promptlint.toml", ".gitignore"})
NEW_FILES = (
    frozenset({".py"}) | JINJA_SUFFIXES | PROMPT_SUFFIXES
)  # what is read although no file of the name exists yet
LANGUAGES = {"python": ".py", "jinja": ".jinja", "jinja2": ".jinja"}  # of documents without a file


@dataclass(frozen=True, slots=True)
class Document:
    """An open document. `path` is invented for one without a file."""

    uri: str
    path: Path
    text: str
    version: int
    saved: bool  # it has a file


@dataclass(frozen=True, slots=True)
class Seen:
    """A look, and the documents that it saw, by URI. In the place of a `broken` one's text it saw the last text that could be parsed."""

    look: Look
    documents: Mapping[str, Document]
    broken: frozenset[str] = frozenset()
    tried: dict[str, list[Any]] = field(default_factory=dict)  # edits that help, by the finding's fingerprint


def root_of(path: Path, workspaces: tuple[Path, ...]) -> tuple[Path, bool]:
    """The project root of a file, and whether the file stands alone: outside of every workspace folder and without a project around it."""
    root = project_root(path.parent)
    marked = any((root / name).exists() for name in (*CONFIGURATION, ".git"))
    if marked:
        return root, False
    around = [folder for folder in workspaces if path.is_relative_to(folder)]
    return (max(around, key=lambda folder: len(folder.parts)), False) if around else (path.parent, True)


@dataclass
class Folder:
    """A project that is kept read. `alone`: only open documents are read. All methods but `look` are for the event loop."""

    root: Path
    alone: bool
    load: Callable[[Path], Settings]
    documents: dict[str, Document] = field(default_factory=dict)
    seen: Seen | None = None
    generation: int = 0  # of texts and files; a look at an older one is of no use
    problem: str = ""  # why there is nothing to see
    _good: dict[str, str] = field(default_factory=dict)
    _live: Live | None = None
    _stale: set[Path] = field(default_factory=set)
    _relist: bool = False
    _reload: bool = True

    def open(self, document: Document) -> None:
        """A document was opened or changed."""
        self.documents[document.uri] = document
        self.generation += 1

    def close(self, uri: str) -> None:
        """A document was closed: the file on disk counts again."""
        if self.documents.pop(uri, None) is not None:
            self.generation += 1
            self._good.pop(uri, None)

    def file_changed(self, path: Path, *, listed: bool) -> None:
        """A file changed on disk. `listed`: it came or went."""
        self._stale.add(path)
        self._relist = self._relist or listed or path.name == ".gitignore"
        self._reload = self._reload or path.name in CONFIGURATION
        self.generation += 1

    def reload(self) -> None:
        """The settings are read anew."""
        self._reload = True
        self.generation += 1

    def look(self, *, quick: bool, hasty: bool = False) -> Seen:
        """Look at the project as it is now; on a thread of its own. Raises UserError for an unusable configuration, Stopped when the texts change.

        `hasty`: other files than those that changed may wait.
        """
        generation, documents = self.generation, dict(self.documents)
        live = self._prepared()
        overlay = {}
        broken = set()
        for one in documents.values():
            if self._wanted(one, live):
                overlay[one.path] = self._parsable(one)
                if overlay[one.path] != one.text:
                    broken.add(one.uri)
        look = live.look(overlay, quick=quick, hasty=hasty, stop=lambda: self.generation != generation)
        return Seen(look, documents, frozenset(broken))

    def _parsable(self, document: Document) -> str:
        """The text; of a Python file that does not parse just now the last one that did, so that nothing vanishes in the middle of a word."""
        known = self._good.get(document.uri)
        if document.path.suffix != ".py" or known == document.text:
            return document.text
        if not _parses(document.text, newer=known is not None):
            return document.text if known is None else known
        self._good[document.uri] = document.text
        return document.text

    def fork(self) -> Live:
        """A copy of the readings, for trying edits."""
        assert self._live is not None
        return self._live.fork()

    def _prepared(self) -> Live:
        if self._reload or self._live is None:
            self._live = None
            live = Live(self.load(self.root), only_overlay=self.alone)
            self._reload = False
            self._live = live
        if self._relist:
            self._live.forget_files()
            self._relist = False
        while self._stale:
            self._live.forget(self._stale.pop())
        return self._live

    def _wanted(self, document: Document, live: Live) -> bool:
        """Whether a document is read: as the walk of the project decides for files, and by its kind where there is no file."""
        if live.knows(document.path):
            return True
        if not self.alone and document.saved and document.path.exists():
            return False
        return document.path.suffix.lower() in NEW_FILES


def _parses(text: str, *, newer: bool) -> bool:
    """Whether a text is Python; `newer`: also of a later version than ours, which takes longer to tell."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return newer and parse_newer(text) is not None
    return True
