"""The radix tree of simulated traffic for a reader: which prompts share which beginnings, and what the branches are called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from promptlint.caches.shares import Branch, Name, PrefixShares

if TYPE_CHECKING:
    from promptlint.app.requests import Renderer, Requests
    from promptlint.app.simulate import Result

__all__ = ["Watched"]

_LENGTH = 64  # characters of a name
_TOKENS = 512  # that a name is looked for in; a key that begins there is masked to its end


class Watched:
    """Requests that are collected into a tree the first time they pass."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._shares = PrefixShares()
        self._seen = False

    def __iter__(self) -> Iterator[Any]:
        if self._seen:
            return iter(self._requests)
        self._seen = True
        return self._watch(self._requests)

    def _watch(self, requests: Iterable[Any]) -> Iterator[Any]:
        for request in requests:
            self._shares.add(request)
            yield request

    def tree(self, result: Result, render: Renderer, *, redact: bool) -> Branch:
        """The tree with what the simulation found, request by request. With `redact` no name holds text of a prompt."""
        refused = {name for name, _ in result.refused}
        outcomes = {name: (prompt, cached) for name, prompt, cached in result.per_request if name not in refused}
        return self._shares.tree(outcomes, None if redact or self._requests.bare else _names(render))


def _names(render: Renderer) -> Name | None:
    """Names from the text that a branch begins with, what looks like a key masked; None where the tokens are not one known tokenizer's."""
    from promptlint import tokenizers
    from promptlint.advisor.diagnose.redact import snippet
    from promptlint.caches.request import TOKEN_BYTES, unpack

    used = render.used
    if len(used) != 1:
        return None

    def name(before: bytes, run: bytes) -> str:
        lead = tokenizers.spelled(used[0], unpack(before))
        text = lead + tokenizers.spelled(used[0], unpack(run[: _TOKENS * TOKEN_BYTES]))
        shown = snippet(text, len(lead), min(len(lead) + _LENGTH, len(text)), around=0)
        return " ".join(shown.split()) + ("…" if len(text) - len(lead) > _LENGTH else "")

    return name
