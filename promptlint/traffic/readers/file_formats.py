"""Files that are not lines of JSON: told apart by their first bytes, read whole or by their own library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from promptlint.traffic.files import Source
from promptlint.traffic.readers.base import Options
from promptlint.traffic.record import Place, Record, Unreadable

__all__ = ["read", "sniff"]

Item = Record | tuple[Place, Mapping[str, Any] | Unreadable]


def sniff(name: str, head: bytes) -> str | None:
    """The kind of a file that is not JSON lines or a text log: pickle, parquet, yaml, csv; None for everything else."""
    return None


def read(kind: str, source: Source, stream: BinaryIO, options: Options) -> Iterator[Item]:
    """The records in such a file, or its parsed objects with their places for the JSON readers."""
    raise Unreadable(f"no reader for {kind}")
