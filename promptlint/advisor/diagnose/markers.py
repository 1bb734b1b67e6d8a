"""What the cache markers and arguments of recorded requests say, by the rules of the category breakpoints.

Only models whose provider caches at breakpoints are looked at (Claude, and OpenAI's from GPT-5.6 on, in whatever log), one row for each rule with the share of the requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from promptlint.advisor.diagnose.model import Likely
from promptlint.advisor.diagnose.shared import Blocks, Relatives, Shared, plain
from promptlint.catalog.providers import Terms, page_for, pick, resolve
from promptlint.traffic.record import Record

__all__ = ["is_marked", "markers", "marks_of"]

_PARAMETERS = ("tool_choice", "thinking")
"""Arguments that these providers make part of the cache key of the messages."""
_SURELY = 1.25
"""Factor by which a size has to miss the minimum: tokens are estimated here, and Claude's tokenizer is not public."""
_WORTH_TELLING = 0.05
"""Share of the requests from which a fault explains a rate."""


def markers(records: Sequence[Record], totals: Sequence[int]) -> list[Likely]:
    """The faults that more than a few requests have, the commonest first. `totals` are prompt tokens of the records, 0 where they were not counted."""
    found: Counter[str] = Counter()
    counted = 0
    last: dict[str, Record] = {}
    relatives = Relatives()
    for record, total in zip(records, totals, strict=True):
        terms = _terms(record)
        if terms is None or record.messages is None:
            continue
        counted += 1
        blocks = Blocks.of(list(_blocks(record)), total, [number for number, _ in marks_of(record)])
        shared = relatives.shared(record.model, blocks)
        found.update(set(_faults(record, blocks, shared, terms)))
        before = last.get(record.session_id) if record.session_id else None
        if before is not None and _continues(before, record):
            found.update(set(_between(before, record, terms)))
        last[record.session_id] = record
    return [
        Likely(rule, f"{count} of {counted} requests: {_WHY[rule]}", f"promptlint explain {rule}")
        for rule, count in found.most_common()
        if count >= _WORTH_TELLING * counted
    ]


def is_marked(record: Record) -> bool:
    """Whether `markers` looks at a record: the provider of its model caches at breakpoints."""
    return record.messages is not None and _terms(record) is not None


def marks_of(record: Record) -> list[tuple[int, str]]:
    """The number of content blocks up to each marker, and its lifetime ("" is the default one), in rendered order."""
    found: list[tuple[int, str]] = []
    number = 0
    for number, block in enumerate(_blocks(record), 1):
        given = (
            block.get("cache_control") or block.get("prompt_cache_breakpoint") if isinstance(block, Mapping) else None
        )
        if isinstance(given, Mapping):
            found.append((number, str(given.get("ttl") or "")))
    whole = record.parameters.get("cache_control")
    if isinstance(whole, Mapping) and number and (not found or found[-1][0] != number):
        found.append((number, str(whole.get("ttl") or "")))
    return found


def _blocks(record: Record) -> Iterator[Any]:
    """Content blocks as the provider renders them: tools, system text, messages."""
    yield from record.tools or ()
    if record.system is not None:
        yield from record.system if isinstance(record.system, list) else (record.system,)
    for message in record.messages or ():
        content = message.get("content") if isinstance(message, Mapping) else message
        parts = content if isinstance(content, list) else [content]
        yield from parts[:-1]
        # A marker on the message stands on its last block.
        marked = isinstance(message, Mapping) and "cache_control" in message and not isinstance(content, list)
        yield message if marked else parts[-1] if parts else None


def _terms(record: Record) -> Terms | None:
    """The terms of a model whose provider caches at breakpoints; None for every other."""
    for provider in ("anthropic", "openai"):
        page = page_for(provider, record.model) if record.model else None
        if page is not None and pick(dict.fromkeys(page.models, True), record.model, False):
            terms = resolve(page, record.model)
            return terms if terms.mode == "breakpoint" else None
    return None


def _faults(record: Record, blocks: Blocks, shared: Shared | None, terms: Terms) -> Iterator[str]:
    """Rules that one request breaks by itself, or in the light of the latest one that begins like it."""
    marks = marks_of(record)
    least = max(terms.minimum, 1)
    if terms.implicit:
        # What follows the last whole message of both is computed again, however much of it is the same.
        if not marks and shared is not None and shared.whole_tokens < least <= shared.tokens / _SURELY:
            yield "head-and-tail-in-one-message"
        return
    if not marks and shared is not None and shared.tokens >= least:
        yield "breakpoint-missing"
    if marks and 0 < blocks.tokens_up_to(marks[-1][0]) * _SURELY < least:
        yield "prefix-below-minimum"
    if marks and shared is not None and not shared.stored and shared.tokens >= least:
        yield "breakpoint-on-volatile"
    if terms.max_breakpoints is not None and len(marks) > terms.max_breakpoints:
        yield "too-many-breakpoints"
    seconds = dict(terms.ttls)
    lifetimes = [seconds.get(ttl) if ttl else terms.ttl_seconds for _, ttl in marks]
    if terms.ttl_order and any((one or 0) < (other or 0) for one, other in pairwise(lifetimes)):
        yield "ttl-order"


def _continues(before: Record, record: Record) -> bool:
    """Whether the messages of one request begin with those of the other, markers aside."""
    old, new = before.messages or [], record.messages or []
    return len(old) < len(new) and [plain(one) for one in old] == [plain(one) for one in new[: len(old)]]


def _between(before: Record, record: Record, terms: Terms) -> Iterator[str]:
    """Rules that two requests of one conversation break together."""
    if any(before.parameters.get(name) != record.parameters.get(name) for name in _PARAMETERS):
        yield "cache-parameter-differs"
    stored = [number for number, _ in marks_of(before)]
    looked = [number for number, _ in marks_of(record)]
    if not stored or not looked or terms.lookback is None:
        return
    if not any(0 <= mark - stored[-1] <= terms.lookback for mark in looked):
        yield "breakpoints-too-far-apart"


_WHY = {
    "breakpoint-missing": "begin like an earlier one for longer than the minimum, and without any marker nothing is cached",
    "breakpoint-on-volatile": "enough of the beginning is that of an earlier request, whose markers all stand behind the place where the two part",
    "prefix-below-minimum": "the prefix up to the last marker is shorter than what the provider caches",
    "head-and-tail-in-one-message": "begin like an earlier one, and part from it inside a message: the provider stores whole messages",
    "too-many-breakpoints": "more markers than the provider takes",
    "ttl-order": "a longer lifetime stands behind a shorter one",
    "cache-parameter-differs": "`tool_choice` or `thinking` differs from the request before in the same conversation, so its messages are computed again",
    "breakpoints-too-far-apart": "more blocks were appended since the last marker than the provider looks back over",
}
