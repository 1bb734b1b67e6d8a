"""What one part of a project tells the others about its files, so that each can be evaluated without the others' trees.

A large project is read in parts, in several processes. A part parses its own files, and other files only when an evaluation comes to
them. But three questions concern all files: what a function of some name holds, who calls a function, and which classes derive from one. Surveys answer
them; a file that an answer names is parsed then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Brief", "ClassBrief", "FileSurvey", "Known"]


@dataclass(frozen=True, slots=True)
class Brief:
    """A function at a glance. `telling`: it is worth following by itself; `calls`: else ask these, by their last names."""

    small: bool
    telling: bool
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassBrief:
    """A class: last names of its bases as written, and what it defines."""

    name: str
    bases: tuple[str, ...]
    methods: frozenset[str]


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """One file: its functions by name, the last names of what its functions call, its classes and its decorators."""

    path: Path
    functions: Mapping[str, tuple[Brief, ...]]
    called: frozenset[str]
    classes: tuple[ClassBrief, ...]
    decorators: frozenset[str]


class Known:
    """What the other parts have told. Files are in the order of the project."""

    def __init__(self, surveys: Sequence[FileSurvey] = ()) -> None:
        self._functions: dict[str, list[Brief]] = {}
        self._callers: dict[str, list[Path]] = {}
        self._decorated: dict[str, list[Path]] = {}
        self._derived: dict[str, list[tuple[Path, ClassBrief]]] = {}
        for file in surveys:
            for name, briefs in file.functions.items():
                self._functions.setdefault(name, []).extend(briefs)
            for name in file.called:
                self._callers.setdefault(name, []).append(file.path)
            for name in file.decorators:
                self._decorated.setdefault(name, []).append(file.path)
            for cls in file.classes:
                for name in cls.bases:
                    self._derived.setdefault(name, []).append((file.path, cls))

    def functions(self, name: str) -> list[Brief]:
        """Functions of a name."""
        return self._functions.get(name, [])

    def callers(self, name: str) -> list[Path]:
        """Files whose functions call something of a name."""
        return self._callers.get(name, [])

    def decorated(self, names: Iterable[str]) -> list[Path]:
        """Files that use one of these decorators."""
        return list(dict.fromkeys(path for name in sorted(names) for path in self._decorated.get(name, ())))

    def derived(self, names: Iterable[str]) -> Iterator[tuple[Path, ClassBrief]]:
        """Classes that derive from a class of one of these names, directly or not, as far as names tell."""
        asked: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name in asked:
                continue
            asked.add(name)
            for path, cls in self._derived.get(name, ()):
                yield path, cls
                pending.append(cls.name)
