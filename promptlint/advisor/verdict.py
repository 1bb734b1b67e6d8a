"""The verdict on one pool: facts, the rule that decided, reasons with sources, caveats, and what would change it.

The rule is data (rules/verdict.toml, table [verdict]): conditions over named facts, tried in order. Nothing here weighs anything; what is computed are the facts.
A verdict never says that an engine makes answers better or worse.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from promptlint.catalog import load_toml, rules_root
from promptlint.errors import UserError

__all__ = ["VERDICTS", "Reason", "Rule", "RuleBook", "Verdict", "decide", "load_rule_book"]

VERDICTS = (
    "adopt-sglang",
    "stay-on-sglang",
    "stay-on-vllm",
    "stay-on-provider",
    "fix-prompts-first",
    "fix-routing-first",
    "tune-first",
    "measure-first",
)
_STAY = "stay-on-current"  # in a rule: on whatever runs today
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}

Facts = Mapping[str, float | bool | str]


@dataclass(frozen=True, slots=True)
class Reason:
    """One fact behind a verdict, with its unit and where it comes from."""

    fact: str
    value: float | bool | str | None
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the rule: all conditions of `when` must hold. A condition is `fact operator value`; value is a number, true, false, a threshold's name or a word."""

    name: str
    verdict: str
    when: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class RuleBook:
    """Thresholds and rules, as rules/verdict.toml has them."""

    thresholds: Mapping[str, float]
    rules: tuple[Rule, ...]

    def text(self) -> list[str]:
        """The rule as it is printed: one line a row."""
        return [
            f"{rule.name}: {rule.verdict} when {' and '.join(rule.when) or 'nothing above decided'}"
            for rule in self.rules
        ]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with one pool, and why. `near` are rules that would decide if one condition changed, with that condition."""

    verdict: str
    rule: Rule
    because: str
    near: tuple[tuple[Rule, str], ...]


@cache
def load_rule_book(extra: tuple[Path, ...] = ()) -> RuleBook:
    """The rule of rules/verdict.toml, or of the last of the user's own rule folders that has one. Raises UserError for what does not fit."""
    path = rules_root() / "verdict.toml"
    table = load_toml(path).get("verdict", {})
    for folder in extra:
        own = folder / "verdict.toml"
        if own.is_file():
            path = own
            table = {**table, **load_toml(own).get("verdict", {})}
    rules = []
    try:
        for row in table["rule"]:
            rule = Rule(row["name"], row["verdict"], tuple(row["when"]), row["because"])
            if rule.verdict not in {*VERDICTS, _STAY}:
                raise UserError(
                    f"{path}: rule {rule.name!r}: verdict {rule.verdict!r}: one of {', '.join((*VERDICTS, _STAY))} is expected"
                )
            for condition in rule.when:
                _parse(condition, path)
            rules.append(rule)
        thresholds = {key: float(value) for key, value in table.items() if key != "rule"}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: [verdict] does not fit: {error!r}") from error
    if not rules or rules[-1].when:
        raise UserError(f"{path}: the last rule must have no condition, so that something always decides")
    return RuleBook(thresholds, tuple(rules))


def _parse(condition: str, where: object = "") -> tuple[str, str, str]:
    parts = condition.split()
    if len(parts) != 3 or parts[1] not in _OPERATORS:
        raise UserError(
            f"{where}: condition {condition!r}: `fact operator value` is expected, with one of {' '.join(_OPERATORS)}"
        )
    return parts[0], parts[1], parts[2]


def _value(word: str, facts: Facts, thresholds: Mapping[str, float]) -> float | bool | str:
    if word in {"true", "false"}:
        return word == "true"
    if word in thresholds:
        return thresholds[word]
    try:
        return float(word)
    except ValueError:
        return facts.get(word, word)


def _holds(condition: str, facts: Facts, thresholds: Mapping[str, float]) -> bool:
    name, symbol, word = _parse(condition)
    if name not in facts:
        return False  # a fact that nobody knows decides nothing: a measured ratio that was not measured
    left, right = facts[name], _value(word, facts, thresholds)
    try:
        return _OPERATORS[symbol](left, right)
    except TypeError as error:
        raise UserError(f"verdict rule: condition {condition!r} compares {left!r} with {right!r}") from error


def decide(facts: Facts, book: RuleBook) -> Verdict:
    """The first rule whose conditions all hold, and those before it that miss by one condition.

    "stay-on-current" becomes the engine that runs. Where nothing runs, or SGLang runs and loses, there is nothing to stay on or to move to among the verdicts:
    that is measure-first, unless a measurement has already settled it for vLLM.
    """
    near: list[tuple[Rule, str]] = []
    for rule in book.rules:
        failing = [condition for condition in rule.when if not _holds(condition, facts, book.thresholds)]
        if not failing:
            verdict, because = _for_current(rule, str(facts.get("current", "none")), facts, book)
            return Verdict(verdict, rule, because, tuple(near))
        if len(failing) == 1 and rule.verdict not in {"", _STAY}:
            near.append((rule, failing[0]))
    raise AssertionError("unreachable: the last rule has no condition")


def _for_current(rule: Rule, current: str, facts: Facts, book: RuleBook) -> tuple[str, str]:
    if rule.verdict == "adopt-sglang" and current == "sglang":
        return "stay-on-sglang", rule.because
    if rule.verdict == "stay-on-vllm" and current == "sglang":
        return "measure-first", rule.because + "; SGLang is said to run today, which does not fit"
    if rule.verdict != _STAY:
        return rule.verdict, rule.because
    if current == "none":
        ratio = facts.get("measured_ratio")
        if isinstance(ratio, float) and ratio <= 1 / book.thresholds["margin"]:
            return (
                "stay-on-vllm",
                "your own run has vLLM ahead by more than the margin, and nothing runs today: begin with it",
            )
        return (
            "measure-first",
            rule.because + "; nothing runs today, so take the engine that your people can operate and measure it",
        )
    if current == "sglang":
        ratio = facts.get("measured_ratio")
        loses = facts.get("engine_gain_high", 1.0)
        if (isinstance(ratio, float) and ratio <= 1 / book.thresholds["margin"]) or (
            ratio is None and isinstance(loses, float) and loses < 1
        ):
            return "measure-first", "vLLM looks faster here than SGLang, which runs today: confirm that before moving"
    return f"stay-on-{current}", rule.because
