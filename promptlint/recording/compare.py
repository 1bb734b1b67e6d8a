"""Two runs of one command compared call by call: where the prompts differ.

Calls are paired by call site and by their order there. Within a pair the parts of the body that a model reads are compared, keys in their written order, because an
order that varies is one of the faults that are looked for. A place is a JSON pointer (RFC 6901) into the body and the 0-based character in the text there.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

__all__ = ["Difference", "Pair", "differences", "joined", "pairs", "without"]

PROMPT_FIELDS = (
    "tools", "functions", "toolConfig", "system", "instructions", "systemInstruction", "system_instruction", "messages", "input", "contents", "prompt",
    "text", "response_format", "prompt_cache_key", "cache_salt",
)  # fmt: skip
"""What of a body belongs to the prompt or to its cache key."""

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_CLOSE = 24
"""Equal characters between two differences of one value."""
_MOST_WORDS = 4000
"""Words between the common beginning and the common end up to which the single differences are told apart; beyond it is one difference."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One stretch in which two prompts differ.

    `start` is the first character that differs, `word` where the word begins in which it stands, `end` the end of the last word that differs: offsets in the first run's text at
    the pointer, `was`. `now_start` and `now_end` are the same in the second run's text, `now`.
    """

    pointer: str
    word: int
    start: int
    end: int
    was: str
    now: str
    now_start: int
    now_end: int


@dataclass(frozen=True, slots=True)
class Pair:
    """The `number`-th call (from 0) of a call site in both runs, within a test where there are tests; None where one run has fewer."""

    call_site: str
    test: str
    number: int
    was: Mapping[str, Any] | None
    now: Mapping[str, Any] | None


def pairs(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> Iterator[Pair]:
    """The calls of two runs side by side, in the first run's order. Where tests run, calls of one test are paired: workers may share tests out otherwise."""
    waiting: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in second:
        waiting[_origin(row)].append(row)
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for row in first:
        origin = _origin(row)
        number = counts[origin]
        counts[origin] += 1
        other = waiting[origin]
        yield Pair(*origin, number, row, other[number] if number < len(other) else None)
    for origin, rows in waiting.items():
        for number in range(counts[origin], len(rows)):
            yield Pair(*origin, number, None, rows[number])


def _origin(row: Mapping[str, Any]) -> tuple[str, str]:
    about = row.get("recorded")
    test = about.get("test", "") if isinstance(about, Mapping) else ""
    return str(row.get("call_site", "")), str(test)


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Difference]:
    """Every stretch in which the prompts of two calls differ, in the order of the body's fields."""
    found: list[Difference] = []
    for name in PROMPT_FIELDS:
        if name in was or name in now:
            found += _compare(was.get(name), now.get(name), f"/{name}")
    return found


def _compare(was: Any, now: Any, pointer: str) -> Iterator[Difference]:
    if isinstance(was, str) and isinstance(now, str):
        yield from _texts(was, now, pointer)
    elif isinstance(was, Mapping) and isinstance(now, Mapping) and list(was) == list(now):
        for key in was:
            yield from _compare(was[key], now[key], f"{pointer}/{_escaped(str(key))}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now) and not _moved(was, now):
        for index, (left, right) in enumerate(zip(was, now, strict=True)):
            yield from _compare(left, right, f"{pointer}/{index}")
    elif was != now or _compact(was) != _compact(now):
        yield from _texts(_compact(was), _compact(now), pointer)


def _moved(was: list[Any], now: list[Any]) -> bool:
    """Whether two lists hold the same items in another order: that is one difference of the list, not one of each item."""
    if was == now:
        return False
    return sorted(map(_compact, was)) == sorted(map(_compact, now))


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _texts(was: str, now: str, pointer: str) -> Iterator[Difference]:
    """The words in which two texts differ, each stretch by itself."""
    if was == now:
        return
    head = _word_begin(was, _common(was, now))
    tail = _common(was[head:][::-1], now[head:][::-1])
    while tail and was[len(was) - tail].isalnum():
        tail -= 1
    old_words, new_words = _WORD.findall(was[head : len(was) - tail]), _WORD.findall(now[head : len(now) - tail])
    if len(old_words) + len(new_words) > _MOST_WORDS:
        changes: list[tuple[str, int, int, int, int]] = [("replace", 0, len(old_words), 0, len(new_words))]
    else:
        changes = [*SequenceMatcher(None, old_words, new_words, autojunk=False).get_opcodes()]
    old_at, new_at = _offsets(old_words, head), _offsets(new_words, head)
    for kind, i1, i2, j1, j2 in changes:
        if kind != "equal":
            start, end, now_start, now_end = old_at[i1], old_at[i2], new_at[j1], new_at[j2]
            same = _common(was[start:end], now[now_start:now_end])
            yield Difference(pointer, start, start + same, end, was, now, now_start + same, now_end)


def _word_begin(text: str, at: int) -> int:
    while at and text[at - 1].isalnum():
        at -= 1
    return at


def joined(found: Sequence[Difference]) -> list[Difference]:
    """Differences that are close together on one line are one: a date is one value, a list in another order is one order."""
    kept: list[Difference] = []
    for one in found:
        before = kept[-1] if kept else None
        if before is not None and before.pointer == one.pointer:
            between = one.was[before.end : one.word]
            if len(between) <= _CLOSE and "\n" not in between:
                kept[-1] = replace(before, end=one.end, now_end=one.now_end)
                continue
        kept.append(one)
    return kept


def _offsets(words: Sequence[str], start: int) -> list[int]:
    at = [start]
    for word in words:
        at.append(at[-1] + len(word))
    return at


def _common(left: str, right: str) -> int:
    size = min(len(left), len(right))
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        if left[:middle] == right[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def without(found: Sequence[Difference], noise: Sequence[Difference]) -> list[Difference]:
    """Those differences that do not touch a place where two equal runs differ as well."""
    return [one for one in found if not any(_touch(one, other) for other in noise)]


def _touch(one: Difference, other: Difference) -> bool:
    """Both are stretches of the same first run's text."""
    return one.pointer == other.pointer and one.word <= other.end and other.word <= one.end
