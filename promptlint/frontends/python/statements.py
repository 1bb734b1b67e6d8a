"""Statements: flow-sensitive, branches joined, loops run until stable and then widened."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from promptlint.frontends.python.core import identifier
from promptlint.frontends.python.expressions import Expressions
from promptlint.frontends.python.features import worth_executing
from promptlint.frontends.python.index import FunctionInfo, last_name
from promptlint.frontends.python.known import Brief
from promptlint.frontends.python.nodes import walk
from promptlint.frontends.python.values import (
    Alt,
    Class,
    Const,
    Dict,
    Elem,
    Entry,
    Frame,
    Function,
    Item,
    Journal,
    Lib,
    List,
    Object,
    Opaque,
    Rest,
    Str,
    Template,
    Value,
    contained,
)
from promptlint.ir import Confidence, Guard, Origin, Volatility
from promptlint.source import Span

__all__ = ["Changed", "Statements"]

Changed = dict[tuple[int, str], tuple[Any, str, Any, Any]]


class Statements(Expressions):
    """`run` and what it needs. It answers whether every way through the statements leaves them by return, raise, break or continue."""

    def run(self, body: Sequence[ast.stmt], frame: Frame) -> bool:
        """Execute statements; True when control does not reach the end."""
        for position, statement in enumerate(body):
            self.steps += 1
            kind = type(statement)
            if kind is ast.If:
                ended = self._if(statement, body[position + 1 :], frame)  # type: ignore[arg-type]
                if ended is not None:
                    return ended
                continue
            handler = getattr(self, "_do_" + kind.__name__, None)
            if handler is not None and handler(statement, frame):
                return True
        return False

    # ---- simple statements

    def _do_Expr(self, node: ast.Expr, frame: Frame) -> bool:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and not worth_executing(value, self.sending, self._stands_for_little(value)):
            return False
        self.eval(node.value, frame)
        return False

    def _stands_for_little(self, node: ast.Call) -> bool:
        """Whether a statement calls a function of the project that is worth following."""
        name = last_name(node.func)
        answer = self.is_worth_following(name)
        self.note(("followed", name, answer))
        return answer

    def is_worth_following(self, name: str) -> bool:
        """Whether a function of a name may build text, send it, or pass a value on."""
        return any(self.interesting(info) for info in self.index.functions_named(name)[:4]) or any(
            self.tells(brief) for brief in self.index.known.functions(name)[:4]
        )

    def tells(self, brief: Brief, depth: int = 0) -> bool:
        """The same about a function of which only the survey of another part speaks."""
        raise NotImplementedError

    def interesting(self, info: FunctionInfo, depth: int = 0) -> bool:
        """Whether a function may build text, send it, or pass a value on."""
        raise NotImplementedError

    def _do_Return(self, node: ast.Return, frame: Frame) -> bool:
        value: Value = (
            self.eval(node.value, frame) if node.value is not None else Const(None, self.span_of(node, frame))
        )
        frame.returns.append((None, value))
        return True

    def _do_Raise(self, node: ast.Raise, frame: Frame) -> bool:
        return True

    def _do_Break(self, node: ast.Break, frame: Frame) -> bool:
        return True

    def _do_Continue(self, node: ast.Continue, frame: Frame) -> bool:
        return True

    def _do_Assign(self, node: ast.Assign, frame: Frame) -> bool:
        value = self.eval(node.value, frame)
        if (
            isinstance(value, Opaque)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and not value.name
        ):
            value = replace(value, name=node.targets[0].id)
        for target in node.targets:
            self.bind(target, value, frame)
        return False

    def _do_AnnAssign(self, node: ast.AnnAssign, frame: Frame) -> bool:
        if node.value is not None:
            value = self.eval(node.value, frame)
            if isinstance(value, Opaque) and not value.type:
                typed = self.annotated(
                    node.annotation, self.source_of(node.target, frame), self.span_of(node.value, frame), frame
                )
                if isinstance(typed, Lib | Object):
                    value = typed
                elif isinstance(typed, Opaque) and (typed.type or typed.unordered):
                    value = replace(value, type=typed.type, unordered=typed.unordered)
            self.bind(node.target, value, frame)
        return False

    def annotated(self, annotation: ast.expr | None, name: str, span: Span, frame: Frame) -> Value | None:
        """A value of which the annotation is known."""
        raise NotImplementedError

    def _do_AugAssign(self, node: ast.AugAssign, frame: Frame) -> bool:
        load = _as_load(node.target)
        current = self.eval(load, frame)
        value = self.eval(node.value, frame)
        if isinstance(node.op, ast.Add):
            if isinstance(current, List):
                items = self.items_of(value, node.value, frame)
                self.journal.set_slot(current, "items", (*current.items, *_at(items, self.span_of(node, frame), node)))
                return False
            result = self.add(current, value, node.target, node.value, node, frame)
        elif isinstance(node.op, ast.Mod):
            result = self.percent(current, value, node, frame) or self.derived(
                self.source_of(node, frame), self.span_of(node, frame), current, value
            )
        elif isinstance(node.op, ast.BitOr) and isinstance(current, Dict):
            self.update(current, value, node.value, frame)
            return False
        else:
            result = self.derived(
                self.source_of(node, frame),
                self.span_of(node, frame),
                current,
                value,
                name=identifier(self.source_of(node.target, frame)),
            )
            if isinstance(current, Const) and isinstance(value, Const):
                binary = ast.copy_location(ast.BinOp(load, node.op, node.value), node)
                result_value = self.eval(binary, frame)
                self.bind(node.target, result_value, frame)
                return False
        self.bind(node.target, result, frame)
        return False

    def update(self, target: Dict, value: Value, node: ast.AST, frame: Frame) -> None:
        """`target.update(value)`."""
        if isinstance(value, Dict):
            entries = {entry.key: entry for entry in target.entries}
            for entry in value.entries:
                entries[entry.key] = entry
            self.journal.set_slot(target, "entries", tuple(entries.values()))
            if value.rest is not None:
                self.journal.set_slot(target, "rest", value.rest)
        else:
            self.journal.set_slot(target, "rest", self.opaque(value, node, frame))

    def _do_Delete(self, node: ast.Delete, frame: Frame) -> bool:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                owner = self.eval(target.value, frame)
                key = self._plain(self.eval(target.slice, frame)) if not isinstance(target.slice, ast.Slice) else None
                if isinstance(owner, Dict) and key is not None:
                    self.journal.set_slot(owner, "entries", tuple(e for e in owner.entries if e.key != str(key[0])))
                elif isinstance(owner, List):
                    self._delete(owner, target, key, frame)
        return False

    def _delete(self, owner: List, target: ast.Subscript, key: tuple[Any] | None, frame: Frame) -> None:
        items = owner.items
        if (
            key is not None
            and isinstance(key[0], int)
            and all(isinstance(item, Elem) for item in items)
            and -len(items) <= key[0] < len(items)
        ):
            place = key[0] % len(items)
            self.journal.set_slot(owner, "items", (*items[:place], *items[place + 1 :]))
        elif isinstance(target.slice, ast.Slice) and all(isinstance(item, Elem) for item in items):
            kept = list(items)
            bounds = [
                self._plain(self.eval(b, frame)) if b is not None else (None,)
                for b in (target.slice.lower, target.slice.upper)
            ]
            if all(bound is not None for bound in bounds):
                del kept[slice(bounds[0][0], bounds[1][0])]  # type: ignore[index]
                self.journal.set_slot(owner, "items", tuple(kept))

    def _do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef, frame: Frame) -> bool:
        info = frame.module.by_node.get(id(node))
        if info is not None:
            self.journal.set(frame.locals, node.name, Function(info, None, frame if frame.function else None))
        return False

    _do_AsyncFunctionDef = _do_FunctionDef

    def _do_ClassDef(self, node: ast.ClassDef, frame: Frame) -> bool:
        info = frame.module.classes.get(id(node))
        if info is not None:
            self.journal.set(frame.locals, node.name, Class(info))
            if frame.function is not None:
                self.class_frames[id(info)] = frame  # its methods see the names of the function around it
                if self.reads is not None:
                    self.shared["frame", info.unit] = self.reads
        return False

    def _do_Import(self, node: ast.Import, frame: Frame) -> bool:
        for alias in node.names:
            path = self.index.find(alias.name, frame.module.path)
            name = alias.asname or alias.name.split(".")[0]
            if path is None:
                value: Value = Lib(alias.name if alias.asname else name)
            elif alias.asname:
                value = self.module_value(path)
            else:
                top = self.index.find(name, frame.module.path)
                value = self.module_value(top) if top is not None else Lib(name)
            self.journal.set(frame.locals, name, value)
        return False

    def module_value(self, path: Any) -> Value:
        """A project file or package folder as a value."""
        raise NotImplementedError

    def _do_ImportFrom(self, node: ast.ImportFrom, frame: Frame) -> bool:
        for alias in node.names:
            if alias.name == "*":
                continue  # looked up on demand by `module_name`
            self.journal.set(frame.locals, alias.asname or alias.name, self.imported(node, alias.name, frame))
        return False

    def imported(self, node: ast.ImportFrom, name: str, frame: Frame) -> Value:
        """What `from M import NAME` binds."""
        raise NotImplementedError

    # ---- binding

    def bind(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Assign a value to a target."""
        if isinstance(target, ast.Name):
            owner = frame
            if frame.function is not None and not isinstance(frame.function.node, ast.Lambda):
                owner = self._scope(target.id, frame)
                if owner is not frame:
                    self.journal.written.append(0)
            self.journal.set(owner.locals, target.id, value)
        elif isinstance(target, ast.Attribute):
            owner_value = self.eval(target.value, frame)
            if isinstance(owner_value, Object):
                self.journal.set_field(owner_value, target.attr, value)
        elif isinstance(target, ast.Subscript):
            self._bind_item(target, value, frame)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, value, frame)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, value, frame)

    def _scope(self, name: str, frame: Frame) -> Frame:
        """The frame in which a name is written: `nonlocal` and `global` reach out."""
        if name not in _outer_names(frame.function):
            return frame
        scope = frame.parent
        while scope is not None:
            if name in scope.locals:
                return scope
            scope = scope.parent
        module = self.module_frames.get(id(frame.module))
        return module if module is not None else frame

    def _bind_item(self, target: ast.Subscript, value: Value, frame: Frame) -> None:
        owner = self.eval(target.value, frame)
        if isinstance(owner, Alt):
            boxes = [arm for arm in owner.arms if isinstance(arm, List | Dict)]
            owner = boxes[0] if len(boxes) == 1 else owner
        if isinstance(target.slice, ast.Slice):
            if isinstance(owner, List) and target.slice.lower is None and target.slice.upper is None:
                self.journal.set_slot(owner, "items", self.items_of(value, target, frame))
            return
        key = self._plain(self.eval(target.slice, frame))
        place = self.span_of(target, frame)
        if isinstance(owner, Dict):
            if key is not None:
                entries = {entry.key: entry for entry in owner.entries}
                entries[str(key[0])] = Entry(str(key[0]), value, place)
                self.journal.set_slot(owner, "entries", tuple(entries.values()))
            else:
                opaque = self.opaque(value, target, frame)
                self.journal.set_slot(owner, "rest", replace(opaque, origins=contained(opaque.origins)))
        elif isinstance(owner, List) and key is not None and isinstance(key[0], int):
            items = list(owner.items)
            at = key[0] if key[0] >= 0 else len(items) + key[0]
            if 0 <= at < len(items) and (
                all(isinstance(item, Elem) for item in items[: at + 1])
                or (key[0] < 0 and all(isinstance(item, Elem) for item in items[at:]))
            ):
                items[at] = Elem(value, place)
                self.journal.set_slot(owner, "items", tuple(items))

    def _unpack(self, target: ast.Tuple | ast.List, value: Value, frame: Frame) -> None:
        count = len(target.elts)
        starred = [index for index, element in enumerate(target.elts) if isinstance(element, ast.Starred)]
        if isinstance(value, List) and (known := value.plain()) is not None and not value.disorder:
            if not starred and len(known) == count:
                for element, one in zip(target.elts, known, strict=True):
                    self.bind(element, one, frame)
                return
            if len(starred) == 1 and len(known) >= count - 1:
                at = starred[0]
                behind = count - at - 1
                middle = value.items[at : len(known) - behind]
                for element, one in zip(target.elts[:at], known[:at], strict=True):
                    self.bind(element, one, frame)
                self.bind(target.elts[at], List(tuple(middle), value.span), frame)
                for element, one in zip(target.elts[at + 1 :], known[len(known) - behind :], strict=True):
                    self.bind(element, one, frame)
                return
        if isinstance(value, Alt):
            per_arm = [arm.plain() if isinstance(arm, List) else None for arm in value.arms]
            if not starred and all(plain is not None and len(plain) == count for plain in per_arm):
                for index, element in enumerate(target.elts):
                    arms = [plain[index] for plain in per_arm if plain is not None]
                    self.bind(element, self.join(value.guard, arms, value.guard.span), frame)
                return
        opaque = value if isinstance(value, Opaque) else self.opaque(value, target, frame)
        for element in target.elts:
            if isinstance(element, ast.Name):
                self.bind(
                    element,
                    self.part(
                        opaque, element.id, element.id if opaque.expression else "", self.span_of(element, frame), frame
                    ),
                    frame,
                )
            else:
                self.bind(element, opaque, frame)

    # ---- branches

    def _if(self, node: ast.If, rest: Sequence[ast.stmt], frame: Frame) -> bool | None:
        """Execute an `if`. None: go on behind it; True or False: the rest was executed too, or is not reached."""
        test = self.eval(node.test, frame)
        truth = self.truth(test)
        if truth is not None:
            return True if self.run(node.body if truth else node.orelse, frame) else None
        guard = self.guard(node.test, frame, test)
        return self.branch(guard, [node.body, node.orelse], frame)

    def branch(self, guard: Guard, bodies: Sequence[Sequence[ast.stmt]], frame: Frame) -> bool | None:
        """Execute alternative bodies from the same state and join what they leave."""
        mark = self.journal.mark()
        outcomes: list[tuple[bool, Changed]] = []
        began = returned = len(frame.returns)
        for body in bodies:
            ended = self.run(body, frame)
            outcomes.append((ended, self.journal.changed_since(mark)))
            self.journal.undo(mark)
            for index in range(returned, len(frame.returns)):
                condition, value = frame.returns[index]
                if condition is None:
                    frame.returns[index] = (guard, value)
            returned = len(frame.returns)
        alive = [changed for ended, changed in outcomes if not ended]
        if not alive:
            # The last arm's return is reached whenever the others are not.
            if len(frame.returns) > began:
                frame.returns[-1] = (None, frame.returns[-1][1])
            return True
        if len(alive) == 1:
            self._apply(alive[0])
            return None
        self._join_states(guard, alive)
        return None

    def _apply(self, changed: Changed) -> None:
        for target, key, _, now in changed.values():
            if Journal.missing(now):
                continue
            if isinstance(target, dict):
                self.journal.set(target, key, now)
            else:
                self.journal.set_slot(target, key, now)

    def _join_states(self, guard: Guard, states: list[Changed]) -> None:
        places: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        for changed in states:
            for place, (target, key, before, _) in changed.items():
                places.setdefault(place, (target, key, before))
        for place, (target, key, before) in places.items():
            values = [changed[place][3] if place in changed else before for changed in states]
            if isinstance(target, dict):
                present = [value for value in values if not Journal.missing(value)]
                if not present:
                    continue
                if len(present) == 1:
                    self.journal.set(target, key, present[0])  # bound in one arm only: a later use means that arm
                else:
                    self.journal.set(target, key, self.join(guard, present, guard.span))
            elif key == "items":
                self.journal.set_slot(target, key, self.join_items(guard, values, guard.span))
            elif key == "entries":
                self.journal.set_slot(target, key, self._join_entries(guard, values))
            else:
                self.journal.set_slot(target, key, next((value for value in values if value), None))

    def _join_entries(self, guard: Guard, states: list[tuple[Entry, ...]]) -> tuple[Entry, ...]:
        order: dict[str, None] = {}
        for entries in states:
            for entry in entries:
                order.setdefault(entry.key)
        result = []
        for key in order:
            found = [next((entry for entry in entries if entry.key == key), None) for entries in states]
            present = [entry for entry in found if entry is not None]
            if len(present) == len(states):
                value = self.join(guard, [entry.value for entry in present], guard.span)
                result.append(replace(present[0], value=value))
            else:
                result.append(replace(present[0], guard=present[0].guard or guard))
        return tuple(result)

    def _do_Match(self, node: ast.Match, frame: Frame) -> bool:
        subject = self.eval(node.subject, frame)
        plain = self._plain(subject)
        bodies: list[Sequence[ast.stmt]] = []
        exhaustive = False
        for case in node.cases:
            pattern = case.pattern
            if isinstance(pattern, ast.MatchValue) and plain is not None:
                wanted = self._plain(self.eval(pattern.value, frame))
                if wanted is not None and wanted[0] != plain[0]:
                    continue
                if wanted is not None and case.guard is None and not bodies:
                    return self.run(case.body, frame)
            if isinstance(pattern, ast.MatchAs) and pattern.pattern is None and case.guard is None:
                exhaustive = True
                if pattern.name:
                    self.journal.set(frame.locals, pattern.name, subject)
                if not bodies:
                    return self.run(case.body, frame)
            else:
                for name in _captures(pattern):
                    self.journal.set(
                        frame.locals,
                        name,
                        self.part(
                            self.opaque(subject, node.subject, frame),
                            name,
                            name,
                            self.span_of(node.subject, frame),
                            frame,
                        ),
                    )
            bodies.append(case.body)
        if not exhaustive:
            bodies.append([])
        guard = self.guard(node.subject, frame, subject)
        return bool(self.branch(guard, bodies, frame))

    def _do_Try(self, node: ast.Try, frame: Frame) -> bool:
        mark = self.journal.mark()
        returned = len(frame.returns)
        ended = self.run(node.body, frame)
        if not ended:
            ended = self.run(node.orelse, frame)
        after = self.journal.changed_since(mark)
        failures = False
        replaced: dict[str, list[Value]] = {}  # texts that were bound in the body, as handlers bind them
        for handler in node.handlers:
            inner = self.journal.mark()
            before = len(frame.returns)
            if handler.name:
                self.journal.set(
                    frame.locals,
                    handler.name,
                    self.by_name(handler.name, self.span_of(handler, frame), frame, "error message"),
                )
            handler_ended = self.run(handler.body, frame)
            for index in range(before, len(frame.returns)):
                condition, value = frame.returns[index]
                if condition is None:
                    frame.returns[index] = (self._failure_guard(handler, frame), value)
            if ended and not handler_ended and not failures:
                failures = True  # the way through the handler is the one that goes on
            else:
                if not ended and not handler_ended:
                    for target, key, _, now in self.journal.changed_since(inner).values():
                        if target is frame.locals and isinstance(now, Str | Template) and (id(target), key) in after:
                            replaced.setdefault(key, []).append(now)
                self.journal.undo(inner)
        for key, values in replaced.items():
            guard = self._failure_guard(node, frame)
            self.journal.set(frame.locals, key, self.join(guard, [frame.locals[key], *values], guard.span))
        if failures and returned < len(frame.returns):
            guard = self._failure_guard(node, frame)
            for index in range(returned, len(frame.returns)):
                condition, value = frame.returns[index]
                if condition is None:
                    frame.returns[index] = (guard, value)
            ended = False
        elif ended and frame.returns[returned:]:
            normal = [entry for entry in frame.returns[returned:] if entry[0] is None]
            others = [entry for entry in frame.returns[returned:] if entry[0] is not None]
            frame.returns[returned:] = [*others, *normal]
        return self.run(node.finalbody, frame) or ended

    _do_TryStar = _do_Try

    def _failure_guard(self, node: ast.AST, frame: Frame) -> Guard:
        span = self.span_of(node, frame)
        origin = Origin("state", Volatility.REQUEST, Confidence.LOW, "failure", span)
        return Guard("failure", span, Volatility.REQUEST, Confidence.LOW, (origin,))

    def _do_With(self, node: ast.With | ast.AsyncWith, frame: Frame) -> bool:
        for item in node.items:
            value = self.eval(item.context_expr, frame)
            if item.optional_vars is not None:
                if isinstance(value, Object):
                    enter = self.find_method(value, "__enter__") or self.find_method(value, "__aenter__")
                    if enter is not None:
                        from promptlint.frontends.python.core import Arguments

                        value = self.call_function(enter, value, Arguments(), item.context_expr, frame)
                elif (
                    isinstance(value, List)
                    and value.kind == "list"
                    and len(value.items) == 1
                    and isinstance(value.items[0], Elem)
                ):
                    value = value.items[0].value  # a @contextmanager function yields once
                self.bind(item.optional_vars, value, frame)
        return self.run(node.body, frame)

    _do_AsyncWith = _do_With


def _at(items: tuple[Item, ...], span: Span, node: ast.AugAssign) -> tuple[Item, ...]:
    """Elements added by `+=` of a variable are placed by that statement; those of a display are placed where they stand."""
    if isinstance(node.value, ast.List | ast.Tuple):
        return items
    return tuple(replace(item, placed=span) if isinstance(item, Rest) else item for item in items)


def _as_load(target: ast.expr) -> ast.expr:
    return target


def _outer_names(function: FunctionInfo | None) -> frozenset[str]:
    """Names that a function declares as those of an outer scope; kept on its node."""
    if function is None or isinstance(function.node, ast.Lambda):
        return frozenset()
    found: frozenset[str] | None = function.node.__dict__.get("_outer")
    if found is None:
        declared = [one for one in function.node.body if isinstance(one, ast.Global | ast.Nonlocal)]
        found = function.node._outer = frozenset(name for one in declared for name in one.names)  # type: ignore[union-attr]
    return found


def _captures(pattern: ast.pattern) -> list[str]:
    return [node.name for node in walk(pattern) if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name]
