"""What every cache model takes and gives: requests, matches, outcomes, and token runs as bytes.

Token ids are packed into `bytes`, four little-endian bytes each. A comparison of two runs is then one `memcmp`, a
slice is a short copy, and a run is its own dictionary key: that is why pure Python can outrun the engines' own trees.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

__all__ = ["TOKEN_BYTES", "Cache", "Match", "Outcome", "Request", "common_prefix", "pack", "unpack"]

TOKEN_BYTES = 4
_TYPECODE = "I" if array("I").itemsize == TOKEN_BYTES else "L"
_STRETCH = 256  # bytes; a quarter of the time of a bisection down to the last byte


def pack(tokens: Iterable[int]) -> bytes:
    """Token ids as bytes.

    Raises:
        OverflowError: a token is negative or needs more than 32 bits.
        TypeError: a token is not an integer.
    """
    run = array(_TYPECODE, tokens)
    if sys.byteorder == "big":  # equality needs no order, but the same bytes everywhere keep hashes stable
        run.byteswap()
    return run.tobytes()


def unpack(run: bytes) -> Sequence[int]:
    """The token ids of a packed run."""
    tokens = array(_TYPECODE)
    tokens.frombytes(run)
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


def common_prefix(run: bytes, tokens: bytes, at: int, end: int) -> int:
    """Bytes that `run` shares with `tokens[at:end]`: equality first; where the two part, bisection down to a stretch whose difference is taken at once.

    The result is not rounded to whole tokens; callers floor it to their unit.
    """
    high = min(len(run), end - at)
    if tokens.startswith(run[:high], at):
        return high
    low = 0
    while high - low > _STRETCH:
        middle = (low + high) // 2
        if tokens.startswith(run[low:middle], at + low):
            low = middle
        else:
            high = middle
    # Read as numbers with the first byte on top, the two differ from the highest set bit of their difference on.
    difference = int.from_bytes(run[low:high], "big") ^ int.from_bytes(tokens[at + low : at + high], "big")
    return high - (difference.bit_length() + 7) // 8


@dataclass(slots=True)
class Request:
    """One model call. Nothing changes it; it is made by the million, and a frozen dataclass would cost four times more.

    Attributes:
        id: unique name within the traffic.
        prompt: packed token ids of the whole prompt; never empty.
        output: packed token ids of the answer. The last one is sampled but never computed, so it is never cached.
        namespace: separates equal tokens (tenant, LoRA, salt, model). None is the default one.
        timestamp: arrival, seconds.
        priority: as the engines read it: SGLang keeps higher values longer, vLLM serves lower values first.
        max_new_tokens: upper limit for the answer that schedulers reserve; None: the length of `output`, at least 1.
        session: routing key of the conversation or user, for routers.
        labels: (kind, name) pairs that results are grouped by: namespace, model, call site.
        breakpoints: prompt positions in tokens, ascending, up to which a provider was told to cache.
        lifetimes: name of the lifetime of each breakpoint, "" for the default one; empty when all have it.
        head: prompt position in tokens where the system text ends; 0 when it is not known or there is none.
        stops: prompt positions in tokens, ascending, where a message or content block ends: where a provider looks back.
        route: what the caller gives a provider to pick a machine by (`prompt_cache_key`); "" for nothing.
        kept: packed tokens that enter the cache in place of prompt and answer, where the next turn's rendering of the
            history is known to differ from what was generated; None for the engines' own rule.
        kept_after: tokens at the start of the prompt that stand in front of `kept` in the cache.
    """

    id: Hashable
    prompt: bytes
    output: bytes = b""
    namespace: Hashable = None
    timestamp: float = 0.0
    priority: int | None = None
    max_new_tokens: int | None = None
    session: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    breakpoints: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()
    kept: bytes | None = None
    lifetimes: tuple[str, ...] = ()
    head: int = 0
    route: str = ""
    kept_after: int = 0

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt) // TOKEN_BYTES

    @property
    def output_tokens(self) -> int:
        return len(self.output) // TOKEN_BYTES

    @property
    def stored(self) -> bytes:
        """The tokens whose keys and values exist when the request ends: prompt and answer but its last token, or what is `kept`."""
        if self.kept is None:
            return self.prompt + self.output[:-TOKEN_BYTES]
        return self.prompt[: self.kept_after * TOKEN_BYTES] + self.kept

    @property
    def token_limit(self) -> int:
        """Upper limit of the answer, tokens."""
        return max(1, self.output_tokens) if self.max_new_tokens is None else self.max_new_tokens


@dataclass(frozen=True, slots=True)
class Match:
    """What a look-up would find: `cached_tokens` prompt tokens need no prefill."""

    cached_tokens: int


class Outcome(NamedTuple):
    """What one served request did to the cache, in tokens.

    `refused` says in words why a request was not served at all; it then changed nothing and counts nowhere. `written_at` are the written
    tokens by the name of the lifetime that a provider bills them at ("" for its default), where it offers several.
    """

    prompt_tokens: int
    cached_tokens: int
    written_tokens: int = 0
    evicted_tokens: int = 0
    refused: str | None = None
    written_at: tuple[tuple[str, int], ...] = ()


class Cache(Protocol):
    """A prefix cache that serves one request at a time."""

    def lookup(self, request: Request) -> Match:
        """What `admit` would find now. Changes nothing."""

    def admit(self, request: Request) -> Outcome:
        """Serve the request from prefill to its last token."""
