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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from promptlint.advisor.diagnose.causes import Change, classify, repaired
from promptlint.advisor.diagnose.model import Cause, Diagnosis, Divergence, Likely
from promptlint.advisor.diagnose.redact import snippet
from promptlint.advisor.diagnose.trie import Match, Node, Tree, common
from promptlint.traffic.parts import Part, parts_of
from promptlint.traffic.record import INPUT, Record

__all__ = ["MIN_BEHIND", "Cause", "Diagnosis", "Divergence", "Likely", "diagnose"]

MIN_BEHIND = 32
"""Tokens of equal text behind a difference from which on it costs something; the same threshold as in the checks."""
MAX_REPAIRS = 8
"""Repairs of one request in a replay: several values of one kind may stand in one prompt."""

Counter = Callable[[str], int]


@dataclass(slots=True)
class _Space:
    """What one namespace has seen. `sessions`: the last node and number of each session; `threads`: conversations so far."""

    tree: Tree = field(default_factory=Tree)
    sessions: dict[str, tuple[Node, int]] = field(default_factory=dict)
    threads: int = 0


@dataclass(slots=True)
class _Row:
    """One request during the diagnosis. `node` is its end in the tree, from which its parts can be read again."""

    number: int
    record: Record
    space: _Space
    key: tuple[str, str]
    node: Node
    cached: int
    total: int
    fault: bool = False
    rule: str = ""


def diagnose(records: Iterable[Record], count: Counter, *, tokenizer: str = "", min_behind: int = MIN_BEHIND) -> Diagnosis:
    """Diagnose records in time order. `count` gives the number of tokens of a text; results are cached by the caller.

    Records without text or ids are counted for their usage only. Nothing here needs a cache model: the cache has no limit and forgets nothing.
    """
    found = Diagnosis(tokenizer=tokenizer)
    spaces: dict[tuple[str, str], _Space] = {}
    rows: list[_Row] = []
    for record in records:
        _observe(found, record)
        parts = parts_of(record)
        if not parts:
            continue
        found.requests += 1
        key = (record.namespace, record.model)
        space = spaces.setdefault(key, _Space())
        counter = _counter(record, count)
        match = space.tree.match(parts)
        cached, total = _tokens(parts, match, counter)
        number = len(rows) + 1
        row = _Row(number, record, space, key, space.tree.root, cached, total)
        fault = _is_fault(row, parts, match, rows, counter, min_behind)
        if fault is not None:
            row.fault, row.rule = True, fault.rule
            found.divergences.append(_divergence(row, parts, match, rows, fault, counter))
        moved = None if fault is not None else _other_model(row, match, rows, spaces)
        if moved is not None:
            found.divergences.append(moved)
        row.node = _enter(space, record, parts, number, match)
        rows.append(row)
        found.prompt_tokens += total
        found.cached_tokens += cached
    found.starts = sum(space.threads for space in spaces.values())
    _price(found, rows, count)
    return found


def _observe(found: Diagnosis, record: Record) -> None:
    if record.cached_tokens is not None and record.usage.get(INPUT) is not None:
        found.observed_prompt_tokens = (found.observed_prompt_tokens or 0) + record.usage[INPUT]
        found.observed_cached_tokens = (found.observed_cached_tokens or 0) + record.cached_tokens


def _counter(record: Record, count: Counter) -> Counter:
    """How the texts of a record's parts are counted: ids count themselves, a hashed block its size."""
    if record.token_ids is not None:
        return len
    if record.hash_ids is not None:
        size = record.block_size or 1
        return lambda text: size if text else 0
    return count


def _tokens(parts: Sequence[Part], match: Match, count: Counter) -> tuple[int, int]:
    """Expected cached tokens and all tokens of a row. The last token is always computed, so at most all but one are cached."""
    sizes = [count(part.text) for part in parts]
    total = sum(sizes)
    cached = sum(sizes[: match.depth])
    if match.depth < len(parts) and match.chars:
        cached += min(count(parts[match.depth].text[: match.chars]), sizes[match.depth])
    return min(cached, max(total - 1, 0)), total


def _enter(space: _Space, record: Record, parts: Sequence[Part], number: int, match: Match) -> Node:
    """Put the request into the tree and hand the conversation over to it."""
    head = _head(match)
    if head is not None:
        head.open -= 1
    else:
        space.threads += not (record.session_id and record.session_id in space.sessions)
    node = space.tree.insert(parts, number)
    node.open += 1
    if record.session_id:
        space.sessions[record.session_id] = (node, number)
    return node


def _head(match: Match) -> Node | None:
    """The latest earlier request that is contained in this one and that nobody has continued yet."""
    return next((node for node in reversed(match.path) if node.open > 0 and node.part is not None), None)


def _is_fault(row: _Row, parts: Sequence[Part], match: Match, rows: Sequence[_Row], count: Counter, min_behind: int) -> Change | None:
    """The change, where something was lost; None where nothing was."""
    if match.whole or match.relative < 0 or match.depth >= len(parts):
        return None
    session = row.record.session_id
    before = row.space.sessions.get(session) if session else None
    if before is not None:
        if any(node is before[0] for node in match.path):
            return None
    elif _head(match) is not None:
        return None
    was = rows[match.relative - 1].node.parts()
    change = classify(was, parts, match.depth, match.chars)
    if before is not None:
        return change
    behind = _behind(was, parts, match.depth, change, count)
    part = parts[match.depth]
    newest = part.message >= 0 and part.message == parts[-1].message and part.role not in {"system", "developer"}
    if newest:
        return change if behind >= min_behind else None
    alone = row.space.threads <= 1 and not session
    if alone or behind >= min_behind:
        return change
    in_head = part.message < 0 or part.role in {"system", "developer"}
    related = in_head and part.slot != "role" and (count(part.text[: match.chars]) >= min_behind or 2 * match.chars >= len(part.text))
    return change if related else None


def _behind(was: Sequence[Part], now: Sequence[Part], depth: int, change: Change, count: Counter) -> int:
    """Tokens behind the difference that both requests share once it is repaired."""
    fixed = repaired(was, now, depth, change)
    if fixed is None:
        return 0
    start = depth
    if change.skip:
        start += len(fixed) - len(now)
    shared = 0
    for index in range(start, min(len(was), len(fixed))):
        old, new = was[index], fixed[index]
        if old.slot != new.slot:
            break
        same = len(new.text) if old.text == new.text else common(old.text, new.text)
        begin = change.was_end if index == start and not change.whole and not change.skip and not change.extra else 0
        if index == start and change.whole:
            shared += _common_end(was[index].text, now[index].text, count)
            continue
        shared += count(new.text[begin:same]) if same > begin else 0
        if old.text != new.text:
            break
    return shared


def _common_end(was: str, now: str, count: Counter) -> int:
    same = common(was[::-1], now[::-1])
    return count(now[len(now) - same :]) if same else 0


def _divergence(row: _Row, parts: Sequence[Part], match: Match, rows: Sequence[_Row], change: Change, count: Counter) -> Divergence:
    part = parts[match.depth]
    was = rows[match.relative - 1].node.parts()
    there = was[match.depth] if match.depth < len(was) and was[match.depth].slot == part.slot else None
    char = match.chars
    if there is not None and part.written is not None:
        char = common(there.spelled, part.spelled) if there.written is not None else _written_offset(part, match.chars)
    ahead = count(part.text[: match.chars]) if match.chars else 0
    was_end, now_end = (change.was_end, change.now_end) if not (change.skip or change.extra) else (match.chars + 40, match.chars + 40)
    return Divergence(
        request=row.number,
        id=row.record.id,
        relative=match.relative,
        path=part.path,
        char=char,
        token=ahead,
        prompt_token=row.cached,
        rule=change.rule,
        cause=change.cause,
        was=snippet(there.text, match.chars, was_end) if there is not None else "",
        now=snippet(part.text, match.chars, now_end),
        call_site=row.record.call_site,
        observed_cached_tokens=row.record.cached_tokens,
        place=str(row.record.place),
    )


def _written_offset(part: Part, chars: int) -> int:
    """Offset in a part's written form of a character of its text: JSON escapes make it longer."""
    from promptlint.traffic.parts import compact

    lead = part.spelled.find(compact(part.text))
    return max(lead, 0) + len(compact(part.text[:chars])) - 1


def _other_model(row: _Row, match: Match, rows: Sequence[_Row], spaces: dict[tuple[str, str], _Space]) -> Divergence | None:
    """A conversation that went on under another model: its text is a continuation, but no cache of the new model has it."""
    session = row.record.session_id
    if not session or session in row.space.sessions:
        return None
    namespace, model = row.key
    for (other_namespace, other_model), space in spaces.items():
        before = space.sessions.get(session)
        if before is None or other_namespace != namespace or other_model == model:
            continue
        node, number = before
        earlier = rows[number - 1]
        own = [(part.slot, part.text) for part in row.record and parts_of(row.record)]
        old = [(part.slot, part.text) for part in node.parts()]
        if own[: len(old)] == old and earlier.total > row.cached:
            return Divergence(
                request=row.number, id=row.record.id, relative=number, path="model", char=common(other_model, model), token=0, prompt_token=0,
                rule="cache-parameter-differs", cause=f"the model changed from {other_model} to {model}", was=other_model, now=model,
                tokens_lost=earlier.total - row.cached, call_site=row.record.call_site, observed_cached_tokens=row.record.cached_tokens,
                place=str(row.record.place),
            )  # fmt: skip
    return None


def _price(found: Diagnosis, rows: Sequence[_Row], count: Counter) -> None:
    """Replay with each cause repaired; fill the tokens lost and rank the causes."""
    lost: dict[int, int] = {}
    rules = dict.fromkeys(divergence.rule for divergence in found.divergences)
    for rule in rules:
        gained = _replay(rows, rule, count)
        own = [divergence for divergence in found.divergences if divergence.rule == rule]
        extra = 0
        for divergence in own:
            if divergence.path == "model":
                extra += divergence.tokens_lost
            else:
                lost[divergence.request] = max(gained[divergence.request - 1], 0)
        cached = found.cached_tokens + sum(gained) + extra
        tokens = extra + sum(lost.get(divergence.request, 0) for divergence in own if divergence.path != "model")
        rate = min(cached / found.prompt_tokens, 1.0) if found.prompt_tokens else 0.0
        found.causes.append(Cause(rule, len(own), tokens, rate))
    found.causes.sort(key=lambda cause: (-cause.tokens_lost, -cause.requests, cause.rule))
    found.divergences = [
        replace(divergence, tokens_lost=lost[divergence.request]) if divergence.path != "model" else divergence for divergence in found.divergences
    ]


def _replay(rows: Sequence[_Row], rule: str, count: Counter) -> list[int]:
    """Cached tokens that each request gains when every difference of that rule is repaired, in all requests."""
    trees: dict[tuple[str, str], Tree] = {}
    ends: list[Node] = []
    gained = []
    for row in rows:
        tree = trees.setdefault(row.key, Tree())
        counter = _counter(row.record, count)
        parts = row.node.parts()
        match = tree.match(parts)
        repairs = 0
        while not match.whole and match.relative >= 0 and match.depth < len(parts) and repairs < MAX_REPAIRS:
            if not row.fault and _unmatched(parts, match, counter) <= row.total - row.cached:
                break
            was = ends[match.relative - 1].parts()
            change = classify(was, parts, match.depth, match.chars)
            if change.rule != rule:
                break
            fixed = repaired(was, parts, match.depth, change)
            if fixed is None:
                break
            better = tree.match(fixed)
            if (better.depth, better.chars) <= (match.depth, match.chars):
                break
            parts, match = fixed, better
            repairs += 1
        ends.append(tree.insert(parts, row.number))
        expected = min(row.total - _unmatched(parts, match, counter), max(row.total - 1, 0))
        gained.append(max(expected - row.cached, 0) if repairs else 0)
    return gained


def _unmatched(parts: Sequence[Part], match: Match, count: Counter) -> int:
    """Tokens of the row behind its match. Repairs put text in ahead of the match only, so what is behind is the request's own."""
    left = sum(count(part.text) for part in parts[match.depth :])
    if match.depth < len(parts) and match.chars:
        left -= count(parts[match.depth].text[: match.chars])
    return max(left, 0)
