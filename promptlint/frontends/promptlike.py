"""Does a text look like a prompt? Half of the real faults are visible in one template, without knowing who sends it.

Weights and words are data (rules/promptlike.toml). A score explains itself: `PromptLikeness.reasons` names each feature that held and
what it added. A text that is taken for a prompt by its looks alone never has more than medium confidence.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from promptlint.catalog import load_toml, rules_root
from promptlint.catalog.names import words as name_words
from promptlint.errors import UserError
from promptlint.frontends import slots as slot_syntax

__all__ = ["CONTEXTS", "PromptLikeness", "score"]

CONTEXTS = (
    "message-content", "prompt-template", "sink-argument",  # sent, as far as the place shows
    "format-call", "render-call", "percent", "f-string",  # filled
    "prompt-folder", "prompt-extension", "plain-template",  # a file among prompts
    "other-format", "docstring", "help", "comment", "log", "error", "print", "sql-call", "regex-call", "test", "mail", "record",  # something else
)  # fmt: skip
"""What a caller may say about how the text is used."""

_LOOK_AT = (
    20_000  # characters that are looked at: what a prompt is shows early, and megabytes of data shall not cost seconds
)


@dataclass(frozen=True, slots=True)
class PromptLikeness:
    """How much a text looks like a prompt, and why."""

    score: float
    threshold: float
    reasons: tuple[tuple[str, float], ...]

    @property
    def is_prompt(self) -> bool:
        """Whether the text counts as a prompt."""
        return self.score >= self.threshold

    def __str__(self) -> str:
        parts = ", ".join(f"{says} {weight:+g}" for says, weight in self.reasons)
        return f"{self.score:g} of {self.threshold:g}: {parts or 'nothing speaks for it'}"


@dataclass(frozen=True, slots=True)
class _Feature:
    says: str
    weight: float
    pattern: re.Pattern[str] | None
    name: frozenset[str]
    context: frozenset[str]
    at_least: int
    telling: bool

    def holds(self, text: str, name: Collection[str], context: Collection[str]) -> bool:
        if self.pattern is None:
            return bool(self.name.intersection(name) or self.context.intersection(context))
        found = islice(self.pattern.finditer(text), self.at_least)
        return sum(1 for _ in found) == self.at_least


@dataclass(frozen=True, slots=True)
class _Rules:
    threshold: float
    untold: float
    min_words: int
    words: tuple[tuple[int, float], ...]
    slots: float
    features: tuple[_Feature, ...]


def _pattern(row: dict[str, Any]) -> re.Pattern[str] | None:
    """One alternation for a row; the words of the data are literal text in it, a `pattern` is one already."""
    if "pattern" in row:
        return re.compile(row["pattern"], re.MULTILINE)
    if "raw" in row:
        return re.compile("|".join(map(re.escape, row["raw"])))
    if "phrases" in row:
        return re.compile(rf"\b(?:{'|'.join(map(re.escape, row['phrases']))})\b", re.IGNORECASE)
    if "starts" in row:
        starts = "|".join(re.escape(start) + (r"\b" if start[-1].isalnum() else "") for start in row["starts"])
        return re.compile(rf"(?:^|(?<=[.!?:]\s))[ \t#>*\-\d.)(_`\"']*(?:{starts})", re.IGNORECASE | re.MULTILINE)
    if "headings" in row:
        heads = "|".join(map(re.escape, row["headings"]))
        return re.compile(
            rf"^[ \t]*(?:[#*\-=_<\[ ]+(?:{heads})[#*:\-=_>\] ]*|(?:{heads})\s*:.*)$", re.IGNORECASE | re.MULTILINE
        )
    return None


@cache
def _rules() -> _Rules:
    path = rules_root() / "promptlike.toml"
    data = load_toml(path)
    try:
        features = tuple(
            _Feature(
                row["says"],
                row["weight"],
                _pattern(row),
                frozenset(row.get("name", ())),
                frozenset(row.get("context", ())),
                row.get("at_least", 1),
                row.get("telling", False),
            )
            for row in data["feature"]
        )
        unknown = frozenset().union(*(feature.context for feature in features)) - frozenset(CONTEXTS)
        if unknown:
            raise ValueError(f"unknown context {sorted(unknown)}")
        return _Rules(
            data["threshold"],
            data["untold"],
            data["min_words"],
            tuple((step["from"], step["weight"]) for step in data["words"]),
            data["slots"],
            features,
        )
    except (KeyError, TypeError, ValueError, re.error) as error:
        raise UserError(f"{path}: {error!r}") from error


def score(text: str, name: str = "", context: Collection[str] = (), *, has_slots: bool | None = None) -> PromptLikeness:
    """How much `text` looks like a prompt.

    `name` is the constant, key or file that holds it, `context` how it is used (words of CONTEXTS). `has_slots` saves the search for slots
    where the caller knows (an f-string: the text is its fixed parts joined).
    """
    rules = _rules()
    text = text[:_LOOK_AT]
    count = len(text.split())
    if count < rules.min_words:
        return PromptLikeness(0.0, rules.threshold, ((f"has only {count} words", 0.0),))
    reasons = [(f"has {least} words or more", weight) for least, weight in rules.words if count >= least]
    if has_slots if has_slots is not None else slot_syntax.guess(text) is not None:
        reasons.append(("has slots", rules.slots))
    spoken = name_words(name)
    held = [feature for feature in rules.features if feature.holds(text, spoken, context)]
    reasons += [(feature.says, feature.weight) for feature in held]
    if not any(feature.telling for feature in held):
        reasons.append(("nothing in it is peculiar to prompts", rules.untold))
    return PromptLikeness(round(sum(weight for _, weight in reasons), 2), rules.threshold, tuple(reasons))
