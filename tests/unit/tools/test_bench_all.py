"""The comparison with other tools: what is absent is said to be, and a failing tool names itself."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import bench_all


def test_absent_tools_are_reported_as_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("KVLINT", "LLMTRAFFICLENS", "KVCACHE_SIMULATOR"):
        monkeypatch.delenv(variable, raising=False)
    assert [*bench_all.on_text(tmp_path, 1)] == ["simulate on text: not run, kvlint is absent"]
    assert [*bench_all.on_hashes(tmp_path, 50, 1)] == [
        "curve: not run, llmtrafficlens is absent",
        "curve: not run, kvcache-simulator is absent",
    ]


def test_a_failing_tool_names_itself(tmp_path):
    with pytest.raises(RuntimeError, match="no such option"):
        bench_all.timed([sys.executable, "-c", "import sys; sys.exit('no such option')"], tmp_path)


def test_the_first_hit_rate_of_a_report():
    assert bench_all._rate({"engine": "vllm", "results": [{"name": "x"}, {"hit_rate": 0.5}]}) == 0.5
    assert math.isnan(bench_all._rate({"results": []}))
