"""Stage 1 of `simulate`: an input normalised by the readers, rendered, tokenised and written as a piece."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from promptlint.app.requests import CHUNK, CHUNK_TEXT, Renderer, TextTokens
from promptlint.distributed.inputs import Input, identity, opened
from promptlint.distributed.pieces import Piece, Writer, bucket_of
from promptlint.distributed.work import kept, key_of
from promptlint.traffic.read import Traffic
from promptlint.traffic.readers.base import Options
from promptlint.traffic.record import Record, Unreadable

__all__ = ["Tokenise", "folder_facts", "piece_of"]


class Tokenise:
    """Turns inputs into pieces. Made once in a process, so that its tokenizer is loaded once.

    Args:
        given: `work` (the folder), `format`, `tools`, `block_size`, `columns`, `mode`, `tokenizer`, `marks`, `buckets`.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = dict(given)
        self._work = Path(self._given.pop("work"))
        self._render = Renderer(given["mode"], given["tokenizer"], marks=given["marks"])
        self._facts = folder_facts(given["mode"]), folder_facts(given["tokenizer"])

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """The manifest of the piece of an input; made, unless it is there already. Raises UserError."""
        with opened(Input(**task)) as source:
            key = key_of("piece", identity(source), self._given, self._facts)
            return {"key": key, **kept(self._work, key, lambda folder: self._write(source, folder))}

    def _write(self, source: Any, folder: Path) -> dict[str, Any]:
        given = self._given
        traffic = Traffic(
            [], given["format"], options=Options(given["tools"], given["block_size"], given.get("columns"))
        )
        writer = Writer(folder)
        first: bool | None = None
        counts = {"records": 0, "hashed": 0, "other": 0}
        for order, (record, made) in enumerate(self._tokenised(traffic.read([source]))):
            first = record.hash_ids is not None if first is None else first
            counts["records"] += 1
            counts["hashed" if record.hash_ids is not None else "other"] += 1
            writer.add(bucket_of(record, given["buckets"]), order, record, made)
        problems = [[one.line, one.reason, one.field] for one in traffic.problems]
        return {"name": source.name, "buckets": writer.close(), "problems": problems, "first_hashed": first, **counts}

    def _tokenised(self, records: Iterator[Record]) -> Iterator[tuple[Record, TextTokens | Unreadable | None]]:
        """Each record, with its tokens where it has text, in chunks as `Requests` makes them."""
        chunk: list[Record] = []
        size = 0
        for record in records:
            chunk.append(record)
            size += len(record.prompt or "")
            if len(chunk) == CHUNK or size > CHUNK_TEXT:
                yield from self._chunk(chunk)
                chunk, size = [], 0
        yield from self._chunk(chunk)

    def _chunk(self, chunk: Sequence[Record]) -> Iterator[tuple[Record, TextTokens | Unreadable | None]]:
        if texts := [record for record in chunk if _to_render(record)]:
            self._render.prepare(texts)
        for record in chunk:
            made: TextTokens | Unreadable | None = None
            if _to_render(record):
                try:
                    made = self._render(record)
                except Unreadable as error:
                    made = error
            yield record, made


def _to_render(record: Record) -> bool:
    return record.has_text and record.hash_ids is None and record.token_ids is None


def folder_facts(name: str | None) -> Any:
    """What tells one state of a tokenizer's or template's own files from another; None for a name."""
    path = Path(name) if name else None
    if path is None or not path.exists():
        return None
    found = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    return [[one.name, one.stat().st_size, one.stat().st_mtime_ns] for one in found]


def piece_of(work: Path, number: int, manifest: Mapping[str, Any]) -> Piece:
    """The piece that a manifest of `Tokenise` is about."""
    return Piece(work / manifest["key"], manifest["name"], number, tuple(manifest["buckets"]))
