"""What the front ends share: the project's files, and the reader of a template whose text another front end found.

Nothing here parses. `app` creates the `Project`, wires the front ends together and adds up their readings.
"""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from promptlint.ir import Segment
from promptlint.source import SourceFile, TextMap

__all__ = ["MAX_FILE_BYTES", "Loader", "Project", "TemplateReader", "paused_collector"]

MAX_FILE_BYTES = 5_000_000  # larger files are reported as unsupported: no prompt that a person wrote is that long

Loader = Callable[[str], SourceFile | None]
"""Finds the template that a name refers to (`include`, `extends`, `get_template`), or None."""


class TemplateReader(Protocol):
    """Reads the text of a template into segments whose holes carry the slot's expression and name.

    `text` is the template's text, `where` maps its offsets to the source, `bound` gives the segments of values that are known by
    name (what Python passes to `render`): a slot `{{ x.y }}` looks up "x.y", then "x". A bound value replaces the hole; the steps of
    its holes get the slot's place appended. Unbound slots take kind and volatility from their names. `loader` finds other templates by name.
    """

    def __call__(
        self,
        text: str,
        where: TextMap,
        *,
        bound: Mapping[str, tuple[Segment, ...]] | None = None,
        loader: Loader | None = None,
    ) -> tuple[Segment, ...]: ...


@dataclass(slots=True)
class Project:
    """The files of one project. Paths in it are absolute; `display` is how a path is printed.

    `files` are all files that may be read as context, `given` those in which findings are reported. Reading is cached; a file that
    cannot be decoded or is too large yields None and an entry in `refused`.
    """

    root: Path
    files: Sequence[Path]
    given: frozenset[Path]
    working_directory: Path = field(default_factory=Path.cwd)
    refused: dict[Path, str] = field(default_factory=dict)
    overlay: dict[Path, str] = field(default_factory=dict)  # text that replaces the file's (stdin, an editor's buffer)
    digests: dict[Path, str] = field(
        default_factory=dict
    )  # of the bytes that were read, for caches that must notice a change
    _sources: dict[Path, SourceFile | None] = field(default_factory=dict)

    def display(self, path: Path) -> str:
        """The path relative to the working directory, with forward slashes; as it is when it lies elsewhere on another drive."""
        try:
            return os.path.relpath(path, self.working_directory).replace(os.sep, "/")
        except ValueError:
            return path.as_posix()

    def source(self, path: Path) -> SourceFile | None:
        """The file's text, or None with the reason in `refused`. Never raises for what a file holds."""
        if path not in self._sources:
            self._sources[path] = self._read(path)
        return self._sources[path]

    def read_so_far(self) -> dict[Path, SourceFile | None]:
        """The files that were asked for, with their text."""
        return dict(self._sources)

    def learned(self) -> tuple[dict[Path, str], dict[Path, str]]:
        """What reading has told so far, for a process that did not read these files itself."""
        return self.digests, self.refused

    def learn(self, learned: tuple[dict[Path, str], dict[Path, str]]) -> None:
        """Take over what another process has read. A file that was read here too keeps the digest of that reading."""
        digests, refused = learned
        self.digests = digests | self.digests
        self.refused = refused | self.refused

    def _read(self, path: Path) -> SourceFile | None:
        if path in self.overlay:
            return SourceFile(self.display(path), self.overlay[path])
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                self.refused[path] = f"larger than {MAX_FILE_BYTES // 1_000_000} MB"
                return None
            data = path.read_bytes()
            # What was read first counts: a cached report must not pass for one of what a file held later.
            self.digests.setdefault(path, hashlib.blake2b(data, digest_size=16).hexdigest())
        except OSError as error:
            self.refused[path] = f"cannot be read: {error.strerror or error}"
            return None
        encoding = "utf-8-sig"
        if path.suffix == ".py" and b"coding" in data[:200]:
            import io
            import tokenize

            try:
                encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
            except (SyntaxError, LookupError):
                encoding = "utf-8-sig"
        try:
            return SourceFile(self.display(path), data.decode(encoding))
        except (UnicodeError, LookupError):  # some codecs raise the plain UnicodeError
            self.refused[path] = f"not valid {encoding.removesuffix('-sig')} text"
            return None


@contextmanager
def paused_collector() -> Iterator[None]:
    """No cyclic garbage collection inside. Trees and values are millions of objects that all stay in use: the collector would
    go through them again and again, for a third of the time.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
