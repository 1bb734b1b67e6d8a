"""Where records go: one line each, appended in one write, so that a killed process or several at once leave whole lines.

Beside the records lies a small file of flags, laid out beforehand: a byte that is overwritten needs no room on a full disk, and no lock.
"""

from __future__ import annotations

import os

from . import settings

TYPE_CHECKING = False  # typing costs every process its import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = [
    "ERROR",
    "FAILED",
    "FLAG_BYTES",
    "LIBRARY",
    "LOADED",
    "MESSAGE",
    "flag",
    "listeners",
    "note",
    "tell",
    "write",
]

LOADED = 0
FAILED = 1
ERROR = 2
LIBRARY = 16
MESSAGE = 1024
FLAG_BYTES = 2048
"""Positions in the file of flags: a process has loaded the recorder; a record could not be written; the recorder had an error; libraries imported; the text of
the last error."""

listeners: list[Callable[[dict[str, Any]], None]] = []
"""Told of every line as a dict, text and all; for use within the process."""

_ragged = [False]  # the last write ended within its line


def flag(position: int, value: bytes = b"1") -> None:
    """Raise a flag. Never raises an error."""
    if not settings.flags:
        return
    try:
        descriptor = os.open(settings.flags, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        try:
            os.lseek(descriptor, position, os.SEEK_SET)
            os.write(descriptor, value)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return


def note(error: BaseException) -> None:
    """Note an error of the recorder itself."""
    flag(ERROR)
    text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[: FLAG_BYTES - MESSAGE]
    flag(MESSAGE, text.ljust(FLAG_BYTES - MESSAGE, b"\0"))


def write(row: dict[str, Any]) -> None:
    """Hand a line on and append it to the file, disguised where text is not to be kept. A full disk costs the line and nothing else."""
    for listener in tuple(listeners):
        listener(row)
    if settings.file:
        append(settings.file, encoded(row, settings.key))


def encoded(row: dict[str, Any], key: bytes) -> bytes:
    """A line as bytes, in disguise where there is a key."""
    import json

    if key:
        from . import disguise

        row = disguise.row(row, key)
    try:
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n"
    except UnicodeEncodeError:  # lone surrogates
        return json.dumps(row, separators=(",", ":"), default=str).encode() + b"\n"


def tell(line: dict[str, Any]) -> None:
    """A line for the parent that is no record and holds no text."""
    if settings.file:
        import json

        append(settings.file, json.dumps(line).encode() + b"\n")


def append(file: str, data: bytes) -> None:
    """Append a line in one write. An error is flagged, never raised."""
    if _ragged[0]:
        data = b"\n" + data
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
    except OSError:
        flag(FAILED)
        return
    _ragged[0] = written < len(data)
    if _ragged[0]:
        flag(FAILED)
