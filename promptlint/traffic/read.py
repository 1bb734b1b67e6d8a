"""Reading traffic: which format a record has is decided record by record, so mixed formats in one folder or file are fine.

    traffic = Traffic(["logs/"])
    for record in traffic:      # streams
        ...
    traffic.problems            # what could not be read: file, line, field, reason

Nothing is dropped silently: every line is a record, a problem, or (in text logs) a line that is no request and is counted as skipped.
"""

from __future__ import annotations

import json
import marshal
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from promptlint.errors import UserError
from promptlint.traffic import files
from promptlint.traffic.files import MAX_LINE, Broken, Source
from promptlint.traffic.parse import LineParser
from promptlint.traffic.readers import by_name, file_formats, format_of
from promptlint.traffic.readers.base import Format, Options
from promptlint.traffic.record import Place, Record, Unreadable

__all__ = ["Problem", "Traffic", "load", "splits_into_lines"]

_SNIFF = 1 << 16
_JSON_LINES = re.compile(r"\.(jsonl|ndjson)(\.(gz|zst))?$", re.IGNORECASE)
"""Names of files that promise a record on every line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read. `field` is the path within the record, or empty; `line` is 1-based. Where it is not `lost`, it was used all the same."""

    file: str
    line: int
    reason: str
    field: str = ""
    lost: bool = True

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return f"{where}: {self.field}: {self.reason}" if self.field else f"{where}: {self.reason}"


@dataclass(slots=True)
class Traffic:
    """The records of some inputs, in file order. Iterating reads; a second iteration reads again.

    `format`: a name of `readers.FORMATS` for every record, or "auto". `strict`: the first problem raises UserError.
    After reading, `problems` holds what could not be read, `formats` counts records by format, `skipped` the lines of text logs that
    are no requests, `notes` what a reader had to say about records that it did read.
    """

    paths: Iterable[str | Path]
    format: str = "auto"
    strict: bool = False
    options: Options = field(default_factory=Options)
    problems: list[Problem] = field(default_factory=list)
    formats: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    _parse: LineParser = field(default_factory=LineParser, repr=False, compare=False)

    def __iter__(self) -> Iterator[Record]:
        self.paths = list(self.paths)
        return self.read(files.sources(self.paths))

    def read(self, sources: Iterable[Source]) -> Iterator[Record]:
        """The records of these sources, whatever `paths` says."""
        self.problems.clear()
        self.formats.clear()
        self.notes.clear()
        self.skipped = 0
        wanted = None if self.format == "auto" else by_name(self.format)
        for source in sources:
            for record in self._file(source, wanted):
                self.formats[record.format] += 1
                for note in record.notes:
                    self.notes[note] += 1
                yield record

    def problem(self, place: Place, reason: str, field: str = "") -> None:
        """Count something that could not be read; with `strict` it is the end."""
        found = Problem(place.file, place.line, reason, field)
        if self.strict:
            raise UserError(str(found))
        self.problems.append(found)

    def _file(self, source: Source, wanted: Format | None) -> Iterator[Record]:
        try:
            stream = source.open()
        except Broken as error:
            self.problem(Place(source.name), str(error))
            return
        with stream:
            if source.line > 1:
                yield from self._json(source, stream, wanted)
                return
            try:
                head = _peek(stream)
            except Broken as error:
                self.problem(Place(source.name), str(error))
                return
            kind = file_formats.sniff(source.name, head)
            if kind is not None:
                yield from self._special(source, stream, kind)
            elif _looks_like_json(head.lstrip(b"\xef\xbb\xbf \t\r\n")):
                yield from self._json(source, stream, wanted)
            elif not head.strip():
                return
            elif head[:2] in {b"\xff\xfe", b"\xfe\xff"}:
                self.problem(Place(source.name), "UTF-16 text: save it as UTF-8")
            elif b"\0" in head[:1024]:
                self.problem(Place(source.name), "not a format that promptlint reads")
            else:
                yield from self._text(source, stream, wanted)

    def _json(self, source: Source, stream: BinaryIO, wanted: Format | None) -> Iterator[Record]:
        """JSON lines; or one JSON document, when its first line alone is none."""
        number = source.line - 1
        try:
            for row in files.lines(stream, first=source.line):
                number = row.number
                place = Place(source.name, number)
                if row.data is None:
                    self.problem(place, f"line longer than {MAX_LINE >> 20} MB")
                    continue
                data = row.data.removeprefix(b"\xef\xbb\xbf") if number == 1 else row.data
                if number == 1 and _unfinished(data, self._parse):
                    yield from self._document(source, data, files.read_whole(stream), wanted)
                    return
                yield from self._line(place, data, wanted)
        except Broken as error:
            self.problem(Place(source.name, number + 1), str(error))

    def _line(self, place: Place, data: bytes, wanted: Format | None) -> Iterable[Record]:
        """The records of one line. No generator of its own: that would cost every line one more."""
        if not data or data.isspace():
            return ()
        try:
            value = self._parse(data)
        except (ValueError, RecursionError) as error:
            if _looks_like_json(data.lstrip()):
                self.problem(place, _json_reason(error))
                return ()
            return self._logged(place, data, wanted, every=_JSON_LINES.search(place.file) is not None)
        return self._object(value, place, wanted) if type(value) is dict else self._values(value, place, wanted)

    def _document(self, source: Source, first: bytes, rest: bytes, wanted: Format | None) -> Iterator[Record]:
        """A file whose first line is no whole JSON value: one document over several lines, or lines of which the first is broken."""
        place = Place(source.name)
        try:
            value = json.loads(first + b"\n" + rest)
        except (ValueError, RecursionError) as error:
            if first.strip() in {b"{", b"["}:
                self.problem(Place(source.name, getattr(error, "lineno", 1)), _json_reason(error))
                return
            for number, data in enumerate((first, *rest.split(b"\n")), 1):
                yield from self._line(Place(source.name, number), data, wanted)
            return
        yield from self._values(value, place, wanted)

    def _values(self, value: Any, place: Place, wanted: Format | None) -> Iterator[Record]:
        """The records of one parsed JSON value; a list stands for its items, each with its ordinal."""
        if isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Mapping):
                    yield from self._object(
                        item, Place(place.file, place.line if place.line > 1 else index + 1), wanted
                    )
                else:
                    self.problem(place, "expected a JSON object", f"[{index}]")
        elif isinstance(value, Mapping):
            yield from self._object(value, place, wanted)
        else:
            self.problem(place, "expected a JSON object")

    def _object(self, row: Mapping[str, Any], place: Place, wanted: Format | None) -> Iterator[Record]:
        form = wanted or format_of(row)
        if form is None:
            keys = ", ".join(str(key)[:40] for key in list(row)[:6])
            self.problem(place, f"no format that promptlint reads; its fields: {keys or 'none'}")
            return
        if form.only_named and wanted is None:
            self.skipped += 1
            return
        try:
            yield from form.read(row, place, self.options)
        except Unreadable as error:
            self.problem(place, error.reason, error.field)
        except RecursionError:
            self.problem(place, "nested too deeply")

    def _logged(self, place: Place, data: bytes, wanted: Format | None, *, every: bool = False) -> Iterator[Record]:
        """A line of a text log. Where `every` line should be a record, one that is none is a problem."""
        from promptlint.traffic.readers import server_logs

        try:
            row = server_logs.parse_line(data)
        except Unreadable as error:
            self.problem(place, error.reason, error.field)
            return
        if row is None and every:
            self.problem(place, "not a line of JSON, nor of a log that promptlint reads")
        if row is None:
            self.skipped += not every
            return
        yield from self._object(row, place, wanted)

    def _text(self, source: Source, stream: BinaryIO, wanted: Format | None) -> Iterator[Record]:
        number = 0
        found = 0
        before = len(self.problems)
        try:
            for row in files.lines(stream):
                number = row.number
                place = Place(source.name, number)
                if row.data is None:
                    self.problem(place, f"line longer than {MAX_LINE >> 20} MB")
                    continue
                for record in self._logged(place, row.data, wanted):
                    found += 1
                    yield record
        except Broken as error:
            self.problem(Place(source.name, number + 1), str(error))
        if not found and len(self.problems) == before:
            self.problem(Place(source.name), "no requests in this text: not a log that promptlint reads")

    def _special(self, source: Source, stream: BinaryIO, kind: str) -> Iterator[Record]:
        """Files that are no lines: pickles, parquet, YAML cassettes, tables."""
        try:
            for item in file_formats.read(kind, source, stream, self.options):
                if isinstance(item, Record):
                    yield item
                else:
                    place, row = item
                    if isinstance(row, Unreadable):
                        self.problem(place, row.reason, row.field)
                    else:
                        yield from self._object(row, place, None)
        except Broken as error:
            self.problem(Place(source.name), str(error))
        except Unreadable as error:
            self.problem(Place(source.name), error.reason, error.field)


def splits_into_lines(source: Source) -> bool:
    """Whether each line of a file is read by itself, so that parts of it that begin with a line can be read apart: plain JSON lines."""
    try:
        if source.path is None:
            return False
        with source.path.open("rb") as plain:
            if plain.read(1) not in {b"{", b"\xef", b" ", b"\t"}:  # also no archive
                return False
        with source.open() as stream:
            head = _peek(stream)
            first = next(files.lines(stream), None)
    except (OSError, Broken):
        return False
    if file_formats.sniff(source.name, head) is not None or first is None or first.data is None:
        return False
    data = first.data.removeprefix(b"\xef\xbb\xbf")
    return _looks_like_json(data.lstrip(b" \t")) and not _unfinished(data)


def _looks_like_json(data: bytes) -> bool:
    """Whether a line or file begins as JSON does; `[2026-03-04 09:00:00]` begins a line of a server's log."""
    return data[:1] == b"{" or (data[:1] == b"[" and re.match(rb"\[\d{4}-\d\d-\d\d[ T]", data) is None)


def _unfinished(line: bytes, parse: Callable[[bytes], Any] = json.loads) -> bool:
    """Whether a line is the beginning of a JSON value and not all of it."""
    if not _looks_like_json(line.lstrip()):
        return False
    try:
        parse(line)
    except json.JSONDecodeError as error:
        return error.pos >= len(error.doc.rstrip()) - 1
    except (ValueError, RecursionError):
        return False
    return False


def _peek(stream: BinaryIO) -> bytes:
    peek = getattr(stream, "peek", None)
    try:
        return peek(_SNIFF)[:_SNIFF] if peek is not None else b""
    except Exception as error:
        raise Broken(str(error) or "damaged") from error


def _json_reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text (byte {error.start + 1})"
    column = getattr(error, "colno", None)
    return f"not valid JSON: {getattr(error, 'msg', error)}" + (f" (column {column})" if column else "")


def load(traffic: Iterable[Record]) -> list[Record]:
    """All records in time order (file order where a time is missing), with answers joined to their requests.

    A log may hold what was sent and what it cost as two records with one id (a batch's input and output files); the cost goes to the
    request. What is left without a request is kept: it still tells the observed hit rate. Memory follows the distinct messages: a log repeats
    a conversation in each of its requests.
    """
    share = _Shared()
    records = [share(record) for record in traffic]
    requests: dict[str, Record] = {record.id: record for record in records if record.id and record.is_request}
    kept = []
    for record in records:
        partner = requests.get(record.id) if record.id and not record.is_request else None
        if partner is None or partner.usage:
            kept.append(record)
            continue
        partner.usage = record.usage
        partner.output = partner.output if partner.output is not None else record.output
    return in_time_order(kept)


class _Shared:
    """Makes records share what they have in common: messages, system texts and tool lists that are equal become one object, which nobody may change."""

    def __init__(self) -> None:
        self._known: dict[bytes, Any] = {}

    def __call__(self, record: Record) -> Record:
        if record.messages is not None:
            record.messages = [self._one(message) for message in record.messages]
        record.system = self._one(record.system)
        record.tools = self._one(record.tools)
        return record

    def _one(self, value: Any) -> Any:
        if value is None:
            return None
        try:
            # Equal bytes are equal values with equal kinds of numbers and order of keys; version 2 writes no references, which depend on identity.
            mark = blake2b(marshal.dumps(value, 2), digest_size=16).digest()
        except ValueError:  # nested too deeply to be written
            return value
        return self._known.setdefault(mark, value)


def in_time_order(records: list[Record]) -> list[Record]:
    """Sorted by timestamp, stable; a record without one stays right behind the record that it follows in its file."""
    last = float("-inf")
    stamps = []
    for record in records:
        last = record.timestamp if record.timestamp is not None else last
        stamps.append(last)
    order = sorted(range(len(records)), key=stamps.__getitem__)
    return [records[index] for index in order]
