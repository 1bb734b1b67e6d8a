"""Who made an asyncio task: a coroutine of a library that the project hands to `gather` or `create_task` runs without any frame of the project above it."""

from __future__ import annotations

import functools
import sys
import weakref
from types import FrameType
from typing import Any

from . import frames
from .exchange import guard

__all__ = ["patch_asyncio"]


def patch_asyncio(module: Any) -> None:
    """`BaseEventLoop.create_task`, through which all ways of making a task go, and the frame at which a task's own stack ends."""
    original = module.BaseEventLoop.create_task

    @functools.wraps(original)
    def create_task(self: Any, coro: Any, *arguments: Any, **options: Any) -> Any:
        task = original(self, coro, *arguments, **options)
        guard(_remember, task, coro, sys._getframe(1))  # noqa: SLF001 - inspect costs its import
        return task

    module.BaseEventLoop.create_task = create_task
    frames.outside_task = _outside
    frames.task_end = module.events.Handle._run.__code__  # noqa: SLF001


_makers: weakref.WeakKeyDictionary[Any, tuple[str, int, str]] = weakref.WeakKeyDictionary()


def _remember(task: Any, coroutine: Any, frame: FrameType) -> None:
    code = getattr(coroutine, "cr_code", None)
    if code is not None and frames.is_project(code):
        return  # its own frame will tell
    made_by = frames.owner(frame)
    if made_by[0]:
        _makers[task] = made_by


def _outside() -> tuple[str, int, str] | None:
    """Who made the task that runs now; None where that is not known."""
    import asyncio

    try:
        task = asyncio.current_task()
    except RuntimeError:
        return None
    return None if task is None else _makers.get(task)
