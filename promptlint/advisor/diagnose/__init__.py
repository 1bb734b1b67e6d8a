"""Why requests missed: where each left its best earlier relative, by which cause, and what each cause costs.

A divergence is reported where something was lost: text that an earlier request had put into the cache and that this one could have used. So
a growing conversation has none, and neither has

- a request that is wholly contained in an earlier one;
- the first request of a conversation that shares the head with others and then asks something else;
- a conversation whose own earlier request is contained in the new one, whatever other conversations began with the same words;
- another question in the newest message, unless text of at least `MIN_BEHIND` tokens behind it stayed the same.

With session ids conversations are known; without them a request continues the latest earlier request that it contains and that nobody has continued.
A log in which there is only one conversation so far is taken at its word: every departure in old text is reported.

The cost of a cause is measured, not estimated: the traffic is replayed with that one cause repaired in every request.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from promptlint.advisor.diagnose.causes import Change, classify, repaired
from promptlint.advisor.diagnose.misses import Miss, miss_of, parameters_of, replica_of
from promptlint.advisor.diagnose.model import Cause, Diagnosis, Divergence, Likely
from promptlint.advisor.diagnose.redact import AROUND, snippet
from promptlint.advisor.diagnose.replay import Row, counter_of, price
from promptlint.advisor.diagnose.trie import Match, Node, Tree, common
from promptlint.tokenizers.render import compact
from promptlint.traffic.parts import Part, parts_of
from promptlint.traffic.record import CACHE_READ, INPUT, Record

__all__ = ["MIN_BEHIND", "Cause", "Diagnosis", "Divergence", "Likely", "Miss", "Origin", "diagnose"]

MIN_BEHIND = 32
"""Tokens of equal text behind a difference from which on it costs something; the same threshold as in the checks."""


@dataclass(slots=True)
class _Space:
    """What one namespace and model has seen. `sessions`: last node and number of each session; `threads`: conversations so far; `parameters`: names and
    values of what belongs to the cache key beside the text. `replicas`: the texts that each replica has seen, where the log names replicas.
    """

    tree: Tree = field(default_factory=Tree)
    sessions: dict[str, tuple[Node, int]] = field(default_factory=dict)
    threads: int = 0
    parameters: set[tuple[str, str]] = field(default_factory=set)
    replicas: dict[str, Tree] = field(default_factory=dict)


Origin = Callable[[Record, Sequence[Part], int, int], tuple[str, str]]
"""Call site and hole of a place in a request: the part's index and the character within it. Empty where they are not known."""


def diagnose(
    records: Iterable[Record],
    count: Callable[[str], int],
    *,
    tokenizer: str = "",
    min_behind: int = MIN_BEHIND,
    origin: Origin | None = None,
) -> Diagnosis:
    """Diagnose records in time order. `count` gives the number of tokens of a text; it is asked for one text many times.

    Records without text or ids are counted for their usage only. Nothing here needs a cache model: the cache has no limit and forgets nothing.
    """
    run = _Run(count, min_behind, Diagnosis(tokenizer=tokenizer), origin)
    collects = gc.isenabled()
    gc.disable()  # the trees hold millions of live objects and no garbage in cycles; walking them again and again makes time quadratic
    try:
        for record in records:
            run.add(record)
        return run.finish()
    finally:
        if collects:
            gc.enable()


class _Run:
    """One pass over the traffic."""

    def __init__(
        self, count: Callable[[str], int], min_behind: int, found: Diagnosis, origin: Origin | None = None
    ) -> None:
        self.origin = origin
        self.count = count
        self.min_behind = min_behind
        self.found = found
        self.spaces: dict[tuple[str, str, str], _Space] = {}
        self.rows: list[Row] = []
        self.records: list[Record] = []
        self.written: dict[int, tuple[Any, str]] = {}

    def add(self, record: Record) -> None:
        """Diagnose one request against all earlier ones, then remember it."""
        _observe(self.found, record)
        try:
            parts = parts_of(record, self.written)
        except RecursionError:
            self.found.too_deep.append(record.place)
            return
        if not parts:
            return
        key = (record.namespace, record.model, _spelling(record))
        space = self.spaces.setdefault(key, _Space())
        match = space.tree.match(parts)
        row = Row(len(self.rows) + 1, key, counter_of(record, self.count), record.call_site)
        self.records.append(record)
        row.cached, row.total = _tokens(parts, match, row.count)
        change = self._fault(record, row, parts, match)
        divergence = None
        if change is not None:
            divergence = self._divergence(record, row, parts, match, change)
        else:
            divergence = self._other_model(record, row, parts, match)
        if divergence is not None:
            self.found.divergences.append(divergence)
            row.rule = divergence.rule
        if match.relative > 0:
            before = self.records[match.relative - 1]
            missed = miss_of(
                record,
                before,
                space.parameters,
                number=row.number,
                relative=match.relative,
                expected=row.cached,
                total=row.total,
                here=_shared_here(space, record, parts, row.count),
            )
            self.found.misses += [missed] if missed is not None else []
        space.parameters.update(parameters_of(record))
        if replica := replica_of(record):
            space.replicas.setdefault(replica, Tree()).insert(parts, row.number)
        row.node = _enter(space, record, parts, row.number, match, fault=bool(row.rule))
        self.rows.append(row)

    def finish(self) -> Diagnosis:
        """The diagnosis, with the price of each cause."""
        found = self.found
        found.requests = len(self.rows)
        found.prompt_tokens = sum(row.total for row in self.rows)
        found.cached_tokens = sum(row.cached for row in self.rows)
        found.starts = sum(space.threads for space in self.spaces.values())
        price(found, self.rows)
        return found

    def _fault(self, record: Record, row: Row, parts: Sequence[Part], match: Match) -> Change | None:
        """The change, where something was lost; None where nothing was."""
        if match.whole or match.relative < 0 or match.depth >= len(parts):
            return None
        space = self.spaces[row.key]
        before = space.sessions.get(record.session_id) if record.session_id else None
        if before is not None:
            if any(node is before[0] for node in match.path):
                return None
        elif _head(match) is not None:
            return None
        was = self.rows[match.relative - 1].node.parts()
        change = classify(was, parts, match.depth, match.chars, same_site=row.same_site(self.rows[match.relative - 1]))
        if before is not None:
            return change
        part = parts[match.depth]
        in_head = part.message < 0 or part.role in {"system", "developer"}
        costs = _behind(was, parts, match.depth, change, row.count) >= self.min_behind
        if part.message == parts[-1].message and not in_head:
            return change if costs else None
        if costs or (space.threads <= 1 and not record.session_id):
            return change
        alike = row.count(part.text[: match.chars]) >= self.min_behind or 2 * match.chars >= len(part.text)
        return change if in_head and part.slot != "role" and alike else None

    def _divergence(self, record: Record, row: Row, parts: Sequence[Part], match: Match, change: Change) -> Divergence:
        part = parts[match.depth]
        was = self.rows[match.relative - 1].node.parts()
        there = was[match.depth] if match.depth < len(was) and was[match.depth].slot == part.slot else None
        moved = change.skip or change.extra
        was_end, now_end = (match.chars + AROUND,) * 2 if moved else (change.was_end, change.now_end)
        site, hole = self.origin(record, parts, match.depth, match.chars) if self.origin is not None else ("", "")
        return Divergence(
            request=row.number,
            id=record.id,
            relative=match.relative,
            path=part.path,
            char=_written(part, match.chars),
            token=row.count(part.text[: match.chars]) if match.chars else 0,
            prompt_token=row.cached,
            rule=change.rule,
            cause=change.cause,
            was=snippet(there.text, match.chars, was_end) if there is not None else "",
            now=snippet(part.text, match.chars, now_end),
            call_site=record.call_site or site,
            hole=hole,
            observed_cached_tokens=record.cached_tokens,
            place=str(record.place),
        )

    def _other_model(self, record: Record, row: Row, parts: Sequence[Part], match: Match) -> Divergence | None:
        """A conversation that went on under another model: its text is a continuation, but no cache of the new model has it."""
        namespace, model, spelling = row.key
        own = self.spaces[row.key]
        if record.session_id in own.sessions if record.session_id else _head(match) is not None:
            return None
        for (other_namespace, other, other_spelling), space in self.spaces.items():
            if (other_namespace, other_spelling) != (namespace, spelling) or other == model:
                continue
            number = _continued(space, record, parts)
            lost = self.rows[number - 1].total - row.cached if number else 0
            if lost > 0:
                return Divergence(
                    request=row.number,
                    id=record.id,
                    relative=number,
                    path="model",
                    char=common(other, model),
                    token=0,
                    prompt_token=0,
                    rule="cache-parameter-differs",
                    cause=f"the model changed from {other or 'none'} to {model or 'none'}",
                    was=other,
                    now=model,
                    tokens_lost=lost,
                    call_site=record.call_site,
                    observed_cached_tokens=record.cached_tokens,
                    place=str(record.place),
                )
        return None


def _continued(space: _Space, record: Record, parts: Sequence[Part]) -> int:
    """The number of the request in another space that this one continues; 0 where there is none.

    Without a session id only a request with more messages continues one: the same prompt under two models is a comparison.
    """
    if record.session_id:
        node, number = space.sessions.get(record.session_id, (None, 0))
        if node is None:
            return 0
        old = [(part.slot, part.text) for part in node.parts()]
        return number if [(part.slot, part.text) for part in parts[: len(old)]] == old else 0
    if not any(part.role == "assistant" for part in parts):
        return 0
    match = space.tree.match(parts)
    head = _head(match)
    return head.ended if head is not None and (match.depth < len(parts) or head is not match.path[-1]) else 0


def _spelling(record: Record) -> str:
    """What the log says of a prompt. Text, token ids and block ids are never found in one another."""
    return "token_ids" if record.token_ids is not None else "hash_ids" if record.hash_ids is not None else "text"


def _observe(found: Diagnosis, record: Record) -> None:
    if record.usage_adds_up:
        found.observed_prompt_tokens = (found.observed_prompt_tokens or 0) + record.usage[INPUT]
        found.observed_cached_tokens = (found.observed_cached_tokens or 0) + record.usage[CACHE_READ]


def _tokens(parts: Sequence[Part], match: Match, count: Callable[[str], int]) -> tuple[int, int]:
    """Expected cached tokens and all tokens of a row. The last token is always computed, so at most all but one are cached."""
    sizes = [count(part.text) for part in parts]
    total = sum(sizes)
    cached = sum(sizes[: match.depth])
    if match.depth < len(parts) and match.chars:
        cached += min(count(parts[match.depth].text[: match.chars]), sizes[match.depth])
    return min(cached, max(total - 1, 0)), total


def _shared_here(space: _Space, record: Record, parts: Sequence[Part], count: Callable[[str], int]) -> int | None:
    """Tokens that an earlier request to the same replica shares with this one; None where the log does not name the replica."""
    replica = replica_of(record)
    if not replica:
        return None
    tree = space.replicas.get(replica)
    return 0 if tree is None else _tokens(parts, tree.match(parts), count)[0]


def _enter(space: _Space, record: Record, parts: Sequence[Part], number: int, match: Match, *, fault: bool) -> Node:
    """Put the request into the tree and hand the conversation over to it."""
    head = _head(match)
    if head is not None:
        head.open -= 1
    elif record.session_id:
        space.threads += record.session_id not in space.sessions
    elif not fault and not (match.whole and match.relative > 0):
        space.threads += 1
    node = space.tree.insert(parts, number)
    node.open += 1
    if record.session_id:
        space.sessions[record.session_id] = (node, number)
    return node


def _head(match: Match) -> Node | None:
    """The latest earlier request that is contained in this one and that nobody has continued yet."""
    return next((node for node in reversed(match.path) if node.open > 0 and node.part is not None), None)


def _behind(was: Sequence[Part], now: Sequence[Part], depth: int, change: Change, count: Callable[[str], int]) -> int:
    """Tokens behind the difference that both requests share once it is repaired."""
    fixed = repaired(was, now, depth, change)
    if fixed is None:
        return 0
    moved = bool(change.skip or change.extra)
    start = depth + (len(fixed) - len(now) if change.skip else 0)
    shared = 0
    for index in range(start, min(len(was), len(fixed))):
        old, new = was[index], fixed[index]
        if old.slot != new.slot:
            break
        if index == start and not moved:
            new_text = now[depth].text
            same = (
                common(old.text[::-1], new_text[::-1])
                if change.whole
                else common(old.text, new.text, change.was_end, change.was_end)
            )
            end = len(new_text) if change.whole else change.now_end + same
            shared += count(new_text[end - same : end]) if same else 0
            if not change.whole and old.text != new.text:
                break
        else:
            same = common(old.text, new.text)
            shared += count(new.text[:same]) if same else 0
            if old.text != new.text:
                break
    return shared


def _written(part: Part, chars: int) -> int:
    """The offset of a character of a part's text in its written form, where JSON around it and escapes within it take room."""
    if part.written is None:
        return chars
    lead = part.written.find(compact(part.text))
    return lead + len(compact(part.text[:chars])) - 1
