"""A template as a tree of statements with their places. Expressions are Jinja's own nodes; statements are ours, for the sake of the places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError

from promptlint.frontends.jinja.lex import Data, Output, Part, Tag, environment, lex
from promptlint.source import TextMap

__all__ = [
    "Arm",
    "Body",
    "CallBlock",
    "Container",
    "For",
    "If",
    "Import",
    "Include",
    "Macro",
    "Print",
    "Set",
    "SetBlock",
    "Statement",
    "Template",
    "TemplateBlock",
    "With",
    "parse",
]  # fmt: skip

MAX_DEPTH = 60  # nesting of tags; Jinja's own compiler gives up at about this depth, since Python does


@dataclass(slots=True)
class Print:
    """An output."""

    start: int
    end: int
    code: str
    expression: nodes.Node


@dataclass(slots=True)
class Arm:
    """One arm of an `if`."""

    start: int
    end: int
    code: str
    test: nodes.Node | None  # None for `else`
    body: Body


@dataclass(slots=True)
class If:
    """`if`, with its `elif`s and `else`."""

    start: int
    end: int
    arms: list[Arm]


@dataclass(slots=True)
class For:
    """`for`, with its `else`."""

    start: int
    end: int
    code: str
    head: nodes.For
    body: Body
    otherwise: Body


@dataclass(slots=True)
class Set:
    """`set x = …`."""

    start: int
    end: int
    code: str
    target: nodes.Node
    value: nodes.Node


@dataclass(slots=True)
class SetBlock:
    """`set x` with a body."""

    start: int
    end: int
    target: nodes.Node
    filter: nodes.Filter | None
    body: Body


@dataclass(slots=True)
class Macro:
    """A definition of a macro."""

    start: int
    end: int
    head: nodes.Macro
    body: Body


@dataclass(slots=True)
class CallBlock:
    """`call`: a macro that is given a body."""

    start: int
    end: int
    code: str
    head: nodes.CallBlock
    body: Body


@dataclass(slots=True)
class With:
    """`with`."""

    start: int
    end: int
    head: nodes.With
    body: Body


@dataclass(slots=True)
class TemplateBlock:
    """`{% block name %}`."""

    start: int
    end: int
    name: str
    body: Body


@dataclass(slots=True)
class Include:
    """`include` and `extends`."""

    start: int
    end: int
    code: str
    extends: bool
    template: nodes.Node


@dataclass(slots=True)
class Import:
    """`import` and `from … import`."""

    start: int
    end: int
    template: nodes.Node
    names: dict[str, str]  # name here -> name there; "" there for the whole module


@dataclass(slots=True)
class Container:
    """A tag whose body is rendered in place: `filter`, `autoescape`, `generation`, a tag of an extension that we do not know."""

    start: int
    end: int
    name: str
    code: str
    filter: nodes.Filter | None
    body: Body


Statement: TypeAlias = (
    Data | Print | If | For | Set | SetBlock | Macro | CallBlock | With | TemplateBlock | Include | Import | Container
)
Body: TypeAlias = list[Statement]


@dataclass(slots=True)
class Template:
    """One parsed template and the map of its text to the source."""

    text: str
    where: TextMap
    body: Body = field(default_factory=list)

    def walk(self, body: Body | None = None) -> Iterator[Statement]:
        """Every statement, depth first, in the order of the source."""
        for statement in self.body if body is None else body:
            yield statement
            if isinstance(statement, If):
                for arm in statement.arms:
                    yield from self.walk(arm.body)
            elif isinstance(statement, For):
                yield from self.walk(statement.body)
                yield from self.walk(statement.otherwise)
            elif isinstance(statement, (SetBlock, Macro, CallBlock, With, TemplateBlock, Container)):
                yield from self.walk(statement.body)


def parse(text: str, where: TextMap, *, trim_blocks: bool = False, lstrip_blocks: bool = False) -> Template:
    """Parse a template. Raises jinja2.TemplateSyntaxError with the line in `text` where it is broken."""
    parts = lex(text, trim_blocks=trim_blocks, lstrip_blocks=lstrip_blocks)
    reader = _Reader(text, parts)
    body, stop = reader.body(frozenset(), 0)
    assert stop is None
    if text.endswith(("\n", "\r")) and body and isinstance(body[-1], Data) and body[-1].end == len(text):
        last = body[-1]  # Jinja drops one line end at the end of a template
        cut = 2 if text.endswith("\r\n") else 1
        body[-1] = Data(last.start, last.end - cut, last.value.removesuffix("\n"))
    return Template(text, where, body)


@lru_cache(maxsize=4096)
def _snippet(source: str) -> nodes.Node:
    """The node of one tag or output. Nodes are only read, so equal tags share theirs."""
    body = environment().parse(source).body
    if not body:
        raise TemplateSyntaxError("empty tag", 1)
    return body[0]


class _Reader:
    """Recursive descent over the parts of one template."""

    def __init__(self, text: str, parts: list[Part]) -> None:
        self.text = text
        self.parts = parts
        self.at = 0
        self.ends = {part.name for part in parts if isinstance(part, Tag) and part.name.startswith("end")}

    def fail(self, part: Tag | Output, reason: str) -> TemplateSyntaxError:
        return TemplateSyntaxError(reason, self.text.count("\n", 0, part.start) + 1)

    def node(self, part: Tag | Output, source: str) -> nodes.Node:
        """The first node of a snippet, by Jinja's parser; the line of an error is that of the part."""
        try:
            return _snippet(source)
        except (TemplateSyntaxError, RecursionError) as error:
            raise self.fail(part, str(getattr(error, "message", error)) or "too deep") from error

    def head(self, tag: Tag, end: str = "") -> nodes.Node:
        """The node of a tag with an empty body."""
        return self.node(tag, f"{{% {tag.name} {tag.rest} %}}" + (f"{{% {end} %}}" if end else ""))

    def test(self, tag: Tag) -> nodes.Node:
        node = self.node(tag, f"{{% if {tag.rest} %}}{{% endif %}}")
        assert isinstance(node, nodes.If)
        return node.test

    def body(self, until: frozenset[str], depth: int) -> tuple[Body, Tag | None]:
        """Statements up to a tag named in `until`, which is consumed and returned; None at the end of the template."""
        body: Body = []
        while self.at < len(self.parts):
            part = self.parts[self.at]
            self.at += 1
            if isinstance(part, Data):
                body.append(part)
            elif isinstance(part, Output):
                node = self.node(part, f"{{{{ {part.code} }}}}")
                if isinstance(node, nodes.Output) and len(node.nodes) == 1:
                    body.append(Print(part.start, part.end, part.code.strip(), node.nodes[0]))
            elif part.name in until:
                return body, part
            elif depth > MAX_DEPTH:
                raise self.fail(part, f"tags are nested deeper than {MAX_DEPTH}")
            else:
                statement = self.statement(part, depth + 1)
                if statement is not None:
                    body.append(statement)
        return body, None

    def inside(self, tag: Tag, end: str, depth: int) -> Body:
        """The body of a tag up to its end tag."""
        body, stop = self.body(frozenset((end,)), depth)
        if stop is None:
            raise self.fail(tag, f"'{tag.name}' is never closed by '{end}'")
        return body

    def end_of_last(self) -> int:
        return self.parts[self.at - 1].end

    def statement(self, tag: Tag, depth: int) -> Statement | None:
        method = getattr(self, f"tag_{tag.name}", None)
        if method is not None:
            found: Statement | None = method(tag, depth)
            return found
        end = f"end{tag.name}"
        if end in self.ends:
            body = self.inside(tag, end, depth)
            return Container(tag.start, self.end_of_last(), tag.name, tag.rest.strip(), None, body)
        if tag.name.startswith("end") or tag.name in {"else", "elif"}:
            raise self.fail(tag, f"unexpected '{tag.name}'")
        return None  # do, break, continue, debug, or a tag of an extension: no text comes from it

    def tag_if(self, tag: Tag, depth: int) -> Statement:
        arms: list[Arm] = []
        opened: Tag | None = tag
        while opened is not None and opened.name != "endif":
            test = None if opened.name == "else" else self.test(opened)
            body, stop = self.body(frozenset(("elif", "else", "endif")), depth)
            if stop is None:
                raise self.fail(tag, "'if' is never closed by 'endif'")
            arms.append(Arm(opened.start, opened.end, opened.rest.strip(), test, body))
            opened = stop
        return If(tag.start, self.end_of_last(), arms)

    def tag_for(self, tag: Tag, depth: int) -> Statement:
        head = self.head(tag, "endfor")
        assert isinstance(head, nodes.For)
        otherwise: Body = []
        body, stop = self.body(frozenset(("else", "endfor")), depth)
        if stop is not None and stop.name == "else":
            otherwise, stop = self.body(frozenset(("endfor",)), depth)
        if stop is None:
            raise self.fail(tag, "'for' is never closed by 'endfor'")
        return For(tag.start, self.end_of_last(), tag.rest.strip(), head, body, otherwise)

    def tag_set(self, tag: Tag, depth: int) -> Statement:
        if tag.assigns:
            node = self.head(tag)
            assert isinstance(node, nodes.Assign)
            return Set(tag.start, tag.end, tag.rest.strip(), node.target, node.node)
        block = self.head(tag, "endset")
        assert isinstance(block, nodes.AssignBlock)
        body = self.inside(tag, "endset", depth)
        return SetBlock(tag.start, self.end_of_last(), block.target, block.filter, body)

    def tag_macro(self, tag: Tag, depth: int) -> Statement:
        head = self.head(tag, "endmacro")
        assert isinstance(head, nodes.Macro)
        body = self.inside(tag, "endmacro", depth)
        return Macro(tag.start, self.end_of_last(), head, body)

    def tag_call(self, tag: Tag, depth: int) -> Statement:
        head = self.head(tag, "endcall")
        assert isinstance(head, nodes.CallBlock)
        body = self.inside(tag, "endcall", depth)
        return CallBlock(tag.start, self.end_of_last(), tag.rest.strip(), head, body)

    def tag_with(self, tag: Tag, depth: int) -> Statement:
        head = self.head(tag, "endwith")
        assert isinstance(head, nodes.With)
        body = self.inside(tag, "endwith", depth)
        return With(tag.start, self.end_of_last(), head, body)

    def tag_filter(self, tag: Tag, depth: int) -> Statement:
        head = self.head(tag, "endfilter")
        assert isinstance(head, nodes.FilterBlock)
        body = self.inside(tag, "endfilter", depth)
        return Container(tag.start, self.end_of_last(), "filter", tag.rest.strip(), head.filter, body)

    def tag_block(self, tag: Tag, depth: int) -> Statement:
        name = tag.rest.split()
        if not name:
            raise self.fail(tag, "block without a name")
        body = self.inside(tag, "endblock", depth)
        return TemplateBlock(tag.start, self.end_of_last(), name[0], body)

    def tag_extends(self, tag: Tag, depth: int) -> Statement:  # noqa: ARG002
        node = self.head(tag)
        assert isinstance(node, nodes.Extends)
        return Include(tag.start, tag.end, tag.rest.strip(), extends=True, template=node.template)

    def tag_include(self, tag: Tag, depth: int) -> Statement:  # noqa: ARG002
        node = self.head(tag)
        assert isinstance(node, nodes.Include)
        return Include(tag.start, tag.end, tag.rest.strip(), extends=False, template=node.template)

    def tag_import(self, tag: Tag, depth: int) -> Statement:  # noqa: ARG002
        node = self.head(tag)
        assert isinstance(node, nodes.Import)
        return Import(tag.start, tag.end, node.template, {node.target: ""})

    def tag_from(self, tag: Tag, depth: int) -> Statement:  # noqa: ARG002
        node = self.head(tag)
        assert isinstance(node, nodes.FromImport)
        names = dict((name, name) if isinstance(name, str) else (name[1], name[0]) for name in node.names)
        return Import(tag.start, tag.end, node.template, names)
