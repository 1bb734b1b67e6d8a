"""Message and template classes of libraries: texts with slots as objects, filled in one of their syntaxes."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

from promptlint.frontends.python.builtin_calls import Builtins
from promptlint.frontends.python.core import Arguments
from promptlint.frontends.python.text import Field, Segments, dollar_fields, merge, static_text
from promptlint.frontends.python.values import (
    Alt,
    Dict,
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
    merge_origins,
    origins_of,
)
from promptlint.ir import Growth, Text
from promptlint.source import Span, TextMap

__all__ = ["Templates"]


class Templates(Builtins):
    """`call_template`, `fill_template` and what they need."""

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
        return Message(role, content if content is not None else Str(()), span, self._lost_mark(row, arguments, span))

    @staticmethod
    def _lost_mark(row: Any, arguments: Arguments, span: Span) -> Span | None:
        """The place of a cache marker in an argument that the library does not pass on."""
        for path in row.drops:
            name, _, key = path.partition(".")
            given = arguments.keywords.get(name)
            if given is None or (key and not (isinstance(given, Dict) and given.get(key) is not None)):
                continue
            return arguments.places.get(name, span)
        return None

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
        self.note(("first", frame.module.source.path))
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
            self.note(("file", self.project.display(path)))
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


def replace_keywords(arguments: Arguments, template: Template) -> Arguments:
    """The arguments with the template's own bindings below them."""
    keywords = {**dict(template.bound), **arguments.keywords}
    return Arguments(
        arguments.positional, keywords, arguments.rest, arguments.rest_keywords, arguments.places, arguments.expressions
    )


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
