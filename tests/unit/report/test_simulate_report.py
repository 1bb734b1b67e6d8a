"""What `promptlint simulate` prints, exactly."""

from pathlib import Path

import pytest

from promptlint.app.requests import Requests
from promptlint.app.simulate import Setup, simulate
from promptlint.report import simulate as report
from promptlint.traffic.read import Traffic

CONFORMANCE = Path(__file__).parents[2] / "conformance"

SETUPS = {
    "ample": Setup(),
    "fleet": Setup(engine="vllm", capacity=960, replicas=2, router="cache-aware", schedule="fcfs", batch_tokens=256),
    "curve": Setup(capacity=480, page_size=16, curve=True, denominator="full-blocks", warm_up=5),
}


@pytest.mark.parametrize("name", SETUPS)
def test_simulate(name, golden):
    found = simulate(SETUPS[name], Requests(Traffic([CONFORMANCE / "namespaces.jsonl"]))).report
    golden(f"simulate/{name}.txt", report.text(found))
    golden(f"simulate/{name}.json", report.json(found))
