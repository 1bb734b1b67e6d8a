"""From the options of `promptlint simulate` to a set-up, its traffic and a result."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from promptlint.app.atomic import writing
from promptlint.app.prefix_tree import Watched
from promptlint.app.requests import Renderer, Requests, Source
from promptlint.app.simulate import ENGINES, Setup, simulate
from promptlint.caches.shares import Branch
from promptlint.errors import UserError
from promptlint.report.simulate import SimulateReport
from promptlint.traffic.read import Problem, Traffic
from promptlint.traffic.readers.base import Options
from promptlint.traffic.record import Record

__all__ = [
    "Found",
    "explain",
    "observed_of",
    "options_of",
    "problem_rows",
    "run",
    "setup_of",
    "stale",
    "totals_of",
    "unused",
    "write_requests",
]


@dataclass(frozen=True, slots=True)
class Found:
    """A report, the input that could not be used, and where it was asked for the radix tree of the prompts."""

    report: SimulateReport
    problems: list[Problem]
    tree: Branch | None = None


def explain(given: Mapping[str, Any]) -> str:
    """The arithmetic of the capacity that --model and --gpu give. Raises UserError without them."""
    from promptlint.serving.capacity import explain_capacity

    return explain_capacity(_derived(given))


_TREE = ("page_size", "eviction", "tree", "chunk")  # of sglang alone
_SERVER = ("window", "batch_tokens", "max_running")  # of a scheduler
_PROVIDER = ("ttl", "delay", "no_overflow", "extra_rules")
_GPU = ("tensor_parallel", "dp_attention", "kv_dtype", "weights")  # of a derived capacity


def unused(engine: str, named: Mapping[str, Any]) -> list[str]:
    """Options that were given but mean nothing beside the others, each with the reason.

    Args:
        engine: the engine that runs.
        named: the options that stood on the command line.
    """
    provider = engine not in ENGINES
    reasons: dict[str, str] = {}
    if engine != "sglang":
        reasons |= dict.fromkeys(_TREE, f"{engine} has no such setting")
    if not provider:
        reasons |= dict.fromkeys(_PROVIDER, "only providers have it")
    else:
        reasons |= dict.fromkeys(("capacity_tokens", "gpu"), "providers publish no capacity")
    if "gpu" not in named:
        reasons |= dict.fromkeys(_GPU if provider else ("model", *_GPU), "only with --gpu")
    if "schedule" not in named:
        reasons |= dict.fromkeys(_SERVER, "only with --schedule")
    elif "pace" in named:
        reasons["window"] = "arrivals set the pace"
    if named.get("replicas", 1) == named.get("data_parallel", 1) == 1:
        reasons["router"] = "only with --replicas"
    return [f"--{name.replace('_', '-')} has no effect: {why}" for name, why in reasons.items() if name in named]


def stale(engine: str, given: Mapping[str, Any], today: dt.date) -> list[str]:
    """A warning when the terms of the provider that was replayed have not been checked for long."""
    from promptlint.catalog.providers import page_for
    from promptlint.report import providers as report

    page = None if engine in ENGINES else page_for(engine, given["model"], given["extra_rules"])
    return [] if page is None else list(report.stale([page], today))


def run(
    paths: tuple[str, ...], given: Mapping[str, Any], progress: Callable[[int], None] | None, *, tree: bool = False
) -> Found:
    """Replay the traffic under the given options; with `tree` also collect which prompts share what. Raises UserError when nothing in it is a request."""
    given = {**given, "paths": paths}
    traffic = _traffic(paths, given)
    source: Source = traffic
    if given["engine"] is None:
        source = peeked = _Peeked(traffic)
        given["engine"] = peeked.engine
    if given["curve"] is None:  # a page to look at has one, where there is one
        given["curve"] = tree and given["engine"] in ENGINES
    setup = setup_of(given["engine"], given)
    if given["per_request"] is not None:  # better now than after the run
        write_requests(given["per_request"], [], [])
    render = Renderer(given["render"], given["tokenizer"], marks=setup.is_provider)
    requests = _requests(source, setup, given, render)
    watched = Watched(requests) if tree else None
    try:
        result = simulate(setup, requests if watched is None else watched, progress=progress)
    except UserError as error:
        problems = requests.all_problems()
        if problems and str(error) == "no request to replay":
            raise UserError(f"no request to replay; the first of {len(problems)} problems: {problems[0]}") from error
        raise
    problems = requests.all_problems()
    if given["per_request"] is not None:
        write_requests(given["per_request"], result.per_request, requests.ids)
    for name, reason in result.refused:
        place = requests.place(name)
        problems.append(Problem(place.file, place.line, reason, "tokens"))
    rows = problem_rows(problems)
    totals = totals_of(requests, result.per_request)
    observed = observed_of(totals, provider=setup.is_provider, requests=result.report.requests)
    shares = None if watched is None else watched.tree(result, render, redact=given["redact"])
    return Found(replace(result.report, problems=rows, observed=observed), problems, shares)


def problem_rows(problems: Iterable[Problem]) -> tuple[dict[str, Any], ...]:
    """Problems as the report has them."""
    return tuple({"file": one.file, "line": one.line, "field": one.field, "reason": one.reason} for one in problems)


_NONE = (0,) * 7


def totals_of(requests: Requests, expected: Iterable[tuple[Any, int, int]]) -> tuple[int, ...]:
    """Sums over the requests whose usage fields give both counts: how many, prompt and cached tokens reported, prompt and cached tokens expected; then how
    many requests report what was written, and its tokens.
    """
    reported = requests.observed
    if not reported:
        return _NONE
    rows = [(reported[name], prompt, cached) for name, prompt, cached in expected if name in reported]
    return (
        len(rows),
        sum(row[0][0] for row in rows),
        sum(row[0][1] for row in rows),
        sum(row[1] for row in rows),
        sum(row[2] for row in rows),
        len(requests.written),
        sum(requests.written.values()),
    )


def observed_of(totals: Sequence[int], *, provider: bool, requests: int) -> dict[str, Any] | None:
    """What the log's usage fields say, beside what was expected of the same requests; None where no request reports both counts."""
    count, prompt_tokens, cached_tokens, simulated, found, writes, written = totals
    if not count:
        return None
    observed = {
        "requests": count,
        "prompt_tokens": prompt_tokens,
        "cached_tokens": cached_tokens,
        "hit_rate": cached_tokens / prompt_tokens if prompt_tokens else 0.0,
        "expected_hit_rate": found / simulated if simulated else 0.0,
    }
    if provider and writes == requests:
        # Comparable only where every request of the replay reports it.
        observed["written_tokens"] = written
    return observed


def _derived(given: Mapping[str, Any]) -> Any:
    from promptlint.catalog.hardware import resolve_gpu
    from promptlint.catalog.models import resolve_model
    from promptlint.serving.capacity import capacity

    if not given["model"] or not given["gpu"]:
        raise UserError("a capacity is derived from --model and --gpu together")
    return capacity(
        resolve_model(given["model"]),
        resolve_gpu(given["gpu"]),
        tensor_parallel=given["tensor_parallel"],
        data_parallel=given["data_parallel"],
        dp_attention=given["dp_attention"],
        kv_dtype=given["kv_dtype"],
        weights=given["weights"],
    )


def setup_of(engine: str, given: Mapping[str, Any]) -> Setup:
    """What the options say is to be simulated. Raises UserError."""
    tokens, replicas = given["capacity_tokens"], given["replicas"]
    service: dict[str, Any] = {}
    if given["gpu"]:
        derived = _derived(given)
        tokens = derived.tokens if tokens is None else tokens
        replicas = derived.replicas if replicas is None else replicas
        service = {"service_time": _service_time(derived)}
    block = given["block_size"]
    return Setup(
        engine=engine,
        capacity=None if tokens in {None, "unlimited"} else tokens,
        block_size=16 if block is None else block,
        model=given["model"],
        replicas=given["data_parallel"] if replicas is None else replicas,
        bounds=not given["no_bounds"],
        overflow=not given["no_overflow"],
        extra_rules=given["extra_rules"],
        **{
            name: given[name]
            for name in (
                "page_size", "eviction", "tree", "chunk", "schedule", "window", "pace", "batch_tokens", "max_running",
                "router", "denominator", "warm_up", "curve", "sample", "ttl", "delay",
            )
        },
        **service,
    )  # fmt: skip


def _service_time(derived: Any) -> Callable[[Any], float]:
    """The cost model's seconds for a step of a scheduler."""
    from promptlint.serving.cost import Cost

    cost = Cost(derived.model, derived.gpu, derived.tensor_parallel, derived.kv_dtype, derived.weights_dtype)

    def seconds(step: Any) -> float:
        return cost.step(
            new=step.prefill_tokens,
            cached=step.context_tokens,
            prefills=step.prefills,
            decodes=step.decodes,
            context=step.decode_context,
        )

    return seconds


def _traffic(paths: tuple[str, ...], given: Mapping[str, Any]) -> Traffic:
    return Traffic(list(paths), format=given["format_name"], strict=given["strict"], options=options_of(given))


def options_of(given: Mapping[str, Any]) -> Options:
    """What the command line says about the input. Raises UserError."""
    tools = None
    if given["tools"] is not None:
        try:
            tools = json.loads(Path(given["tools"]).read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{given['tools']}: not a JSON list of tools: {error}") from error
        if not isinstance(tools, list):
            raise UserError(f"{given['tools']}: not a JSON list of tools")
    # For vllm --block-size is the engine's; hashed blocks then keep the size of their format.
    size = None if given["engine"] == "vllm" else given["block_size"]
    return Options(tools=tools, block_size=size)


class _Peeked:
    """Traffic whose first record was looked at: block-lru for block hashes, else sglang.

    The first iteration puts that record back in front of the others; each further one reads again, as standard input cannot be.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        rest = iter(traffic)
        first = next(rest, None)
        self._begun: Iterator[Record] | None = rest if first is None else chain((first,), rest)
        self.engine = "block-lru" if first is not None and first.hash_ids is not None else "sglang"

    @property
    def problems(self) -> list[Problem]:
        return self._traffic.problems

    def __iter__(self) -> Iterator[Record]:
        begun, self._begun = self._begun, None
        return iter(self._traffic) if begun is None else begun


def _requests(source: Source, setup: Setup, given: Mapping[str, Any], render: Renderer) -> Requests:
    return Requests(
        source,
        as_blocks=setup.engine == "block-lru",
        block_size=setup.block_size,
        render=render,
        need_times=setup.pace is not None,
        keep=setup.curve and any(_is_stream(path) for path in given["paths"]),
    )


def _is_stream(path: str) -> bool:
    """Whether a path can be read only once: standard input, or a pipe."""
    return path == "-" or Path(path).is_fifo()


def write_requests(path: Path, rows: Iterable[tuple[Any, int, int]], ids: Sequence[Any] | None) -> None:
    """A JSON line for each request; `ids` gives the id of a number, None where the rows have it. Raises UserError."""
    try:
        with writing(path) as file:
            for name, prompt, cached in rows:
                row = {"id": name if ids is None else ids[name], "prompt_tokens": prompt, "cached_tokens": cached}
                file.write(json.dumps(row).encode() + b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
