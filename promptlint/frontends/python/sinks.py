"""Sinks: the arguments of a call that sends a prompt, as blocks."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any

from promptlint.catalog.media import load_media
from promptlint.catalog.names import words
from promptlint.catalog.providers import provider_at
from promptlint.catalog.sdk import Argument, Generic, Sink
from promptlint.frontends.python.core import Arguments, identifier
from promptlint.frontends.python.files import Files
from promptlint.frontends.python.index import FunctionInfo, Module, last_name
from promptlint.frontends.python.text import Segments, static_text
from promptlint.frontends.python.values import (
    Alt,
    Const,
    Dict,
    Each,
    Elem,
    Frame,
    Item,
    Lib,
    List,
    Message,
    Object,
    Opaque,
    Pick,
    Rest,
    Str,
    Template,
    Value,
    origins_of,
)
from promptlint.ir import (
    Block,
    BlockChoice,
    BlockKind,
    BlockNode,
    BlockRepeat,
    Confidence,
    Growth,
    Hole,
    Media,
    Origin,
    Parameter,
    Prompt,
    Text,
    Unresolved,
    Volatility,
    blocks_of,
    holes_of,
    text_of,
)
from promptlint.source import Span

__all__ = ["ELSEWHERE", "MARKER", "Draft", "Sinks"]

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "developer": "system",
    "ipython": "tool",
    "function": "tool",
}
_MEDIA = {
    "image_url": "image",
    "image": "image",
    "input_image": "image",
    "document": "file",
    "file": "file",
    "input_audio": "audio",
    "audio": "audio",
}
_CONTENT_KEYS = ("content", "parts", "text")
UNKNOWN_LIFETIME = "?"  # of a marker whose lifetime is a value
MARKER = "marker"  # origin of a draft that says what fills the marker that stands in place of the sink
ELSEWHERE = "elsewhere"  # origin of a draft whose text goes where no prefix of it is cached


_COUNTING = frozenset({"count", "num", "number", "estimate", "len"})
_MEASURING = frozenset({"tokenize", "embed", "aembed", "embedding", "embeddings"})


def _only_measures(name: str) -> bool:
    """Whether a function of this name counts the tokens of a text, or makes a vector of it (`num_tokens_from_string`, `embed_query`)."""
    spoken = set(words(name))
    return bool(spoken & _MEASURING) or ("tokens" in spoken and bool(spoken & _COUNTING))


@dataclass(slots=True, eq=False)
class Draft:
    """A prompt as one evaluation saw it. `chain` are the functions from the entry to the sink with the span of the call inside each."""

    prompt: Prompt
    chain: tuple[tuple[Module, FunctionInfo | None, Span], ...]
    parameters: bool  # it hangs on parameters of the entry
    entry: FunctionInfo | None = None


class Sinks(Files):
    """`call_sink`, `call_generic`, and messages as blocks."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.drafts: list[Draft] = []
        self.loose: list[tuple[Value, ast.AST, Frame]] = []
        self.text_names: dict[Text, str] = {}
        self._generics: dict[str, list[Generic]] = {}
        for generic in self.sdk.generics:
            for method in generic.method:
                self._generics.setdefault(method.rsplit(".", 1)[-1], []).append(generic)
        self._hangs = False
        self._marks_on_parts = False  # the sink passes on markers of a message's parts only
        self._constants: dict[str, Module] = {}
        self._constants_of = -1

    def note_loose(self, value: Value, node: ast.AST, frame: Frame) -> None:
        """Remember a text or list that goes where we cannot follow; what is only counted or embedded is not sent to a model that answers."""
        if isinstance(node, ast.Call) and _only_measures(last_name(node.func)):
            return
        if not self.silent and len(self.stack) == 1 and isinstance(value, Str | List | Dict):
            self.loose.append((value, node, frame))

    def note_elsewhere(self, value: Value, place: Span, node: ast.AST, frame: Frame) -> None:
        """Remember that a text is no prompt of its own; no call site comes of it."""
        if isinstance(value, Str | Alt | List | Template):
            self._hangs = False
            block = self._text_block(value, BlockKind.OTHER, None, place, "")
            self.draft((block,), node, frame, "elsewhere", ELSEWHERE)

    def note_marker(self, marker: str, value: Hole, node: ast.AST, frame: Frame) -> None:
        """Remember that a clock fills a marker: how fine it is printed is known here only, and the template may stand in another file."""
        if not self.silent and self.fact(identifier(marker)).origin == "clock":
            block = Block(BlockKind.OTHER, None, (value,), value.span)
            self.draft((block,), node, frame, marker, MARKER)

    # ---- which call is a sink

    def call_sink(self, callee: Lib, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        """Report a prompt when the callee is a sink; the reply's value, or None when it is no sink."""
        path = callee.path
        sink = self.sdk.sinks.get(path)
        if sink is None and callee.instance:
            sink = self.sdk.sinks.get(f"{path}.__call__")
        if sink is None:
            return None
        span, expression = self.span_of(node, frame), self.source_of(node, frame)
        if sink.sends:
            given = dict(arguments.keywords)
            for name, value in callee.arguments:
                given.setdefault(name, value)
            arguments = arguments.with_keywords(given)
            name = path if not callee.instance else f"{sink.package}.{path.split('.', 1)[-1]}"
            self.report(sink, name, sink.args, arguments, node, frame, Confidence.HIGH)
        if sink.history == "object":
            made = self.sdk.constructors.get(path)
            return Lib(made, True) if made is not None else self._reply(expression, span, frame)
        return self._reply(expression, span, frame)

    def _reply(self, expression: str, span: Span, frame: Frame) -> Opaque:
        """What a model answers: new with each request."""
        origin = self.origin("request", Volatility.REQUEST, Confidence.MEDIUM, expression, span, frame)
        return Opaque(expression, span, (origin,), "response")

    def call_generic(self, callee: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        """Report a prompt when the method's name and the arguments' shape say so, on a receiver of unknown type."""
        func = node.func
        if not isinstance(func, ast.Attribute) or not isinstance(callee, Opaque | Lib):
            return None
        if isinstance(callee, Lib) and not callee.path.startswith("<"):
            return None
        generics = self._generics.get(func.attr)
        if not generics:
            return None
        dotted = _dotted(func)
        for generic in generics:
            if self._fits(generic, dotted, arguments):
                row = Sink(
                    (dotted,),
                    "generic",
                    generic.provider,
                    generic.render_order,
                    generic.args,
                    model=generic.model,
                    cache_key=generic.cache_key,
                )
                span, expression = self.span_of(node, frame), self.source_of(node, frame)
                self.report(row, dotted, generic.args, arguments, node, frame, Confidence.MEDIUM)
                return self._reply(expression, span, frame)
        return None

    @staticmethod
    def _fits(generic: Generic, dotted: str, arguments: Arguments) -> bool:
        method = next((one for one in generic.method if dotted == one or dotted.endswith("." + one)), None)
        if method is None:
            return False
        if generic.receiver:
            receiver = dotted[: -len(method)].rstrip(".").rsplit(".", 1)[-1]
            spoken = words(receiver)
            if not any(_contains(spoken, tuple(one.split())) for one in generic.receiver):
                return False
        if not generic.requires:
            return True
        positions = {argument.name: argument.position for argument in generic.args}
        for name in generic.requires:
            if name in arguments.keywords:
                return True
            position = positions.get(name)
            if position is not None and position < len(arguments.positional):
                return True
        return False

    # ---- a prompt from arguments

    def report(
        self,
        sink: Sink,
        name: str,
        rows: tuple[Argument, ...],
        arguments: Arguments,
        node: ast.Call,
        frame: Frame,
        confidence: Confidence,
    ) -> None:
        """Build the prompt that a call sends and keep it."""
        if self.silent:
            return
        self._hangs = False
        self._marks_on_parts = "[*]" in sink.breakpoint
        blocks: list[BlockNode] = []
        taken: set[int] = set()
        used: set[str] = set()
        for row in rows:
            value = arguments.keywords.get(row.name)
            key: int | str = row.name
            if (
                value is None
                and row.position is not None
                and row.position < len(arguments.positional)
                and row.position not in taken
            ):
                value = arguments.positional[row.position]
                key = row.position
                taken.add(row.position)
            if value is None or row.block == "ignore":
                continue
            used.add(row.name)
            place = arguments.places.get(key, self.span_of(node, frame))
            expression = arguments.expressions.get(key, row.name)
            if isinstance(key, int) and row.block == "by-role" and _names_system_text(expression):
                row = replace(row, block=BlockKind.SYSTEM.value)
            blocks.extend(self.argument_blocks(value, row, place, expression, frame))
        if not blocks and arguments.rest_keywords is not None:
            rest = arguments.rest_keywords
            self._hangs = self._hangs or rest.parameter
            blocks.append(self._opaque_block(rest, BlockKind.OTHER, None, rest.span, rest.expression))
        if not blocks:
            return
        model = arguments.keywords.get(sink.model)
        named = self.text_of(model) if model is not None else None
        parameters = self._parameters(sink, arguments, node, frame)
        structured = any(one in arguments.keywords and not _is_none(arguments.keywords[one]) for one in sink.structured)
        self.draft(
            tuple(_settle(blocks)),
            node,
            frame,
            name,
            ELSEWHERE if named and load_media().is_media_model(named) else "sink",
            confidence=confidence,
            provider=self._provider(sink, arguments),
            model=named,
            render_order=sink.render_order,
            structured_output=structured,
            parameters=parameters,
        )

    def _provider(self, sink: Sink, arguments: Arguments) -> str | None:
        """The provider of the SDK, or the one whose address the client was given: many speak OpenAI's protocol."""
        address = arguments.keywords.get("base_url")
        url = self.text_of(address) if address is not None else None
        return (provider_at(url) if url else None) or sink.provider

    def _parameters(self, sink: Sink, arguments: Arguments, node: ast.Call, frame: Frame) -> tuple[Parameter, ...]:
        """The arguments that are part of the cache key; `extra_headers.x-id` names an entry of a dict. `**`: keyword arguments that were not followed."""
        found: list[Parameter] = []
        for path in sink.cache_key:
            name, _, key = path.partition(".")
            given = arguments.keywords.get(name)
            place = arguments.places.get(name, self.span_of(node, frame))
            expression = arguments.expressions.get(name, name)
            if key and isinstance(given, Dict):
                entry = next((one for one in given.entries if one.key is not None and one.key.lower() == key), None)
                given, place, expression = (entry.value, entry.placed, key) if entry is not None else (None, place, "")
            elif key:
                continue
            if given is not None and not _is_none(given):
                found.append(
                    Parameter(key or name, self._parameter_value(given, expression, place, key or name), place)
                )
        if sink.cache_key and arguments.rest_keywords is not None:
            rest = arguments.rest_keywords
            found.append(Parameter("**", self.hole(rest, rest.expression, rest.span), rest.span))
        return tuple(found)

    def draft(
        self, blocks: tuple[BlockNode, ...], node: ast.AST, frame: Frame, sink: str, origin: str = "sink", **rest: Any
    ) -> None:
        """Keep a prompt with the functions that it was reached through."""
        span = self.span_of(node, frame)
        chain = []
        calls = [one.call for one in self.stack[1:]] + [span]
        for one, call in zip(self.stack or [frame], calls, strict=True):
            chain.append((one.module, one.function, call or span))
        loops = any(one.in_loop for one in (self.stack or [frame]))
        growing = any(block.growth is Growth.APPEND for block in blocks_of(blocks)) or any(
            isinstance(block, BlockRepeat) for block in blocks
        )
        resolution, unresolved = _resolution(blocks)
        missing = tuple(dict.fromkeys((*unresolved, *self.unresolved)))[:12]
        prompt = Prompt(
            frame.module.source.path,
            _qualified(frame),
            sink,
            span,
            blocks,
            origin,
            in_loop=loops and growing,
            unresolved=missing,
            resolution=resolution,
            **rest,
        )
        self.drafts.append(Draft(prompt, tuple(chain), self._hangs, self.stack[0].function if self.stack else None))

    def _parameter_value(self, value: Value, expression: str, place: Span, name: str) -> Hole | Text:
        segments = self.to_segments(value, expression, place, name)
        if len(segments) == 1 and isinstance(segments[0], Text | Hole):
            return segments[0]
        whole = static_text(segments)
        if whole is not None:
            return Text(whole, place.inexact())
        return self.hole(self.derived(expression, place, value), expression, place, name)

    def argument_blocks(
        self, value: Value, row: Argument, place: Span, expression: str, frame: Frame
    ) -> list[BlockNode]:
        """The blocks of one argument of a sink."""
        if _is_none(value):
            return []
        if row.block == "by-role":
            return self.messages(value, place, expression, frame)
        kind = BlockKind(row.block)
        if isinstance(value, Alt):
            arms = tuple(tuple(self.argument_blocks(arm, row, place, expression, frame)) for arm in value.arms)
            return [BlockChoice(value.guard, arms, place)] if len(set(arms)) > 1 else list(arms[0])
        picked = self._picked(value, row, frame)
        if kind is BlockKind.TOOLS or kind is BlockKind.SCHEMA:
            return [self._structured_block(value, kind, place, expression)]
        role = "system" if kind is BlockKind.SYSTEM else "user" if kind is BlockKind.QUESTION else None
        blocks: list[BlockNode] = []
        for one, mark, where in picked:
            if mark is not None and _only_marks(one) and blocks:
                blocks[-1] = _marked(blocks[-1], mark)
            elif (
                isinstance(one, List)
                and kind in {BlockKind.OTHER, BlockKind.QUESTION}
                and self._looks_like_messages(one)
            ):
                blocks.extend(self.messages(one, where, expression, frame))
            else:
                blocks.append(self._text_block(one, kind, role, where, expression, mark))
        return blocks

    def _picked(
        self, value: Value, row: Argument, frame: Frame
    ) -> list[tuple[Value, tuple[Span, str | None] | None, Span]]:
        """The texts of a value at the row's places: itself, or the parts of a list of content blocks."""
        if isinstance(value, List):
            parts = []
            for item in value.items:
                if isinstance(item, Elem):
                    one = item.value
                    if isinstance(one, Dict):
                        text = one.get("text") or one.get("content")
                        parts.append((text if text is not None else one, _marker(one), item.placed))
                    else:
                        parts.append((one, None, item.placed))
                else:
                    parts.append((List((item,), value.span), None, item.placed))
            return parts
        for path in row.text:
            key = path.strip(".").split("[")[0]
            if key and path.startswith("."):
                found = None
                if isinstance(value, Dict):
                    found = value.get(key)
                elif isinstance(value, Object):
                    found = value.fields.get(key)
                elif isinstance(value, Lib) and value.arguments:
                    found = dict(value.arguments).get(key)
                if found is not None:
                    return [(found, None, _place_of(found))]
        if isinstance(value, Dict):
            return [(value.get("text") or value.get("content") or value, _marker(value), value.span)]
        return [(value, None, _place_of(value))]

    def _structured_block(self, value: Value, kind: BlockKind, place: Span, expression: str) -> Block:
        """Tools or a schema: JSON of what is known, in code order."""
        if isinstance(value, Opaque):
            if value.kind is None:
                value = replace(value, kind=kind)
            return self._opaque_block(value, kind, None, place, expression)
        if isinstance(value, List | Dict):
            mark = next(
                (
                    found
                    for item in _listed(value)
                    if isinstance(item, Elem) and isinstance(item.value, Dict) and (found := _marker(item.value))
                ),
                None,
            )
            known = _without_class_names(value) if kind is BlockKind.TOOLS else value
            segments = self.structure(known, expression, place, "json")
            return Block(
                kind,
                None,
                segments,
                value.span,
                place,
                self._name(segments, expression),
                breakpoint=mark[0] if mark else None,
                breakpoint_ttl=mark[1] if mark else None,
            )
        opaque = self.derived(expression, place, value, name=identifier(expression))
        return self._opaque_block(opaque, kind, None, place, expression)

    def _text_block(
        self,
        value: Value,
        kind: BlockKind,
        role: str | None,
        place: Span,
        expression: str,
        mark: tuple[Span, str | None] | None = None,
    ) -> Block:
        if isinstance(value, Opaque):
            block = self._opaque_block(value, kind, role, place, expression)
            return replace(block, breakpoint=mark[0], breakpoint_ttl=mark[1]) if mark else block
        segments = self.to_segments(value, expression, place, identifier(expression))
        self._note_parameters(value, segments)
        return Block(
            kind,
            role,
            segments,
            _extent(segments, place),
            place,
            self._name(segments, ""),
            breakpoint=mark[0] if mark else None,
            breakpoint_ttl=mark[1] if mark else None,
        )

    def _opaque_block(self, value: Opaque, kind: BlockKind, role: str | None, place: Span, expression: str) -> Block:
        self._hangs = self._hangs or value.parameter
        hole = self.hole(value, expression or value.expression, place, identifier(expression))
        growth = value.growth
        return Block(kind, role, (hole,), place, place, "", growth)

    def _note_parameters(self, value: Value, segments: Segments) -> None:
        if not self._hangs and any(self.is_open(hole) for hole in holes_of(segments)):
            self._hangs = True

    def is_open(self, hole: Hole) -> bool:
        """Whether a hole hangs on a parameter of the function where the evaluation began."""
        entry = self.stack[0].function if self.stack else None
        if entry is None:
            return False
        first, last = entry.module.source.path, entry.node.lineno
        for origin in hole.origins:
            if origin.span.path == first and last <= origin.span.line <= (
                entry.node.body[0].lineno if isinstance(entry.node.body, list) and entry.node.body else last
            ):
                return True
        return False

    def _name(self, segments: Segments, expression: str) -> str:
        """The constant that most of a block's text comes from."""
        longest: Text | None = None
        for text in text_of(segments):
            if longest is None or len(text.value) > len(longest.value):
                longest = text
        if longest is not None and longest not in self.text_names:
            named = self.constant_at(longest.span)
            if named:
                self.text_names[longest] = named
        if longest is not None and longest in self.text_names:
            return self.text_names[longest]
        return expression if expression.isidentifier() else ""

    def constant_at(self, span: Span) -> str:
        """The module-level name whose statement holds a place; empty when the place lies in a function."""
        if len(self.index.parsed) != self._constants_of:
            self._constants_of = len(self.index.parsed)
            self._constants = {module.source.path: module for module in self.index.parsed}
        module = self._constants.get(span.path)
        if module is None:
            return ""
        for name, statements in module.bindings.items():
            for statement in statements:
                if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.lineno <= span.line <= (
                    statement.end_lineno or 0
                ):
                    return name
        return ""

    # ---- messages

    def _looks_like_messages(self, value: List) -> bool:
        for item in value.items:
            if isinstance(item, Elem) and (
                isinstance(item.value, Message) or (isinstance(item.value, Dict) and item.value.get("role") is not None)
            ):
                return True
            if isinstance(item, Pick) and any(self._looks_like_messages(List(arm, value.span)) for arm in item.arms):
                return True
            if isinstance(item, Each) and self._looks_like_messages(List(item.body, value.span)):
                return True
        return False

    def messages(self, value: Value, place: Span, expression: str, frame: Frame) -> list[BlockNode]:
        """A list of messages (or what stands for one) as blocks."""
        if isinstance(value, List):
            nodes: list[BlockNode] = []
            for item in value.items:
                nodes.extend(self.message_item(item, frame))
            if value.disorder:
                hole = self.hole(self.derived(expression, place, value), expression, place)
                return [Block(BlockKind.OTHER, None, (hole,), place, place)]
            return nodes
        if isinstance(value, Alt):
            arms = tuple(tuple(self.messages(arm, place, expression, frame)) for arm in value.arms if not _is_none(arm))
            if len(arms) == 1 or len(set(arms)) == 1:
                return list(arms[0])
            return [BlockChoice(value.guard, arms, place)]
        if isinstance(value, Template):
            self.note(("first", frame.module.source.path))
            filled = self.fill_template(value, Arguments(keywords=dict(value.bound)), frame.module.tree.body[0], frame)
            return self.messages(filled, place, expression, frame)
        if isinstance(value, Message):
            return self.message(value, place, frame)
        if isinstance(value, Dict):
            if value.get("role") is not None:
                return self.message(value, value.span, frame)
            for key in ("messages", "input", "question", "query"):
                found = value.get(key)
                if found is not None:
                    return self.messages(found, place, expression, frame)
            return [
                self._text_block(
                    self.derived(expression, place, value, name=identifier(expression)),
                    BlockKind.QUESTION,
                    "user",
                    place,
                    expression,
                )
            ]
        if isinstance(value, Opaque):
            kind = value.kind
            name = identifier(expression) or value.name
            fact = self.best_fact(value.name, name)
            kind = kind or fact.kind
            growth = value.growth
            if kind is None and name in {"messages", "history", "conversation", "msgs", "chat_history", "dialog"}:
                kind = BlockKind.HISTORY
            if kind is BlockKind.HISTORY and growth is Growth.FIXED:
                growth = Growth.APPEND
            return [
                self._opaque_block(
                    replace(value, growth=growth, kind=kind), kind or BlockKind.OTHER, None, place, expression
                )
            ]
        if isinstance(value, Object):
            for name in ("messages", "history"):
                if name in value.fields:
                    return self.messages(value.fields[name], place, expression, frame)
            if "content" in value.fields:
                return self.message(value, place, frame)
        return [self._text_block(value, BlockKind.QUESTION, "user", place, expression)]

    def message_item(self, item: Item, frame: Frame) -> list[BlockNode]:
        """One element of a list of messages."""
        if isinstance(item, Elem):
            return self.message(item.value, item.placed, frame)
        if isinstance(item, Rest):
            self._hangs = self._hangs or item.hole.parameter
            hole = self.hole(item.hole, item.hole.expression, item.hole.span, identifier(item.hole.expression))
            growth = item.hole.growth
            if growth is Growth.FIXED and hole.kind in {BlockKind.HISTORY, None}:
                growth = Growth.APPEND
            kind = hole.kind or BlockKind.HISTORY
            return [Block(kind, None, (replace(hole, growth=growth),), item.hole.span, item.placed, "", growth)]
        if isinstance(item, Each):
            body: list[BlockNode] = []
            for inner in item.body:
                body.extend(self.message_item(inner, frame))
            over = self.hole(item.over, item.over.expression, item.over.span)
            return [BlockRepeat(over, tuple(body), item.placed, item.growth)] if body else []
        arms: list[tuple[BlockNode, ...]] = []
        for arm in item.arms:
            nodes: list[BlockNode] = []
            for inner in arm:
                nodes.extend(self.message_item(inner, frame))
            arms.append(tuple(nodes))
        if all(arm == arms[0] for arm in arms):
            return list(arms[0])
        return [BlockChoice(item.guard, tuple(arms), item.placed)]

    def message(self, value: Value, placed: Span, frame: Frame) -> list[BlockNode]:
        """One message as blocks: one for each part of its content."""
        if isinstance(value, Alt):
            arms = tuple(tuple(self.message(arm, placed, frame)) for arm in value.arms)
            return [BlockChoice(value.guard, arms, placed)]
        mark: tuple[Span, str | None] | None = None
        lost: Span | None = None
        role: str | None
        content: Value | None
        if isinstance(value, Message):
            role = value.role if isinstance(value.role, str) else self.text_of(value.role)
            content, lost = value.content, value.lost_mark
        elif isinstance(value, Dict):
            given = value.get("role")
            role = self.text_of(given) if given is not None else None
            if given is not None and role is None and isinstance(given, Str | Opaque | Alt | Lib):
                role = given.path.rsplit(".", 1)[-1].lower() if isinstance(given, Lib) else None
            content = next((found for key in _CONTENT_KEYS if (found := value.get(key)) is not None), None)
            mark = _marker(value)
            if mark is not None and self._marks_on_parts:
                lost, mark = mark[0], None
            if content is None:
                if value.rest is not None:
                    return [self._opaque_block(value.rest, BlockKind.HISTORY, role, placed, value.rest.expression)]
                if given is None:
                    return [Block(BlockKind.OTHER, None, self.structure(value, "", placed, "json"), value.span, placed)]
                content = Str(())
        elif isinstance(value, Object):
            given = value.fields.get("role")
            role = self.text_of(given) if given is not None else _role_of_class(value)
            content = next((value.fields[key] for key in _CONTENT_KEYS if key in value.fields), None)
            if content is None:
                return [self._text_block(value, BlockKind.OTHER, role, placed, "")]
        elif isinstance(value, List):
            pair = value.plain()
            if pair is not None and len(pair) == 2 and (word := self.text_of(pair[0])) is not None and len(word) < 24:
                role, content = word, pair[1]
            elif self._looks_like_messages(value):
                return self.messages(value, placed, "", frame)
            else:
                role, content = None, value
        elif isinstance(value, Opaque):
            kind = value.kind or self.best_fact(value.name).kind or BlockKind.OTHER
            return [self._opaque_block(value, kind, None, placed, value.expression)]
        else:
            role, content = "user", value
        role = _ROLES.get((role or "").lower(), (role or "").lower()) or None
        blocks = self._content_blocks(content, role, placed, mark, frame)
        if lost is not None and blocks and isinstance(blocks[-1], Block):
            blocks[-1] = replace(blocks[-1], lost_breakpoint=lost)
        return blocks

    def _content_blocks(
        self, content: Value, role: str | None, placed: Span, mark: tuple[Span, str | None] | None, frame: Frame
    ) -> list[BlockNode]:
        kind = {"system": BlockKind.SYSTEM, "tool": BlockKind.HISTORY, "assistant": BlockKind.HISTORY}.get(
            role or "", BlockKind.QUESTION
        )
        if isinstance(content, List) and any(_holds_parts(item) for item in content.items):
            blocks: list[BlockNode] = []
            for item in content.items:
                if isinstance(item, Pick):
                    arms = tuple(
                        tuple(self._content_blocks(List(arm, content.span), role, placed, None, frame)) if arm else ()
                        for arm in item.arms
                    )
                    blocks.append(BlockChoice(item.guard, arms, item.placed))
                    continue
                if isinstance(item, Each):
                    parts = self._content_blocks(List(item.body, content.span), role, placed, None, frame)
                    over = self.hole(item.over, item.over.expression, item.over.span)
                    blocks.append(BlockRepeat(over, tuple(parts), item.placed, item.growth))
                    continue
                if not isinstance(item, Elem):
                    blocks.extend(self.message_item(item, frame))
                    continue
                part = item.value
                if isinstance(part, Dict):
                    text = part.get("text")
                    found = _marker(part)
                    if found is not None and _only_marks(part) and blocks:
                        blocks[-1] = _marked(blocks[-1], found)
                        continue
                    medium = part.get("type")
                    word = self.text_of(medium) if medium is not None else None
                    if text is None and word in _MEDIA:
                        volatility = max((origin.volatility for origin in origins_of(part)), default=Volatility.STATIC)
                        blocks.append(
                            Block(kind, role, (Media(_MEDIA[word], item.placed, volatility),), item.placed, item.placed)
                        )
                        continue
                    text = text if text is not None else part.get("content") or part
                    blocks.append(self._text_block(text, kind, role, item.placed, "", found))
                else:
                    blocks.append(
                        self._text_block(
                            part, kind, role, item.placed, part.expression if isinstance(part, Opaque) else ""
                        )
                    )
            if mark is not None and blocks:
                blocks[-1] = _marked(blocks[-1], mark)
            return blocks
        expression = content.expression if isinstance(content, Opaque) else ""
        block = self._text_block(content, kind, role, placed, expression, mark)
        if isinstance(content, Opaque):
            # The content's own place is where a person looks; the message's is where it is put.
            hole = block.segments[0]
            assert isinstance(hole, Hole)
            block = replace(
                block,
                segments=(replace(hole, span=content.span, steps=()) if content.span.path == placed.path else hole,),
                span=content.span,
            )
        return [block]


def _settle(blocks: list[BlockNode]) -> list[BlockNode]:
    """Tell the newest user message from earlier ones: fixed ones before it are examples, others belong to the history."""
    flat = [block for block in blocks if isinstance(block, Block)]
    last = next((block for block in reversed(flat) if block.role == "user" and block.kind is BlockKind.QUESTION), None)
    result: list[BlockNode] = []
    for index, node in enumerate(blocks):
        earlier = last is not None and index < blocks.index(last)
        if earlier and isinstance(node, Block) and node.role in {"user", "assistant"}:
            worded = bool(node.segments) and all(isinstance(segment, Text) for segment in node.segments)
            if worded and node.kind in {BlockKind.QUESTION, BlockKind.HISTORY}:
                node = replace(node, kind=BlockKind.EXAMPLES)
        result.append(node)
    return result


def _resolution(blocks: tuple[BlockNode, ...]) -> tuple[float, tuple[Unresolved, ...]]:
    """The share of a prompt's blocks that was read, and what was not."""
    total = unread = 0
    missing: list[Unresolved] = []
    # Messages or a prompt that come as one value were not read, whatever the value's name promises.
    whole = all(block.role is None and not any(text_of(block.segments)) for block in blocks_of(blocks))
    for block in blocks_of(blocks):
        total += 1
        if len(block.segments) == 1 and isinstance(block.segments[0], Hole):
            hole = block.segments[0]
            if (
                not whole
                and hole.kind in {BlockKind.HISTORY, BlockKind.QUESTION, BlockKind.CONTEXT}
                and block.kind is not BlockKind.SYSTEM
                and hole.confidence > Confidence.LOW
            ):
                continue
            unread += 1
            missing.append(Unresolved(hole.expression, _reason(hole), hole.span))
        else:
            for hole in holes_of(block.segments):
                if hole.confidence == Confidence.LOW:
                    missing.append(Unresolved(hole.expression, _reason(hole), hole.span))
    return (round(1 - unread / total, 3) if total else 0.0), tuple(missing)


def _reason(hole: Hole) -> str:
    expression = " ".join(origin.expression for origin in hole.origins) or hole.expression
    kinds = {origin.kind for origin in hole.origins}
    elsewhere = kinds & {"hub", "remote-tools", "database"}
    if elsewhere:
        return min(elsewhere)
    if "hub" in expression or "pull_prompt" in expression or "get_prompt" in expression:
        return "hub"
    if "list_tools" in expression:
        return "remote-tools"
    if kinds & {"state"} or any(
        word in expression.lower()
        for word in ("cursor", "session.", "query(", ".objects", "fetch", "db.", "find_one", "select(")
    ):
        return "database"
    if "import_module" in expression or "__import__" in expression:
        return "dynamic-import"
    if "(" in expression:
        return "dependency"
    return "caller"


def _names_system_text(expression: str) -> bool:
    """Whether an argument is a variable for a system text: `llm.chat(system, history)` is somebody's own order of arguments."""
    spoken = words(expression) if expression.isidentifier() else ()
    return spoken[:1] == ("system",) and not {"message", "messages", "msg", "msgs"}.intersection(spoken[1:])


def _only_marks(value: Value) -> bool:
    """Whether a block is nothing but a marker for what stands before it (Bedrock's cachePoint)."""
    return isinstance(value, Dict) and [entry.key for entry in value.entries] == ["cachePoint"]


def _marked(node: BlockNode, mark: tuple[Span, str | None]) -> BlockNode:
    return replace(node, breakpoint=mark[0], breakpoint_ttl=mark[1]) if isinstance(node, Block) else node


def _listed(value: List | Dict) -> tuple[Item, ...]:
    """The elements of a list of tools, Bedrock's `{"tools": [...]}` included."""
    inner = value.get("tools") if isinstance(value, Dict) else value
    return tuple(inner.items) if isinstance(inner, List) else ()


def _without_class_names(value: List | Dict) -> List | Dict:
    """Tools with what the name of a library's class says of its instances left out: `SearchResults()` in a list of tools is a tool, whose
    description the library's source fixes, and no results of a search.
    """
    if not isinstance(value, List):
        return value
    items = tuple(replace(item, value=_as_tool(item)) if isinstance(item, Elem) else item for item in value.items)
    return List(items, value.span, value.kind, value.disorder)


def _as_tool(item: Elem) -> Value:
    """An element that a class makes or holds (`Search()`, `Search.from_url(x)`, `SearchTools.find`) as a tool that is fixed when the process starts."""
    value: Value = item.value
    if isinstance(value, Lib) and not value.instance:
        value = Opaque(value.path, item.placed)
    if not isinstance(value, Opaque):
        return item.value
    path = value.expression.split("(", 1)[0].split(".")
    of_class = any(part[:1].isupper() and not part.isupper() for part in path) and all(map(str.isidentifier, path))
    if not of_class or any(origin.confidence > Confidence.LOW for origin in value.origins):
        return item.value
    origin = Origin("tools", Volatility.PROCESS, Confidence.MEDIUM, value.expression, value.span)
    return replace(value, origins=(origin,), kind=BlockKind.TOOLS)


def _holds_parts(item: Item) -> bool:
    """Whether an element of a content list is a part of the message, or may be one."""
    if isinstance(item, Elem):
        return isinstance(item.value, Dict | Message | Str | Opaque | Lib)
    if isinstance(item, Pick):
        return any(_holds_parts(one) for arm in item.arms for one in arm)
    return isinstance(item, Each) and any(_holds_parts(one) for one in item.body)


def _marker(value: Dict) -> tuple[Span, str | None] | None:
    """The cache marker on a content block, with its lifetime."""
    for entry in value.entries:
        if entry.key in {"cache_control", "prompt_cache_breakpoint", "cachePoint"} and not _is_none(entry.value):
            ttl = entry.value.get("ttl") if isinstance(entry.value, Dict) else None
            unknown = ttl is not None or not isinstance(entry.value, Dict) or entry.value.rest is not None
            known = static_text(ttl.segments) if isinstance(ttl, Str) else None
            return entry.placed, known or (UNKNOWN_LIFETIME if unknown else None)
    return None


def _role_of_class(value: Object) -> str | None:
    name = value.info.name.lower()
    for word, role in (
        ("system", "system"),
        ("user", "user"),
        ("human", "user"),
        ("assistant", "assistant"),
        ("tool", "tool"),
    ):
        if word in name:
            return role
    return None


def _is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def _place_of(value: Value) -> Span:
    if isinstance(value, Str) and value.segments:
        return value.segments[0].span
    if isinstance(value, Alt):
        return value.guard.span
    if isinstance(value, Opaque | Const | Message | List | Dict | Object):
        return value.span
    if isinstance(value, Template) and value.span is not None:
        return value.span
    return Span("", 1, 1, 1, 1, exact=False)


def _extent(segments: Segments, place: Span) -> Span:
    """From the first to the last segment where they stand in one file, else where the block is placed."""
    spans = [segment.span for segment in segments]
    if spans and all(span.path == spans[0].path for span in spans):
        first, last = min(spans), max(spans, key=lambda span: (span.end_line, span.end_column))
        return Span(first.path, first.line, first.column, last.end_line, last.end_column, exact=False)
    return place


def _dotted(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return ".".join(reversed(parts))


def _contains(spoken: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    size = len(wanted)
    return any(spoken[index : index + size] == wanted for index in range(len(spoken) - size + 1))


def _qualified(frame: Frame) -> str:
    return frame.function.qualname if frame.function is not None else "<module>"
