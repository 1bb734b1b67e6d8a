"""What `perturb` has measured, as values; `report` prints them."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["FACTORS", "RULES", "Measurement", "Varying"]

FACTORS = ("hash-seed", "clock", "cwd", "user", "host", "random", "environment", "listing")
"""What is changed, one at a time, in this order."""

RULES = {
    "hash-seed": ("unordered-iteration", "template-unordered", "unsorted-json", "tool-order-differs", "tools-built-per-request"),
    "clock": ("clock-in-prefix", "template-clock", "import-time-value-in-prefix", "chat-template-date"),
    "cwd": ("host-state-in-prefix",),
    "user": ("host-state-in-prefix", "user-data-before-shared"),
    "host": ("host-state-in-prefix",),
    "random": ("random-in-prefix", "random-order", "template-random", "import-time-value-in-prefix", "cache-key-per-request"),
    "environment": ("host-state-in-prefix",),
    "listing": ("unsorted-listing", "host-state-in-prefix"),
}  # fmt: skip
"""The rules of `check` that describe a value which depends on the factor."""


@dataclass(frozen=True, slots=True)
class Varying:
    """A place in the prompts of one call site that depends on one factor.

    `pointer` and `char` address the first call where it was seen; `calls` of `of` calls of the site show it. `shift` is the smallest shift of the clock that changes it, or
    the environment variable. `was` and `now` are the text around it before and after; `end` is where the difference ends. With code beside it, `hole` is the expression that the
    analysis sees there, `guessed` its volatility, and `found_by` are the findings of `check` at that call site that describe such a value.
    """

    factor: str
    call_site: str
    pointer: str
    char: int
    calls: int
    of: int
    was: str
    now: str
    shift: str = ""
    line: int = 0
    end: int = 0
    hole: str = ""
    guessed: str = ""
    found_by: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether the analysis of the code says of this place what was measured: it reports it, or it sees a value there that lives no longer.

        Not every such value is a finding: settings never are, nor is one with nothing longer-lived behind it. A clock that changes within the day is not a date.
        """
        too_long = {"", "static", "day"} if self.factor == "clock" and self.shift != "day" else {"", "static"}
        return bool(self.found_by) or self.guessed not in too_long


@dataclass(slots=True)
class Measurement:
    """All that was measured. `noise` are places that differ between two runs with nothing changed: nothing is said about factors there.

    `uneven` are factors under which call sites sent more or fewer calls, `failed` those whose run ended otherwise than the first, each with what happened.
    """

    command: tuple[str, ...]
    calls: int
    call_sites: int
    status: int
    runs: int = 0
    factors: tuple[str, ...] = ()
    varying: list[Varying] = field(default_factory=list)
    noise: list[Varying] = field(default_factory=list)
    uneven: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    compared_with_code: bool = False

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Factors that changed nothing."""
        seen = {one.factor for one in self.varying} | self.uneven.keys() | self.failed.keys()
        return tuple(name for name in self.factors if name not in seen)
