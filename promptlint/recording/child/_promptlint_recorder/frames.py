"""Which line of the user's project sends a request: the innermost frame whose file lies in the project and in no environment within it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType

from . import settings

__all__ = ["call_site", "is_project", "owner"]

_FOREIGN = ("site-packages", "dist-packages", ".venv", "venv", ".tox", ".nox", "node_modules")
_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs its import
_known: dict[CodeType, str | None] = {}

task_end: CodeType | None = None
outside_task: Callable[[], tuple[str, int, str] | None] | None = None
"""The code at which the stack of an asyncio task ends, and who made the task; set once asyncio is imported."""


def _place(code: CodeType) -> str | None:
    """The path of a code object's file of the project, relative to where the command began, with forward slashes; None for a file that is not the project's."""
    if code in _known:
        return _known[code]
    found = None
    name = code.co_filename
    if name in {"<string>", "<stdin>"}:
        found = name
    elif not name.startswith("<"):
        path = os.path.realpath(name)
        root = os.path.realpath(settings.root)
        if path.startswith(root.rstrip(os.sep) + os.sep) and not path.startswith((_HERE, _library())):
            inner = os.path.relpath(path, root).replace(os.sep, "/")
            if not any(part in _FOREIGN for part in inner.split("/")):
                found = os.path.relpath(path, os.path.realpath(settings.base)).replace(os.sep, "/")
    _known[code] = found
    return found


def is_project(code: CodeType) -> bool:
    """Whether a code object is the project's own."""
    return _place(code) is not None


def _library() -> str:
    """The folder of the standard library, which lies in the project where the environment does."""
    return os.path.realpath(os.path.dirname(os.__file__)) + os.sep  # noqa: PTH120 - as above


def owner(frame: FrameType | None) -> tuple[str, int, str]:
    """Path, line and function of the innermost frame of the project from `frame` outwards; empty where there is none.

    What stands beyond the task that runs belongs to the event loop: there the maker of the task is the answer, where it is known. A program given on the command line (`python -c`) has no file: it counts only where no file of the project is on the stack.
    """
    nameless = ("", 0, "")
    while frame is not None:
        place = _place(frame.f_code)
        if place is not None:
            code = frame.f_code
            found = (place, frame.f_lineno, getattr(code, "co_qualname", code.co_name).replace("<locals>.", ""))
            if not place.startswith("<"):
                return found
            nameless = nameless if nameless[0] else found
        if frame.f_code is task_end and outside_task is not None:
            made_by = outside_task()
            if made_by is not None:
                return made_by
        frame = frame.f_back
    return nameless


def call_site() -> tuple[str, int]:
    """Who sends what is being sent now, as `path::function`, and the line; ("", 0) where no frame is the project's."""
    path, line, function = owner(sys._getframe(1))  # noqa: SLF001 - inspect costs its import
    return (f"{path}::{function}", line) if path else ("", 0)
