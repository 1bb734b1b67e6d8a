"""Operators on library values: set operations, and runnables joined by `|` that end in a model."""

from __future__ import annotations

import ast
from dataclasses import replace

from promptlint.catalog.sdk import Argument, Sink
from promptlint.frontends.python.core import Arguments
from promptlint.frontends.python.sinks import Sinks
from promptlint.frontends.python.values import (
    Alt,
    Const,
    Dict,
    Frame,
    Lib,
    List,
    Opaque,
    Pipe,
    Str,
    Template,
    Value,
    merge_origins,
)
from promptlint.ir import Confidence

__all__ = ["Pipes"]

_RUN = frozenset(
    {"invoke", "ainvoke", "stream", "astream", "batch", "abatch", "run", "arun", "__call__", "astream_events"}
)
_ROW = (Argument("input", "by-role", 0, "[*]", ".role", ("", ".content")),)


class Pipes(Sinks):
    """`set_or_pipe` and `call_pipe`."""

    def set_or_pipe(self, node: ast.BinOp, left: Value, right: Value, frame: Frame) -> Value | None:
        """`|`, `&`, `-` on sets, dicts and template pipes; None when it is neither."""
        span = self.span_of(node, frame)
        placed = super().set_or_pipe(node, left, right, frame)
        if placed is not None:
            return placed
        if isinstance(node.op, ast.BitOr):
            if (
                isinstance(left, Template | Pipe)
                or (isinstance(right, Template | Pipe) and isinstance(left, Dict | Opaque | Lib | Alt))
                or (isinstance(left, Opaque) and isinstance(right, Lib) and right.instance)
            ):
                first = left.steps if isinstance(left, Pipe) else (left,)
                second = right.steps if isinstance(right, Pipe) else (right,)
                return Pipe((*first, *second))
            if isinstance(left, Dict) and isinstance(right, Dict):
                entries = {entry.key: entry for entry in (*left.entries, *right.entries)}
                return Dict(tuple(entries.values()), span, right.rest or left.rest)
        sets = [
            value
            for value in (left, right)
            if (isinstance(value, List) and value.kind == "set") or (isinstance(value, Opaque) and value.unordered)
        ]
        if not sets:
            return None
        disorder = merge_origins(
            *(value.disorder if isinstance(value, List) else value.origins for value in sets)
        ) or self.disorder(node, frame)
        if isinstance(node.op, ast.BitOr):
            items = (*self.items_of(left, node.left, frame), *self.items_of(right, node.right, frame))
            return List(items, span, "set", disorder)
        value = self.derived(self.source_of(node, frame), span, left, right)
        return replace(value, unordered=True, origins=merge_origins(disorder, value.origins))

    def call_pipe(self, pipe: Pipe, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A method of runnables joined by `|`: `invoke` fills the prompt and hands it to the model."""
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        if name in {"with_config", "with_retry", "with_fallbacks", "bind", "with_types"}:
            return pipe
        if name not in _RUN:
            return self.derived(expression, span, pipe)
        given: dict[str, Value] = {}
        places = dict(arguments.places)
        rest: Opaque | None = arguments.rest_keywords
        for value in (*pipe.steps[:1], *arguments.positional[:1]):
            if isinstance(value, Dict):
                given.update(
                    {entry.key: entry.value for entry in value.entries if not isinstance(entry.value, Lib | Pipe)}
                )
                places.update({entry.key: entry.placed for entry in value.entries})
                rest = value.rest or rest
            elif isinstance(value, Opaque) and not rest:
                rest = value
        given.update({key: value for key, value in arguments.keywords.items() if key not in {"config", "input"}})
        if isinstance(named := arguments.keywords.get("input"), Dict):
            given.update({entry.key: entry.value for entry in named.entries})
        current: Value | None = None
        for step in pipe.steps:
            if isinstance(step, Template):
                keywords = {**dict(step.bound), **given}
                current = self.fill_template(
                    step, Arguments(keywords=keywords, rest_keywords=rest, places=places), node, frame
                )
            elif current is None and isinstance(step, Opaque) and step is not pipe.steps[-1]:
                current = step  # a prompt that lives elsewhere
            elif current is not None:
                self._hand_over(step, current, arguments, node, frame)
                return self._reply(expression, span, frame)
        return (
            current if current is not None and not isinstance(current, Const) else self._reply(expression, span, frame)
        )

    def _hand_over(self, model: Value, prompt: Value, arguments: Arguments, node: ast.Call, frame: Frame) -> None:
        """Report what a pipe's model is sent."""
        row = Sink(("pipe",), "langchain_core", None, (), _ROW)
        name = "pipe.invoke"
        confidence = Confidence.MEDIUM
        extra: dict[str, Value] = {}
        if isinstance(model, Lib) and model.instance:
            found = self.sdk.sinks.get(f"{model.path}.invoke")
            if found is not None:
                row, confidence = found, Confidence.HIGH
                name = f"{found.package}.{model.path}.invoke"
            extra = dict(model.arguments)
        text = prompt if isinstance(prompt, Str | List | Alt | Opaque) else self.opaque(prompt, node, frame)
        sent = Arguments(positional=[text], keywords=extra, places={0: self.span_of(node, frame)})
        if isinstance(text, Opaque):
            sent.expressions[0] = text.expression
        rows = (*row.args, Argument("tools", "tools")) if "tools" in extra else row.args
        self.report(row, name, rows, sent, node, frame, confidence)
