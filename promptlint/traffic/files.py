"""Inputs as streams: a file, a folder or standard input, plain, gzip or zstd, without ever holding more than one line.

Damage stays where it is: a truncated archive gives every line up to the break and then one problem; a line that is too long is
named and skipped; a folder with one unreadable file gives all the others.
"""

from __future__ import annotations

import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from promptlint.errors import UserError

__all__ = ["MAX_DOCUMENT", "MAX_LINE", "Broken", "Line", "Source", "lines", "sources"]

MAX_LINE = 64 << 20
"""Bytes of the longest line that is read: a request with images inlined stays below, a log without line ends does not."""
MAX_DOCUMENT = 512 << 20
"""Bytes of the largest file that has to be read whole (a JSON array, a YAML cassette)."""

_BUFFER = 1 << 18
"""Bytes that are read ahead: lines of text traffic are long, and one that lies in the buffer is copied once."""

_STEP = 1 << 20  # bytes of a file that is read whole, at a time

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's name for: a gzip header, and the largest window
_GZIP_STEP = 1 << 12  # bytes; what is fed together with damage is lost with it
_ZSTD_STEP = 1 << 11  # bytes; they may become 64 MB
_ZSTD = b"\x28\xb5\x2f\xfd"


class Broken(Exception):
    """The stream cannot be read any further. The text is the reason."""


class Line(NamedTuple):
    """One line without its end. `data` is None where the line is longer than `MAX_LINE`. Made by the million: a tuple is made in a third of a dataclass's time."""

    number: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Source:
    """One input file. `name` is what messages print; `path` is None for standard input. `named`: given by the user, not found in a folder.

    `line`: the number of its first line; above 1 it is a later part of a file of JSON lines.
    """

    name: str
    path: Path | None
    named: bool = True
    line: int = 1

    def open(self) -> BinaryIO:
        """The decompressed bytes. Raises Broken when the file cannot be opened, or needs a decompressor that is not there.

        A pipe is read when it is named; one that lies in a folder would be waited for without end.
        """
        if not self.named and self.path is not None and self.path.exists() and not self.path.is_file():
            raise Broken("not a regular file")
        try:
            raw: IO[bytes] = sys.stdin.buffer if self.path is None else self.path.open("rb", buffering=_BUFFER)
        except OSError as error:
            raise Broken(error.strerror or str(error)) from error
        stream = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
        try:
            magic = stream.peek(4)[:4]
        except OSError as error:
            raise Broken(error.strerror or str(error)) from error
        if magic[:2] == _GZIP:
            return _Decompressed(_Gzip(stream), stream)
        if magic == _ZSTD:
            return _Decompressed(_Zstd(stream), stream)
        return stream


class _Gzip(io.RawIOBase):
    """Gzip members, one after the other. Unlike the library's reader it gives every byte before a break, and raises only then."""

    def __init__(self, below: IO[bytes]) -> None:
        self._below = below
        self._inflate = zlib.decompressobj(_GZIP_WINDOW)
        self._input = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            self._input = self._input or self._below.read(_GZIP_STEP)
            if self._inflate.eof:
                if not self._input:
                    return 0
                self._input = self._input.lstrip(b"\0")  # members may be padded
                if self._input:
                    self._inflate = zlib.decompressobj(_GZIP_WINDOW)
            elif not self._input:
                raise EOFError("compressed file is truncated")
            else:
                found = self._inflate.decompress(self._input, len(buffer))
                self._input = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
                if found:
                    buffer[: len(found)] = found
                    return len(found)


class _Decompressed(io.BufferedReader):
    """The decompressed bytes; closing it closes the compressed file too."""

    def __init__(self, raw: Any, below: IO[bytes]) -> None:
        super().__init__(raw, _BUFFER)
        self._below = below

    def close(self) -> None:
        super().close()
        self._below.close()


class _Zstd(io.RawIOBase):
    """Zstandard frames, one after the other. The library's reader takes a truncated file for a whole one."""

    def __init__(self, below: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError:
            raise Broken("zstd: install promptlint-cache[zstd] to read it") from None
        self._below = below
        self._begin = zstandard.ZstdDecompressor().decompressobj
        self._frame = self._begin()
        self._out = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._out:
            data: bytes = self._frame.unused_data if self._frame.eof else b""
            data = data or self._below.read(_ZSTD_STEP)
            if not data and self._frame.eof:
                return 0
            if not data:
                raise EOFError("compressed file is truncated")
            if self._frame.eof:
                self._frame = self._begin()
            self._out = memoryview(self._frame.decompress(data))
        count = min(len(buffer), len(self._out))
        buffer[:count] = self._out[:count]
        self._out = self._out[count:]
        return count


def _faults() -> tuple[type[BaseException], ...]:
    """What reading a damaged stream may raise."""
    faults: tuple[type[BaseException], ...] = (OSError, EOFError, zlib.error)
    zstandard = sys.modules.get("zstandard")
    return (*faults, zstandard.ZstdError) if zstandard is not None else faults


def sources(paths: Iterable[str | Path]) -> Iterator[Source]:
    """The input files of the given paths: `-` is standard input, a folder stands for its files in name order (hidden ones left out).

    Raises UserError for a path that does not exist.
    """
    for given in paths:
        if str(given) == "-":
            yield Source("<stdin>", None)
            continue
        path = Path(given)
        if path.is_dir():
            for folder, below, names in os.walk(path):
                below[:] = sorted(name for name in below if not name.startswith("."))
                for name in sorted(names):
                    if not name.startswith("."):
                        file = Path(folder, name)
                        yield Source(file.as_posix(), file, named=False)
        elif path.exists():
            yield Source(str(given), path)
        else:
            raise UserError(f"{given}: no such file")


def lines(stream: BinaryIO, *, first: int = 1, limit: int = MAX_LINE) -> Iterator[Line]:
    """The lines of a stream, numbered from `first`. Raises Broken where the stream is damaged, after all lines before the damage."""
    number = first
    while True:
        try:
            data = stream.readline(limit + 1)
        except _faults() as error:
            raise Broken(_reason(error)) from error
        if not data:
            return
        if len(data) > limit and not data.endswith(b"\n"):
            yield Line(number, None)
            _skip_line(stream)
        else:
            yield Line(number, data.rstrip(b"\r\n"))
        number += 1


def _skip_line(stream: BinaryIO) -> None:
    while True:
        try:
            data = stream.readline(1 << 20)
        except _faults() as error:
            raise Broken(_reason(error)) from error
        if not data or data.endswith(b"\n"):
            return


def read_whole(stream: BinaryIO, limit: int = MAX_DOCUMENT) -> bytes:
    """All bytes that are left. Raises Broken for more than `limit`, or damage."""
    data = bytearray()  # a read of `limit` bytes at once would ask for that much memory, however small the file
    try:
        while part := stream.read(min(_STEP, limit + 1 - len(data))):
            data += part
    except _faults() as error:
        raise Broken(_reason(error)) from error
    except MemoryError as error:
        raise Broken("needs more memory than there is: this format has to be read whole") from error
    if len(data) > limit:
        raise Broken(f"larger than {limit >> 20} MB: this format has to be read whole")
    return bytes(data)


def _reason(error: BaseException) -> str:
    if isinstance(error, EOFError):
        return "compressed file is truncated"
    return f"damaged: {error}"
