"""What one reading of a project leaves for the next one, so that an editor need not wait for what did not change.

A reading is a series of steps: each function that may build a prompt, each file's hooks, statements and literals. `Memory` keeps what each step
gave, with the tree that it was found in and the files that its prompts mention. A file that was parsed anew has new trees, so its steps are taken again, and
so are those of other files whose prompts mention it. A function that gave no prompt and reads as before is taken to give none again, wherever it stands now:
most functions that may build a prompt build none, and of nothing no place need be read anew. What only passes through a changed file or function is not noticed;
`forget` makes the next reading a whole one.

A file counts as unchanged when the project gives the very same `SourceFile` for it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptlint.frontends.base import Project
from promptlint.frontends.python.index import FunctionInfo, Index, Module
from promptlint.ir import Hole, Segment, Text, Unread, blocks_of, holes_of, text_of
from promptlint.source import SourceFile

if TYPE_CHECKING:
    from promptlint.frontends.python.parts import FileFound
    from promptlint.frontends.python.roots import Interpreter
    from promptlint.frontends.python.settle import Sight
    from promptlint.frontends.python.sinks import Draft

__all__ = ["Memory", "Warm"]


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one step gave. `owner` is the tree that it was found in, `mentions` the printed paths of files whose text it holds."""

    owner: Module | FunctionInfo
    drafts: tuple[Draft, ...]
    names: tuple[tuple[Text, str], ...]
    parsed: tuple[Path, ...]
    unread: tuple[Unread, ...]
    entered: frozenset[tuple[int, int]]
    steps: int
    mentions: frozenset[str]

    @property
    def is_empty(self) -> bool:
        """Whether the step said nothing."""
        return not (self.drafts or self.names or self.unread)


@dataclass(slots=True)
class Memory:
    """The steps of the last reading, by what they are. `going` is called before each step that is taken, and may raise to end the reading."""

    kept: dict[tuple[Any, ...], _Kept] = field(default_factory=dict)
    empty: dict[tuple[Any, ...], _Kept] = field(default_factory=dict)  # of functions that gave nothing, by their names
    changed: frozenset[str] = frozenset()
    now: dict[tuple[Any, ...], _Kept] = field(default_factory=dict)
    going: Callable[[], None] = lambda: None

    def step(self, interpreter: Interpreter, kind: str, owner: Module | FunctionInfo, run: Callable[[], None]) -> None:
        """Take a step, or give what it gave before. The same step may come several times in one reading."""
        key = self._key(kind, owner)
        known = self.kept.get(key) or self._empty(key, owner)
        if known is not None and known.owner is owner and known.mentions.isdisjoint(self.changed):
            _replay(interpreter, known)
        else:
            self.going()
            known = _taken(interpreter, owner, run)
        self.now[key] = known

    def _empty(self, key: tuple[Any, ...], owner: Module | FunctionInfo) -> _Kept | None:
        """The step of a function that gave nothing when it last read so; None where there was none."""
        if not isinstance(owner, FunctionInfo):
            return None
        known = self.empty.get(_named(key, owner))
        if known is None or not isinstance(known.owner, FunctionInfo) or known.owner.text != owner.text:
            return None
        return replace(known, owner=owner, entered=frozenset())

    def finish(self) -> None:
        """The reading is complete: its steps count from now on."""
        self.kept, self.now = self.now, {}
        self.empty = {
            _named(key, kept.owner): kept
            for key, kept in self.kept.items()
            if kept.is_empty and isinstance(kept.owner, FunctionInfo)
        }

    def forget(self) -> None:
        """The next reading takes every step."""
        self.kept, self.empty = {}, {}

    def _key(self, kind: str, owner: Module | FunctionInfo) -> tuple[Any, ...]:
        number = 0
        while (key := (kind, id(owner), number)) in self.now:
            number += 1
        return key


def _named(key: tuple[Any, ...], owner: FunctionInfo) -> tuple[Any, ...]:
    """What stays of the key of a function's step when its file is parsed anew."""
    kind, _, number = key
    return kind, owner.module.path, owner.qualname, number


def _taken(interpreter: Interpreter, owner: Module | FunctionInfo, run: Callable[[], None]) -> _Kept:
    index = interpreter.index
    drafts, names, unread = len(interpreter.drafts), len(interpreter.text_names), len(index.unread)
    asked, total, entered = index.asked_number, interpreter.total, set(interpreter._entered)
    run()
    new = tuple(interpreter.drafts[drafts:])
    return _Kept(
        owner,
        new,
        tuple(itertools.islice(interpreter.text_names.items(), names, None)),
        index.asked(asked),
        tuple(index.unread[unread:]),
        frozenset(interpreter._entered - entered),
        interpreter.total - total,
        frozenset(path for draft in new for path in _mentioned(draft)),
    )


def _replay(interpreter: Interpreter, known: _Kept) -> None:
    for path in known.parsed:
        interpreter.index.module(path)
    interpreter.drafts.extend(known.drafts)
    for text, name in known.names:
        interpreter.text_names.setdefault(text, name)
    interpreter.index.unread.extend(one for one in known.unread if one not in interpreter.index.unread)
    interpreter._entered |= known.entered
    interpreter.total += known.steps


def _mentioned(draft: Draft) -> Iterator[str]:
    """The files in which a prompt, its values and the way to it stand."""
    yield draft.prompt.path
    for module, _, _ in draft.chain:
        yield module.source.path
    for block in blocks_of(draft.prompt.blocks):
        yield block.span.path
        yield from _in_segments(block.segments)


def _in_segments(segments: tuple[Segment, ...]) -> Iterator[str]:
    for text in text_of(segments):
        yield text.span.path
    for hole in holes_of(segments):
        yield from _in_hole(hole)


def _in_hole(hole: Hole) -> Iterator[str]:
    yield hole.span.path
    for step in hole.steps:
        yield step.span.path
    for origin in hole.origins:
        for step in origin.steps:
            yield step.span.path


class Warm:
    """The trees and steps of the last reading. One reading at a time; `fork` gives an independent copy."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.files: dict[Path, tuple[Module, FileFound]] = {}
        self.worth: dict[Path, tuple[SourceFile | None, bool]] = {}  # may it hold a root?
        self.sights: dict[int, tuple[Draft, Sight]] = {}
        self._index: Index | None = None
        self._sources: dict[Path, SourceFile | None] = {}

    def fork(self) -> Warm:
        """A copy that may read other texts without a trace here."""
        other = copy.copy(self)
        other.memory = Memory(dict(self.memory.kept), dict(self.memory.empty))
        other.files = dict(self.files)
        other.sights = dict(self.sights)
        other.worth = dict(self.worth)
        other._sources = dict(self._sources)
        return other

    def forget(self) -> None:
        """Take every step again at the next reading. Trees of unchanged files are kept."""
        self.memory.forget()

    def index(self, project: Project) -> Index:
        """The index for the next reading, with the trees of the files that are as they were."""
        new = Index(project)
        changed = {path for path, source in self._sources.items() if project.source(path) is not source}
        if self._index is not None:
            new.take_over(self._index)
            if any(path in changed for path in self._index.unparsed()):
                self.forget()  # who would have read the file does not mention it
        self.memory.now = {}
        self.memory.changed = frozenset(project.display(path) for path in changed)
        self._index = new
        return new

    def finish(self, project: Project) -> None:
        """The reading is complete: its steps count from now on."""
        self.memory.finish()
        alive = {id(draft) for kept in self.memory.kept.values() for draft in kept.drafts}
        self.sights = {key: row for key, row in self.sights.items() if key in alive}
        self._sources = project.read_so_far()

    def is_worth(self, project: Project, path: Path, look: Callable[[Path], bool]) -> bool:
        """Whether a file may hold a root; `look` says so of one that changed."""
        source = project.source(path)
        known = self.worth.get(path)
        if known is None or known[0] is not source:
            known = self.worth[path] = (source, look(path))
        return known[1]

    def sight(self, draft: Draft) -> Sight:
        """What settling needs of a draft; of a kept draft the very same object."""
        known = self.sights.get(id(draft))
        from promptlint.frontends.python.settle import sight

        if known is None or known[0] is not draft:
            known = self.sights[id(draft)] = (draft, sight(draft))
        return known[1]

    def found(self, module: Module, make: Callable[[Module], FileFound]) -> FileFound:
        """What a file says without being evaluated."""
        known = self.files.get(module.path)
        if known is None or known[0] is not module:
            known = self.files[module.path] = (module, make(module))
        return known[1]
