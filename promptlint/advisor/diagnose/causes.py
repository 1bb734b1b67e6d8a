"""Why a request left its relative: from the two texts at the place where they part, to a rule's name and a repair.

The classes follow the precedence of the rules: clock, random value, counter, host state, order, tools, user value, retrieved text, request data. What
the texts do not show is called by where it stands (system text, history, head of the prompt), never guessed further.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from promptlint.advisor.diagnose.trie import common
from promptlint.tokenizers.render import compact
from promptlint.traffic.parts import Part

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
_COUNTED = re.compile(
    r"(?i)(?:^|[^a-z])(?:step|turn|iteration|round|attempt|retry|count|call|page|message|no|nr|number|v|x)?$"
)
_CLOCK_LABEL = re.compile(
    r"(?i)\b(?:date|time|now|today|datum|uhrzeit|heute|fecha|hora|hoy|heure|aujourd'hui|data|oggi)\b[^\n\w]{0,4}$"
)
_HOST_LABEL = re.compile(r"(?i)\b(?:cwd|working[ _-]?(?:dir|directory|copy|tree)|directory|branch|commit|git|host(?:name)?|machine|pid|process|port|platform|os|shell|files?|path|open tabs|workspace|uptime|memory|load|ip)\b[^\n]{0,24}$")  # fmt: skip
_PATH = re.compile(r"(?:~|\.{0,2})?(?:/[\w.@+-]+){2,}/?|[A-Za-z]:\\[\w\\.-]+")
_USER_LABEL = re.compile(r"(?i)\b(?:user(?:name)?|customer|client|tenant|org(?:anization|anisation)?|account|member|employee|patient|student|name|e-?mail|phone|locale|language|timezone|session|conversation|chat|thread|team|company|plan|tier|role|loyalty|address|preferences?)\b[^\n]{0,32}$")  # fmt: skip
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
_NAME = re.compile(r"(?<![.!?] )(?<!^)\b[A-Z][a-z'\u2019-]+(?: [A-Z][a-z'\u2019-]+){1,2}\b")
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


def _candidates(now: str, at: int) -> Iterator[int]:
    """Offsets from which the new text may resume: the place itself, and behind each word or mark."""
    yield at
    for j in range(at + 1, min(len(now) - _ANCHOR, at + _REACH) + 1):
        if not (now[j].isalnum() and now[j - 1].isalnum()):
            yield j


@dataclass(frozen=True, slots=True)
class _Difference:
    """Two texts that part behind `at` characters and are in step again at `was_end` and `now_end`."""

    was: str
    now: str
    at: int
    was_end: int
    now_end: int

    @property
    def longest(self) -> int:
        """Characters of the longer of the two differing stretches."""
        return max(self.was_end, self.now_end) - self.at

    def touches(self, pattern: re.Pattern[str]) -> bool:
        """Whether in both texts a match of the pattern covers the first difference: what differs further on is another value."""
        return _covers(self.was, self.at, pattern) and _covers(self.now, self.at, pattern)

    def reordered(self) -> list[str]:
        """The items of the new text where both texts hold the same ones in another order: within the lines or words that differ, or to the end."""
        start = self.now.rfind("\n", 0, self.at) + 1
        was_end, now_end = (text.find("\n", end) for text, end in ((self.was, self.was_end), (self.now, self.now_end)))
        lines = (self.was[start : None if was_end < 0 else was_end], self.now[start : None if now_end < 0 else now_end])
        words = (self._words(self.was, self.was_end), self._words(self.now, self.now_end))
        for was, now in (lines, words, (self.was[self.at :], self.now[self.at :])):
            if _same_items(was, now):
                return _items(now) or [now]
        return []

    def _words(self, text: str, end: int) -> str:
        """The stretch of a text that differs, with the words whole that it begins and ends in."""
        start = self.at
        while start and text[start - 1].isalnum() and text[start : start + 1].isalnum():
            start -= 1
        while start < end < len(text) and text[end - 1].isalnum() and text[end].isalnum():
            end += 1
        return text[start:end]

    @property
    def label(self) -> str:
        """The line ahead of the value, without the part of the value that both texts share."""
        line = self.now[max(0, self.at - 60) : self.at].rpartition("\n")[2]
        word = re.search(r"[\w.+@/\\-]*$", line)
        return line[: word.start()] if word else line


def _covers(text: str, at: int, pattern: re.Pattern[str], reach: int = 48) -> bool:
    low = max(0, at - reach)
    return any(match.start() + low <= at <= match.end() + low for match in pattern.finditer(text[low : at + reach + 1]))


def classify(was: Sequence[Part], now: Sequence[Part], depth: int, chars: int, *, same_site: bool = True) -> Change:
    """The cause of the divergence of `now` from `was` in part `depth` behind `chars` equal characters.

    `same_site`: both come from one place in the code, as far as is known. Two call sites whose common text stands elsewhere differ in the order of
    their blocks, whatever else is between.
    """
    change = _classified(was, now, depth, chars)
    if not same_site and change.rule in _OF_ONE_SITE:
        return replace(
            change, rule="block-order-differs", cause="another call site sends the same text behind other text"
        )
    return change


_OF_ONE_SITE = frozenset(
    [
        "history-truncated",
        "message-inserted-at-front",
        "history-rewritten",
        "conditional-block-in-prefix",
        "volatile-system-message",
        "context-before-static",
        "request-data-before-static",
    ]
)


def _classified(was: Sequence[Part], now: Sequence[Part], depth: int, chars: int) -> Change:
    part = now[depth]
    there = was[depth] if depth < len(was) else None
    if there is None or there.slot != part.slot:
        return Change("history-rewritten", "another message stands where an old one stood", 0, 0, whole=True)
    if part.slot == "tools":
        return _tools(there.text, part.text, chars)
    moved = None if part.message < 0 or part.slot == "prompt" else _shift(was, now, part.message)
    if moved is not None:
        return moved
    difference = _Difference(there.text, part.text, chars, *resync(there.text, part.text, chars))
    value = _value(difference)
    if value is not None:
        return Change(*value, difference.was_end, difference.now_end)
    if part.message < 0 or part.role in {"system", "developer"} or part.slot == "prompt":
        return _head(difference, part, was, now)
    return _message(difference, part, now)


def _value(found: _Difference) -> tuple[str, str] | None:
    """The rule and the cause where the difference is one recognisable value or order."""
    now = found.now[found.at :]
    old, new = found.was[found.at : found.was_end], found.now[found.at : found.now_end]
    if found.longest <= _LONG and "".join(old.split()) == "".join(new.split()):
        return "text-drift", "the same text with other whitespace"
    low = max(0, found.at - 1)  # an accent of its own may follow the last equal letter
    if found.longest <= _LONG and _one_form(found.was[low : found.was_end]) == _one_form(
        found.now[low : found.now_end]
    ):
        return "text-drift", "the same text in another Unicode form"
    short = found.longest <= _LONG
    label = found.label
    if short:
        if found.touches(_CLOCK):
            return "clock-in-prefix", "a clock value"
        if _CLOCK_LABEL.search(label) and found.touches(_NUMBER):
            return "clock-in-prefix", "a clock value"
        if found.touches(_RANDOM) or _RANDOM_LABEL.search(label):
            return "random-in-prefix", "an id that is new each time"
        counted = _counter(found, label)
        if counted:
            return "counter-in-prefix", counted
    items = found.reordered()
    if items:
        if _LISTING.search(items[0]):
            return "unsorted-listing", "the same listing in another order"
        if now.lstrip()[:1] in {'"', "{"} or '":' in now[:80]:
            return "unsorted-json", "the same fields in another order"
        return "unordered-iteration", "the same items in another order"
    if short and (_HOST_LABEL.search(label) or found.touches(_PATH)):
        return "host-state-in-prefix", "state of the machine"
    if short and (_USER_LABEL.search(label) or found.touches(_MAIL) or found.touches(_NAME)):
        return "user-data-before-shared", "a value of the user, tenant or session"
    return None


def _one_form(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _counter(found: _Difference, label: str) -> str | None:
    """What is counted, where both texts have a number at the place and either its label or its step says that it counts."""
    numbers = []
    low = found.at
    while low > 0 and (found.now[low - 1].isdigit() or found.now[low - 1] in ",._"):
        low -= 1
    if not _COUNTED.search(found.now, max(0, low - 16), low):
        return None  # part of a name, as in proj1
    for text, end in ((found.was, found.was_end), (found.now, found.now_end)):
        match = _NUMBER.match(text, low)
        if match is None or match.end() < min(end, found.at + 1):
            return None
        try:
            numbers.append(float(re.sub(r"[,_]", "", match.group()).rstrip(".")))
        except ValueError:
            return None
    if numbers[0] == numbers[1]:
        return None
    if abs(numbers[1] - numbers[0]) == 1:
        return "a counter"
    return "a count of steps, budget or usage" if _COUNTER_LABEL.search(label) else None


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
    return (
        len(was) < 4 * _LONG
        and Counter(words.findall(was)) == Counter(words.findall(now))
        and len(words.findall(was)) > 2
    )


_BY_LABEL = frozenset(["host-state-in-prefix", "user-data-before-shared"])


def _tools(was: str, now: str, at: int) -> Change:
    """Tools moved, came, went or changed."""
    was_end, now_end = resync(was, now, at)
    if not was or not now:
        return Change(
            "tools-built-per-request",
            "tools were sent for the first time" if now else "no tools were sent",
            was_end,
            now_end,
            whole=True,
        )
    old, new = json.loads(was), json.loads(now)
    before, after = Counter(map(compact, old)), Counter(map(compact, new))
    if before == after:
        return Change("tool-order-differs", "the same tools in another order", was_end, now_end, whole=True)
    if Counter(map(_sorted, old)) == Counter(map(_sorted, new)):
        return Change("unsorted-json", "the same tools with their keys in another order", was_end, now_end, whole=True)
    gone, come = _names((before - after).keys()), _names((after - before).keys())
    if set(gone) == set(come):
        difference = _Difference(was, now, at, was_end, now_end)
        value = _value(difference)
        # In a description a word such as "files" labels nothing: what is no value by its own form is a definition that changed.
        if value is not None and (value[0] not in _BY_LABEL or difference.touches(_PATH) or difference.touches(_MAIL)):
            return Change(*value, was_end, now_end)
        return Change(
            "tools-built-per-request", f"the definition of {', '.join(gone[:3])} changed", was_end, now_end, whole=True
        )
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
        change = Change("history-truncated", f"{skip} older message{'s' * (skip > 1)} left out", 0, 0, skip=skip)
        return _moved(change, old[at : at + skip])
    if extra:
        return Change(
            "message-inserted-at-front",
            f"{extra} message{'s' * (extra > 1)} put in ahead of old ones",
            0,
            0,
            extra=extra,
        )
    return None


def _moved(change: Change, moved: Sequence[tuple[tuple[str, str], ...]]) -> Change:
    """Messages that came or went; where all of them are instructions that are left out it is no history, but a block that depends on something."""
    if change.skip and all(("role", "system") in message for message in moved):
        return replace(change, rule="conditional-block-in-prefix", cause=change.cause.replace("older", "system"))
    return change


def _head(found: _Difference, part: Part, was: Sequence[Part], now: Sequence[Part]) -> Change:
    """Something else in the system text, or in a prompt that is one text."""
    ends = (found.was_end, found.now_end)
    if part.slot != "prompt" and any(other.role in {"assistant", "model"} for other in now):
        shared = found.at + len(part.text) - found.now_end
        if 2 * shared < len(part.text) and _rest(was) == _rest(now)[: len(_rest(was))]:
            return Change(
                "history-under-changing-head", "the conversation was sent under another system text", *ends, whole=True
            )
        return Change("volatile-system-message", "text in the system message changed within a conversation", *ends)
    if found.at in ends:
        return Change("conditional-block-in-prefix", "a part of the text came or went", *ends)
    return _ahead(found)


def _ahead(found: _Difference) -> Change:
    """A value or a passage that stands ahead of text which stayed."""
    if found.longest > _LONG:
        return Change("context-before-static", "a passage ahead of text that stays", found.was_end, found.now_end)
    return Change(
        "request-data-before-static", "a value of the request ahead of text that stays", found.was_end, found.now_end
    )


def _rest(parts: Sequence[Part]) -> list[str]:
    return [part.text for part in parts if part.message >= 0 and part.role not in {"system", "developer"}]


def _message(found: _Difference, part: Part, now: Sequence[Part]) -> Change:
    """A message that was sent in another form; in the newest message of the user, data of the request."""
    if part.slot == "role":
        return Change(
            "history-rewritten",
            "another message stands where an old one stood",
            found.was_end,
            found.now_end,
            whole=True,
        )
    if part.message == now[-1].message and part.role == "user":
        return _ahead(found)
    return Change(
        "history-rewritten", "an old message was sent in another form", found.was_end, found.now_end, whole=True
    )


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
