"""Files that are not lines of JSON: told apart by their first bytes, read whole or by their own library.

Pickles (SGLang's request dumps), parquet, YAML (VCR cassettes), CSV (usage exports), and the text format of Prometheus. Each gives records, or
objects for the JSON readers, with the ordinal of the entry as its line.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from promptlint.errors import UserError
from promptlint.traffic.files import MAX_LINE, Source, read_whole
from promptlint.traffic.readers.base import Options, text_or_none
from promptlint.traffic.readers.bodies import add_response, record_of
from promptlint.traffic.record import Place, Record, Unreadable, milliseconds

__all__ = ["cassette", "read", "sniff"]

Item = Record | tuple[Place, Mapping[str, Any] | Unreadable]

_SENT = re.compile(r"/(?:chat/completions|completions|responses|messages|generateContent|streamGenerateContent|converse|generate|api/chat|api/generate)\b|:(?:stream)?[gG]enerateContent")  # fmt: skip


def sniff(name: str, head: bytes) -> str | None:
    """The kind of a file that is not JSON lines or a text log; None for everything else."""
    bare = name.lower().removesuffix(".gz").removesuffix(".zst")
    if head[:1] == b"\x80" and head[1:2] in {b"\x02", b"\x03", b"\x04", b"\x05"}:
        return "pickle"
    if head[:4] == b"PAR1":
        return "parquet"
    if re.match(rb"\s*(?:#[^\n]*\n|---[^\n]*\n)*(?:interactions|version):", head) and b"interactions:" in head:
        return "yaml"
    if (
        re.search(rb"^(?:# (?:HELP|TYPE) |(?:vllm|sglang):\w+[{ ])", head[:4096], re.MULTILINE)
        and b"Receive" not in head[:64]
    ):
        return "prometheus"
    if bare.endswith(".csv"):
        return "csv"
    return None


def read(kind: str, source: Source, stream: BinaryIO, options: Options) -> Iterator[Item]:
    """The records in such a file, or its parsed objects with their places for the JSON readers. Raises Unreadable for the whole file."""
    place = Place(source.name)
    if kind == "pickle":
        yield from _pickle(read_whole(stream), place, options)
    elif kind == "parquet":
        yield from _parquet(stream, place, options)
    elif kind == "yaml":
        from promptlint.traffic.readers.safe_yaml import load_yaml

        try:
            document = load_yaml(read_whole(stream), source.name)
        except UserError as error:
            raise Unreadable(str(error).removeprefix(source.name + ":")) from error
        if not isinstance(document, Mapping):
            raise Unreadable("a YAML file that is no cassette")
        yield from cassette(document, place, options)
    else:
        from promptlint.traffic.readers import aggregates

        reader = aggregates.prometheus if kind == "prometheus" else aggregates.table
        yield from reader(read_whole(stream).decode("utf-8-sig", "replace"), place)


def _pickle(data: bytes, place: Place, options: Options) -> Iterator[Item]:
    """SGLang's dumps: `{"requests": [(request, answer, created, finished), …], …}`, or the bare list of older versions."""
    from promptlint.traffic.readers.safe_pickle import Inert, load
    from promptlint.traffic.readers.server_logs import sglang_record

    found = load(data)
    rows = found.get("requests") if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise Unreadable("a pickle that is no request dump of SGLang", "requests")
    for index, row in enumerate(rows):
        where = Place(place.file, index + 1)
        try:
            obj, out, created = (*tuple(row), None, None)[:3] if isinstance(row, (tuple, list)) else (row, None, None)
            fields = obj if isinstance(obj, dict) else vars(obj)
            if isinstance(obj, Inert) and not fields.keys() - {"arguments"}:
                raise Unreadable(f"no request but a call of {obj.name}, which was not run")
            stamp = created if isinstance(created, (int, float)) else None
            yield sglang_record(
                _plain(fields), _plain(out), where, options, stamp=None if stamp is None else stamp * 1000.0
            )
        except Unreadable as error:
            yield (
                where,
                Unreadable(error.reason, f"requests[{index}].{error.field}" if error.field else f"requests[{index}]"),
            )
        except (TypeError, AttributeError):
            yield where, Unreadable("not a request", f"requests[{index}]")


def _plain(value: Any, depth: int = 0) -> Any:
    """Inert objects as dictionaries, arrays that a pickle wrapped as their items."""
    from promptlint.traffic.readers.safe_pickle import Inert

    if depth > 8:
        return None
    if isinstance(value, Inert):
        held = {key: item for key, item in vars(value).items() if key != "arguments"}
        return _plain(held, depth + 1) if held else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if value and type(value[0]) is int:
            return list(value)
        return [_plain(item, depth + 1) for item in value]
    return value


def _parquet(stream: BinaryIO, place: Place, options: Options) -> Iterator[Item]:
    """Rows of a table; `options.columns` maps our field names to its columns (`messages=conversation`)."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise Unreadable("parquet: install promptlint-cache[parquet] to read it") from None
    import io

    try:
        table = pq.ParquetFile(io.BytesIO(read_whole(stream)))
        number = 0
        for batch in table.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield Place(place.file, number), mapped(row, options.columns)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"not a readable parquet file: {str(error)[:120]}") from error


def mapped(row: Mapping[str, Any], columns: Mapping[str, str] | None) -> dict[str, Any]:
    """A table's row under our field names; nulls dropped, JSON texts of structured fields parsed."""
    names = {column: field for field, column in (columns or {}).items()}
    found = {names.get(key, key): value for key, value in row.items() if value is not None}
    for key in ("messages", "tools", "usage", "token_ids", "hash_ids", "conversations", "input"):
        value = found.get(key)
        if isinstance(value, str) and value.lstrip()[:1] in {"[", "{"}:
            try:
                found[key] = json.loads(value)
            except (ValueError, RecursionError):
                continue
    return {key: _without_nulls(value) for key, value in found.items()}


def _without_nulls(value: Any) -> Any:
    """Columns of structs write every field that any row has; the empty ones were never sent."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def cassette(document: Mapping[str, Any], place: Place, options: Options) -> Iterator[Item]:
    """The model calls among the interactions of a VCR cassette (vcrpy, pytest-recording)."""
    entries = document.get("interactions")
    if not isinstance(entries, list):
        raise Unreadable("a cassette without interactions", "interactions")
    for index, entry in enumerate(entries):
        where = Place(place.file, index + 1)
        field = f"interactions[{index}]"
        request = entry.get("request") if isinstance(entry, Mapping) else None
        if not isinstance(request, Mapping):
            yield where, Unreadable("an interaction without a request", field)
            continue
        if not _SENT.search(text_or_none(request.get("uri", request.get("url")))):
            continue
        try:
            body = _body(request.get("body"), f"{field}.request.body")
            if not isinstance(body, Mapping):
                raise Unreadable("a request without a JSON body", f"{field}.request.body")
            record = record_of(body, where, "vcr", options)
            response = entry.get("response")
            if isinstance(response, Mapping):
                try:
                    add_response(record, _body(response.get("body", response.get("content")), f"{field}.response.body"))
                except Unreadable:  # a stream of events, an error page: the request stands without its answer
                    record.notes += ("the response's body is not JSON",)
            record.timestamp = milliseconds(entry.get("recorded_at"))
            yield record
        except Unreadable as error:
            name = error.field if error.field.startswith("interactions") else f"{field}.request.body.{error.field}"
            yield where, Unreadable(error.reason, name)


def _inflated(data: bytes, field: str) -> bytes:
    """A body without its gzip. A bomb, whose few bytes unfold to gigabytes, is no body."""
    inflate = zlib.decompressobj(31)
    value = inflate.decompress(data, MAX_LINE)
    if inflate.unconsumed_tail or (not inflate.eof and len(value) >= MAX_LINE):
        raise Unreadable(f"unfolds to more than {MAX_LINE >> 20} MB", field)
    if not inflate.eof:
        raise Unreadable("damaged gzip: truncated", field)
    return value


def _body(value: Any, field: str) -> Any:
    """A recorded body: text, bytes, gzip, base64 or parsed JSON."""
    if isinstance(value, Mapping):
        if "string" in value or "base64_string" in value:
            value = value.get("string", value.get("base64_string"))
        else:
            return value
    if isinstance(value, bytes):
        if value[:2] == b"\x1f\x8b":
            try:
                value = _inflated(value, field)
            except zlib.error as error:
                raise Unreadable(f"damaged gzip: {error}", field) from error
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        text = value.strip()
        if text[:1] not in {"{", "["}:
            try:
                text = base64.b64decode(text, validate=True).decode("utf-8")
            except (ValueError, UnicodeDecodeError):
                raise Unreadable("not JSON", field) from None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"not valid JSON: {error}", field) from error
    return value
