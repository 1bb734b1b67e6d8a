"""The result of `promptlint bench` as text, a pure function of the result document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from promptlint.report.escape import printable

__all__ = ["to_text"]

_SHOWN = (
    ("requests_per_second", "requests a second", 1.0, 2),
    ("output_tokens_per_second", "output tokens a second", 1.0, 1),
    ("wall_s", "wall time, s", 1.0, 2),
    ("ttft_p50_ms", "time to first token, ms   p50", 1.0, 1),
    ("ttft_p95_ms", "                          p95", 1.0, 1),
    ("ttft_p99_ms", "                          p99", 1.0, 1),
    ("itl_p50_ms", "between tokens, ms        p50", 1.0, 2),
    ("itl_p95_ms", "                          p95", 1.0, 2),
    ("itl_p99_ms", "                          p99", 1.0, 2),
    ("hit_rate", "hit rate observed, %", 100.0, 1),
)
_NAMES = {
    "requests_per_second": "requests a second",
    "ttft_p50_ms": "time to first token p50, ms",
    "ttft_p99_ms": "time to first token p99, ms",
    "itl_p50_ms": "between tokens p50, ms",
    "itl_p99_ms": "between tokens p99, ms",
    "e2e_p50_ms": "whole answer p50, ms",
    "hit_rate": "hit rate, points",
}
_DIGITS = {"requests_per_second": 2, "itl_p50_ms": 2, "itl_p99_ms": 2}
_LABEL = 30
_WIDTH = 26


def to_text(data: Mapping[str, Any]) -> str:
    """The document for a reader."""
    lines = [*_head(data), *_objections(data)]
    for cell in data["cells"]:
        lines += ["", *_cell(cell, data)]
    lines += _goodput(data["goodput"])
    lines += ["", *_end(data)]
    return "\n".join(map(printable, lines)) + "\n"


def _head(data: Mapping[str, Any]) -> list[str]:
    work = data["workload"]
    lines = [
        f"workload {work['name']}: {work['requests']:,} requests, {work['prompt_tokens']:,} prompt tokens, at most {work['output_tokens']:,} output tokens, sent as {work['sent_as']}",
    ]
    if work["left_out"]:
        lines.append(f"  {work['left_out']:,} longer requests left out")
    for target in data["targets"]:
        lines.append(f"  {target['name']}  {target['url']}  {_facts(target)}")
    return lines


def _facts(target: Mapping[str, Any]) -> str:
    facts = target["facts"]
    if facts is None:
        return "not reached"
    engine = {"vllm": "vLLM", "sglang": "SGLang"}.get(facts["engine"], "engine not known")
    parts = [f"{engine} {facts['version'] or '(version not reported)'}", facts["model"]]
    parts += [str(facts[name]) for name in ("dtype", "quantization") if facts[name] and facts[name] != "none"]
    if facts["context"]:
        parts.append(f"window {facts['context']:,}")
    if facts["capacity_tokens"]:
        parts.append(f"KV pool {facts['capacity_tokens']:,} tokens in units of {facts['unit'] or '?'}")
    parts.append("cache emptied before each run" if facts["flush"] else "cache cannot be emptied")
    return ", ".join(parts)


def _objections(data: Mapping[str, Any]) -> list[str]:
    lines = [f"UNUSABLE {name}: {why}" for name, why in data["unusable"].items()]
    lines += [f"NOT FAIR: {words}" for words in data["refused"]]
    lines += [f"LOST {name}: {why}" for name, why in data["lost"].items()]
    lines += [f"warning: {words}" for words in data["warnings"]]
    return ["", *lines] if lines else []


def _cell(cell: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    answers = ", structured output" if cell["structured"] else ""
    level = f"{100 * data['settings']['level']:g} %"
    lines = [
        f"{cell['variant']}, {cell['load']}{answers}: {100 * cell['shared_tokens']:.1f} % of the prompt tokens come again"
    ]
    rows = cell["targets"]
    if not rows:
        return [*lines, "  nothing was measured"]
    if not any(row["figures"] for row in rows):
        return [*lines, "  no repetition in which every request was answered"]
    counts = ", ".join(f"{row['target']} {sum(1 for one in row['repetitions'] if _whole(one))}" for row in rows)
    lines.append(f"  {f'mean of whole repetitions ({counts})':<{_LABEL}}  {level} intervals")
    lines.append(f"  {'':<{_LABEL}}" + "".join(f"{row['target']:>{_WIDTH}}" for row in rows))
    for name, words, factor, digits in _SHOWN:
        if any(name in row["figures"] for row in rows):
            lines.append(
                f"  {words:<{_LABEL}}"
                + "".join(f"{_value(row['figures'].get(name), factor, digits):>{_WIDTH}}" for row in rows)
            )
    if any(row["expected"] for row in rows):
        shown = [f"{100 * row['expected']['hit_rate']:.1f}" if row["expected"] else "-" for row in rows]
        lines.append(f"  {'hit rate expected, %':<{_LABEL}}" + "".join(f"{one:>{_WIDTH}}" for one in shown))
    lines += [f"  {row['target']}: {_agreement(row['expected'])}" for row in rows if row["expected"]]
    for one in cell["comparisons"]:
        lines += _comparison(one, level)
    return lines


def _whole(repetition: Mapping[str, Any]) -> bool:
    return (
        repetition["answered"] == repetition["requests"]
        and not repetition["contradictions"]
        and not repetition["given_up"]
    )


def _value(one: Mapping[str, Any] | None, factor: float, digits: int) -> str:
    if one is None:
        return "-"
    mean = f"{factor * one['mean']:,.{digits}f}"
    if one["low"] is None or one["low"] == one["high"]:
        return mean
    return f"{mean} [{factor * one['low']:,.{digits}f}, {factor * one['high']:,.{digits}f}]"


def _agreement(expected: Mapping[str, Any]) -> str:
    differ = expected["requests_that_differ"]
    if differ is None:
        return f"sent as text, which the server's own template and tokenizer count: only the rates compare ({expected['model']})"
    if not expected["exact"]:
        same = expected["requests"] - differ
        return f"cached tokens of {same:,} of {expected['requests']:,} requests as expected; they overlap, so only the sum has to be ({expected['model']})"
    words = "all as expected" if not differ else f"{differ:,} differ from what was expected"
    return f"cached tokens of {expected['requests']:,} requests, one by one: {words} ({expected['model']})"


def _comparison(one: Mapping[str, Any], level: str) -> list[str]:
    if not one["figures"]:
        return ["", f"  {one['second']} against {one['first']}: no pair of whole repetitions to compare"]
    pairs = one["figures"][0]["pairs"]
    lines = [
        "",
        f"  {one['second']} against {one['first']}, {pairs} {'pair' if pairs == 1 else 'pairs'} of repetitions, {level} interval of the difference:",
    ]
    for row in one["figures"]:
        factor = 100.0 if row["figure"] == "hit_rate" else 1.0
        digits = _DIGITS.get(row["figure"], 1)
        spread = (
            "(one repetition shows no spread)"
            if row["low"] is None
            else f"[{factor * row['low']:+,.{digits}f}, {factor * row['high']:+,.{digits}f}]"
        )
        ratio = f"x{row['ratio']:.3f}" if row["ratio"] is not None else ""
        called = "different" if row["different"] else "not shown to differ"
        lines.append(
            f"    {_NAMES[row['figure']]:<28}{factor * row['difference']:>+12,.{digits}f}  {spread:<26}{ratio:>9}  {called}"
        )
    return lines


def _goodput(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        if not lines:
            lines += ["", f"goodput under {row['slo']} (milliseconds)"]
        name = f"  {row['target']}, {row['variant']}" + (", structured output" if row["structured"] else "")
        if row["kept"] is None:
            at = (
                f"none of the swept rates is kept; at {row['broken']:g} a second "
                if row["broken"] is not None
                else "not known: "
            )
            lines.append(f"{name}: {at}{row['why']}")
            continue
        more = (
            "at least, the sweep ended before a bound broke"
            if row["at_least"]
            else f"at {row['broken']:g} {row['why']}"
        )
        lines.append(f"{name}: {row['kept']:g} requests a second ({more})")
        if row["gpus"] is not None:
            most = "at most " if row["at_least"] else ""
            lines.append(f"    {row['load']:g} requests a second need {most}{row['gpus']:,} GPUs")
    return lines


def _end(data: Mapping[str, Any]) -> list[str]:
    words = {
        "complete": "measured as planned",
        "interrupted": "stopped by you: this is what was measured until then",
        "unfair": "measured, but not a fair comparison: see the warnings",
        "refused": "not measured: --allow-different measures in spite of that",
        "unusable": "not measured: a target is not usable",
    }[data["status"]]
    settings = data["settings"]
    chance = 100 * (1 - settings["level"])
    count, turns = settings["repetitions"], ", A B A B" if len(data["targets"]) > 1 else ""
    how = f"{count} repetition{'s' if count > 1 else ''}{turns}; temperature 0; seed {settings['seed']}"
    if not any(one["figures"] for cell in data["cells"] for one in cell["comparisons"]):
        return [words, how]
    return [
        words,
        how,
        f"`different`: of equal servers at most {chance:g} % of such comparisons call any figure so; with this many figures an interval beside 0 is not enough",
    ]
