"""Traffic for the other pipelines, and the commands `traffic convert|stats|anonymize|synth`."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promptlint.analysis.matching import Matcher, Measured
from promptlint.errors import UserError
from promptlint.ir import Reading
from promptlint.tokenizers import DISGUISED
from promptlint.tokenizers.segments import SegmentTokenizer, Special
from promptlint.traffic.anonymize import anonymous
from promptlint.traffic.read import Traffic
from promptlint.traffic.readers.base import Options
from promptlint.traffic.record import Place, Record, Unreadable
from promptlint.traffic.stats import Stats, stats

__all__ = [
    "Rendering",
    "Tokens",
    "anonymize",
    "disguise_of",
    "from_code",
    "lines",
    "measure",
    "measure_code",
    "measured",
    "measured_reading",
    "open_traffic",
    "synthesise",
    "token_counter",
]


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
        except (ValueError, RecursionError) as error:
            raise UserError(f"{tools}: not valid JSON: {error}") from error
        if not isinstance(sent, list):
            raise UserError(f"{tools}: must hold a list of tools")
    return Traffic(list(paths), format=form, strict=strict, options=Options(sent, block_size, columns))


@dataclass(frozen=True, slots=True)
class Rendering:
    """Packed token ids of one record: the prompt, what was produced, what the cache holds afterwards, and the cache markers (position, lifetime)."""

    prompt: bytes
    output: bytes
    stored: bytes
    marks: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class Tokens:
    """Records to token ids, each distinct text once.

    `tokenizer` and `render` are names; None means by the model of each record: its encoding (unknown: the default one) and its family's chat template (unknown: the
    provider's approximation; a tokenizer's directory brings its own).
    """

    tokenizer: str | None = None
    render: str | None = None
    _segments: dict[str, SegmentTokenizer] = field(default_factory=dict)
    _pairs: dict[str, tuple[str, str]] = field(default_factory=dict)
    _renderers: dict[str, Any] = field(default_factory=dict)

    def segments(self, name: str) -> SegmentTokenizer:
        """The remembering tokenizer of that name."""
        from promptlint import tokenizers

        if name not in self._segments:
            self._segments[name] = SegmentTokenizer(tokenizers.get(name))
        return self._segments[name]

    def names(self, model: str) -> tuple[str, str]:
        """The tokenizer and the render mode for a model."""
        from promptlint.catalog.profiles import encoding_for
        from promptlint.tokenizers.render import family

        if model not in self._pairs:
            mode = self.render or _own_template(self.tokenizer) or family(model)
            self._pairs[model] = (self.tokenizer or encoding_for(model)[0], mode)
        return self._pairs[model]

    def of(self, record: Record) -> Rendering | None:
        """The token ids of a record; None for one that has neither text nor ids. Raises Unreadable when its template refuses it."""
        if record.token_ids is not None:
            prompt, output = _packed(record.token_ids), _packed(record.output_tokens or ())
            return Rendering(prompt, output, prompt + output[:-4])
        if record.prompt is None and record.messages is None:
            return None
        name, mode = self.names(record.model)
        segments = self.segments(DISGUISED if record.disguised else name)
        if record.prompt is not None:
            said = record.output if isinstance(record.output, str) else ""
            prompt, output = segments.packed([record.prompt]), segments.packed([said, _STOP] if said else [])
            return Rendering(prompt, output, prompt + output[:-4])
        if mode not in self._renderers:
            from promptlint.tokenizers.render import renderer

            self._renderers[mode] = renderer(mode)
        from promptlint.tokenizers.render import Conversation, packed

        try:
            rendered = self._renderers[mode](
                Conversation(record.messages or (), record.tools, record.system, record.output)
            )
        except ValueError as error:
            raise Unreadable(str(error), "messages") from error
        except RecursionError as error:
            raise Unreadable("nested too deeply", "messages") from error
        prompt, output, kept, behind = packed(rendered, segments)
        stored = prompt + output[:-4] if kept is None else prompt[: behind * 4] + kept
        return Rendering(prompt, output, stored, tuple(segments.marks(rendered.prompt)))


_STOP = Special("<|end of answer|>")
"""Stands for the token that ends an answer given as text: the last token of an answer is sampled but never cached, and it is not part of the text."""


def _own_template(tokenizer: str | None) -> str | None:
    """The tokenizer's own directory, when it has a chat template."""
    if tokenizer is None or not Path(tokenizer).is_dir():
        return None
    names = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
    return tokenizer if any((Path(tokenizer) / name).is_file() for name in names) else None


def _packed(ids: Iterable[int]) -> bytes:
    from promptlint.caches.request import pack

    return pack(ids)


def disguise_of(records: Sequence[Record]) -> Callable[[str], str] | None:
    """What turns the code's own texts into what stands in these requests; None where they are not disguised. Raises UserError when the key is not here."""
    names = {name for record in records if (name := record.disguised)}
    if not names:
        return None
    from promptlint.app.record import find_key
    from promptlint.recording.child._promptlint_recorder import disguise

    keys = [key for name in sorted(names) if (key := find_key(name)) is not None]
    if len(names) > 1 or not keys or any(record.has_text and not record.disguised for record in records):
        why = (
            "their key is not on this machine or not of this project"
            if len(names) == 1 and not keys
            else "they are of several recordings"
        )
        raise UserError(f"the text of these requests is disguised, and {why}: record again, or with --keep-text")
    return lambda text: disguise.text(text, keys[0])


def token_counter(segments: SegmentTokenizer) -> Callable[[str], int]:
    """Number of tokens of a text, counted once for each distinct text."""
    known: dict[str, int] = {}

    def count(text: str) -> int:
        found = known.get(text)
        if found is None:
            found = known[text] = segments.count([text])
        return found

    return count


def lines(records: Iterable[Record], refuse: Callable[[Place, str], None] | None = None) -> Iterator[bytes]:
    """Canonical records as JSON lines in UTF-8, key order kept; lone surrogates, which UTF-8 cannot carry, stay escaped.

    `refuse` is told of a record that is nested too deeply to be written.
    """
    for record in records:
        row = record.to_json()
        try:
            yield (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
        except UnicodeEncodeError:
            yield (json.dumps(row, separators=(",", ":")) + "\n").encode()
        except RecursionError:
            if refuse is None:
                raise
            refuse(record.place, "nested too deeply")


def _rendered(
    traffic: Traffic, tokens: Tokens, records: Iterable[Record] | None = None
) -> Iterator[tuple[Record, Rendering | None]]:
    """Every record of the traffic (or these) with its token ids; one whose template refuses it is counted among the problems and comes without."""
    for record in traffic if records is None else records:
        try:
            yield record, tokens.of(record)
        except (Unreadable, OverflowError) as error:
            reason, where = (
                (error.reason, error.field)
                if isinstance(error, Unreadable)
                else ("a token id does not fit 32 bits", "token_ids")
            )
            traffic.problem(record.place, reason, where)
            yield record, None


def measure(traffic: Traffic, tokens: Tokens) -> Stats:
    """Statistics of traffic, prompts counted as the model sees them."""
    return measured(traffic, traffic, tokens)


def measured(traffic: Traffic, records: Iterable[Record], tokens: Tokens) -> Stats:
    """Statistics of records that `traffic` reads; a prompt that cannot be rendered is one of its problems."""
    rendered = _rendered(traffic, tokens, records)
    return stats((record, None if made is None else len(made.prompt) // 4) for record, made in rendered)


def measured_reading(reading: Reading, paths: Iterable[str]) -> Reading:
    """The reading with what traffic says of its holes in place of guesses. Raises UserError when no request belongs to the code."""
    from promptlint.analysis.matching import measure as measure_holes
    from promptlint.analysis.matching import with_measured
    from promptlint.traffic.read import load

    traffic = open_traffic(paths)
    records = load(traffic)
    prompts = [prompt for prompt in reading.prompts if prompt.origin != "template"]
    found = measure_holes(records, Matcher(prompts, disguise=disguise_of(records)))
    if not found.sites:
        first = f"; first problem: {traffic.problems[0]}" if traffic.problems else ""
        raise UserError(f"no request in {' '.join(map(str, paths))} belongs to a call site of this code{first}")
    return with_measured(reading, found.holes)


def measure_code(traffic: Traffic, code: Iterable[Path]) -> Measured:
    """What the traffic says of the call sites in some code: their requests, and each hole's values beside what the analysis guessed."""
    from promptlint.analysis.matching import measure as measure_holes
    from promptlint.traffic.read import load

    records = load(traffic)
    return measure_holes(records, code_matcher(code, records))


def anonymize(traffic: Traffic, tokens: Tokens, *, page: int, salt: str | None = None) -> Iterator[Record]:
    """The requests without text, as page hashes. Without a salt a random one is taken, and forgotten: two runs then cannot be joined.

    Records that say only what a request cost are kept with their usage; block hashes of other tools are left out, because they may be unsalted.
    """
    key = salt.encode() if salt is not None else secrets.token_bytes(32)
    for record, made in _rendered(traffic, tokens):
        if made is not None:
            yield anonymous(record, made.prompt, made.stored, page, key)
        elif record.hash_ids is not None:
            traffic.problem(record.place, "block hashes cannot be hashed at another page", "hash_ids")
        elif record.usage and not record.is_request:
            yield Record(format="anonymous", timestamp=record.timestamp, model=record.model, usage=record.usage)


def synthesise(workload: Path) -> Iterator[Record]:
    """The traffic that a workload file describes, as token ids; pools one after the other, each in its own namespace where there are several."""
    from promptlint.advisor.workload import load_workloads
    from promptlint.advisor.workload import synthesise as requests_of
    from promptlint.caches.request import unpack

    pools = load_workloads(workload)
    for pool in pools:
        for number, request in enumerate(requests_of(pool), 1):
            yield Record(
                format="synthetic",
                id=f"{pool.name}-{number}",
                session_id=request.session or "",
                timestamp=round(request.timestamp * 1000.0, 3),
                model=pool.model,
                namespace=pool.name if len(pools) > 1 else "",
                token_ids=list(unpack(request.prompt)),
                output_tokens=list(unpack(request.output)),
                extra={"synthetic": {"workload": workload.name, "pool": pool.name, "seed": pool.seed}},
            )


def code_matcher(paths: Iterable[Path], records: Sequence[Record] = ()) -> Matcher:
    """The call sites in some code, ready to be matched with traffic, also with disguised records. Raises UserError when there is none."""
    from promptlint.app import check
    from promptlint.app.discovery import absolute, project_root
    from promptlint.config import load_settings

    given = tuple(Path(path) for path in paths)
    root = project_root(absolute(given[0]))
    analysis = check.analyse(load_settings(root, None, isolated=False), check.Request(given, Path.cwd()))
    prompts = [prompt for prompt in analysis.reading.prompts if prompt.origin != "template"]
    if not prompts:
        raise UserError(f"no call site was found in {' '.join(map(str, given))}")
    return Matcher(prompts, disguise=disguise_of(records))


def from_code(paths: Iterable[Path], profile: str, *, requests: int, seed: int) -> Iterator[Record]:
    """Traffic of the call sites in some code under a traffic profile: what the code sends, as far as its analysis knows it.

    Fixed text and values become words in the sizes that the analysis expects; a value is drawn among as many as the profile says live at its
    volatility in a day, so two requests share what the estimate says they share. Histories grow by one question and answer a request of their session.
    """
    from promptlint.app import check
    from promptlint.app.discovery import absolute, project_root
    from promptlint.catalog.profiles import load_profile
    from promptlint.config import load_settings
    from promptlint.traffic.synth import CodeBlock, CodeSite, from_sites

    given = [Path(path) for path in paths]
    settings = load_settings(project_root(absolute(given[0])), None, isolated=False)
    report = check.check(settings, check.Request(tuple(given), Path.cwd()))
    if not report.call_sites:
        raise UserError(f"no call site was found in {' '.join(map(str, given))}")
    chosen = load_profile(profile)
    sites = [
        CodeSite(
            site.id,
            site.model or "",
            site.cacheable_prefix_tokens,
            tuple(
                CodeBlock(
                    block.kind, block.role or "user", block.volatility, block.growth, block.tokens, block.static_tokens
                )
                for block in site.blocks
            ),
        )
        for site in report.call_sites
    ]
    from promptlint.ir import Volatility

    counts = {level.word: chosen.distinct(level) for level in Volatility}
    yield from from_sites(sites, counts, profile=profile, requests=requests, seed=seed)
