"""The one way in which a file of ours comes to its place: whole, or not at all.

What is written goes to a new file in the same folder, which takes the place of the old one when all of it is on the disk. An interrupt, a full disk or a crash
leaves the old file as it was. A new file is readable by its owner only, for most of ours hold text of prompts or tell where it stands; one that was there keeps its
permissions. A symbolic link stays one, unless the caller says that its place is ours. What is no regular file (a terminal, a pipe, /dev/null) is written to directly.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["write_text", "writing"]


@contextmanager
def writing(path: Path, *, follow: bool = True) -> Iterator[IO[bytes]]:
    """A stream whose content takes the place of `path` when the block ends well. Raises OSError with the old file untouched.

    Without `follow` a symbolic link at `path` is replaced, and what it leads to is left alone.
    """
    target = path.resolve() if follow else path
    state = target.stat() if target.exists() and not target.is_symlink() else None
    if state is not None and not stat.S_ISREG(state.st_mode):
        with path.open("wb") as stream:
            yield stream
        return
    if state is not None and not os.access(target, os.W_OK):
        raise PermissionError(13, "Permission denied", str(path))
    handle, name = tempfile.mkstemp(prefix=".promptlint-", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if state is not None:
            temporary.chmod(stat.S_IMODE(state.st_mode))
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_text(path: Path, text: str, errors: str = "strict", *, follow: bool = True) -> None:
    """Put UTF-8 text in the place of `path`, as `writing` does. Raises OSError with the old file untouched."""
    data = text.encode("utf-8", errors)
    with writing(path, follow=follow) as stream:
        stream.write(data)
