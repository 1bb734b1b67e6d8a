"""Pieces: the records of one input as parquet, one file for each bucket of routing keys, and reading them back in the order of the input.

A row is (order, line, fields, prompt, output, kept, name): where it stood, what the cache models ask of a record as JSON, token ids packed four bytes each, and
a hash of its id. Text is not kept: rows of requests hold their tokens in its place.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptlint.app.requests import TextTokens
from promptlint.caches.request import TOKEN_BYTES, pack, unpack
from promptlint.distributed.work import create
from promptlint.errors import UserError
from promptlint.traffic.record import CACHE_READ, CACHE_WRITE, INPUT, Place, Record, Unreadable

__all__ = ["Piece", "Row", "Stored", "Writer", "name_of", "parquet", "rows"]

_FLUSH = 4 << 20
"""Bytes of rows that are kept until they are written together."""

_FIELDS = (
    "format", "id", "session_id", "timestamp", "model", "namespace", "call_site", "hash_ids", "block_size", "input_length",
    "output_length", "given_id", "ids_field", "empty_key",
)  # fmt: skip
_EMPTY = Record()
_EXTRA = ("priority", "max_new_tokens", "kept_hash_ids", "output_hash_ids")
_USAGE = (INPUT, CACHE_READ, CACHE_WRITE)


def parquet() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet. Raises UserError where they are not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError("parquet: install promptlint-cache[ray] (needs pyarrow)") from None
    return pa, pq


@dataclass(slots=True)
class Row(Record):
    """A record that was read back: what it was rendered to stands in place of its text."""

    made: TextTokens | Unreadable | None = None
    order: int = 0
    piece: int = 0


class Stored:
    """Renders rows that were rendered before; see `requests.Render`."""

    def prepare(self, records: Any, /) -> None:
        """Nothing is left to do."""

    def __call__(self, record: Record, /) -> TextTokens:
        assert isinstance(record, Row)
        if isinstance(record.made, Unreadable):
            raise record.made
        assert record.made is not None
        return record.made


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece in a work folder: `name` of its input, number among the pieces, the buckets that it has."""

    folder: Path
    name: str
    number: int
    buckets: tuple[int, ...]

    def file(self, bucket: int) -> Path:
        return self.folder / f"bucket={bucket:04d}.parquet"


def name_of(record: Record) -> str | None:
    """The log's own id of a record, as JSON; None without one."""
    name = record.given_id if record.given_id is not None else record.id or None
    return None if name is None else json.dumps(name)


def _name_hash(name: str | None) -> int | None:
    if name is None:
        return None
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def _encoded(record: Record, made: TextTokens | Unreadable | None) -> tuple[bytes, bytes, bytes, bytes | None]:
    """The fields, the prompt, the output and what is kept of a record. The inverse of `_decoded`."""
    fields: dict[str, Any] = {
        name: value for name in _FIELDS if (value := getattr(record, name)) != getattr(_EMPTY, name)
    }
    if usage := {name: record.usage[name] for name in _USAGE if name in record.usage}:
        fields["usage"] = usage
    if extra := {name: record.extra[name] for name in _EXTRA if name in record.extra}:
        fields["extra"] = extra
    if key := record.parameters.get("prompt_cache_key"):
        fields["parameters"] = {"prompt_cache_key": str(key)}
    prompt = output = b""
    kept: bytes | None = None
    if isinstance(made, Unreadable):
        fields["refused"] = [made.reason, made.field]
    elif made is not None:
        prompt, output = made.prompt, made.output
        if made.kept is not None:
            kept = prompt[: made.kept_after * TOKEN_BYTES] + made.kept
        fields["text"] = [made.breakpoints, made.stops, made.lifetimes, made.head]
    elif record.token_ids is not None:
        prompt, fields["token_ids"] = _packed(record.token_ids)
    if record.output_tokens is not None:  # in place of the text of an answer
        output, fields["output_tokens"] = _packed(record.output_tokens)
    return json.dumps(fields, separators=(",", ":"), default=str).encode(), prompt, output, kept


def _packed(ids: list[int]) -> tuple[bytes, list[int] | None]:
    """Token ids packed; those that cannot be are kept as they are, to be refused where they always are."""
    try:
        return pack(ids), None
    except (OverflowError, TypeError):
        return b"", ids


def _decoded(place: Place, data: bytes, prompt: bytes, output: bytes, kept: bytes | None) -> Row:
    fields: dict[str, Any] = json.loads(data)
    row = Row(place)
    if "refused" in fields:
        row.prompt = ""
        row.made = Unreadable(*fields.pop("refused"))
    elif "text" in fields:
        marks, stops, lifetimes, head = fields.pop("text")
        row.prompt = ""
        row.made = TextTokens(prompt, output, kept, tuple(marks), tuple(stops), tuple(lifetimes), head)
    for name, run in (("token_ids", prompt), ("output_tokens", output)):
        if name in fields and fields[name] is None:
            fields[name] = unpack(run)
    for name, value in fields.items():
        setattr(row, name, value)
    return row


_COLUMNS = ("order", "line", "fields", "prompt", "output", "kept", "name")


class Writer:
    """Writes the files of a piece; each is begun with the first row of its bucket. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pa, self._pq = parquet()
        pa = self._pa
        types = (pa.int64(), pa.int64(), pa.binary(), pa.binary(), pa.binary(), pa.binary(), pa.int64())
        self._schema = pa.schema(list(zip(_COLUMNS, types, strict=True)))
        self._waiting: dict[int, list[tuple[Any, ...]]] = {}
        self._sizes: dict[int, int] = {}
        self._open: dict[int, tuple[Any, Any]] = {}

    def add(self, bucket: int, order: int, record: Record, made: TextTokens | Unreadable | None) -> None:
        encoded = _encoded(record, made)
        name = _name_hash(name_of(record)) if record.is_request else None
        self._waiting.setdefault(bucket, []).append((order, record.place.line, *encoded, name))
        size = self._sizes.get(bucket, 0) + sum(len(one) for one in encoded if one)
        self._sizes[bucket] = size
        if size > _FLUSH:
            self._flush(bucket)

    def close(self) -> list[int]:
        """Write what is left; returns the buckets that there are."""
        for bucket in list(self._waiting):
            self._flush(bucket)
        for writer, file in self._open.values():
            writer.close()
            file.close()
        return sorted(self._open)

    def _flush(self, bucket: int) -> None:
        found = self._waiting.pop(bucket)
        self._sizes[bucket] = 0
        if bucket not in self._open:
            file = create(self._folder / f"bucket={bucket:04d}.parquet")
            self._open[bucket] = self._pq.ParquetWriter(file, self._schema, compression="zstd"), file
        columns = list(zip(*found, strict=True))
        arrays = [self._pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        self._open[bucket][0].write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))


def rows(pieces: Iterable[Piece], bucket: int | None) -> Iterator[Row]:
    """The rows of one bucket, or of all (None), piece by piece and in each in the order of its input."""
    for piece in pieces:
        if bucket is not None:
            if bucket in piece.buckets:
                yield from _rows(piece, bucket)
        else:
            yield from heapq.merge(*(_rows(piece, one) for one in piece.buckets), key=lambda row: row.order)


def _rows(piece: Piece, bucket: int) -> Iterator[Row]:
    _, pq = parquet()
    with pq.ParquetFile(piece.file(bucket)) as file:
        for group in range(file.num_row_groups):
            columns = file.read_row_group(group, columns=list(_COLUMNS[:-1])).to_pydict()
            for order, line, fields, prompt, output, kept in zip(*columns.values(), strict=True):
                row = _decoded(Place(piece.name, line), fields, prompt, output, kept)
                row.order, row.piece = order, piece.number
                yield row


def name_hashes(piece: Piece) -> Iterator[Any]:
    """Hashes of the ids in each file of a piece, as arrays."""
    _, pq = parquet()
    for bucket in piece.buckets:
        yield pq.read_table(piece.file(bucket), columns=["name"]).column("name").drop_null().to_numpy()


def bucket_of(record: Record, buckets: int) -> int:
    """The bucket of a record: requests that can share a prefix in some engine have the same.

    Block hashes are shared by the requests of a namespace, whatever their model, under block-lru; tokens never across models.
    """
    key: Mapping[str, Any] | list[Any] = [record.namespace, "" if record.hash_ids is not None else record.model]
    return int.from_bytes(hashlib.blake2b(json.dumps(key).encode(), digest_size=8).digest(), "big") % buckets
