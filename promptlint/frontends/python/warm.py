"""What one reading of a project leaves for the next one, so that an editor need not wait for what did not change.

A reading is a series of steps: each function that may build a prompt, each file's hooks, statements and literals. `Memory` keeps what each step
gave and what it read: functions, classes and names of modules (units), values that several steps share, and answers to questions about all files. A step that read nothing that changed
gives the same again, with its places moved to where they are now.

Three things are not noted, and the full reading that follows in a pause says them: the order in which files are parsed beyond those that may hold a prompt, names
that import one another in a circle, and how much of its budget a step spends on a value that the next one then has for nothing. `forget` makes the next reading a whole one.

A file counts as unchanged when the project gives the very same `SourceFile` for it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promptlint.frontends.base import Project
from promptlint.frontends.python.changes import Changes, LostError, Moved, changes, paths_in
from promptlint.frontends.python.core import LEAN_STEPS, MODULE_STEPS
from promptlint.frontends.python.index import ClassInfo, FunctionInfo, Index, Module
from promptlint.ir import Text, Unread
from promptlint.source import SourceFile

if TYPE_CHECKING:
    from promptlint.frontends.python.parts import FileFound
    from promptlint.frontends.python.roots import Interpreter
    from promptlint.frontends.python.settle import Sight
    from promptlint.frontends.python.sinks import Draft

__all__ = ["Memory", "Warm"]

_Key = tuple[
    str, tuple[str, ...], int
]  # of a step: what kind of step it is, its function or file, and which of several
_WAITED = ("waited",)  # read by steps that wait for the next reading
_OF_FUNCTIONS = frozenset({"interesting", "declared", "followed"})  # answers that hang on what functions hold


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one step gave, what it `reads`, and the printed paths of the files that it `mentions`.

    `soft`: the budget of a root at its beginning and at its end.
    """

    drafts: tuple[Draft, ...]
    names: tuple[tuple[Text, str], ...]
    asked: tuple[Path, ...]
    unread: tuple[Unread, ...]
    entered: tuple[tuple[FunctionInfo, ClassInfo | None], ...]
    steps: int
    spent: Mapping[Path, int]
    soft: tuple[int, int]
    reads: frozenset[Hashable]
    mentions: frozenset[str]


@dataclass(slots=True)
class Memory:
    """The steps of the last reading, by what they are. `going` is called before each step that is taken, and may raise to end the reading."""

    kept: dict[_Key, _Kept] = field(default_factory=dict)
    shared: dict[Hashable, frozenset[Hashable]] = field(default_factory=dict)
    now: dict[_Key, _Kept] = field(default_factory=dict)
    stale: set[Hashable] = field(default_factory=set)
    moved: Moved = field(default_factory=lambda: Moved({}, {}))
    hasty: bool = False
    waiting: bool = False  # a step gave what it gave before although it would give something else now
    going: Callable[[], None] = lambda: None
    roots: dict[Path, tuple[Module, list[tuple[int, FunctionInfo]]]] = field(default_factory=dict)

    def ranked(
        self, rank: Callable[[Module], list[tuple[int, FunctionInfo]]], module: Module
    ) -> list[tuple[int, FunctionInfo]]:
        """The roots of a module with their ranks, which `rank` finds where the module was parsed anew."""
        known = self.roots.get(module.path)
        if known is None or known[0] is not module:
            known = self.roots[module.path] = module, rank(module)
        return known[1]

    def step(self, interpreter: Interpreter, kind: str, owner: Module | FunctionInfo, run: Callable[[], None]) -> None:
        """Take a step, or give what it gave before. The same step may come several times in one reading."""
        key = self._key(kind, owner)
        known = self._known(interpreter, key)
        if known is None:
            self.going()
            known = _taken(interpreter, owner, run)
        else:
            _replay(interpreter, known)
        self.now[key] = known

    def _known(self, interpreter: Interpreter, key: _Key) -> _Kept | None:
        """What the step gave, where it would give the same again or may wait."""
        known = self.kept.get(key)
        if known is None or not _costs_the_same(interpreter, known):
            return None
        if not self.stale.isdisjoint(known.reads):
            if not self.hasty or key[1][1] in self.moved.edits:
                return None
            self.waiting = True
            known = replace(known, reads=known.reads | {_WAITED})
        try:
            return _moved(known, self.moved)
        except LostError:
            return None

    def begin(
        self,
        stale: set[Hashable],
        found: Mapping[str, Changes],
        modules: Mapping[str, Module],
        judge: Callable[[], Interpreter],
        *,
        hasty: bool = False,
    ) -> None:
        """What the steps of this reading may take from the last one, after these changes of files. `judge` makes an interpreter that answers questions anew.

        `hasty`: where functions of a changed file are to be evaluated, those of other files wait for the next reading.
        """
        self.now = {}
        self.moved = Moved({path: one.edit for path, one in found.items()}, modules)
        self.stale = stale.union({_WAITED}, *(one.units for one in found.values()))
        self.waiting = False
        self._spread()
        answers = _doubtful(found, self.stale)
        if answers and self.kept:
            interpreter = judge()
            asked = {read for reads in self._all_reads() for read in reads if read[0] in answers}  # type: ignore[index]
            self.stale |= {read for read in asked if not _holds(interpreter, read)}  # type: ignore[arg-type]
            self._spread()
        self.hasty = hasty and any(
            key[0] == "visit" and key[1][1] in found and not self.stale.isdisjoint(kept.reads)
            for key, kept in self.kept.items()
        )

    def _all_reads(self) -> Iterator[frozenset[Hashable]]:
        yield from self.shared.values()
        yield from (kept.reads for kept in self.kept.values())

    def _spread(self) -> None:
        """A shared value for which something stale was read is stale."""
        size = -1
        while size != len(self.stale):
            size = len(self.stale)
            self.stale |= {
                value
                for value, reads in self.shared.items()
                if value not in self.stale and not self.stale.isdisjoint(reads)
            }

    def finish(self, shared: Mapping[Hashable, Iterable[Hashable]]) -> None:
        """The reading is complete: its steps count from now on."""
        self.kept, self.now = self.now, {}
        still = {value: reads for value, reads in self.shared.items() if value not in self.stale}
        self.shared = still | {value: still.get(value, frozenset()).union(reads) for value, reads in shared.items()}

    def forget(self) -> None:
        """The next reading takes every step."""
        self.kept, self.shared = {}, {}

    def _key(self, kind: str, owner: Module | FunctionInfo) -> _Key:
        number = 0
        while (key := (kind, _unit(owner), number)) in self.now:
            number += 1
        return key


def _unit(owner: Module | FunctionInfo) -> tuple[str, ...]:
    return owner.unit if isinstance(owner, FunctionInfo) else ("top", owner.source.path)


def _doubtful(found: Mapping[str, Changes], stale: set[Hashable]) -> frozenset[str]:
    """Which questions may have another answer now."""
    doubtful: set[str] = {"registrars"} if found else set()
    if any(one.features for one in found.values()):
        doubtful |= _OF_FUNCTIONS
    if any(one.decorators for one in found.values()):
        doubtful.add("decorated")
    if any(read[0] in ("bases", "class") for read in stale):  # type: ignore[index]
        doubtful.add("subclasses")
    return frozenset(doubtful)


def _holds(interpreter: Interpreter, read: tuple[Any, ...]) -> bool:
    """Whether the answer to a question is the same as before."""
    return bool(_answer(interpreter, *read[:-1]) == read[-1])


def _answer(interpreter: Interpreter, kind: str, subject: Any, *more: Any) -> Any:
    if kind == "followed":
        return interpreter.is_worth_following(subject)
    if kind == "decorated":
        return tuple(info.unit for info in interpreter.decorated(subject))
    if kind == "registrars":
        module = interpreter.index.module(subject)
        return interpreter.registrars(module, *more) if module is not None else None
    info = interpreter.index.unit(subject)
    if isinstance(info, ClassInfo):
        return tuple(one.unit for one in interpreter.subclasses(info))
    if isinstance(info, FunctionInfo):
        return interpreter.interesting(info) if kind == "interesting" else interpreter.is_declared(info)
    return None


def _costs_the_same(interpreter: Interpreter, known: _Kept) -> bool:
    """Whether the step would have the same budgets again."""
    spent = (interpreter.spent[path] + more > MODULE_STEPS for path, more in known.spent.items())
    begin = interpreter.soft
    end = LEAN_STEPS if interpreter.total + known.steps > interpreter.allowance else begin
    return (begin, end) == known.soft and not any(spent)


def _taken(interpreter: Interpreter, owner: Module | FunctionInfo, run: Callable[[], None]) -> _Kept:
    index = interpreter.index
    drafts, names, unread = len(interpreter.drafts), len(interpreter.text_names), len(index.unread)
    total, spent, soft = interpreter.total, interpreter.spent.copy(), interpreter.soft
    entered = len(interpreter.entered)
    interpreter.reads = {_unit(owner)}
    index.asked.clear()
    run()
    new = tuple(interpreter.drafts[drafts:])
    named = tuple(itertools.islice(interpreter.text_names.items(), names, None))
    visited = tuple(itertools.islice(interpreter.entered.values(), entered, None))
    return _Kept(
        new,
        named,
        tuple(dict.fromkeys(index.asked)),
        tuple(index.unread[unread:]),
        visited,
        interpreter.total - total,
        interpreter.spent - spent,
        (soft, interpreter.soft),
        frozenset(interpreter.reads),
        _mentioned(new, named, index.unread[unread:], visited),
    )


def _moved(known: _Kept, moved: Moved) -> _Kept:
    """What a step gave, where it stands now. Raises LostError when a place in it was changed."""
    if known.mentions.isdisjoint(moved.edits):
        return known  # nothing of it stands in a file that changed
    return _Kept(
        tuple(_moved_draft(draft, moved) for draft in known.drafts),
        tuple((moved.value(text), name) for text, name in known.names),
        known.asked,
        tuple(Unread(one.path, moved.line(one.path, one.line), one.reason) for one in known.unread),
        tuple((moved.info(info), cls and moved.info(cls)) for info, cls in known.entered),
        known.steps,
        known.spent,
        known.soft,
        known.reads,
        known.mentions,
    )


def _moved_draft(draft: Draft, moved: Moved) -> Draft:
    from promptlint.frontends.python.sinks import Draft as DraftClass

    prompt = moved.value(draft.prompt)
    chain = tuple(
        (moved.module(module), function and moved.info(function), moved.value(call))
        for module, function, call in draft.chain
    )
    entry = draft.entry and moved.info(draft.entry)
    if prompt is draft.prompt and chain == draft.chain and entry is draft.entry:
        return draft
    return DraftClass(prompt, chain, draft.parameters, entry)


def _replay(interpreter: Interpreter, known: _Kept) -> None:
    for path in known.asked:
        interpreter.index.module(path)
    interpreter.drafts.extend(known.drafts)
    for text, name in known.names:
        interpreter.text_names.setdefault(text, name)
    interpreter.index.unread.extend(one for one in known.unread if one not in interpreter.index.unread)
    for info, cls in known.entered:
        interpreter.entered[id(info), id(cls) if cls is not None else 0] = info, cls
    interpreter.total += known.steps
    interpreter.spent.update(known.spent)
    interpreter.soft = known.soft[1]


def _mentioned(
    drafts: Iterable[Draft],
    names: Iterable[tuple[Text, str]],
    unread: Iterable[Unread],
    entered: Iterable[tuple[FunctionInfo, ClassInfo | None]],
) -> frozenset[str]:
    """The files in which prompts, their values and the ways to them stand."""
    found = {one.path for one in unread}
    found.update(info.module.source.path for pair in entered for info in pair if info is not None)
    seen: set[int] = set()
    for draft in drafts:
        found.update(module.source.path for module, _, _ in draft.chain)
        paths_in(draft.prompt, found, seen)
    for text, _ in names:
        found.add(text.span.path)
    return frozenset(found)


class Warm:
    """The trees and steps of the last reading. One reading at a time; `fork` gives an independent copy."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.files: dict[Path, tuple[Module, FileFound]] = {}
        self.worth: dict[Path, tuple[SourceFile | None, bool]] = {}  # may it hold a root?
        self.sights: dict[int, tuple[Draft, Sight]] = {}
        self._index: Index | None = None
        self._before: Index | None = None  # of the last reading that was not given up
        self._paths: frozenset[Path] = frozenset()  # files that may hold a root
        self._sources: dict[Path, SourceFile | None] = {}

    def fork(self) -> Warm:
        """A copy that may read other texts without a trace here."""
        other = copy.copy(self)
        other.memory = Memory(dict(self.memory.kept), dict(self.memory.shared), roots=dict(self.memory.roots))
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
        if self._index is not None:
            new.take_over(self._index)
            if self._before is None or new.files.keys() != self._before.files.keys():
                self.forget()  # a name may mean another file now
        self._index = new
        return new

    def begin(
        self,
        project: Project,
        paths: Sequence[Path],
        judge: Callable[[Iterable[Path]], Interpreter],
        *,
        hasty: bool = False,
    ) -> None:
        """Find out what changed since the last reading. `paths` are the files that may hold a root, `judge` makes an interpreter that answers questions about these files."""
        before, index = self._before, self._index
        worth, self._paths = self._paths, frozenset(paths)
        stale: set[Hashable] = set()
        found: dict[str, Changes] = {}
        modules: dict[str, Module] = {}
        for path, source in self._sources.items():
            now = project.source(path)
            if now is source or before is None or index is None or not self.memory.kept:
                continue
            shown = project.display(path)
            stale.add(("file", shown))
            if path not in index.files or not (before.has_asked(path) or path in self._paths):
                continue
            old, new = before.tree(path), index.tree(path)
            if old is None or new is None or not before.has_asked(path) or (path in worth) != (path in self._paths):
                self.forget()
            else:
                found[shown], modules[shown] = changes(old, new), new
        asked = [*paths, *(before.asked_files if before is not None else ())]
        self.memory.begin(stale, found, modules, lambda: judge(asked), hasty=hasty)

    def finish(self, project: Project, interpreter: Interpreter) -> None:
        """The reading is complete: its steps count from now on."""
        self._before = self._index
        self.memory.finish(interpreter.shared)
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
