"""Whatever a workload file holds, it is read or refused with a message, never with a traceback."""

import string

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptlint.advisor.workload import load_workloads
from promptlint.errors import UserError

KEYS = [
    "model",
    "gpu",
    "current",
    "output",
    "prompt",
    "pools",
    "turns",
    "branches",
    "arrivals",
    "decode_penalty",
    "measured",
    "engines",
    "name",
    "order",
    "requests",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**9),
    st.floats(),
    st.text(string.printable, max_size=8),
    st.sampled_from(["vllm", "H100", "mixed"]),
)
BLOCK = st.dictionaries(
    st.sampled_from(["block", "tokens", "varies", "distinct", "skew", "name", "x"]),
    st.one_of(SCALARS, st.just("system"), st.just("static")),
    max_size=5,
)
VALUES = st.one_of(
    SCALARS,
    st.lists(st.one_of(SCALARS, BLOCK), max_size=3),
    st.dictionaries(st.sampled_from(["sglang", "vllm", "x"]), SCALARS, max_size=2),
)


@given(st.one_of(SCALARS, st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_yaml(tmp_path, data):
    path = tmp_path / "w.yaml"
    path.write_text(yaml.safe_dump(data))
    try:
        pools = load_workloads(path)
    except UserError as error:
        assert "w.yaml" in str(error)  # noqa: PT017  # both outcomes are right
    else:
        assert all(pool.output >= 1 and pool.prompt for pool in pools)
