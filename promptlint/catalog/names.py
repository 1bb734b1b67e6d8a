"""What the name of a parameter, variable or slot says about the value (rules/names.toml).

A name is split into words at underscores, dots, case changes and digits ("currentUserName" is current, user, name). A row matches when its
words occur in that order next to each other, at the place that its `at` allows. A row for the whole name wins over one for its first word (a
modifier: "max_questions" is a setting), then the one with most words, then the one nearest to the end, for the last word of an English
compound is its head.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from promptlint.catalog import load_toml, rules_root
from promptlint.catalog.sources import volatility
from promptlint.errors import UserError
from promptlint.ir import BlockKind, Confidence, Growth, Volatility

__all__ = ["NameFact", "Names", "load_names", "words"]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@lru_cache(maxsize=50_000)
def words(name: str) -> tuple[str, ...]:
    """The lower-case words of an identifier."""
    return tuple(word.lower() for word in _WORD.findall(name))


@dataclass(frozen=True, slots=True)
class NameFact:
    """What a name says. `origin` is an origin kind of the IR."""

    words: tuple[str, ...]
    origin: str
    volatility: Volatility
    kind: BlockKind | None
    confidence: Confidence
    growth: Growth = Growth.FIXED
    at: str = "any"  # any, first, last, only: where in a name the words count
    is_object: bool = True  # whether the words also tell about the attributes of an object of that name

    def matches(self, found: tuple[str, ...], index: int) -> bool:
        """Whether the row's words stand at `index` of a name's words, where they count."""
        end = index + len(self.words)
        if found[index:end] != self.words or end > len(found):
            return False
        begins, ends = index == 0, end == len(found)
        return {"any": True, "first": begins and not ends, "last": ends, "only": begins and ends}[self.at]


@dataclass(frozen=True, slots=True)
class Names:
    """Rows by their first word, and what the fixed values say with which a name is compared."""

    rows: dict[str, tuple[NameFact, ...]]
    unknown: NameFact
    values: dict[str, NameFact] = field(default_factory=dict)
    holders: dict[str, NameFact] = field(
        default_factory=dict
    )  # last word of an object's name -> what all its plain attributes are
    categories: frozenset[str] = frozenset()  # last words of fields that put a record into a class

    def fact(self, name: str) -> NameFact:
        """What `name` says; the row `unknown` (volatility request, low confidence) when it says nothing."""
        found = words(name)
        attribute = len(found) - len(words(name.rpartition(".")[2]))  # index of the first word of the last attribute
        best, best_rank = self.unknown, (False, False, 0, 0)
        for index, word in enumerate(found):
            for row in self.rows.get(word, ()):
                rank = (row.at == "only", row.at == "first", len(row.words), index)
                counts = row.is_object or index >= attribute
                if counts and row.matches(found, index) and rank > best_rank:
                    best, best_rank = row, rank
        return best

    def held(self, expression: str) -> NameFact | None:
        """What the object says whose attribute is spelled (`self.settings.task` is an attribute of settings); None when it says nothing."""
        parts = expression.rsplit(".", 2)
        if len(parts) < 2 or not parts[-1].isidentifier() or not parts[-2].isidentifier():
            return None
        owner = words(parts[-2])
        return self.holders.get(owner[-1]) if owner else None


def _at(word: str) -> str:
    if word not in {"any", "first", "last", "only"}:
        raise ValueError(word)
    return word


@cache
def load_names(extra: tuple[Path, ...] = ()) -> Names:
    """rules/names.toml and the user's own. Raises UserError for a row that does not fit."""
    rows: dict[str, tuple[NameFact, ...]] = {}
    values: dict[str, NameFact] = {}
    holders: dict[str, NameFact] = {}
    categories: set[str] = set()
    for root in (rules_root(), *extra):
        path = root / "names.toml"
        if not path.is_file():
            continue
        data = load_toml(path)
        for table, key, known in (("value", "values", values), ("holder", "words", holders)):
            for row in data.get(table, ()):
                try:
                    fact = NameFact((), row["origin"], volatility(row["volatility"], path), None, Confidence.MEDIUM)
                    known.update(dict.fromkeys(row[key], fact))
                except (KeyError, ValueError, TypeError) as error:
                    raise UserError(f"{path}: a row does not fit: {row!r}: {error!r}") from error
        for row in data.get("category", ()):
            try:
                categories.update(row["words"])
            except (KeyError, TypeError) as error:
                raise UserError(f"{path}: a row does not fit: {row!r}: {error!r}") from error
        for row in data.get("name", ()):
            try:
                for spelling in row["words"]:
                    fact = NameFact(
                        tuple(spelling.split()),
                        row["origin"],
                        volatility(row["volatility"], path),
                        BlockKind(row["kind"]) if "kind" in row else None,
                        Confidence[row.get("confidence", "medium").upper()],
                        Growth(row.get("growth", "fixed")),
                        _at(row.get("at", "any")),
                        bool(row.get("object", True)),
                    )
                    rows[fact.words[0]] = (*rows.get(fact.words[0], ()), fact)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise UserError(f"{path}: a row does not fit: {row!r}: {error!r}") from error
    unknown = NameFact((), "unknown", Volatility.REQUEST, None, Confidence.LOW)
    return Names(rows, unknown, values, holders, frozenset(categories))
