"""From a template's tree to the segments of the prompt IR: an abstract interpreter that never renders.

Branches stay as `Choice`, loops as `Repeat`. Values that Python binds replace their slots; all other names speak for themselves (rules/names.toml). What
cannot be followed, and everything beyond the budgets below, becomes a low-confidence hole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError

from promptlint.catalog.names import load_names
from promptlint.catalog.sources import load_sources
from promptlint.frontends import dates
from promptlint.frontends.base import Loader
from promptlint.frontends.jinja import tree
from promptlint.frontends.jinja.lex import Data
from promptlint.frontends.jinja.values import (
    At,
    Const,
    Dct,
    Lst,
    Macro,
    Module,
    Namespace,
    Opaque,
    Txt,
    Value,
    as_guard,
    join,
    merged,
    opaque_named,
    origins_of,
    segments_of,
    size_of,
)
from promptlint.frontends.slots import fixed_text, placed
from promptlint.ir import (
    BlockKind,
    Choice,
    Confidence,
    Growth,
    Guard,
    Hole,
    Origin,
    Repeat,
    Segment,
    Step,
    Text,
    Volatility,
)
from promptlint.source import Span

__all__ = ["Evaluator", "Shared"]

MAX_STEPS = 40_000  # statements and expressions of one template with all that it includes
MAX_CALLS = 12  # nested includes, macros and parents
MAX_WITHIN = 2  # times that a template is followed within itself: one that includes itself twice doubles each time
MAX_SIZE = 20_000  # parts of a value, characters of a constant, items of a list
MAX_PARTS = 4_000  # of a text that is rendered; the rules take about a millisecond for each
MAX_UNROLLED = 40  # items of a list in the template that a loop over it is written out for

_PASSES_ON = (
    "items",
    "keys",
    "values",
    "get",
    "copy",
    "split",
    "splitlines",
    "strip",
    "replace",
    "format",
    "join",
    "encode",
    "decode",
    "isoformat",
    "dict",
    "json",
    "model_dump",
)
_STATIC = ("range", "dict", "namespace", "cycler", "joiner", "raise_exception", "lipsum")


@dataclass(slots=True)
class Shared:
    """What one reading shares between a template and those that it includes."""

    bound: Mapping[str, tuple[Segment, ...]]
    loader: Loader | None
    steps: int = 0
    calls: int = 0
    conditions: int = 0  # conditional expressions around the place
    including: list[tree.Template] = field(default_factory=list)  # the templates around the place, outermost first
    blocks: dict[str, list[tuple[tree.TemplateBlock, tree.Template]]] = field(default_factory=dict)
    active: list[tuple[str, int]] = field(
        default_factory=list
    )  # template blocks being rendered, with the depth of override
    missing: list[tuple[str, Span]] = field(default_factory=list)  # templates that could not be found or read
    read: dict[str, tree.Template | None] = field(default_factory=dict)  # templates by name; None: not found, or broken

    def template(self, name: str) -> tree.Template | None:
        """The template of a name, parsed once."""
        if name not in self.read:
            source = self.loader(name) if self.loader else None
            try:
                self.read[name] = tree.parse(source.text, source.map()) if source else None
            except (TemplateSyntaxError, RecursionError):
                self.read[name] = None
        return self.read[name]

    def spend(self) -> bool:
        """Count one step; False when the budget is gone."""
        self.steps += 1
        return self.steps <= MAX_STEPS


class Evaluator:
    """Evaluates one template."""

    def __init__(self, template: tree.Template, shared: Shared, scopes: list[dict[str, Value]] | None = None) -> None:
        self.template = template
        self.shared = shared
        self.scopes: list[dict[str, Value]] = scopes if scopes is not None else [{}]

    # ---- places

    def span(self, start: int, end: int) -> Span:
        return self.template.where.span(start, end)

    # ---- names

    def lookup(self, name: str) -> Value | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def bind(self, target: nodes.Node, value: Value) -> None:
        """Assign to a name, a tuple of names, or an attribute of a namespace."""
        if isinstance(target, nodes.Name):
            self.scopes[-1][target.name] = value
        elif isinstance(target, nodes.NSRef):
            for scope in reversed(self.scopes):
                held = scope.get(target.name)
                if held is not None:
                    scope[target.name] = (
                        held.set(target.attr, value)
                        if isinstance(held, Namespace)
                        else Opaque(merged((*origins_of(held), *origins_of(value))))
                    )
                    return
        elif isinstance(target, nodes.Tuple):
            parts = value.items if isinstance(value, Lst) and len(value.items) == len(target.items) else None
            for index, part in enumerate(target.items):
                self.bind(part, parts[index] if parts else self.part(value, part))

    def part(self, value: Value, target: nodes.Node) -> Value:
        """One of several values that come out of another: `for key, item in x`."""
        name = target.name if isinstance(target, nodes.Name) else ""
        opaque = value if isinstance(value, Opaque) else Opaque(origins_of(value))
        return replace(opaque, name=name, item=True)

    # ---- statements

    def body(self, body: tree.Body) -> tuple[Segment, ...]:
        found: list[Segment] = []
        for statement in body:
            if not self.shared.spend():
                found.append(self.lost(statement, "template too large to follow"))
                break
            if len(found) > MAX_PARTS:
                found[MAX_PARTS:] = [self.lost(statement, "text too large to follow")]
                break
            found += self.statement(statement)
        return tuple(found)

    def lost(self, statement: tree.Statement, expression: str) -> Hole:
        span = self.span(statement.start, statement.end)
        origin = Origin("unknown", Volatility.REQUEST, Confidence.LOW, expression, span)
        return Hole(expression, span, Volatility.REQUEST, Confidence.LOW, (origin,))

    def statement(self, statement: tree.Statement) -> tuple[Segment, ...]:
        if isinstance(statement, Data):
            return fixed_text(statement.value, statement.start, statement.end, self.template.text, self.template.where)
        span = self.span(statement.start, statement.end)
        if isinstance(statement, tree.Print):
            return segments_of(self.value(statement.expression, At(statement.code, span)), At(statement.code, span))
        if isinstance(statement, tree.If):
            return self.choose(statement, span)
        if isinstance(statement, tree.For):
            return self.loop(statement)
        if isinstance(statement, tree.Set):
            self.bind(statement.target, self.value(statement.value, At(statement.code, span)))
        elif isinstance(statement, tree.SetBlock):
            text: Value = Txt(self.scoped(statement.body))
            if size_of(text) > MAX_SIZE:
                text = UNKNOWN
            if statement.filter is not None:
                text = self.filtered(statement.filter, text, At("set", span))
            self.bind(statement.target, text)
        elif isinstance(statement, tree.Macro):
            head = statement.head
            names = tuple(argument.name for argument in head.args)
            macro = Macro(head.name, names, tuple(head.defaults), statement.body, self.template, tuple(self.scopes))
            self.scopes[-1][head.name] = macro
        elif isinstance(statement, tree.CallBlock):
            head_ = statement.head
            names = tuple(argument.name for argument in head_.args)
            caller = Macro("caller", names, tuple(head_.defaults), statement.body, self.template, tuple(self.scopes))
            return segments_of(self.call(head_.call, At(statement.code, span), caller=caller), At(statement.code, span))
        elif isinstance(statement, tree.With):
            values = [self.value(value, At("", span)) for value in statement.head.values]
            self.scopes.append({})
            for target, value in zip(statement.head.targets, values, strict=True):
                self.bind(target, value)
            found = self.body(statement.body)
            self.scopes.pop()
            return found
        elif isinstance(statement, tree.TemplateBlock):
            return self.template_block(statement)
        elif isinstance(statement, tree.Include):
            return () if statement.extends else self.include(statement, span)
        elif isinstance(statement, tree.Import):
            self.imported(statement, span)
        elif isinstance(statement, tree.Container):
            found = self.scoped(statement.body)
            if statement.filter is not None:
                return segments_of(
                    self.filtered(statement.filter, Txt(found), At(statement.code, span)), At(statement.code, span)
                )
            return found
        return ()

    def scoped(self, body: tree.Body, scope: dict[str, Value] | None = None) -> tuple[Segment, ...]:
        self.scopes.append({} if scope is None else scope)
        try:
            return self.body(body)
        finally:
            self.scopes.pop()

    def choose(self, statement: tree.If, span: Span) -> tuple[Segment, ...]:
        """An `if` with its `elif`s, as nested choices; a constant condition decides at once."""
        return self.arms(statement.arms, span)

    def arms(self, arms: list[tree.Arm], span: Span) -> tuple[Segment, ...]:
        if not arms:
            return ()
        arm, rest = arms[0], arms[1:]
        if arm.test is None:
            return self.body(arm.body)
        place = self.span(arm.start, arm.end)
        test = self.value(arm.test, At(arm.code, place))
        known = truth(test)
        if known is not None:
            return self.body(arm.body) if known else self.arms(rest, span)
        guard = as_guard(test, At(arm.code, place))
        before = [dict(scope) for scope in self.scopes]
        taken = self.body(arm.body)
        after = [dict(scope) for scope in self.scopes]
        self.restore(before)
        other = self.arms(rest, span)
        self.merge(after, guard)
        if taken == other:
            return taken
        return (Choice(guard, (taken, other), span),)

    def restore(self, scopes: list[dict[str, Value]]) -> None:
        for scope, held in zip(self.scopes, scopes, strict=True):
            scope.clear()
            scope.update(held)

    def merge(self, taken: list[dict[str, Value]], guard: Guard) -> None:
        """Join the scopes after one arm into the present ones, which are those after the other."""
        for scope, other in zip(self.scopes, taken, strict=True):
            for name in {**other, **scope}:
                here, there = scope.get(name), other.get(name)
                if here == there:
                    continue
                if isinstance(here, Namespace) and isinstance(there, Namespace):
                    keys = {**dict(there.items), **dict(here.items)}
                    scope[name] = Namespace(
                        tuple(
                            (key, join([there.get(key) or Const(None), here.get(key) or Const(None)], guard))
                            for key in keys
                        )
                    )
                else:
                    missing: Value = self.outer(name) or Const(None)
                    scope[name] = join([there or missing, here or missing], guard)

    def outer(self, name: str) -> Value | None:
        """What a name that only one arm sets is in the other: what the template was given."""
        if name in self.shared.bound:
            return Txt(self.shared.bound[name])
        return None

    def loop(self, statement: tree.For) -> tuple[Segment, ...]:
        span = self.span(statement.start, statement.end)
        head_span = self.span(statement.start, self.head_end(statement))
        over = self.value(statement.head.iter, At(statement.code, head_span))
        known = items_of(over)
        if known is not None and statement.head.test is None and len(known) <= MAX_UNROLLED:
            found: list[Segment] = []
            for item in known:
                self.scopes.append({"loop": STATIC})
                self.bind(statement.head.target, item)
                found += self.body(statement.body)
                self.scopes.pop()
            return tuple(found) if known else self.scoped(statement.otherwise)
        opaque = over if isinstance(over, Opaque) else Opaque(origins_of(over))
        self.widen(statement, opaque)
        before = [dict(scope) for scope in self.scopes]
        body = self.turn(statement, opaque)
        hole = opaque.hole(At(statement.code.partition(" in ")[2].strip() or statement.code, head_span))
        self.accumulate(before, opaque, At(hole.expression, head_span), span)
        growth = opaque.growth
        repeat: tuple[Segment, ...] = (Repeat(hole, body, span, growth),) if body else ()
        if not statement.otherwise:
            return repeat
        return (
            Choice(as_guard(opaque, At(hole.expression, head_span)), (repeat, self.scoped(statement.otherwise)), span),
        )

    def head_end(self, statement: tree.For) -> int:
        end = self.template.text.find("%}", statement.start)
        return end + 2 if end >= 0 else statement.end

    def turn(self, statement: tree.For, over: Opaque) -> tuple[Segment, ...]:
        """The body of a loop, once, with the loop variable as an item of what it runs over."""
        self.scopes.append({"loop": STATIC})
        try:
            self.bind(statement.head.target, self.part(over, statement.head.target))
            body = self.body(statement.body)
            if statement.head.test is not None and body:
                place = self.span(statement.start, self.head_end(statement))
                test = self.value(statement.head.test, At(source_of(statement.head.test), place))
                if truth(test) is None:
                    body = (
                        Choice(
                            as_guard(test, At(source_of(statement.head.test) or statement.code, place)),
                            (body, ()),
                            place,
                        ),
                    )
            return body
        finally:
            self.scopes.pop()

    def widen(self, statement: tree.For, over: Opaque) -> None:
        """Forget what a namespace holds when the loop changes it: the second turn sees what the first left.

        Texts are kept, for what grows by `ns.text ~ more` becomes a repeat.
        """
        if not any(
            isinstance(part, tree.Set) and isinstance(part.target, nodes.NSRef)
            for part in self.template.walk(statement.body)
        ):
            return
        before = [dict(scope) for scope in self.scopes]
        self.turn(statement, over)
        changed = [
            (index, name)
            for index, scope in enumerate(self.scopes)
            for name in scope
            if scope[name] != before[index].get(name)
        ]
        after = [dict(scope) for scope in self.scopes]
        self.restore(before)
        for index, name in changed:
            held, new = self.scopes[index].get(name), after[index][name]
            if isinstance(held, Namespace) and isinstance(new, Namespace):
                for key, value in held.items:
                    left = new.get(key)
                    if left != value and not (is_text(value) and left is not None and is_text(left)):
                        held = held.set(
                            key, Opaque(merged((*origins_of(value), *origins_of(left or value), *over.origins)))
                        )
                self.scopes[index][name] = held

    def accumulate(self, before: list[dict[str, Value]], over: Opaque, head: At, span: Span) -> None:
        """A text that each turn of a loop extends is the old text and a repeat of what was added."""
        for index, scope in enumerate(self.scopes):
            for name, held in scope.items():
                old = before[index].get(name)
                if not isinstance(held, Namespace) or not isinstance(old, Namespace) or held == old:
                    continue
                for key, value in held.items:
                    was = old.get(key)
                    if was is None or value == was or not is_text(value) or not is_text(was):
                        continue
                    new, start = segments_of(value, head), segments_of(was, head)
                    if len(new) >= len(start) and all(map(alike, new, start)):
                        grown: tuple[Segment, ...] = (
                            *start,
                            Repeat(over.hole(head), new[len(start) :], span, over.growth),
                        )
                    else:
                        grown = (Opaque(merged((*origins_of(value), *over.origins))).hole(head),)
                    held = held.set(key, Txt(grown))
                scope[name] = held

    # ---- other templates

    def find(self, expression: nodes.Node, span: Span) -> tree.Template | None:
        """The template that an expression names, parsed; None when the name is unknown or there is none, which is remembered."""
        named = self.value(expression, At("", span))
        names = [named] if isinstance(named, Const) else list(named.items) if isinstance(named, Lst) else []
        said = source_of(expression)
        for name in names:
            if not isinstance(name, Const) or not isinstance(name.value, str):
                continue
            said = name.value
            found = self.shared.template(name.value)
            if found is not None:
                return found
        self.shared.missing.append((said, span))
        return None

    def include(self, statement: tree.Include, span: Span) -> tuple[Segment, ...]:
        found = self.find(statement.template, span)
        if found is None or self.shared.calls >= MAX_CALLS or self.is_around(found):
            return (self.lost(statement, f"include {statement.code}"),)
        self.shared.calls += 1
        self.shared.including.append(found)
        try:
            inner = Evaluator(found, self.shared, [*self.scopes, {}])
            return placed(inner.run(), Step(span, "included here"))
        finally:
            self.shared.including.pop()
            self.shared.calls -= 1

    def is_around(self, template: tree.Template) -> bool:
        """Whether the place lies in that template so often already that one more time tells nothing new."""
        return sum(around is template for around in self.shared.including) >= MAX_WITHIN

    def imported(self, statement: tree.Import, span: Span) -> None:
        found = self.find(statement.template, span)
        module: dict[str, Value] = {}
        if found is not None and self.shared.calls < MAX_CALLS:
            self.shared.calls += 1
            inner = Evaluator(found, self.shared)
            inner.body(found.body)
            module = inner.scopes[0]
            self.shared.calls -= 1
        for here, there in statement.names.items():
            self.scopes[-1][here] = Module(module) if not there else module.get(there, UNKNOWN)

    def messages(self) -> list[tuple[str | None, tuple[Segment, ...]]]:
        """The template's messages with their roles, where tags at its top level mark them (`{% message role="system" %}` of Haystack,
        `{% chat role="system" %}` of Banks); else all of it as one without a role.
        """
        marked = [_role_tag(statement) for statement in self.template.body]
        if not any(marked):
            return [(None, self.run())]
        found: list[tuple[str | None, tuple[Segment, ...]]] = []
        for statement, role in zip(self.template.body, marked, strict=True):
            segments = self.statement(statement)
            if role is None and found and found[-1][0] is None:
                segments = (*found.pop()[1], *segments)
            found.append((role, segments))
        return found

    def run(self) -> tuple[Segment, ...]:
        """The whole template: with `extends`, the parent's body, with this template's blocks in the places of the parent's."""
        for statement in self.template.walk():
            if isinstance(statement, tree.TemplateBlock):
                self.shared.blocks.setdefault(statement.name, []).append((statement, self.template))
        parent = next((part for part in self.template.body if isinstance(part, tree.Include) and part.extends), None)
        if parent is None:
            return self.body(self.template.body)
        span = self.span(parent.start, parent.end)
        self.body(
            [part for part in self.template.body if not isinstance(part, tree.TemplateBlock)]
        )  # sets and macros of the child
        found = self.find(parent.template, span)
        if found is None or self.shared.calls >= MAX_CALLS:
            return (
                self.lost(parent, f"extends {parent.code}"),
                *self.body([p for p in self.template.body if isinstance(p, tree.TemplateBlock)]),
            )
        self.shared.calls += 1
        try:
            return Evaluator(found, self.shared, self.scopes).run()
        finally:
            self.shared.calls -= 1

    def template_block(self, statement: tree.TemplateBlock) -> tuple[Segment, ...]:
        return (
            self.block_at(statement.name, 0) if self.shared.blocks.get(statement.name) else self.scoped(statement.body)
        )

    def block_at(self, name: str, depth: int) -> tuple[Segment, ...]:
        """A template block: the first definition is the child's, `super()` goes one further."""
        chain = self.shared.blocks.get(name, [])
        if depth >= len(chain) or len(self.shared.active) > MAX_CALLS:
            return ()
        block, template = chain[depth]
        self.shared.active.append((name, depth))
        try:
            return Evaluator(template, self.shared, [*self.scopes, {}]).body(block.body)
        finally:
            self.shared.active.pop()

    # ---- expressions

    def value(self, node: nodes.Node, at: At) -> Value:
        """The abstract value of an expression. `at` is the place that its origins name."""
        if not self.shared.spend():
            return UNKNOWN
        if isinstance(node, nodes.Const):
            return Const(node.value)
        if isinstance(node, nodes.TemplateData):
            return Const(node.data)
        if isinstance(node, (nodes.Name, nodes.Getattr, nodes.Getitem)):
            return self.reference(node, at)
        if isinstance(node, nodes.Filter):
            base = self.value(node.node, at) if node.node is not None else Const("")
            return self.filtered(node, base, at)
        if isinstance(node, nodes.Call):
            return self.call(node, at)
        if isinstance(node, nodes.Concat):
            return self.concat([self.value(part, at) for part in node.nodes], at)
        if isinstance(node, nodes.Add):
            return self.add(self.value(node.left, at), self.value(node.right, at), at)
        if isinstance(node, nodes.CondExpr):
            test = self.value(node.test, At(source_of(node.test) or at.code, at.span))
            known = truth(test)
            if self.shared.conditions >= tree.MAX_DEPTH:
                return Opaque(origins_of(test))
            self.shared.conditions += 1
            there = self.value(node.expr1, at)
            other: Value = self.value(node.expr2, at) if node.expr2 is not None else Const("")
            self.shared.conditions -= 1
            if known is not None:
                return there if known else other
            guard = as_guard(test, At(source_of(node.test) or at.code, at.span))
            if isinstance(there, Opaque) or isinstance(other, Opaque):
                there, other = Txt(segments_of(there, at)), Txt(segments_of(other, at))
            return join([there, other], guard)
        if isinstance(node, (nodes.And, nodes.Or)):
            return self.logic(node, at)
        if isinstance(node, nodes.Not):
            inner = self.value(node.node, at)
            known = truth(inner)
            return Const(not known) if known is not None else Opaque(origins_of(inner))
        if isinstance(node, nodes.Test):
            return self.test(node, at)
        if isinstance(node, (nodes.List, nodes.Tuple)):
            return Lst(tuple(self.value(item, at) for item in node.items))
        if isinstance(node, nodes.Dict):
            pairs = [(self.value(pair.key, at), self.value(pair.value, at)) for pair in node.items]
            if all(isinstance(key, Const) for key, _ in pairs):
                return Dct(tuple((key.value, value) for key, value in pairs if isinstance(key, Const)))
            return Opaque(merged(tuple(origin for _, value in pairs for origin in origins_of(value))))
        return self.computed(node, at)

    def computed(self, node: nodes.Node, at: At) -> Value:
        """Arithmetic, comparison: constants are folded, else the result changes with each part."""
        parts = [self.value(child, at) for child in node.iter_child_nodes() if isinstance(child, nodes.Expr)]
        parts += [self.value(child.expr, at) for child in node.iter_child_nodes() if isinstance(child, nodes.Operand)]
        folded = fold(node, parts)
        if folded is not None:
            return folded
        origins = merged(tuple(origin for part in parts for origin in origins_of(part)))
        return Opaque(told_by_values(origins, parts) if isinstance(node, nodes.Compare) else origins)

    def reference(self, node: nodes.Node, at: At) -> Value:
        """A name, an attribute, an item: `x`, `x.y`, `x["y"]`, `x[0]`, `x[1:]`."""
        name = dotted(node)
        if name is not None:
            root = name.partition(".")[0]
            if self.lookup(root) is None:
                return self.given(name, at)
        if isinstance(node, nodes.Name):
            return self.lookup(node.name) or self.given(node.name, at)
        assert isinstance(node, (nodes.Getattr, nodes.Getitem))
        base = self.value(node.node, at)
        if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return self.sliced(base, node.arg, at)
        key = node.attr if isinstance(node, nodes.Getattr) else self.value(node.arg, at)
        return self.member(base, key.value if isinstance(key, Const) else key, at)

    def given(self, name: str, at: At) -> Value:
        """A name that the template does not set itself: bound by the caller, or spoken for by the name."""
        bound = self.shared.bound
        found = bound.get(name)
        if found is None and "." in name:
            found = bound.get(name.partition(".")[0])
            if found is not None:
                origins = origins_of(Txt(found))
                step = Step(at.span, f"fills {{{{ {at.code} }}}}", at.code)
                return Opaque(origins, name, steps=(step,), item=True) if origins else Txt(placed(found, step))
        if found is not None:
            return Txt(placed(found, Step(at.span, f"fills {{{{ {at.code} }}}}", at.code)))
        source = load_sources().sources.get(f"jinja.{name}")
        if source is not None and source.kind == "clock" and load_names().fact(name).origin == "unknown":
            return Opaque((Origin(source.kind, source.volatility, Confidence.MEDIUM, name, at.span),), name)
        if name.partition(".")[0] in {"true", "false", "none"}:
            return Const({"true": True, "false": False, "none": None}[name])
        return opaque_named(name, at.span)

    def member(self, base: Value, key: Any, at: At) -> Value:
        """An attribute or item of a value."""
        if isinstance(base, Module):
            return base.items.get(key, UNKNOWN) if isinstance(key, str) else UNKNOWN
        if isinstance(base, (Dct, Namespace)) and not isinstance(key, (Opaque, Txt)):
            return base.get(key) or Const(None)
        if isinstance(base, Lst) and isinstance(key, int):
            return base.items[key] if -len(base.items) <= key < len(base.items) else Const(None)
        if isinstance(base, Opaque):
            if isinstance(key, int):
                return self.element(base, key)
            if isinstance(key, str):
                return self.attribute(base, key, at.span)
        more = origins_of(key) if isinstance(key, (Opaque, Txt, Lst, Dct)) else ()
        return Opaque(merged((*origins_of(base), *more)), item=True)

    def element(self, base: Opaque, index: int) -> Value:
        """`x[0]`. The newest of a growing history is another one each turn; its first is what it was."""
        if base.growth is Growth.FIXED:
            return replace(base, item=True)
        if index < 0:
            return Opaque(
                tuple(replace(origin, kind="request", volatility=Volatility.TURN) for origin in base.origins),
                base.name,
                BlockKind.QUESTION,
                item=True,
            )
        return replace(base, growth=Growth.FIXED, item=True)

    def attribute(self, base: Opaque, key: str, span: Span) -> Opaque:
        """`x.y`. An item changes for the reasons of its sequence unless nothing is known of that; a coarser part of a clock is coarser."""
        if base.name == "loop":
            return base
        name = f"{base.name}.{key}" if base.name else key
        flow = load_sources().flows.get(f"jinja.method.{key}")
        if flow is not None and flow.coarsen in {"day", "month"}:
            return replace(base, name=name, origins=dates.coarsened(base.origins, month=flow.coarsen == "month"))
        if base.origins and any(origin.kind != "unknown" for origin in base.origins):
            return replace(base, name=name)
        said = opaque_named(key, span)
        return (
            replace(said, name=name, steps=base.steps)
            if said.origins[0].kind != "unknown"
            else replace(base, name=name)
        )

    def sliced(self, base: Value, node: nodes.Slice, at: At) -> Value:
        """`x[a:b:c]`: of a history, the last n are a window, a reversed one puts new messages in front."""
        bounds = [self.value(part, at) if part is not None else None for part in (node.start, node.stop, node.step)]
        if isinstance(base, Lst) and all(part is None or isinstance(part, Const) for part in bounds):
            first, last, step = (part.value if isinstance(part, Const) else None for part in bounds)
            try:
                return Lst(base.items[first:last:step])
            except (TypeError, ValueError):
                return UNKNOWN
        if not isinstance(base, Opaque) or base.growth is not Growth.APPEND:
            return base
        start, _, step = bounds
        if isinstance(step, Const) and isinstance(step.value, int) and step.value < 0:
            return replace(base, growth=Growth.INSERT)
        if start is not None and not (isinstance(start, Const) and isinstance(start.value, int) and start.value >= 0):
            return replace(base, growth=Growth.WINDOW)
        return base

    def concat(self, parts: list[Value], at: At) -> Value:
        if sum(size_of(part) for part in parts) > MAX_SIZE:
            return self.too_large(parts)
        if all(isinstance(part, Const) for part in parts):
            return Const(
                "".join("" if part.value is None else str(part.value) for part in parts if isinstance(part, Const))
            )
        return Txt(tuple(segment for part in parts for segment in segments_of(part, at)))

    def too_large(self, parts: list[Value]) -> Value:
        """In place of a text or list that grew beyond all prompts."""
        return Opaque(merged((*UNKNOWN.origins, *(origin for part in parts for origin in origins_of(part)))))

    def add(self, left: Value, right: Value, at: At) -> Value:
        if size_of(left) + size_of(right) > MAX_SIZE:
            return self.too_large([left, right])
        if isinstance(left, Const) and isinstance(right, Const):
            try:
                return Const(left.value + right.value)
            except TypeError:
                return UNKNOWN
        if isinstance(left, Lst) and isinstance(right, Lst):
            return Lst((*left.items, *right.items))
        if is_text(left) or is_text(right):
            return self.concat([left, right], at)
        return Opaque(merged((*origins_of(left), *origins_of(right))))

    def logic(self, node: nodes.And | nodes.Or, at: At) -> Value:
        """`x or "none"` is x with a fallback: for a prompt it changes when x does."""
        left = self.value(node.left, at)
        known = truth(left)
        if known is not None:
            return left if known == isinstance(node, nodes.Or) else self.value(node.right, at)
        right = self.value(node.right, at)
        if isinstance(node, nodes.Or) and isinstance(right, Const) and isinstance(left, (Opaque, Txt)):
            return left
        opaque = left if isinstance(left, Opaque) else Opaque(origins_of(left))
        return replace(opaque, origins=merged((*opaque.origins, *origins_of(right))))

    def test(self, node: nodes.Test, at: At) -> Value:
        base = self.value(node.node, at)
        if node.name in {"defined", "undefined"}:
            root = (dotted(node.node) or "").partition(".")[0]
            set_here = bool(root) and self.lookup(root) is not None
            if set_here and isinstance(node.node, nodes.Name):
                return Const(node.name == "defined")
        if isinstance(base, Const) and node.name in {"none", "string", "number", "boolean", "mapping"}:
            return Const(
                {
                    "none": base.value is None,
                    "string": isinstance(base.value, str),
                    "number": isinstance(base.value, (int, float)),
                    "boolean": isinstance(base.value, bool),
                    "mapping": False,
                }[node.name]
            )
        more = tuple(origin for argument in node.args or () for origin in origins_of(self.value(argument, at)))
        return Opaque(merged((*origins_of(base), *more)))

    def filtered(self, node: nodes.Filter, base: Value, at: At) -> Value:
        """A filter: what it stops, where it coarsens, what it computes; otherwise it passes on why its input changes."""
        rows = load_sources()
        name = f"jinja.filter.{node.name}"
        arguments = [self.value(argument, at) for argument in node.args]
        source = rows.sources.get(name)
        if source is not None:
            return Opaque(
                (Origin(source.kind, source.volatility, Confidence.HIGH, at.code, at.span), *origins_of(base))
            )
        if node.name in {"default", "d"}:
            return (
                base
                if not (isinstance(base, Const) and base.value is None)
                else arguments[0]
                if arguments
                else Const("")
            )
        flow = rows.flows.get(name)
        if flow is not None and flow.coarsen:
            return self.coarser(base, flow.coarsen, arguments)
        if flow is not None and flow.text:
            return transformed(base, flow.text)
        barriers = rows.barriers.get(name, ())
        stopped = {kind for barrier in barriers for kind in barrier.stops}
        if stopped:
            opaque = base if isinstance(base, Opaque) else Opaque(origins_of(base))
            left = tuple(origin for origin in opaque.origins if origin.kind not in stopped)
            if node.name in {"length", "count", "wordcount"}:
                return self.counted(opaque, base)
            return replace(opaque, origins=left, growth=Growth.FIXED if node.name == "sort" else opaque.growth)
        if node.name in {"first", "last"}:
            index = 0 if node.name == "first" else -1
            return self.member(base, index, at)
        if node.name == "reverse" and isinstance(base, Opaque) and base.growth is Growth.APPEND:
            return replace(base, growth=Growth.INSERT)
        if node.name == "join":
            return self.joined(base, arguments, at)
        if isinstance(base, Opaque):
            return replace(
                base,
                origins=merged((*base.origins, *(origin for argument in arguments for origin in origins_of(argument)))),
            )
        if isinstance(base, Txt) and node.name in {
            "indent",
            "replace",
            "wordwrap",
            "format",
            "escape",
            "tojson",
            "pprint",
        }:
            return Opaque(origins_of(base)) if origins_of(base) else base
        if isinstance(base, (Const, Txt)):
            return base
        return Opaque(origins_of(base))

    def counted(self, opaque: Opaque, base: Value) -> Value:
        if isinstance(base, Lst):
            return Const(len(base.items))
        if opaque.growth is Growth.APPEND:
            return Opaque(
                tuple(replace(origin, kind="counter", volatility=Volatility.TURN) for origin in opaque.origins)
            )
        return Opaque(opaque.origins)

    def joined(self, base: Value, arguments: list[Value], at: At) -> Value:
        separator = arguments[0].value if arguments and isinstance(arguments[0], Const) else ""
        if isinstance(base, Lst) and isinstance(separator, str):
            parts: list[Value] = []
            for index, item in enumerate(base.items):
                parts += [Const(separator), item] if index else [item]
            return self.concat(parts, at)
        return base if isinstance(base, (Opaque, Txt)) else Opaque(origins_of(base))

    def coarser(self, base: Value, how: str, arguments: list[Value]) -> Value:
        opaque = base if isinstance(base, Opaque) else Opaque(origins_of(base))
        if how in {"day", "month"}:
            return replace(opaque, origins=dates.coarsened(opaque.origins, month=how == "month"))
        formats = [
            argument.value for argument in arguments if isinstance(argument, Const) and isinstance(argument.value, str)
        ]
        if formats and dates.date_only(formats[0]):
            return replace(opaque, origins=dates.coarsened(opaque.origins, month=dates.month_only(formats[0])))
        if formats and "%" not in formats[0] and dates.letters_date_only(formats[0]):
            return replace(opaque, origins=dates.coarsened(opaque.origins, month=dates.letters_month_only(formats[0])))
        return opaque

    def call(self, node: nodes.Node, at: At, caller: Macro | None = None) -> Value:
        """A call: a macro, a known function or method; of anything else we know that it is called."""
        if not isinstance(node, nodes.Call):
            return self.value(node, at)
        arguments = [self.value(argument, at) for argument in node.args]
        keywords = {keyword.key: self.value(keyword.value, at) for keyword in node.kwargs}
        everything = merged(tuple(origin for value in (*arguments, *keywords.values()) for origin in origins_of(value)))
        function = node.node
        if isinstance(function, nodes.Name):
            found = self.lookup(function.name)
            if isinstance(found, Macro):
                return self.expand(found, arguments, keywords, caller, at)
            if function.name == "super" and self.shared.active:
                name, depth = self.shared.active[-1]
                return Txt(self.block_at(name, depth + 1))
            if found is None:
                return self.function(function.name, arguments, keywords, everything, at)
            return Opaque(merged((*origins_of(found), *everything)))
        if isinstance(function, nodes.Getattr):
            base_name = dotted(function.node)
            if base_name == "self":
                return Txt(self.block_at(function.attr, 0))
            base = self.value(function.node, at)
            member = base.items.get(function.attr) if isinstance(base, Module) else None
            if isinstance(member, Macro):
                return self.expand(member, arguments, keywords, caller, at)
            if isinstance(base, Module):
                return UNKNOWN
            return self.method(base, function.attr, arguments, everything, at)
        return Opaque(merged((*origins_of(self.value(function, at)), *everything)))

    def function(
        self,
        name: str,
        arguments: list[Value],
        keywords: dict[str, Value],
        everything: tuple[Origin, ...],
        at: At,
    ) -> Value:
        rows = load_sources()
        source = rows.sources.get(f"jinja.{name}")
        if source is not None and name not in self.shared.bound:
            value: Value = Opaque((Origin(source.kind, source.volatility, Confidence.HIGH, at.code, at.span),))
            flow = rows.flows.get(f"jinja.{name}")
            return self.coarser(value, flow.coarsen, arguments) if flow is not None and flow.coarsen else value
        if name == "namespace":
            return Namespace(tuple(keywords.items()))
        if name == "dict":
            return Dct(tuple(keywords.items()))
        if name in _STATIC:
            return Opaque(everything)
        bound = self.shared.bound.get(name)
        if bound is not None:
            return Opaque(merged((*origins_of(Txt(bound)), *everything)), name)
        said = opaque_named(name, at.span)
        return replace(
            said,
            origins=tuple(replace(origin, confidence=Confidence.LOW, expression=at.code) for origin in said.origins),
        )

    def method(self, base: Value, name: str, arguments: list[Value], everything: tuple[Origin, ...], at: At) -> Value:
        flow = load_sources().flows.get(f"jinja.method.{name}")
        if flow is not None and flow.coarsen:
            return self.coarser(base, flow.coarsen, arguments)
        if flow is not None and flow.text and not arguments:
            return transformed(base, flow.text)
        if (
            name in {"get", "pop"}
            and arguments
            and isinstance(arguments[0], Const)
            and isinstance(base, (Dct, Namespace, Opaque))
        ):
            return self.member(base, arguments[0].value, at)
        if isinstance(base, Dct) and name in {"items", "keys", "values"}:
            pairs: dict[str, list[Value]] = {
                "items": [Lst((Const(k), v)) for k, v in base.items],
                "keys": [Const(k) for k, _ in base.items],
                "values": [v for _, v in base.items],
            }
            return Lst(tuple(pairs[name]))
        if name == "join" and isinstance(base, Const) and arguments:
            return self.joined(arguments[0], [base], at)
        if isinstance(base, Opaque):
            known = name in _PASSES_ON or (bool(base.origins) and base.origins[0].kind != "unknown")
            origins = (
                base.origins if known else tuple(replace(origin, confidence=Confidence.LOW) for origin in base.origins)
            )
            return replace(base, origins=merged((*origins, *everything)))
        return Opaque(merged((*origins_of(base), *everything)))

    def expand(
        self,
        macro: Macro,
        arguments: list[Value],
        keywords: dict[str, Value],
        caller: Macro | None,
        at: At,
    ) -> Value:
        """What a macro writes for these arguments, up to a depth; beyond it a hole that changes when an argument does."""
        if self.shared.calls >= MAX_CALLS:
            return Opaque(
                merged(tuple(origin for value in (*arguments, *keywords.values()) for origin in origins_of(value))),
                macro.name,
            )
        self.shared.calls += 1
        try:
            inner = Evaluator(macro.template, self.shared, [*map(dict, macro.scopes), {}])
            scope = inner.scopes[-1]
            without_default = len(macro.arguments) - len(macro.defaults)
            for index, name in enumerate(macro.arguments):
                if index < len(arguments):
                    scope[name] = arguments[index]
                elif name in keywords:
                    scope[name] = keywords[name]
                elif index >= without_default:
                    scope[name] = inner.value(macro.defaults[index - without_default], at)
                else:
                    scope[name] = Const(None)
            scope["varargs"], scope["kwargs"] = (
                Lst(tuple(arguments[len(macro.arguments) :])),
                Dct(tuple((k, v) for k, v in keywords.items() if k not in macro.arguments)),
            )
            if caller is not None:
                scope["caller"] = caller
            return Txt(inner.body(macro.body))
        finally:
            self.shared.calls -= 1


STATIC = Opaque((), "loop")  # of a loop's own counters: the place in a sequence is as fixed as the sequence
UNKNOWN = Opaque((Origin("unknown", Volatility.REQUEST, Confidence.LOW, "", Span("", 1, 1, 1, 1, exact=False)),))


def _role_tag(statement: tree.Statement) -> str | None:
    """The role of a tag that marks a message."""
    if not isinstance(statement, tree.Container) or statement.name not in {"message", "chat"}:
        return None
    match = re.search(r"role\s*=?\s*[\"'](\w+)[\"']", statement.code)
    return match[1] if match else None


def alike(one: Segment, other: Segment) -> bool:
    """Whether two segments say the same; a constant's text may stand at different places."""
    return one == other or (isinstance(one, Text) and isinstance(other, Text) and one.value == other.value)


def is_text(value: Value) -> bool:
    """Whether a value is surely a text."""
    return isinstance(value, Txt) or (isinstance(value, Const) and isinstance(value.value, str))


def truth(value: Value) -> bool | None:
    """Whether a condition holds, where the template alone decides."""
    if isinstance(value, Const):
        return bool(value.value)
    if isinstance(value, (Lst, Dct)):
        return bool(value.items)
    if isinstance(value, (Macro, Module, Namespace)):
        return True
    return None


def items_of(value: Value) -> tuple[Value, ...] | None:
    """The items of a list that the template spells."""
    if isinstance(value, Lst):
        return value.items
    if isinstance(value, Dct):
        return tuple(Const(key) for key, _ in value.items)
    return None


def told_by_values(origins: tuple[Origin, ...], parts: list[Value]) -> tuple[Origin, ...]:
    """The origins of a comparison whose names say nothing, by the fixed values that they are compared with."""
    known = load_names().values
    facts = [
        known[part.value]
        for part in parts
        if isinstance(part, Const) and isinstance(part.value, str) and part.value in known
    ]
    if not facts or any(origin.confidence > Confidence.LOW for origin in origins):
        return origins
    fact = facts[0]
    return tuple(
        replace(origin, kind=fact.origin, volatility=fact.volatility, confidence=fact.confidence) for origin in origins
    )


def dotted(node: nodes.Node) -> str | None:
    """`a.b` or `a["b"]` as a dotted name."""
    if isinstance(node, nodes.Name):
        return node.name
    if isinstance(node, nodes.Getattr):
        base = dotted(node.node)
        return f"{base}.{node.attr}" if base else None
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
        base = dotted(node.node)
        return f"{base}.{node.arg.value}" if base else None
    return None


def source_of(node: nodes.Node) -> str:
    """A name for a person, where the expression is as simple as one."""
    return dotted(node) or (
        source_of(node.node)
        if isinstance(node, (nodes.Filter, nodes.Not, nodes.Getitem)) and node.node is not None
        else ""
    )


def fold(node: nodes.Node, parts: list[Value]) -> Value | None:
    """The value of an operator over constants, by Jinja itself; None where something is not constant or the result is large."""
    if not parts or not all(
        isinstance(part, Const) and isinstance(part.value, (int, float, str, bool, type(None))) for part in parts
    ):
        return None
    if isinstance(node, (nodes.Pow, nodes.Mul)):
        return None  # the two that make much of little
    try:
        if isinstance(node, nodes.Compare):
            values = [part.value for part in parts if isinstance(part, Const)]
            fresh: nodes.Expr = nodes.Compare(
                nodes.Const(values[0]),
                [nodes.Operand(op.op, nodes.Const(v)) for op, v in zip(node.ops, values[1:], strict=True)],
            )
        elif isinstance(node, nodes.UnaryExpr):
            assert isinstance(parts[0], Const)
            fresh = type(node)(nodes.Const(parts[0].value))
        elif isinstance(node, nodes.BinExpr):
            left, right = parts
            assert isinstance(left, Const)
            assert isinstance(right, Const)
            fresh = type(node)(nodes.Const(left.value), nodes.Const(right.value))
        else:
            return None
        return Const(fresh.as_const(nodes.EvalContext(_folder())))
    except Exception:  # noqa: BLE001 (whatever an operator of constants raises, the result is not known)
        return None


def _folder() -> Any:
    from promptlint.frontends.jinja.lex import environment

    return environment()


def transformed(value: Value, how: str) -> Value:
    """A text filter over a value whose text is known; of an unknown value it changes nothing that matters."""
    if how == "identity":
        return value
    if isinstance(value, Const) and isinstance(value.value, str):
        return Const(getattr(value.value, how)())
    if not isinstance(value, Txt):
        return value
    segments = list(value.segments)
    if how in {"strip", "lstrip"} and segments and isinstance(segments[0], Text):
        segments[0] = changed(segments[0], segments[0].value.lstrip())
    if how in {"strip", "rstrip"} and segments and isinstance(segments[-1], Text):
        segments[-1] = changed(segments[-1], segments[-1].value.rstrip())
    if how in {"upper", "lower", "title", "capitalize"}:
        segments = [changed(part, getattr(part.value, how)()) if isinstance(part, Text) else part for part in segments]
    return Txt(tuple(part for part in segments if not isinstance(part, Text) or part.value))


def changed(text: Text, value: str) -> Text:
    """The same text with another spelling, which its place no longer spells."""
    return text if value == text.value else Text(value, text.span.inexact())
