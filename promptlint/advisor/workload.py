"""A workload described in words and counts, and the synthetic traffic that it stands for.

A description is a YAML file: which blocks a prompt has in rendered order, how many tokens each, and what its value follows (`varies`, a volatility). Values are
drawn as ids, and an id has the same tokens each time: prompts share exactly what the description says they share. Several pools (one model on one kind of GPU behind
one router) may stand in one file under `pools`; what stands outside holds for all.

    model: Llama-3.1-8B            gpu: H100              current: vllm
    arrivals: 4                    output: 200
    prompt:
      - {block: system, tokens: 1200}
      - {block: context, tokens: 1500, varies: document, distinct: 300}
      - {block: question, tokens: 60, varies: request}
"""

from __future__ import annotations

import difflib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from promptlint.caches.fleet import ROUTERS
from promptlint.caches.request import TOKEN_BYTES, Request
from promptlint.errors import UserError
from promptlint.ir import BlockKind, Volatility
from promptlint.traffic.readers.safe_yaml import load_yaml

__all__ = ["CURRENT", "BlockSpec", "Workload", "best_order", "load_workloads", "synthesise", "tokens_of", "warm_up"]

CURRENT = ("vllm", "sglang", "provider", "none")
MAX_REQUESTS = 20_000
MAX_VALUES = 1_000_000
MAX_TOKENS = 10_000_000  # of a block: the longest context that any model reads
MAX_MARKS = 4  # breakpoints that a caller sets, where the provider takes them: at the ends of the last blocks that a session keeps


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """One block: its size in tokens and what its value follows. `distinct` is the number of values, 0 as many as there are; `skew` a Zipf exponent.

    `history` blocks grow: they hold the earlier turns and answers of the session, and have no size of their own.
    """

    kind: str
    tokens: int
    varies: Volatility = Volatility.STATIC
    name: str = ""
    distinct: int = 0
    skew: float = 0.0

    @property
    def label(self) -> str:
        """How the block is called in the output."""
        return self.name or self.kind

    @property
    def grows(self) -> bool:
        """An append-only history."""
        return self.kind == BlockKind.HISTORY.value


@dataclass(frozen=True, slots=True)
class Workload:
    """One pool and what it serves. Rates in requests a second over all replicas, sizes in tokens, times in milliseconds."""

    name: str
    prompt: tuple[BlockSpec, ...]
    output: int
    model: str = ""
    gpu: str = ""
    tensor_parallel: int = 1
    replicas: int = 1
    router: str = "round-robin"
    kv_dtype: str = "bf16"
    weights: str = ""
    host_cache_gb: float = 0.0
    current: str = "none"
    provider: str = ""
    prefix_caching: bool = True
    arrivals: float | None = None  # requests a second; None: `concurrency` requests are always under way
    concurrency: int = 64
    requests: int = 0  # simulated; 0: enough to see each value several times
    seed: int = 1
    order: str = "fixed"  # "mixed": all blocks but the last stand in another order each time
    turns: int = 1  # requests of a session, one after the other
    branches: int = 1  # requests of one turn that part from the same prefix (fork and join)
    structured: float = 0.0  # share of requests with a schema
    forced: float = 0.0  # share of their output tokens that the grammar forces
    ttft_ms: float = 0.0  # bound on the time to first token, 0 none
    decode_penalty: Mapping[str, float] = field(
        default_factory=dict
    )  # by engine: factor on decode steps with disabled graphs
    engines: tuple[str, ...] = ("sglang", "vllm")  # that run the model at all
    observed_hit_rate: float | None = None
    measured: Mapping[str, float] = field(
        default_factory=dict
    )  # requests a second by engine, from a run of the user's own
    measured_ratio: float | None = None  # SGLang's over vLLM's that may be counted on; None: as measured
    measured_words: str = "your own measurement"
    source: str = ""
    extra_rules: tuple[Path, ...] = ()  # the user's own folders with models, GPUs, providers

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the first prompt of a session."""
        return sum(block.tokens for block in self.prompt)

    @property
    def turn_tokens(self) -> int:
        """Tokens by which a history grows with each turn: what the turn brought, and its answer."""
        late = sum(block.tokens for block in self.prompt if not block.grows and block.varies >= Volatility.TURN)
        return late + self.output

    @property
    def longest_tokens(self) -> int:
        """Tokens of the longest request of a session with its answer."""
        grown = (self.turns - 1) * self.turn_tokens if any(block.grows for block in self.prompt) else 0
        return self.prompt_tokens + grown + self.output


_SCALARS: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "model": str,
    "gpu": str,
    "tensor_parallel": int,
    "replicas": int,
    "router": str,
    "kv_dtype": str,
    "weights": str,
    "host_cache_gb": (int, float),
    "current": str,
    "provider": str,
    "prefix_caching": bool,
    "arrivals": (int, float),
    "concurrency": int,
    "requests": int,
    "seed": int,
    "order": str,
    "turns": int,
    "branches": int,
    "structured": (int, float),
    "forced": (int, float),
    "ttft_ms": (int, float),
    "observed_hit_rate": (int, float),
    "output": int,
}
_KINDS: dict[Any, str] = {str: "a word", int: "a whole number", bool: "true or false", (int, float): "a number"}
_HUGE = 1e15  # beyond any count, rate or size that a description may have
_CHOICES = {"current": CURRENT, "router": ROUTERS, "order": ("fixed", "mixed")}


def load_workloads(path: Path, *, described: bool = True) -> list[Workload]:
    """The pools that a YAML file describes. Without `described` the prompts come from real traffic: `prompt` and `output` may then be missing.

    Raises UserError naming the field that is missing, unknown or impossible.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    data = load_yaml(text, str(path))
    _refuse_repeated_keys(text, path)
    if not isinstance(data, dict):
        raise UserError(f"{path}: a mapping of fields is expected")
    shared = {key: value for key, value in data.items() if key != "pools"}
    pools = data.get("pools", [{}])
    if not isinstance(pools, list) or not pools or not all(isinstance(pool, dict) for pool in pools):
        raise UserError(f"{path}: pools: a list of mappings is expected")
    if "name" in shared and len(pools) > 1:
        shared.pop("name")  # the fleet's; each pool has a name or number of its own
    if not described:
        shared = {"prompt": [{"block": "other", "tokens": 1}], "output": 1, **shared}
    found = [_workload(path, {**shared, **pool}, index if len(pools) > 1 else 0) for index, pool in enumerate(pools, 1)]
    names = [workload.name for workload in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"{path}: pools: two are called {_short(twice)}")
    return found


def _refuse_repeated_keys(text: bytes, path: Path) -> None:
    """YAML lets the last of two equal keys win; nobody can know which one is meant."""
    import yaml

    try:
        stack, seen = [yaml.compose(text, yaml.SafeLoader)], set()
    except yaml.YAMLError as error:  # the two loaders differ in what they refuse
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    while stack:
        node = stack.pop()
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise UserError(f"{path}: {twice}: stands twice in the mapping of line {node.start_mark.line + 1}")
            stack += [value for _, value in node.value]
        else:
            stack += node.value


def _workload(path: Path, data: Mapping[str, Any], number: int) -> Workload:
    known = {item.name for item in fields(Workload)} - {"source", "extra_rules", "measured_ratio", "measured_words"}
    for key in data:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            raise UserError(f"{path}: {key}: no such field" + (f"; did you mean {close[0]}?" if close else ""))
    values: dict[str, Any] = {
        "source": str(path),
        "name": path.stem + (f" #{number}" if number else ""),
    }
    for key, kind in _SCALARS.items():
        if key in data:
            values[key] = _scalar(path, key, data[key], kind)
    for key in ("prompt", "output"):
        if key not in data:
            raise UserError(f"{path}: {key}: missing")
    blocks = data["prompt"]
    if not isinstance(blocks, list) or not blocks:
        raise UserError(f"{path}: prompt: a list of blocks in rendered order is expected")
    values["prompt"] = tuple(_block(path, index, row) for index, row in enumerate(blocks))
    values["decode_penalty"] = _by_engine(path, "decode_penalty", data.get("decode_penalty", {}))
    values["measured"] = _by_engine(path, "measured", data.get("measured", {}))
    if "engines" in data:
        engines = data["engines"]
        if not isinstance(engines, list) or not engines or any(one not in ("sglang", "vllm") for one in engines):
            raise UserError(f"{path}: engines: a list of sglang and vllm is expected")
        values["engines"] = tuple(sorted(set(engines)))
    workload = Workload(**values)
    check(workload)
    return workload


def _scalar(path: Path, key: str, value: Any, kind: type | tuple[type, ...]) -> Any:
    if (isinstance(value, bool) and kind is not bool) or not isinstance(value, kind):
        raise UserError(f"{path}: {key}: {_short(value)}: {_KINDS[kind]} is expected")
    if isinstance(value, (int, float)) and not (math.isfinite(value) and abs(value) < _HUGE):
        raise UserError(f"{path}: {key}: {value!r}: a finite number is expected")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise UserError(f"{path}: {key}: {value!r}: one of {', '.join(_CHOICES[key])} is expected")
    return value


def _short(value: Any) -> str:
    """A value as an error shows it: what YAML's anchors can build is too long to read."""
    text = type(value).__name__ if isinstance(value, dict | list) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _by_engine(path: Path, key: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict) or set(value) - {"sglang", "vllm"}:
        raise UserError(f"{path}: {key}: a mapping from sglang or vllm to a number is expected")
    for engine, number in value.items():
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < _HUGE:
            raise UserError(f"{path}: {key}.{engine}: {_short(number)}: a number above 0 is expected")
    return {engine: float(number) for engine, number in value.items()}


def _block(path: Path, index: int, row: Any) -> BlockSpec:
    where = f"{path}: prompt[{index}]"
    if not isinstance(row, dict) or "block" not in row:
        raise UserError(f"{where}: a mapping with `block` is expected")
    if unknown := set(row) - {"block", "tokens", "varies", "name", "distinct", "skew"}:
        raise UserError(f"{where}: {', '.join(sorted(map(str, unknown)))}: no such field")
    kinds = [kind.value for kind in BlockKind]
    if row["block"] not in kinds:
        raise UserError(f"{where}: block {_short(row['block'])}: one of {', '.join(kinds)} is expected")
    grows = row["block"] == BlockKind.HISTORY.value
    tokens = row.get("tokens", 0 if grows else None)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not (0 if grows else 1) <= tokens <= MAX_TOKENS:
        raise UserError(f"{where}: tokens {_short(tokens)}: a whole number from 1 to {MAX_TOKENS:,} is expected")
    word = row.get("varies", "session" if grows else "static")
    try:
        varies = Volatility[str(word).upper()]
    except KeyError:
        raise UserError(
            f"{where}: varies {_short(word)}: one of {', '.join(v.word for v in Volatility)} is expected"
        ) from None
    distinct, skew = row.get("distinct", 0), row.get("skew", 0.0)
    if isinstance(distinct, bool) or not isinstance(distinct, int) or not 0 <= distinct <= MAX_VALUES:
        raise UserError(f"{where}: distinct {_short(distinct)}: a whole number up to {MAX_VALUES:,} is expected")
    if isinstance(skew, bool) or not isinstance(skew, (int, float)) or not 0 <= skew <= 5:
        raise UserError(f"{where}: skew {_short(skew)}: a number between 0 and 5 is expected")
    return BlockSpec(row["block"], tokens, varies, str(row.get("name", "")), distinct, float(skew))


def check(workload: Workload) -> None:
    """Raise UserError for a description that contradicts itself or describes nothing that can happen."""
    where = f"{workload.source or workload.name}: "
    for name in ("tensor_parallel", "replicas", "concurrency", "turns", "branches", "output"):
        if getattr(workload, name) < 1:
            raise UserError(f"{where}{name}: at least 1 is expected, not {getattr(workload, name)}")
    if workload.arrivals is not None and workload.arrivals <= 0:
        raise UserError(f"{where}arrivals: a rate above 0 requests a second is expected, not {workload.arrivals:g}")
    if workload.requests < 0 or workload.requests > MAX_REQUESTS:
        raise UserError(f"{where}requests: at most {MAX_REQUESTS:,} are simulated, not {workload.requests:,}")
    for name in ("host_cache_gb", "ttft_ms"):
        if getattr(workload, name) < 0:
            raise UserError(f"{where}{name}: 0 or more is expected, not {getattr(workload, name):g}")
    for name in ("structured", "forced"):
        if not 0 <= getattr(workload, name) <= 1:
            raise UserError(f"{where}{name}: a share between 0 and 1 is expected")
    if workload.observed_hit_rate is not None and not 0 <= workload.observed_hit_rate <= 1:
        raise UserError(f"{where}observed_hit_rate: a share between 0 and 1 is expected")
    if any(not factor >= 1 for factor in workload.decode_penalty.values()):
        raise UserError(
            f"{where}decode_penalty: a factor of at least 1 is expected: disabled graphs never speed decoding up"
        )
    if workload.current == "provider" and not workload.provider:
        raise UserError(f"{where}provider: name the provider that serves today")
    if workload.current != "provider" and not (workload.model and workload.gpu):
        raise UserError(f"{where}model and gpu: both are needed to compare engines (or current: provider)")
    if workload.current in {"vllm", "sglang"} and workload.current not in workload.engines:
        raise UserError(
            f"{where}current: {workload.current} runs today, but is not among the engines that support the model"
        )
    if sum(block.grows for block in workload.prompt) > 1:
        raise UserError(f"{where}prompt: one history block at most is expected")
    if not workload.prompt_tokens:
        raise UserError(f"{where}prompt: a block with tokens is expected beside the history")
    if any(block.grows for block in workload.prompt) and workload.turns == 1 and workload.branches == 1:
        raise UserError(f"{where}turns: a history block needs sessions of more than one turn")


_HISTORY_RANK = Volatility.SESSION + 0.5  # a history lives as long as its session, and grows with each turn


def best_order(blocks: Sequence[BlockSpec]) -> tuple[BlockSpec, ...]:
    """The blocks in the order that caches best: longest-lived first, equal ones as they stand, a history behind what lives as long as its session."""
    return tuple(sorted(blocks, key=lambda block: _HISTORY_RANK if block.grows else float(block.varies)))


def sessions_under_way(workload: Workload) -> int:
    """Sessions whose turns alternate: as many as keep `concurrency` requests under way without two turns of one session at a time."""
    return max(1, workload.concurrency // workload.branches) if workload.turns > 1 else 1


def default_requests(workload: Workload) -> int:
    """Enough requests that each value is seen about four times and each session that is under way has some turns, within what simulates in seconds."""
    values = max((block.distinct for block in workload.prompt), default=0)
    return min(800, max(320, 4 * values, 4 * sessions_under_way(workload) * workload.branches))


def warm_up(workload: Workload, requests: int) -> int:
    """Requests that are not counted in hit rates: a fifth, and at least one for each session that was under way, but never more than half."""
    return min(
        requests // 2, max(requests // 5, sessions_under_way(workload) * workload.branches if workload.turns > 1 else 0)
    )


def synthesise(workload: Workload, *, order: Sequence[BlockSpec] | None = None) -> list[Request]:
    """The requests that the description stands for, in order of arrival; equal seeds give equal traffic, whatever the order of the blocks.

    `order` puts the blocks of each prompt in another order; the values stay the same, so that two orders differ in nothing else.
    """
    return _Generator(workload, order).requests()


def tokens_of(seed: int, key: tuple[object, ...], count: int) -> bytes:
    """`count` packed token ids that follow from the key alone."""
    return random.Random(f"{seed}:{key}").randbytes(count * TOKEN_BYTES)


@dataclass(slots=True)
class _Session:
    number: int
    values: dict[str, int]
    turn: int = 0
    history: bytes = b""


class _Generator:
    def __init__(self, workload: Workload, order: Sequence[BlockSpec] | None) -> None:
        self.workload = workload
        self.random = random.Random(workload.seed)
        self.shuffle = random.Random(workload.seed + 1)  # apart, so that other draws do not depend on the order
        self.fixed = tuple(order) if order is not None else workload.prompt
        self.mixed = workload.order == "mixed" and order is None
        self.slots = {id(block): f"{index}" for index, block in enumerate(workload.prompt)}
        self.cache: dict[tuple[object, ...], bytes] = {}
        self.sums: dict[str, list[float]] = {}  # of the weights of skewed values, from the first on

    def requests(self) -> list[Request]:
        """See synthesise."""
        workload = self.workload
        total = workload.requests or default_requests(workload)
        live: list[_Session] = []
        started = 0
        clock = 0.0
        made: list[Request] = []
        width = sessions_under_way(workload)
        while len(made) < total:
            while len(live) < width:
                live.append(self._begin(started, aged=started < width))
                started += 1
            # One of the older half goes next: a user reads an answer before asking again.
            session = live.pop(self.random.randrange((len(live) + 1) // 2))
            clock = self._turn(session, made, clock, total)
            session.turn += 1
            if session.turn < workload.turns:
                live.append(session)
        return made

    def _begin(self, number: int, *, aged: bool) -> _Session:
        """A session; those that are under way when the traffic begins stand at all ages, with a history of their own."""
        session = _Session(number, self._session_values())
        if aged and self.workload.turns > 1:
            session.turn = number % self.workload.turns
            session.history = tokens_of(
                self.workload.seed, ("earlier", number), session.turn * self.workload.turn_tokens
            )
        return session

    def _session_values(self) -> dict[str, int]:
        """One draw of each block's value that a session keeps: tenant, document, user."""
        return {self.slots[id(block)]: self._draw(block) for block in self.workload.prompt}

    def _draw(self, block: BlockSpec) -> int:
        if not block.distinct:
            return self.random.getrandbits(62)
        if not block.skew:
            return int(self.random.random() * block.distinct)
        slot = self.slots[id(block)]
        if slot not in self.sums:
            self.sums[slot] = list(accumulate(1.0 / (rank + 1) ** block.skew for rank in range(block.distinct)))
        return self.random.choices(range(block.distinct), cum_weights=self.sums[slot])[0]

    def _turn(self, session: _Session, made: list[Request], clock: float, total: int) -> float:
        workload = self.workload
        if workload.arrivals:
            clock += self.random.expovariate(workload.arrivals / workload.branches)
        grown = b""
        turn_values = {slot: self.random.getrandbits(62) for slot in self.slots.values()}
        for branch in range(workload.branches):
            if len(made) >= total:
                break
            values = {slot: self.random.getrandbits(62) for slot in self.slots.values()}
            blocks = list(self.fixed)
            if self.mixed:
                head = blocks[:-1]
                self.shuffle.shuffle(head)
                blocks = [*head, blocks[-1]]
            pieces = [self._text(block, session, turn_values, values) for block in blocks]
            output = tokens_of(workload.seed, ("output", len(made)), workload.output)
            ends = list(accumulate(len(piece) // TOKEN_BYTES for piece in pieces))
            lasting = [
                end
                for end, block in zip(ends, blocks, strict=True)
                if block.grows or block.varies <= Volatility.SESSION
            ]
            made.append(
                Request(
                    id=len(made),
                    prompt=b"".join(pieces),
                    output=output,
                    timestamp=clock,
                    session=f"s{session.number}",
                    stops=tuple(dict.fromkeys(ends)),
                    breakpoints=tuple(dict.fromkeys(end for end in lasting if end))[-MAX_MARKS:],
                )
            )
            if branch == 0:
                late = [
                    piece
                    for block, piece in zip(blocks, pieces, strict=True)
                    if not block.grows and block.varies >= Volatility.TURN
                ]
                grown = b"".join(late) + output
        session.history += grown
        return clock

    def _text(
        self, block: BlockSpec, session: _Session, turn_values: Mapping[str, int], values: Mapping[str, int]
    ) -> bytes:
        if block.grows:
            return session.history
        slot = self.slots[id(block)]
        if block.varies <= Volatility.DAY:
            key: tuple[object, ...] = (slot,)
        elif block.varies < Volatility.SESSION:
            key = (slot, session.values[slot])
        elif block.varies is Volatility.SESSION:
            key = (slot, "session", session.number)
        elif block.varies is Volatility.TURN:
            key = (slot, "turn", turn_values[slot])
        else:
            key = (slot, "request", self._drawn(block, values[slot]))
        if block.varies >= Volatility.SESSION and not block.distinct:
            return tokens_of(self.workload.seed, key, block.tokens)  # never seen again: not worth keeping
        if key not in self.cache:
            self.cache[key] = tokens_of(self.workload.seed, key, block.tokens)
        return self.cache[key]

    @staticmethod
    def _drawn(block: BlockSpec, value: int) -> int:
        """A request's own value, among `distinct` ones where the block says so (retrieved passages that come again)."""
        return value % block.distinct if block.distinct else value


def with_changes(workload: Workload, **changes: Any) -> Workload:
    """The same workload with some inputs replaced, checked again."""
    changed = replace(workload, **changes)
    check(changed)
    return changed
