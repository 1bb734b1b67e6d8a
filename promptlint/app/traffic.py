"""Traffic for the other pipelines: records to requests with token ids, and the commands `traffic convert|stats|anonymize|synth`."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promptlint.caches.request import Request
from promptlint.errors import UserError
from promptlint.tokenizers.segments import SegmentTokenizer, Special
from promptlint.traffic.read import Traffic
from promptlint.traffic.readers.base import Options
from promptlint.traffic.record import Record

__all__ = ["Tokens", "open_traffic", "requests", "token_counter"]


def open_traffic(
    paths: Iterable[str | Path],
    *,
    form: str = "auto",
    strict: bool = False,
    tools: Path | None = None,
    block_size: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> Traffic:
    """The traffic of some files, folders or `-`. `tools` is a JSON file with the tools sent with every request. Raises UserError."""
    from promptlint.traffic.readers import by_name

    if form != "auto":
        by_name(form)
    sent = None
    if tools is not None:
        try:
            sent = json.loads(tools.read_text("utf-8"))
        except OSError as error:
            raise UserError(f"{tools}: {error.strerror or error}") from error
        except ValueError as error:
            raise UserError(f"{tools}: not valid JSON: {error}") from error
        if not isinstance(sent, list):
            raise UserError(f"{tools}: must hold a list of tools")
    return Traffic(list(paths), format=form, strict=strict, options=Options(sent, block_size, columns))


@dataclass(slots=True)
class Tokens:
    """Turns records into token ids, each distinct text once. One tokenizer and one renderer for all, or by the model of each record.

    `tokenizer` and `render` are names; None means by the model's family (unknown: the default encoding, the provider's approximation). `used` counts the
    requests by the pair that was taken; `unrendered` those whose messages the template refused, by reason.
    """

    tokenizer: str | None = None
    render: str | None = None
    used: dict[tuple[str, str], int] = field(default_factory=dict)
    unrendered: dict[str, int] = field(default_factory=dict)
    _segments: dict[str, SegmentTokenizer] = field(default_factory=dict)
    _pairs: dict[str, tuple[str, str]] = field(default_factory=dict)
    _renderers: dict[str, Any] = field(default_factory=dict)

    def segments(self, name: str) -> SegmentTokenizer:
        """The remembering tokenizer of that name."""
        from promptlint import tokenizers

        if name not in self._segments:
            self._segments[name] = SegmentTokenizer(tokenizers.get(name))
        return self._segments[name]

    def _pair(self, model: str) -> tuple[str, str]:
        from promptlint.catalog.profiles import encoding_for
        from promptlint.tokenizers.render import family

        if model not in self._pairs:
            mode = self.render or (_own_template(self.tokenizer) or family(model))
            self._pairs[model] = (self.tokenizer or encoding_for(model)[0], mode)
        return self._pairs[model]

    def request(self, record: Record, number: int) -> Request | None:
        """The request of a record; None for one without text or ids, or that its template refuses (counted in `unrendered`)."""
        from promptlint.tokenizers.render import renderer

        name, mode = self._pair(record.model)
        segments = self.segments(name)
        common: dict[str, Any] = {
            "id": record.id or number,
            "namespace": namespace_of(record),
            "timestamp": (record.timestamp or 0.0) / 1000.0,
            "session": record.session_id or None,
            "labels": labels_of(record),
            "max_new_tokens": record.output_length,
        }
        if record.token_ids is not None:
            return Request(
                prompt=_packed(record, record.token_ids), output=_packed(record, record.output_tokens or ()), **common
            )
        if record.prompt is not None:
            said = record.output if isinstance(record.output, str) else ""
            prompt = segments.packed([record.prompt])
            output = (
                _packed(record, record.output_tokens)
                if record.output_tokens
                else segments.packed([said, _STOP] if said else [])
            )
            self._count(name, "text")
            return Request(prompt=prompt, output=output, **common) if prompt else None
        if record.messages is None:
            return None
        if mode not in self._renderers:
            self._renderers[mode] = renderer(mode)
        try:
            rendered = self._renderers[mode](conversation_of(record))
        except ValueError as error:
            self.unrendered[str(error)] = self.unrendered.get(str(error), 0) + 1
            return None
        self._count(name, mode)
        kept = segments.packed(rendered.stored) if rendered.stored is not None else None
        marks = tuple(at for at, _lifetime in segments.marks(rendered.prompt)) if mode == "provider" else ()
        return Request(
            prompt=segments.packed(rendered.prompt),
            output=segments.packed(rendered.answer),
            kept=kept,
            breakpoints=marks,
            **common,
        )

    def _count(self, name: str, mode: str) -> None:
        self.used[name, mode] = self.used.get((name, mode), 0) + 1


def _own_template(tokenizer: str | None) -> str | None:
    """The tokenizer's own directory, when it has a chat template."""
    if tokenizer is None or not Path(tokenizer).is_dir():
        return None
    names = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
    return tokenizer if any((Path(tokenizer) / name).is_file() for name in names) else None


_STOP = Special("<|end of answer|>")
"""Stands for the token that ends an answer given as text: the last token of an answer is sampled but never cached, and it is not part of the text."""


def _packed(record: Record, ids: Iterable[int]) -> bytes:
    from promptlint.caches.request import pack

    try:
        return pack(ids)
    except OverflowError as error:
        raise UserError(f"{record.place}: a token id does not fit 32 bits") from error


def conversation_of(record: Record) -> Any:
    """What a renderer takes of a record."""
    from promptlint.tokenizers.render import Conversation

    date = ""
    if record.timestamp is not None and record.timestamp > 1e11:
        date = dt.datetime.fromtimestamp(record.timestamp / 1000.0, dt.UTC).strftime("%Y-%m-%d")
    return Conversation(record.messages or (), record.tools, record.system, record.output, date)


def namespace_of(record: Record) -> str | None:
    """What separates equal tokens: the model and the record's own namespace."""
    parts = [part for part in (record.model, record.namespace) if part]
    return "\0".join(parts) if parts else None


def labels_of(record: Record) -> tuple[tuple[str, str], ...]:
    """What results are grouped by."""
    pairs = (("model", record.model), ("namespace", record.namespace), ("call_site", record.call_site))
    return tuple((kind, name) for kind, name in pairs if name)


def requests(records: Iterable[Record], tokens: Tokens) -> Iterator[Request]:
    """The requests of the records, in their order; records that hold none are left out."""
    for number, record in enumerate(records, 1):
        request = tokens.request(record, number)
        if request is not None:
            yield request


def token_counter(segments: SegmentTokenizer) -> Any:
    """Number of tokens of a text, counted once for each distinct text."""
    known: dict[str, int] = {}

    def count(text: str) -> int:
        found = known.get(text)
        if found is None:
            found = known[text] = segments.count([text])
        return found

    return count
