"""Records of traffic to requests of the cache models, and text to token ids on the way."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from promptlint.caches.block_lru import BlockRequest, Chains
from promptlint.caches.request import TOKEN_BYTES, Request, pack
from promptlint.traffic.read import Problem
from promptlint.traffic.record import CACHE_READ, CACHE_WRITE, INPUT, Place, Record, Unreadable

if TYPE_CHECKING:
    from promptlint.tokenizers.render import Rendered

__all__ = ["Render", "Renderer", "Requests", "Source", "TextTokens", "repeats_id"]

CHUNK = 256
"""Records that are rendered and tokenised together, so that each of the two finds its data still in the processor's caches."""
CHUNK_TEXT = 4 << 20
"""Characters of prompts from which a chunk has enough of them."""
UNKNOWN_TOKEN = 1 << 31  # ids from here on stand for content that is not known; no tokenizer has so many
LONGEST = 1 << 25  # tokens of a prompt, an answer or a block; more than any model's context


class _Blocks(dict[Any, int]):
    """The ids that stand for hashed blocks of one namespace."""

    def __init__(self, fresh: Callable[[], int]) -> None:
        super().__init__()
        self._fresh = fresh

    def __missing__(self, name: Any) -> int:
        found = self[name] = self._fresh()
        return found


class _Unknown:
    """Token ids for content of which only the length or a hash is known. Each is handed out once."""

    def __init__(self) -> None:
        self._next = UNKNOWN_TOKEN
        self._blocks: dict[str, _Blocks] = {}

    def fresh(self) -> int:
        """An id that nothing else has."""
        self._next += 1
        return self._next - 1

    def run(self, length: int) -> bytes:
        """Packed tokens that differ from everything else from their first one on."""
        return pack((self.fresh(),)) * length

    def blocks(self, namespace: str, names: list[Any]) -> list[int]:
        """The ids that stand for hashed blocks."""
        known = self._blocks.get(namespace)
        if known is None:
            known = self._blocks[namespace] = _Blocks(self.fresh)
        return [known[name] for name in names]


@dataclass(slots=True)
class TextTokens:
    """A rendered request, packed; see `Request` for what the fields are. Made for every request, so not frozen: that costs four times more."""

    prompt: bytes
    output: bytes = b""
    kept: bytes | None = None
    breakpoints: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()
    lifetimes: tuple[str, ...] = ()
    head: int = 0
    kept_after: int = 0


class Source(Protocol):
    """Records, and after reading them what could not be read; `traffic.read.Traffic` is one."""

    @property
    def problems(self) -> list[Problem]: ...

    def __iter__(self) -> Iterator[Record]: ...


class Render(Protocol):
    """Tokenises the text of records. Raises Unreadable for one that cannot be rendered."""

    def prepare(self, records: Sequence[Record], /) -> None:
        """Do at once what the calls for these very records would do one by one."""

    def __call__(self, record: Record, /) -> TextTokens: ...


class Requests:
    """The requests of traffic, in file order; each iteration reads anew (or, with `keep`, what the first one read).

    Requests get their position as id, so that a repeated id cannot confuse two of them; with `repeats` each one is a problem that is told. `made` is called with
    each record that becomes a request.

    Attributes:
        problems: what could not be used, after an iteration: the reader's problems and our own.
        bare: whether a request came as token ids or block hashes, whose text nobody knows.
        observed: prompt and cached tokens that the log reports, by a request's id, where it reports both; `written` likewise what it
            reports as written into the cache.
    """

    def __init__(
        self,
        traffic: Source,
        *,
        as_blocks: bool = False,
        block_size: int = 16,
        render: Render | None = None,
        need_times: bool = False,
        keep: bool = False,
        made: Callable[[Record], None] | None = None,
        repeats: bool = True,
    ) -> None:
        self.traffic = traffic
        self.as_blocks = as_blocks
        self.block_size = block_size
        self.render = render
        self.need_times = need_times
        self._made_of = made
        self._repeats = repeats
        self._keep = keep  # standard input can be read only once
        self._kept: list[Request | BlockRequest] | None = None
        self.problems: list[Problem] = []
        self.bare = False
        self.observed: dict[int, tuple[int, int]] = {}
        self.written: dict[int, int] = {}
        self._begin()

    def _begin(self) -> None:
        self._lines = array("q")  # of each request in its file
        self._files: list[tuple[int, str]] = []  # the first request of each file, and its name
        self._names: dict[int, Hashable] = {}  # ids that the log gives

    @property
    def ids(self) -> list[Any]:
        """The log's own id of each request, or the number of its line."""
        return [self._names.get(index, line) for index, line in enumerate(self._lines)]

    def place(self, request: int) -> Place:
        """Where the log has a request."""
        name = next(name for first, name in reversed(self._files) if first <= request)
        return Place(name, self._lines[request])

    def __iter__(self) -> Iterator[Request | BlockRequest]:
        if self._kept is not None:
            return iter(self._kept)
        return self._keeping() if self._keep else self._read()

    def _keeping(self) -> Iterator[Request | BlockRequest]:
        kept = []
        for request in self._read():
            kept.append(request)
            yield request
        self._kept = kept

    def _read(self) -> Iterator[Request | BlockRequest]:
        self.problems = []
        self.observed = {}
        self.written = {}
        self._begin()
        known: dict[Hashable, Place] = {}
        self._unanswered: dict[Hashable, Record | int] = {}
        chains = Chains(self.block_size)
        unknown = _Unknown()
        latest = float("-inf")
        late: Record | None = None  # the first one that is out of order
        late_count = 0
        chunk: list[tuple[Record, Hashable]] = []
        size = 0
        for record in self.traffic:
            if (
                record.messages is None and record.hash_ids is None and not record.is_request
            ):  # what most have comes first
                if record.id in self._unanswered:
                    self._answered(self._unanswered.pop(record.id), record)
                    continue
                self._refuse(record, "says only what a request cost, not what was sent")
                continue
            if self.need_times:
                if record.timestamp is None:
                    self._refuse(record, "no timestamp, which --pace arrivals needs", "timestamp")
                    continue
                if record.timestamp < latest:
                    late_count += 1
                    late = late or record
                latest = max(latest, record.timestamp)
            name: Hashable = record.given_id if record.given_id is not None else record.id or None
            if name is not None and self._repeats:
                first = known.setdefault(name, record.place)
                if first is not record.place and first != record.place:
                    where = f"line {first.line}" if first.file == record.place.file else str(first)
                    self._note(record, repeats_id(where), "id")
            if record.extra and not record.usage and name is not None and "recorded" in record.extra:
                self._unanswered[name] = record
            chunk.append((record, name))
            if record.prompt is not None:
                size += len(record.prompt)
            if len(chunk) == CHUNK or size > CHUNK_TEXT:
                yield from self._made(chunk, chains, unknown)
                chunk, size = [], 0
        yield from self._made(chunk, chains, unknown)
        if late is not None:
            self._note(
                late, f"earlier than a record before it, with which it arrives; {late_count:,} such in all", "timestamp"
            )

    def _made(
        self, chunk: list[tuple[Record, Hashable]], chains: Chains, unknown: _Unknown
    ) -> Iterator[Request | BlockRequest]:
        """The requests of some records, in their order."""
        if self.render is not None and (texts := [record for record, _ in chunk if record.has_text]):
            self.render.prepare(texts)
        for record, name in chunk:
            try:
                made = self._request(record, chains, unknown)
            except Unreadable as error:
                self._refuse(record, error.reason, error.field)
                continue
            if record.usage:
                self._observe(len(self._lines), record)
            elif self._unanswered.get(name) is record:
                self._unanswered[name] = len(self._lines)
            if name is not None:
                self._names[len(self._lines)] = name
            place = record.place
            if not self._files or self._files[-1][1] is not place.file:
                self._files.append((len(self._lines), place.file))
            self._lines.append(place.line)
            if self._made_of is not None:
                self._made_of(record)
            yield made

    def _answered(self, request: Record | int, answer: Record) -> None:
        """Give what an answer's own line reports to its request: one that is still to be made, or the number of one that has been.

        A recording has such lines when nobody could write its end.
        """
        if isinstance(request, int):
            self._observe(request, answer)
        else:
            request.usage = answer.usage

    def _observe(self, request: int, record: Record) -> None:
        if record.usage_adds_up and (reported := record.usage[INPUT]):
            self.observed[request] = (reported, record.usage[CACHE_READ])
            if (written := record.usage.get(CACHE_WRITE)) is not None:
                self.written[request] = written

    def all_problems(self) -> list[Problem]:
        """What the reader and we could not use, in file order."""
        return sorted([*self.traffic.problems, *self.problems], key=lambda one: (one.file, one.line))

    def _refuse(self, record: Record, reason: str, where: str = "") -> None:
        self.problems.append(Problem(record.place.file, record.place.line, reason, where))

    def _note(self, record: Record, reason: str, where: str) -> None:
        """What is odd about a record that is used all the same."""
        self.problems.append(Problem(record.place.file, record.place.line, reason, where, lost=False))

    def _request(self, record: Record, chains: Chains, unknown: _Unknown) -> Request | BlockRequest:
        labels = _labels(record.namespace, record.model, record.call_site)
        name = len(self._lines)
        session = record.session_id or record.namespace or None
        if record.hash_ids is not None:
            self.bare = True
            size = record.block_size or self.block_size
            length = record.input_length if record.input_length is not None else len(record.hash_ids) * size
            if length < 1:
                raise Unreadable("no tokens", "hash_ids")
            _limited(length, "input_length" if record.input_length is not None else "hash_ids")
            if self.as_blocks:
                blocks: list[Hashable] = record.hash_ids
                if record.namespace:
                    blocks = [(record.namespace, one) for one in blocks]
                if not blocks:  # shorter than a block: known to nobody else
                    blocks = [(unknown.fresh(),)]
                return BlockRequest(name, blocks, length, size, session, labels)
            ids = unknown.blocks(record.namespace, record.hash_ids)
            prompt = _spelled(ids, min(size, length))[: length * TOKEN_BYTES]
            if len(prompt) < length * TOKEN_BYTES:  # a partial last block without an id is known to nobody else
                prompt += unknown.run(length - len(prompt) // TOKEN_BYTES)
            text = self._block_text(record, prompt, size, unknown)
        elif record.token_ids is not None:
            self.bare = True
            text = TextTokens(_packed(record.token_ids, record.ids_field))
        elif self.render is not None:
            text = self.render(record)
        else:
            raise Unreadable("text needs a tokenizer")
        if not text.prompt:
            raise Unreadable("no tokens", record.ids_field if record.token_ids is not None else "")
        output = text.output
        if record.output_tokens is not None:
            output = _packed(record.output_tokens, "output_tokens")
        elif record.output_length and not output and text.kept is None:
            output = unknown.run(_limited(record.output_length, "output_length"))
        # In the order of the fields: a class makes a dictionary of what is named, which costs more than the request.
        request = Request(
            name,
            text.prompt,
            output,
            _namespace(record),
            (record.timestamp or 0.0) / 1000.0,
            _whole(record.extra, "priority") if record.extra else None,
            _whole(record.extra, "max_new_tokens", 0) if record.extra else None,
            session,
            labels,
            text.breakpoints,
            text.stops,
            text.kept,
            text.lifetimes,
            text.head,
            str(record.parameters.get("prompt_cache_key") or "") if record.parameters else "",
            text.kept_after,
        )
        return chains.blocks(request) if self.as_blocks else request

    @staticmethod
    def _block_text(record: Record, prompt: bytes, size: int, unknown: _Unknown) -> TextTokens:
        pages = _hash_pages(record)
        if pages is None:
            return TextTokens(prompt)
        _limited(len(pages) * size, "kept_hash_ids")
        named = unknown.blocks(record.namespace, pages)
        answer = unknown.run(_limited(record.output_length or 0, "output_length"))
        return TextTokens(prompt, answer, _spelled(named, size))


def repeats_id(where: str) -> str:
    """The reason of a problem: a request has the id of an earlier one."""
    return f"repeats the id of {where}; both are replayed"


def _hash_pages(record: Record) -> list[Any] | None:
    """The blocks that are in the cache after the answer, which anonymised traffic states; None for other traces."""
    if "kept_hash_ids" in record.extra:
        return _block_ids(record.extra["kept_hash_ids"], "kept_hash_ids")
    answer = _block_ids(record.extra.get("output_hash_ids") or [], "output_hash_ids")
    return [*(record.hash_ids or ()), *answer] if answer else None


def _block_ids(value: Any, field_name: str) -> list[Any]:
    if not isinstance(value, list) or any(type(one) not in {int, str} for one in value):
        raise Unreadable("expected a list of block ids", field_name)
    return value


def _spelled(ids: list[int], size: int) -> bytes:
    """Hashed blocks as tokens: each its id, `size` times."""
    return b"".join([pack((one,)) * size for one in ids])


def _limited(length: int, field_name: str) -> int:
    """The length, in tokens, unless it is nonsense that would fill the memory."""
    if length > LONGEST:
        raise Unreadable(f"{length:,} tokens are more than any model takes", field_name)
    return length


@lru_cache(maxsize=4096)
def _labels(namespace: str, model: str, call_site: str) -> tuple[tuple[str, str], ...]:
    """What results are grouped by: the fields that are given."""
    named = (("namespace", namespace), ("model", model), ("call_site", call_site))
    return tuple((kind, value) for kind, value in named if value)


def _namespace(record: Record) -> Hashable:
    plain = record.namespace or ("" if record.empty_key else None)
    return (record.model, plain) if record.model else plain


def _packed(tokens: list[int], field_name: str) -> bytes:
    try:
        return pack(tokens)
    except OverflowError:
        index = next(index for index, token in enumerate(tokens) if not 0 <= token < 1 << 32)
        raise Unreadable("expected a token id of at most 32 bits", f"{field_name}[{index}]") from None


def _whole(extra: Mapping[str, Any], field_name: str, least: int | None = None) -> int | None:
    value = extra.get(field_name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unreadable(f"expected a whole number, found {str(value)[:40]!r}", field_name)
    if least is not None and value < least:
        raise Unreadable(f"expected a whole number of {least} or more, found {value}", field_name)
    return value


_HEAD = frozenset({"tools", "system", "developer"})
"""Roles of what stands in front of a conversation."""


@dataclass(frozen=True, slots=True)
class _Places:
    """Positions in a rendered prompt, tokens; see `Request`."""

    stops: tuple[int, ...] = ()
    breakpoints: tuple[int, ...] = ()
    lifetimes: tuple[str, ...] = ()
    head: int = 0


_NOWHERE = _Places()


class Renderer:
    """Text to packed tokens; the tokenizer is loaded with the first text.

    For a provider (`marks`) the cache markers become breakpoints, and the ends of messages and marked blocks the places
    where it looks back. --ttl sets the lifetime of the markers that name none.
    """

    def __init__(self, mode: str | None, tokenizer: str, *, marks: bool) -> None:
        self._mode = mode or ("provider" if marks else "plain-tags")
        self._name = tokenizer
        self._marks = marks
        self._tokenizer: Any = None
        self._tokenizers: dict[bool, Any] = {}
        self._render: Any = None
        self._conversation: Any = None
        self._packed: Any = None
        self._chunk: Sequence[Record] = ()  # kept, so that the identity of a record means it
        self._prepared: dict[int, Rendered | Unreadable] = {}  # by that identity

    @property
    def used(self) -> list[str]:
        """The tokenizers that were used so far."""
        return [one.tokenizer.name for one in self._tokenizers.values()]

    def prepare(self, records: Sequence[Record], /) -> None:
        texts: defaultdict[bool, list[str]] = defaultdict(
            list
        )  # by whether they are in disguise, which decides on the tokenizer
        prepared: dict[int, Rendered | Unreadable] = {}
        head, upto = None, 0  # of the request before: requests of one transcript share the runs that they begin with
        for record in records:
            own = texts[bool(record.extra and record.disguised)]
            if record.prompt is not None:
                own.append(record.prompt)
                if isinstance(record.output, str):
                    own.append(record.output)
                continue
            try:
                rendered = self._rendered(record)
            except Unreadable as error:
                prepared[id(record)] = error
                continue
            prepared[id(record)] = rendered
            if rendered.head is not head:
                head, upto = rendered.head, 0
            if head is not None:
                own += head[upto : rendered.upto]
                upto = rendered.upto
            own += rendered.tail
            own += rendered.answer
            if rendered.kept is not None:
                own += rendered.kept
        self._chunk, self._prepared = tuple(records), prepared
        for disguised, found in texts.items():
            self._tokenizer_for(disguised=disguised).prepare(found)

    def __call__(self, record: Record, /) -> TextTokens:
        disguised = bool(record.extra and record.disguised)
        self._tokenizer = self._tokenizers.get(disguised) or self._tokenizer_for(disguised=disguised)
        if record.prompt is not None:
            output = record.output if isinstance(record.output, str) else ""
            return TextTokens(self._tokenizer.text(record.prompt), self._tokenizer.text(output) if output else b"")
        rendered = self._prepared.get(id(record))
        if rendered is None:
            rendered = self._rendered(record)
        if isinstance(rendered, Unreadable):
            raise rendered
        prompt, answer, kept, behind = self._packed(rendered, self._tokenizer)
        places = self._places(record, rendered.prompt) if self._marks else _NOWHERE
        return TextTokens(prompt, answer, kept, places.breakpoints, places.stops, places.lifetimes, places.head, behind)

    def _rendered(self, record: Record) -> Rendered:
        if self._render is None:
            from promptlint.tokenizers.render import Conversation, packed, renderer

            self._render = renderer(self._mode)
            self._conversation, self._packed = Conversation, packed
        try:
            found: Rendered = self._render(
                self._conversation(record.messages or (), record.tools, record.system, record.output)
            )
        except ValueError as error:
            raise Unreadable(f"cannot be rendered as {self._mode}: {error}", "messages") from error
        except RecursionError as error:
            raise Unreadable("nested too deeply", "messages") from error
        return found

    def _tokenizer_for(self, *, disguised: bool) -> Any:
        """The tokenizer that was asked for; without one the default, or for text in disguise the one that counts it as what it was."""
        found = self._tokenizers.get(disguised)
        if found is None:
            from promptlint import tokenizers
            from promptlint.tokenizers.segments import SegmentTokenizer

            other = self._tokenizers.get(not disguised) if self._name else None
            name = self._name or (tokenizers.DISGUISED if disguised else tokenizers.DEFAULT)
            found = self._tokenizers[disguised] = other or SegmentTokenizer(tokenizers.get(name))
        return found

    def _places(self, record: Record, runs: list[str]) -> _Places:
        """Where messages and marked blocks end, in tokens, which of those places are marked, and where the system text ends."""
        from promptlint.tokenizers.segments import Mark, Special

        stops: list[int] = []
        at = head = 0
        in_head, begins = True, False
        for run_ in runs:
            if begins:
                in_head = in_head and run_ in _HEAD
            begins = isinstance(run_, Special) and run_.endswith("start|>")
            at += self._tokenizer.count([run_])
            ends = isinstance(run_, Special) and run_.endswith("end|>")
            if isinstance(run_, Mark) or ends:
                stops.append(at)
            if ends and in_head:
                head = at
        marked = dict(self._tokenizer.marks(runs))
        whole = record.parameters.get("cache_control")
        if whole is not None and stops:  # for the whole request: the end of its last message
            marked.setdefault(stops[-1], str(whole.get("ttl", "")) if isinstance(whole, Mapping) else "")
        places = sorted(marked)
        return _Places(tuple(dict.fromkeys(stops)), tuple(places), tuple(marked[place] for place in places), head)
