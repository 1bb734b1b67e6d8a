"""What the pytest fixture `prompt_cache` gives to a test: the requests that the test sends, and assertions on what a prefix cache makes of them."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from promptlint.traffic.parts import Part, parts_of
from promptlint.traffic.readers.base import Options
from promptlint.traffic.readers.bodies import record_of
from promptlint.traffic.record import CACHE_READ, INPUT, Place, Record

__all__ = ["PromptCache", "recorder", "watching"]


def recorder() -> Any:
    """The recorder of this process: the one that `promptlint record` has started, or our own, now installed."""
    started = sys.modules.get("_promptlint_recorder")
    if started is not None and started.settings.active:
        return started
    from promptlint.app.discovery import project_root
    from promptlint.recording.child import _promptlint_recorder as own

    if not own.settings.root:
        own.settings.root = str(project_root(Path.cwd()))
        own.settings.base = str(Path.cwd())
    own.install()
    return own


@contextlib.contextmanager
def watching() -> Iterator[PromptCache]:
    """The requests that this process sends within the block."""
    sink = __import__(f"{recorder().__name__}.sink", fromlist=["listeners"])
    cache = PromptCache()
    sink.listeners.append(cache._hear)  # noqa: SLF001 - ours
    try:
        yield cache
    finally:
        sink.listeners.remove(cache._hear)  # noqa: SLF001 - ours


class PromptCache:
    """The requests of one test so far, in the order in which they were sent, as canonical records (dicts).

    Which requests an assertion is about can be narrowed by `call_site` and `model`, each a part of the name: `append_only(call_site="agent.py::Agent.step")`.
    A failed assertion is an AssertionError that names the two requests, the place where they part and what it costs.
    """

    def __init__(self) -> None:
        self._lines: list[dict[str, Any]] = []

    def _hear(self, row: Mapping[str, Any]) -> None:
        """A copy, for the program may go on with its own lists."""
        self._lines.append(json.loads(json.dumps(row, default=str)))

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The requests with their usage, where an answer came."""
        from promptlint.recording.session import Recording, merge

        found = Recording()
        merge(iter([json.dumps(line).encode() for line in self._lines]), found)
        return found.rows

    def __len__(self) -> int:
        return len(self.requests)

    def clear(self) -> None:
        """Forget the requests so far."""
        self._lines.clear()

    def append_only(self, *, call_site: str = "", model: str = "") -> None:
        """Assert that each request begins with the whole of the one before it: same model, same tools, same system text, old messages untouched.

        One conversation at a time: a test with several narrows by call site, or calls `clear` between them.
        """
        __tracebackhide__ = True
        rows = self._chosen(call_site, model)
        for number in range(1, len(rows)):
            before, now = rows[number - 1], rows[number]
            if before.get("model") != now.get("model"):
                raise AssertionError(
                    f"request {number + 1} goes to the model {now.get('model')}, request {number} went to {before.get('model')}: no cache is shared"
                )
            apart = _parting(before, now)
            if apart is not None:
                raise AssertionError(f"request {number + 1} does not continue request {number}: {apart}")

    def same_prefix(self, a: int | str, b: int | str, *, tokens: int | None = None) -> None:
        """Assert that two requests share their prefix: tools and system text, or with `tokens` at least so many prompt tokens.

        `a` and `b` are positions (0 is the first request) or call sites, of which all requests are compared with the first one of `a`.
        """
        __tracebackhide__ = True
        first, others = self._of(a)[0], [*self._of(a)[1:], *self._of(b)]
        for other in others:
            if first.get("model") != other.get("model"):
                raise AssertionError(
                    f"{_name(first)} goes to the model {first.get('model')}, {_name(other)} to {other.get('model')}: no cache is shared"
                )
            if tokens is not None:
                shared = _shared_tokens(first, other)
                if shared < tokens:
                    raise AssertionError(
                        f"{_name(first)} and {_name(other)} share {shared:,} tokens, not {tokens:,}: {_parting(first, other) or 'one ends there'}"
                    )
                continue
            head, other_head = _head(first), _head(other)
            if not head and not other_head:
                raise AssertionError(
                    f"{_name(first)} has neither tools nor a system text: say how many tokens must be shared, same_prefix(a, b, tokens=N)"
                )
            apart = _first_difference(head, other_head, both=True)
            if apart is not None:
                raise AssertionError(f"{_name(first)} and {_name(other)} do not begin alike: {apart}")

    def hit_rate(self, minimum: float, *, observed: bool = False, call_site: str = "", model: str = "") -> None:
        """Assert a hit rate (0 to 1) of the requests taken together: cached prompt tokens through all prompt tokens.

        Expected, it is what their text allows in a prefix cache without limit; `observed`, what the server reported as usage.
        """
        __tracebackhide__ = True
        rows = self._chosen(call_site, model)
        cached, prompt = _observed(rows) if observed else _expected(rows)
        rate = cached / prompt if prompt else 0.0
        if rate < minimum:
            kind = "observed" if observed else "expected"
            why = "" if observed else _worst(rows)
            raise AssertionError(
                f"{kind} hit rate {rate:.1%} is below {minimum:.1%}: {cached:,} of {prompt:,} prompt tokens of {len(rows)} requests{why}"
            )

    def _chosen(self, call_site: str, model: str) -> list[dict[str, Any]]:
        rows = [
            row for row in self.requests if call_site in row.get("call_site", "") and model in str(row.get("model", ""))
        ]
        if not rows:
            sites = ", ".join(sorted({row.get("call_site", "unknown") for row in self.requests}))
            narrowed = f" (call_site={call_site!r}, model={model!r}; sent from: {sites})" if sites else ""
            raise AssertionError(f"no request to a model was sent{narrowed}")
        return rows

    def _of(self, which: int | str) -> list[dict[str, Any]]:
        if isinstance(which, str):
            return self._chosen(which, "")
        rows = self.requests
        if not -len(rows) <= which < len(rows):
            raise AssertionError(f"there is no request {which}: {len(rows)} were sent")
        return [rows[which]]


def _record(row: Mapping[str, Any]) -> Record:
    return record_of(row, Place(""), "canonical", Options())


def _name(row: Mapping[str, Any]) -> str:
    return f"the request from {row.get('call_site') or 'an unknown place'}:{row.get('recorded', {}).get('line', 0)}"


def _parting(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Where `now` leaves what `before` holds, or None where it continues it."""
    return _first_difference(parts_of(_record(before)), parts_of(_record(now)), both=False)


def _head(row: Mapping[str, Any]) -> list[Part]:
    """Tools and system text: all that stands ahead of the first message of another role."""
    head = []
    for part in parts_of(_record(row)):
        if part.message >= 0 and part.role not in {"system", "developer"}:
            break
        if part.message < 0 and part.slot in {"prompt", "token_ids"}:
            break
        head.append(part)
    return head


def _first_difference(was: Sequence[Part], now: Sequence[Part], *, both: bool) -> str | None:
    """The first difference between two rows of parts in words; with `both` a part that only the second has is one too."""
    from promptlint.advisor.diagnose.redact import snippet

    for index, old in enumerate(was):
        if index >= len(now):
            return f"{old.path} is missing"
        new = now[index]
        if old.slot == new.slot and old.text == new.text:
            continue
        last_text = (
            index == len(was) - 1 and not both and old.slot == new.slot == "prompt" and new.text.startswith(old.text)
        )
        if last_text:
            return None
        char = next(
            (at for at, (a, b) in enumerate(zip(old.text, new.text, strict=False)) if a != b),
            min(len(old.text), len(new.text)),
        )
        return (
            f"{new.path} differs at character {char}\n  was  {snippet(old.text, char, char + 20)!r}\n  now  {snippet(new.text, char, char + 20)!r}"
            if old.slot == new.slot
            else f"{new.path} stands where {old.path} stood"
        )
    if both and len(now) > len(was):
        return f"{now[len(was)].path} is only in one of them"
    return None


def _counter() -> Any:
    from promptlint.app.traffic import Tokens, token_counter
    from promptlint.catalog.profiles import encoding_for

    return token_counter(Tokens().segments(encoding_for("")[0]))


def _shared_tokens(first: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    count, shared = _counter(), 0
    for old, new in zip(parts_of(_record(first)), parts_of(_record(other)), strict=False):
        if old.slot != new.slot:
            break
        same = next(
            (at for at, (a, b) in enumerate(zip(old.text, new.text, strict=False)) if a != b),
            min(len(old.text), len(new.text)),
        )
        shared += count(new.text[:same]) if same else 0
        if old.text != new.text:
            break
    return int(shared)


def _observed(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Cached and all prompt tokens as reported. Raises AssertionError where nothing was."""
    known = [row["usage"] for row in rows if INPUT in row.get("usage", {})]
    if not known:
        raise AssertionError("no answer reported its prompt tokens")
    return sum(usage.get(CACHE_READ, 0) for usage in known), sum(usage[INPUT] for usage in known)


def _diagnosed(rows: Sequence[Mapping[str, Any]]) -> Any:
    from promptlint.advisor.diagnose import diagnose

    return diagnose([_record(row) for row in rows], _counter())


def _expected(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    found = _diagnosed(rows)
    return found.cached_tokens, found.prompt_tokens


def _worst(rows: Sequence[Mapping[str, Any]]) -> str:
    """The place that costs most, for the message of a failed assertion."""
    divergences = sorted(_diagnosed(rows).divergences, key=lambda one: -one.tokens_lost)
    if not divergences:
        return ""
    one = divergences[0]
    return f"\n  request {one.request} left request {one.relative} at {one.path} character {one.char}: {one.cause}\n  was  {one.was!r}\n  now  {one.now!r}"
