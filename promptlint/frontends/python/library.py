"""Libraries as their rows say: sources, flows and barriers; template and message classes; files that are loaded; unknown calls."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from promptlint.catalog.sources import Source
from promptlint.frontends.python.calls import Calls
from promptlint.frontends.python.core import Arguments, identifier
from promptlint.frontends.python.features import noun
from promptlint.frontends.python.text import Field, Segments, dollar_fields, merge, static_text
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
    Message,
    Object,
    Opaque,
    Pick,
    Rest,
    Str,
    SuperDict,
    Template,
    Value,
    merge_origins,
    origins_of,
)
from promptlint.ir import Confidence, Growth, Origin, Text, Volatility
from promptlint.source import Span, TextMap

__all__ = ["Library"]


def _known(source: Source) -> Confidence:
    """What lives in a hub, a database or on another server was not read; all else is as the row says."""
    return Confidence.LOW if source.kind in {"hub", "remote-tools", "database"} else Confidence.HIGH


class Library(Calls):
    """`call_library`, `call_unknown` and templates."""

    _handlers_by_path: ClassVar[dict[str, Callable[..., Value | None]]] = {}  # filled below the class

    def call_library(self, callee: Lib, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The value of a call of a library function, constructor or method."""
        path = callee.path
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        if callee.instance:
            sunk = self.call_sink(callee, arguments, node, frame)
            if sunk is not None:
                return sunk
            if path.endswith(
                (
                    ".bind_tools",
                    ".bind",
                    ".with_structured_output",
                    ".with_config",
                    ".with_retry",
                    ".with_options",
                    ".with_fallbacks",
                )
            ):
                base, _, _ = path.rpartition(".")
                more = (
                    (("tools", arguments.positional[0]),)
                    if path.endswith(".bind_tools") and arguments.positional
                    else ()
                )
                return Lib(base, True, (*callee.arguments, *more, *arguments.keywords.items()))
            return self.unknown(expression, span, frame, name=path.rsplit(".", 1)[-1])
        handler = self._handlers_by_path.get(path)
        if handler is not None:
            result: Value | None = handler(self, path, arguments, node, frame)
            if result is not None:
                return result
        sunk = self.call_sink(callee, arguments, node, frame)
        made = self.sdk.constructors.get(path)
        if made is not None:
            return Lib(made, True)
        if sunk is not None:
            return sunk
        message = self.sdk.messages.get(path)
        if message is not None:
            return self._message(message, arguments, node, frame)
        template = self.sdk.templates.get(path)
        if template is not None:
            return self._template(template, arguments, node, frame)
        if path in self.sdk.options:
            self.note_option(path, arguments, node, frame)
        source = self.sources.sources.get(path)
        if source is not None:
            return self._source(source, path, arguments, node, frame)
        flow = self.sources.flows.get(path)
        if flow is not None or path in self.sources.barriers:
            return self._flow(path, arguments, node, frame)
        if path.rsplit(".", 1)[-1] in {"fromkeys", "defaultdict", "OrderedDict", "Counter"}:
            return Dict((), span)
        return self.call_unknown(callee, arguments, node, frame)

    def library_value(self, lib: Lib, node: ast.AST, frame: Frame) -> Value:
        """What a library name stands for when it is used as a value."""
        source = self.sources.sources.get(lib.path)
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        if source is not None:
            origin = self.origin(source.kind, source.volatility, _known(source), expression, span, frame)
            return Opaque(expression, span, (origin,), identifier(expression))
        return self.unknown(expression, span, frame, name=identifier(expression))

    def call_sink(self, callee: Lib, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        """Report a prompt when the callee is a sink; the reply's value, or None when it is no sink."""
        raise NotImplementedError

    def call_generic(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        """The same for a method name on a receiver of unknown type."""
        raise NotImplementedError

    def note_option(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> None:
        """Remember an option that changes what a framework sends."""

    # ---- sources, flows, barriers

    def _source(self, source: Any, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        origin = self.origin(source.kind, source.volatility, _known(source), expression, span, frame)
        if source.result == "argument":
            target = arguments.positional[0] if arguments.positional else None
            if isinstance(target, List):
                self.journal.set_slot(target, "disorder", merge_origins(target.disorder, (origin,)))
            elif isinstance(target, Opaque) and node.args and isinstance(node.args[0], ast.Name):
                self.bind(
                    node.args[0],
                    replace(target, unordered=True, origins=merge_origins((origin,), target.origins)),
                    frame,
                )
            return Const(None, span)
        type_name = path.rsplit(".", 1)[0] if source.kind == "clock" else ""
        carried: tuple[Origin, ...] = ()
        if path in {"set", "frozenset"}:
            return self._make_set(arguments, node, frame)
        if source.kind in {"shuffle", "unordered"}:
            carried = merge_origins(*(origins_of(value) for value in arguments.all()))
        unordered = source.kind in {"unordered", "listing", "shuffle"}
        value = Opaque(
            expression, span, merge_origins((origin,), carried), identifier(expression), type_name, unordered=unordered
        )
        if path == "time.strftime":
            pattern = self.text_of(arguments.positional[0]) if arguments.positional else None
            value = self.coarsen(value, "by-format", pattern)
        return value

    def _make_set(self, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        span = self.span_of(node, frame)
        given = arguments.positional[0] if arguments.positional else None
        if given is None:
            return List((), span, "set")
        items = self.items_of(given, node.args[0] if node.args else node, frame)
        single = len(items) < 2 and all(isinstance(item, Elem) for item in items)
        return List(items, span, "set", () if single else self.disorder(node, frame))

    def _flow(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        flow = self.sources.flows.get(path)
        first = arguments.positional[0] if arguments.positional else None
        stops = self._stops(path, arguments)
        if flow is not None and flow.text and isinstance(first, Str):
            return self._text_flow(flow.text, first)
        value = self.derived(expression, span, *arguments.all(), name=identifier(expression))
        unordered = any(
            (isinstance(one, Opaque) and one.unordered) or (isinstance(one, List) and one.disorder)
            for one in arguments.all()
        )
        value = replace(value, unordered=unordered)
        if isinstance(first, Opaque):
            value = replace(
                value,
                type=first.type,
                kind=first.kind,
                growth=first.growth if path in {"list", "tuple", "copy.deepcopy", "copy.copy"} else Growth.FIXED,
            )
        if flow is not None and flow.coarsen:
            pattern = next((text for text in (self.text_of(one) for one in arguments.all()) if text is not None), None)
            value = self.coarsen(value, flow.coarsen, pattern)
        if stops:
            value = replace(value, origins=tuple(o for o in value.origins if o.kind not in stops), unordered=False)
        return value

    def _text_flow(self, how: str, text: Str) -> Value:
        if how in {"dedent", "cleandoc"}:
            segments = self.texts.dedent(text.segments)
            return Str(self.texts.strip(segments) if how == "cleandoc" else segments)
        if how in {"strip", "lstrip", "rstrip"}:
            return Str(self.texts.strip(text.segments, left=how != "rstrip", right=how != "lstrip"))
        if how in {"lower", "upper", "title"}:
            return Str(self.texts.change(text.segments, lambda value: str(getattr(value, how)())))
        return text

    def _stops(self, path: str, arguments: Arguments) -> frozenset[str]:
        stops: set[str] = set()
        for barrier in self.sources.barriers.get(path, ()):
            if all(
                isinstance(given := arguments.keywords.get(name), Const) and given.value == wanted
                for name, wanted in barrier.when
            ):
                stops.update(barrier.stops)
        return frozenset(stops)

    # ---- builtins that are computed

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
        return None

    def _call_enumerate(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        first = arguments.positional[0] if arguments.positional else None
        span = self.span_of(node, frame)
        start = arguments.get(1, "start")
        begin = (
            start.value if isinstance(start, Const) and isinstance(start.value, int) else (0 if start is None else None)
        )
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
        number = Opaque("index", span, (), "index")
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
        origin = self.origin("counter", Volatility.TURN, Confidence.MEDIUM, expression, span, frame)
        return Opaque(
            expression, span, merge_origins((origin,), *(origins_of(value) for value in arguments.positional)), "step"
        )

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

    # ---- methods of unknown values

    def call_unknown(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The value of a call of something that we have no model for."""
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        sunk = self.call_generic(callee, arguments, node, frame)
        if sunk is not None:
            return sunk
        for value in arguments.all():
            self.note_loose(value, node, frame)
        if isinstance(callee, Opaque) and isinstance(node.func, ast.Attribute):
            return self._opaque_method(callee, node.func, arguments, node, frame)
        name = (
            callee.name
            if isinstance(callee, Opaque)
            else callee.path.rsplit(".", 1)[-1]
            if isinstance(callee, Lib)
            else ""
        )
        return self.unknown(expression, span, frame, *(origins_of(value) for value in arguments.all()), name=noun(name))

    def note_loose(self, value: Value, node: ast.AST, frame: Frame) -> None:
        """Remember a text or list that goes where we cannot follow."""
        raise NotImplementedError

    def _opaque_method(
        self, callee: Opaque, func: ast.Attribute, arguments: Arguments, node: ast.Call, frame: Frame
    ) -> Value:
        method = func.attr
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        receiver = self.eval(func.value, frame)
        if not isinstance(receiver, Opaque):
            return self.unknown(
                expression, span, frame, *(origins_of(value) for value in arguments.all()), name=noun(method)
            )
        for base in self._types(receiver):
            key = f"{base}.{method}"
            flow = self.sources.flows.get(key)
            if flow is not None:
                pattern = self.text_of(arguments.positional[0]) if arguments.positional else None
                if flow.coarsen == "by-fields":
                    fixed = all(isinstance(arguments.keywords.get(name), Const) for name in ("hour", "minute"))
                    return self.coarsen(replace(receiver, expression=expression, span=span), "day" if fixed else "")
                return self.coarsen(replace(receiver, expression=expression, span=span), flow.coarsen, pattern)
        if method in {"get", "getlist", "pop", "setdefault"} and arguments.positional:
            key_text = self.text_of(arguments.positional[0])
            part: Value = self.part(receiver, key_text or "", expression, span, frame)
            fallback = arguments.get(1, "default")
            if isinstance(fallback, Str | Template) and isinstance(part, Opaque):
                part = self.join(self.guard(node, frame, part), [replace(part, optional=True), fallback], span)
            return part
        if method == "join" and arguments.positional:
            # The separator is not known: between two texts of an unknown separator stand the texts.
            return self.derived(expression, span, receiver, arguments.positional[0], name=identifier(expression))
        if method in {"items", "values", "keys", "copy", "strip", "lstrip", "rstrip", "lower", "upper", "title", "split", "splitlines", "encode", "decode", "replace",
                      "isoformat", "model_dump", "dict", "json", "model_dump_json", "to_dict", "to_string", "to_markdown", "astimezone", "strftime", "date", "group"}:  # fmt: skip
            extra = [origins_of(value) for value in arguments.all()]
            kept = replace(receiver, expression=expression, span=span, origins=merge_origins(receiver.origins, *extra))
            if method in {"split", "splitlines"}:
                kept = replace(kept, type="")
            if method == "strftime" and any(origin.kind == "clock" for origin in kept.origins):
                kept = self.coarsen(
                    kept, "by-format", self.text_of(arguments.positional[0]) if arguments.positional else None
                )
            return kept
        if method in {"append", "extend", "insert"} and isinstance(func.value, ast.Name) and arguments.positional:
            self._grow(receiver, func.value, method, arguments, node, frame)
            return Const(None, span)
        strong = tuple(
            origin
            for origin in receiver.origins
            if origin.kind in {"clock", "random", "host"} and origin.confidence > Confidence.LOW
        )
        result = self.unknown(
            expression, span, frame, strong, *(origins_of(value) for value in arguments.all()), name=noun(method)
        )
        fact = self.fact(noun(method))
        if not strong and fact.confidence > Confidence.LOW:
            origin = self.origin(fact.origin, fact.volatility, fact.confidence, expression, span, frame)
            result = replace(result, origins=merge_origins((origin,), result.origins), kind=fact.kind)
        return result

    def _grow(
        self, receiver: Opaque, target: ast.Name, method: str, arguments: Arguments, node: ast.Call, frame: Frame
    ) -> None:
        """An unknown list that the function appends to becomes a known list that begins with it."""
        span = self.span_of(node, frame)
        base: tuple[Item, ...] = (Rest(receiver, receiver.span),)
        argument = node.args[0] if node.args else node
        if method == "append":
            items: tuple[Item, ...] = (*base, Elem(arguments.positional[0], span))
        elif method == "extend":
            items = (*base, *self.items_of(arguments.positional[0], argument, frame))
        elif len(arguments.positional) > 1:
            place = self._plain(arguments.positional[0])
            item = Elem(arguments.positional[1], span)
            items = (item, *base) if place is not None and place[0] == 0 else (*base, item)
        else:
            return
        self.bind(target, List(items, span), frame)

    # ---- messages and templates of libraries

    def _message(self, row: Any, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        span = self.span_of(node, frame)
        role: Value | str = row.role
        if row.role.startswith("from:"):
            given = arguments.get(0 if row.position else None, row.role[5:]) or arguments.keywords.get(row.role[5:])
            role = given if given is not None else "user"
            if isinstance(role, Lib):
                role = role.path.rsplit(".", 1)[-1].lower()
        content = arguments.get(row.position, row.text)
        if content is None and "content" in arguments.keywords:
            content = arguments.keywords["content"]
        return Message(role, content if content is not None else Str(()), span)

    def _template(self, row: Any, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        text = arguments.get(row.position, row.text)
        span = self.span_of(node, frame)
        if text is None:
            text = next(iter(arguments.keywords.values()), None) if len(arguments.keywords) == 1 else None
        if text is None:
            return self.unknown(self.source_of(node, frame), span, frame, name="prompt")
        syntax = row.syntax
        if syntax.startswith("from:"):
            given = arguments.keywords.get(syntax[5:])
            named = self.text_of(given) if given is not None else None
            syntax = {"jinja2": "jinja2", "mustache": "mustache"}.get(named or "", "format")
        return Template(text, syntax, (), row.role, row.fill, row.partial, row.messages, span)

    def call_template(self, template: Template, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A method of a template object."""
        bound = dict(template.bound)
        if name in template.partial:
            bound.update(arguments.keywords)
            return replace(template, bound=tuple(bound.items()))
        if name in {*template.fill, "render", "render_async", "__call__", "format", "substitute", "safe_substitute"}:
            places = dict(arguments.places)
            expressions = dict(arguments.expressions)
            for value in arguments.positional:
                if isinstance(value, Dict):
                    bound.update({entry.key: entry.value for entry in value.entries})
                    places.update({entry.key: entry.placed for entry in value.entries})
                    if value.rest is not None:
                        arguments.rest_keywords = value.rest
            bound.update(arguments.keywords)
            given = Arguments(
                keywords=bound, rest_keywords=arguments.rest_keywords, places=places, expressions=expressions
            )
            return self.fill_template(template, given, node, frame)
        if name in {"pipe", "__or__"} and arguments.positional:
            return template
        return self.unknown(self.source_of(node, frame), self.span_of(node, frame), frame, name="prompt")

    def fill_template(self, template: Template, arguments: Arguments, node: ast.AST, frame: Frame) -> Value:
        """A template with its slots filled: a text, or a list of messages."""
        if template.messages:
            return self._fill_messages(template, arguments, node, frame)
        text = self.fill_text(template.text, template.syntax, arguments, node, frame, template.folder)
        if template.role is not None and template.span is not None:
            return List((Elem(Message(template.role, text, template.span), template.span),), template.span)
        return text

    def fill_text(
        self, text: Value, syntax: str, arguments: Arguments, node: ast.AST, frame: Frame, folder: str = ""
    ) -> Value:
        """A template text with its slots filled in one of the syntaxes."""
        if isinstance(text, Alt):
            return self.join(
                text.guard, [self.fill_text(arm, syntax, arguments, node, frame) for arm in text.arms], text.guard.span
            )
        if not isinstance(text, Str):
            if isinstance(text, Opaque):
                return Opaque(
                    text.expression,
                    text.span,
                    merge_origins(text.origins, *(origins_of(v) for v in arguments.all())),
                    text.name,
                    steps=text.steps,
                    parameter=text.parameter,
                )
            return self.derived(self.source_of(node, frame), self.span_of(node, frame), text, *arguments.all())
        if syntax in {"jinja2", "mustache"}:
            return self.fill_jinja(text, arguments, frame, Path(folder) if folder else None)
        if syntax == "dollar":

            def value_of(field: Field, span: Span, _: int) -> Segments:
                found = arguments.keywords.get(field.name)
                if found is None:
                    return (self.hole(self.by_name(field.name, span, frame, field.name), field.name, span, field.name),)
                return self.to_segments(found, field.name, span, field.name)

            return Str(self.texts.fill(text.segments, dollar_fields, value_of))
        return self.format(text, arguments, node, frame)

    def fill_jinja(self, text: Str, arguments: Arguments, frame: Frame, folder: Path | None = None) -> Value:
        """A Jinja text with the values that Python passes to it."""
        whole = static_text(text.segments)
        if whole is None or not text.segments:
            return text
        where = self.map_of(text)
        if where is None:
            return text
        bound: dict[str, Segments] = {}
        for name, value in arguments.keywords.items():
            place = arguments.places.get(
                name,
                self.span_of(frame.module.tree.body[0], frame) if frame.module.tree.body else text.segments[0].span,
            )
            if isinstance(value, List | Dict | Object):
                hole = self.derived(arguments.expressions.get(name, name), place, value, name=name)
                if not hole.origins and not isinstance(value, Object):
                    continue
                bound[name] = (
                    self.hole(
                        hole if hole.origins else self.by_name(name, place, frame, name), hole.expression, place, name
                    ),
                )
            else:
                bound[name] = self.to_segments(value, arguments.expressions.get(name, name), place, name)
        try:
            segments = self.templates(whole, where, bound=bound, loader=self._loader(folder))
        except Exception as error:  # noqa: BLE001  a template that its reader refuses is a hole, never a crash
            self.note_refused(text, error)
            return self.by_name("template", text.segments[0].span, frame, "template")
        return Str(merge(segments))

    def note_refused(self, text: Str, error: Exception) -> None:
        """Record a template that could not be read."""

    def _loader(self, folder: Path | None) -> Any:
        if folder is None:
            return None

        def load(name: str) -> Any:
            path = (folder / name).resolve()
            return self.project.source(path) if path.is_file() else None

        return load

    def map_of(self, text: Str) -> TextMap | None:
        """One map for a text of several neighbouring parts of one file; None when that is not known."""
        runs: list[tuple[int, int, int, bool]] = []
        size = 0
        source = None
        for segment in text.segments:
            if not isinstance(segment, Text):
                return None
            where = self.texts.map(segment)
            if where is None or (source is not None and where.source is not source):
                return None
            source = where.source
            runs.extend((start + size, at, length, exact) for start, at, length, exact in where.runs)
            size += len(segment.value)
        return TextMap(source, tuple(runs)) if source is not None else None

    def _fill_messages(self, template: Template, arguments: Arguments, node: ast.AST, frame: Frame) -> Value:
        items = self.items_of(template.text, node, frame)
        result: list[Item] = []
        for item in items:
            result.extend(self._fill_message(item, template, arguments, node, frame))
        return List(tuple(result), template.span or self.span_of(node, frame))

    def _fill_message(
        self, item: Item, template: Template, arguments: Arguments, node: ast.AST, frame: Frame
    ) -> list[Item]:
        if isinstance(item, Pick):
            arms = tuple(
                tuple(one for inner in arm for one in self._fill_message(inner, template, arguments, node, frame))
                for arm in item.arms
            )
            return [replace(item, arms=arms)]
        if not isinstance(item, Elem):
            return [item]
        value = item.value
        if (
            isinstance(value, List)
            and value.kind in {"tuple", "list"}
            and len(value.items) == 2
            and (pair := value.plain()) is not None
        ):
            role = self.text_of(pair[0]) or "user"
            if role in {"placeholder", "messages_placeholder"}:
                name = (self.text_of(pair[1]) or "messages").strip("{}")
                return self._placeholder(name, item, arguments, frame)
            return [
                Elem(
                    Message(role, self.fill_text(pair[1], template.syntax, arguments, node, frame), item.placed),
                    item.placed,
                )
            ]
        if isinstance(value, Template):
            filled = self.fill_template(value, replace_keywords(arguments, value), node, frame)
            if isinstance(filled, List):
                return list(filled.items)
            return [Elem(Message(value.role or "user", filled, item.placed), item.placed)]
        if isinstance(value, Opaque) and value.type == "placeholder":
            return self._placeholder(value.name, item, arguments, frame)
        if isinstance(value, Message):
            content = (
                self.fill_text(value.content, template.syntax, arguments, node, frame)
                if isinstance(value.content, Str) and template.syntax == "jinja2"
                else value.content
            )
            return [Elem(replace(value, content=content), item.placed)]
        if isinstance(value, Str):
            return [
                Elem(
                    Message("user", self.fill_text(value, template.syntax, arguments, node, frame), item.placed),
                    item.placed,
                )
            ]
        return [item]

    def _placeholder(self, name: str, item: Elem, arguments: Arguments, frame: Frame) -> list[Item]:
        given = arguments.keywords.get(name)
        if isinstance(given, List):
            return list(given.items)
        hole = given if isinstance(given, Opaque) else self.by_name(name, item.placed, frame, name)
        if hole.growth is Growth.FIXED:
            hole = replace(hole, growth=Growth.APPEND)
        return [Rest(hole, item.placed)]

    def _call_placeholder(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        given = arguments.get(0, "variable_name")
        name = self.text_of(given) if given is not None else None
        span = self.span_of(node, frame)
        made = self.by_name(name or "messages", span, frame, name or "messages")
        return replace(made, type="placeholder", name=name or "messages")

    def _call_string_template(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        if not arguments.positional:
            return None
        return Template(
            arguments.positional[0],
            "dollar",
            (),
            None,
            ("substitute", "safe_substitute"),
            (),
            False,
            self.span_of(node, frame),
        )

    def _call_jinja_template(self, path: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        if not arguments.positional:
            return None
        return Template(
            arguments.positional[0],
            "jinja2",
            (),
            None,
            ("render", "render_async"),
            (),
            False,
            self.span_of(node, frame),
        )

    # ---- docstring templates

    def docstring_template(self, info: Any) -> Str | None:
        """The docstring of a function that a library uses as its prompt template."""
        if not info.decorators or isinstance(info.node, ast.Lambda):
            return None
        frame = self.module_frame(info.module)
        for decorator in info.node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if (
                info.decorators
                and isinstance(target, ast.Name | ast.Attribute)
                and target is not None
                and _last(target) in {"prompt", "template", "prompt_template"}
            ):
                value = self.eval(target, frame)
                if isinstance(value, Lib):
                    first = info.node.body[0]
                    if (
                        isinstance(first, ast.Expr)
                        and isinstance(first.value, ast.Constant)
                        and isinstance(first.value.value, str)
                    ):
                        text = self.eval(first.value, frame)
                        if isinstance(text, Str):
                            return Str(self.texts.strip(self.texts.dedent(text.segments)))
        return None

    def fill_docstring(self, template: Str, frame: Frame) -> Value:
        """A docstring template with the parameters bound."""
        keywords = dict(frame.locals)
        places: dict[int | str, Span] = {
            name: value.span for name, value in keywords.items() if isinstance(value, Opaque)
        }
        return self.fill_jinja(template, Arguments(keywords=keywords, places=places), frame)


class _Super:
    """`super()`: the same object, looked up behind the current class."""

    def __init__(self, library: Library, receiver: Value, behind: list[Any]) -> None:
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


def replace_keywords(arguments: Arguments, template: Template) -> Arguments:
    """The arguments with the template's own bindings below them."""
    keywords = {**dict(template.bound), **arguments.keywords}
    return Arguments(
        arguments.positional, keywords, arguments.rest, arguments.rest_keywords, arguments.places, arguments.expressions
    )


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


Library._handlers_by_path = {
    "str": Library._call_str, "repr": Library._call_str, "format": Library._call_format, "sorted": Library._call_sorted, "list": Library._call_list, "tuple": Library._call_list,
    "dict": Library._call_dict, "len": Library._call_len, "enumerate": Library._call_enumerate, "zip": Library._call_zip, "range": Library._call_range,
    "reversed": Library._call_reversed, "isinstance": Library._call_isinstance, "getattr": Library._call_getattr, "super": Library._call_super,
    "print": Library._call_print, "map": Library._call_map, "json.dumps": Library._call_dumps,
    "string.Template": Library._call_string_template, "jinja2.Template": Library._call_jinja_template,
    "langchain_core.prompts.MessagesPlaceholder": Library._call_placeholder, "langchain.prompts.MessagesPlaceholder": Library._call_placeholder,
    "langchain_core.prompts.chat.MessagesPlaceholder": Library._call_placeholder, "langchain_classic.prompts.MessagesPlaceholder": Library._call_placeholder,
}  # fmt: skip
