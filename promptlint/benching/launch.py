"""Commands that start both engines alike, with the flags that a fair comparison needs.

Flag names were checked in the arguments of vLLM 0.32.0 and SGLang 0.5.23. Nothing is started here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from promptlint.catalog.engines import Engine
from promptlint.catalog.hardware import Gpu

__all__ = ["Launch", "commands"]


@dataclass(frozen=True, slots=True)
class Launch:
    """What both servers have in common. `context` 0 leaves the model's own."""

    model: str
    gpu: Gpu | None = None
    tensor_parallel: int = 1
    dtype: str = "bfloat16"
    context: int = 0
    kv_dtype: str = ""
    weights: str = ""


def commands(launch: Launch, engines: Sequence[Engine] = ()) -> str:
    """A shell script with one command an engine, and why its flags are there."""
    graphs = next(
        (
            caveat
            for engine in engines
            for caveat in engine.caveats
            if caveat.name.startswith("cuda-graphs") and caveat.applies(launch.gpu, launch.weights, structured=False)
        ),
        None,
    )
    kv_dtype = {"fp8": "fp8_e4m3"}.get(launch.kv_dtype, launch.kv_dtype)  # SGLang takes no shorter name
    vllm = [
        *(launch.model, "--host", "127.0.0.1", "--port", "8000", "--dtype", launch.dtype),
        *("--tensor-parallel-size", str(launch.tensor_parallel)),
        *(("--max-model-len", str(launch.context)) if launch.context else ()),
        *(("--kv-cache-dtype", kv_dtype) if kv_dtype else ()),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details", "--generation-config", "vllm"),
    ]
    sglang = [
        *(
            "--model-path",
            launch.model,
            "--served-model-name",
            launch.model,
            "--host",
            "127.0.0.1",
            "--port",
            "30000",
            "--dtype",
            launch.dtype,
        ),
        *("--tp-size", str(launch.tensor_parallel)),
        *(("--context-length", str(launch.context)) if launch.context else ()),
        *(("--kv-cache-dtype", kv_dtype) if kv_dtype else ()),
        *("--enable-cache-report", "--enable-metrics", "--sampling-defaults", "openai"),
    ]
    lines = [
        "# Both serve the same weights in the same format and window. Run them on GPUs of the same kind; on one and the same GPU start only one at a time, or give each half of the",
        "# memory (--gpu-memory-utilization, --mem-fraction-static). Equal pools make the cache comparable: `promptlint bench` prints both sizes.",
        "",
        "# vLLM. Development mode lets the benchmark empty the cache and read number formats: not for production, and only where nobody else can reach it (--host).",
        f"VLLM_SERVER_DEV_MODE=1 vllm serve {shlex.join(vllm)}",
        "",
        "# SGLang. --enable-cache-report makes it report cached tokens in the usage.",
    ]
    if graphs is not None:
        sglang.append("--disable-cuda-graph")
        lines += [
            f"# {graphs.fact[:1].upper()}{graphs.fact[1:]} ({graphs.source}).",
            "# Try without --disable-cuda-graph first. 0.5.23 still takes it, as deprecated: its new spelling is --cuda-graph-backend-decode=disabled --cuda-graph-backend-prefill=disabled.",
            "# To see what the graphs alone are worth, run vLLM a second time with --enforce-eager.",
        ]
    lines.append(f"python -m sglang.launch_server {shlex.join(sglang)}")
    return "\n".join(lines) + "\n"
