"""JSON schemas (2020-12) of the outputs that are put together by hand: traffic, simulation, diagnosis, advice, and the indexes.

Every object lists exactly its keys, so that a field that is added, renamed or lost is seen by the test that validates real output. What is open by
nature (a reason's value, a provider's fact, assumptions) has no type. `promptlint.app.schemas` lists all that is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from promptlint.advisor.verdict import VERDICTS
from promptlint.catalog.rules import CATEGORIES
from promptlint.finding import APPLICABILITY, PERSONAS, SEVERITIES
from promptlint.ir import Confidence, Volatility
from promptlint.report.schema import check_schema, object_schema
from promptlint.report.simulate import SCHEMA as SIMULATE
from promptlint.report.simulate import SimulateReport

__all__ = [
    "advise_schema",
    "bench_request_schema",
    "bench_schema",
    "diagnose_schema",
    "finding_schema",
    "perturb_schema",
    "providers_schema",
    "rules_schema",
    "simulate_request_schema",
    "simulate_schema",
    "stats_schema",
]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_ANY: dict[str, Any] = {}
_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_COUNT_OR_NULL = {"type": ["integer", "null"], "minimum": 0}
_FROM_ONE = {"type": "integer", "minimum": 1}
_NUMBER = {"type": "number"}
_NUMBER_OR_NULL = {"type": ["number", "null"]}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_SHARE_OR_NULL = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_OPEN = {"type": "object"}


def _word(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words)}


def _list(item: Mapping[str, Any], size: int | None = None) -> dict[str, Any]:
    fixed = {} if size is None else {"minItems": size, "maxItems": size}
    return {"type": "array", "items": dict(item), **fixed}


def _map(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": dict(value)}


def _exactly(properties: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An object with all of `properties`, perhaps some of `optional`, and nothing else."""
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }


def _published(
    command: str, schema: str, properties: Mapping[str, Any], optional: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {"$schema": _DRAFT, "title": command, **_exactly({"schema": {"const": schema}, **properties}, optional)}


_UNREADABLE = _exactly({"file": _TEXT, "line": _COUNT, "field": _TEXT, "reason": _TEXT})


def finding_schema() -> dict[str, Any]:
    """A line of `check --output-format json-lines`: a finding as in the whole report."""
    finding = check_schema()["properties"]["findings"]["items"]
    return {"$schema": _DRAFT, "title": "promptlint check --output-format json-lines: one line", **finding}


def simulate_schema() -> dict[str, Any]:
    """`simulate --output-format json`."""
    body = object_schema(SimulateReport)
    body["properties"] = {"schema": {"const": SIMULATE}, **body["properties"]}
    body["required"] = ["schema", *body["required"]]
    properties = body["properties"]
    properties["bounds"] = _map(_SHARE_OR_NULL)
    properties["bottleneck"] = {"enum": ["content", "capacity", "policy", "schedule", None]}
    properties["observed"] = {
        **_exactly(
            {
                "requests": _COUNT,
                "prompt_tokens": _COUNT,
                "cached_tokens": _COUNT,
                "hit_rate": _SHARE,
                "expected_hit_rate": _SHARE,
            }
        ),
        "type": ["object", "null"],
    }
    properties["problems"] = _list(_UNREADABLE)
    return {"$schema": _DRAFT, "title": "promptlint simulate --output-format json", **body}


def simulate_request_schema() -> dict[str, Any]:
    """A line of `simulate --per-request FILE`. `id` is spelled as in the log, or is the line number."""
    line = _exactly({"id": {"type": ["string", "integer"]}, "prompt_tokens": _COUNT, "cached_tokens": _COUNT})
    return {"$schema": _DRAFT, "title": "promptlint simulate --per-request: one line", **line}


def diagnose_schema() -> dict[str, Any]:
    """`diagnose --output-format json`."""
    divergence = _exactly(
        {
            "request": _FROM_ONE,
            "id": _TEXT_OR_NULL,
            "relative": _FROM_ONE,
            "path": _TEXT,
            "char": _COUNT,
            "token": _COUNT,
            "rule": _TEXT,
            "cause": _TEXT,
            "was": _TEXT,
            "now": _TEXT,
            "tokens_lost": _COUNT,
            "call_site": _TEXT_OR_NULL,
            "observed_cached_tokens": _COUNT_OR_NULL,
        },
        {"hole": _TEXT},
    )
    cause = _exactly({"rule": _TEXT, "requests": _COUNT, "tokens_lost": _COUNT, "hit_rate_if_fixed": _SHARE})
    miss = _exactly(
        {
            "request": _FROM_ONE,
            "id": _TEXT_OR_NULL,
            "relative": _FROM_ONE,
            "reason": _TEXT,
            "cause": _TEXT,
            "expected_cached_tokens": _COUNT,
            "observed_cached_tokens": _COUNT_OR_NULL,
            "tokens_lost": _COUNT,
        }
    )
    summary = _exactly(
        {
            "tokenizer": _TEXT,
            "prompt_tokens": _COUNT,
            "cached_tokens": _COUNT,
            "hit_rate": _SHARE,
            "observed_hit_rate": _SHARE_OR_NULL,
            "starts": _COUNT,
            "unreadable": _list(_UNREADABLE),
        }
    )
    return _published(
        "promptlint diagnose --output-format json",
        "promptlint.diagnose/1",
        {
            "requests": _COUNT,
            "divergences": _list(divergence),
            "causes": _list(cause),
            "likely_causes": _list(_LIKELY),
            "misses": _list(miss),
            "summary": summary,
        },
    )


_LIKELY = _exactly({"cause": _TEXT, "why": _TEXT, "confirm_with": _TEXT})


def advise_schema() -> dict[str, Any]:
    """`advise --output-format json`. Milliseconds, tokens, dollars per 1,000 requests; a number that is not finite is null."""
    verdict = _exactly(
        {
            "pool": _TEXT,
            "model": _TEXT,
            "current": _TEXT,
            "verdict": _word(*VERDICTS),
            "rule": _TEXT,
            "because": _TEXT,
            "reasons": _list(_exactly({"fact": _TEXT, "value": _ANY, "unit": _TEXT, "source": _TEXT})),
            "would_change_if": _list(_TEXT),
            "caveats": _list(_TEXT),
            "measurement": _TEXT,
        }
    )
    effect = _exactly(
        {
            "hit_rate": _SHARE,
            "hit_rate_gain": _NUMBER,
            "requests_per_second": _NUMBER_OR_NULL,
            "gain": _NUMBER_OR_NULL,
            "gpus": _COUNT_OR_NULL,
        }
    )
    lever = _exactly(
        {
            "pool": _TEXT,
            "lever": _word("prompts", "routing", "capacity", "settings", "engine"),
            "change": _TEXT,
            "alone": effect,
            "in_best_order": effect,
        }
    )
    order = _exactly(
        {
            "call_site": _TEXT,
            "from": _list(_TEXT),
            "to": _list(_TEXT),
            "hit_rate_now": _SHARE,
            "hit_rate_then": _SHARE,
            "tokens_saved": _NUMBER_OR_NULL,
            "money_saved": _NUMBER_OR_NULL,
            "meaning_risk": _TEXT,
            "moved": _list(_TEXT),
            "diff": _TEXT,
            "basis": _TEXT,
        }
    )
    parts = {"type": "object", "properties": dict.fromkeys(("prefill", "decode", "queue"), _NUMBER_OR_NULL)}
    engine = _exactly(
        {
            "pool": _TEXT,
            "engine": _TEXT,
            "schedule": _TEXT,
            "hit_rate": _SHARE_OR_NULL,
            "prefill_tokens": _COUNT_OR_NULL,
            "requests_per_second": _NUMBER_OR_NULL,
            "requests_per_second_range": _list(_NUMBER_OR_NULL, 2),
            "ttft_p50_ms": _NUMBER_OR_NULL,
            "ttft_p99_ms": _NUMBER_OR_NULL,
            "share": {**parts, "additionalProperties": False},
            "seconds": {**parts, "additionalProperties": False},
        }
    )
    structured = _exactly(
        {
            "call_site": _TEXT,
            "schema": _TEXT,
            "forced_share": _list(_SHARE, 2),
            "realised": {"const": False},
            "basis": _TEXT,
        }
    )
    return _published(
        "promptlint advise --output-format json",
        "promptlint.advise/1",
        {
            "version": _TEXT,
            "verdicts": _list(verdict),
            "levers": _list(lever),
            "reordering": _list(order),
            "engines": _list(engine),
            "structured": _list(structured),
            "likely_causes": _list(_LIKELY),
            "assumptions": _OPEN,
        },
    )


def stats_schema() -> dict[str, Any]:
    """`traffic stats --output-format json`. Lengths in tokens; counters of a server's metrics stand beside `observed`'s own keys only where there are any."""
    lengths = {
        **_exactly(
            {"total": _COUNT, "mean": _NUMBER, **dict.fromkeys(("p50", "p90", "p99", "max"), _COUNT)},
        ),
        "type": ["object", "null"],
    }
    observed = _exactly(
        {
            "records": _COUNT,
            "prompt_tokens": _COUNT,
            "cached_tokens": _COUNT,
            "written_tokens": _COUNT,
            "hit_rate": _SHARE_OR_NULL,
            "ttft_seconds": {"type": ["number", "array", "null"], "items": _NUMBER},
        },
        dict.fromkeys(
            (
                "requests",
                "preemptions",
                "evicted_tokens",
                "stored_blocks",
                "removed_blocks",
                "stored_tokens",
                "cleared",
            ),
            _COUNT,
        ),
    )
    volatility = _word(*(level.word for level in Volatility))
    hole = _exactly(
        {
            "expression": _TEXT,
            "guessed": volatility,
            "measured": volatility,
            "requests": _COUNT,
            "distinct": _COUNT,
            "entropy": _NUMBER,
            "characters": _NUMBER,
        }
    )
    code = _exactly(
        {
            "call_sites": _list(_exactly({"id": _TEXT, "requests": _COUNT, "holes": _list(hole)})),
            "unmatched": _COUNT,
            "mismatches": _list(_exactly({"place": _TEXT, "call_site": _TEXT, "missing": _TEXT})),
        }
    )
    return _published(
        "promptlint traffic stats --output-format json",
        "promptlint.traffic.stats/1",
        {
            "records": _COUNT,
            "requests": _COUNT,
            "formats": _map(_COUNT),
            "models": _map(_COUNT),
            "sessions": _COUNT,
            "turns": lengths,
            "roles": _map(_COUNT),
            "with_tools": _COUNT,
            "prompt_tokens": lengths,
            "output_tokens": lengths,
            "seconds": {"type": ["number", "null"], "minimum": 0},
            "requests_per_second": {"type": ["number", "null"], "minimum": 0},
            "observed": observed,
            "settings": _list(_OPEN),
            "skipped_lines": _COUNT,
            "unreadable": _list(_UNREADABLE),
        },
        {"code": code},
    )


def providers_schema() -> dict[str, Any]:
    """`providers --output-format json`. A fact's value has the type that its page gives it."""
    source = _exactly({"url": _TEXT, "date": _TEXT, "note": _TEXT})
    fact = _exactly(
        {
            "value": _ANY,
            "models": _OPEN,
            "confidence": _word(*(level.word for level in Confidence)),
            "sources": _list(source),
            "note": _TEXT,
            "conflict": _TEXT,
        }
    )
    page = _exactly(
        {
            "name": _TEXT,
            "title": _TEXT,
            "words": _list(_TEXT),
            "models": _list(_TEXT),
            "verified": {"type": "string", "format": "date"},
            "age_days": {"type": "integer"},
            "stale": _FLAG,
            "facts": _map(fact),
        }
    )
    return _published("promptlint providers --output-format json", "promptlint.providers/1", {"providers": _list(page)})


def rules_schema() -> dict[str, Any]:
    """`rules --output-format json`."""
    rule = _exactly(
        {
            "name": _TEXT,
            "category": _word(*CATEGORIES),
            "summary": _TEXT,
            "severity": _word(*SEVERITIES),
            "persona": _word(*PERSONAS),
            "since": _TEXT,
            "fix": _word(*APPLICABILITY, ""),
            "help": _TEXT,
            "aliases": _list(_TEXT),
        }
    )
    return _published("promptlint rules --output-format json", "promptlint.rules/1", {"rules": _list(rule)})


_MEASURED = (
    "wall_s",
    "requests_per_second",
    "output_tokens_per_second",
    "hit_rate",
    "late_p99_ms",
    "client_lag_p99_ms",
    *(f"{figure}_{spread}_ms" for figure in ("ttft", "e2e", "itl", "tpot") for spread in ("mean", "p50", "p95", "p99")),
)
"""Figures of a run of `bench`; one that was not measured is left out."""


def bench_schema() -> dict[str, Any]:
    """`bench --output-format json` and `--save`. Milliseconds where a name ends in `_ms`, seconds in `_s`; without a spread the ends of an interval are null."""
    facts = _exactly(
        dict.fromkeys(("engine", "model", "flush"), _TEXT)
        | dict.fromkeys(
            ("version", "dtype", "quantization", "kv_dtype", "sampling", "schedule", "parallel"), _TEXT_OR_NULL
        )
        | dict.fromkeys(("context", "unit", "capacity_tokens"), _COUNT_OR_NULL)
        | {key: {"type": ["boolean", "null"]} for key in ("prefix_caching", "eager", "reports_cached")}
        | {"metrics": _FLAG}
    )
    target = _exactly(
        {
            "name": _TEXT,
            "url": _TEXT,
            "engine": _word("vllm", "sglang", "unknown"),
            "facts": {**facts, "type": ["object", "null"]},
            "requests_per_second": _NUMBER_OR_NULL,
            "basis": _TEXT,
        }
    )
    repetition = _exactly(
        {
            "repetition": _FROM_ONE,
            **dict.fromkeys(
                ("requests", "answered", "prompt_tokens", "output_tokens", "contradictions", "resent"), _COUNT
            ),
            "cached_tokens": _COUNT_OR_NULL,
            "failed": _map(_COUNT),
            **dict.fromkeys(("first_failure", "first_contradiction", "given_up"), _TEXT),
            "flushed": _FLAG,
            "server": _map(_NUMBER),
        },
        dict.fromkeys(_MEASURED, _NUMBER),
    )
    interval = _exactly({"mean": _NUMBER, "low": _NUMBER_OR_NULL, "high": _NUMBER_OR_NULL, "repetitions": _FROM_ONE})
    figures = {"type": "object", "properties": dict.fromkeys(_MEASURED, interval), "additionalProperties": False}
    expected = _exactly(
        {
            "model": _TEXT,
            "hit_rate": _SHARE,
            "observed_hit_rate": _NUMBER,
            "requests": _FROM_ONE,
            "requests_that_differ": _COUNT_OR_NULL,
            "exact": _FLAG,
        }
    )
    measured = _exactly(
        {
            "target": _TEXT,
            "figures": figures,
            "expected": {**expected, "type": ["object", "null"]},
            "repetitions": _list(repetition),
        }
    )
    compared = _exactly(
        {
            "figure": _word(*_MEASURED),
            "difference": _NUMBER,
            "p": _SHARE,
            "different": _FLAG,
            "pairs": _FROM_ONE,
            **dict.fromkeys(("low", "high", "ratio", "ratio_low", "ratio_high"), _NUMBER_OR_NULL),
        }
    )
    cell = _exactly(
        {
            "variant": _TEXT,
            "load": _TEXT,
            "closed": _FLAG,
            "rate": _NUMBER_OR_NULL,
            "concurrency": _COUNT_OR_NULL,
            "structured": _FLAG,
            "shared_tokens": _SHARE,
            "targets": _list(measured),
            "comparisons": _list(_exactly({"first": _TEXT, "second": _TEXT, "figures": _list(compared)})),
        }
    )
    kept = _exactly(
        {
            **dict.fromkeys(("target", "variant", "slo", "why"), _TEXT),
            **dict.fromkeys(("structured", "at_least"), _FLAG),
            **dict.fromkeys(("kept", "broken", "load"), _NUMBER_OR_NULL),
            "gpus": _COUNT_OR_NULL,
        }
    )
    return _published(
        "promptlint bench --output-format json",
        "promptlint.bench/1",
        {
            "version": _TEXT,
            "started": _TEXT,
            "status": _word("complete", "unfair", "interrupted", "refused", "unusable"),
            "workload": _exactly(
                dict.fromkeys(("name", "source", "model", "gpu"), _TEXT)
                | dict.fromkeys(("requests", "left_out", "prompt_tokens", "output_tokens"), _COUNT)
                | {"sent_as": _word("text", "token ids"), "variants": _list(_TEXT)}
            ),
            "settings": _exactly(
                dict.fromkeys(("repetitions", "temperature", "warm_up_requests", "seed"), _COUNT)
                | {
                    "level": _SHARE,
                    "order": _TEXT,
                    "fixed_length": _FLAG,
                    "vocabulary": _list(_COUNT, 2),
                    "timeout_s": _NUMBER,
                }
            ),
            "targets": _list(target),
            "cells": _list(cell),
            "goodput": _list(kept),
            "unusable": _map(_TEXT),
            "lost": _map(_TEXT),
            "refused": _list(_TEXT),
            "warnings": _list(_TEXT),
        },
    )


def bench_request_schema() -> dict[str, Any]:
    """A line of `bench --per-request FILE`: one answer."""
    line = _exactly(
        dict.fromkeys(("target", "variant", "load"), _TEXT)
        | {"structured": _FLAG, "repetition": _FROM_ONE, "request": _FROM_ONE, "sent_s": _NUMBER}
        | dict.fromkeys(("ttft_ms", "e2e_ms"), _NUMBER_OR_NULL)
        | {
            key: {"type": ["integer", "null"]}
            for key in ("prompt_tokens", "cached_tokens", "expected_cached_tokens", "output_tokens")
        }
        | {"error": _TEXT_OR_NULL, "contradictions": _list(_TEXT)}
    )
    return {"$schema": _DRAFT, "title": "promptlint bench --per-request: one line", **line}


def perturb_schema() -> dict[str, Any]:
    """`perturb --output-format json`. `agrees` and `found_by` are null where no code was compared."""
    place = _exactly(
        {
            "factor": _TEXT,
            "call_site": _TEXT,
            "pointer": _TEXT,
            "char": _COUNT,
            "calls": _COUNT,
            "of": _COUNT,
            "was": _TEXT,
            "now": _TEXT,
            "shift": _TEXT,
            "line": _COUNT,
            "end": _COUNT,
            "hole": _TEXT,
            "guessed": _TEXT,
            "agrees": {"type": ["boolean", "null"]},
            "found_by": {"type": ["array", "null"], "items": _TEXT},
        }
    )
    return _published(
        "promptlint perturb --output-format json",
        "promptlint.perturb/1",
        {
            "command": _list(_TEXT),
            "calls": _COUNT,
            "call_sites": _COUNT,
            "status": {"type": "integer"},
            "runs": _COUNT,
            "factors": _list(_TEXT),
            "varying": _list(place),
            "noise": _list(place),
            "without_effect": _list(_TEXT),
            "uneven": _map(_TEXT),
            "failed": _map(_TEXT),
        },
    )
