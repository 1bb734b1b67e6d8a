"""Libraries as their rows say: sources, flows and barriers; unknown calls."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from promptlint.catalog.sources import Flow, Source
from promptlint.frontends.python.core import Arguments, identifier
from promptlint.frontends.python.features import noun
from promptlint.frontends.python.templates import Templates
from promptlint.frontends.python.values import (
    STRONG,
    Alt,
    Const,
    Dict,
    Elem,
    Frame,
    Item,
    Lib,
    List,
    Opaque,
    Rest,
    Str,
    Template,
    Value,
    merge_origins,
    origins_of,
)
from promptlint.ir import Confidence, Growth, Origin

__all__ = ["Library"]


def _known(source: Source) -> Confidence:
    """What lives in a hub, a database or on another server was not read; all else is as the row says."""
    return Confidence.LOW if source.kind in {"hub", "remote-tools", "database"} else Confidence.HIGH


LISTINGS = frozenset({"iterdir", "glob", "rglob"})  # methods of paths, and of nothing else
DATES = frozenset({"datetime.datetime", "datetime.date", "datetime.time"})  # their `replace` is another


def _is_given(flow: Flow, arguments: Arguments) -> bool:
    """Whether a function that reads the clock only when it is asked of nothing else was given a time: `time.gmtime(created)`."""
    at = {"all": 0}.get(flow.from_, int(flow.from_) if flow.from_.isdigit() else None)
    return at is not None and len(arguments.positional) > at


class Library(Templates):
    """`call_library`, `call_unknown` and templates."""

    _handlers_by_path: ClassVar[dict[str, Callable[..., Value | None]]] = {}  # filled below the class

    def call_library(self, callee: Lib, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The value of a call of a library function, constructor or method."""
        path = callee.path
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        if callee.instance:
            sunk = self.call_sink(callee, arguments, node, frame)
            if sunk is not None:
                self.sent += 1
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
            return Lib(made, True, self._inherited(made, arguments))
        if sunk is not None:
            self.sent += 1
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
        flow = self.sources.flows.get(path)
        if source is not None and not (flow is not None and _is_given(flow, arguments)):
            return self._source(source, path, arguments, node, frame)
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

    # ---- methods of unknown values

    def _inherited(self, made: str, arguments: Arguments) -> tuple[tuple[str, Value], ...]:
        """What calls on an instance inherit from its constructor: the model (`AutoTokenizer.from_pretrained("org/name")`), and what its row keeps."""
        instance = self.sdk.instances[made]
        given = next((arguments.keywords[name] for name in instance.named_by if name in arguments.keywords), None)
        if given is None and instance.named_by and arguments.positional:
            given = arguments.positional[0]
        kept = tuple((name, arguments.keywords[name]) for name in instance.keeps if name in arguments.keywords)
        return kept if given is None else (("model", given), *kept)

    def listing(self, method: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The files of a folder, by a method that only paths have."""
        path = f"pathlib.Path.{method}"
        return self._source(self.sources.sources[path], path, arguments, node, frame)

    def call_unknown(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The value of a call of something that we have no model for."""
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        sunk = self.call_generic(callee, arguments, node, frame)
        if sunk is not None:
            self.sent += 1
            return sunk
        for value in arguments.all():
            self.note_loose(value, node, frame)
            if isinstance(value, List) and self._looks_like_messages(value):
                self.sent += 1
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

    def _opaque_method(
        self, callee: Opaque, func: ast.Attribute, arguments: Arguments, node: ast.Call, frame: Frame
    ) -> Value:
        method = func.attr
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        receiver = self.eval(func.value, frame)
        if isinstance(
            receiver, Alt
        ):  # the arms are called one by one; of several unknown ones we cannot tell which is meant
            unknown = [arm for arm in receiver.arms if isinstance(arm, Opaque)]
            receiver = unknown[0] if len(unknown) == 1 else receiver
        if not isinstance(receiver, Opaque):
            return self.unknown(
                expression, span, frame, *(origins_of(value) for value in arguments.all()), name=noun(method)
            )
        if method in LISTINGS:
            return self.listing(method, arguments, node, frame)
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
        if method == "replace" and len(arguments.positional) >= 2 and receiver.type not in DATES:
            # A marker that is put into a text which we cannot read: where it stands is not known, that it stands there is.
            old = self.text_of(arguments.positional[0])
            telling = any(origin.kind in STRONG for origin in origins_of(arguments.positional[1]))
            if old and (telling or self.fact(identifier(old)).origin == "clock"):
                source = self.source_of(func.value, frame)
                whole = Str((self.hole(receiver, source, self.span_of(func.value, frame), identifier(source)),))
                return self.replace_text(whole, arguments, node, frame)
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


Library._handlers_by_path = {
    "str": Library._call_str, "repr": Library._call_str, "format": Library._call_format, "sorted": Library._call_sorted, "list": Library._call_list, "tuple": Library._call_list,
    "dict": Library._call_dict, "len": Library._call_len, "enumerate": Library._call_enumerate, "zip": Library._call_zip, "range": Library._call_range,
    "reversed": Library._call_reversed, "isinstance": Library._call_isinstance, "getattr": Library._call_getattr, "super": Library._call_super,
    "print": Library._call_print, "map": Library._call_map, "json.dumps": Library._call_dumps,
    "string.Template": Library._call_string_template, "jinja2.Template": Library._call_jinja_template,
    "langchain_core.prompts.MessagesPlaceholder": Library._call_placeholder, "langchain.prompts.MessagesPlaceholder": Library._call_placeholder,
    "langchain_core.prompts.chat.MessagesPlaceholder": Library._call_placeholder, "langchain_classic.prompts.MessagesPlaceholder": Library._call_placeholder,
}  # fmt: skip
