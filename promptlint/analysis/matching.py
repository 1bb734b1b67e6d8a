"""Traffic matched to code: which call site sent a request, and what its holes were.

A request belongs to the call site whose fixed texts it contains in order. The text between two of them is the value of the hole that stands there,
so every hole gets a measured number of values, entropy and volatility, beside what the analysis guessed. A request that names its call site and does
not contain its texts is a test of the analysis itself, and is reported with the first text that is missing.

Finding the call site is near-linear in the traffic: a stretch of each call site's fixed text that few others have is looked up at every offset of a text, once
for each distinct text; only call sites found so are tried.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from promptlint.ir import (
    Block,
    BlockChoice,
    BlockKind,
    BlockNode,
    BlockRepeat,
    Choice,
    Confidence,
    Hole,
    Prompt,
    Reading,
    Repeat,
    Segment,
    Text,
    Volatility,
)
from promptlint.traffic.parts import Part, parts_of
from promptlint.traffic.record import Record

__all__ = [
    "HoleMeasure",
    "Matched",
    "Matcher",
    "Measured",
    "Mismatch",
    "Value",
    "by_site",
    "joined",
    "measure",
    "offset_of",
    "volatility_of",
    "with_measured",
]

GRAM = 16
"""Characters of a fixed text by which call sites are found; shorter texts cannot name one."""
LEAST = 24
"""Fixed characters that a call site must have: less is found in any text."""
BREAK = "\0"
"""Stands between two texts of a request, so that no fixed text is found across them."""


@dataclass(frozen=True, slots=True)
class Value:
    """What stood in a hole. `start` and `end` are offsets in the request's texts joined by `BREAK`."""

    hole: Hole
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Matched:
    """A request and the call site that sent it. `fixed` characters of it are the call site's own."""

    call_site: str
    prompt: Prompt
    values: tuple[Value, ...]
    fixed: int

    def hole_at(self, offset: int) -> Hole | None:
        """The hole whose value covers an offset of the joined texts, or ends just there."""
        return next((value.hole for value in self.values if value.start <= offset <= value.end), None)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A request that names a call site whose analysed prompt it does not contain. `missing` is the first fixed text that is not there."""

    place: str
    call_site: str
    missing: str


@dataclass(frozen=True, slots=True)
class HoleMeasure:
    """One hole in the traffic of its call site: how many values, their entropy in bits, and the volatility that follows."""

    call_site: str
    hole: Hole
    requests: int
    distinct: int
    entropy: float
    measured: Volatility
    characters: float

    @property
    def guessed(self) -> Volatility:
        """What the analysis said."""
        return self.hole.volatility


@dataclass(frozen=True, slots=True)
class _Step:
    """A fixed text to be found next; `holes` stand between it and the one before. `optional`: it may be absent."""

    text: str
    holes: tuple[Hole, ...]
    certain: bool  # nothing but `holes` stands between: no choice, no repetition, no unread part
    optional: bool


@dataclass(frozen=True, slots=True)
class _Pattern:
    call_site: str
    prompt: Prompt
    steps: tuple[_Step, ...]
    tail: tuple[Hole, ...]
    tail_certain: bool
    fixed: int


def _steps(prompt: Prompt) -> tuple[list[_Step], list[Hole], bool]:
    steps: list[_Step] = []
    holes: list[Hole] = []
    certain = True

    def walk(segments: Iterable[Segment], *, optional: bool) -> None:
        nonlocal holes, certain
        for segment in segments:
            if isinstance(segment, Text):
                text = segment.value.strip()
                if len(text) >= 3:
                    steps.append(_Step(text, tuple(holes), certain, optional))
                    holes, certain = [], True
            elif isinstance(segment, Hole):
                holes.append(segment)
            elif isinstance(segment, Choice):
                for arm in segment.arms:
                    walk(arm, optional=True)
                certain = False
            elif isinstance(segment, Repeat):
                walk(segment.body, optional=True)
                certain = False
            else:
                certain = False

    def blocks(nodes: Iterable[BlockNode], *, optional: bool) -> None:
        nonlocal certain
        for node in nodes:
            if isinstance(node, Block):
                if node.kind is not BlockKind.TOOLS:
                    walk(node.segments, optional=optional)
            elif isinstance(node, BlockChoice):
                for arm in node.arms:
                    blocks(arm, optional=True)
                certain = False
            else:
                blocks(node.body, optional=True)
                certain = False

    blocks(_ordered(prompt), optional=False)
    return steps, holes, certain


def _inner(text: str) -> str:
    """The text without the words at its edges; all of it where nothing else is in it."""
    return re.sub(r"^\w+\W*|\W*\w+$", "", text) or text


def _ordered(prompt: Prompt) -> Sequence[BlockNode]:
    """Blocks in rendered order: the system text ahead of the messages where the provider renders it so."""
    if not prompt.render_order:
        return prompt.blocks
    rank = {kind: index for index, kind in enumerate(prompt.render_order)}

    def key(node: BlockNode) -> int:
        return (
            rank.get(node.kind, len(rank))
            if isinstance(node, Block) and node.kind in {BlockKind.SYSTEM, BlockKind.TOOLS}
            else len(rank)
        )

    return sorted(prompt.blocks, key=key)


class Matcher:
    """The call sites of a reading, ready to be looked up. `ids` gives the report's id of each prompt (repeated ones carry `#2`).

    `disguise` turns a text of the code into what stands in requests whose words were replaced word by word; a word at a text's edge, to which a value may be joined, is
    then left out.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        ids: Sequence[str] | None = None,
        disguise: Callable[[str], str] | None = None,
    ) -> None:
        names = ids if ids is not None else [prompt.id for prompt in prompts]
        self.by_id: dict[str, _Pattern] = {}
        self._grams: dict[str, list[_Pattern]] = defaultdict(list)
        self._found: dict[str, tuple[_Pattern, ...]] = {}
        usable: list[tuple[_Pattern, list[str]]] = []
        for name, prompt in zip(names, prompts, strict=True):
            steps, tail, certain = _steps(prompt)
            if disguise is not None:
                steps = [replace(step, text=disguise(_inner(step.text))) for step in steps]
            fixed = sum(len(step.text) for step in steps if not step.optional)
            pattern = _Pattern(name, prompt, tuple(steps), tuple(tail), certain, fixed)
            self.by_id[name] = pattern
            grams = [gram for step in steps if not step.optional for gram in _grams(step.text)]
            if fixed >= LEAST and grams:
                usable.append((pattern, grams))
        # Templates often begin alike: each is looked up by the stretch that fewest others have.
        common = Counter(gram for _pattern, grams in usable for gram in set(grams))
        for pattern, grams in usable:
            self._grams[min(grams, key=common.__getitem__)].append(pattern)

    def match(self, record: Record, parts: Sequence[Part] | None = None) -> Matched | None:
        """The call site whose fixed texts the request contains in order; of several the one with most of them."""
        parts = parts_of(record) if parts is None else parts
        text = joined(parts)
        named = self.by_id.get(record.call_site)
        if named is not None:
            return _fit(named, text)[0]
        best: Matched | None = None
        for pattern in self._candidates(parts):
            if best is not None and pattern.fixed <= best.fixed:
                continue
            found = _fit(pattern, text)[0]
            if found is not None and (best is None or found.fixed > best.fixed):
                best = found
        return best

    def mismatch(self, record: Record, parts: Sequence[Part] | None = None) -> Mismatch | None:
        """Why a request does not fit the call site that it names; None where it fits or names none that was analysed."""
        pattern = self.by_id.get(record.call_site)
        if pattern is None or not pattern.steps:
            return None
        found, missing = _fit(pattern, joined(parts_of(record) if parts is None else parts))
        return None if found is not None else Mismatch(str(record.place), record.call_site, missing)

    def _candidates(self, parts: Sequence[Part]) -> Iterator[_Pattern]:
        """Call sites whose longest fixed text may begin somewhere in the texts."""
        seen: set[str] = set()
        for part in parts:
            if part.slot in {"role", "tools"}:
                continue
            found = self._found.get(part.text)
            if found is None:
                grams = self._grams
                text = part.text
                keys = {text[at : at + GRAM] for at in range(len(text) - GRAM + 1)} & grams.keys()
                found = self._found[text] = tuple(pattern for key in sorted(keys) for pattern in grams[key])
            for pattern in found:
                if pattern.call_site not in seen:
                    seen.add(pattern.call_site)
                    yield pattern


def _grams(text: str, most: int = 64) -> list[str]:
    """Stretches of `GRAM` characters of a fixed text, evenly spread, at most `most` of them."""
    last = len(text) - GRAM
    if last < 0:
        return []
    step = max(4, last // most)
    return [text[at : at + GRAM] for at in range(0, last + 1, step)]


def joined(parts: Sequence[Part]) -> str:
    """The texts of a request, without tools and roles, with `BREAK` between them."""
    return BREAK.join(part.text for part in parts if part.slot not in {"role", "tools"})


def offset_of(parts: Sequence[Part], depth: int, chars: int) -> int:
    """Offset in `joined(parts)` of a character of part `depth`."""
    return sum(len(part.text) + 1 for part in parts[:depth] if part.slot not in {"role", "tools"}) + chars


def _fit(pattern: _Pattern, text: str) -> tuple[Matched | None, str]:
    """Find the fixed texts in order; the match, or None and the first text that is missing."""
    at = 0
    fixed = 0
    values: list[Value] = []
    for step in pattern.steps:
        found = text.find(step.text, at)
        if found < 0:
            if step.optional:
                continue
            return None, step.text
        if len(step.holes) == 1 and step.certain and not step.optional:
            values.append(_value(step.holes[0], text, at, found))
        at = found + len(step.text)
        fixed += len(step.text)
    if len(pattern.tail) == 1 and pattern.tail_certain:
        values.append(_value(pattern.tail[0], text, at, len(text)))
    return Matched(pattern.call_site, pattern.prompt, tuple(values), fixed), ""


def _value(hole: Hole, text: str, start: int, end: int) -> Value:
    """The value between two fixed texts, without the white space and message ends around it."""
    value = text[start:end]
    lead = len(value) - len(value.lstrip(" \n\t" + BREAK))
    stripped = value.strip(" \n\t" + BREAK)
    return Value(hole, stripped, start + lead, start + lead + len(stripped))


@dataclass(slots=True)
class Measured:
    """What traffic says of the code: requests by call site, the holes, requests that fit no call site, and those that contradict their own."""

    sites: Counter[str] = field(default_factory=Counter)
    holes: list[HoleMeasure] = field(default_factory=list)
    unmatched: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)


def measure(records: Iterable[Record], matcher: Matcher) -> Measured:
    """Match records in time order and measure each hole of the call sites that they belong to."""
    found = Measured()
    seen: dict[tuple[str, int], list[tuple[str, str, float | None]]] = {}
    holes: dict[tuple[str, int], Hole] = {}
    for record in records:
        if not record.has_text:
            continue
        parts = parts_of(record)
        match = matcher.match(record, parts)
        if match is None:
            wrong = matcher.mismatch(record, parts)
            if wrong is not None:
                found.mismatches.append(wrong)
            found.unmatched += 1
            continue
        found.sites[match.call_site] += 1
        for value in match.values:
            key = (match.call_site, id(value.hole))
            holes[key] = value.hole
            seen.setdefault(key, []).append((value.text, record.session_id, record.timestamp))
    for key, rows in seen.items():
        counts = Counter(text for text, _session, _time in rows)
        total = len(rows)
        entropy = -sum(count / total * math.log2(count / total) for count in counts.values())
        found.holes.append(
            HoleMeasure(
                key[0],
                holes[key],
                total,
                len(counts),
                abs(entropy),
                volatility_of(rows),
                sum(len(text) for text, _s, _t in rows) / total,
            )
        )
    return found


_DAY = 86_400_000.0


def volatility_of(rows: Sequence[tuple[str, str, float | None]]) -> Volatility:
    """The longest-lived level that the values allow; rows are value, session and time in milliseconds, in time order.

    One value is static. Values that change only from day to day are `day`; values that never change within a session are `session`, or `user` and `document` where the same ones
    come back in other sessions (`document` when they are many more than half of all, i.e. each is asked about more than twice on average). Whatever changes within sessions and
    rarely returns is `request`; what stays for several requests in a row is `turn`.
    """
    values = [text for text, _session, _time in rows]
    distinct = len(set(values))
    if distinct <= 1:
        return Volatility.STATIC
    days: dict[float, set[str]] = defaultdict(set)
    for text, _session, time in rows:
        if time is not None:
            days[time // _DAY].add(text)
    if len(days) > 1 and all(len(texts) == 1 for texts in days.values()):
        return Volatility.DAY
    sessions: dict[str, list[str]] = defaultdict(list)
    for text, session, _time in rows:
        if session:
            sessions[session].append(text)
    long_sessions = [texts for texts in sessions.values() if len(texts) > 1]
    if long_sessions and all(len(set(texts)) == 1 for texts in long_sessions):
        return Volatility.USER if 4 * distinct <= 3 * len(sessions) else Volatility.SESSION
    if 2 * distinct <= len(values):
        return Volatility.DOCUMENT
    runs = 1 + sum(a != b for a, b in pairwise(values))
    if long_sessions and runs <= len(values) / 2:
        return Volatility.TURN
    return Volatility.REQUEST


def with_measured(
    reading: Reading, measures: Iterable[HoleMeasure], *, least: int = 10, tokens: float = 4.0
) -> Reading:
    """The reading with measured volatility and size in place of guesses, for holes seen in at least `least` requests.

    `tokens` is the number of characters a token has on average; sizes are marked as measured. The reasons why a hole changes stay, at the measured level.
    """
    known = {id(one.hole): one for one in measures if one.requests >= least}
    if not known:
        return reading

    def hole(value: Hole) -> Hole:
        one = known.get(id(value))
        if one is None:
            return value
        size = max(1, round(one.characters / tokens)) if one.characters else 0
        level = max(one.measured, Volatility.PROCESS)  # the source does not fix it, however steady the log was
        origins = tuple(replace(origin, volatility=level, confidence=Confidence.HIGH) for origin in value.origins)
        return replace(
            value, volatility=level, confidence=Confidence.HIGH, origins=origins, tokens=size, tokens_from="measured"
        )

    def node(value: Any) -> Any:
        if isinstance(value, Hole):
            return hole(value)
        if isinstance(value, Block):
            return replace(value, segments=tuple(map(node, value.segments)))
        if isinstance(value, Choice):
            return replace(value, arms=tuple(tuple(map(node, arm)) for arm in value.arms))
        if isinstance(value, BlockChoice):
            return replace(value, arms=tuple(tuple(map(node, arm)) for arm in value.arms))
        if isinstance(value, Repeat):
            return replace(value, body=tuple(map(node, value.body)))
        if isinstance(value, BlockRepeat):
            return replace(value, body=tuple(map(node, value.body)))
        return value

    prompts = tuple(replace(prompt, blocks=tuple(map(node, prompt.blocks))) for prompt in reading.prompts)
    return replace(reading, prompts=prompts)


def by_site(measures: Iterable[HoleMeasure]) -> Mapping[str, list[HoleMeasure]]:
    """The measures of each call site, in the order of their holes."""
    found: dict[str, list[HoleMeasure]] = defaultdict(list)
    for one in measures:
        found[one.call_site].append(one)
    return found
