"""Why a request left its relative: from the two texts at the place where they part, to a rule's name and a repair.

The classes follow the precedence of the rules: clock, random value, counter, host state, order, tools, user value, retrieved text, request data. What
the texts do not show is called by where it stands (system text, history, head of the prompt), never guessed further.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from promptlint.advisor.diagnose.trie import common
from promptlint.traffic.parts import Part, compact

__all__ = ["Change", "classify", "repaired", "resync"]

_ANCHOR = 24
"""Characters that must be equal for two texts to be called in step again: longer than a value's label, shorter than a sentence."""
_REACH = 512
"""How far into the new text a resumption is looked for before the common ending decides."""
_LONG = 200
"""Characters from which on a differing stretch reads as a passage rather than a value."""

_CLOCK = re.compile(
    r"""\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?(?:Z|UTC|[+-]\d{2}:?\d{2}))?)?
    |\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\.?)?\b
    |\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b
    |\b(?:Mon|Tues?|Wednes|Thurs?|Fri|Satur|Sun|Wed|Thu|Sat)(?:day)?,?\s+(?:\d{1,2}\s+)?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?(?:\s+\d{1,2})?(?:,?\s+\d{4})?
    |\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s+\d{1,2}(?:st|nd|rd|th)?(?:,?\s+\d{4})?
    |\b\d{1,2}\s+(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?(?:\s+\d{4})?
    |\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b
    |\b1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?\b""",
    re.VERBOSE,
)
_RANDOM = re.compile(
    r"""\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b
    |\b(?:call|req|msg|run|toolu|chatcmpl|resp|fc|rs|task|trace|span|sess|thread|item|rid)[_-][0-9A-Za-z_-]{6,}
    |\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{7,64}\b
    |\b(?=[0-9A-Za-z]*\d)(?=[0-9A-Za-z]*[A-Za-z])[0-9A-Za-z]{12,}\b""",
    re.VERBOSE,
)
_RANDOM_LABEL = re.compile(r"(?i)\b(?:request|trace|message|msg|correlation|run|job|req|span|invocation|event|nonce|seed|uuid|guid)[ _-]?(?:id|uuid|no|number)?\s*[\"']?\s*[:=#]\s*[\"']?$")  # fmt: skip
_NUMBER = re.compile(r"[-+]?\d[\d,._]*")
_COUNTER_LABEL = re.compile(r"(?i)\b(?:step|turn|iteration|round|attempt|retry|count|budget|remaining|left|used|usage|tokens?|messages?|calls?|progress|page|total|number)\b[^\n]{0,24}$")  # fmt: skip
_HOST_LABEL = re.compile(r"(?i)\b(?:cwd|working[ _-]?(?:dir|directory|copy|tree)|directory|branch|commit|git|host(?:name)?|machine|pid|process|port|platform|os|shell|files?|path|open tabs|workspace|uptime|memory|load|ip)\b[^\n]{0,24}$")  # fmt: skip
_PATH = re.compile(r"(?:~|\.{0,2})?(?:/[\w.@+-]+){2,}/?|[A-Za-z]:\\[\w\\.-]+")
_USER_LABEL = re.compile(r"(?i)\b(?:user(?:name)?|customer|client|tenant|org(?:anization|anisation)?|account|member|employee|patient|student|name|e-?mail|phone|locale|language|timezone|session|conversation|chat|thread|team|company|plan|tier|role|loyalty|address|preferences?)\b[^\n]{0,32}$")  # fmt: skip
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
_LISTING = re.compile(r"[\w-]+\.[A-Za-z0-9]{1,5}$|/$")


@dataclass(frozen=True, slots=True)
class Change:
    """What happened where two texts part.

    `was_end` and `now_end`: where the two texts at the place are in step again. `skip`: messages of the relative that the request left out,
    `extra`: messages that it has ahead of what comes next in the relative. `whole`: the repair takes the relative's text as it is.
    """

    rule: str
    cause: str
    was_end: int
    now_end: int
    skip: int = 0
    extra: int = 0
    whole: bool = False


def resync(was: str, now: str, at: int) -> tuple[int, int]:
    """Where the two texts are in step again behind a difference at `at`: the offsets in `was` and `now`.

    The nearest place in the new text from which at least `_ANCHOR` characters stand in the old text too; else the common ending.
    """
    if len(now) - at >= _ANCHOR and len(was) > at:
        found = now.find(was[at : at + _ANCHOR], at) if len(was) - at >= _ANCHOR else -1  # something was put in
        if found >= 0:
            return at, found
        for j in _candidates(now, at):
            i = was.find(now[j : j + _ANCHOR], at)
            if i >= 0:
                while i > at and j > at and was[i - 1] == now[j - 1]:
                    i, j = i - 1, j - 1
                return i, j
    same = common(was[at:][::-1], now[at:][::-1])
    return len(was) - same, len(now) - same


def _candidates(now: str, at: int) -> list[int]:
    """Offsets from which the new text may resume: the place itself, and behind each word or mark."""
    end = min(len(now) - _ANCHOR, at + _REACH)
    return [at, *(j for j in range(at + 1, end + 1) if not (now[j].isalnum() and now[j - 1].isalnum()))]


def classify(was: Sequence[Part], now: Sequence[Part], depth: int, chars: int) -> Change:
    """The cause of the divergence of `now` from `was` in part `depth` behind `chars` equal characters."""
    part = now[depth]
    there = was[depth] if depth < len(was) else None
    if there is None or there.slot != part.slot:
        return _messages(was, now, depth, chars, None)
    if part.slot == "tools":
        return _tools(there.text, part.text, chars)
    head = part.message < 0 or part.role in {"system", "developer"} or part.slot == "prompt"
    moved = None if part.message < 0 or part.slot == "prompt" else _shift(was, now, part.message)
    if moved is not None:
        return moved
    was_end, now_end = resync(there.text, part.text, chars)
    value = _value(there.text, part.text, chars, was_end, now_end)
    if value is not None:
        return Change(*value, was_end, now_end)
    if head:
        return _head(there, part, was, now, chars, was_end, now_end)
    return _messages(was, now, depth, chars, (was_end, now_end))


def _around(text: str, start: int, end: int, pattern: re.Pattern[str], reach: int = 48) -> bool:
    """Whether a match of the pattern touches the stretch from `start` to `end` of the text."""
    low = max(0, start - reach)
    window = text[low : end + reach]
    return any(match.start() + low <= end and match.end() + low >= start and match.end() + low > start - 1 for match in pattern.finditer(window))


def _both(pattern: re.Pattern[str], was: str, now: str, at: int, was_end: int, now_end: int) -> bool:
    return _around(was, at, max(was_end, at + 1), pattern) and _around(now, at, max(now_end, at + 1), pattern)


def _value(was: str, now: str, at: int, was_end: int, now_end: int) -> tuple[str, str] | None:
    """The rule and the cause where the differing stretch is one recognisable value."""
    old, new = was[at:was_end], now[at:now_end]
    if max(len(old), len(new)) > _LONG and not _same_items(was[at:], now[at:]):
        return None
    label = now[max(0, at - 60) : at]
    line = label.rpartition("\n")[2]
    word = re.search(r"[\w.+@/\\-]*$", line)
    before = line[: word.start()] if word else line
    if "".join(was[at:].split()) == "".join(now[at:].split()):
        return "text-drift", "the same text with other whitespace"
    if max(len(old), len(new)) <= _LONG:
        if _both(_CLOCK, was, now, at, was_end, now_end):
            return "clock-in-prefix", "a clock value"
        if _both(_RANDOM, was, now, at, was_end, now_end) or (_RANDOM_LABEL.search(before) and old and new):
            return "random-in-prefix", "an id that is new each time"
        counted = _counter(was, now, at, was_end, now_end, before)
        if counted:
            return "counter-in-prefix", counted
    if _same_items(was[at:], now[at:]):
        listing = _LISTING.search(_items(now[at:])[0]) if _items(now[at:]) else None
        if listing:
            return "unsorted-listing", "the same listing in another order"
        if now[at:].lstrip()[:1] in {'"', "{"} or '":' in now[at : at + 80]:
            return "unsorted-json", "the same fields in another order"
        return "unordered-iteration", "the same items in another order"
    if max(len(old), len(new)) > _LONG:
        return None
    if _HOST_LABEL.search(before) or _both(_PATH, was, now, at, was_end, now_end):
        return "host-state-in-prefix", "state of the machine"
    if _USER_LABEL.search(before) or _both(_MAIL, was, now, at, was_end, now_end):
        return "user-data-before-shared", "a value of the user, tenant or session"
    return None


def _counter(was: str, now: str, at: int, was_end: int, now_end: int, before: str) -> str | None:
    """What is counted, where both texts have a number at the place and either its label or its step says that it counts."""
    numbers = []
    for text, end in ((was, was_end), (now, now_end)):
        low = at
        while low > 0 and (text[low - 1].isdigit() or text[low - 1] in ",._"):
            low -= 1
        match = _NUMBER.match(text, low)
        if match is None or match.end() < min(end, at + 1):
            return None
        digits = re.sub(r"[,_]", "", match.group()).rstrip(".")
        try:
            numbers.append(float(digits))
        except ValueError:
            return None
    if numbers[0] == numbers[1]:
        return None
    if abs(numbers[1] - numbers[0]) == 1:
        return "a counter"
    return "a count of steps, budget or usage" if _COUNTER_LABEL.search(before) else None


def _items(text: str) -> list[str]:
    """The lines of a text, or its comma-separated items where it has one line."""
    lines = [line.strip(" \t,-*") for line in text.split("\n") if line.strip()]
    return lines if len(lines) > 1 else [item.strip(' "{}[]()') for item in text.split(",") if item.strip()]


def _same_items(was: str, now: str) -> bool:
    """Whether both texts hold the same items or words, two or more, in another order."""
    if was == now:
        return False
    if abs(len(was) - len(now)) > 2:
        return False
    for split in (_items, str.split):
        old, new = split(was), split(now)
        if len(old) > 1 and len(old) == len(new) and Counter(old) == Counter(new):
            return True
    words = re.compile(r"\w+")
    return len(was) < 4 * _LONG and Counter(words.findall(was)) == Counter(words.findall(now)) and len(words.findall(was)) > 2


def _tools(was: str, now: str, at: int) -> Change:
    """Tools moved, came, went or changed."""
    was_end, now_end = resync(was, now, at)
    try:
        old, new = json.loads(was), json.loads(now)
    except ValueError:
        return Change("tools-built-per-request", "the tools differ", was_end, now_end, whole=True)
    before, after = Counter(map(compact, old)), Counter(map(compact, new))
    if before == after:
        return Change("tool-order-differs", "the same tools in another order", was_end, now_end, whole=True)
    if Counter(map(_sorted, old)) == Counter(map(_sorted, new)):
        return Change("unsorted-json", "the same tools with their keys in another order", was_end, now_end, whole=True)
    gone, come = _names((before - after).keys()), _names((after - before).keys())
    if set(gone) == set(come):
        value = _value(was, now, at, was_end, now_end)
        if value is not None:
            return Change(*value, was_end, now_end)
        return Change("tools-built-per-request", f"the definition of {', '.join(gone[:3])} changed", was_end, now_end, whole=True)
    words = [f"{', '.join(names[:3])} {verb}" for names, verb in ((sorted(set(gone) - set(come)), "gone"), (sorted(set(come) - set(gone)), "new")) if names]  # fmt: skip
    return Change("tools-built-per-request", f"tools changed: {'; '.join(words)}", was_end, now_end, whole=True)


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _names(tools: Any) -> list[str]:
    names = []
    for text in tools:
        tool = json.loads(text)
        inner = tool.get("function", tool) if isinstance(tool, dict) else {}
        names.append(str(inner.get("name", inner.get("type", "?"))) if isinstance(inner, dict) else "?")
    return names


def _by_message(parts: Sequence[Part]) -> list[tuple[tuple[str, str], ...]]:
    """The messages of a row of parts, each as the tuple of its slots and texts."""
    found: list[list[tuple[str, str]]] = []
    for part in parts:
        if part.message < 0:
            continue
        while len(found) <= part.message:
            found.append([])
        found[part.message].append((part.slot, part.text))
    return [tuple(message) for message in found]


def _shift(was: Sequence[Part], now: Sequence[Part], at: int) -> Change | None:
    """Messages left out or put in at message `at`, recognised because what follows stands elsewhere in the relative."""
    old, new = _by_message(was), _by_message(now)
    if at >= len(new) or at >= len(old):
        return None
    skip = next((index - at for index in range(at + 1, len(old)) if old[index] == new[at]), 0)
    extra = next((index - at for index in range(at + 1, len(new)) if new[index] == old[at]), 0)
    if skip and (not extra or skip <= extra):
        return Change("history-truncated", f"{skip} older message{'s' * (skip > 1)} left out", 0, 0, skip=skip)
    if extra:
        return Change("message-inserted-at-front", f"{extra} message{'s' * (extra > 1)} put in ahead of old ones", 0, 0, extra=extra)
    return None


def _head(there: Part, part: Part, was: Sequence[Part], now: Sequence[Part], at: int, was_end: int, now_end: int) -> Change:
    """Something else in the system text, or in a prompt that is one text."""
    old, new = was_end - at, now_end - at
    grows = any(other.role in {"assistant", "model"} for other in now)
    if part.slot != "prompt" and grows:
        shared = at + len(part.text) - now_end
        if shared < len(part.text) / 2 and _rest(was) == _rest(now)[: len(_rest(was))]:
            return Change("history-under-changing-head", "the conversation was sent under another system text", was_end, now_end, whole=True)
        return Change("volatile-system-message", "text in the system message changed within a conversation", was_end, now_end)
    if min(old, new) == 0:
        return Change("conditional-block-in-prefix", "a part of the text came or went", was_end, now_end)
    if max(old, new) > _LONG:
        return Change("context-before-static", "a passage ahead of text that stays", was_end, now_end)
    return Change("request-data-before-static", "a value of the request ahead of text that stays", was_end, now_end)


def _rest(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if part.message >= 0 and part.role not in {"system", "developer"}]


def _messages(was: Sequence[Part], now: Sequence[Part], depth: int, at: int, ends: tuple[int, int] | None) -> Change:
    """A message that was sent in another form, or a whole history that was replaced."""
    part = now[depth]
    was_end, now_end = ends or (0, 0)
    if ends is None or part.slot == "role":
        return Change("history-rewritten", "another message stands where an old one stood", was_end, now_end, whole=True)
    if part.message == now[-1].message and part.role == "user":
        if max(was_end, now_end) - at > _LONG:
            return Change("context-before-static", "a passage ahead of text that stays", was_end, now_end)
        return Change("request-data-before-static", "a value of the request ahead of text that stays", was_end, now_end)
    return Change("history-rewritten", "an old message was sent in another form", was_end, now_end, whole=True)


def repaired(was: Sequence[Part], now: Sequence[Part], depth: int, change: Change) -> list[Part] | None:
    """The request as it would have been without the change, or None where nothing can be put back.

    What left the history is put back, what was put in moves to the end, a value takes the relative's.
    """
    part = now[depth]
    if change.skip or change.extra:
        old, new = _grouped(was), _grouped(now)
        head = [group for group in new if group[0].message < part.message]
        rest = [group for group in new if group[0].message >= part.message]
        if change.skip:
            back = [group for group in old if part.message <= group[0].message < part.message + change.skip]
            return _renumbered([*head, *back, *rest])
        return _renumbered([*head, *rest[change.extra :], *rest[: change.extra]])
    if depth >= len(was) or was[depth].slot != part.slot:
        return None
    there = was[depth]
    text = there.text if change.whole else there.text[: change.was_end] + part.text[change.now_end :]
    if text == part.text:
        return None
    return [*now[:depth], replace(part, text=text, written=None), *now[depth + 1 :]]


def _grouped(parts: Sequence[Part]) -> list[list[Part]]:
    return [list(group) for _message, group in groupby(parts, key=lambda part: part.message)]


def _renumbered(groups: Sequence[Sequence[Part]]) -> list[Part]:
    """The parts of the groups, one after the other, messages counted anew."""
    found: list[Part] = []
    number = -1
    for group in groups:
        if group[0].message >= 0:
            number += 1
        found.extend(replace(part, message=number) if part.message >= 0 else part for part in group)
    return found
