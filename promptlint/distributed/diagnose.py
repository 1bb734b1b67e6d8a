"""`diagnose` of a log that many processes read: each input is normalised by itself, and all requests are diagnosed as one stream.

Partitions could not stand alone. A conversation that goes on under another model, a session that crosses namespaces, what the markers of one provider share,
and the call sites that are learnt from the traffic are sought in all requests, and a cause is priced over all of them. So the numbers are those of one
process because the diagnosis is that of one process; what the workers take over is fetching, unpacking and reading.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from promptlint.distributed.inputs import Input, identity, inputs, opened
from promptlint.distributed.runner import Job
from promptlint.distributed.work import create, kept, key_of
from promptlint.errors import UserError
from promptlint.traffic.read import Problem, Traffic
from promptlint.traffic.readers.base import Options
from promptlint.traffic.record import Place, Record

__all__ = ["Read", "read"]

_FILE = "records.jsonl"
_FIELDS = tuple(one.name for one in fields(Record) if one.name != "place")
_EMPTY = Record()
_DEEPER = 5_000
"""Frames on top of Python's limit: what a reader could read, at whatever depth of the stack, is written and read here too."""


class Read:
    """Turns inputs into files of records.

    Args:
        given: `work` (the folder), `format`, `options` (of the readers).
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = dict(given)
        self._work = Path(self._given.pop("work"))

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """The manifest of the records of an input; read, unless they are there already. Raises UserError."""
        with opened(Input(**task)) as source:
            key = key_of("records", identity(source), self._given)
            return {"key": key, **kept(self._work, key, lambda folder: self._write(source, folder))}

    def _write(self, source: Any, folder: Path) -> dict[str, Any]:
        traffic = Traffic([], self._given["format"], options=Options(**self._given["options"]))
        with create(folder / _FILE) as file:
            for record in traffic.read([source]):
                file.write(_encoded(record))
        return {
            "problems": [[one.file, one.line, one.reason, one.field] for one in traffic.problems],
            "notes": traffic.notes,
            "formats": traffic.formats,
            "skipped": traffic.skipped,
        }


def read(traffic: Traffic, job: Job) -> Iterator[Record]:
    """The records of the inputs that `traffic` names, in their order; what could not be read is left in it, as by its own iteration. Raises UserError."""
    given = {"work": str(job.work), "format": traffic.format, "options": asdict(traffic.options)}
    tasks = [one.to_json() for one in inputs(map(str, traffic.paths))]
    parts = job.run(Read, given, tasks, "inputs read")
    for part in parts:
        traffic.problems += [Problem(*one) for one in part["problems"]]
        traffic.notes.update(part["notes"])
        traffic.formats.update(part["formats"])
        traffic.skipped += part["skipped"]
    if traffic.strict and traffic.problems:
        raise UserError(str(traffic.problems[0]))
    job.progress("diagnosing all requests as one stream")
    return _records(job.work / part["key"] / _FILE for part in parts)


def _records(files: Iterable[Path]) -> Iterator[Record]:
    for path in files:
        with path.open("rb") as file:
            yield from map(_decoded, file)


def _encoded(record: Record) -> bytes:
    """A line with the fields that say something. The inverse of `_decoded`."""
    row = {name: value for name in _FIELDS if (value := getattr(record, name)) != getattr(_EMPTY, name)}
    row["place"] = [record.place.file, record.place.line]
    with _deeper():
        return json.dumps(row, separators=(",", ":"), default=str).encode() + b"\n"


def _decoded(line: bytes) -> Record:
    with _deeper():
        row: dict[str, Any] = json.loads(line)
    row["place"] = Place(*row["place"])
    row["notes"] = tuple(row.get("notes", ()))
    return Record(**row)


@contextmanager
def _deeper() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _DEEPER)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
