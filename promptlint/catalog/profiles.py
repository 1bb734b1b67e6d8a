"""Traffic profiles, severity thresholds and model-to-encoding patterns: the assumptions behind every estimate, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from promptlint.catalog import load_toml, rules_root
from promptlint.errors import UserError
from promptlint.ir import BlockKind, Hole, Volatility
from promptlint.tokenizers import DEFAULT, EMBEDDED

__all__ = ["Profile", "Thresholds", "encoding_for", "load_profile", "load_thresholds", "profile_names"]

_COUNTS = ("requests_per_day", "replicas", "tenants", "documents", "users", "sessions", "turns")


@dataclass(frozen=True, slots=True)
class Profile:
    """Assumed traffic of one call site on one day.

    `sizes` are expected sizes in tokens of a value that the source does not fix, by origin kind or block kind; `default` is for all others. `repeats` is how
    often the body of a loop is expected to be rendered. `reasons` holds why each number was chosen.
    """

    name: str
    requests_per_day: int
    replicas: int
    tenants: int
    documents: int
    users: int
    sessions: int
    turns: int
    repeats: int
    sizes: Mapping[str, int] = field(hash=False)
    reasons: Mapping[str, str] = field(hash=False)

    def distinct(self, volatility: Volatility) -> int:
        """D(v): how many values a hole of that volatility takes in a day, at most the number of requests (contract, "Estimated hit rate")."""
        counts = {
            Volatility.STATIC: 1,
            Volatility.PROCESS: self.replicas,
            Volatility.DAY: 1,
            Volatility.TENANT: self.tenants,
            Volatility.DOCUMENT: self.documents,
            Volatility.USER: self.users,
            Volatility.SESSION: self.sessions,
            Volatility.TURN: self.turns,
            Volatility.REQUEST: self.requests_per_day,
        }
        return min(counts[volatility], self.requests_per_day)

    def miss_share(self, volatility: Volatility) -> float:
        """D(v) / N: the share of requests that meet a value for the first time that day."""
        return self.distinct(volatility) / self.requests_per_day

    def size(self, hole: Hole) -> int:
        """Expected size of a hole in tokens: measured or named by the front end, else by origin, kind and profile."""
        if hole.tokens is not None:
            return hole.tokens
        kinds = [origin.kind for origin in hole.origins if origin.kind in self.sizes]
        if kinds:
            return max(self.sizes[kind] for kind in kinds)
        if hole.kind is not None and hole.kind.value in self.sizes:
            return self.sizes[hole.kind.value]
        return self.sizes["default"]

    def size_of_kind(self, kind: BlockKind) -> int:
        """Expected size in tokens of a block of that kind whose content is unknown."""
        return self.sizes.get(kind.value, self.sizes["default"])


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From how many tokens lost per request a finding is `medium` or `high`, and which volatilities lower it.

    What loses less than `notice` is a smell, not a cost: pedantic. That does not hold for `always_low` values, which are real and never dear.
    """

    medium: float
    high: float
    one_step_down: frozenset[Volatility]
    always_low: frozenset[Volatility]
    notice: float = 0.0


def profile_names() -> tuple[str, ...]:
    """The profiles that are shipped, in name order."""
    return tuple(sorted(path.stem for path in (rules_root() / "traffic").glob("*.toml")))


@cache
def load_profile(name: str = "typical") -> Profile:
    """One profile of rules/traffic. Raises UserError when there is none of that name or it does not fit."""
    path = rules_root() / "traffic" / f"{name}.toml"
    if not path.is_file():
        raise UserError(f"unknown traffic profile {name!r}; one of {', '.join(profile_names())}")
    data = load_toml(path)
    try:
        counts = {key: _positive(data["counts"][key], key) for key in _COUNTS}
        sizes = {str(key): int(value) for key, value in data["sizes"].items()}
        if "default" not in sizes:
            raise KeyError("sizes.default")
        return Profile(
            name=name,
            repeats=_positive(data["repeats"], "repeats"),
            sizes=sizes,
            reasons={str(key): str(value) for key, value in data.get("reasons", {}).items()},
            **counts,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: the profile does not fit: {error!r}") from error


def _positive(value: Any, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key} must be a positive integer, not {value!r}")
    return value


@cache
def load_thresholds() -> Thresholds:
    """The table [severity] of rules/verdict.toml. Raises UserError when it does not fit."""
    path = rules_root() / "verdict.toml"
    try:
        row = load_toml(path)["severity"]
        return Thresholds(
            medium=float(row["medium"]),
            high=float(row["high"]),
            one_step_down=frozenset(Volatility[word.upper()] for word in row["one_step_down"]),
            always_low=frozenset(Volatility[word.upper()] for word in row["always_low"]),
            notice=float(row["notice"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: [severity] does not fit: {error!r}") from error


@cache
def _encodings() -> tuple[tuple[str, str], ...]:
    path: Path = rules_root() / "encodings.toml"
    rows: list[tuple[str, str]] = []
    for row in load_toml(path).get("encoding", ()):
        if row.get("name") not in EMBEDDED:
            raise UserError(f"{path}: {row.get('name')!r} is not an embedded encoding")
        rows.extend((pattern, row["name"]) for pattern in row["models"])
    return tuple(rows)


@cache
def encoding_for(model: str | None) -> tuple[str, bool]:
    """The embedded encoding that counts a model's tokens, and whether it is that model's own (False: the default stands in)."""
    if model:
        name = model.lower().rsplit("/", 1)[-1]
        for pattern, encoding in _encodings():
            if fnmatchcase(name, pattern):
                return encoding, True
    return DEFAULT, False
