"""What there is to read, as tasks: one for each file, several for a large one that has a request on every line."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from promptlint.distributed.work import digest_of
from promptlint.errors import UserError
from promptlint.traffic import files
from promptlint.traffic.files import Broken, Source
from promptlint.traffic.read import splits_into_lines

__all__ = ["Input", "identity", "inputs", "opened"]

RANGE = 256 << 20
"""Bytes of a range of a large file: minutes of tokenising on one core, and little to do again when a worker dies."""
_STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class Input:
    """A task of stage 1. `name` is what messages print, `place` a path or a URI; bytes `start` to `end` of it, None being all; `line` is the number of the first line."""

    name: str
    place: str
    start: int = 0
    end: int | None = None
    line: int = 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def inputs(paths: Iterable[str], *, size: int = RANGE) -> list[Input]:
    """The inputs of files, folders and URIs (`s3://bucket/folder`, `gs://`, `file://`), in the order in which one process reads them.

    Raises UserError for standard input and for what is not there.
    """
    found: list[Input] = []
    for path in paths:
        if path == "-":
            raise UserError("--runner ray reads files and folders: standard input has no parts")
        if "://" in path:
            found += [Input(uri, uri) for uri in _remote(path)]
            continue
        for source in files.sources([path]):
            assert source.path is not None
            found += _ranges(source, size)
    return found


def _ranges(source: Source, size: int) -> list[Input]:
    path = source.path
    assert path is not None
    whole = [Input(source.name, str(path.absolute()))]
    # A pipe, and anything else that has no size, is one input and fails as it does in one process.
    if not path.is_file() or (length := path.stat().st_size) <= size or not splits_into_lines(source):
        return whole
    found: list[Input] = []
    start, line = 0, 1
    with path.open("rb") as file:
        while start < length:
            lines, end = _count(file, start, min(start + size, length))
            found.append(Input(source.name, str(path.absolute()), start, end, line))
            start, line = end, line + lines
    return found


def _count(file: BinaryIO, start: int, end: int) -> tuple[int, int]:
    """The lines that begin between two offsets, and the offset at which the last of them ends."""
    file.seek(start)
    lines, at = 0, start
    while at < end:
        data = file.read(min(_STEP, end - at))
        if not data:
            return lines, at
        lines += data.count(b"\n")
        at += len(data)
    if data.endswith(b"\n"):
        return lines, at
    while rest := file.readline(_STEP):
        at += len(rest)
        if rest.endswith(b"\n"):
            break
    return lines + 1, at


class _Range(io.RawIOBase):
    """Some bytes of a file."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        self._file = path.open("rb", buffering=0)
        self._file.seek(start)
        self._left = end - start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        super().close()
        self._file.close()


@dataclass(frozen=True, slots=True)
class _Part(Source):
    """A source that is a range of a file, or a local copy under the name of the original."""

    start: int = 0
    end: int | None = None

    def open(self) -> BinaryIO:
        if self.end is None or self.path is None:
            return Source.open(self)
        try:
            return io.BufferedReader(_Range(self.path, self.start, self.end), 1 << 18)
        except OSError as error:
            raise Broken(error.strerror or str(error)) from error


@contextmanager
def opened(task: Input) -> Iterator[Source]:
    """The source of an input; what lies in an object store is copied to this machine while it is needed. Raises UserError."""
    if "://" not in task.place:
        # `named=False`: a pipe in a folder would be waited for without end, and a named one cannot be read twice.
        yield _Part(task.name, Path(task.place), False, task.line, task.start, task.end)
        return
    with tempfile.TemporaryDirectory(prefix="promptlint-") as folder:
        copy = Path(folder, "input")
        system, path = _system(task.place)
        try:
            with system.open_input_stream(path, compression=None) as stream, copy.open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 22)
        except OSError as error:
            raise UserError(f"{task.place}: {error}") from error
        yield _Part(task.name, copy)


def identity(source: Source) -> list[Any]:
    """What a result about a source depends on: its content, and the place by which its records are named."""
    assert isinstance(source, _Part)
    assert source.path is not None
    try:
        content = digest_of(source.path, source.start, source.end) if source.path.is_file() else "no file"
    except OSError as error:
        content = str(error)  # its reader says so again
    return [content, source.name, source.line]


def _system(uri: str) -> Any:
    try:
        from pyarrow import fs
    except ImportError:
        raise UserError(f"{uri}: install promptlint-cache[ray] to read from an object store") from None
    try:
        return fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        raise UserError(f"{uri}: {error}") from error


def _remote(uri: str) -> list[str]:
    """The files under a URI in name order, hidden ones left out."""
    system, path = _system(uri)
    from pyarrow import fs

    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise UserError(f"{uri}: no such file")
        if info.is_file:
            return [uri]
        below = system.get_file_info(fs.FileSelector(path, recursive=True))
    except OSError as error:
        raise UserError(f"{uri}: {error}") from error
    root = uri.rstrip("/")
    names = [one.path[len(path.rstrip("/")) + 1 :] for one in below if one.is_file]
    return [f"{root}/{name}" for name in sorted(names, key=_as_walked) if not any(part.startswith(".") for part in name.split("/"))]  # fmt: skip


def _as_walked(name: str) -> list[tuple[int, str]]:
    """The order of a walk through a folder: its files first, then each folder below it."""
    *folders, file = name.split("/")
    return [*((1, folder) for folder in folders), (0, file)]
