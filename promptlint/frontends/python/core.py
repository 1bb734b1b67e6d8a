"""What all parts of the interpreter share: catalogs, budgets, and how an abstract value becomes text with holes."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from promptlint.catalog.names import NameFact, Names, words
from promptlint.catalog.sdk import Sdk
from promptlint.catalog.sources import Sources
from promptlint.frontends import dates
from promptlint.frontends.base import Project, TemplateReader
from promptlint.frontends.python.index import FunctionInfo, Index, Module
from promptlint.frontends.python.text import (
    BudgetError,
    Segments,
    Texts,
    choose,
    layout_of,
    may_pad,
    merge,
    placed,
    shortest,
    split_common,
    static_text,
    weight,
)
from promptlint.frontends.python.values import (
    ORDER,
    Alt,
    Bound,
    Class,
    Const,
    Dict,
    Each,
    Elem,
    Frame,
    Function,
    Item,
    Journal,
    Lib,
    List,
    Message,
    Object,
    Opaque,
    Pick,
    Place,
    Rest,
    Str,
    Template,
    Value,
    contained,
    merge_origins,
    origins_of,
    worst,
)
from promptlint.ir import (
    Confidence,
    Growth,
    Guard,
    Hole,
    Origin,
    Repeat,
    Segment,
    Step,
    Text,
    Unresolved,
    Volatility,
    holes_of,
)
from promptlint.source import Span

__all__ = ["Arguments", "BudgetError", "Core", "identifier"]

MAX_DEPTH = 8  # calls inlined into one another
SOFT_STEPS = 4_000  # after so many evaluated nodes a root inlines no more calls
LEAN_STEPS = 120  # the same, once a project has used up its allowance
ALLOWANCE = 200_000  # evaluated nodes of a project of a thousand files and more that its roots may share freely: about three seconds
AMPLE = 500_000  # the same for a smaller project, in which all else takes less time
AMPLE_FILES = 1_000
HARD_STEPS = 40_000  # after so many it ends
MAX_WORK = 400_000  # segments that a root may place, each time anew: what doubles itself ends here
MODULE_STEPS = 400_000  # after so many steps of all its roots together, the rest of a module is left unread
MAX_ITEMS = 100_000  # of a list
_MONTH_TOKENS = 2  # of the name or number of a month, or of a year
MAX_TEXT = 400_000  # characters of one folded text

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLOT = re.compile(r"\{[A-Za-z_]\w*\}")
# Words of a function's name that say that it writes out what it is given.
_SPELLING = frozenset(
    [
        "format",
        "formatted",
        "fmt",
        "str",
        "string",
        "iso",
        "render",
        "human",
        "humanize",
        "pretty",
        "date",
        "datetime",
        "timestamp",
    ]
)
# Words of a function's name that say that it chooses by what it is given: of a conversation or a question it makes something else at each turn.
_FINDING = frozenset(["search", "retrieve", "lookup", "recall", "relevant", "similar", "nearest", "knn", "rag"])
_CHOOSING = frozenset(
    ["select", "rank", "rerank", "pick", "route", "classify", "detect", "choose", "suggest", "find", "match"]
)
_WHOLE = frozenset(
    ["messages", "history", "conversation", "turns"]
)  # what is found is a part of the conversation itself
# Of these the newest message is what such a function reads.
_PLAIN = frozenset(["unknown", "request", "context", "state"])  # kinds that only say what a value is for
_ASKED = frozenset(["request", "history", "state"])
_WRAPPERS = frozenset(
    [
        "str",
        "repr",
        "join",
        "format",
        "len",
        "list",
        "tuple",
        "set",
        "sorted",
        "dict",
        "get",
        "items",
        "keys",
        "values",
        "strip",
        "lstrip",
        "rstrip",
        "dumps",
        "append",
        "upper",
        "lower",
        "title",
        "isoformat",
        "strftime",
    ]
)


def _chosen(origins: tuple[Origin, ...], spoken: tuple[str, ...], expression: str, span: Span) -> tuple[Origin, ...]:
    """Why the result of a function changes that chooses by its arguments, as its name (`spoken`, its words) says.

    What is found for a conversation is another thing at each turn, though the conversation only grows; where it comes from is the call.
    """
    finds, chooses = not _FINDING.isdisjoint(spoken), not _CHOOSING.isdisjoint(spoken)
    if not (finds or chooses) or not _WHOLE.isdisjoint(spoken):
        return origins
    return tuple(
        replace(
            origin,
            kind="context" if finds else "request",
            volatility=max(origin.volatility, Volatility.TURN),
            expression=expression,
            span=span,
            steps=(*origin.steps, Step(origin.span, f"`{origin.expression}`"))[:8],
        )
        if origin.kind in _ASKED and origin.confidence > Confidence.LOW
        else origin
        for origin in origins
    )


class Arguments:
    """The evaluated arguments of a call. `rest` and `rest_keywords` are unknown `*args` and `**kwargs`.

    Where an argument stands and how it is written is asked of few calls, so it is looked up when it is asked.
    """

    __slots__ = ("_expressions", "_module", "_places", "_written", "keywords", "positional", "rest", "rest_keywords")

    def __init__(
        self,
        positional: list[Value] | None = None,
        keywords: dict[str, Value] | None = None,
        rest: Opaque | None = None,
        rest_keywords: Opaque | None = None,
        places: dict[int | str, Span] | None = None,
        expressions: dict[int | str, str] | None = None,
        module: Module | None = None,
    ) -> None:
        self.positional = positional if positional is not None else []
        self.keywords = keywords if keywords is not None else {}
        self.rest = rest
        self.rest_keywords = rest_keywords
        self._places = places if places is not None else {}
        self._expressions = expressions if expressions is not None else {}
        self._module = module
        self._written: dict[int | str, ast.expr] = {}  # arguments whose place nobody has asked for yet

    def write(self, key: int | str, node: ast.expr) -> None:
        """Note the node of an argument, by position or keyword."""
        self._written[key] = node

    @property
    def places(self) -> dict[int | str, Span]:
        """Where the arguments stand, by position or keyword."""
        self._look()
        return self._places

    @property
    def expressions(self) -> dict[int | str, str]:
        """How the arguments are written, by position or keyword."""
        self._look()
        return self._expressions

    def with_keywords(self, keywords: dict[str, Value]) -> Arguments:
        """The same call with other keywords."""
        return Arguments(self.positional, keywords, self.rest, self.rest_keywords, self.places, self.expressions)

    def _look(self) -> None:
        if self._written and self._module is not None:
            for key, node in self._written.items():
                self._places[key] = self._module.span(node)
                self._expressions[key] = self._module.text(node)
            self._written.clear()

    def get(self, position: int | None, name: str = "") -> Value | None:
        """The argument by keyword, else by position."""
        if name and name in self.keywords:
            return self.keywords[name]
        if position is not None and 0 <= position < len(self.positional):
            return self.positional[position]
        return None

    def all(self) -> list[Value]:
        """Every argument value."""
        return [
            *self.positional,
            *self.keywords.values(),
            *(value for value in (self.rest, self.rest_keywords) if value),
        ]


def identifier(expression: str) -> str:
    """The telling identifier of an expression: the last one that is no wrapper (`"user"` of `str(user).strip()`)."""
    found = _IDENTIFIER.findall(
        re.sub(
            r"'[^']*'|\"[^\"]*\"",
            lambda m: " " + m.group()[1:-1] + " " if m.group()[1:-1].isidentifier() else " ",
            expression,
        )
    )
    telling = [word for word in found if word not in _WRAPPERS and word not in {"self", "cls"}]
    return telling[-1] if telling else (found[-1] if found else "")


class Core:
    """State of one run, and conversions. The other parts of the interpreter are mixed into it."""

    def __init__(
        self, project: Project, index: Index, sdk: Sdk, sources: Sources, names: Names, templates: TemplateReader
    ) -> None:
        self.project = project
        self.index = index
        self.sdk = sdk
        self.sources = sources
        self.names = names
        self.templates = templates
        self.journal = Journal()
        self.texts = Texts()
        self.stack: list[Frame] = []
        self.steps = 0
        self.work = 0
        self.spent: Counter[Path] = Counter()  # steps of all roots of a module
        self.total = 0  # steps of all roots so far
        self.soft = SOFT_STEPS
        self.sent = 0  # calls that send, silent evaluation included
        self.silent = 0  # above 0: evaluation must not report prompts
        self.module_frames: dict[int, Frame] = {}
        self.class_frames: dict[int, Frame] = {}  # by class: the call of the function that last defined it
        self.unresolved: list[Unresolved] = []
        self.facts: dict[str, NameFact] = {}
        self.sending: frozenset[str] = frozenset()  # last names of the calls that may send a prompt
        self.files: dict[Path, Str | None] = {}
        # What the current step has read: units, shared values, answers. None where nobody asks afterwards, which takes less time.
        self.reads: set[Hashable] | None = None
        self.shared: dict[Hashable, set[Hashable]] = {}  # what was read to make a value that several steps use

    def note(self, read: Hashable) -> None:
        """Note what the current step reads."""
        if self.reads is not None:
            self.reads.add(read)

    @contextmanager
    def sharing(self, value: Hashable) -> Iterator[None]:
        """What is read inside was read to make a value that is kept: whoever uses it must note the value among its own reads, as is done here."""
        outer = self.reads
        if outer is None:
            yield
            return
        outer.add(value)
        self.reads = self.shared.setdefault(value, set())
        try:
            yield
        finally:
            self.reads = outer

    # ---- provided by the mixins

    def eval(self, node: ast.expr, frame: Frame) -> Value:
        """The abstract value of an expression."""
        raise NotImplementedError

    def call(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The abstract value of a call."""
        raise NotImplementedError

    def call_function(
        self,
        info: FunctionInfo,
        receiver: Value | None,
        arguments: Arguments,
        node: ast.AST,
        frame: Frame,
        captured: Frame | None = None,
    ) -> Value:
        """The abstract value of a call of a project function."""
        raise NotImplementedError

    def note_loose(self, value: Value, node: ast.AST, frame: Frame) -> None:
        """Remember a text or list that goes where we cannot follow."""
        raise NotImplementedError

    def attribute(self, value: Value, name: str, node: ast.AST, frame: Frame) -> Value:
        """The abstract value of an attribute."""
        raise NotImplementedError

    def library_value(self, lib: Lib, node: ast.AST, frame: Frame) -> Value:
        """What a library name stands for when it is used as a value."""
        raise NotImplementedError

    # ---- origins

    def fact(self, name: str) -> NameFact:
        """What a name says."""
        fact = self.facts.get(name)
        if fact is None:
            fact = self.facts[name] = self.names.fact(name)
        return fact

    def best_fact(self, *names: str) -> NameFact:
        """The first name that says something; the last one's fact when none does."""
        fact = self.names.unknown
        for name in names:
            if name:
                fact = self.fact(name)
                if fact.confidence > Confidence.LOW:
                    return fact
        return fact

    def origin(
        self,
        kind: str,
        volatility: Volatility,
        confidence: Confidence,
        expression: str,
        span: Span,
        frame: Frame | None,
    ) -> Origin:
        """One origin; what is evaluated at import lives as long as the process."""
        at_import = frame is not None and frame.at_import
        if at_import:
            volatility = min(volatility, Volatility.PROCESS)
        return Origin(kind, volatility, confidence, expression, span, (), at_import)

    def by_name(self, expression: str, span: Span, frame: Frame | None, *names: str, **rest: Any) -> Opaque:
        """A value about which only its name is known."""
        name = names[0] if names else identifier(expression)
        fact = self.fact_of(expression, *names, name)
        origin = self.origin(fact.origin, fact.volatility, fact.confidence, expression, span, frame)
        return Opaque(expression, span, (origin,), name, "", fact.kind, fact.growth, **rest)

    def fact_of(self, expression: str, *names: str) -> NameFact:
        """What the names say of a value that is spelled so: an attribute of settings is a setting, whatever its own name only guesses."""
        fact = self.best_fact(*names)
        if fact.origin in _PLAIN:
            return self.names.held(expression) or fact
        return fact

    def unknown(
        self, expression: str, span: Span, frame: Frame | None, *parts: tuple[Origin, ...], name: str = ""
    ) -> Opaque:
        """The result of something that we have no model for; what went in may come out, but a clock comes out of what spells one only."""
        spoken = words(expression.split("(", 1)[0].rsplit(".", 1)[-1])
        if parts and not _SPELLING.intersection(spoken):
            parts = tuple(contained(group) for group in parts)
            parts = tuple(_chosen(group, spoken, expression, span) for group in parts)
        carried = tuple(
            replace(origin, confidence=min(origin.confidence, Confidence.MEDIUM))
            for group in parts
            for origin in group
            if origin.confidence > Confidence.LOW
        )
        origin = self.origin("unknown", Volatility.REQUEST, Confidence.LOW, expression, span, frame)
        return Opaque(expression, span, merge_origins(carried, (origin,)), name)

    def derived(self, expression: str, span: Span, *values: Value | None, name: str = "") -> Opaque:
        """The result of a computation that depends on its operands only."""
        steps: tuple[Step, ...] = ()
        parameter = False
        for value in values:
            if isinstance(value, Opaque):
                steps = steps or value.steps
                parameter = parameter or value.parameter
        return Opaque(
            expression,
            span,
            merge_origins(*(origins_of(value) for value in values)),
            name,
            "",
            steps=steps,
            parameter=parameter,
        )

    def span_of(self, node: ast.AST, frame: Frame) -> Span:
        """Place of a node."""
        return frame.module.span(node)

    def source_of(self, node: ast.AST, frame: Frame) -> str:
        """Source of a node in one line."""
        return frame.module.text(node)

    def guard(self, node: ast.AST, frame: Frame, value: Value) -> Guard:
        """The guard that an evaluated condition makes. The order of a set decides no condition."""
        origins = contained(origins_of(value), ORDER)
        volatility, confidence = worst(origins)
        return Guard(self.source_of(node, frame), self.span_of(node, frame), volatility, confidence, origins)

    def coarsen(self, value: Opaque, how: str, format_text: str | None = None) -> Opaque:
        """A clock that was reduced to its date changes once a day, one that was reduced to the month hardly ever."""
        month = how == "month"
        if how == "by-format":
            if format_text is None or not dates.date_only(format_text):
                return value
            month = dates.month_only(format_text)
        elif how == "by-letters":
            if format_text is None or not dates.letters_date_only(format_text):
                return value
            month = dates.letters_month_only(format_text)
        elif how == "process":
            origins = tuple(
                replace(origin, volatility=min(origin.volatility, Volatility.PROCESS))
                if origin.kind == "clock"
                else origin
                for origin in value.origins
            )
            return replace(value, origins=origins)
        elif how not in {"day", "month"}:
            return value
        tokens = _MONTH_TOKENS if month and value.tokens is None else value.tokens
        return replace(value, origins=dates.coarsened(value.origins, month=month), tokens=tokens)

    # ---- values as text

    def hole(self, value: Opaque, expression: str, span: Span, *names: str) -> Hole:
        """The hole that an unknown value leaves at a place."""
        origins = value.origins
        name = value.name or identifier(value.expression) or identifier(expression)
        kind = value.kind
        growth = value.growth
        if origins and all(origin.confidence == Confidence.LOW for origin in origins):
            fact = self.best_fact(*names, identifier(expression), name)
            if fact.confidence > Confidence.LOW:
                at_import = all(origin.at_import for origin in origins)
                volatility = min(fact.volatility, Volatility.PROCESS) if at_import else fact.volatility
                first = origins[0]
                origins = (
                    Origin(
                        fact.origin, volatility, fact.confidence, first.expression, first.span, first.steps, at_import
                    ),
                )
                kind = kind or fact.kind
        if kind is None:
            kind = self.best_fact(*names, identifier(expression), name).kind
        volatility, confidence = worst(origins)
        steps = value.steps
        if value.span != span and len(steps) < 10:
            steps = (Step(value.span, f"`{value.expression}`"), *steps)
        return Hole(expression, span, volatility, confidence, origins, name, kind, growth, value.tokens, None, steps)

    def repeat(self, over: Opaque, body: Segments, span: Span, growth: Growth, separator: str = "") -> Repeat:
        """A part of a text for each element of `over`. What is looped over shows where an element is printed, not at the loop's head."""
        slot = next((hole for hole in holes_of(body) if not set(over.origins).isdisjoint(hole.origins)), None)
        if slot is None:
            return Repeat(self.hole(over, over.expression, over.span), body, span, growth, separator)
        whole = self.hole(over, slot.expression, slot.span)
        return Repeat(replace(whole, name=over.name or whole.name), body, span, growth, separator)

    def to_segments(
        self,
        value: Value,
        expression: str,
        span: Span,
        *names: str,
        spec: str = "",
        conversion: str = "",
        target: bool = False,
    ) -> Segments:
        """The text of a value at a place (a slot of an f-string, an operand, an element of a join).

        `target`: the place is what `text += part` adds to, whose name says nothing of the values that it holds so far.
        """
        self.work += 1
        if isinstance(value, Str):
            self.work += weight(value.segments, MAX_WORK)
            if self.work > MAX_WORK:
                raise BudgetError
            text = placed(value.segments, Step(span, "placed here", "" if target else expression))
            if conversion == "r":
                whole = static_text(text)
                return (
                    (Text(repr(whole), span.inexact()),)
                    if whole is not None
                    else (Text("'", span.inexact()), *text, Text("'", span.inexact()))
                )
            if spec and spec != "s":
                return self._laid_out(text, expression, span, spec)
            return text
        if isinstance(value, Place):
            return (Text(str(value.path), span.inexact()),)
        if isinstance(value, Const):
            return self._constant(value, span, spec, conversion)
        if isinstance(value, Lib):
            value = self._lib(value, expression, span)
        if isinstance(value, Opaque):
            if spec:
                value = self.coarsen(value, "by-format", spec)
            return (self.hole(value, expression, span, *names),)
        if isinstance(value, Alt):
            arms = [
                self.to_segments(arm, expression, span, *names, spec=spec, conversion=conversion, target=target)
                for arm in value.arms
            ]
            return choose(value.guard, arms, span)
        if isinstance(value, Message):
            return self.to_segments(value.content, expression, span, *names)
        if isinstance(value, Template):
            return self.to_segments(value.text, expression, span, *names)
        if isinstance(value, List | Dict):
            return placed(self.structure(value, expression, span, "repr"), Step(span, "placed here", expression))
        if isinstance(value, Object):
            return self._object_text(value, expression, span, names)
        if isinstance(value, Bound) and isinstance(value.receiver, Const) and value.receiver.value is None:
            # Something else than None stands there by then.
            return (self.hole(self.by_name(expression, span, None, *names), expression, span, *names),)
        return (self.hole(self.derived(expression, span, value), expression, span, *names),)

    def _laid_out(self, text: Segments, expression: str, span: Span, spec: str) -> Segments:
        """Text under a format specification: blanks beside what may be shorter than its width, and nothing certain where it is cut."""
        whole = static_text(text)
        if whole is not None:
            if may_pad(spec):
                return text
            try:
                return (Text(format(whole, spec), span.inexact()),)
            except ValueError:
                return text
        layout = layout_of(spec)
        if layout is None or not (layout.most is not None or shortest(text) < layout.width):
            return text
        free = self.hole(self.derived(expression, span, Str(text)), expression, span)
        if layout.most is not None:
            return (free,)
        return (*((free,) if layout.align in ">^" else ()), *text, *((free,) if layout.align in "<^" else ()))

    def _lib(self, value: Lib, expression: str, span: Span) -> Value:
        source = self.sources.sources.get(value.path)
        frame = self.stack[-1] if self.stack else None
        if source is not None:
            return Opaque(
                expression,
                span,
                (self.origin(source.kind, source.volatility, Confidence.HIGH, expression, span, frame),),
            )
        return self.unknown(expression, span, frame)

    def _constant(self, value: Const, span: Span, spec: str, conversion: str) -> Segments:
        try:
            shown = (
                format(value.value, spec)
                if spec and not may_pad(spec)
                else (repr(value.value) if conversion == "r" else str(value.value))
            )
        except (ValueError, TypeError):
            shown = str(value.value)
        return (Text(shown, span.inexact()),) if shown else ()

    def _object_text(self, value: Object, expression: str, span: Span, names: tuple[str, ...]) -> Segments:
        for name in ("__str__", "__repr__"):
            method = self.find_method(value, name)
            if method is not None and self.stack:
                # The call stands nowhere in the source: it is placed at the method, in the method's own file.
                result = self.call_function(method, value, Arguments(), method.node, Frame(method.module))
                if not isinstance(result, Object):
                    return self.to_segments(result, expression, span, *names)
        return (self.hole(self.by_name(expression, span, None, *names, value.info.name), expression, span, *names),)

    def find_method(self, value: Object, name: str) -> FunctionInfo | None:
        """A method of an object's class or its bases."""
        raise NotImplementedError

    def text_of(self, value: Value) -> str | None:
        """The fixed text of a value, None when it is not fixed."""
        if isinstance(value, Str):
            return static_text(value.segments)
        return None

    def structure(
        self,
        value: Value,
        expression: str,
        span: Span,
        style: str,
        indent: int = 0,
        level: int = 0,
        ascii_only: bool = True,
    ) -> Segments:
        """A list or dict as it is printed: `repr`, or JSON. Places inside are kept, brackets and quotes are inexact."""
        here = span.inexact()

        def fixed(text: str) -> Text:
            return Text(text, here)

        if level > 12:
            return (self.hole(self.derived(expression, span, value), expression, span),)
        if isinstance(value, Str):
            whole = static_text(value.segments)
            if whole is not None:
                shown = json.dumps(whole, ensure_ascii=ascii_only) if style == "json" else repr(whole)
                if shown[1:-1] == whole:
                    return (fixed(shown[0]), *value.segments, fixed(shown[-1]))
                place = value.segments[0].span.inexact() if value.segments else here
                return (Text(shown, place),)
            quote = '"' if style == "json" else "'"
            return (fixed(quote), *value.segments, fixed(quote))
        if isinstance(value, Const):
            if style == "json" and (value.value is None or isinstance(value.value, bool)):
                return (fixed({None: "null", True: "true", False: "false"}[value.value]),)
            return (fixed(repr(value.value)),)
        if isinstance(value, List):
            if value.disorder or (style == "repr" and value.kind == "set" and value.items):
                return (self.hole(self.derived(expression, span, value), expression, span),)
            brackets = {"list": "[]", "tuple": "()", "set": "{}"}[value.kind] if style == "repr" else "[]"
            opening, closing = brackets[0], brackets[1]
            if not value.items:
                return (fixed(opening + closing),)
            inner: list[Segment] = []
            pad = "\n" + " " * indent * (level + 1) if indent else ""
            between = "," + (pad or " ")
            for position, item in enumerate(value.items):
                first = position == 0
                if isinstance(item, Elem):
                    if not first:
                        inner.append(fixed(between))
                    inner.extend(
                        self.structure(item.value, expression, item.placed, style, indent, level + 1, ascii_only)
                    )
                elif isinstance(item, Each):
                    body = [
                        segment
                        for one in item.body
                        if isinstance(one, Elem)
                        for segment in self.structure(
                            one.value, expression, one.placed, style, indent, level + 1, ascii_only
                        )
                    ]
                    inner.append(
                        Repeat(
                            self.hole(item.over, item.over.expression, item.over.span),
                            tuple(body),
                            item.placed,
                            item.growth,
                            between,
                        )
                    )
                else:
                    over = (
                        item.hole
                        if isinstance(item, Rest)
                        else self.derived(expression, item.placed, List((item,), span))
                    )
                    inner.append(self.hole(over, over.expression, item.placed))
            end = (
                "\n" + " " * indent * level
                if indent
                else ("," if value.kind == "tuple" and style == "repr" and len(value.items) == 1 else "")
            )
            return merge((fixed(opening + pad), *inner, fixed(end + closing)))
        if isinstance(value, Dict):
            pad = "\n" + " " * indent * (level + 1) if indent else ""
            pieces: list[Segment] = [fixed("{" + pad)] if value.entries or value.rest else [fixed("{")]
            for position, entry in enumerate(value.entries):
                key = json.dumps(entry.key, ensure_ascii=ascii_only) if style == "json" else repr(entry.key)
                lead = "," + (pad or " ") if position else ""
                segments = (
                    Text(f"{lead}{key}: ", entry.placed.inexact()),
                    *self.structure(entry.value, expression, entry.placed, style, indent, level + 1, ascii_only),
                )
                pieces.extend(choose(entry.guard, [segments, ()], entry.placed) if entry.guard else segments)
            if value.rest is not None:
                pieces.append(self.hole(value.rest, value.rest.expression, value.rest.span))
            pieces.append(fixed(("\n" + " " * indent * level if indent and value.entries else "") + "}"))
            return merge(tuple(pieces))
        if isinstance(value, Alt):
            return choose(
                value.guard,
                [self.structure(arm, expression, span, style, indent, level, ascii_only) for arm in value.arms],
                span,
            )
        if isinstance(value, Opaque):
            return (self.hole(value, value.expression, value.span),)
        if isinstance(value, Object):
            names = [name for name in value.info.annotations if name in value.fields]
            if style == "json" and names:
                pairs: list[Segment] = [fixed("{")]
                for position, name in enumerate(names):
                    pairs.append(fixed((", " if position else "") + json.dumps(name) + ": "))
                    pairs.extend(
                        self.structure(value.fields[name], expression, span, style, indent, level + 1, ascii_only)
                    )
                return merge((*pairs, fixed("}")))
        return self.to_segments(value, expression, span)

    # ---- truth and joins

    def truth(self, value: Value) -> bool | None:
        """Whether a value is true, None when that is not known."""
        if isinstance(value, Const):
            return bool(value.value)
        if isinstance(value, Str):
            if not value.segments:
                return False
            return True if any(isinstance(segment, Text) and segment.value for segment in value.segments) else None
        if isinstance(value, List):
            if not value.items:
                return False
            return True if any(isinstance(item, Elem) for item in value.items) else None
        if isinstance(value, Dict):
            if not value.entries and value.rest is None:
                return False
            return True if any(entry.guard is None for entry in value.entries) else None
        if isinstance(value, Function | Class | Bound | Message | Template | Object | Place):
            return True
        if isinstance(value, Alt):
            truths = {self.truth(arm) for arm in value.arms}
            return truths.pop() if len(truths) == 1 else None
        return None

    def join(self, guard: Guard, arms: list[Value], span: Span) -> Value:
        """The value behind a branch."""
        first = arms[0]
        if all(arm is first for arm in arms[1:]):
            return first
        if all(isinstance(arm, Str) for arm in arms):
            return Str(choose(guard, [arm.segments for arm in arms if isinstance(arm, Str)], span))
        try:
            if all(arm == first for arm in arms[1:]):
                return first
        except RecursionError:
            return first
        if all(isinstance(arm, Const) for arm in arms):
            values = [arm.value for arm in arms if isinstance(arm, Const)]
            if all(type(value) is type(values[0]) and value == values[0] for value in values):
                return first
        preferred = self._readable(arms)
        if preferred is not None:
            return preferred
        flat: list[Value] = []
        for arm in arms:
            if not any(arm is other or (not isinstance(arm, List | Dict | Object) and arm == other) for other in flat):
                flat.append(arm)
        if len(flat) == 1:
            return flat[0]
        if len(flat) > 6 or sum(_size(arm) for arm in flat) > 24:
            return self.derived(guard.expression, span, *flat)
        return Alt(guard, tuple(flat))

    def _readable(self, arms: list[Value]) -> Value | None:
        """A default text is what is sent unless a caller overrides an optional parameter: the reader sees that text."""
        texts = [arm for arm in arms if isinstance(arm, Str | Template)]
        others = [arm for arm in arms if not isinstance(arm, Str | Template)]
        if (
            len(texts) == 1
            and others
            and all(
                (isinstance(arm, Opaque) and arm.optional) or (isinstance(arm, Const) and arm.value is None)
                for arm in others
            )
        ):
            text = texts[0]
            if isinstance(text, Template):
                return text
            fixed = "".join(segment.value for segment in text.segments if isinstance(segment, Text))
            if len(fixed) >= 60 or _SLOT.search(fixed):
                return text
        lists = [arm for arm in arms if isinstance(arm, List | Dict | Object)]
        if len(lists) == 1 and all(
            (isinstance(arm, Const) and arm.value is None) or (isinstance(arm, Opaque) and arm.optional)
            for arm in arms
            if arm is not lists[0]
        ):
            return lists[0]
        return None

    def join_items(self, guard: Guard, arms: list[tuple[Item, ...]], span: Span) -> tuple[Item, ...]:
        """The content of a list behind a branch."""
        first = arms[0]
        if all(arm == first for arm in arms[1:]):
            return first
        head, middles, tail = split_common(arms)
        return (*head, Pick(guard, middles, span), *tail)


def _size(value: Value) -> int:
    return sum(_size(arm) for arm in value.arms) if isinstance(value, Alt) else 1
