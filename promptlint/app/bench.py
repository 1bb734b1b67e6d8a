"""The pipeline behind `promptlint bench`: a workload or traffic and some servers to a result document."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from promptlint import __version__
from promptlint.advisor.workload import BlockSpec, Workload, load_workloads, synthesise
from promptlint.benching.client import Limits, Server
from promptlint.benching.measure import Measurement, Settings, Target, Traffic, measure
from promptlint.benching.outcome import About, document, request_rows
from promptlint.benching.plan import Load
from promptlint.benching.slo import parse_rates, parse_slo
from promptlint.caches.request import Request
from promptlint.errors import UserError
from promptlint.ir import Volatility
from promptlint.traffic.record import OUTPUT, Record

__all__ = ["VARIANTS", "Asked", "launch", "run"]

VARIANTS = ("as-is", "one-branch", "shuffled")
_SCHEMA = {
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["yes", "no", "unsure"]},
        "confidence": {"type": "integer", "minimum": 0, "maximum": 100},
        "reason": {"type": "string", "maxLength": 200},
    },
    "required": ["verdict", "confidence", "reason"],
    "additionalProperties": False,
}
"""What is asked for with --structured and no --json-schema: a small verdict, bounded so that every answer ends."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user gave; names and meanings are those of the options of `promptlint bench`."""

    target: tuple[str, ...] = ()
    model: str | None = None
    workload: Path | None = None
    pool: str | None = None
    traffic: tuple[str, ...] = ()
    form: str = "auto"
    block_size: int | None = None
    send: str = "auto"
    tokenizer: str | None = None
    render: str | None = None
    tools: Path | None = None
    variant: tuple[str, ...] = ()
    requests: int | None = None
    longest: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    rate: float | None = None
    arrivals: str | None = None
    speed: float = 1.0
    rate_sweep: str | None = None
    slo: str | None = None
    load: float | None = None
    gpus: int | None = None
    structured: str = "off"
    json_schema: Path | None = None
    repetitions: int = 5
    level: float = 0.95
    warm_up: int = 8
    timeout: float = 60.0
    connect_timeout: float = 10.0
    seed: int | None = None
    vocabulary: str = "1000:30000"
    fixed_length: bool = True
    flush: bool = True
    allow_different: bool = False
    api_key_env: str | None = None
    gpu: str | None = None
    extra_rules: tuple[Path, ...] = ()


def run(asked: Asked, progress: Callable[[str], None]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result document, and a row for each answer. A KeyboardInterrupt ends the measurement, not the result. Raises UserError for arguments that do not fit."""
    targets = _targets(asked.target)
    workload = _workload(asked)
    traffic, left_out = _traffic(asked, workload)
    settings = _settings(asked, workload)
    about = About(
        __version__,
        dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        _described(asked, workload, traffic) | {"left_out": left_out},
        parse_slo(asked.slo) if asked.slo else (),
        asked.load if asked.load is not None else workload.arrivals if workload and asked.rate_sweep else None,
        asked.gpus or (workload.tensor_parallel if workload else 1),
    )
    found = Measurement()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(measure(targets, traffic, settings, found, model=asked.model, progress=progress))
    return document(found, targets, settings, about), request_rows(found)


def _targets(given: Sequence[str]) -> list[Target]:
    """`URL` or `NAME=URL`. Two targets may be one server: that shows what the comparison calls different by chance."""
    if not given:
        raise UserError(
            "name at least one running server: --target http://localhost:8000 --target http://localhost:30000"
        )
    found = []
    for place, text in enumerate(given):
        name, sign, url = text.partition("=")
        if not sign or "/" in name or ":" in name:
            name, url = chr(ord("A") + place % 26), text
        if not name:
            raise UserError(f"--target {text}: NAME=URL or URL is expected")
        found.append(Target(name, Server.parse(url)))
    names = [target.name for target in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--target: two are called {twice}")
    return found


def _workload(asked: Asked) -> Workload | None:
    """The described workload; the lesson's tree when neither a workload nor traffic is given."""
    if asked.pool is not None and asked.workload is None:
        raise UserError(f"--pool {asked.pool}: which --workload holds it?")
    if asked.workload is not None:
        if asked.traffic:
            raise UserError("--workload and --traffic: give one of them")
        pools = load_workloads(asked.workload)
        if asked.pool is not None:
            chosen = next((pool for pool in pools if pool.name == asked.pool), None)
            if chosen is None:
                raise UserError(
                    f"{asked.workload}: no pool is called {asked.pool}; there are {', '.join(one.name for one in pools)}"
                )
            return chosen
        if len(pools) > 1:
            raise UserError(
                f"{asked.workload}: holds several pools, choose one with --pool: {', '.join(one.name for one in pools)}"
            )
        return pools[0]
    return None if asked.traffic else _tree()


def _tree() -> Workload:
    """The tree of examples/radix_lab: a system prompt and tools that all share, 8 branches, and a question of its own in each of 128 requests."""
    return Workload(
        "tree of 8 branches",
        (
            BlockSpec("system", 1000),
            BlockSpec("tools", 300),
            BlockSpec("context", 120, Volatility.DOCUMENT, distinct=8),
            BlockSpec("question", 40, Volatility.REQUEST),
        ),
        output=32,
        concurrency=16,
        requests=128,
    )


def _traffic(asked: Asked, workload: Workload | None) -> tuple[list[Traffic], int]:
    """The requests of each variant, and how many of the first were left out because they are too long."""
    whole = _variants(asked, workload)
    if asked.longest is None:
        return whole, 0
    short = [_short(variant, asked.longest) for variant in whole]
    if any(not variant.requests for variant in short):
        raise UserError(f"--longest {asked.longest}: every request is longer")
    return short, len(whole[0].requests) - len(short[0].requests)


def _short(variant: Traffic, longest: int) -> Traffic:
    kept = [place for place, one in enumerate(variant.requests) if one.prompt_tokens + one.token_limit <= longest]
    texts = tuple(variant.texts[place] for place in kept) if variant.texts else ()
    return replace(variant, requests=tuple(variant.requests[place] for place in kept), texts=texts)


def _variants(asked: Asked, workload: Workload | None) -> list[Traffic]:
    variants = tuple(dict.fromkeys(asked.variant)) or ("as-is",)
    if workload is not None:
        as_words = asked.send == "text"
        return [Traffic(name, tuple(_made(asked, _varied(workload, name))), as_words=as_words) for name in variants]
    found = _recorded(asked)
    made = []
    for name in variants:
        if name != "as-is":
            raise UserError(
                f"--variant {name} needs the blocks of a workload description (--workload); a log does not say which of its tokens are one block"
            )
        made.append(found)
    return made


def _made(asked: Asked, workload: Workload) -> Iterator[Request]:
    for request in synthesise(replace(workload, requests=asked.requests or workload.requests)):
        yield replace(request, max_new_tokens=asked.output_tokens or workload.output)


def _varied(workload: Workload, variant: str) -> Workload:
    """One branch: what differs between documents, users and sessions is one and the same. Shuffled: the blocks ahead of the last stand in another order each time."""
    if variant == "shuffled":
        return replace(workload, order="mixed")
    if variant == "one-branch":
        return replace(
            workload,
            prompt=tuple(
                replace(block, varies=Volatility.STATIC, distinct=0, skew=0.0)
                if not block.grows and Volatility.DAY < block.varies < Volatility.TURN
                else block
                for block in workload.prompt
            ),
        )
    return workload


@dataclass(frozen=True, slots=True)
class _Source:
    """Records in time order as the source of requests."""

    records: Sequence[Record]
    problems: list[Any]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


def _recorded(asked: Asked) -> Traffic:
    """Recorded or anonymised traffic: token ids and page hashes as random tokens with the same sharing, text as it is (or, with --send tokens or in disguise, likewise)."""
    from itertools import islice

    from promptlint.app.requests import Renderer, Requests
    from promptlint.app.traffic import open_traffic
    from promptlint.traffic.read import load

    opened = open_traffic(asked.traffic, form=asked.form, tools=asked.tools, block_size=asked.block_size)
    source = _Source(load(opened), opened.problems)
    reader = Requests(
        source,
        block_size=asked.block_size or 16,
        render=Renderer(asked.render, asked.tokenizer or "", marks=False),
    )
    requests, texts = [], []
    left = iter(source.records)
    for number, request in enumerate(islice(reader, asked.requests)):
        assert isinstance(request, Request)
        # Requests come in the order of their records, some of which made none.
        record = next(one for one in left if one.place == reader.place(number))
        length = asked.output_tokens or request.output_tokens or record.usage.get(OUTPUT) or _DEFAULT_OUTPUT
        requests.append(replace(request, max_new_tokens=length, kept=None))
        texts.append(_text(record) if asked.send != "tokens" else None)
    problems = [*source.problems, *reader.problems]
    first = f"; the first problem: {problems[0]}" if problems else ""
    if not requests:
        raise UserError(f"no request could be read from {' '.join(asked.traffic)}{first}")
    if asked.send == "text" and None in texts:
        raise UserError(
            "--send text: the traffic holds requests without text that a chat server takes, or with text in disguise (record with --keep-text); --send tokens replays all of it"
        )
    return Traffic(
        "as-is",
        tuple(requests),
        tuple(texts) if any(text is not None for text in texts) else (),
        note=f"{len(problems):,} records of the traffic could not be used as they are{first}" if problems else "",
    )


_DEFAULT_OUTPUT = 64  # tokens of an answer where neither the traffic nor the user says


def _text(record: Record) -> dict[str, Any] | None:
    """The fields of an OpenAI body that say what was sent; None where the record has no text, or has it in another provider's shape.

    None also for text in disguise: a model's tokenizer cuts such words into about twice as many tokens as those that they stand for.
    """
    if record.extra and record.disguised:
        return None
    if record.prompt is not None:
        return {"prompt": record.prompt}
    if (
        record.messages is None
        or record.shape != "chat"
        or not all(isinstance(one, Mapping) for one in record.messages)
    ):
        return None
    messages = list(record.messages)
    if record.system is not None:
        if not isinstance(record.system, str):
            return None
        messages = [{"role": "system", "content": record.system}, *messages]
    return {"messages": messages, **({"tools": record.tools} if record.tools else {})}


def _settings(asked: Asked, workload: Workload | None) -> Settings:
    low, _, high = asked.vocabulary.partition(":")
    if not (low.isdigit() and high.isdigit() and int(low) + 100 <= int(high) < 1 << 31):
        raise UserError(f"--vocabulary {asked.vocabulary!r}: LOW:HIGH is expected, with at least 100 ids between them")
    if asked.json_schema is not None and asked.structured == "off":
        raise UserError("--json-schema: say --structured on, or both")
    return Settings(
        repetitions=asked.repetitions,
        level=asked.level,
        limits=Limits(asked.connect_timeout, asked.timeout, 10 * asked.timeout),
        fixed_length=asked.fixed_length,
        schema=_schema(asked.json_schema),
        structured={"off": (False,), "on": (True,), "both": (False, True)}[asked.structured],
        loads=_loads(asked, workload),
        warm_up=asked.warm_up,
        may_flush=asked.flush,
        may_differ=asked.allow_different,
        low=int(low),
        high=int(high),
        seed=asked.seed if asked.seed is not None else secrets.randbelow(1 << 31),
        fresh=asked.seed is None,
        key=_key(asked.api_key_env) if asked.api_key_env else "",
    )


def _key(name: str) -> str:
    """The key in a variable; it travels in a header, which takes one line of ASCII."""
    key = os.environ.get(name, "").strip()
    if not key:
        raise UserError(f"--api-key-env {name}: the environment has no such variable, or it is empty")
    if not (key.isascii() and key.isprintable()):
        raise UserError(f"--api-key-env {name}: holds characters that no key has")
    return key


def _schema(path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return _SCHEMA
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path}: a JSON schema is an object")
    return value


def _loads(asked: Asked, workload: Workload | None) -> tuple[Load, ...]:
    """One load, or one for each swept rate."""
    ways = [
        name
        for name, given in (
            ("--concurrency", asked.concurrency),
            ("--rate", asked.rate),
            ("--rate-sweep", asked.rate_sweep),
        )
        if given is not None
    ]
    if asked.arrivals == "recorded":
        ways.append("--arrivals recorded")
    if len(ways) > 1:
        raise UserError(f"{' and '.join(ways)}: give one of them")
    if asked.arrivals is not None and asked.concurrency is not None:
        raise UserError(
            f"--concurrency and --arrivals {asked.arrivals}: give one of them; a closed loop waits for answers, not for times"
        )
    if asked.speed != 1 and asked.arrivals != "recorded":
        raise UserError("--speed: say --arrivals recorded; a rate is set with --rate")
    if asked.load is not None and not asked.slo:
        raise UserError(
            "--load needs --slo and --rate-sweep: how many GPUs it takes follows from the rate at which promises are kept"
        )
    if asked.slo and not (asked.rate_sweep or asked.rate):
        raise UserError("--slo needs arrivals at a rate: give --rate-sweep, e.g. --rate-sweep 1,2,4,8")
    arrivals = asked.arrivals or "poisson"
    if asked.rate_sweep is not None:
        return tuple(Load(rate=rate, arrivals=arrivals) for rate in parse_rates(asked.rate_sweep))
    if asked.rate is not None:
        return (Load(rate=asked.rate, arrivals=arrivals),)
    if asked.arrivals == "recorded":
        return (Load(arrivals="recorded", speed=asked.speed),)
    if asked.arrivals is not None:
        raise UserError(f"--arrivals {asked.arrivals}: at which --rate?")
    return (Load(concurrency=asked.concurrency or (workload.concurrency if workload else 16)),)


def _described(asked: Asked, workload: Workload | None, traffic: Sequence[Traffic]) -> dict[str, Any]:
    requests = traffic[0].requests
    sent = "text" if any(traffic[0].texts) or traffic[0].as_words else "token ids"
    return {
        "name": workload.name if workload else ", ".join(asked.traffic),
        "source": workload.source if workload else ", ".join(asked.traffic),
        "model": workload.model if workload else "",
        "gpu": workload.gpu if workload else "",
        "requests": len(requests),
        "prompt_tokens": sum(request.prompt_tokens for request in requests),
        "output_tokens": sum(request.token_limit for request in requests),
        "sent_as": sent,
        "variants": [one.variant for one in traffic],
    }


def launch(asked: Asked) -> str:
    """Commands that start both engines for this workload or model."""
    from promptlint.benching.launch import Launch, commands
    from promptlint.catalog.engines import load_engines
    from promptlint.catalog.hardware import resolve_gpu

    workload = _workload(asked) if asked.workload is not None else None
    model = asked.model or (workload.model if workload else "")
    if not model:
        raise UserError("--print-launch: name the model with --model, or a --workload that names one")
    gpu = asked.gpu or (workload.gpu if workload else "")
    return commands(
        Launch(
            model,
            resolve_gpu(gpu, asked.extra_rules) if gpu else None,
            asked.gpus or (workload.tensor_parallel if workload else 1),
            kv_dtype="" if workload is None or workload.kv_dtype == "bf16" else workload.kv_dtype,
            weights=workload.weights if workload else "",
        ),
        [load_engines(asked.extra_rules)["sglang"]],
    )
