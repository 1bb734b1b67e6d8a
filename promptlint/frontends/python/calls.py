"""Calls: project functions are inlined, classes instantiated; methods of builtin values computed; libraries asked by their rows."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from promptlint.catalog.media import load_media
from promptlint.catalog.names import words
from promptlint.frontends.python.core import MAX_DEPTH, Arguments
from promptlint.frontends.python.features import features_of, is_small, noun
from promptlint.frontends.python.index import ClassInfo, FunctionInfo, last_name
from promptlint.frontends.python.known import Brief
from promptlint.frontends.python.methods import Methods
from promptlint.frontends.python.values import (
    Alt,
    Bound,
    Box,
    Class,
    Const,
    Dict,
    Elem,
    Entry,
    Frame,
    Function,
    Item,
    Lib,
    List,
    Message,
    Object,
    Opaque,
    Rest,
    Str,
    Template,
    Value,
    merge_origins,
    origins_of,
    with_step,
)
from promptlint.ir import BlockKind, Confidence, Growth, Origin, Step, Text, Unresolved, Volatility
from promptlint.source import Span

__all__ = ["MESSAGE_LISTS", "Calls"]

_CACHES = frozenset({"cache", "lru_cache", "cached", "alru_cache", "memoize", "cache_data", "cache_resource"})
MAX_INTEREST = 3  # calls deep that are asked whether they hold text
_COMMON_CALLS = frozenset(
    {
        "get",
        "set",
        "time",
        "json",
        "search",
        "text",
        "run",
        "read",
        "find",
        "query",
        "date",
        "page",
        "id",
        "input",
        "list",
        "format",
        "execute",
        "system",
        "request",
        "user",
    }
)
_HEADS = frozenset({"system", "instructions", "instruction"})  # words of a name that say that a text is a system text
MESSAGE_LISTS = frozenset(
    {"messages", "history", "chat_history", "conversation", "message_history", "dialog", "dialogue", "transcript"}
)


class Calls(Methods):
    """`call` and what it needs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.drafts: list[Any] = []
        self._memo: dict[Any, tuple[Value, set[Hashable]]] = {}  # values of calls, with what was read for them
        self._interest: dict[int, bool] = {}
        self._making: dict[str, bool] = {}  # names of calls: do they make something?
        self.telling_calls = (
            frozenset(
                path.rsplit(".", 1)[-1] for path in (*self.sources.sources, *self.sdk.templates, *self.sdk.messages)
            )
            - _COMMON_CALLS
        )

    def call(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The abstract value of a call."""
        if self.silent or len(self.stack) != 1:
            return self._call(callee, arguments, node, frame)
        func = node.func
        name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if self._makes_media(name, func):
            for value in arguments.all():
                self.note_elsewhere(value, self.span_of(node, frame), node, frame)
        drafts = len(self.drafts)
        value = self._call(callee, arguments, node, frame)
        if len(self.drafts) == drafts:
            self._note_pair(callee, arguments, node, frame)
        return value

    def _makes_media(self, name: str, func: ast.expr | None = None) -> bool:
        """Whether a call of this name makes a picture, a film or sound. Asked at every call: most names are told by one look."""
        makes = self._making.get(name)
        if makes is None:
            makes = self._making[name] = load_media().makes(name)
        if not makes:
            return False
        return load_media().makes_media(name, last_name(func.value) if isinstance(func, ast.Attribute) else "")

    def _looks_like_messages(self, value: List) -> bool:
        """Whether a list holds messages."""
        raise NotImplementedError

    def call_generic(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        """Report a prompt when the method's name and the arguments' shape say that it sends one; None when they do not."""
        raise NotImplementedError

    def _note_pair(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> None:
        """A system text and a conversation that go to one call whose prompt we did not see: a conversation under its head."""
        given: dict[int | str, Value] = dict(enumerate(arguments.positional))
        given.update(arguments.keywords)
        if len(given) < 2:
            return
        parameters: list[str] = []
        if isinstance(callee, Function):
            self.note(callee.info.unit)
            parameters = _parameter_names(callee.info)
        shift = 1 if isinstance(callee, Function) and callee.receiver is not None else 0
        head: Elem | None = None
        turns: list[tuple[Item, ...]] = []
        for key, value in given.items():
            named = key if isinstance(key, str) else next(iter(parameters[key + shift : key + shift + 1]), "")
            place = arguments.places.get(key, self.span_of(node, frame))
            if isinstance(value, List) and self._looks_like_messages(value):
                turns.append(value.items)
            elif named in MESSAGE_LISTS and isinstance(value, List | Opaque):
                if not isinstance(value, Opaque) or value.growth is Growth.FIXED:
                    value = self.by_name(arguments.expressions.get(key, named), place, frame, named)
                turns.append((Rest(value, place),))
            elif head is None and isinstance(value, Str | Opaque | Alt):
                said = (named, arguments.expressions.get(key, ""))
                if any(name.isidentifier() and not _HEADS.isdisjoint(words(name)) for name in said):
                    head = Elem(Message("system", value, place), place)
        if head is not None and len(turns) == 1:
            self.note_loose(List((head, *turns[0]), self.span_of(node, frame)), node, frame)

    def _call(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        if isinstance(callee, Function):
            if callee.receiver is not None and self.is_declared(callee.info):
                # Who implements it is not known here, as on a receiver of unknown type.
                named = Opaque(self.source_of(node.func, frame), self.span_of(node, frame), (), callee.info.name)
                sunk = self.call_generic(named, arguments, node, frame)
                if sunk is not None:
                    self.sent += 1
                    return sunk
            return self.call_function(callee.info, callee.receiver, arguments, node, frame, callee.frame)
        if isinstance(callee, Class):
            return self.instantiate(callee.info, arguments, node, frame)
        if isinstance(callee, Lib):
            return self.call_library(callee, arguments, node, frame)
        if isinstance(callee, Bound):
            return self.call_method(callee, arguments, node, frame)
        if isinstance(callee, Alt):
            arms = [arm for arm in callee.arms if not (isinstance(arm, Const) and arm.value is None)]
            if len(arms) <= 6:
                return self.join(
                    callee.guard, [self.call(arm, arguments, node, frame) for arm in arms], self.span_of(node, frame)
                )
        if isinstance(callee, Object):
            method = self.find_method(callee, "__call__") or self.find_method(callee, "forward")
            if method is not None:
                return self.call_function(method, callee, arguments, node, frame)
        if isinstance(callee, Template):
            return self.call_method(Bound(callee, "__call__"), arguments, node, frame)
        return self.call_unknown(callee, arguments, node, frame)

    # ---- project functions

    def _is_followed(self, info: FunctionInfo) -> bool:
        followed = self.interesting(info)
        self.note(("interesting", info.unit, followed))
        return followed

    def is_declared(self, info: FunctionInfo) -> bool:
        """Whether a function's body is left to subclasses."""
        declared = features_of(info.node).declared
        self.note(("declared", info.unit, declared))
        return declared

    def interesting(self, info: FunctionInfo, depth: int = 0) -> bool:
        """Whether a function may build text, send it, or pass a value on: only such a one is worth following.

        Small functions pass values on; a larger one counts when it, or a function that it names, holds text, a clock or a call that may send.
        """
        known = self._interest.get(id(info))
        if known is not None:
            return known
        self._interest[id(info)] = False  # while its callees are asked
        result = is_small(info.node) or features_of(info.node).text
        result = result or not features_of(info.node).calls.isdisjoint(self.telling_calls)
        if not result and depth < MAX_INTEREST:
            for name in sorted(features_of(info.node).calls):
                if any(
                    not is_small(other.node) and self.interesting(other, depth + 1)
                    for other in self.index.functions_named(name)[:4]
                ) or any(
                    not brief.small and self.tells(brief, depth + 1) for brief in self.index.known.functions(name)[:4]
                ):
                    result = True
                    break
        self._interest[id(info)] = result
        return result

    def tells(self, brief: Brief, depth: int = 0) -> bool:
        """The same about a function of which only the survey of another part speaks."""
        known = self._interest.get(id(brief))
        if known is not None:
            return known
        self._interest[id(brief)] = brief.telling
        if not brief.telling and depth < MAX_INTEREST:
            self._interest[id(brief)] = any(
                not other.small and self.tells(other, depth + 1)
                for name in brief.calls
                for other in self.index.known.functions(name)[:4]
            )
        return self._interest[id(brief)]

    def call_function(
        self,
        info: FunctionInfo,
        receiver: Value | None,
        arguments: Arguments,
        node: ast.AST,
        frame: Frame,
        captured: Frame | None = None,
    ) -> Value:
        """The value of a call of a project function: its body is executed with the arguments."""
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        repeated = sum(1 for one in self.stack if one.function is info)
        if len(self.stack) > 1 and not repeated and not self._is_followed(info):
            for value in arguments.all():
                self.note_loose(value, node, frame)
            return self.unknown(
                expression, span, frame, *(origins_of(value) for value in arguments.all()), name=noun(info.name)
            )
        if repeated or len(self.stack) > MAX_DEPTH or self.steps > self.soft:
            if not repeated:
                self.unresolved.append(Unresolved(expression, "budget", span))
            for value in arguments.all():
                self.note_loose(value, node, frame)
            return self.unknown(expression, span, frame, name=info.name)
        if captured is None and info.cls is not None:
            captured = self.frame_around(info.cls)
        key = self._memo_key(info, receiver, arguments, node, frame) if captured is None else None
        if key is None:
            return self._call_body(info, receiver, arguments, node, frame, captured, None)
        known = self._memo.get(key)
        if known is not None:
            if self.reads is not None:
                self.reads |= known[1]
            return known[0]
        outer = self.reads
        if outer is None:
            return self._call_body(info, receiver, arguments, node, frame, captured, key)
        self.reads = set()
        try:
            return self._call_body(info, receiver, arguments, node, frame, captured, key)
        finally:
            outer |= self.reads or set()
            self.reads = outer

    def frame_around(self, cls: ClassInfo | None) -> Frame | None:
        """The call of the function that defined a class, where one did."""
        if cls is None:
            return None
        found = self.class_frames.get(id(cls))
        if found is not None:
            self.note(("frame", cls.unit))
        return found

    def _call_body(
        self,
        info: FunctionInfo,
        receiver: Value | None,
        arguments: Arguments,
        node: ast.AST,
        frame: Frame,
        captured: Frame | None,
        key: Any,
    ) -> Value:
        """Execute a function with the arguments; `key` is under what its value may be kept, None when it may not."""
        span = self.span_of(node, frame)
        mark, serial, drafts = len(self.journal.written), Box.count, len(self.drafts)
        missing, sent = len(self.unresolved), self.sent
        inner = self.frame_for(info, receiver, captured, frame)
        inner.call = span
        if isinstance(node, ast.Call):
            step = Step(span, f"passed to {info.name}")
        else:
            step = Step(span, f"read by {info.name}")
        self.bind_parameters(info, inner, arguments, step, receiver)
        value = self.execute(info, inner)
        if set(info.decorators) & _CACHES:
            value = self.lengthen(value, Volatility.PROCESS if not arguments.all() else Volatility.SESSION)
        value = with_step(value, Step(span, f"returned by {info.name}"))
        if (
            key is not None
            and len(self.drafts) == drafts
            and len(self.unresolved) == missing
            and self.sent == sent
            and self._is_pure(value, mark, serial)
        ):
            self._memo[key] = value, self.reads or set()
        return value

    def _memo_key(
        self, info: FunctionInfo, receiver: Value | None, arguments: Arguments, node: ast.AST, frame: Frame
    ) -> Any:
        """What the value of one call in the source depends on; None when that includes something that may change."""
        if arguments.rest is not None and not _is_plain(arguments.rest):
            return None
        given = (*arguments.positional, *arguments.keywords.values())
        if not all(_is_plain(value) for value in given):
            return None
        if isinstance(receiver, Object):
            owner: Any = (id(receiver), receiver.version, self.journal.box_writes)
        elif receiver is None or isinstance(receiver, Class):
            owner = receiver
        else:
            return None
        reporting = not self.silent
        return (
            id(info),
            id(node),
            owner,
            frame.at_import,
            reporting,
            len(self.stack) > 5,
            tuple(arguments.positional),
            tuple(arguments.keywords.items()),
            arguments.rest_keywords,
        )

    def _is_pure(self, value: Value, mark: int, serial: int) -> bool:
        """Whether a call wrote nothing that was there before, and gives a value without identity."""
        if not _is_plain(value):
            return False
        return all(written > serial for written in self.journal.written[mark:])

    def frame_for(
        self, info: FunctionInfo, receiver: Value | None, captured: Frame | None, caller: Frame | None
    ) -> Frame:
        """A fresh frame of a function."""
        self.note(info.unit)
        if info.cls is not None:
            self.note(info.cls.unit)
        inner = Frame(
            info.module,
            info,
            parent=captured,
            depth=len(self.stack),
            at_import=caller.at_import if caller is not None else False,
        )
        inner.cls = info.cls or (captured.cls if captured is not None else None)
        inner.receiver = receiver if receiver is not None else (captured.receiver if captured is not None else None)
        return inner

    def execute(self, info: FunctionInfo, inner: Frame) -> Value:
        """Run a function's body in a frame whose parameters are bound."""
        self.stack.append(inner)
        try:
            node = info.node
            if isinstance(node, ast.Lambda):
                return self.eval(node.body, inner)
            if (docstring := self.docstring_template(info)) is not None:
                return self.fill_docstring(docstring, inner)
            ended = self.run(node.body, inner)
            if info.is_generator:
                kind = "list"
                return List(tuple(inner.yields), info.module.span(node), kind)
            returns = inner.returns
            if not returns:
                return Const(None, info.module.span(node))
            if not ended and returns[-1][0] is not None:
                returns.append((None, Const(None, info.module.span(node))))
            return self.combine(returns)
        finally:
            self.stack.pop()

    def combine(self, returns: list[Any]) -> Value:
        """The value of a function from its returns: each holds under its guard, the last one otherwise."""
        last = len(returns) - 1
        for position, (guard, _) in enumerate(returns):
            if guard is None:
                last = position
                break
        result: Value = returns[last][1]
        for guard, value in reversed(returns[:last]):
            result = self.join(guard, [value, result], guard.span)
        return result

    def docstring_template(self, info: FunctionInfo) -> Str | None:
        """The docstring of a function that a library uses as its prompt template."""
        raise NotImplementedError

    def fill_docstring(self, template: Str, frame: Frame) -> Value:
        """A docstring template with the parameters bound."""
        raise NotImplementedError

    def bind_parameters(
        self, info: FunctionInfo, frame: Frame, arguments: Arguments, step: Step, receiver: Value | None
    ) -> None:
        """Bind the arguments of a call to parameter names."""
        parameters = info.node.args
        names = [argument.arg for argument in (*parameters.posonlyargs, *parameters.args)]
        defaults = dict(zip(names[len(names) - len(parameters.defaults) :], parameters.defaults, strict=True))
        local = frame.locals
        if receiver is not None and names and "staticmethod" not in info.decorators:
            local[names[0]] = receiver
            names = names[1:]
        positional = list(arguments.positional)
        for position, name in enumerate(names):
            if position < len(positional):
                local[name] = with_step(positional[position], step)
            elif name in arguments.keywords:
                local[name] = with_step(arguments.keywords[name], step)
        for argument in parameters.kwonlyargs:
            if argument.arg in arguments.keywords:
                local[argument.arg] = with_step(arguments.keywords[argument.arg], step)
        known = {*names, *(argument.arg for argument in parameters.kwonlyargs)}
        if parameters.vararg is not None:
            extra = positional[len(names) :]
            items: list[Any] = [
                Elem(value, arguments.places.get(len(names) + i, step.span)) for i, value in enumerate(extra)
            ]
            if arguments.rest is not None:
                items.append(Rest(arguments.rest, step.span))
            local[parameters.vararg.arg] = List(tuple(items), step.span, "tuple")
        if parameters.kwarg is not None:
            entries = tuple(
                Entry(name, value, arguments.places.get(name, step.span))
                for name, value in arguments.keywords.items()
                if name not in known
            )
            local[parameters.kwarg.arg] = Dict(entries, step.span, arguments.rest_keywords)
        unknown_rest = arguments.rest or arguments.rest_keywords
        keyword_defaults = {
            a.arg: d for a, d in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True) if d is not None
        }
        for argument in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs):
            name = argument.arg
            if name in local:
                continue
            default = defaults.get(name) or keyword_defaults.get(name)
            if default is not None and unknown_rest is None:
                local[name] = self.default(info, default)
            else:
                local[name] = self.parameter(info, argument, frame, default)

    def default(self, info: FunctionInfo, node: ast.expr) -> Value:
        """A default argument, evaluated once when the function is defined."""
        module_frame = self.module_frame(info.module)
        inner = Frame(info.module, None, parent=module_frame, at_import=True)
        if info.cls is not None:
            for name, expression in info.cls.attributes.items():
                if isinstance(node, ast.Name) and node.id == name:
                    return self.class_value(info.cls, name)
                del expression
        return self.eval(node, inner)

    def parameter(self, info: FunctionInfo, argument: ast.arg, frame: Frame, default: ast.expr | None) -> Value:
        """A parameter about which no caller says anything: its annotation, its default text, its name."""
        module = info.module
        span = module.span(argument)
        span = Span(span.path, span.line, span.column, span.line, span.column + len(argument.arg))
        constructor = info.name in {"__init__", "__post_init__", "__new__"}
        optional = isinstance(default, ast.Constant) and default.value is None
        typed = self.annotated(argument.annotation, argument.arg, span, self.module_frame(module))
        if typed is not None and not isinstance(typed, Opaque):
            return typed
        if default is not None and not optional:
            value = self.default(info, default)
            if isinstance(value, Str) and sum(len(s.value) for s in value.segments if isinstance(s, Text)) >= 60:
                return value
            if isinstance(value, Opaque) and any(
                origin.at_import and origin.kind in {"clock", "random"} for origin in value.origins
            ):
                return replace(value, name=argument.arg)
            if isinstance(value, Template | Lib | Class | Function):
                return value
            if isinstance(value, Const) and isinstance(value.value, bool | int | float):
                fact = self.fact(argument.arg)
                if fact.confidence == Confidence.LOW:
                    origin = Origin("setting", Volatility.PROCESS, Confidence.MEDIUM, argument.arg, span)
                    return Opaque(argument.arg, span, (origin,), argument.arg, parameter=True)
        if constructor or (frame.receiver is not None and info.name in {"setup", "configure"}):
            made = self.setting(argument.arg, span, frame, parameter=True, optional=optional)
        else:
            made = self.by_name(argument.arg, span, frame, argument.arg, parameter=True, optional=optional)
        if isinstance(typed, Opaque):
            made = replace(made, type=typed.type, unordered=typed.unordered, kind=made.kind or typed.kind)
            if typed.unordered:
                made = replace(made, origins=merge_origins(typed.origins[:1], made.origins))
            if typed.growth is not Growth.FIXED:
                made = replace(made, growth=typed.growth)
                if all(origin.confidence == Confidence.LOW for origin in made.origins):
                    made = replace(made, origins=typed.origins)
        if argument.arg in MESSAGE_LISTS and made.kind is None:
            made = replace(made, kind=BlockKind.HISTORY)
        if made.kind is BlockKind.HISTORY and made.growth is Growth.FIXED:
            made = replace(made, growth=Growth.APPEND)
        return made

    def _has_fixed_hash(self, element: ast.expr, frame: Frame) -> bool:
        """Whether a set of such elements has the same order in every process: numbers, and instances whose own hash asks for no text's."""
        if isinstance(element, ast.Name) and element.id in {"int", "float", "bool"}:
            return True
        made = self.eval(element, frame) if isinstance(element, ast.Name | ast.Attribute) else None
        if not isinstance(made, Class):
            return False
        method = next((info.methods["__hash__"] for info in self.mro(made.info) if "__hash__" in info.methods), None)
        if method is None:
            return False
        self.note(method.unit)
        return "hash" not in features_of(method.node).calls

    def annotated(self, annotation: ast.expr | None, name: str, span: Span, frame: Frame) -> Value | None:
        """A value of which only the annotation is known: an SDK instance, an object of the project, a set, a text."""
        if annotation is None:
            return None
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except (SyntaxError, ValueError):
                return None
        if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
            for part in (annotation.left, annotation.right):
                if not (isinstance(part, ast.Constant) and part.value is None):
                    found = self.annotated(part, name, span, frame)
                    if found is not None:
                        return found
            return None
        if isinstance(annotation, ast.Subscript):
            outer = last_name(annotation.value)
            if outer in {"Optional", "Annotated", "Union", "ClassVar", "Final", "Required", "NotRequired"}:
                inner = (
                    annotation.slice.elts[0]
                    if isinstance(annotation.slice, ast.Tuple) and annotation.slice.elts
                    else annotation.slice
                )
                return self.annotated(inner, name, span, frame)
            if outer in {"set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet"}:
                if self._has_fixed_hash(annotation.slice, frame):
                    return None
                origin = Origin("unordered", Volatility.PROCESS, Confidence.MEDIUM, name, span)
                fact = self.fact(name)
                more = (Origin(fact.origin, fact.volatility, fact.confidence, name, span),)
                return Opaque(name, span, (origin, *more), name, "set", unordered=True)
            if outer in {"list", "List", "Sequence", "Iterable"} and not isinstance(annotation.slice, ast.Tuple):
                element = last_name(annotation.slice)
                if element.endswith(("Message", "MessageParam", "ChatMessage")):
                    origin = Origin("history", Volatility.SESSION, Confidence.MEDIUM, name, span)
                    return Opaque(name, span, (origin,), name, "", BlockKind.HISTORY, Growth.APPEND)
            return None
        if isinstance(annotation, ast.Name) and annotation.id in {"set", "frozenset"}:
            return self.annotated(ast.Subscript(annotation, annotation), name, span, frame)
        if isinstance(annotation, ast.Name) and annotation.id == "str":
            return Opaque(name, span, (), name, "str")
        if not isinstance(annotation, ast.Name | ast.Attribute):
            return None
        if isinstance(annotation, ast.Name) and annotation.id in {
            "dict",
            "list",
            "int",
            "float",
            "bool",
            "bytes",
            "tuple",
            "object",
        }:
            return None
        value = self.eval(annotation, frame)
        if isinstance(value, Lib):
            made = self.sdk.constructors.get(value.path)
            if made is not None:
                return Lib(made, True)
            if value.path in {"datetime.datetime", "datetime.date"}:
                return Opaque(name, span, (), name, value.path)
            return None
        if isinstance(value, Class) and not self.library_bases(value.info):
            return self.symbolic(value.info)
        if isinstance(value, Class) and any(
            base.rsplit(".", 1)[-1] in {"BaseModel", "BaseSettings", "ABC", "Protocol"}
            for base in self.library_bases(value.info)
        ):
            return self.symbolic(value.info)
        return None

    # ---- classes

    def instantiate(self, info: ClassInfo, arguments: Arguments, node: ast.AST, frame: Frame) -> Value:
        """An instance of a project class."""
        bases = self.library_bases(info)
        for base in bases:
            message = self.sdk.messages.get(base)
            if message is not None and "__init__" not in info.methods:
                return self.call_library(
                    Lib(base), arguments, node if isinstance(node, ast.Call) else _call_of(node), frame
                )
        if any(base.rsplit(".", 1)[-1] in {"Enum", "StrEnum", "IntEnum"} for base in bases):
            return self.unknown(self.source_of(node, frame), self.span_of(node, frame), frame)
        value = Object(info, self.span_of(node, frame))
        self.initialise(value, arguments, node, frame)
        return value

    def initialise(self, value: Object, arguments: Arguments | None, node: ast.AST, frame: Frame) -> None:
        """Run the constructor. `arguments` None: they are what the parameters' names and defaults say."""
        method = self.find_method(value, "__init__")
        if method is not None:
            repeated = any(one.function is method for one in self.stack)
            if repeated or len(self.stack) > MAX_DEPTH or self.steps > self.soft:
                return
            captured = self.frame_around(method.cls)
            inner = self.frame_for(method, value, captured, frame if arguments is not None else None)
            inner.at_import = frame.at_import and arguments is not None
            if arguments is None:
                self.open_parameters(method, inner, value)
            else:
                self.bind_parameters(
                    method, inner, arguments, Step(self.span_of(node, frame), f"passed to {value.info.name}"), value
                )
            self.execute(method, inner)
            for name, one in list(value.fields.items()):
                if isinstance(one, Opaque):
                    value.fields[name] = self.lengthen_clock(one)
            return
        step = Step(self.span_of(node, frame), f"passed to {value.info.name}")
        names: dict[str, None] = {}
        for cls in reversed(self.mro(value.info)):
            for name in cls.annotations:
                names.setdefault(name)
        if arguments is None:
            return
        for position, name in enumerate(names):
            given = arguments.get(position, name)
            if given is not None:
                self.journal.set_field(value, name, with_step(given, step))
        for name, given in arguments.keywords.items():
            if name not in names:
                self.journal.set_field(value, name, with_step(given, step))
        for cls in self.mro(value.info):
            for name in cls.attributes:
                if name in names and name not in value.fields:
                    # A mutable default belongs to the instance.
                    found = self.class_value(cls, name)
                    if isinstance(found, List):
                        found = List(found.items, found.span, found.kind, found.disorder)
                    elif isinstance(found, Dict):
                        found = Dict(found.entries, found.span, found.rest)
                    self.journal.set_field(value, name, found)
        post = self.find_method(value, "__post_init__")
        if post is not None:
            self.call_function(post, value, Arguments(), node, frame)

    def lengthen_clock(self, value: Opaque) -> Opaque:
        """What a constructor reads from a clock or at random stays the same for the object's life: a session at most."""
        origins = tuple(
            replace(origin, volatility=min(origin.volatility, Volatility.SESSION))
            if origin.kind in {"clock", "random"}
            else origin
            for origin in value.origins
        )
        return replace(value, origins=origins)

    def open_parameters(self, info: FunctionInfo, frame: Frame, receiver: Value | None) -> None:
        """Bind parameters that no caller is known to bind."""
        parameters = info.node.args
        arguments = [*parameters.posonlyargs, *parameters.args]
        local = frame.locals
        defaults = dict(
            zip(
                [a.arg for a in arguments][len(arguments) - len(parameters.defaults) :],
                parameters.defaults,
                strict=True,
            )
        )
        if info.cls is not None and arguments and "staticmethod" not in info.decorators:
            first = arguments.pop(0)
            if receiver is not None:
                local[first.arg] = receiver
                frame.receiver = receiver
        for argument in arguments:
            local[argument.arg] = self.parameter(info, argument, frame, defaults.get(argument.arg))
        for argument, default in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True):
            local[argument.arg] = self.parameter(info, argument, frame, default)
        span = info.module.span(info.node)
        if parameters.vararg is not None:
            local[parameters.vararg.arg] = self.by_name(
                parameters.vararg.arg, span, frame, parameters.vararg.arg, parameter=True
            )
        if parameters.kwarg is not None:
            rest = self.by_name(parameters.kwarg.arg, span, frame, parameters.kwarg.arg, parameter=True)
            local[parameters.kwarg.arg] = Dict((), span, rest)

    def enter(self, info: FunctionInfo, receiver: Value | None) -> tuple[Frame, Value]:
        """Evaluate a function from outside: its parameters are what callers, annotations and names say."""
        frame = self.open_frame(info, receiver)
        return frame, self.execute(info, frame)

    def open_frame(self, info: FunctionInfo, receiver: Value | None) -> Frame:
        """A frame of a function with its parameters bound as `enter` does."""
        frame = self.frame_for(info, receiver, self._captured(info), None)
        self.open_parameters(info, frame, receiver)
        return frame

    def _captured(self, info: FunctionInfo) -> Frame | None:
        """The frame around a nested function: the outer function executed up to its end."""
        if info.outer is None or len(self.stack) > 3:
            return None
        self.silent += 1
        try:
            receiver: Value | None = None
            outermost = info.outer
            while outermost.outer is not None:
                outermost = outermost.outer
            if info.outer.cls is not None:
                receiver = (
                    Class(info.outer.cls) if "classmethod" in info.outer.decorators else self.symbolic(info.outer.cls)
                )
            if info.outer.cls is None and outermost.cls is not None:
                receiver = self.symbolic(outermost.cls)
            frame, _ = self.enter(info.outer, receiver)
        finally:
            self.silent -= 1
        return frame

    # ---- provided by the library part

    def note_elsewhere(self, value: Value, place: Span, node: ast.AST, frame: Frame) -> None:
        """Remember that a text is no prompt of its own, because it goes where no prefix of it is cached."""
        raise NotImplementedError

    def call_library(self, callee: Lib, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The value of a call of a library function, constructor or method."""
        raise NotImplementedError

    def call_unknown(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The value of a call of something that we have no model for."""
        raise NotImplementedError


def _parameter_names(info: FunctionInfo) -> list[str]:
    """The names of positional parameters, `self` included."""
    return [argument.arg for argument in (*info.node.args.posonlyargs, *info.node.args.args)]


def _is_plain(value: Value) -> bool:
    """Whether a value is immutable through and through."""
    if isinstance(value, Str | Const | Opaque | Lib | Class):
        return True
    if isinstance(value, Alt):
        return all(_is_plain(arm) for arm in value.arms)
    return False


def _call_of(node: ast.AST) -> ast.Call:
    assert isinstance(node, ast.expr)
    return ast.copy_location(ast.Call(node, [], []), node)
