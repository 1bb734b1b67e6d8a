"""rules/hardware."""

import pytest

from promptlint.catalog.hardware import load_gpus, resolve_gpu
from promptlint.errors import UserError


@pytest.mark.parametrize(
    ("spelling", "name"),
    [("h100", "H100"), ("NVIDIA RTX 5090", "RTX 5090"), ("rtx-4090", "RTX 4090"), ("A100 80GB", "A100-80")],
)
def test_spellings(spelling, name):
    assert resolve_gpu(spelling).name == name


def test_unknown():
    with pytest.raises(UserError, match="H100"):
        resolve_gpu("H101")
    with pytest.raises(UserError, match="known:"):
        resolve_gpu("abacus")


def test_every_row_has_a_source_and_sane_figures():
    for gpu in set(load_gpus().values()):
        assert gpu.source
        assert 0 < gpu.eff_compute <= 1
        assert 0 < gpu.eff_memory <= 1
        # Every GPU computes far more than 30 operations in the time of one byte.
        assert gpu.tflops * 1e12 / (gpu.bandwidth * 1e9) > 30
