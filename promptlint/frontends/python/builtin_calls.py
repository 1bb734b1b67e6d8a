"""Builtin functions that are computed on abstract values, and `json.dumps`."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from promptlint.frontends.python.calls import Calls
from promptlint.frontends.python.core import Arguments, identifier
from promptlint.frontends.python.text import static_text
from promptlint.frontends.python.values import (
    Alt,
    Class,
    Const,
    Dict,
    Each,
    Elem,
    Entry,
    Frame,
    Function,
    Item,
    Lib,
    List,
    Object,
    Opaque,
    Rest,
    Str,
    SuperDict,
    Value,
    contained,
    merge_origins,
    origins_of,
)
from promptlint.ir import Confidence, Volatility
from promptlint.source import Span

__all__ = ["Builtins"]


class Builtins(Calls):
    """Handlers of builtin functions: each gives a value, or None when the call is not one that it computes."""

    def _stops(self, path: str, arguments: Arguments) -> frozenset[str]:
        stops: set[str] = set()
        for barrier in self.sources.barriers.get(path, ()):
            if all(
                isinstance(given := arguments.keywords.get(name), Const) and given.value == wanted
                for name, wanted in barrier.when
            ):
                stops.update(barrier.stops)
        return frozenset(stops)

    def _call_str(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        first = arguments.positional[0] if arguments.positional else None
        if first is None:
            return Str(())
        if isinstance(first, Str) and path != "repr":
            return first
        argument = node.args[0] if node.args else node
        expression = self.source_of(argument, frame)
        if isinstance(first, Opaque):
            return replace(
                first,
                expression=self.source_of(node, frame),
                span=self.span_of(node, frame),
                type="str",
                name=first.name or identifier(expression),
            )
        return Str(
            self.to_segments(
                first,
                expression,
                self.span_of(argument, frame),
                identifier(expression),
                conversion="r" if path == "repr" else "",
            )
        )

    def _call_format(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        """`format(value, spec)`."""
        if not arguments.positional:
            return None
        spec = self.text_of(arguments.positional[1]) if len(arguments.positional) > 1 else ""
        argument = node.args[0] if node.args else node
        expression = self.source_of(argument, frame)
        return Str(
            self.to_segments(
                arguments.positional[0], expression, self.span_of(node, frame), identifier(expression), spec=spec or ""
            )
        )

    def _call_sorted(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        span = self.span_of(node, frame)
        first = arguments.positional[0] if arguments.positional else None
        if isinstance(first, Dict):
            first = self._view(first, "keys", self.source_of(node, frame), span)
        if isinstance(first, List):
            plain = first.plain()
            known = [self._plain(value) for value in plain] if plain is not None else []
            if plain is not None and "key" not in arguments.keywords and all(value is not None for value in known):
                reverse = arguments.keywords.get("reverse")
                backwards = isinstance(reverse, Const) and bool(reverse.value)
                try:
                    order = sorted(range(len(plain)), key=lambda index: known[index][0], reverse=backwards)  # type: ignore[index]
                    items: tuple[Item, ...] = tuple(first.items[index] for index in order)
                    if first.kind == "set":
                        seen: dict[Any, Item] = {}
                        for index in order:
                            seen.setdefault(known[index][0], first.items[index])  # type: ignore[index]
                        items = tuple(seen.values())
                    return List(items, span)
                except TypeError:
                    pass
            if all(isinstance(item, Elem) for item in first.items) and first.items:
                return self._sorted_opaque(first, node, frame)
            return List(first.items, span)
        return None

    def _sorted_opaque(self, items: List, node: ast.Call, frame: Frame) -> Value:
        """Elements in an order that their values decide: known one by one, but not in which place."""
        value = self.derived(self.source_of(node, frame), self.span_of(node, frame), List(items.items, items.span))
        return List((Rest(value, self.span_of(node, frame)),), self.span_of(node, frame))

    def _call_list(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        span = self.span_of(node, frame)
        first = arguments.positional[0] if arguments.positional else None
        if first is None:
            return List((), span, "tuple" if path == "tuple" else "list")
        if isinstance(first, List):
            return List(first.items, span, "tuple" if path == "tuple" else "list", first.disorder)
        if isinstance(first, Dict):
            return self._view(first, "keys", self.source_of(node, frame), span)
        if isinstance(first, Opaque):
            return replace(first, expression=self.source_of(node, frame), span=span)
        return None

    def _call_dict(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        span = self.span_of(node, frame)
        made = Dict((), span)
        for value in arguments.positional[:1]:
            if isinstance(value, Dict):
                made = Dict(value.entries, span, value.rest)
            elif isinstance(value, List) and (pairs := value.plain()) is not None:
                entries = {}
                for pair in pairs:
                    parts = pair.plain() if isinstance(pair, List) else None
                    key = self._plain(parts[0]) if parts is not None and len(parts) == 2 else None
                    if parts is None or key is None:
                        return Dict((), span, self.opaque(value, node, frame))
                    entries[str(key[0])] = Entry(str(key[0]), parts[1], span)
                made = Dict(tuple(entries.values()), span)
            else:
                made = Dict((), span, self.opaque(value, node, frame))
        entries = {entry.key: entry for entry in made.entries}
        for name, value in arguments.keywords.items():
            entries[name] = Entry(name, value, arguments.places.get(name, span))
        return Dict(tuple(entries.values()), span, made.rest or arguments.rest_keywords)

    def _call_len(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        first = arguments.positional[0] if arguments.positional else None
        span = self.span_of(node, frame)
        if isinstance(first, List) and first.plain() is not None and first.kind != "set":
            return Const(len(first.items), span)
        if isinstance(first, Str) and (whole := static_text(first.segments)) is not None:
            return Const(len(whole), span)
        if isinstance(first, Dict) and first.rest is None and all(entry.guard is None for entry in first.entries):
            return Const(len(first.entries), span)
        if first is None:
            return None
        # How many there are is no clock and no order, whatever they are.
        size = self.derived(self.source_of(node, frame), span, first, name=identifier(self.source_of(node, frame)))
        return replace(size, origins=contained(size.origins))

    def _call_enumerate(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        first = arguments.positional[0] if arguments.positional else None
        span = self.span_of(node, frame)
        start = arguments.get(1, "start")
        begin = (
            start.value if isinstance(start, Const) and isinstance(start.value, int) else (0 if start is None else None)
        )
        if isinstance(first, Alt) and self.arms_known(first):
            arms = [
                self._call_enumerate(path, Arguments([arm, *arguments.positional[1:]], arguments.keywords), node, frame)
                for arm in first.arms
            ]
            return self.join(first.guard, [arm for arm in arms if arm is not None], span)
        known = self.known_elements(first) if first is not None else None
        if known is not None and begin is not None:
            items: list[Item] = []
            for index, value in enumerate(known, begin):
                pair = List((Elem(Const(index, span), span), Elem(value, span)), span, "tuple")
                items.append(Elem(pair, span))
            return List(tuple(items), span)
        if first is None:
            return None
        argument = node.args[0] if node.args else node
        over, element = self.element(first, argument, ast.copy_location(ast.Name("item", ast.Load()), argument), frame)
        number = Opaque("index", span, (), "index")  # it numbers the list's own data, and is the same at the same place
        pair = List((Elem(number, span), Elem(element, span)), span, "tuple")
        disorder = first.disorder if isinstance(first, List) else ()
        return List(
            (
                Each(
                    replace(over, name=over.name or identifier(self.source_of(argument, frame))),
                    (Elem(pair, span),),
                    span,
                ),
            ),
            span,
            "list",
            disorder,
        )

    def _call_zip(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        span = self.span_of(node, frame)
        columns = [self.known_elements(value) for value in arguments.positional]
        if columns and all(column is not None for column in columns) and "strict" not in arguments.keywords:
            rows = zip(*(column for column in columns if column is not None), strict=False)
            return List(
                tuple(Elem(List(tuple(Elem(value, span) for value in row), span, "tuple"), span) for row in rows), span
            )
        cells: list[Item] = []
        overs = []
        for index, value in enumerate(arguments.positional):
            argument = node.args[index] if index < len(node.args) else node
            over, element = self.element(
                value, argument, ast.copy_location(ast.Name("item", ast.Load()), argument), frame
            )
            overs.append(over)
            cells.append(Elem(element, span))
        if not overs:
            return None
        over = self.derived(self.source_of(node, frame), span, *overs, name=identifier(self.source_of(node, frame)))
        return List((Each(over, (Elem(List(tuple(cells), span, "tuple"), span),), span),), span)

    def _call_range(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        span = self.span_of(node, frame)
        bounds = [
            value.value if isinstance(value, Const) and isinstance(value.value, int) else None
            for value in arguments.positional
        ]
        if bounds and all(bound is not None for bound in bounds):
            numbers = (
                range(*[bound for bound in bounds if bound is not None][:3])
                if bounds[-1:] != [0] or len(bounds) < 3
                else range(0)
            )
            if len(numbers) <= 24:
                return List(tuple(Elem(Const(number, span), span) for number in numbers), span)
        expression = self.source_of(node, frame)
        # Numbers of what its bounds say; only a loop that sends prompts makes a counter of them.
        origins = merge_origins(*(contained(origins_of(value)) for value in arguments.positional))
        return Opaque(expression, span, origins, identifier(expression))

    def _call_reversed(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        first = arguments.positional[0] if arguments.positional else None
        if isinstance(first, List):
            return List(tuple(reversed(first.items)), self.span_of(node, frame), "list", first.disorder)
        return None

    def _call_isinstance(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        if len(arguments.positional) < 2:
            return None
        value, wanted = arguments.positional[:2]
        options = wanted.plain() if isinstance(wanted, List) else [wanted]
        span = self.span_of(node, frame)
        if options is None:
            return None
        names = {option.path for option in options if isinstance(option, Lib)}
        classes = [option.info for option in options if isinstance(option, Class)]
        if len(names) + len(classes) != len(options):
            return None
        own = {Str: "str", Dict: "dict"}.get(type(value)) or (value.kind if isinstance(value, List) else None)
        if own is None and isinstance(value, Const) and value.value is not None:
            own = type(value.value).__name__
        if own is not None:
            return Const(own in names, span)
        if isinstance(value, Object):
            return Const(any(info in self.mro(value.info) for info in classes), span)
        return self.derived(self.source_of(node, frame), span, value)

    def _call_getattr(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        if len(arguments.positional) < 2:
            return None
        name = self.text_of(arguments.positional[1])
        return self.attribute(arguments.positional[0], name, node, frame) if name else None

    def _call_super(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        receiver = frame.receiver
        cls = frame.cls
        if receiver is None or cls is None:
            return None
        chain = self.mro(receiver.info if isinstance(receiver, Object | Class) else cls)
        behind = chain[chain.index(cls) + 1 :] if cls in chain else chain[1:]
        return _Super(self, receiver, behind).value(self.span_of(node, frame))

    def _call_print(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        return Const(None, self.span_of(node, frame))

    def _call_map(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        if len(arguments.positional) != 2:
            return None
        function, iterable = arguments.positional
        span = self.span_of(node, frame)
        known = self.known_elements(iterable)
        if known is not None:
            return List(
                tuple(Elem(self.call(function, Arguments([value]), node, frame), span) for value in known), span
            )
        argument = node.args[1] if len(node.args) > 1 else node
        over, element = self.element(
            iterable, argument, ast.copy_location(ast.Name("item", ast.Load()), argument), frame
        )
        disorder = iterable.disorder if isinstance(iterable, List) else ()
        return List(
            (Each(over, (Elem(self.call(function, Arguments([element]), node, frame), span),), span),),
            span,
            "list",
            disorder,
        )

    def _call_dumps(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        first = arguments.get(0, "obj")
        if first is None:
            return None
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        argument = node.args[0] if node.args else node
        name = identifier(self.source_of(argument, frame))
        indent = arguments.keywords.get("indent")
        level = indent.value if isinstance(indent, Const) and isinstance(indent.value, int) else 0
        sort_keys = "json" in self._stops("json.dumps", arguments)
        if (
            isinstance(first, List | Dict | Str | Const)
            and not (isinstance(first, Dict) and first.rest is not None)
            and "separators" not in arguments.keywords
        ):
            ascii_only = arguments.keywords.get("ensure_ascii")
            keep = isinstance(ascii_only, Const) and ascii_only.value is False
            if isinstance(first, Dict) and sort_keys:
                first = Dict(tuple(sorted(first.entries, key=lambda entry: entry.key)), first.span)
            return Str(self.structure(first, expression, span, "json", level, 0, not keep))
        origins = origins_of(first)
        if not sort_keys and not isinstance(first, List) and not (isinstance(first, Opaque) and first.type == "str"):
            unsure = isinstance(first, Opaque) and first.unordered
            origins = merge_origins(
                origins,
                (
                    self.origin(
                        "json",
                        Volatility.PROCESS,
                        Confidence.MEDIUM if unsure else Confidence.LOW,
                        expression,
                        span,
                        frame,
                    ),
                ),
            )
        value = first if isinstance(first, Opaque) else self.opaque(first, argument, frame)
        return replace(value, expression=expression, span=span, origins=origins, name=value.name or name, type="str")


class _Super:
    """`super()`: the same object, looked up behind the current class."""

    def __init__(self, library: Builtins, receiver: Value, behind: list[Any]) -> None:
        self.library = library
        self.receiver = receiver
        self.behind = behind

    def value(self, span: Span) -> Value:
        """A dict of the methods that `super()` reaches, bound to the object."""
        entries: dict[str, Entry] = {}
        for info in self.behind:
            for name, method in info.methods.items():
                if name not in entries:
                    receiver = None if "staticmethod" in method.decorators else self.receiver
                    entries[name] = Entry(name, Function(method, receiver), span)
        return SuperDict(tuple(entries.values()), span)
