"""`advise --measured`: what of a run may be counted on."""

import contextlib
import copy
import json

import pytest

from promptlint.app.measured import load_measured
from promptlint.cli import cli
from promptlint.errors import UserError

WORKLOAD = """
model: Llama-3.1-8B
gpu: H100
current: vllm
concurrency: 16
requests: 80
output: 60
prompt:
  - {block: system, tokens: 900}
  - {block: question, tokens: 60, varies: request}
"""


def figure(ratio, low, high, pairs=5):
    return {"figure": "requests_per_second", "ratio": ratio, "ratio_low": low, "ratio_high": high, "pairs": pairs}


def row(name, rate, ttft=40.0):
    repetition = {"answered": 80, "requests": 80, "prompt_tokens": 76_800, "cached_tokens": 70_000}
    figures = {
        "requests_per_second": {"mean": rate},
        "hit_rate": {"mean": 0.91},
        "ttft_p50_ms": {"mean": ttft},
        "ttft_p99_ms": {"mean": 90.0},
    }
    return {"target": name, "figures": figures, "repetitions": [repetition]}


def run(first="vllm", second="sglang", **changes):
    cell = {
        "variant": "as-is",
        "closed": True,
        "structured": False,
        "rate": None,
        "load": "16 requests always under way",
        "targets": [row("A", 10.0), row("B", 13.0)],
        "comparisons": [{"first": "A", "second": "B", "figures": [figure(1.3, 1.2, 1.4)]}],
    }
    data = {
        "schema": "promptlint.bench/1",
        "status": "complete",
        "refused": [],
        "unusable": {},
        "workload": {"name": "mine"},
        "settings": {"level": 0.95},
        "targets": [{"name": "A", "engine": first}, {"name": "B", "engine": second}],
        "cells": [cell | changes.pop("cell", {})],
        "goodput": [],
    }
    return data | changes


def load(tmp_path, data):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data))
    return load_measured(path)


@pytest.mark.parametrize(
    ("interval", "counted"),
    [
        (figure(1.3, 1.2, 1.4), 1.2),  # faster for sure: by as much as is sure
        (figure(1.3, 0.9, 1.7), 1.0),  # the run shows no difference
        (figure(0.8, 0.7, 0.9), 0.9),
    ],
)
def test_the_end_of_the_interval_nearest_to_one_counts(tmp_path, interval, counted):
    cell = {"comparisons": [{"first": "A", "second": "B", "figures": [interval]}]}
    assert load(tmp_path, run(cell=cell)).ratio == counted


def test_the_other_way_round(tmp_path):
    found = load(tmp_path, run(first="sglang", second="vllm"))
    assert found.ratio == pytest.approx(1 / 1.2)
    assert found.requests_per_second == {"sglang": 10.0, "vllm": 13.0}
    assert "0.71 to 0.83" in found.words


def test_goodput_is_a_throughput_too(tmp_path):
    cells = {"closed": False, "rate": 8.0, "comparisons": []}
    promises = [
        {
            "target": name,
            "variant": "as-is",
            "kept": 8.0,
            "broken": 16.0,
            "at_least": False,
            "structured": False,
            "slo": "ttft_p99=500",
        }
        for name in "AB"
    ]
    found = load(tmp_path, run(cell=cells, goodput=promises))
    assert found.requests_per_second == {"sglang": 8.0, "vllm": 8.0}
    assert found.ratio is None
    promises[1]["at_least"] = True
    with pytest.raises(UserError, match="before B broke a bound: sweep higher rates"):
        load(tmp_path, run(cell=cells, goodput=promises))
    promises[1] |= {"at_least": False, "kept": None}
    with pytest.raises(UserError, match="sglang kept the bounds at no swept rate: sweep lower rates"):
        load(tmp_path, run(cell=cells, goodput=promises))


def test_variants_beside_the_workload_do_not_count(tmp_path):
    """They show what would become of other prompts; a rate that only they kept is none of the workload's."""
    promises = [
        {
            "target": name,
            "variant": variant,
            "kept": kept,
            "broken": 32.0,
            "at_least": False,
            "structured": False,
            "slo": "ttft_p99=500",
        }
        for variant, rates in (("as-is", (4.0, 8.0)), ("one-branch", (16.0, 16.0)))
        for name, kept in zip("AB", rates, strict=True)
    ]
    data = run(goodput=promises)
    [cell] = data["cells"]
    open_ = cell | {"closed": False, "comparisons": []}
    data["cells"] = [
        open_ | {"variant": variant, "rate": rate, "targets": [row("A", rate, ttft), row("B", rate, ttft)]}
        for variant, ttft in (("one-branch", 1.0), ("as-is", 50.0))[::-1]
        for rate in (4.0, 8.0, 16.0)
    ]
    found = load(tmp_path, data)
    assert found.requests_per_second == {"vllm": 4.0, "sglang": 8.0}
    assert {one.ttft_p50_ms for one in found.engines.values()} == {50.0}
    other = cell | {"variant": "one-branch"}
    with pytest.raises(UserError, match="whole repetitions"):
        load(tmp_path, run(cells=[cell | {"comparisons": []}, other]))
    assert "mine, one-branch, 16 requests" in load(tmp_path, run(cells=[other])).words


def _places(value, place=()):
    if place:
        yield place
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from _places(value[key], (*place, key))


def test_a_result_that_was_spoiled_is_an_error_of_one_line(tmp_path):
    """Any one value replaced: it is read, or refused; never a traceback, never a throughput that cannot be."""
    sweep = run(
        cell={"closed": False, "rate": 8.0, "comparisons": []},
        goodput=[
            {
                "target": name,
                "variant": "as-is",
                "kept": 8.0,
                "broken": 16.0,
                "at_least": False,
                "structured": False,
                "slo": "e2e_p50=9",
            }
            for name in "AB"
        ],
    )
    for data in (run(), run(first="sglang", second="vllm"), sweep):
        for *way, last in list(_places(data)):
            for value in (None, 0, -1, "x", [], {}, True, float("inf"), float("nan"), 10**400):
                spoiled = copy.deepcopy(data)
                part = spoiled
                for key in way:
                    part = part[key]
                part[last] = value
                with contextlib.suppress(UserError):
                    assert all(0 < rate < 1e300 for rate in load(tmp_path, spoiled).requests_per_second.values())


def test_a_measurement_that_is_not_used_is_named(capsys, tmp_path):
    log, result = tmp_path / "log.jsonl", tmp_path / "run.json"
    log.write_text('{"prompt": "a few words", "output_length": 2}\n' * 3)
    result.write_text(json.dumps(run()))
    assert f"{result} was not used" in advise(capsys, "--traffic", log, "--measured", result)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (run(status="refused", refused=["the models differ"]), "the models differ"),
        (run(status="unusable", unusable={"A": "no connection"}), "no connection"),
        (run(refused=["the number formats differ"]), "number formats"),
        (run(second="unknown"), "sglang=URL"),
        (run(cell={"closed": False}), "fixed rate"),
        (
            run(cell={"comparisons": [{"first": "A", "second": "B", "figures": [figure(1.3, None, None, 1)]}]}),
            "fixed rate",
        ),
        (run(cell={"comparisons": [{"first": "A", "second": "B", "figures": []}]}), "fixed rate"),
        (run(cells=3), "not a result"),
        ({"schema": "promptlint.check/1"}, "promptlint bench --save"),
    ],
)
def test_what_does_not_compare_throughput_is_refused(tmp_path, data, words):
    with pytest.raises(UserError, match=words):
        load(tmp_path, data)


def advise(capsys, *args):
    with pytest.raises(SystemExit) as ended:
        cli.main(["advise", *map(str, args), "--no-tipping"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_advice_rests_on_the_run(capsys, tmp_path):
    workload, result = tmp_path / "w.yaml", tmp_path / "run.json"
    workload.write_text(WORKLOAD)
    result.write_text(json.dumps(run()))
    data = json.loads(advise(capsys, "--workload", workload, "--measured", result, "--output-format", "json"))
    verdict = data["verdicts"][0]
    assert verdict["verdict"] == "adopt-sglang"
    reason = next(one for one in verdict["reasons"] if one["fact"] == "measured_ratio")
    assert reason["value"] == 1.2
    assert "1.30, 95 % interval 1.20 to 1.40 from 5 pairs" in reason["source"]
    assert [
        (one["engine"], one["schedule"], one["requests_per_second"], one["ttft_p50_ms"]) for one in data["engines"]
    ] == [
        ("sglang", "measured", 13.0, 40.0),
        ("vllm", "measured", 10.0, 40.0),
    ]
    text = advise(capsys, "--workload", workload, "--measured", result)
    assert "the measurement is of another workload, mine" in text
    workload.write_text("name: mine\n" + WORKLOAD)
    assert "another workload" not in advise(capsys, "--workload", workload, "--measured", result)
    cell = {"comparisons": [{"first": "A", "second": "B", "figures": [figure(1.3, 0.9, 1.7)]}]}
    result.write_text(json.dumps(run(cell=cell)))
    data = json.loads(advise(capsys, "--workload", workload, "--measured", result, "--output-format", "json"))
    assert data["verdicts"][0]["verdict"] == "stay-on-vllm"


def test_figures_that_were_not_measured_are_left_open(capsys, tmp_path):
    workload, result = tmp_path / "w.yaml", tmp_path / "run.json"
    workload.write_text(WORKLOAD)
    silent = row("B", 13.0)
    silent["figures"] = {"requests_per_second": {"mean": 13.0}}
    silent["repetitions"][0]["cached_tokens"] = None
    result.write_text(json.dumps(run(cell={"targets": [row("A", 10.0), silent]})))
    assert "sglang  measured" in advise(capsys, "--workload", workload, "--measured", result)
