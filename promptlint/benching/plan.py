"""What is sent: requests with tokens in the servers' vocabulary, their bodies, and the moments at which they are due.

All targets of a repetition are sent the same bytes but for the model's name. Each repetition spells the same traffic in other tokens (where the traffic is tokens):
what requests share stays the same to the token, but nothing is in a cache because an earlier repetition, or yesterday's run, has put it there.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from promptlint.caches.request import Request, pack, unpack
from promptlint.errors import UserError
from promptlint.traffic.synth import WORDS

__all__ = ["Load", "Sampling", "Shot", "Spelling", "arrivals", "disguise", "encode", "shots"]

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Spelling:
    """Tokens in a vocabulary: ids from `low` up to, but not including, `high`, all of them ordinary ones. `salt` makes the tokens of one repetition.

    A token becomes a pseudo-random one that follows from its id, its position and the salt. Equal prefixes stay equal, and where two prompts part they part here too,
    but for one chance in high - low that the next token happens to be the same. A hashed block, whose id stands for all its tokens, is spelled as different tokens.
    """

    low: int = 1000
    high: int = 30_000
    salt: int = 0

    def __call__(self, prompt: bytes, namespace: Hashable = None) -> list[int]:
        """The token ids of a packed prompt. Equal tokens of different namespaces are spelled differently, for they must not be shared."""
        own = zlib.crc32(repr(namespace).encode()) if namespace is not None else 0
        low, span, salt = self.low, self.high - self.low, self.salt * 0x9E3779B97F4A7C15 + (own << 20)
        found = []
        for place, token in enumerate(unpack(prompt)):
            # Two rounds of multiply and shift (as in splitmix64) mix id and position; one round leaves runs of equal ids too regular.
            mixed = (token * 0xBF58476D1CE4E5B9 + place * 0x94D049BB133111EB + salt) & _MASK
            mixed = ((mixed ^ (mixed >> 31)) * 0x9E3779B97F4A7C15) & _MASK
            found.append(low + (mixed >> 33) % span)
        return found


def words(ids: Sequence[int]) -> str:
    """Token ids as a text of about as many tokens, for servers that take no ids. Equal beginnings stay equal."""
    return " ".join([WORDS[one % len(WORDS)] for one in ids])


def disguise(text: Mapping[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    """A request of the same kind and size that says nothing of the text."""
    content = words(ids)
    return {"messages": [{"role": "user", "content": content}]} if "messages" in text else {"prompt": content}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are drawn, the same for every target: greedy, of fixed length, as a stream with usage at its end.

    `schema` asks for JSON of that schema; the grammar then decides where the answer ends, so its length is only bounded. `fixed_length` asks the server to go on
    past an end-of-sequence token (`ignore_eos`, understood by vLLM and SGLang). `engine_fields`: every target is one of the two, so that what a model's
    generation_config may set beyond OpenAI's fields is spelled out as well.
    """

    fixed_length: bool = True
    schema: Mapping[str, Any] | None = None
    engine_fields: bool = False

    def fields(self) -> dict[str, Any]:
        """The fields of a body. Everything that a server could default differently is spelled out."""
        row: dict[str, Any] = {
            "temperature": 0,
            "top_p": 1,
            "frequency_penalty": 0,
            "presence_penalty": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.engine_fields:
            row |= {"top_k": -1, "min_p": 0, "repetition_penalty": 1}
        if self.schema is not None:
            row["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": self.schema, "strict": True},
            }
        elif self.fixed_length:
            row["ignore_eos"] = True
        return row


@dataclass(frozen=True, slots=True)
class Shot:
    """One request as it is sent. `request.prompt` holds the tokens as spelled; for a text what our own renderer makes of it.

    `after`: index of the request whose answer must have come first (the turn before), None for none. `exact`: the server gets exactly these tokens.
    """

    index: int
    request: Request
    body: bytes  # a JSON object without its closing brace: the fields that depend on the target follow
    path: str
    after: int | None = None
    exact: bool = True

    @property
    def output(self) -> int:
        """Tokens asked for, at most."""
        return self.request.token_limit


def shots(
    requests: Sequence[Request],
    sampling: Sampling,
    spelling: Spelling,
    texts: Sequence[Mapping[str, Any] | None] = (),
    *,
    as_words: bool = False,
) -> list[Shot]:
    """The requests of one repetition, in order. `texts` holds, for each, the fields of a request that is sent as it is (`messages` and `tools`, or `prompt`); None or nothing: its tokens are sent, or
    with `as_words` a chat message of as many words.
    """
    made: list[Shot] = []
    latest: dict[str, int] = {}
    shared = sampling.fields()
    for index, request in enumerate(requests):
        text = texts[index] if texts else None
        if text is None:
            ids = spelling(request.prompt, request.namespace)
            fields: dict[str, Any] = (
                {"messages": [{"role": "user", "content": words(ids)}]} if as_words else {"prompt": ids}
            )
            # What was generated is the server's own: for the caches it is unknown, and ends nowhere near another prompt.
            sent = _with_prompt(request, index, pack(ids))
        else:
            fields, sent = dict(text), _with_prompt(request, index, request.prompt)
        body = json.dumps(
            {**fields, **shared, "max_tokens": sent.token_limit}, ensure_ascii=False, separators=(",", ":")
        )
        path = "/v1/chat/completions" if "messages" in fields else "/v1/completions"
        made.append(
            Shot(
                # Half a surrogate pair, which a log may hold and no server takes, goes as a question mark.
                index,
                sent,
                body.encode(errors="replace")[:-1],
                path,
                _before(request, requests, latest),
                text is None and not as_words,
            )
        )
        if request.session is not None:
            latest[request.session] = index
    return made


_UNKNOWN = 1 << 31  # ids from here on are no token of any vocabulary


def _with_prompt(request: Request, index: int, prompt: bytes) -> Request:
    """The request with another prompt, and an answer of the same length of which nothing is known."""
    return Request(
        index,
        prompt,
        pack([_UNKNOWN + index]) * max(1, request.output_tokens),
        namespace=None,
        timestamp=request.timestamp,
        max_new_tokens=request.token_limit,
        session=request.session,
    )


def _before(request: Request, requests: Sequence[Request], latest: Mapping[str, int]) -> int | None:
    """The earlier turn that this request goes on from: the last one of its session, if its whole prompt is the beginning of this one.

    Branches of one turn do not wait for each other, and no user asks on before the answer is there.
    """
    index = latest.get(request.session) if request.session is not None else None
    if index is None:
        return None
    before = requests[index].prompt
    return index if len(before) < len(request.prompt) and request.prompt.startswith(before) else None


def encode(shot: Shot, model: str) -> bytes:
    """The body for a target that serves the model under this name."""
    return shot.body + b',"model":' + json.dumps(model).encode() + b"}"


@dataclass(frozen=True, slots=True)
class Load:
    """How requests arrive: `concurrency` always under way (a closed loop), or open, at a `rate` in requests a second.

    arrivals: poisson, constant, or recorded (the traffic's own times, divided by `speed`; no rate).
    """

    concurrency: int = 0
    rate: float = 0.0
    arrivals: str = "poisson"
    speed: float = 1.0

    @property
    def closed(self) -> bool:
        """Whether the load waits for answers."""
        return self.concurrency > 0

    def words(self) -> str:
        """The load in words."""
        if self.closed:
            return f"{self.concurrency} requests always under way" if self.concurrency > 1 else "one request at a time"
        if self.arrivals == "recorded":
            return "recorded arrivals" + (f", {self.speed:g} times as fast" if self.speed != 1 else "")
        return f"{self.rate:g} requests a second, {self.arrivals} arrivals"


def arrivals(load: Load, requests: Sequence[Request], seed: int) -> list[float]:
    """When each request is due, seconds from the start of the run; all at once in a closed loop.

    Equal seeds give equal times, whatever the rate: twice the rate halves every gap. Raises UserError for recorded arrivals without times.
    """
    if load.closed:
        return [0.0] * len(requests)
    if load.arrivals == "recorded":
        times = [request.timestamp for request in requests]
        if max(times) <= min(times):
            raise UserError("--arrivals recorded: the traffic has no times")
        return [(time - times[0]) / load.speed for time in accumulate(times, max)]
    if load.arrivals == "constant":
        return [index / load.rate for index in range(len(requests))]
    rng = random.Random(f"{seed}:arrivals")
    return [0.0, *accumulate(rng.expovariate(1.0) / load.rate for _ in range(len(requests) - 1))]
