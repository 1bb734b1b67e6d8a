"""The order of a prompt that caches best, from traffic: what really stayed the same stands first, what changed stands last.

Requests of one call site are laid side by side. In the head of each (system text, or the whole text of a single-shot prompt) a line that nearly every request has is
stable, the others vary. Where stable text stands behind varying text, the varying lines move: behind the stable ones when a session keeps them, to the newest message
when they change within a session. Tool lists that differ only in order are put into one order. Records are rewritten with their own values, so the rate that is
promised is a replay of what would have been sent.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from promptlint.advisor.rows import greedy_groups
from promptlint.errors import UserError
from promptlint.ir import BlockKind
from promptlint.tokenizers.render import Conversation, plain_tags
from promptlint.traffic.record import Record

__all__ = ["Group", "Move", "blocks_in_order", "group_records", "kinds_of", "rewrite", "rewrite_rows"]

STABLE = 0.9  # share of the requests that have a line for it to count as stable
MIN_WORDS = 16  # of stable text behind varying text, below which nothing is moved; also the shortest stable run
MIN_REQUESTS = 4
MIN_LABEL = 4  # characters
MAX_CUE = 40  # characters of a cue that is glued to what follows
MAX_CUE_WORDS = 6
_HEAD_ROLES = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class Move:
    """Something that moves. `path` is where it stood in the body, `text` what it reads in the first request, `values` how many different ones there were."""

    path: str
    text: str
    values: int
    requests: int
    where: str  # in words

    def words(self) -> str:
        """One line for people."""
        shown = " ".join(self.text.split())
        shown = shown if len(shown) <= 100 else shown[:99] + "…"
        return f"{self.path}: {shown!r}, {self.values:,} values in {self.requests:,} requests, {self.where}"


@dataclass(frozen=True, slots=True)
class Group:
    """The requests of one call site (or model) before and after."""

    name: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    moves: tuple[Move, ...]
    records: tuple[Record, ...]  # rewritten, in the order of the input
    diff: str


def group_records(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Requests with text, by call site, or by model where no call site is recorded."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.has_text:
            groups[record.call_site or record.model or "traffic"].append(record)
    return dict(groups)


def rewrite(name: str, records: Sequence[Record]) -> Group | None:
    """The group in its better order, or None when nothing has to move."""
    if len(records) < MIN_REQUESTS:
        return None
    moves: list[Move] = []
    changed = [_copy(record) for record in records]
    longest = max(records, key=lambda record: len(record.messages or ()))
    before, after = _outline(longest), _outline(longest)
    if move := _sort_tools(changed):
        moves.append(move)
        after = ("tools (sorted)", *after[1:])
    for slot in _slots(records):
        found = _split(slot, records)
        if found is None:
            continue
        kept_by_session, pieces = found
        # Ahead of one question and no history the end of the text is as good a place as any, and the one that changes least.
        stays = kept_by_session or not any(map(_has_history, records))
        values = len({varying for _, varying in pieces})
        for record, (stable, varying) in zip(changed, pieces, strict=True):
            slot.put(record, stable + _glued(stable, varying) if stays else stable)
            if not stays and varying:
                _append(record, varying)
        where = "behind the text that stays the same" if stays else "into the newest message, behind the history"
        moves.append(Move(slot.path, pieces[0][1], values, len(records), where))
        after = _moved_outline(after, slot.label, stays=stays)
        before = tuple(f"{slot.label} (varying, then fixed)" if part == slot.label else part for part in before)
    if not moves:
        return None
    return Group(name, before, after, tuple(moves), tuple(changed), _diff(records[0], changed[0]))


def _moved_outline(parts: tuple[str, ...], label: str, *, stays: bool) -> tuple[str, ...]:
    if stays:
        return tuple(
            item
            for part in parts
            for item in ((f"{label} (fixed)", f"{label} (varying)") if part == label else (part,))
        )
    return (*(f"{label} (fixed)" if part == label else part for part in parts), f"{label} (varying)")


def _copy(record: Record) -> Record:
    return dataclasses.replace(
        record, messages=copy.deepcopy(record.messages), tools=record.tools, system=record.system
    )


def _outline(record: Record) -> tuple[str, ...]:
    """Kinds of the parts of a request, in rendered order."""
    if record.prompt is not None:
        return ("prompt",)
    parts = ["tools"] if record.tools else []
    messages = record.messages or []
    heads = sum(message.get("role") in _HEAD_ROLES for message in messages)
    if record.system is not None or heads:
        parts.append("system")
    rest = len(messages) - heads
    return (*parts, *(("history",) if rest > 1 else ()), *(("question",) if rest else ()))


def _has_history(record: Record) -> bool:
    """Whether messages of earlier turns stand ahead of the newest one."""
    return sum(message.get("role") not in _HEAD_ROLES for message in record.messages or ()) > 1


def _is_single(record: Record) -> bool:
    """A prompt without a history: one text, or one message behind the head."""
    if record.prompt is not None:
        return True
    return (
        sum(message.get("role") not in _HEAD_ROLES for message in record.messages or ()) <= 1
        and not any(message.get("role") in _HEAD_ROLES for message in record.messages or ())
        and record.system is None
    )


@dataclass(frozen=True, slots=True)
class _Slot:
    """A text that every request of a group has at the same place."""

    path: str
    label: str
    get: Callable[[Record], str | None]
    put: Callable[[Record, str], None]


def _slots(records: Sequence[Record]) -> list[_Slot]:
    first = records[0]
    if first.prompt is not None:
        return [_Slot("prompt", "prompt", lambda record: record.prompt, _put_prompt)]
    slots = []
    if isinstance(first.system, str):
        slots.append(
            _Slot(
                "system",
                "system",
                lambda record: record.system if isinstance(record.system, str) else None,
                _put_system,
            )
        )
    elif isinstance(first.system, list) and len(first.system) == 1:
        slots.append(_Slot("system[0].text", "system", _get_system_part, _put_system_part))
    for index, message in enumerate(first.messages or ()):
        if message.get("role") not in _HEAD_ROLES:
            if _is_single(first) and index == 0:
                slots.append(_message_slot(index, "question"))
            break
        slots.append(_message_slot(index, "system"))
    return slots


def _put_prompt(record: Record, text: str) -> None:
    record.prompt = text


def _put_system(record: Record, text: str) -> None:
    record.system = text


def _get_system_part(record: Record) -> str | None:
    part = record.system[0] if isinstance(record.system, list) and len(record.system) == 1 else None
    return part.get("text") if isinstance(part, dict) else None


def _put_system_part(record: Record, text: str) -> None:
    record.system = [{**record.system[0], "text": text}]


def _message_slot(index: int, label: str) -> _Slot:
    def get(record: Record) -> str | None:
        messages = record.messages or []
        content = messages[index].get("content") if index < len(messages) else None
        return content if isinstance(content, str) else None

    def put(record: Record, text: str) -> None:
        assert record.messages is not None
        record.messages[index]["content"] = text

    return _Slot(f"messages[{index}].content", label, get, put)


def _split(slot: _Slot, records: Sequence[Record]) -> tuple[bool, list[tuple[str, str]]] | None:
    """(whether a session keeps the varying part, (stable, varying) of each request), or None when nothing is gained by taking them apart."""
    texts = [slot.get(record) for record in records]
    if any(text is None for text in texts) or len(set(texts)) == 1:
        return None
    known = [text for text in texts if text is not None]
    lines = Counter(line for text in known for line in set(_lines(text)))
    common = {line for line, count in lines.items() if count >= STABLE * len(known)}
    flags = {text: _stable_lines(text, common) for text in set(known)}
    label = _label(known, flags)
    apart = {text: _take_apart(text, found, label) for text, found in flags.items()}
    pieces = [apart[text][:2] for text in known]
    gains = sum(apart[text][2] for text in known)
    if gains < len(known) / 2:
        ends = _by_ends(known)
        if ends is None:
            return None
        pieces = ends
    return _kept_by_session(records, [varying for _, varying in pieces]), pieces


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _stable_lines(text: str, common: set[str]) -> list[bool]:
    """For each line whether it stays. An empty line goes with the one before it, a short stable run between varying lines with those."""
    lines = _lines(text)
    flags = [
        line in common or (not line.strip() and index > 0 and lines[index - 1] in common)
        for index, line in enumerate(lines)
    ]
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and flags[end] == flags[start]:
            end += 1
        words = sum(len(line.split()) for line in lines[start:end])
        if flags[start] and words < MIN_WORDS and start > 0 and end < len(lines):
            flags[start:end] = [False] * (end - start)
            start = 0  # neighbours have merged
            continue
        start = end
    return flags


def _label(texts: Sequence[str], flags: dict[str, list[bool]]) -> str:
    """The first word with which every varying part begins, and the signs behind it ("Question: "); "" when it is too short to mean anything."""
    heads = [_lines(text)[flags[text].index(False)] for text in set(texts) if False in flags[text]]
    head = os.path.commonprefix(heads)  # noqa: RUF071  # characters are what is meant
    word = re.match(r"\W*\w+\W+", head)
    return word.group() if word and len(word.group().strip()) >= MIN_LABEL else ""


def _take_apart(text: str, flags: list[bool], label: str) -> tuple[str, str, bool]:
    """(stable lines, varying lines, whether enough stable text stood behind varying text).

    Two things stay with the varying part although they never change: a closing cue ("Answer:") at the very end, and a cue that is glued to the first of several
    examples that begin like the varying part ("Answer:Question: …").
    """
    lines = _lines(text)
    if all(flags):
        return text, "", False
    first = flags.index(False)
    stable: list[str] = []
    varying: list[str] = []
    cue = _closing_cue(lines) if flags[-1] else len(lines)
    met = False
    for index, (line, flag) in enumerate(zip(lines, flags, strict=True)):
        if not flag or index >= cue:
            varying.append(line)
            continue
        if label and index > first and not met:
            met = True
            at = line.find(label)
            if 0 < at <= MAX_CUE:
                varying.append(line[:at])
                line = line[at:]
        stable.append(line)
    behind = sum(len(line.split()) for line, flag in zip(lines[first:], flags[first:], strict=True) if flag)
    return "".join(stable), "".join(varying), behind >= MIN_WORDS


def _closing_cue(lines: Sequence[str]) -> int:
    """Index of the line with which a text asks for its continuation; the number of lines when there is none."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].strip():
            short = len(lines[index].split()) <= MAX_CUE_WORDS and lines[index].strip().endswith(":")
            return index if short else len(lines)
    return len(lines)


def _by_ends(texts: Sequence[str]) -> list[tuple[str, str]] | None:
    """Texts without useful lines: what all of them end with, cut at a word, ahead of the rest. None when the common end is short."""
    low, high = min(texts), max(texts)
    shortest = min(texts, key=len)
    suffix = len(shortest)
    for text in texts:
        while suffix and text[len(text) - suffix :] != shortest[len(shortest) - suffix :]:
            suffix -= 1
    prefix = 0
    while prefix < min(len(low), len(high)) and low[prefix] == high[prefix]:
        prefix += 1
    suffix = min(suffix, len(shortest) - prefix)
    end = shortest[len(shortest) - suffix :] if suffix else ""
    cut = next((place + 1 for place, char in enumerate(end) if char.isspace()), len(end))
    end = end[cut:]
    if len(end.split()) < MIN_WORDS:
        return None
    return [(end, text[: len(text) - len(end)]) for text in texts]


def _kept_by_session(records: Sequence[Record], varying: Sequence[str]) -> bool:
    """Sessions of several requests exist, and none of them sees two values."""
    values: dict[str, set[str]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for record, text in zip(records, varying, strict=True):
        if record.session_id:
            values[record.session_id].add(text)
            counts[record.session_id] += 1
    several = [session for session, count in counts.items() if count > 1]
    return bool(several) and all(len(values[session]) == 1 for session in several)


def _glued(stable: str, varying: str) -> str:
    """The varying part as it stands behind the stable one: on a line of its own."""
    return varying if not stable or not varying or stable.endswith(("\n", " ")) else "\n" + varying


def _append(record: Record, text: str) -> None:
    """Put moved text at the very end: into the newest message when a user wrote it, else as a message of its own."""
    if record.prompt is not None:
        record.prompt += text
        return
    assert record.messages is not None
    last = record.messages[-1] if record.messages else None
    if isinstance(last, dict) and last.get("role") == "user" and isinstance(last.get("content"), str):
        last["content"] = last["content"].rstrip("\n") + "\n\n" + text.strip("\n")
    else:
        record.messages.append({"role": "user", "content": text.strip("\n")})


def _sort_tools(records: Sequence[Record]) -> Move | None:
    """Put every tool list into one order when they hold the same tools and differ in order alone."""
    lists = [record.tools for record in records if record.tools]
    if len(lists) < MIN_REQUESTS:
        return None
    spelled = {json.dumps(tools, sort_keys=False) for tools in lists}
    sets = {tuple(sorted(json.dumps(tool, sort_keys=False) for tool in tools)) for tools in lists}
    if len(spelled) == 1 or len(sets) > 1:
        return None
    first = {json.dumps(tool): place for place, tool in enumerate(sorted(lists[0], key=_tool_name))}
    for record in records:
        if record.tools:
            record.tools = sorted(record.tools, key=lambda tool: first[json.dumps(tool)])
    return Move(
        "tools",
        ", ".join(_tool_name(tool) for tool in lists[0][:4]),
        len(spelled),
        len(lists),
        "into one order, by name",
    )


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    source = function if isinstance(function, dict) else tool
    return str(source.get("name", "")) if isinstance(source, dict) else str(tool)


def _diff(before: Record, after: Record) -> str:
    """Unified diff of the first request's text, long unchanged stretches left out."""
    rows = list(difflib.unified_diff(_readable(before), _readable(after), "now", "recommended", lineterm="", n=1))
    return "\n".join(row if len(row) <= 160 else row[:159] + "…" for row in rows[:60])


def _readable(record: Record) -> list[str]:
    if record.prompt is not None:
        return record.prompt.splitlines()
    lines = [f"tools: {', '.join(_tool_name(tool) for tool in record.tools)}"] if record.tools else []
    if isinstance(record.system, str):
        lines += ["[system]", *record.system.splitlines()]
    for message in record.messages or ():
        content = message.get("content")
        lines += [
            f"[{message.get('role')}]",
            *(content if isinstance(content, str) else json.dumps(content)).splitlines(),
        ]
    return lines


def rewrite_rows(name: str, records: Sequence[Record]) -> Group | None:
    """A batch job over a table: each prompt is a fixed text with one JSON object, the row. Rows and fields in the order of GGR, or None when it is no such job.

    Only for jobs whose requests are independent of each other: they change places.
    """
    read = [_row(record) for record in records]
    if len(read) < MIN_REQUESTS or any(one is None for one in read):
        return None
    known = [one for one in read if one is not None]
    names = set(known[0].fields)
    if (
        len(names) < 2
        or any(set(one.fields) != names for one in known)
        or len({(one.head, one.tail) for one in known}) > 1
    ):
        return None
    order = greedy_groups(
        [{field: json.dumps(value, ensure_ascii=False) for field, value in one.fields.items()} for one in known]
    )
    changed = []
    for placed in order:
        one = known[placed.row]
        record = _copy(records[placed.row])
        text = (
            one.head + json.dumps({field: one.fields[field] for field in placed.fields}, ensure_ascii=False) + one.tail
        )
        if record.prompt is not None:
            record.prompt = text
        else:
            assert record.messages is not None
            record.messages[-1]["content"] = text
        changed.append(record)
    before, after = tuple(known[0].fields), order[0].fields
    moves = (
        Move(
            "rows",
            ", ".join(after),
            len({placed.fields for placed in order}),
            len(records),
            "fields and rows grouped by repeated values (GGR)",
        ),
    )
    return Group(name, before, after, moves, tuple(changed), "")


@dataclass(frozen=True, slots=True)
class _Row:
    head: str
    fields: dict[str, Any]
    tail: str


def _row(record: Record) -> _Row | None:
    """The JSON object in the newest text of a request, and what stands around it."""
    text: Any = record.prompt if record.prompt is not None else (record.messages or [{}])[-1].get("content")
    start = text.find("{") if isinstance(text, str) else -1
    if start < 0:
        return None
    try:
        fields, length = json.JSONDecoder().raw_decode(text[start:])
    except ValueError:
        return None
    return _Row(text[:start], fields, text[start + length :]) if isinstance(fields, dict) else None


def kinds_of(record: Record) -> tuple[str, ...]:
    """The kinds of blocks of a request, in rendered order: tools, system, history, question."""
    return _outline(record)


def blocks_in_order(record: Record, kinds: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """(runs of the prompt, runs that enter the cache afterwards) with the blocks of a request in another order, rendered as plain tags.

    Kinds that are not named keep their places behind the named ones. The newest message with what follows the last user message is the question; all
    messages between the head and it are the history. Raises UserError for a word that is no kind.
    """
    known = {kind.value for kind in BlockKind}
    if unknown := [kind for kind in kinds if kind not in known]:
        raise UserError(f"--apply-order: {unknown[0]!r}: one of {', '.join(sorted(known))} is expected")
    if record.prompt is not None:
        return [record.prompt], None
    messages = list(record.messages or ())
    heads = [message for message in messages if message.get("role") in _HEAD_ROLES]
    rest = [message for message in messages if message.get("role") not in _HEAD_ROLES]
    last = max((index for index, message in enumerate(rest) if message.get("role") == "user"), default=len(rest) - 1)
    groups = {
        "tools": plain_tags(Conversation((), record.tools)).prompt[:-1],
        "system": plain_tags(Conversation(heads, None, record.system)).prompt[:-1],
        "history": plain_tags(Conversation(rest[: max(0, last)])).prompt[:-1],
        "question": plain_tags(Conversation(rest[max(0, last) :])).prompt[:-1],
    }
    order = [*(kind for kind in kinds if kind in groups), *(kind for kind in groups if kind not in kinds)]
    runs = [run for kind in order for run in groups[kind]]
    answered = plain_tags(Conversation((), answer=record.output)).stored if record.output is not None else None
    stored = [*runs, *answered] if answered is not None else None
    return [*runs, "<|assistant|>\n"], stored
