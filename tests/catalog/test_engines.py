"""rules/engines: versions that the cache models imitate, units, and caveats with date and source."""

import pytest

from promptlint.app.simulate import VERSIONS
from promptlint.catalog.engines import load_engines
from promptlint.catalog.hardware import load_gpus, resolve_gpu
from promptlint.catalog.models import resolve_model
from promptlint.errors import UserError


def test_versions_are_those_of_the_cache_models():
    assert {name: engine.version for name, engine in load_engines().items()} == {
        name: VERSIONS[name] for name in ("sglang", "vllm")
    }


def test_every_gpu_has_a_step_size():
    for engine in load_engines().values():
        for gpu in load_gpus().values():
            assert engine.step_tokens(gpu) >= 2048


def test_page_size_follows_from_the_model():
    sglang = load_engines()["sglang"]
    assert sglang.unit_for(resolve_model("Llama-3.1-8B"), resolve_gpu("H100")) == (1, "")
    assert sglang.unit_for(resolve_model("DeepSeek-V3"), resolve_gpu("H100"))[0] == 64
    assert sglang.unit_for(resolve_model("Llama-3.1-8B"), resolve_gpu("B200"))[0] == 64
    assert load_engines()["vllm"].unit_for(resolve_model("DeepSeek-V3"), resolve_gpu("H100"))[0] == 16


def test_caveats_are_dated_and_apply_where_they_say():
    caveats = [caveat for engine in load_engines().values() for caveat in engine.caveats]
    assert caveats
    assert all(caveat.source and caveat.on.startswith("20") for caveat in caveats)
    on = {caveat.name for caveat in caveats if caveat.applies(resolve_gpu("RTX 5090"), "nvfp4", structured=False)}
    assert on == {"cuda-graphs-sm120", "nvfp4-sm120"}
    assert not [caveat for caveat in caveats if caveat.applies(resolve_gpu("H100"), "bf16", structured=False)]


def test_an_engine_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "mine.toml").write_text('name = "mine"\n')
    with pytest.raises(UserError, match=r"mine\.toml"):
        load_engines((tmp_path,))
