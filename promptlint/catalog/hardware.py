"""GPUs of the cost model (rules/hardware/*.toml): peak arithmetic, bandwidth, memory, and how much of each a serving engine reaches."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from promptlint.catalog import load_toml, toml_files
from promptlint.errors import UserError

__all__ = ["Gpu", "load_gpus", "resolve_gpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Dense 16-bit TFLOPS, GB/s and decimal GB as the vendor prints them; `eff_compute` and `eff_memory` are the shares an engine reaches.

    `measured` is False where an efficiency is recalled and not checked against a measurement; the output says so.
    """

    name: str
    tflops: float
    bandwidth: float  # GB/s
    memory: float  # GB (1e9 bytes)
    eff_compute: float
    eff_memory: float
    host_floor_ms: float = 4.0  # what a server adds to the first token beside the GPU's work
    architecture: str = ""
    aliases: tuple[str, ...] = ()
    measured: bool = True
    source: str = ""


def _normal(name: str) -> str:
    short = name.lower().replace("nvidia", "").replace("amd", "").replace("instinct", "").replace("geforce", "")
    return "".join(c for c in short if c.isalnum())


@cache
def load_gpus(extra: tuple[Path, ...] = ()) -> dict[str, Gpu]:
    """Every row of rules/hardware and the user's own, by normalised name and alias. Raises UserError for a row that does not fit."""
    known = {field.name for field in fields(Gpu)}
    gpus: dict[str, Gpu] = {}
    for path in toml_files("hardware", extra):
        data = load_toml(path)
        for row in data.get("gpu", ()):
            if unknown := set(row) - known:
                raise UserError(f"{path}: gpu {row.get('name')!r}: unknown keys {', '.join(sorted(unknown))}")
            try:
                gpu = Gpu(**{**row, "aliases": tuple(row.get("aliases", ()))})
            except TypeError as error:
                raise UserError(f"{path}: a row does not fit: {row!r}: {error!r}") from error
            for name in (gpu.name, *gpu.aliases):
                gpus[_normal(name)] = gpu
    return gpus


def resolve_gpu(name: str, extra: tuple[Path, ...] = ()) -> Gpu:
    """A GPU by name: "H100", "RTX 5090", "A100-80". Raises UserError naming the closest."""
    gpus = load_gpus(extra)
    found = gpus.get(_normal(name))
    if found is None:
        close = [gpus[c].name for c in difflib.get_close_matches(_normal(name), gpus, n=3)]
        hint = (
            f"did you mean {', '.join(dict.fromkeys(close))}?"
            if close
            else f"known: {', '.join(dict.fromkeys(gpu.name for gpu in gpus.values()))}"
        )
        raise UserError(f"GPU {name!r} is not in rules/hardware; {hint}")
    return found
