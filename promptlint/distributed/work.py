"""The work folder: results that appear whole or not at all, under a name that says what they are a result of."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from promptlint import __version__
from promptlint.errors import UserError

__all__ = ["create", "digest_of", "kept", "key_of"]

FORMAT = 1
"""Counts up when the files change their meaning: older ones are then not found any more."""
_MANIFEST = "manifest.json"


def key_of(kind: str, *facts: Any) -> str:
    """The name of a result: a digest over everything that it depends on. `facts` are JSON values."""
    text = json.dumps([kind, FORMAT, __version__, *facts], sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def digest_of(path: Path, start: int = 0, end: int | None = None) -> str:
    """A digest of the bytes of a file, or of a range of them. Raises OSError."""
    found = hashlib.blake2b(digest_size=20)
    with path.open("rb") as file:
        file.seek(start)
        left = end - start if end is not None else -1
        while left:
            data = file.read(1 << 20 if left < 0 else min(left, 1 << 20))
            if not data:
                break
            found.update(data)
            left -= len(data) if left > 0 else 0
    return found.hexdigest()


def kept(work: Path, key: str, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """What `make` returns about the files that it writes into a folder; where that was done before, what it returned then.

    The folder gets its name when everything is in it, so a process that dies leaves none, and of two that make the same one is kept. Raises UserError for
    a work folder that cannot be written.
    """
    folder = work / key
    known = _manifest(folder)
    if known is not None:
        return known
    made = work / f".{key}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        made.mkdir(mode=0o700, parents=True)
        manifest = make(made)
        with create(made / _MANIFEST) as file:
            file.write(json.dumps(manifest).encode())
        try:
            made.rename(folder)
        except OSError:
            if (known := _manifest(folder)) is not None:  # somebody else was first
                return known
            raise
    except OSError as error:
        raise UserError(f"{work}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return manifest


def create(path: Path) -> BinaryIO:
    """A new file that only its owner can read: token ids are prompts in another spelling."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / _MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found
