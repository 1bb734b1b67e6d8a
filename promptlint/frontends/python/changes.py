"""What an edit of a file changes: where its places are now, and which of its parts read as before.

Two texts of a file differ in one stretch: what stands before it and what stands behind it is the same. From that the places of everything else follow. A function, class or name
counts as unchanged when the stretch does not touch it, or touches only what is between its statements: comments and blank lines.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from promptlint.frontends.python.features import features_of, is_small
from promptlint.frontends.python.index import ClassInfo, FunctionInfo, Module, Unit
from promptlint.frontends.python.nodes import walk
from promptlint.source import SourceFile, Span

__all__ = ["Changes", "Edit", "LostError", "Moved", "changes", "paths_in"]

Place = tuple[int, int]  # line and column, 1-based, columns in characters


class LostError(Exception):
    """A place lies within what was changed."""


class Edit:
    """The stretch in which two texts differ: from `start` to `old_end` in the old one, to `new_end` in the new one."""

    def __init__(self, old: SourceFile, new: SourceFile) -> None:
        start, old_end, new_end = _stretch(old.text, new.text)
        self.start: Place = old.place(start)
        self.old_end: Place = old.place(old_end)
        self.new_end: Place = new.place(new_end)

    def begin(self, place: Place) -> Place:
        """Where something begins now that began at a place. Raises LostError within the stretch."""
        if place >= self.old_end:
            return self._behind(place)
        if place <= self.start:
            return place
        raise LostError

    def end(self, place: Place) -> Place:
        """Where something ends now that ended at a place. Raises LostError within the stretch."""
        if place <= self.start:
            return place
        if place >= self.old_end:
            return self._behind(place)
        raise LostError

    def line(self, line: int) -> int:
        """Where a line is now. Raises LostError within the stretch."""
        return self.begin((line, 1))[0]

    def span(self, span: Span) -> Span:
        """Where a span is now; the very same where it did not move. Raises LostError within the stretch."""
        begin, end = self.begin((span.line, span.column)), self.end((span.end_line, span.end_column))
        if begin == (span.line, span.column) and end == (span.end_line, span.end_column):
            return span
        return Span(span.path, *begin, *end, span.exact)

    def touches(self, begin: Place, end: Place) -> bool:
        """Whether the stretch overlaps what stands between two places of the old text."""
        return begin < self.old_end and self.start < end

    def _behind(self, place: Place) -> Place:
        line, column = place
        if line == self.old_end[0]:
            return self.new_end[0], column - self.old_end[1] + self.new_end[1]
        return line - self.old_end[0] + self.new_end[0], column


def _stretch(old: str, new: str) -> tuple[int, int, int]:
    """Offsets of the start, of the end in the old text and of the end in the new one. Where it may as well begin at the beginning of a line, it does."""
    start = _common(old, new)
    room = min(len(old), len(new)) - start
    tail = _common(old[len(old) - room :][::-1], new[len(new) - room :][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    back = 0
    while start > back and old[start - back - 1] != "\n":
        back += 1
    moved = old[start - back : start]
    if old[old_end - back : old_end] == moved == new[new_end - back : new_end] and min(old_end, new_end) >= start:
        return start - back, old_end - back, new_end - back
    return start, old_end, new_end


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with together."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed in one file. `units` are the parts that read differently, or came or went.

    `features`: a function may be worth following now that was not before, or the other way round; `decorators`: other functions are decorated, or otherwise.
    """

    edit: Edit
    units: frozenset[Hashable]
    features: bool
    decorators: bool


def changes(old: Module, new: Module) -> Changes:
    """Compare two readings of one file."""
    edit = Edit(old.source, new.source)
    compare = _Comparison(old, new, edit)
    path = new.source.path
    units: set[Hashable] = {("file", path)}
    before, after = compare.before, compare.after
    units |= before.keys() ^ after.keys()
    functions = [(before[unit], after[unit]) for unit in before.keys() & after.keys()]
    units |= {one.unit for one, other in functions if not compare.is_same(one, other)}
    names = old.bindings.keys() | new.bindings.keys()
    units |= {("binding", path, name) for name in names if not compare.is_bound_alike(name)}
    if not compare.is_same_first():
        units.add(("first", path))
    if list(before) != list(after) or not compare.is_same_top(units):
        units.add(("top", path))
    if (old.newer, old.trusted) != (new.newer, new.trusted):
        units |= {*before, *after, ("first", path), ("top", path)}
        units |= {("binding", path, name) for name in (*old.bindings, *new.bindings)}
    touched = [unit for unit in units if unit[0] == "function"]  # type: ignore[index]
    return Changes(
        edit,
        frozenset(units),
        any(_glance(before.get(unit)) != _glance(after.get(unit)) for unit in touched),  # type: ignore[call-overload]
        [(one.unit, one.decorators) for one in old.functions] != [(one.unit, one.decorators) for one in new.functions],
    )


def _glance(info: Any) -> tuple[Any, ...] | None:
    """What decides whether a function is worth following."""
    if info is None:
        return None
    features = features_of(info.node)
    return is_small(info.node), features.text, features.calls, features.declared


class _Comparison:
    def __init__(self, old: Module, new: Module, edit: Edit) -> None:
        self.old, self.new, self.edit = old, new, edit
        self.before, self.after = old.units, new.units

    def is_same(self, old: FunctionInfo | ClassInfo, new: FunctionInfo | ClassInfo) -> bool:
        if isinstance(old, FunctionInfo) and isinstance(new, FunctionInfo):
            return self._same(old.node, new.node)
        return (
            isinstance(old, ClassInfo)
            and isinstance(new, ClassInfo)
            and self._all_same(_head(old.node), _head(new.node))
            and [(name, one.unit, one.decorators) for name, one in old.methods.items()]
            == [(name, one.unit, one.decorators) for name, one in new.methods.items()]
            and self._all_same_named(old.attributes, new.attributes)
            and self._all_same_named(old.annotations, new.annotations)
            and _writes(old) == _writes(new)
        )

    def is_bound_alike(self, name: str) -> bool:
        """Whether the same statements bind a name of the module."""
        return self._all_same(self.old.bindings.get(name, ()), self.new.bindings.get(name, ()))

    def is_same_first(self) -> bool:
        """Whether the first statement is the same."""
        return self._all_same(self.old.tree.body[:1], self.new.tree.body[:1])

    def is_same_top(self, changed: set[Hashable]) -> bool:
        """Whether all that is outside of functions is the same; the functions and classes are known to be the same ones."""
        if any(unit[0] in ("class", "binding") for unit in changed):  # type: ignore[index]
            return False
        bodies = [self.old.tree.body, *(info.node.body for info in self.old.classes.values())]
        others = [self.new.tree.body, *(info.node.body for info in self.new.classes.values())]
        if not all(self._all_same(*pair) for pair in zip(bodies, others, strict=True)):
            return False
        return all(
            self._in_body(one) and self._all_same(_head(one.node), _head(self.after[unit].node))
            for unit, one in self.before.items()
            if unit in changed
        )

    def _in_body(self, info: FunctionInfo | ClassInfo) -> bool:
        """Whether the stretch lies in the body of a function."""
        body = info.node.body
        first = self._begin(self.old, body[0] if isinstance(body, list) else body)
        return first <= self.edit.start

    def _all_same(self, old: Iterable[ast.AST], new: Iterable[ast.AST]) -> bool:
        old, new = list(old), list(new)
        return len(old) == len(new) and all(self._same_or_named(*pair) for pair in zip(old, new, strict=True))

    def _all_same_named(self, old: Mapping[str, ast.AST], new: Mapping[str, ast.AST]) -> bool:
        return list(old) == list(new) and self._all_same(old.values(), new.values())

    def _same_or_named(self, old: ast.AST, new: ast.AST) -> bool:
        """Of functions and classes only the name is compared: they are units of their own."""
        if type(old) is type(new) and isinstance(old, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return _unit(self.old, old) == _unit(self.new, new)
        return self._same(old, new)

    def _same(self, old: ast.AST, new: ast.AST) -> bool:
        begin, end = self._begin(self.old, old), self._end(self.old, old)
        if not self.edit.touches(begin, end):
            try:
                moved = self.edit.begin(begin), self.edit.end(end)
            except LostError:
                return False
            if moved == (self._begin(self.new, new), self._end(self.new, new)):
                return True
        if any(self.edit.touches(self._begin(self.old, one), self._end(self.old, one)) for one in _pieces(old)):
            return False
        return ast.dump(old) == ast.dump(new)

    @staticmethod
    def _begin(module: Module, node: ast.AST) -> Place:
        span = module.span(node)
        decorators = getattr(node, "decorator_list", ())
        return (module.span(decorators[0]).line, 1) if decorators else (span.line, span.column)

    @staticmethod
    def _end(module: Module, node: ast.AST) -> Place:
        span = module.span(node)
        return span.end_line, span.end_column


def _pieces(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions and the statements without a body: what may be quoted as it is written."""
    return (
        one
        for one in walk(node)
        if isinstance(one, ast.expr | ast.arg) or (isinstance(one, ast.stmt) and not hasattr(one, "body"))
    )


def _head(node: Any) -> list[ast.AST]:
    """What stands ahead of the body of a function or class, beside its name."""
    parts: list[Any] = list(getattr(node, "decorator_list", ()))
    if isinstance(node, ast.ClassDef):
        return [*parts, *node.bases, *(keyword.value for keyword in node.keywords)]
    given: ast.arguments = node.args
    return [*parts, *(one for one in ast.iter_child_nodes(given) if isinstance(one, ast.expr | ast.arg))]


def _writes(info: ClassInfo) -> list[tuple[str, list[tuple[Unit, str]]]]:
    return [(name, [(one.function.unit, one.how) for one in writes]) for name, writes in info.writes.items()]


def _unit(module: Module, node: ast.AST) -> Unit | None:
    info = module.by_node.get(id(node)) or module.classes.get(id(node))
    return info.unit if info is not None else None


class Moved:
    """What earlier readings gave, with the places and trees of the files as they are now."""

    def __init__(self, edits: Mapping[str, Edit], modules: Mapping[str, Module]) -> None:
        """By printed paths of the files that changed."""
        self.edits = edits
        self._units = {path: (module, module.units) for path, module in modules.items()}
        self._known: dict[
            int, tuple[Any, Any]
        ] = {}  # by identity; the old value is kept, so that the identity stays its own

    def value(self, old: Any) -> Any:
        """A value of the IR; the very same object where nothing in it moved. Raises LostError where a place in it was changed."""
        kind = type(old)
        if kind is Span:
            edit = self.edits.get(old.path)
            return old if edit is None else edit.span(old)
        if kind is tuple:
            new = tuple([self.value(one) for one in old])
            return old if all(map(_is, old, new)) else new
        names = _fields(kind)
        if not names:
            return old
        known = self._known.get(id(old))
        if known is not None:
            return known[1]
        before = [getattr(old, name) for name in names]
        after = [self.value(one) for one in before]
        made = old if all(map(_is, before, after)) else kind(*after)
        self._known[id(old)] = old, made
        return made

    def line(self, path: str, line: int) -> int:
        """A line. Raises LostError where it was changed."""
        edit = self.edits.get(path)
        return line if edit is None else edit.line(line)

    def module(self, old: Module) -> Module:
        """The tree that a file has now."""
        known = self._units.get(old.source.path)
        return old if known is None else known[0]

    def info(self, old: Any) -> Any:
        """The function or class in the tree that its file has now. Raises LostError where there is none of its name."""
        known = self._units.get(old.module.source.path)
        if known is None:
            return old
        found = known[1].get(old.unit)
        if found is None:
            raise LostError
        return found


def _is(one: object, other: object) -> bool:
    return one is other


_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields(kind: type) -> tuple[str, ...]:
    """The fields of a kind of value in the order of its constructor; none where it holds no others."""
    known = _FIELDS.get(kind)
    if known is None:
        holds = is_dataclass(kind) and not issubclass(kind, Enum)
        known = _FIELDS[kind] = tuple(one.name for one in fields(kind)) if holds else ()
    return known


def paths_in(value: Any, found: set[str], seen: set[int]) -> None:
    """Add the printed paths of all places in a value of the IR."""
    kind = type(value)
    if kind is Span:
        found.add(value.path)
    elif kind is tuple:
        for one in value:
            paths_in(one, found, seen)
    elif id(value) not in seen and (names := _fields(kind)):
        seen.add(id(value))
        for name in names:
            paths_in(getattr(value, name), found, seen)
