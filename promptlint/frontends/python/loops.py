"""Loops: executed for known elements, else run until stable and then widened to a state that stands for any turn."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from promptlint.frontends.python.core import identifier
from promptlint.frontends.python.nodes import walk
from promptlint.frontends.python.statements import Changed, Statements
from promptlint.frontends.python.text import merge
from promptlint.frontends.python.values import (
    ORDER,
    Alt,
    Const,
    Each,
    Elem,
    Frame,
    Item,
    Journal,
    Lib,
    List,
    Opaque,
    Rest,
    Str,
    Value,
    contained,
    merge_origins,
    origins_of,
)
from promptlint.ir import BlockKind, Choice, Confidence, Growth, Guard, Hole, Text, Volatility

__all__ = ["Loops"]


class Loops(Statements):
    """`for` and `while`."""

    def _do_For(self, node: ast.For | ast.AsyncFor, frame: Frame) -> bool:
        iterable = self.eval(node.iter, frame)
        if isinstance(iterable, Lib):
            iterable = self.library_value(iterable, node.iter, frame)
        known = self.known_elements(iterable)
        numbers = self._is_range(node.iter, frame)
        if numbers and known and self._sends(node, known[0], frame):
            # Turns of a conversation are no list of texts: each of them is another request.
            known = None
            iterable = Opaque(self.source_of(node.iter, frame), self.span_of(node.iter, frame))
        if known is not None and not _leaves(node.body):
            for value in known:
                self.bind(node.target, value, frame)
                if self.run(node.body, frame):
                    return True
            return self.run(node.orelse, frame)
        over, element = self.element(iterable, node.iter, node.target, frame)
        count = self._turns(node.target, "counter", frame) if numbers else element

        def bind(sends: bool) -> Opaque:
            # A turn that sends a prompt holds one element: the order in which turns come is in none of them.
            self._bind_element(node.target, _alone(count) if sends else element, frame)
            return self._turns(node.iter, "history", frame) if numbers and sends else over

        self._loop(bind, node.body, frame, numbers=numbers)
        return self.run(node.orelse, frame)

    def _is_range(self, node: ast.expr, frame: Frame) -> bool:
        return isinstance(node, ast.Call) and self.eval(node.func, frame) == Lib("range")

    def _sends(self, node: ast.For | ast.AsyncFor, element: Value, frame: Frame) -> bool:
        """Whether a turn of the loop sends a prompt: it is tried and taken back."""
        mark, returned, yielded, sent = self.journal.mark(), len(frame.returns), len(frame.yields), self.sent
        self.silent += 1
        try:
            self.bind(node.target, element, frame)
            self.run(node.body, frame)
        finally:
            self.silent -= 1
            self.journal.undo(mark)
            del frame.returns[returned:]
            del frame.yields[yielded:]
        return self.sent > sent

    def _turns(self, node: ast.expr, kind: str, frame: Frame) -> Opaque:
        """What a loop that sends prompts counts (`counter`), or what it adds to the conversation in each turn (`history`)."""
        span, expression = self.span_of(node, frame), self.source_of(node, frame)
        origin = self.origin(kind, Volatility.TURN, Confidence.MEDIUM, expression, span, frame)
        return Opaque(expression, span, (origin,), "turns" if kind == "history" else identifier(expression))

    _do_AsyncFor = _do_For

    def _bind_element(self, target: ast.expr, element: Value, frame: Frame) -> None:
        if isinstance(target, ast.Tuple) and isinstance(element, Opaque):
            for part in target.elts:
                if isinstance(part, ast.Name):
                    bound: Value = self.part(element, part.id, part.id, self.span_of(part, frame), frame)
                    self.bind(part, bound, frame)
                else:
                    self._bind_element(part, element, frame)
            return
        self.bind(target, element, frame)

    def _do_While(self, node: ast.While, frame: Frame) -> bool:
        test = self.eval(node.test, frame)
        if self.truth(test) is False:
            return self.run(node.orelse, frame)
        expression = self.source_of(node.test, frame)
        over = self.derived(expression, self.span_of(node.test, frame), test, name=identifier(expression))
        if not over.origins:
            over = self.unknown(expression, over.span, frame, name=over.name)
        over = replace(over, origins=contained(over.origins))
        self._loop(lambda sends: self._turns(node.test, "history", frame) if sends else over, node.body, frame)
        endless = isinstance(node.test, ast.Constant) and node.test.value  # a test that holds at first may fail later
        if endless and not any(isinstance(child, ast.Break) for child in walk(node)):
            if frame.returns:
                frame.returns[-1] = (None, frame.returns[-1][1])
            return True
        return self.run(node.orelse, frame)

    def _loop(
        self, bind: Callable[[bool], Opaque], body: Sequence[ast.stmt], frame: Frame, *, numbers: bool = False
    ) -> None:
        """Two passes: the first finds out what a turn changes, the second runs from a state that stands for any turn.

        `bind` binds the loop's target and gives what it runs over; it is told whether a turn sends a prompt,
        which makes a counter of `numbers`.
        """
        returned, yielded = len(frame.returns), len(frame.yields)
        sends = False
        over, first, sent = self._first_turn(bind, sends, body, frame)
        if sent:
            sends = True
            if numbers:
                over, first, _ = self._first_turn(bind, sends, body, frame)
            else:
                mark = self.journal.mark()
                over = bind(sends)
                self.journal.undo(mark)
        widened: list[tuple[Any, str, Any, Any]] = []
        counted = {place: change for place, change in first.items() if _is_counted(change[2], change[3])}
        if counted:
            # What a turn counts is not what it was in the first turn: the texts of any turn are made of any number.
            for target, key, before, now in counted.values():
                head = self._widen(over, key, before, now, frame, sends)
                if head is not None:
                    widened.append((target, key, before, head))
                    self.journal.set(target, key, head)
            _, again, _ = self._first_turn(bind, sends, body, frame)
            first = {place: change for place, change in again.items() if place not in counted}
        for target, key, before, now in first.values():
            if Journal.missing(before) or Journal.missing(now) or before is now:
                continue
            head = self._widen(over, key, before, now, frame, sends)
            if head is not None:
                widened.append((target, key, before, head))
        for target, key, _, head in widened:
            if isinstance(target, dict):
                self.journal.set(target, key, head)
            else:
                self.journal.set_slot(target, key, head)
        inner = self.journal.mark()
        frame.in_loop += 1
        try:
            bind(sends)
            self.run(body, frame)
        finally:
            frame.in_loop -= 1
        for index in range(returned, len(frame.returns)):
            condition, value = frame.returns[index]
            if condition is None:
                frame.returns[index] = (self._over_guard(over), value)
        if len(frame.yields) > yielded:
            made = tuple(frame.yields[yielded:])
            frame.yields[yielded:] = [Each(over, made, over.span)]
        second = self.journal.changed_since(inner)
        self._after_loop({(id(t), k): h for t, k, _, h in widened}, second)

    def _first_turn(
        self, bind: Callable[[bool], Opaque], sends: bool, body: Sequence[ast.stmt], frame: Frame
    ) -> tuple[Opaque, Changed, bool]:
        """What is looped over, what one turn changes, and whether it sends; all of it is taken back."""
        mark, sent = self.journal.mark(), self.sent
        returned, yielded = len(frame.returns), len(frame.yields)
        self.silent += 1
        try:
            over = bind(sends)
            self.run(body, frame)
        finally:
            self.silent -= 1
        changed = self.journal.changed_since(mark)
        self.journal.undo(mark)
        del frame.returns[returned:]
        del frame.yields[yielded:]
        return over, changed, self.sent > sent

    def _after_loop(self, heads: dict[tuple[int, str], Any], second: Changed) -> None:
        """Behind the loop stand the heads, which mean any number of turns; what is bound within it keeps the last turn's value."""
        for place, (target, key, _, _) in second.items():
            if place in heads:
                if isinstance(target, dict):
                    self.journal.set(target, key, heads[place])
                else:
                    self.journal.set_slot(target, key, heads[place])

    def _over_guard(self, over: Opaque) -> Guard:
        from promptlint.frontends.python.values import worst

        volatility, confidence = worst(over.origins)
        return Guard(over.expression, over.span, volatility, confidence, over.origins)

    def _widen(self, over: Opaque, key: str, before: Any, now: Any, frame: Frame, sends: bool) -> Any:
        """A value at the head of a loop that stands for any number of turns; None when it does not change from turn to turn."""
        if isinstance(before, Str) and isinstance(now, Str):
            size = len(before.segments)
            grown = now.segments
            if before == now:
                return None
            if size == 0 or grown[:size] == before.segments:
                return Str((*before.segments, self.repeat(over, grown[size:], over.span, Growth.APPEND)))
            last = before.segments[-1]
            joined = grown[size - 1] if size <= len(grown) else None
            same = isinstance(last, Text) and isinstance(joined, Text) and grown[: size - 1] == before.segments[:-1]
            if same and isinstance(last, Text) and isinstance(joined, Text) and joined.value.startswith(last.value):
                # The last text was merged with what follows it in the source.
                tail = self.texts.keep(joined, [(len(last.value), len(joined.value))])
                delta = (*((tail,) if tail is not None else ()), *grown[size:])
                return Str((*before.segments, self.repeat(over, delta, over.span, Growth.APPEND)))
            if grown[len(grown) - size :] == before.segments:
                delta = grown[: len(grown) - size]
                return Str(merge((self.repeat(over, delta, over.span, Growth.INSERT), *before.segments)))
            return self._remade(over, key, before, now, frame)
        if isinstance(before, Opaque) and isinstance(now, Str) and now.segments:
            head = now.segments[0]
            if isinstance(head, Hole) and head.origins == self.hole(before, head.expression, head.span).origins:
                delta = now.segments[1:]
                return Str((head, self.repeat(over, delta, over.span, Growth.APPEND)))
        if isinstance(before, Alt) and isinstance(now, Str) and now.segments:
            first = now.segments[0]
            if isinstance(first, Choice) and first.guard == before.guard:
                delta = now.segments[1:]
                return Str((first, self.repeat(over, delta, over.span, Growth.APPEND)))
            return self.join(self._over_guard(over), [now, before], over.span)
        if isinstance(before, tuple) and isinstance(now, tuple) and key == "items":
            return self._widen_items(over, before, now)
        if key in {"entries", "rest", "kind", "disorder"}:
            return None
        if isinstance(before, Const) and isinstance(now, Const):
            if before.value == now.value:
                return None
            if not sends and isinstance(before.value, int | float):
                return Opaque(key, now.span, contained(over.origins), key)  # it numbers what the loop runs over
            origin = self.origin("counter", Volatility.TURN, Confidence.MEDIUM, key, now.span, frame)
            if isinstance(before.value, bool) or not isinstance(before.value, int | float):
                origin = replace(origin, kind="state", confidence=Confidence.LOW)
            return Opaque(key, now.span, (origin,), key)
        if (
            self.fact(key).kind is BlockKind.HISTORY
            and isinstance(now, Alt | Opaque)
            and isinstance(before, Alt | List)
        ):
            # `reply, history = ask(text, history)`: what a call gives back begins with what it was given.
            known = before.items if isinstance(before, List) else ()
            turns = Rest(self.by_name(key, over.span, frame, key), over.span)
            return List((*known, turns), over.span)
        if isinstance(before, List) and isinstance(now, List):
            if (
                len(now.items) >= len(before.items)
                and now.items[: len(before.items)] == before.items
                and now is not before
            ):
                widened = self._widen_items(over, before.items, now.items)
                return List(widened, now.span, now.kind, now.disorder) if widened is not None else None
            return List((Rest(self.derived(key, now.span, now, name=key), now.span),), now.span, now.kind)
        if isinstance(now, Opaque) and isinstance(before, Const | Opaque):
            counted = (
                isinstance(before, Const)
                and isinstance(before.value, int | float)
                and not isinstance(before.value, bool)
            )
            if counted and not sends:
                return replace(now, origins=merge_origins(contained(now.origins), contained(over.origins)))
            if counted:
                origin = self.origin("counter", Volatility.TURN, Confidence.MEDIUM, key, now.span, frame)
                return Opaque(key, now.span, merge_origins((origin,), now.origins), key)
            return now
        if isinstance(before, Const) and before.value is None:
            return now
        return None

    def _remade(self, over: Opaque, key: str, before: Str, now: Str, frame: Frame) -> Value:
        guard = self._over_guard(over)
        del key, frame
        return self.join(guard, [now, before], over.span)

    def _either(self, over: Opaque, before: Item, now: Item) -> Item:
        if before == now or not isinstance(before, Elem) or not isinstance(now, Elem):
            return before
        return Elem(self.join(self._over_guard(over), [now.value, before.value], over.span), now.placed)

    def _widen_items(self, over: Opaque, before: tuple[Item, ...], now: tuple[Item, ...]) -> tuple[Item, ...] | None:
        if before == now:
            return None
        size = len(before)
        if now[:size] == before:
            delta = now[size:]
            growth = Growth.APPEND
            return (*before, Each(over, delta, over.span, growth))
        if size and now[len(now) - size :] == before:
            return (Each(over, now[: len(now) - size], over.span, Growth.INSERT), *before)
        if size <= len(now) and all(isinstance(one, Elem) for one in (*before, *now[:size])):
            # Elements that a turn sets anew stay in their places; what it adds comes behind them.
            head = tuple(self._either(over, one, other) for one, other in zip(before, now[:size], strict=True))
            delta = now[size:]
            return (*head, Each(over, delta, over.span, Growth.APPEND)) if delta else head
        made = (contained(origins_of(item.value)) for item in now if isinstance(item, Elem))
        origins = merge_origins(over.origins, *made)
        return (Rest(Opaque(over.expression, over.span, origins, over.name, growth=Growth.REWRITE), over.span),)


def _alone(element: Value) -> Value:
    """An element without the order that it came in."""
    return replace(element, origins=contained(element.origins, ORDER)) if isinstance(element, Opaque) else element


def _is_counted(before: Any, now: Any) -> bool:
    """Whether a turn makes another number of a number."""
    number = isinstance(before, Const) and isinstance(before.value, int | float) and not isinstance(before.value, bool)
    return number and isinstance(now, Const | Opaque) and before != now


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop body breaks or continues at its own level: then its turns are not all alike."""
    for statement in body:
        if isinstance(statement, ast.Break | ast.Continue):
            return True
        if isinstance(statement, ast.If) and (_leaves(statement.body) or _leaves(statement.orelse)):
            return True
        if isinstance(statement, ast.With | ast.Try) and _leaves(statement.body):
            return True
        if isinstance(statement, ast.Try) and any(_leaves(handler.body) for handler in statement.handlers):
            return True
    return False
