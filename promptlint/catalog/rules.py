"""Rule pages: metadata, documentation and first tests of a rule in one Markdown file (rules/<category>/<rule>.md).

A page begins with TOML between two lines of `+++`. `params` stays a plain mapping here: the check that the page names owns the
dataclass that validates it, and checks live above this layer.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from promptlint.catalog import rules_root
from promptlint.errors import UserError
from promptlint.finding import APPLICABILITY, PERSONAS, SEVERITIES

__all__ = ["CATEGORIES", "Rule", "Rules", "load_rules", "no_such_rule", "parse_page"]

CATEGORIES = ("volatility", "determinism", "order", "history", "breakpoints", "templates", "tokens", "housekeeping")

_FENCE = "+++"
_REQUIRED = ("name", "summary", "since", "severity", "persona")
_OPTIONAL = ("check", "params", "fix", "precedence", "help", "aliases")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `severity` is the ceiling that the page sets; what a finding costs may lower it.

    `check` names the module of `promptlint.checks` that finds it; it is empty for rules that the command line itself reports (housekeeping).
    `precedence`: where several rules describe one value, the one with the smallest number speaks. `help` is one
    sentence of what to do. `body` is the Markdown after the front matter.
    """

    name: str
    category: str
    summary: str
    since: str
    severity: str
    persona: str
    check: str
    params: Mapping[str, Any] = field(hash=False)
    fix: str
    precedence: int
    help: str
    aliases: tuple[str, ...]
    body: str
    path: Path


class Rules(Mapping[str, Rule]):
    """All rules by name, in the order of categories and names. Aliases resolve too, but are not listed."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self._rules = dict(rules)
        self._aliases = {alias: rule.name for rule in rules.values() for alias in rule.aliases}

    def __getitem__(self, name: str) -> Rule:
        return self._rules[self._aliases.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def canonical(self, name: str) -> str | None:
        """The current name of a rule that is written by its name or an old one; None when there is no such rule."""
        name = self._aliases.get(name, name)
        return name if name in self._rules else None


def no_such_rule(name: str, rules: Rules, others: Sequence[str] = ()) -> str:
    """The complaint about an unknown rule, with those of nearly its name, else those that have it as a word. `others`: what else could have stood there."""
    near = (
        difflib.get_close_matches(name, [*rules, *others], n=3)
        or [rule for rule in rules if name in rule.split("-")][:3]
    )
    hint = f"did you mean {' or '.join(near)}?" if near else "`promptlint rules` lists them"
    return f"there is no rule {name!r}; {hint}"


def parse_page(path: Path, text: str) -> Rule:
    """The rule of one page. Raises UserError, naming the page, when the front matter does not fit."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != _FENCE or _FENCE not in (line.strip() for line in lines[1:]):
        raise UserError(f"{path}: a rule page begins with TOML between two lines of {_FENCE}")
    end = next(index for index, line in enumerate(lines) if index and line.strip() == _FENCE)
    try:
        data = tomllib.loads("\n".join(lines[1:end]))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"{path}: front matter is not valid TOML: {error}") from error
    missing = [key for key in _REQUIRED if not isinstance(data.get(key), str)]
    unknown = sorted(set(data) - {*_REQUIRED, *_OPTIONAL})
    if missing or unknown:
        raise UserError(f"{path}: missing keys {missing}, unknown keys {unknown}")
    for key, allowed in (("severity", SEVERITIES), ("persona", PERSONAS), ("fix", ("", *APPLICABILITY))):
        if data.get(key, "") not in allowed:
            raise UserError(f"{path}: {key} = {data.get(key)!r} is not one of {', '.join(filter(None, allowed))}")
    return Rule(
        name=data["name"],
        category=path.parent.name,
        summary=data["summary"],
        since=data["since"],
        severity=data["severity"],
        persona=data["persona"],
        check=data.get("check", ""),
        params=dict(data.get("params", {})),
        fix=data.get("fix", ""),
        precedence=data.get("precedence", 100),
        help=data.get("help", ""),
        aliases=tuple(data.get("aliases", ())),
        body="\n".join(lines[end + 1 :]).strip() + "\n",
        path=path,
    )


@cache
def load_rules(extra: tuple[Path, ...] = ()) -> Rules:
    """Every rule of the shipped folder, then those of the user's own folders; a later page of the same name replaces an earlier one.

    Raises UserError for a page that does not fit, or for one name that stands for two rules.
    """
    found: dict[str, Rule] = {}
    for root in (rules_root(), *extra):
        for category in CATEGORIES:
            for path in sorted((root / category).glob("*.md")):
                try:
                    text = path.read_text("utf-8")
                except (OSError, UnicodeDecodeError) as error:
                    raise UserError(f"{path}: {error}") from error
                rule = parse_page(path, text)
                found[rule.name] = rule
    ordered = sorted(found.values(), key=lambda rule: (CATEGORIES.index(rule.category), rule.name))
    seen: dict[str, str] = {}
    for rule in ordered:
        for name in (rule.name, *rule.aliases):
            if seen.setdefault(name, rule.name) != rule.name:
                raise UserError(f"{rule.path}: the name {name!r} also stands for the rule {seen[name]}")
    return Rules({rule.name: rule for rule in ordered})
