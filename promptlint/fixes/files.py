"""Files as bytes: what is not edited stays as it is, and a change is written whole or not at all.

Byte order mark, encoding (a PEP 263 cookie in Python), line ends and a missing last line end are kept, because only the characters of an edit change. A write
goes to a new file beside the old one, which then takes its place with the old permissions. A symbolic link stays one: what it points to is written. When one
of several files cannot be written, those before it get their old text back.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import os
import stat
import tempfile
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from promptlint.errors import UserError

__all__ = ["Original", "encode", "read", "unwritable", "write_all"]


@dataclass(frozen=True, slots=True)
class Original:
    """A file as it was read. `text` is without the byte order mark."""

    path: Path
    data: bytes
    text: str
    encoding: str
    mark: bytes


def read(path: Path) -> Original:
    """The file with its encoding. Raises UserError when it cannot be read, or when its text would not be written back as the same bytes."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    encoding = "utf-8"
    try:
        if path.suffix == ".py":
            encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0].removesuffix("-sig")
        text = data[len(mark) :].decode(encoding)
        same = text.encode(encoding) == data[len(mark) :]
    except (UnicodeError, LookupError, SyntaxError) as error:
        raise UserError(f"{path}: not valid {encoding} text") from error
    if not same:
        raise UserError(f"{path}: its encoding {encoding} does not give the same bytes back")
    return Original(path, data, text, encoding, mark)


def encode(original: Original, text: str) -> bytes:
    """The bytes of the file with another text. Raises UserError when the file's encoding has no such character."""
    try:
        return original.mark + text.encode(original.encoding)
    except UnicodeEncodeError as error:
        raise UserError(f"{original.path}: {original.encoding} has no {text[error.start]!r}") from error


def write_all(changes: Mapping[Path, tuple[Original, str]]) -> None:
    """Write all files or none. Raises UserError when one cannot be written, or has changed since it was read."""
    prepared: list[tuple[Path, Path, Original]] = []
    try:
        for path, (original, text) in changes.items():
            target = path.resolve()
            prepared.append((_beside(target, encode(original, text)), target, original))
        _replace(prepared)
    except OSError as error:
        where = error.filename2 or error.filename
        raise UserError(f"{where}: cannot be written: {error.strerror or error}; nothing was written") from error
    finally:
        for temporary, _, _ in prepared:
            temporary.unlink(missing_ok=True)


def unwritable(path: Path) -> str:
    """Why a file's text cannot be replaced, behind the file's name; empty when it can, as far as permissions tell."""
    target = path.resolve()
    if not os.access(target, os.W_OK):
        return "may not be written"
    return "" if os.access(target.parent, os.W_OK | os.X_OK) else "is in a folder that may not be written"


def _replace(prepared: list[tuple[Path, Path, Original]]) -> None:
    done: list[tuple[Path, Original]] = []
    try:
        for temporary, target, original in prepared:
            if target.read_bytes() != original.data:  # at the last moment: somebody else may write the same files
                raise UserError(f"{original.path}: changed while it was read; nothing was written")
            done.append((target, original))
            temporary.replace(target)
    except BaseException:  # Ctrl-C as well: a template without its call would be worse than either state
        for target, original in done:
            with contextlib.suppress(OSError):
                if target.read_bytes() != original.data:
                    _beside(target, original.data).replace(target)
        raise


def _beside(target: Path, data: bytes) -> Path:
    """A new file in the folder of `target`, with its permissions and, where we may set it, its owner."""
    status = target.stat()
    why = unwritable(target)
    if why:
        raise PermissionError(errno.EACCES, f"it {why}", str(target))
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):
            if hasattr(os, "chown"):
                os.chown(temporary, status.st_uid, status.st_gid)
        temporary.chmod(stat.S_IMODE(status.st_mode))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary
