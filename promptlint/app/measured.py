"""What `advise --measured FILE` reads: the result of `promptlint bench`, or two numbers written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptlint.errors import UserError

__all__ = ["Measured", "MeasuredEngine", "load_measured"]

_SCHEMA = "promptlint.bench/1"
_ENGINES = ("sglang", "vllm")
_PAIRS = 2  # of repetitions, below which a run has no spread


@dataclass(frozen=True, slots=True)
class MeasuredEngine:
    """One engine of a run: where a figure was not measured it is None. Times in milliseconds, tokens of one repetition."""

    requests_per_second: float
    hit_rate: float | None
    prefill_tokens: int | None
    ttft_p50_ms: float | None
    ttft_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """Requests a second by engine. `ratio` is SGLang's over vLLM's as it may be counted on: the end of its interval that is nearest to 1, and 1 where the interval holds
    1, because then the run does not show a difference; None counts the plain ratio. `words` say what was measured, `engines` hold the figures of a run.
    """

    requests_per_second: Mapping[str, float]
    ratio: float | None = None
    words: str = ""
    engines: Mapping[str, MeasuredEngine] | None = None
    workload: str = ""


def load_measured(path: Path) -> Measured:
    """A measurement: the result of `promptlint bench --save`, or written by hand: {"sglang": 12.1, "vllm": 11.0}, requests a second.

    Raises UserError for a file that holds neither, and for a run that does not compare the two engines' throughput fairly.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f'{path}: requests a second by engine are expected, e.g. {{"sglang": 12.1, "vllm": 11.0}}')
    if "schema" in data:
        if data["schema"] != _SCHEMA:
            raise UserError(f"{path}: {data['schema']} is not {_SCHEMA}, which promptlint bench --save writes")
        try:
            return _of_run(path, data)
        except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise UserError(f"{path}: not a result that promptlint bench has written: {error!r}") from error
    found = {}
    for engine in _ENGINES:
        value = data.get(engine)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise UserError(f"{path}: {engine}: requests a second above 0 are expected, not {value!r}")
        found[engine] = float(value)
    return Measured(found)


def _of_run(path: Path, data: Mapping[str, Any]) -> Measured:
    """The throughput of the first closed loop, or what kept the promises of a sweep."""
    if data["status"] in {"refused", "unusable"}:
        raise UserError(f"{path}: nothing was measured: {'; '.join([*data['refused'], *data['unusable'].values()])}")
    if data["refused"]:
        raise UserError(f"{path}: not a comparison of engines: {'; '.join(data['refused'])}")
    engines = {target["name"]: target["engine"] for target in data["targets"]}
    missing = [engine for engine in _ENGINES if engine not in engines.values()]
    if missing:
        raise UserError(
            f"{path}: no target of the run is known to be {missing[0]}; a target named so counts: --target {missing[0]}=URL"
        )
    for cell in data["cells"]:
        # The first variant is the workload that was asked about; the others show what becomes of it.
        if cell["closed"] and not cell["structured"] and cell["variant"] == data["cells"][0]["variant"]:
            if (found := _of_cell(cell, engines, data)) is not None:
                return found
            break
    if data["goodput"]:
        return _of_goodput(path, data, engines)
    raise UserError(
        f"{path}: the run has no throughput of both engines from {_PAIRS} whole repetitions: at a fixed rate both answer as much, "
        "and answers by a schema are another work; measure with --concurrency, or with --rate-sweep and --slo, without --structured on"
    )


def _of_cell(cell: Mapping[str, Any], engines: Mapping[str, str], data: Mapping[str, Any]) -> Measured | None:
    """The pair of a closed loop; of several targets of one engine the fastest counts, as one would run it."""
    by_name = {row["target"]: row for row in cell["targets"]}
    best: tuple[float, Mapping[str, Any], Mapping[str, Any]] | None = None
    for pair in cell["comparisons"]:
        figure = next((row for row in pair["figures"] if row["figure"] == "requests_per_second"), None)
        if (
            figure is None
            or figure["pairs"] < _PAIRS
            or {engines[pair["first"]], engines[pair["second"]]} != set(_ENGINES)
        ):
            continue
        rate = by_name[pair["second"]]["figures"]["requests_per_second"]["mean"]
        if best is None or rate > best[0]:
            best = (rate, pair, figure)
    if best is None:
        return None
    _, pair, figure = best
    low, high = figure["ratio_low"], figure["ratio_high"]
    plain = _above_0(figure["ratio"])
    if engines[pair["second"]] == "vllm":  # the run has it the other way round
        plain, low, high = 1 / plain, 1 / _above_0(high), (1 / low if low > 0 else float("inf"))
    counted = 1.0 if low <= 1.0 <= high else low if low > 1.0 else high
    rows = {engines[name]: _engine(by_name[name]) for name in (pair["first"], pair["second"])}
    name = data["workload"]["name"]
    words = (
        f"your own run ({_worked(name, cell['variant'])}, {cell['load']}): {plain:.2f}, {100 * data['settings']['level']:g} % interval {low:.2f} to {high:.2f} from {figure['pairs']} pairs; "
        "the end nearest to 1 counts, 1 where the interval holds it"
    )
    return Measured({engine: row.requests_per_second for engine, row in rows.items()}, counted, words, rows, name)


def _worked(workload: str, variant: str) -> str:
    return workload if variant == "as-is" else f"{workload}, {variant}"


def _above_0(value: Any) -> float:
    """A figure that was measured. Raises ValueError for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{value!r} is no figure above 0")
    return float(value)


def _engine(row: Mapping[str, Any], rate: float | None = None) -> MeasuredEngine:
    figures = row["figures"]
    whole = [
        one for one in row["repetitions"] if one["answered"] == one["requests"] and one["cached_tokens"] is not None
    ]
    prefill = round(sum(one["prompt_tokens"] - one["cached_tokens"] for one in whole) / len(whole)) if whole else None

    def mean(name: str) -> float | None:
        return float(figures[name]["mean"]) if name in figures else None

    return MeasuredEngine(
        _above_0(figures["requests_per_second"]["mean"] if rate is None else rate),
        mean("hit_rate"),
        prefill,
        mean("ttft_p50_ms"),
        mean("ttft_p99_ms"),
    )


def _of_goodput(path: Path, data: Mapping[str, Any], engines: Mapping[str, str]) -> Measured:
    """Goodput has no interval: it is one of the swept rates. So only a step of the sweep between the two counts as a difference."""
    kept: dict[str, tuple[float, str]] = {}
    variant = data["cells"][0]["variant"]
    for row in data["goodput"]:
        engine = engines[row["target"]]
        if (
            row["kept"] is not None
            and not row["structured"]
            and row["variant"] == variant
            and engine in _ENGINES
            and row["kept"] > kept.get(engine, (0.0, ""))[0]
        ):
            if row["at_least"]:
                raise UserError(
                    f"{path}: the sweep ended at {row['kept']:g} requests a second, before {row['target']} broke a bound: sweep higher rates"
                )
            kept[engine] = (row["kept"], row["target"])
    if missing := [engine for engine in _ENGINES if engine not in kept]:
        raise UserError(
            f"{path}: {missing[0]} kept the bounds at no swept rate: sweep lower rates, or allow more in --slo"
        )
    rows = {}
    for engine, (rate, target) in kept.items():
        cells = [
            one for one in data["cells"] if (one["variant"], one["rate"], one["structured"]) == (variant, rate, False)
        ]
        rows[engine] = _engine({one["target"]: one for one in cells[0]["targets"]}[target], rate)
    slo, name = data["goodput"][0]["slo"], data["workload"]["name"]
    return Measured(
        {engine: rate for engine, (rate, _) in kept.items()},
        None,
        f"your own run ({_worked(name, variant)}): the highest swept rates that keep {slo}",
        rows,
        name,
    )
