"""Request lines in the logs of vLLM and SGLang servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["parse_line"]


def parse_line(data: bytes) -> Mapping[str, Any] | None:
    """The request in one line of a log as an object for the readers, or None for a line that is something else."""
    return None
