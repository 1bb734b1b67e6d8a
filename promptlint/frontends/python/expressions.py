"""Expressions: from a node to its abstract value."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from promptlint.frontends.python.core import HARD_STEPS, MAX_ITEMS, MAX_TEXT, Arguments, BudgetError, Core, identifier
from promptlint.frontends.python.index import FunctionInfo, Module
from promptlint.frontends.python.literals import Literal, Slot, scan
from promptlint.frontends.python.nodes import walk
from promptlint.frontends.python.text import MAX_SLOTS, Field, Segments, may_pad, merge, percent_fields, static_text
from promptlint.frontends.python.values import (
    Alt,
    Box,
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
    ModuleValue,
    Opaque,
    Pick,
    Rest,
    Str,
    Template,
    Value,
    contained,
    item_origins,
    merge_origins,
    newest,
    origins_of,
)
from promptlint.ir import BlockKind, Growth, Origin, Segment, Text, Volatility
from promptlint.source import Span

__all__ = ["Expressions"]

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
UNROLLED = 24  # elements up to which a loop over known elements is followed one by one

Parts = list["Text | tuple[Slot, ast.expr, Span]"]


class Expressions(Core):
    """`eval` and what it needs."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._literals: dict[int, Str] = {}
        self._formatted: dict[int, Parts | None] = {}
        self._kept: list[ast.AST] = []
        self._handlers: dict[type[ast.expr], Callable[[Any, Frame], Value]] = {
            ast.Constant: self._constant_node,
            ast.JoinedStr: self._joined,
            ast.Name: self._name_node,
            ast.Attribute: self._attribute_node,
            ast.Call: self._call_node,
            ast.BinOp: self._binary,
            ast.BoolOp: self._bool,
            ast.Compare: self._compare,
            ast.IfExp: self._conditional,
            ast.UnaryOp: self._unary,
            ast.List: self._list,
            ast.Tuple: self._list,
            ast.Set: self._list,
            ast.Dict: self._dict,
            ast.Subscript: self._subscript,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._dict_comprehension,
            ast.Lambda: self._lambda,
            ast.Await: lambda node, frame: self.eval(node.value, frame),
            ast.NamedExpr: self._named,
            ast.Starred: lambda node, frame: self.eval(node.value, frame),
            ast.Yield: self._yield,
            ast.YieldFrom: self._yield_from,
        }

    def eval(self, node: ast.expr, frame: Frame) -> Value:
        """The abstract value of an expression. Raises BudgetError when the root has used up its steps."""
        self.steps += 1
        if self.steps > HARD_STEPS:
            raise BudgetError
        handler = self._handlers.get(type(node))
        if handler is None:
            return self.unknown(self.source_of(node, frame), self.span_of(node, frame), frame)
        return handler(node, frame)

    # ---- literals

    def _constant_node(self, node: ast.Constant, frame: Frame) -> Value:
        if isinstance(node.value, str):
            if frame.module.newer:
                parts = self._formatted.get(id(node), ...)
                if parts is ...:
                    parts = self._formatted[id(node)] = self._newer_parts(node, frame.module)
                if parts is not None:
                    return self._assembled(parts, frame)
            found = self._literals.get(id(node))
            if found is None:
                found = self._literals[id(node)] = self.literal(node, frame.module)
            return found
        return Const(node.value, self.span_of(node, frame))

    def literal(self, node: ast.Constant, module: Module) -> Str:
        """A plain string literal with exact places."""
        value = str(node.value)
        if not value:
            return Str(())
        span = module.span(node)
        source = module.source
        if module.trusted:
            parts = scan(source, source.offset(span.line, span.column), source.offset(span.end_line, span.end_column))
            if parts is not None and "".join(part.value for part in parts if isinstance(part, Literal)) == value:
                texts = [self.texts.literal(part.value, part.map) for part in parts if isinstance(part, Literal)]
                return Str(merge(tuple(texts)))
        return Str((Text(value, span.inexact()),))

    def _joined(self, node: ast.JoinedStr, frame: Frame) -> Value:
        parts = self._formatted.get(id(node), ...)
        if parts is ...:
            parts = self._formatted[id(node)] = self.formatted(node, frame.module)
            self._kept.append(node)
        if parts is None:
            return self._joined_roughly(node, frame)
        return self._assembled(parts, frame)

    def _newer_parts(self, node: ast.Constant, module: Module) -> Parts | None:
        """The parts of a literal of a file in newer syntax, whose f-strings stand in the tree as plain literals; None when it has no slots."""
        span = module.span(node)
        source = module.source
        parts = scan(source, source.offset(span.line, span.column), source.offset(span.end_line, span.end_column))
        if parts is None or "".join(part.value for part in parts if isinstance(part, Literal)) == node.value:
            return None
        return self._with_expressions(parts, module)

    def _with_expressions(self, parts: tuple[Literal | Slot, ...], module: Module) -> Parts | None:
        result: Parts = []
        for part in parts:
            if isinstance(part, Literal):
                result.append(self.texts.literal(part.value, part.map))
                continue
            expression = self._slot_expression(part, module)
            if expression is None:
                return None
            result.append((part, expression, module.source.span(part.start, part.end)))
        return result

    def _assembled(self, parts: Parts, frame: Frame) -> Str:
        if len(parts) > 2 * MAX_SLOTS:
            raise BudgetError
        result: list[Segment] = []
        for part in parts:
            if isinstance(part, Text):
                result.append(part)
                continue
            slot, expression, span = part
            value = self.eval(expression, frame)
            spec = self._spec(slot)
            text = slot.expression(frame.module.source)
            result.extend(
                self.to_segments(
                    value, " ".join(text.split()), span, identifier(text), spec=spec, conversion=slot.conversion
                )
            )
        return Str(merge(tuple(result)))

    @staticmethod
    def _spec(slot: Slot) -> str:
        return (
            "".join(part.value for part in slot.spec if isinstance(part, Literal))
            if all(isinstance(part, Literal) for part in slot.spec)
            else ""
        )

    def formatted(self, node: ast.JoinedStr, module: Module) -> Parts | None:
        """The parts of an f-string with true places; None when its source cannot be read again."""
        if not module.trusted:
            return None
        span = module.span(node)
        source = module.source
        parts = scan(source, source.offset(span.line, span.column), source.offset(span.end_line, span.end_column))
        if parts is None:
            return None
        slots = sum(isinstance(part, Slot) for part in parts)
        if slots != sum(isinstance(value, ast.FormattedValue) for value in node.values):
            return None
        if "".join(part.value for part in parts if isinstance(part, Literal)) != _literal_text(node):
            return None
        return self._with_expressions(parts, module)

    def _slot_expression(self, slot: Slot, module: Module) -> ast.expr | None:
        """The slot's expression parsed anew, since the parser's own places inside f-strings are wrong before Python 3.12."""
        source = module.source
        text = source.text[slot.expression_start : slot.expression_end]
        try:
            tree = ast.parse(f"({text}\n)", mode="eval").body
        except (SyntaxError, ValueError):
            from promptlint.frontends.python.newer_syntax import parse_newer

            newer = parse_newer(f"({text}\n)") if module.newer else None
            if newer is None or len(newer.body) != 1 or not isinstance(newer.body[0], ast.Expr):
                return None
            tree = newer.body[0].value
        line, column = source.place(slot.expression_start)
        begin = source.starts[line - 1]
        offset = len(source.text[begin : begin + column - 1].encode("utf-8", "surrogatepass"))
        for node in walk(tree):
            if isinstance(node, ast.expr):
                if node.lineno == 1:
                    node.col_offset += offset - 1
                if node.end_lineno == 1:
                    node.end_col_offset = (node.end_col_offset or 0) + offset - 1
                node.lineno += line - 1
                node.end_lineno = (node.end_lineno or 1) + line - 1
        self._kept.append(tree)
        return tree

    def _joined_roughly(self, node: ast.JoinedStr, frame: Frame) -> Value:
        here = self.span_of(node, frame).inexact()
        result: list[Segment] = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                result.append(Text(str(part.value), here))
            elif isinstance(part, ast.FormattedValue):
                text = ast.unparse(part.value)
                value = self.eval(part.value, frame)
                spec = _literal_text(part.format_spec) if isinstance(part.format_spec, ast.JoinedStr) else ""
                result.extend(self.to_segments(value, text, here, identifier(text), spec=spec))
        return Str(merge(tuple(result)))

    # ---- names

    def _name_node(self, node: ast.Name, frame: Frame) -> Value:
        value = self.lookup(node.id, frame)
        if value is not None:
            return value
        return self.by_name(node.id, self.span_of(node, frame), frame, node.id)

    def lookup(self, name: str, frame: Frame) -> Value | None:
        """A name through the enclosing functions, the module and the builtins."""
        scope: Frame | None = frame
        while scope is not None:
            found = scope.locals.get(name)
            if found is not None:
                if scope.function is None and self.reads is not None:
                    self.reads.add(("name", scope.module.source.path, name))
                return found
            scope = scope.parent
        found = self.module_name(frame.module, name)
        if found is not None:
            return found
        if name in _BUILTINS:
            return Lib(name)
        return None

    def module_name(self, module: Module, name: str) -> Value | None:
        """A name at the top level of a module."""
        raise NotImplementedError

    def _attribute_node(self, node: ast.Attribute, frame: Frame) -> Value:
        return self.attribute(self.eval(node.value, frame), node.attr, node, frame)

    def _call_node(self, node: ast.Call, frame: Frame) -> Value:
        callee = self.eval(node.func, frame)
        return self.call(callee, self.arguments(node, frame), node, frame)

    def arguments(self, node: ast.Call, frame: Frame) -> Arguments:
        """The evaluated arguments of a call."""
        result = Arguments(module=frame.module)
        for argument in node.args:
            value = self.eval(argument, frame)
            if isinstance(argument, ast.Starred):
                if isinstance(value, List) and (plain := value.plain()) is not None:
                    result.positional.extend(plain)
                else:
                    result.rest = self.opaque(value, argument, frame)
                continue
            result.write(len(result.positional), argument)
            result.positional.append(value)
        for keyword in node.keywords:
            value = self.eval(keyword.value, frame)
            if keyword.arg is not None:
                result.keywords[keyword.arg] = value
                result.write(keyword.arg, keyword.value)
            elif isinstance(value, Dict):
                for entry in value.entries:
                    result.keywords.setdefault(entry.key, entry.value)
                    result.places.setdefault(entry.key, entry.placed)
                if value.rest is not None:
                    result.rest_keywords = value.rest
            else:
                result.rest_keywords = self.opaque(value, keyword.value, frame)
        return result

    def opaque(self, value: Value, node: ast.AST, frame: Frame) -> Opaque:
        """Any value as one that is known only by why it changes."""
        if isinstance(value, Opaque):
            return value
        expression = self.source_of(node, frame)
        return self.derived(expression, self.span_of(node, frame), value, name=identifier(expression))

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Value:
        info = frame.module.by_node.get(id(node))
        if info is None:
            info = FunctionInfo(frame.module, node, "<lambda>", "<lambda>", None, frame.function)
            info.unit = ("function", frame.module.source.path, "<lambda>")  # a part of what is evaluated
            frame.module.by_node[id(node)] = info
            self._kept.append(node)
        return Function(info, None, frame)

    def _named(self, node: ast.NamedExpr, frame: Frame) -> Value:
        value = self.eval(node.value, frame)
        self.journal.set(frame.locals, node.target.id, value)
        return value

    def _yield(self, node: ast.Yield, frame: Frame) -> Value:
        if node.value is not None:
            frame.yields.append(Elem(self.eval(node.value, frame), self.span_of(node, frame)))
        return self.unknown(self.source_of(node, frame), self.span_of(node, frame), frame)

    def _yield_from(self, node: ast.YieldFrom, frame: Frame) -> Value:
        value = self.eval(node.value, frame)
        frame.yields.extend(self.items_of(value, node.value, frame))
        return self.unknown(self.source_of(node, frame), self.span_of(node, frame), frame)

    # ---- operators

    def _binary(self, node: ast.BinOp, frame: Frame) -> Value:
        # A long chain of `+` is one concatenation: walk it without recursion.
        if isinstance(node.op, ast.Add):
            operands: list[ast.expr] = []
            current: ast.expr = node
            while isinstance(current, ast.BinOp) and isinstance(current.op, ast.Add):
                operands.append(current.right)
                current = current.left
            value = self.eval(current, frame)
            left: ast.AST = current
            for operand in reversed(operands):
                value = self.add(value, self.eval(operand, frame), left, operand, node, frame)
                left = operand
            return value
        left_value, right_value = self.eval(node.left, frame), self.eval(node.right, frame)
        if isinstance(node.op, ast.Mod) and isinstance(left_value, Str | Alt):
            formatted = self.percent(left_value, right_value, node, frame)
            if formatted is not None:
                return formatted
        if isinstance(node.op, ast.Mult):
            for one, other in ((left_value, right_value), (right_value, left_value)):
                if isinstance(other, Const) and isinstance(other.value, int):
                    repeated = self._times(one, other.value)
                    if repeated is not None:
                        return repeated
        if isinstance(node.op, ast.BitOr | ast.Sub | ast.BitAnd | ast.BitXor | ast.Div):
            special = self.set_or_pipe(node, left_value, right_value, frame)
            if special is not None:
                return special
        compute = _ARITHMETIC.get(type(node.op))
        if compute is not None and isinstance(left_value, Const) and isinstance(right_value, Const):
            try:
                if not (isinstance(node.op, ast.Mult) and max(abs(left_value.value), abs(right_value.value)) > 1e6):
                    return Const(compute(left_value.value, right_value.value), self.span_of(node, frame))
            except (TypeError, ValueError, ZeroDivisionError, OverflowError):
                pass
        expression = self.source_of(node, frame)
        result = self.derived(
            expression, self.span_of(node, frame), left_value, right_value, name=identifier(expression)
        )
        if isinstance(left_value, Opaque) and isinstance(node.op, ast.Div | ast.Sub | ast.Add):
            result = replace(result, type=left_value.type)
        return result

    def set_or_pipe(self, node: ast.BinOp, left: Value, right: Value, frame: Frame) -> Value | None:
        """`|`, `&`, `-` on sets, dicts and template pipes; None when it is neither."""
        raise NotImplementedError

    def _times(self, value: Value, count: int) -> Value | None:
        if isinstance(value, Str):
            whole = static_text(value.segments)
            if whole is None or not value.segments or len(whole) * count > MAX_TEXT:
                return None
            return Str((Text(whole * count, value.segments[0].span.inexact()),)) if count > 0 else Str(())
        if isinstance(value, List):
            if count <= 0:
                return List((), value.span, value.kind)
            if len(value.items) * count <= 200:
                return List(value.items * count, value.span, value.kind, value.disorder)
            over = Opaque(f"{count} times", value.span)
            return List((Each(over, value.items, value.span),), value.span, value.kind, value.disorder)
        return None

    def add(
        self, left: Value, right: Value, left_node: ast.AST, right_node: ast.AST, node: ast.AST, frame: Frame
    ) -> Value:
        """`left + right`."""
        if isinstance(left, List) or (isinstance(right, List) and isinstance(left, Opaque)):
            return self._add_lists(left, right, left_node, right_node, node, frame)
        if isinstance(left, Const) and isinstance(right, Const):
            try:
                return Const(left.value + right.value, self.span_of(node, frame))
            except TypeError:
                return self.derived(self.source_of(node, frame), self.span_of(node, frame), left, right)
        if isinstance(left, Alt) and any(isinstance(arm, List) for arm in left.arms):
            arms: list[Value] = [self.add(arm, right, left_node, right_node, node, frame) for arm in left.arms]
            return Alt(left.guard, tuple(arms))
        textual = isinstance(left, Str) or isinstance(right, Str) or _has_text(left) or _has_text(right)
        if textual or (_is_texty(left) and _is_texty(right)):
            first = left.segments if isinstance(left, Str) else self._operand(left, left_node, frame)
            second = self._operand(right, right_node, frame)
            self.work += len(first) + len(second)
            return Str(merge((*first, *second)))
        expression = self.source_of(node, frame)
        result = self.derived(expression, self.span_of(node, frame), left, right, name=identifier(expression))
        return replace(result, type=left.type) if isinstance(left, Opaque) else result

    def _operand(self, value: Value, node: ast.AST, frame: Frame) -> Segments:
        expression = self.source_of(node, frame)
        target = isinstance(getattr(node, "ctx", None), ast.Store)
        return self.to_segments(value, expression, self.span_of(node, frame), identifier(expression), target=target)

    def _add_lists(
        self, left: Value, right: Value, left_node: ast.AST, right_node: ast.AST, node: ast.AST, frame: Frame
    ) -> Value:
        items = (*self.items_of(left, left_node, frame), *self.items_of(right, right_node, frame))
        if len(items) > MAX_ITEMS:
            raise BudgetError
        kind = left.kind if isinstance(left, List) else right.kind if isinstance(right, List) else "list"
        made = List(items, self.span_of(node, frame), kind)
        if items and isinstance(items[0], Rest) and items[0].hole.kind is BlockKind.HISTORY:
            # What is added to a conversation are its next turns, also where the sum goes into a call that tells nothing of it.
            self.note_loose(made, node, frame)
        return made

    def items_of(self, value: Value, node: ast.AST, frame: Frame) -> tuple[Item, ...]:
        """The elements that a value contributes to a list (`+`, `*value`, extend)."""
        span = self.span_of(node, frame)
        if isinstance(value, List):
            if not value.disorder:
                return value.items
            hole = self.derived(self.source_of(node, frame), span, value)
            return (Rest(hole, span),)
        if isinstance(value, Alt):
            arms = [self.items_of(arm, node, frame) for arm in value.arms]
            return self.join_items(value.guard, arms, span)
        if isinstance(value, Const) and value.value is None:
            return ()
        if isinstance(value, Str):
            return (Elem(value, span),)
        if isinstance(value, Dict):
            return tuple(Elem(Str((Text(entry.key, entry.placed.inexact()),)), entry.placed) for entry in value.entries)
        hole = self.opaque(value, node, frame)
        if hole.growth is Growth.FIXED and hole.kind is None:
            fact = self.best_fact(identifier(self.source_of(node, frame)), hole.name)
            hole = replace(hole, kind=fact.kind, growth=fact.growth)
        if hole.kind is BlockKind.HISTORY and hole.growth is Growth.FIXED:
            hole = replace(hole, growth=Growth.APPEND)
        return (Rest(hole, span),)

    def percent(self, left: Value, right: Value, node: ast.AST, frame: Frame) -> Value | None:
        """`text % values`."""
        if isinstance(left, Alt):
            arms = [self.percent(arm, right, node, frame) or arm for arm in left.arms]
            return self.join(left.guard, arms, self.span_of(node, frame))
        if not isinstance(left, Str):
            return None
        values = right.plain() if isinstance(right, List) and right.kind == "tuple" else [right]
        right_node = node.right if isinstance(node, ast.BinOp) else node
        right_text = self.source_of(right_node, frame)

        def fill(field: Field, span: Span, position: int) -> Segments:
            value: Value | None = None
            if field.name:
                value = right.get(field.name) if isinstance(right, Dict) else None
                if value is None:
                    value = self.by_name(field.name, span, frame, field.name)
            elif values is not None and position < len(values):
                value = values[position]
            if value is None:
                value = self.opaque(right, right_node, frame)
            expression = field.name or (self.element_source(right_node, position, frame) or right_text)
            spec = field.spec + field.conversion if field.spec or field.conversion not in "sdiu" else ""
            if isinstance(value, Const) and spec and not may_pad(spec):
                try:
                    return (Text(f"%{spec}" % value.value, span.inexact()),)
                except (TypeError, ValueError):
                    spec = ""
            # `%` sets text to the right where a format specification sets it to the left.
            layout = ("<" if "-" in field.spec else ">") + field.spec.lstrip("-+ #0") if field.spec else ""
            return self.to_segments(
                value,
                expression,
                span,
                identifier(expression),
                spec=layout if field.conversion == "s" else "",
                conversion="r" if field.conversion == "r" else "",
            )

        return Str(self.texts.fill(left.segments, percent_fields, fill))

    def element_source(self, node: ast.AST, position: int, frame: Frame) -> str | None:
        """Source of one element of a tuple display."""
        if isinstance(node, ast.Tuple) and position < len(node.elts):
            return self.source_of(node.elts[position], frame)
        return None

    def _unary(self, node: ast.UnaryOp, frame: Frame) -> Value:
        value = self.eval(node.operand, frame)
        if isinstance(node.op, ast.Not):
            truth = self.truth(value)
            if truth is not None:
                return Const(not truth, self.span_of(node, frame))
        elif isinstance(value, Const) and isinstance(value.value, int | float) and isinstance(node.op, ast.USub):
            return Const(-value.value, self.span_of(node, frame))
        return self.derived(self.source_of(node, frame), self.span_of(node, frame), value)

    def _compare(self, node: ast.Compare, frame: Frame) -> Value:
        left = self.eval(node.left, frame)
        rights = [self.eval(right, frame) for right in node.comparators]
        if len(rights) == 1:
            known = self._compared(node.ops[0], left, rights[0])
            if known is not None:
                return Const(known, self.span_of(node, frame))
        return self.derived(self.source_of(node, frame), self.span_of(node, frame), left, *rights)

    def _compared(self, op: ast.cmpop, left: Value, right: Value) -> bool | None:
        one, other = self._plain(left), self._plain(right)
        if isinstance(op, ast.Is | ast.IsNot) and isinstance(right, Const) and right.value is None:
            if isinstance(left, Const):
                return (left.value is None) == isinstance(op, ast.Is)
            if not isinstance(left, Opaque | Alt | Lib):
                return isinstance(op, ast.IsNot)
            return None
        if isinstance(op, ast.In | ast.NotIn) and one is not None:
            found: bool | None = None
            if isinstance(right, Dict) and right.rest is None and isinstance(one[0], str):
                found = any(entry.key == one[0] for entry in right.entries)
            elif isinstance(right, List) and (plain := right.plain()) is not None:
                known = [self._plain(value) for value in plain]
                if all(value is not None for value in known):
                    found = any(value is not None and value[0] == one[0] for value in known)
            elif other is not None and isinstance(other[0], str) and isinstance(one[0], str):
                found = one[0] in other[0]
            return None if found is None else found == isinstance(op, ast.In)
        compute = _COMPARE.get(type(op))
        if compute is None or one is None or other is None:
            return None
        try:
            return bool(compute(one[0], other[0]))
        except TypeError:
            return None

    def _plain(self, value: Value) -> tuple[Any] | None:
        """The Python value of a constant, in a tuple; None when it is not known."""
        if isinstance(value, Const):
            return (value.value,)
        if isinstance(value, Str):
            text = static_text(value.segments)
            return None if text is None else (text,)
        return None

    def _bool(self, node: ast.BoolOp, frame: Frame) -> Value:
        is_or = isinstance(node.op, ast.Or)
        result = self.eval(node.values[0], frame)
        left_node = node.values[0]
        for right_node in node.values[1:]:
            truth = self.truth(result)
            if truth is is_or:
                return result
            mark = self.journal.mark()
            right = self.eval(right_node, frame)
            if truth is None:
                guard = self.guard(left_node, frame, result)
                if len(self.journal.entries) > mark and isinstance(right, Box):
                    pass  # writes in the right operand are rare; they are kept
                arms = [result, right] if is_or else [right, result]
                if not is_or and isinstance(right, Str):
                    arms = [right, result if isinstance(result, Str) else Str(())]
                result = self.join(guard, arms, self.span_of(node, frame))
            else:
                result = right
            left_node = right_node
        return result

    def _conditional(self, node: ast.IfExp, frame: Frame) -> Value:
        test = self.eval(node.test, frame)
        truth = self.truth(test)
        if truth is not None:
            return self.eval(node.body if truth else node.orelse, frame)
        guard = self.guard(node.test, frame, test)
        return self.join(guard, [self.eval(node.body, frame), self.eval(node.orelse, frame)], self.span_of(node, frame))

    # ---- displays

    def _list(self, node: ast.List | ast.Tuple | ast.Set, frame: Frame) -> Value:
        items: list[Item] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                items.extend(self.items_of(self.eval(element.value, frame), element.value, frame))
            else:
                items.append(Elem(self.eval(element, frame), self.span_of(element, frame)))
        span = self.span_of(node, frame)
        if isinstance(node, ast.Set):
            return List(tuple(items), span, "set", self.disorder(node, frame, len(items)))
        return List(tuple(items), span, "tuple" if isinstance(node, ast.Tuple) else "list")

    def disorder(self, node: ast.AST, frame: Frame, size: int = 2) -> tuple[Any, ...]:
        """The origin that a set's iteration order is; a set of one element has one order."""
        if size < 2:
            return ()
        source = self.sources.sources.get("set")
        kind, volatility = (source.kind, source.volatility) if source else ("unordered", Volatility.PROCESS)
        from promptlint.ir import Confidence

        return (
            self.origin(
                kind, volatility, Confidence.HIGH, self.source_of(node, frame), self.span_of(node, frame), frame
            ),
        )

    def _dict(self, node: ast.Dict, frame: Frame) -> Value:
        entries: dict[str, Entry] = {}
        rest: Opaque | None = None
        for key, value_node in zip(node.keys, node.values, strict=True):
            value = self.eval(value_node, frame)
            if key is None:
                if isinstance(value, Dict):
                    entries.update({entry.key: entry for entry in value.entries})
                    rest = value.rest or rest
                elif isinstance(value, Alt) and all(isinstance(arm, Dict) for arm in value.arms):
                    for arm in value.arms:
                        assert isinstance(arm, Dict)
                        for entry in arm.entries:
                            entries.setdefault(entry.key, replace(entry, guard=value.guard))
                else:
                    rest = self.opaque(value, value_node, frame)
                continue
            name = self._plain(self.eval(key, frame))
            if name is None:
                opaque = self.opaque(value, value_node, frame)
                key_value = self.opaque(self.eval(key, frame), key, frame)
                held = contained(merge_origins(opaque.origins, key_value.origins))
                rest = replace(opaque, origins=held, name=key_value.name)
            else:
                entries[str(name[0])] = Entry(str(name[0]), value, self.span_of(key, frame))
        return Dict(tuple(entries.values()), self.span_of(node, frame), rest)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Value:
        span = self.span_of(node, frame)
        kind = "set" if isinstance(node, ast.SetComp) else "list"
        inner = Frame(frame.module, frame.function, parent=frame, depth=frame.depth, at_import=frame.at_import)
        inner.receiver, inner.cls = frame.receiver, frame.cls
        disorder: list[Any] = []
        items = self._generate(node.elt, node.generators, inner, span, disorder)
        if kind == "set":
            disorder.extend(
                self.disorder(
                    node, frame, 2 if not items or not all(isinstance(item, Elem) for item in items) else len(items)
                )
            )
        return List(items, span, kind, tuple(disorder))

    def _generate(
        self, element: ast.expr, generators: list[ast.comprehension], frame: Frame, span: Span, disorder: list[Any]
    ) -> tuple[Item, ...]:
        if not generators:
            return (Elem(self.eval(element, frame), self.span_of(element, frame)),)
        iterable = self.eval(generators[0].iter, frame)
        return self._generated(iterable, element, generators, frame, span, disorder)

    def _generated(
        self,
        iterable: Value,
        element: ast.expr,
        generators: list[ast.comprehension],
        frame: Frame,
        span: Span,
        disorder: list[Any],
    ) -> tuple[Item, ...]:
        if isinstance(iterable, Alt) and self.arms_known(iterable):
            runs = [self._generated(arm, element, generators, frame, span, disorder) for arm in iterable.arms]
            return self.join_items(iterable.guard, runs, span)
        first, *others = generators
        if isinstance(iterable, List):
            disorder.extend(iterable.disorder)
        elif isinstance(iterable, Opaque) and iterable.unordered:
            disorder.extend(origin for origin in iterable.origins if origin.kind in {"unordered", "listing"})
        known = self.known_elements(iterable)
        result: list[Item] = []
        if known is not None:
            for value in known:
                self.bind(first.target, value, frame)
                result.extend(self._filtered(first, element, others, frame, span, disorder))
            return tuple(result)
        over, value = self.element(iterable, first.iter, first.target, frame)
        self.bind(first.target, value, frame)
        body = self._filtered(first, element, others, frame, span, disorder)
        return (Each(over, body, span, over.growth),) if body else ()

    def arms_known(self, value: Alt) -> bool:
        """Whether each of several lists is known element by element."""
        return all(
            self.arms_known(arm) if isinstance(arm, Alt) else self.known_elements(arm) is not None for arm in value.arms
        )

    def _filtered(
        self,
        generator: ast.comprehension,
        element: ast.expr,
        others: list[ast.comprehension],
        frame: Frame,
        span: Span,
        disorder: list[Any],
    ) -> tuple[Item, ...]:
        guards = []
        for condition in generator.ifs:
            value = self.eval(condition, frame)
            truth = self.truth(value)
            if truth is False:
                return ()
            if truth is None:
                guards.append(self.guard(condition, frame, value))
        items = self._generate(element, others, frame, span, disorder)
        for guard in reversed(guards):
            items = (Pick(guard, (items, ()), span),)
        return items

    def _dict_comprehension(self, node: ast.DictComp, frame: Frame) -> Value:
        span = self.span_of(node, frame)
        inner = Frame(frame.module, frame.function, parent=frame, depth=frame.depth, at_import=frame.at_import)
        inner.receiver, inner.cls = frame.receiver, frame.cls
        first = node.generators[0]
        iterable = self.eval(first.iter, inner)
        known = self.known_elements(iterable)
        entries: dict[str, Entry] = {}
        if known is not None and len(node.generators) == 1 and not first.ifs:
            for value in known:
                self.bind(first.target, value, inner)
                key = self._plain(self.eval(node.key, inner))
                if key is None:
                    break
                entries[str(key[0])] = Entry(str(key[0]), self.eval(node.value, inner), span)
            else:
                return Dict(tuple(entries.values()), span)
        over, value = self.element(iterable, first.iter, first.target, inner)
        self.bind(first.target, value, inner)
        held = self.derived("", span, self.eval(node.key, inner), self.eval(node.value, inner))
        held = replace(held, origins=contained(held.origins))
        result = self.derived(self.source_of(node, frame), span, over, held)
        return Dict((), span, result)

    def known_elements(self, iterable: Value) -> list[Value] | None:
        """The elements of an iterable when each of them is known and their order is fixed."""
        if isinstance(iterable, List) and not iterable.disorder and len(iterable.items) <= UNROLLED:
            return iterable.plain()
        if (
            isinstance(iterable, Dict)
            and iterable.rest is None
            and all(entry.guard is None for entry in iterable.entries)
        ):
            return [Str((Text(entry.key, entry.placed.inexact()),)) for entry in iterable.entries]
        return None

    def element(self, iterable: Value, node: ast.AST, target: ast.AST, frame: Frame) -> tuple[Opaque, Value]:
        """What a loop runs over, and what one element of it is."""
        span = self.span_of(node, frame)
        expression = self.source_of(node, frame)
        over = (
            iterable
            if isinstance(iterable, Opaque)
            else self.derived(expression, span, iterable, name=identifier(expression))
        )
        if isinstance(iterable, List) and iterable.disorder:
            over = replace(over, unordered=True, origins=merge_origins(iterable.disorder, over.origins))
        if isinstance(iterable, List) and iterable.items:
            value = self._any_item(iterable, node, frame)
            if value is not None:
                return replace(over, origins=iterable.disorder) if not over.origins else over, value
        name = target.id if isinstance(target, ast.Name) else ""
        origins = over.origins
        if origins and all(origin.confidence.value == 0 for origin in origins) and name and not self._numbers(name):
            return over, self.by_name(
                name, self.span_of(target, frame), frame, name, over.name, parameter=over.parameter
            )
        kind = "Message" if over.kind is BlockKind.HISTORY else ""
        element = Opaque(
            name or f"item of {expression}",
            self.span_of(target, frame),
            origins,
            name or over.name,
            kind,
            over.kind,
            steps=over.steps,
            parameter=over.parameter,
        )
        return over, element

    def _numbers(self, name: str) -> bool:
        """Whether a name is that of a counter: the element of a list counts nothing (`for step in plan`)."""
        return self.fact(name).origin == "counter"

    def _any_item(self, iterable: List, node: ast.AST, frame: Frame) -> Value | None:
        """One value that stands for any element of a list of one shape: the join of its elements where that is small."""
        if not iterable.items:
            return None
        first = iterable.items[0]
        if (
            len(iterable.items) == 1
            and isinstance(first, Each)
            and len(first.body) == 1
            and isinstance(first.body[0], Elem)
        ):
            return first.body[0].value
        values = [item.value for item in iterable.items if isinstance(item, Elem)]
        if len(values) != len(iterable.items):
            return None
        if all(isinstance(value, List) and value.kind == "tuple" and value.plain() is not None for value in values):
            # Rows of a table: one row of holes that say which column of the table they are.
            width = {len(value.items) for value in values if isinstance(value, List)}
            if len(width) == 1:
                span = self.span_of(node, frame)
                columns = []
                for column in range(width.pop()):
                    origins = merge_origins(
                        iterable.disorder,
                        *(item_origins(value.items[column]) for value in values if isinstance(value, List)),
                    )
                    columns.append(Elem(Opaque(f"{self.source_of(node, frame)}[{column}]", span, origins), span))
                return List(tuple(columns), span, "tuple")
        origins = merge_origins(iterable.disorder, *(origins_of(value) for value in values))
        return Opaque(f"item of {self.source_of(node, frame)}", self.span_of(node, frame), origins)

    def bind(self, target: ast.expr, value: Value, frame: Frame) -> None:
        """Assign a value to a target."""
        raise NotImplementedError

    # ---- subscripts

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Value:
        value = self.eval(node.value, frame)
        if isinstance(node.slice, ast.Slice):
            return self.slice(value, node, node.slice, frame)
        index = self.eval(node.slice, frame)
        return self.item(value, index, node, frame)

    def item(self, value: Value, index: Value, node: ast.AST, frame: Frame) -> Value:
        """`value[index]`."""
        plain = self._plain(index)
        span = self.span_of(node, frame)
        expression = self.source_of(node, frame)
        if isinstance(value, Alt):
            return self.join(value.guard, [self.item(arm, index, node, frame) for arm in value.arms], span)
        if isinstance(value, Dict):
            if plain is not None:
                found = value.get(str(plain[0]))
                if found is not None:
                    return found
                if value.rest is not None:
                    return self.by_name(expression, span, frame, str(plain[0]), value.rest.name)
            elif value.entries and value.rest is None and len(value.entries) <= 12:
                # A table of texts picked by a key that is not known: one of them.
                return self.join(self.guard(node, frame, index), [entry.value for entry in value.entries], span)
            return self._at_index(expression, span, value, index, name=identifier(expression))
        if isinstance(value, List):
            known = value.plain()
            if known is not None and plain is not None and isinstance(plain[0], int) and not value.disorder:
                try:
                    return known[plain[0]]
                except IndexError:
                    return self.unknown(expression, span, frame)
            return self._any_item(value, node, frame) or self._at_index(expression, span, value, index)
        if isinstance(value, Lib):
            value = self.library_value(value, node, frame)
        if isinstance(value, Opaque):
            name = str(plain[0]) if plain is not None and isinstance(plain[0], str) else ""
            if plain is not None and plain[0] == -1:
                value = newest(value)
            return self.part(value, name, expression, span, frame, index)
        if isinstance(value, Template | ModuleValue | Function):
            return self.unknown(expression, span, frame)
        return self._at_index(expression, span, value, index, name=identifier(expression))

    def _at_index(self, expression: str, span: Span, value: Value, *indices: Value, name: str = "") -> Opaque:
        """What stands at an index of a value that is not known: it changes with both."""
        made = self.derived(expression, span, value, *indices, name=name)
        return replace(made, origins=merge_origins(origins_of(value), *map(_picked_by, indices)))

    def part(self, value: Opaque, name: str, expression: str, span: Span, frame: Frame, *others: Value) -> Opaque:
        """An attribute or entry of an unknown value: a telling name decides, else it lives as long as its whole."""
        strong = tuple(
            origin
            for origin in value.origins
            if origin.kind not in {"unknown", "request", "context", "setting", "state"} and origin.confidence.value > 0
        )
        if name and not strong:
            dotted = f"{value.name}.{name}" if value.name else name
            fact = self.fact_of(expression, name, dotted)
            known = any(origin.confidence.value > 0 and origin.kind != "setting" for origin in value.origins)
            if fact.confidence.value > 0 and not (known and fact.origin == "request"):
                # `passage.text` is a text of the passage; only a name that says more than its whole counts.
                weak = all(origin.confidence.value == 0 for origin in value.origins) or fact.volatility >= max(
                    (o.volatility for o in value.origins), default=Volatility.STATIC
                )
                if weak or not value.origins or value.origins[0].kind == "setting":
                    origin = self.origin(fact.origin, fact.volatility, fact.confidence, expression, span, frame)
                    return Opaque(
                        expression, span, (origin,), name, "", fact.kind, fact.growth, value.steps, value.parameter
                    )
        origins = merge_origins(value.origins, *(_picked_by(other) for other in others))
        return Opaque(
            expression, span, origins, name or value.name, "", None, Growth.FIXED, value.steps, value.parameter
        )

    def slice(self, value: Value, node: ast.Subscript, part: ast.Slice, frame: Frame) -> Value:
        """`value[a:b]`."""
        bounds: list[int | None] = []
        known = True
        others: list[Value] = []
        for bound in (part.lower, part.upper, part.step):
            if bound is None:
                bounds.append(None)
                continue
            got = self.eval(bound, frame)
            others.append(got)
            if isinstance(got, Const) and isinstance(got.value, int):
                bounds.append(got.value)
            else:
                known = False
                bounds.append(None)
        low, high, step = bounds
        span = self.span_of(node, frame)
        expression = self.source_of(node, frame)
        if isinstance(value, Alt):
            return self.join(value.guard, [self.slice(arm, node, part, frame) for arm in value.arms], span)
        if isinstance(value, List) and known and step in {None, 1}:
            if all(isinstance(item, Elem) for item in value.items):
                return List(value.items[low:high], span, value.kind, value.disorder)
            if (
                high is None
                and low is not None
                and low >= 0
                and all(isinstance(item, Elem) for item in value.items[:low])
            ):
                return List(value.items[low:], span, value.kind, value.disorder)
        if isinstance(value, Str) and known and (whole := static_text(value.segments)) is not None:
            if step in {None, 1} and len(value.segments) == 1 and isinstance(value.segments[0], Text):
                start, end, _ = builtin_slice(low, high).indices(len(whole))
                text = self.texts.keep(value.segments[0], [(start, end)])
                return Str((text,) if text is not None else ())
            return Str((Text(whole[low:high:step], span.inexact()),)) if whole[low:high:step] else Str(())
        if isinstance(value, Str) and known and low in {None, 0} and step is None and high is not None and high >= 0:
            left = high
            for position, segment in enumerate(value.segments):
                if not isinstance(segment, Text):
                    break
                if len(segment.value) >= left:
                    cut = self.texts.keep(segment, [(0, left)])
                    return Str((*value.segments[:position], *((cut,) if cut else ())))
                left -= len(segment.value)
        name = value.name if isinstance(value, Opaque) else identifier(expression)
        result = self._at_index(expression, span, value, *others, name=name)
        if isinstance(value, Opaque):
            result = replace(result, kind=value.kind, type=value.type)
            if value.kind is BlockKind.HISTORY or value.growth is Growth.APPEND:
                result = replace(result, growth=Growth.WINDOW if part.lower is not None else Growth.FIXED)
        if known and low in {None, 0} and high is not None and 4 <= high <= 10:
            result = self.coarsen(result, "day")  # "2026-11-30T…"[:10]
        return result


def builtin_slice(low: int | None, high: int | None) -> Any:
    """A slice object; the method of the same name hides the builtin inside the class."""
    return slice(low, high)


def _picked_by(index: Value) -> tuple[Origin, ...]:
    """Why what stands at an index changes with it: where a counter picks an item, the item counts nothing."""
    return tuple(replace(origin, kind="state") if origin.kind == "counter" else origin for origin in origins_of(index))


def _literal_text(node: ast.JoinedStr) -> str:
    return "".join(part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str))


def _has_text(value: Value) -> bool:
    return isinstance(value, Alt) and any(isinstance(arm, Str) for arm in value.arms)


def _is_texty(value: Value) -> bool:
    return isinstance(value, Opaque) and value.type == "str"


_BUILTINS = frozenset(dir(builtins))
