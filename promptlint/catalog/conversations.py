"""The words by which operations on a conversation are recognised (rules/conversations.toml)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from promptlint.catalog import load_toml, rules_root
from promptlint.errors import UserError

__all__ = ["Conversations", "load_conversations"]


@dataclass(frozen=True, slots=True)
class Conversations:
    """One set of lower-case words, or of names as they are written, for each key of the file; the file says what each is for."""

    lists: frozenset[str]
    one: frozenset[str]
    containers: frozenset[str]
    weak: frozenset[str]
    other: frozenset[str]
    foreign_libraries: frozenset[str]
    quiet_calls: frozenset[str]
    quiet_owners: frozenset[str]
    passing_calls: frozenset[str]
    quiet_functions: frozenset[str]
    quiet_call_words: frozenset[str]
    cutting: frozenset[str]
    size: frozenset[str]
    summary: frozenset[str]
    volatile: frozenset[str]
    talkers: frozenset[str]
    talking: frozenset[str]


@cache
def load_conversations() -> Conversations:
    """The file's sets. Raises UserError when one is missing."""
    path = rules_root() / "conversations.toml"
    data = load_toml(path)
    try:
        return Conversations(**{field.name: frozenset(data[field.name]) for field in fields(Conversations)})
    except KeyError as error:
        raise UserError(f"{path}: the set {error} is missing") from error
