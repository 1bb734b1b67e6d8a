"""Modules, classes and objects: what a name in another file means, what an attribute holds."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any

from promptlint.frontends.python.core import Arguments, identifier
from promptlint.frontends.python.features import features_of
from promptlint.frontends.python.index import ClassInfo, FunctionInfo, Module, Write, bound_names, last_name
from promptlint.frontends.python.loops import Loops
from promptlint.frontends.python.nodes import walk
from promptlint.frontends.python.values import (
    Alt,
    Bound,
    Class,
    Const,
    Dict,
    Frame,
    Function,
    Lib,
    List,
    Message,
    ModuleValue,
    Object,
    Opaque,
    Rest,
    Str,
    SuperDict,
    Template,
    Value,
    worst,
)
from promptlint.ir import BlockKind, Confidence, Growth, Guard, Origin, Volatility
from promptlint.source import Span

__all__ = ["Objects"]

MAX_WRITER = 25  # statements up to which a method is executed to learn what it writes to a field
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
MAX_REGISTERED = 12  # functions of a registry that are followed
MAX_STATEMENTS = 400  # top-level statements that may build one name


class Objects(Loops):
    """Attribute look-up, imports, instances."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._symbolic: dict[int, Object] = {}
        self._bases: dict[int, tuple[Any, ...]] = {}
        self._asked_bases = 0  # classes whose bases are being evaluated: what is asked meanwhile is not yet whole
        self._mro: dict[int, list[ClassInfo]] = {}
        self._building: set[int] = set()
        self._pending: set[tuple[int, str]] = set()
        self._absent: set[tuple[int, str]] = set()
        self._fields: set[tuple[int, str]] = set()
        self._written_cache: dict[int, dict[str, list[Write]]] = {}
        self._subclasses: dict[int, list[ClassInfo]] | None = None

    # ---- modules

    def module_frame(self, module: Module) -> Frame:
        """The frame of a module's top level; filled name by name."""
        frame = self.module_frames.get(id(module))
        if frame is None:
            frame = self.module_frames[id(module)] = Frame(module, at_import=True)
        return frame

    def module_name(self, module: Module, name: str) -> Value | None:
        """A name at the top level of a module: the statements that bind or change it are executed in order, once."""
        frame = self.module_frame(module)
        value = "name", module.source.path, name
        self.note(value)
        found = frame.locals.get(name)
        if found is not None:
            return found
        statements = module.bindings.get(name)
        key = (id(module), name)
        if statements is None:
            with self.sharing(value):
                self.note(("binding", module.source.path, name))
                self.note(("binding", module.source.path, "*"))
                return self._starred(module, name)
        if key in self._pending or len(statements) > MAX_STATEMENTS:
            return None
        self._pending.add(key)
        silent, self.silent = self.silent, self.silent + 1
        stack, self.stack = self.stack, [frame]
        mark = len(self.journal.entries)
        try:
            with self.sharing(value):
                self.note(("binding", module.source.path, name))
                for statement in statements:
                    self.run([statement], frame)
                    self._note_bound(module, statement, value)
                found = frame.locals.get(name)
                if isinstance(found, Dict) and not found.entries and found.rest is None:
                    self._register(module, name)
        finally:
            self.silent = silent
            self.stack = stack
            self._pending.discard(key)
            del self.journal.entries[mark:]  # a module's names stay when an evaluation is undone
        return frame.locals.get(name)

    def _note_bound(self, module: Module, statement: ast.stmt, value: Hashable) -> None:
        """Whoever reads another name that the statement binds has read what was read for this one."""
        if self.reads is not None:
            for other in bound_names(statement):
                self.shared.setdefault(("name", module.source.path, other), set()).add(value)

    def _register(self, module: Module, name: str) -> None:
        """Fill a registry: an empty dict of a module that a decorator of the same module writes to is what the decorated functions make it."""
        registrars = self.registrars(module, name)
        self.note(("registrars", module.path, name, registrars))
        if not registrars:
            return
        for path in self.index.known.decorated(registrars):
            self.index.module(path)
        decorated = self.decorated(registrars)
        self.note(("decorated", registrars, tuple(info.unit for info in decorated)))
        for info in decorated:
            self.note(info.unit)
            frame = self.module_frame(info.module)
            for decorator in getattr(info.node, "decorator_list", ()):
                if last_name(decorator) in registrars:
                    call = ast.copy_location(ast.Call(decorator, [], []), decorator)
                    self.call(self.eval(decorator, frame), Arguments([Function(info)]), call, frame)

    def registrars(self, module: Module, name: str) -> frozenset[str]:
        """The functions of a module that write entries of a dict of the module."""
        return frozenset(
            info.name
            for info in module.functions
            if info.outer is None and info.cls is None and _writes_item(info.node, name)
        )

    def decorated(self, registrars: frozenset[str]) -> list[FunctionInfo]:
        """The first functions of the parsed files that one of these decorators stands on."""
        found = (
            info
            for other in self.index.parsed
            for info in other.functions
            if not registrars.isdisjoint(info.decorators)
        )
        return list(itertools.islice(found, MAX_REGISTERED))

    def _starred(self, module: Module, name: str) -> Value | None:
        """A name that `from M import *` brings in."""
        if name.startswith("_"):
            return None
        key = (id(module), "*" + name)
        if key in self._pending or key in self._absent:
            return None
        if module.stars is None:
            module.stars = [s for s in module.tree.body if isinstance(s, ast.ImportFrom) and s.names[0].name == "*"]
        if not module.stars:
            return None
        self._pending.add(key)
        try:
            for statement in module.stars:
                path = self._import_path(statement, module)
                other = self.index.module(path) if path is not None else None
                if other is not None:
                    found = self.module_name(other, name)
                    if found is not None:
                        return found
        finally:
            self._pending.discard(key)
        if not self._pending:
            self._absent.add(key)
        return None

    def _import_path(self, node: ast.ImportFrom, module: Module) -> Path | None:
        if node.level:
            return self.index.relative(module.path, node.level, node.module)
        return self.index.find(node.module or "", module.path)

    def module_value(self, path: Path) -> Value:
        """A project file or package folder as a value."""
        module = self.index.module(path)
        return ModuleValue(module) if module is not None else Lib(f"<folder>{path}")

    def imported(self, node: ast.ImportFrom, name: str, frame: Frame) -> Value:
        """What `from M import NAME` binds."""
        path = self._import_path(node, frame.module)
        if path is None:
            if node.level:
                # A relative import never gains a library's identity, even when its file is not there.
                return self.by_name(name, self.span_of(node, frame), frame, name)
            return Lib(f"{node.module}.{name}")
        found = self.member(path, name)
        if found is not None:
            return found
        return self.by_name(name, self.span_of(node, frame), frame, name)

    def member(self, path: Path, name: str) -> Value | None:
        """A name of a module or package, its submodules included."""
        module = self.index.module(path)
        if module is not None:
            found = self.module_name(module, name)
            if found is not None:
                return found
        folder = path.parent if path.name == "__init__.py" else path
        for candidate in (folder / f"{name}.py", folder / name / "__init__.py"):
            if candidate in self.index.files and (path.name == "__init__.py" or module is None):
                return self.module_value(candidate)
        return None

    # ---- attributes

    def attribute(self, value: Value, name: str, node: ast.AST, frame: Frame) -> Value:
        """The abstract value of `value.name`."""
        if isinstance(value, Object):
            return self.field(value, name, node, frame)
        if isinstance(value, ModuleValue):
            found = self.member(value.module.path, name)
            return (
                found
                if found is not None
                else self.by_name(self.source_of(node, frame), self.span_of(node, frame), frame, name)
            )
        if isinstance(value, Lib):
            return self._library_attribute(value, name, node, frame)
        if isinstance(value, Class):
            return self._class_attribute(value, name, node, frame)
        if isinstance(value, Alt):
            arms: list[Value] = [
                self.attribute(arm, name, node, frame)
                for arm in value.arms
                if not (isinstance(arm, Const) and arm.value is None)
            ]
            return (
                self.join(value.guard, arms, self.span_of(node, frame))
                if arms
                else self.unknown(self.source_of(node, frame), self.span_of(node, frame), frame)
            )
        if isinstance(value, Opaque):
            return self._opaque_attribute(value, name, node, frame)
        if isinstance(value, Message) and name in {"content", "text", "role"}:
            if name != "role":
                return value.content
            return (
                value.role
                if not isinstance(value.role, str)
                else self.unknown(self.source_of(node, frame), self.span_of(node, frame), frame)
            )
        if isinstance(value, Template) and name in {"template", "prompt", "messages"}:
            return value.text
        if isinstance(value, SuperDict):
            reached = value.get(name)
            return reached if reached is not None else Bound(value, name)
        if isinstance(value, Function) and name in {"__name__", "__doc__"}:
            return self.unknown(self.source_of(node, frame), self.span_of(node, frame), frame)
        return Bound(value, name, node if isinstance(node, ast.expr) else None)

    def _library_attribute(self, value: Lib, name: str, node: ast.AST, frame: Frame) -> Value:
        if value.path.startswith("<folder>"):
            found = self.member(Path(value.path.removeprefix("<folder>")), name)
            return (
                found
                if found is not None
                else self.by_name(self.source_of(node, frame), self.span_of(node, frame), frame, name)
            )
        if value.instance:
            instance = self.sdk.instances.get(value.path)
            if instance is not None and name in instance.attributes:
                return Lib(instance.attributes[name], True, value.arguments)
        path = f"{value.path}.{name}"
        return Lib(path, value.instance, value.arguments)

    def _opaque_attribute(self, value: Opaque, name: str, node: ast.AST, frame: Frame) -> Value:
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        for base in self._types(value):
            flow = self.sources.flows.get(f"{base}.{name}")
            if flow is not None and flow.coarsen in {"day", "month", "process"}:
                return self.coarsen(replace(value, expression=expression, span=span, name=name), flow.coarsen)
        part = self.part(value, name, expression, span, frame)
        return replace(part, type="." + value.type if value.type and not value.type.startswith(".") else value.type)

    def _types(self, value: Opaque) -> list[str]:
        types = [value.type] if value.type and not value.type.startswith(".") else []
        if any(origin.kind == "clock" for origin in value.origins):
            types += ["datetime.datetime", "datetime.date", "pendulum.DateTime", "arrow.Arrow"]
        return types

    def _class_attribute(self, value: Class, name: str, node: ast.AST, frame: Frame) -> Value:
        for info in self.mro(value.info):
            if name in info.methods:
                method = info.methods[name]
                return Function(method, value if "classmethod" in method.decorators else None)
            if name in info.attributes:
                found = self.class_value(info, name)
                if _is_enum(value.info, self):
                    return self._enum_member(found, name, node, frame)
                return found
        if name == "__name__":
            from promptlint.ir import Text

            return Str((Text(value.info.name, self.span_of(node, frame).inexact()),))
        return self.by_name(self.source_of(node, frame), self.span_of(node, frame), frame, name)

    def _enum_member(self, value: Value, name: str, node: ast.AST, frame: Frame) -> Value:
        return value

    def class_value(self, info: ClassInfo, name: str) -> Value:
        """A class-level binding, evaluated in the module."""
        frame = self.module_frame(info.module)
        key = f"<{info.qualname}>.{name}"
        shared = "value", info.unit, name
        self.note(shared)
        found = frame.locals.get(key)
        if found is None:
            if (id(info), key) in self._pending:
                return self.by_name(name, info.module.span(info.node), frame, name)
            self._pending.add((id(info), key))
            with self.sharing(shared):
                self.note(info.unit)
                found = self._evaluated_attribute(info, name, key, frame)
            frame.locals[key] = found
        return found

    def _evaluated_attribute(self, info: ClassInfo, name: str, key: str, frame: Frame) -> Value:
        inner = Frame(info.module, None, parent=frame, at_import=True)
        for other, expression in info.attributes.items():
            if other == name:
                break
            if isinstance(expression, ast.Constant):
                inner.locals[other] = self.eval(expression, inner)
        self.silent += 1
        mark = len(self.journal.entries)
        try:
            found = self.eval(info.attributes[name], inner)
        finally:
            self.silent -= 1
            self._pending.discard((id(info), key))
            del self.journal.entries[mark:]
        return self._field_default(found, info, name, inner)

    def _field_default(self, value: Value, info: ClassInfo, name: str, frame: Frame) -> Value:
        """What `field(default=…)` and `Field(default_factory=…)` give an instance."""
        expression = info.attributes[name]
        if not isinstance(expression, ast.Call) or last_name(expression) not in {
            "field",
            "Field",
            "attrib",
            "ib",
            "PrivateAttr",
        }:
            return value
        for keyword in expression.keywords:
            if keyword.arg == "default":
                return self.eval(keyword.value, frame)
            if keyword.arg in {"default_factory", "factory"}:
                # Called for each instance, not at import; when the instance was made that we look at, the class does not say.
                made = Frame(info.module, None, parent=frame)
                call = ast.copy_location(ast.Call(keyword.value, [], []), keyword.value)
                return _of_some_time(self.call(self.eval(keyword.value, made), Arguments(), call, made), name)
        if expression.args and not (isinstance(expression.args[0], ast.Constant) and expression.args[0].value is ...):
            return self.eval(expression.args[0], frame)
        return self.setting(name, info.module.span(expression), frame)

    def setting(self, name: str, span: Span, frame: Frame | None, expression: str = "", **rest: Any) -> Opaque:
        """A field or constructor argument that nothing in the project sets: fixed when the program starts, unless its name says otherwise."""
        fact = self.fact(name)
        if fact.confidence > Confidence.LOW:
            return self.by_name(expression or name, span, frame, name, **rest)
        origin = Origin("setting", Volatility.PROCESS, Confidence.MEDIUM, expression or name, span)
        return Opaque(expression or name, span, (origin,), name, **rest)

    # ---- classes

    def mro(self, info: ClassInfo) -> list[ClassInfo]:
        """The class and its bases inside the project, nearest first."""
        known = self._mro.get(id(info))
        if known is not None:
            if self.reads is not None:
                self.reads.update(read for one in known for read in (one.unit, ("bases", one.unit)))
            return known
        result: list[ClassInfo] = []
        queue = [info]
        while queue and len(result) < 24:
            current = queue.pop(0)
            if current in result:
                continue
            result.append(current)
            self.note(current.unit)
            queue.extend(base.info for base in self.bases(current) if isinstance(base, Class))
        if not self._asked_bases:
            self._mro[id(info)] = result
        return result

    def bases(self, info: ClassInfo) -> tuple[Any, ...]:
        """The evaluated base classes."""
        self.note(("bases", info.unit))
        found = self._bases.get(id(info))
        if found is None:
            self._bases[id(info)] = ()
            self._asked_bases += 1
            frame = self.module_frame(info.module)
            result = []
            try:
                with self.sharing(("bases", info.unit)):
                    self.note(info.unit)
                    for base in info.node.bases:
                        expression = base.value if isinstance(base, ast.Subscript) else base
                        if isinstance(expression, ast.Name | ast.Attribute):
                            result.append(self.eval(expression, frame))
            finally:
                self._asked_bases -= 1
            found = self._bases[id(info)] = tuple(result)
        return found

    def library_bases(self, info: ClassInfo) -> list[str]:
        """Dotted names of the bases that come from libraries."""
        return [base.path for one in self.mro(info) for base in self.bases(one) if isinstance(base, Lib)]

    def subclasses(self, info: ClassInfo) -> list[ClassInfo]:
        """Classes of the parsed files that derive from this one."""
        if self._subclasses is None:
            self._subclasses = {}
            reads, self.reads = self.reads, None if self.reads is None else set()  # only the answer counts
            for module in self.index.parsed:
                for cls in module.classes.values():
                    for base in self.mro(cls)[1:]:
                        self._subclasses.setdefault(id(base), []).append(cls)
            self.reads = reads
        found = self._subclasses.get(id(info), [])
        if self.reads is not None:
            units = tuple(one.unit for one in found)
            self.reads.update(units, [("subclasses", info.unit, units)])
        return found

    def find_method(self, value: Object, name: str) -> FunctionInfo | None:
        """A method of an object's class or its bases."""
        for info in self.mro(value.info):
            if name in info.methods:
                return info.methods[name]
        return None

    def field(self, value: Object, name: str, node: ast.AST, frame: Frame) -> Value:
        """An attribute of an instance."""
        found = value.fields.get(name)
        if found is not None:
            return self._set_by_others(value, name, node, frame) if value.symbolic and _is_none(found) else found
        for info in self.mro(value.info):
            method = info.methods.get(name)
            if method is not None:
                decorators = set(method.decorators)
                if decorators & {
                    "property",
                    "cached_property",
                    "computed_field",
                    "functools.cached_property",
                    "hybrid_property",
                }:
                    result = self.call_function(method, value, Arguments(), node, frame)
                    return self.lengthen(result, Volatility.SESSION) if "cached_property" in decorators else result
                if "staticmethod" in decorators:
                    return Function(method)
                return Function(method, Class(value.info) if "classmethod" in decorators else value)
            if name in info.attributes and not (value.symbolic and name in self._written(value.info)):
                found = self.class_value(info, name)
                return self._set_by_others(value, name, node, frame) if value.symbolic and _is_none(found) else found
        if value.symbolic or name in self._written(value.info):
            found = self._joined_field(value, name)
            if found is not None and not (value.symbolic and _is_none(found)):
                value.fields.setdefault(name, found)
                return found
        for info in self.mro(value.info):
            if name in info.attributes:
                found = self.class_value(info, name)
                return self._set_by_others(value, name, node, frame) if value.symbolic and _is_none(found) else found
            if name in info.annotations:
                return self._set_by_others(value, name, node, frame)
        if name == "__class__":
            return Class(value.info)
        for base in self.library_bases(value.info):
            path = f"{base.rsplit('.', 1)[-1]}.{name}"
            if path in self.sdk.sinks or f"{base}.{name}" in self.sdk.sinks:
                return Lib(path if path in self.sdk.sinks else f"{base}.{name}", True)
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        return self.by_name(expression, span, frame, name, parameter=False)

    def _set_by_others(self, value: Object, name: str, node: ast.AST, frame: Frame) -> Value:
        """A field that the class declares and leaves open, or leaves at None: whoever makes the object sets it, so its name and type tell."""
        span, expression = self.span_of(node, frame), self.source_of(node, frame)
        owner = next((info for info in self.mro(value.info) if name in info.annotations), None)
        typed: Value | None = None
        if owner is not None:
            typed = self.annotated(owner.annotations[name], name, span, self.module_frame(owner.module))
            if typed is not None and not isinstance(typed, Opaque):
                return typed
        dotted = expression.removeprefix("self.")
        whole = self.best_fact(dotted, name) if _DOTTED.fullmatch(dotted) else self.fact(name)
        made = (
            self.by_name(expression, span, frame, dotted, name, optional=True)
            if whole.confidence > Confidence.LOW and "." in dotted
            else self.setting(name, span, frame, expression, optional=True)
        )
        if isinstance(typed, Opaque):
            made = replace(made, type=typed.type, unordered=typed.unordered)
        return made

    def _written(self, info: ClassInfo) -> dict[str, list[Write]]:
        key = id(info)
        cached = self._written_cache
        if self.reads is not None:
            self.mro(info)  # notes what is read
        if key not in cached:
            result: dict[str, list[Write]] = {}
            for one in self.mro(info):
                for name, writes in one.writes.items():
                    result.setdefault(name, []).extend(writes)
            cached[key] = result
        return cached[key]

    def _joined_field(self, value: Object, name: str) -> Value | None:
        """A field over all methods of the class: what they assign, joined; a list that a method appends to is a growing one."""
        key = (id(value.info), name)
        if key in self._fields:
            return None
        with self.sharing(("field", value.info.unit, name)):
            return self._joined_writes(value, name, key)

    def _joined_writes(self, value: Object, name: str, key: tuple[int, str]) -> Value | None:
        writes = [
            write
            for write in self._written(value.info).get(name, ())
            if write.function.name not in {"__init__", "__post_init__"}
        ]
        if not writes:
            return None
        self._fields.add(key)
        try:
            values: list[Value] = []
            grows: Write | None = None
            for write in writes[:6]:
                if write.how in {"append", "augment"}:
                    grows = write
                    continue
                expression = getattr(write.node, "value", None)
                if write.how != "assign" or expression is None:
                    grows = grows or write
                    continue
                got = self._evaluate_write(value, write, name)
                if got is not None:
                    values.append(got)
            module = writes[0].function.module
            span = module.span(writes[0].node)
            if grows is not None:
                place = grows.function.module.span(grows.node)
                hole = self.by_name(f"self.{name}", place, None, name)
                if hole.kind is None and hole.growth is Growth.FIXED:
                    hole = replace(
                        hole,
                        growth=Growth.APPEND,
                        origins=(Origin("history", Volatility.SESSION, Confidence.MEDIUM, f"self.{name}", place),),
                    )
                known = [one for one in values if isinstance(one, List)]
                items = known[0].items if known else ()
                return List((*items, Rest(replace(hole, growth=Growth.APPEND), place)), span)
            values = [one for one in values if not (isinstance(one, Const) and one.value is None)] or values
            if not values:
                return None
            if len(values) == 1:
                return values[0]
            return self.join(self._write_guard(writes, name), values, span)
        finally:
            self._fields.discard(key)

    def _write_guard(self, writes: list[Write], name: str) -> Guard:
        """What decides which of a field's values is there: the condition around the first write that has one, else the field itself."""
        for write in writes:
            self.note(write.function.unit)
            test = _condition_around(write.node, write.function.node)
            if test is not None:
                frame = self.module_frame(write.function.module)
                expression = self.source_of(test, frame)
                span = self.span_of(test, frame)
                return self.guard(test, frame, self.by_name(expression, span, None, identifier(expression)))
        span = writes[0].function.module.span(writes[0].node)
        value = self.by_name(f"self.{name}", span, None, name)
        volatility, confidence = worst(value.origins)
        return Guard(value.expression, span, volatility, confidence, value.origins)

    def _evaluate_write(self, value: Object, write: Write, name: str) -> Value | None:
        """What one method writes to a field: the method is executed on the object and the field read."""
        mark = self.journal.mark()
        self.silent += 1
        self.note(write.function.unit)
        try:
            if len(self.stack) < 6 and self.steps < self.soft // 2:
                if features_of(write.function.node).statements > MAX_WRITER:
                    return self._evaluate_alone(value, write)
                kept = value.fields.get(name)
                self.enter(write.function, value)
                found = value.fields.get(name)
                if found is not None and found is not kept:
                    return found
            return None
        finally:
            self.silent -= 1
            self.journal.undo(mark)

    def _evaluate_alone(self, value: Object, write: Write) -> Value | None:
        """The right side of one assignment, where its method is too long to execute for one field."""
        inner = self.open_frame(write.function, value)
        self.stack.append(inner)
        try:
            expression: ast.expr = write.node.value  # type: ignore[attr-defined]
            return self.eval(expression, inner)
        finally:
            self.stack.pop()

    def open_frame(self, info: FunctionInfo, receiver: Value | None) -> Frame:
        """A frame of a function with its parameters bound as `enter` does."""
        raise NotImplementedError

    def enter(self, info: FunctionInfo, receiver: Value | None) -> tuple[Frame, Value]:
        """Evaluate a function from outside: its parameters are what callers, annotations and names say."""
        raise NotImplementedError

    # ---- instances

    def symbolic(self, info: ClassInfo) -> Object:
        """The object that stands for any instance of a class: its constructor is executed with what the project passes to it."""
        self.note(("object", info.unit))
        found = self._symbolic.get(id(info))
        if found is None:
            with self.sharing(("object", info.unit)):
                found = self._made_symbolic(info)
        return found

    def _made_symbolic(self, info: ClassInfo) -> Object:
        found = Object(info, info.module.span(info.node), symbolic=True)
        self._symbolic[id(info)] = found
        self.silent += 1
        mark = len(self.journal.entries)
        stack, self.stack = self.stack, []
        steps, self.steps = self.steps, 0
        try:
            self.initialise(found, None, info.node, self.module_frame(info.module))
        finally:
            self.silent -= 1
            self.stack = stack
            self.steps = steps
            del self.journal.entries[mark:]
        for name, writes in self._written(info).items():
            grown = [
                write for write in writes if write.how in {"append", "augment"} and write.function.name != "__init__"
            ]
            current = found.fields.get(name)
            if grown and isinstance(current, List) and not any(isinstance(item, Rest) for item in current.items):
                place = grown[0].function.module.span(grown[0].node)
                hole = self.by_name(f"self.{name}", place, None, name)
                if hole.kind is not BlockKind.HISTORY:
                    origin = Origin("history", Volatility.SESSION, Confidence.MEDIUM, f"self.{name}", place)
                    hole = replace(hole, origins=(origin,), kind=hole.kind)
                current.items = (*current.items, Rest(replace(hole, growth=Growth.APPEND), place))
            elif isinstance(current, Const) and current.value is None:
                others = [write for write in writes if write.function.name != "__init__"]
                if others:
                    del found.fields[name]
                    joined = self._joined_field(found, name)
                    found.fields[name] = joined if joined is not None else current
            elif (
                isinstance(current, Const)
                and isinstance(current.value, int | float)
                and not isinstance(current.value, bool)
            ):
                others = [write for write in writes if write.function.name != "__init__"]
                if others:
                    kind = "counter" if any(write.how == "augment" for write in others) else "state"
                    place = others[0].function.module.span(others[0].node)
                    found.fields[name] = Opaque(
                        f"self.{name}",
                        place,
                        (Origin(kind, Volatility.TURN, Confidence.MEDIUM, f"self.{name}", place),),
                        name,
                    )
            elif isinstance(current, Str):
                others = [write for write in writes if write.function.name not in {"__init__", "__post_init__"}]
                if others and any(write.how == "assign" for write in others):
                    del found.fields[name]
                    joined = self._joined_field(found, name)
                    place = others[0].function.module.span(others[0].node)
                    if joined is None:
                        found.fields[name] = current
                    else:
                        found.fields[name] = self.join(self._write_guard(others, name), [joined, current], place)
        return found

    def initialise(self, value: Object, arguments: Arguments | None, node: ast.AST, frame: Frame) -> None:
        """Run the constructor. `arguments` None: they are what the parameters' names and defaults say."""
        raise NotImplementedError

    def lengthen(self, value: Value, ceiling: Volatility) -> Value:
        """A value that is computed once and kept: it lives at least as long as its keeper."""
        if isinstance(value, Opaque):
            return replace(
                value, origins=tuple(replace(o, volatility=min(o.volatility, ceiling)) for o in value.origins)
            )
        if isinstance(value, Str):
            from promptlint.ir import Hole

            def shorten(segment: Any) -> Any:
                if isinstance(segment, Hole):
                    origins = tuple(replace(o, volatility=min(o.volatility, ceiling)) for o in segment.origins)
                    return replace(segment, volatility=min(segment.volatility, ceiling), origins=origins)
                return segment

            return Str(tuple(shorten(segment) for segment in value.segments))
        return value


def _writes_item(node: ast.AST, name: str) -> bool:
    """Whether a function writes an entry of the dict that a name means."""
    return any(
        isinstance(one, ast.Subscript)
        and isinstance(one.ctx, ast.Store)
        and isinstance(one.value, ast.Name)
        and one.value.id == name
        for one in walk(node)
    )


def _condition_around(node: ast.AST, function: ast.AST) -> ast.expr | None:
    """The test of the innermost `if` that a statement of a function stands in."""
    found: ast.expr | None = None
    place = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    for one in walk(function):
        if isinstance(one, ast.If):
            inside = (*one.body, *one.orelse)
            if any(
                (s.lineno, s.col_offset) <= place <= (s.end_lineno or s.lineno, s.end_col_offset or 0) for s in inside
            ):
                found = one.test
    return found


def _is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def _of_some_time(value: Value, name: str) -> Value:
    """A clock or random value that was read when an object was made: a date of a record, or of the program's start."""
    if not isinstance(value, Opaque):
        return value
    origins = tuple(
        replace(origin, confidence=Confidence.LOW) if origin.kind in {"clock", "random"} else origin
        for origin in value.origins
    )
    return replace(value, origins=origins, name=name)


def _is_enum(info: ClassInfo, objects: Objects) -> bool:
    return any(base.rsplit(".", 1)[-1] in {"Enum", "StrEnum", "IntEnum"} for base in objects.library_bases(info))
