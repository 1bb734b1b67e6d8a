"""Serving engines as data (rules/engines/*.toml): defaults by version, units, dated caveats."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from promptlint.catalog import load_toml, toml_files
from promptlint.catalog.hardware import Gpu
from promptlint.catalog.models import Model
from promptlint.errors import UserError

__all__ = ["Caveat", "Engine", "load_engines"]


@dataclass(frozen=True, slots=True)
class Caveat:
    """A dated fact that a verdict has to mention where it applies. `cost_unknown`: it may cost speed, and only a measurement says how much."""

    name: str
    fact: str
    source: str
    on: str
    cost_unknown: bool = False
    architecture: str = ""
    weights: str = ""
    structured: bool = False

    def applies(self, gpu: Gpu | None, weights: str, *, structured: bool) -> bool:
        """Whether all of its conditions hold."""
        return (
            (not self.architecture or (gpu is not None and gpu.architecture == self.architecture))
            and (not self.weights or self.weights == weights)
            and (not self.structured or structured)
        )


@dataclass(frozen=True, slots=True)
class _PageSize:
    size: int
    reason: str
    attention: str = ""
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine at the version that its cache model imitates."""

    name: str
    title: str
    version: str
    verified: str
    unit: int  # tokens per page or KV block
    schedules: tuple[str, ...]  # the first is the default
    steps: tuple[tuple[float, int], ...]  # (GB of GPU memory below which, prefill tokens of one step)
    page_sizes: tuple[_PageSize, ...]
    caveats: tuple[Caveat, ...]

    def unit_for(self, model: Model, gpu: Gpu) -> tuple[int, str]:
        """(tokens per unit, why it is not the default or "") for a model on a GPU."""
        for row in self.page_sizes:
            if (not row.attention or (row.attention == "latent" and model.is_latent)) and (
                not row.architecture or row.architecture == gpu.architecture
            ):
                return row.size, row.reason
        return self.unit, ""

    def step_tokens(self, gpu: Gpu) -> int:
        """Prompt tokens that one step may compute."""
        return next(tokens for limit, tokens in self.steps if gpu.memory < limit)


@cache
def load_engines(extra: tuple[Path, ...] = ()) -> dict[str, Engine]:
    """Every engine of rules/engines and the user's own, by name. Raises UserError for a file that does not fit."""
    engines: dict[str, Engine] = {}
    for path in toml_files("engines", extra):
        data = load_toml(path)
        try:
            verified = data["verified"]["on"]
            if not isinstance(verified, dt.date):
                raise TypeError("verified.on is not a date")
            engine = Engine(
                name=data["name"],
                title=data["title"],
                version=data["version"],
                verified=verified.isoformat(),
                unit=data["unit"],
                schedules=tuple(data["schedules"]),
                steps=tuple((float(row["below_gb"]), int(row["tokens"])) for row in data["step"]),
                page_sizes=tuple(_PageSize(**row) for row in data.get("page_size", ())),
                caveats=tuple(Caveat(**{**row, "on": str(row["on"])}) for row in data.get("caveat", ())),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path}: the engine does not fit: {error!r}") from error
        engines[engine.name] = engine
    return engines
