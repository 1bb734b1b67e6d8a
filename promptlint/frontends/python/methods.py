"""Methods of builtin values: texts, lists, dicts."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from promptlint.frontends.python.core import MAX_TEXT, Arguments, identifier
from promptlint.frontends.python.objects import Objects
from promptlint.frontends.python.text import Field, Segments, format_fields, merge, static_text
from promptlint.frontends.python.values import (
    ORDER,
    STRONG,
    Alt,
    Bound,
    Const,
    Dict,
    Each,
    Elem,
    Entry,
    Frame,
    Item,
    List,
    Opaque,
    Pick,
    Pipe,
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
    BlockKind,
    Choice,
    Confidence,
    Growth,
    Hole,
    Origin,
    Repeat,
    Segment,
    Step,
    Text,
    Volatility,
)
from promptlint.source import Span

__all__ = ["Methods"]

_SAME_TEXT = frozenset(
    {
        "strip",
        "lstrip",
        "rstrip",
        "lower",
        "upper",
        "title",
        "capitalize",
        "encode",
        "decode",
        "expandtabs",
        "removeprefix",
        "removesuffix",
    }
)


# What stands in a text to be replaced: {now}, {{now}}, [DATE], <date>, %DATE%, $date, __DATE__, ##DATE##.
_MARKER = re.compile(r"(?:[{\[<%$@]|__|##)[\[{<%$@_#]*\s*[A-Za-z][\w .-]*\s*[\]}>%$@_#]*")


class Methods(Objects):
    """`call_method` and the text operations that library rows share."""

    def call_method(self, bound: Bound, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A method of a builtin value or template object."""
        receiver = bound.receiver
        if isinstance(receiver, Template):
            return self.call_template(receiver, bound.name, arguments, node, frame)
        if isinstance(receiver, Place):
            placed = self.call_place(receiver, bound.name, arguments, node, frame)
            if placed is not None:
                return placed
            if bound.name in {"iterdir", "glob", "rglob"} and not receiver.opened and not receiver.environment:
                return self.listing(bound.name, arguments, node, frame)
            expression = self.source_of(node, frame)
            return self.unknown(expression, self.span_of(node, frame), frame, name=receiver.path.stem)
        if isinstance(receiver, Pipe):
            return self.call_pipe(receiver, bound.name, arguments, node, frame)
        if isinstance(receiver, Str):
            return self.text_method(receiver, bound.name, arguments, node, frame)
        if isinstance(receiver, List):
            return self.list_method(receiver, bound.name, arguments, node, frame)
        if isinstance(receiver, Dict):
            return self.dict_method(receiver, bound.name, arguments, node, frame)
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        return self.derived(expression, span, receiver, *arguments.all(), name=identifier(expression))

    def call_template(self, template: Template, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A method of a template object."""
        raise NotImplementedError

    def listing(self, method: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """The files of a folder."""
        raise NotImplementedError

    def call_place(self, place: Place, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        """A method of a path, an opened file or a template environment."""
        raise NotImplementedError

    def call_pipe(self, pipe: Pipe, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A method of runnables joined by `|`."""
        raise NotImplementedError

    # ---- texts

    def text_method(self, text: Str, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A method of a text."""
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        if name == "format":
            return self.format(text, arguments, node, frame)
        if name == "format_map":
            values = arguments.get(0)
            if isinstance(values, Dict):
                keywords = {entry.key: entry.value for entry in values.entries}
                places: dict[int | str, Span] = {entry.key: entry.placed for entry in values.entries}
                return self.format(
                    text, Arguments(keywords=keywords, rest_keywords=values.rest, places=places), node, frame
                )
            return self.format(
                text,
                Arguments(rest_keywords=self.opaque(values, node, frame) if values is not None else None),
                node,
                frame,
            )
        if name == "join":
            items = arguments.get(0)
            return self.join_texts(text, items, node, frame) if items is not None else Str(())
        if name in {"strip", "lstrip", "rstrip"}:
            chars = self.text_of(arguments.positional[0]) if arguments.positional else None
            return Str(self.texts.strip(text.segments, left=name != "rstrip", right=name != "lstrip", chars=chars))
        if name in {"lower", "upper", "title", "capitalize"} and not (name == "capitalize" and len(text.segments) > 1):
            return Str(self.texts.change(text.segments, lambda value: getattr(value, name)()))
        if name == "replace" and len(arguments.positional) >= 2:
            return self.replace_text(text, arguments, node, frame)
        if name in {"encode", "decode", "expandtabs"}:
            return text
        whole = static_text(text.segments)
        given = [self._plain(value) for value in arguments.positional]
        if (
            whole is not None
            and all(value is not None for value in given)
            and not arguments.keywords
            and len(whole) < MAX_TEXT
        ):
            plain = [value[0] for value in given if value is not None]
            computed = self._computed(whole, name, plain)
            if computed is not None:
                return self._literal_value(computed, text, span)
        if name in {"split", "splitlines", "rsplit"}:
            return self.derived(expression, span, text, name="lines")
        if name in {"startswith", "endswith", "isdigit", "find", "count", "index"}:
            return self.derived(expression, span, text, *arguments.all())
        if name in {"removeprefix", "removesuffix"}:
            return text
        return self.derived(expression, span, text, *arguments.all(), name=identifier(expression))

    @staticmethod
    def _computed(whole: str, name: str, plain: list[object]) -> object | None:
        if name not in {
            "split", "splitlines", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix", "removesuffix", "zfill", "ljust", "rjust",
            "center", "count", "find", "casefold", "swapcase", "isdigit", "capitalize", "expandtabs",
        }:  # fmt: skip
            return None
        try:
            result: object = getattr(whole, name)(*plain)
        except (TypeError, ValueError):
            return None
        return result

    def _literal_value(self, computed: object, text: Str, span: Span) -> Value:
        place = text.segments[0].span.inexact() if text.segments else span.inexact()
        if isinstance(computed, str):
            kept = self._kept_part(computed, text)
            return kept or (Str((Text(computed, place),)) if computed else Str(()))
        if isinstance(computed, list | tuple):
            kind = "tuple" if isinstance(computed, tuple) else "list"
            return List(tuple(Elem(self._literal_value(part, text, span), span) for part in computed), span, kind)
        return Const(computed, span)

    def _kept_part(self, value: str, text: Str) -> Str | None:
        if len(text.segments) == 1 and isinstance(text.segments[0], Text) and value:
            at = text.segments[0].value.find(value)
            if at >= 0 and text.segments[0].value.find(value, at + 1) < 0:
                part = self.texts.keep(text.segments[0], [(at, at + len(value))])
                return Str((part,)) if part is not None else None
        return None

    def format(self, text: Str, arguments: Arguments, node: ast.AST, frame: Frame, *, partial: bool = False) -> Str:
        """`text.format(…)`: slots are placed by the text; slots that nobody fills are holes by their names (kept as they are when `partial`)."""
        automatic = 0

        def value_of(field: Field, span: Span, _: int) -> Segments:
            nonlocal automatic
            head = field.name
            for stop in ".[":
                head = head.split(stop, 1)[0]
            head = head.strip()
            key: int | str
            if head == "" or head.isdigit():
                key = int(head) if head else automatic
                automatic += 0 if head else 1
                found = arguments.positional[key] if key < len(arguments.positional) else None
            else:
                key = head
                found = arguments.keywords.get(head)
            spec = field.spec if "{" not in field.spec else ""
            expression = field.name.strip() or arguments.expressions.get(key, "")
            if found is None:
                if partial:
                    return (Text("{" + field.name + "}", span.inexact()),)
                if arguments.rest_keywords is not None or arguments.rest is not None:
                    rest = arguments.rest_keywords or arguments.rest
                    assert rest is not None
                    base = self.by_name(expression, span, frame, field.name, rest.name)
                    return (self.hole(base, expression, span, field.name),)
                return (
                    self.hole(
                        self.by_name(expression or "slot", span, frame, field.name),
                        expression or "slot",
                        span,
                        field.name,
                    ),
                )
            for part in field.name.replace("]", "").replace("[", ".").split(".")[1:]:
                found = (
                    self.item(found, Str((Text(part, span.inexact()),)), node, frame)
                    if isinstance(found, Dict)
                    else self.attribute(found, part, node, frame)
                )
            segments = self.to_segments(found, expression, span, field.name, spec=spec, conversion=field.conversion)
            place = arguments.places.get(key)
            return (
                _bound_here(segments, place, arguments.expressions.get(key, ""), span)
                if place is not None
                else segments
            )

        return Str(self.texts.fill(text.segments, format_fields, value_of))

    def replace_text(self, text: Str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """`text.replace(old, new)`: a marker that is found is a slot."""
        old = self.text_of(arguments.positional[0])
        new = arguments.positional[1]
        expression = arguments.expressions.get(1, "")
        place = arguments.places.get(1, self.span_of(node, frame))
        if not old:
            # The marker is not known, so it may stand anywhere: the text is kept.
            return text
        fresh = self.to_segments(new, expression, place, identifier(old), identifier(expression))
        if len(fresh) == 1 and isinstance(fresh[0], Hole) and _MARKER.fullmatch(old):
            self.note_marker(old, fresh[0], node, frame)
        changed, count = self.texts.replace(text.segments, old, fresh)
        if (
            count == 0
            and any(isinstance(segment, Hole | Choice | Repeat) for segment in text.segments)
            and not old.isspace()
        ):
            return Str(self._replaced_in_hole(changed, old, fresh, place))
        return Str(merge(changed))

    def note_marker(self, marker: str, value: Hole, node: ast.AST, frame: Frame) -> None:
        """Remember what fills a marker, for templates that stand elsewhere."""
        raise NotImplementedError

    def _replaced_in_hole(self, segments: Segments, old: str, fresh: Segments, place: Span) -> Segments:
        """The marker may stand in a text that is not known: what replaces it stands amid that text."""
        extra = origins_of(Str(fresh))
        if not extra:
            return segments
        for index, segment in enumerate(segments):
            if not isinstance(segment, Hole):
                continue
            if _MARKER.fullmatch(old):
                amid = self.amid(segment, fresh, place)
                return (*segments[:index], *amid, *segments[index + 1 :])
            origins = merge_origins(contained(extra), segment.origins)
            volatility, confidence = worst(origins)
            steps = (*segment.steps, Step(place, "put in place of a marker"))
            hole = replace(segment, origins=origins, volatility=volatility, confidence=confidence, steps=steps)
            return (*segments[:index], hole, *segments[index + 1 :])
        return segments

    def amid(self, whole: Hole, fresh: Segments, place: Span) -> Segments:
        """What replaces a marker in a text that is not known, with the text around it: a text with markers is a template, which many calls share."""
        if whole.kind is None or whole.kind is BlockKind.QUESTION or whole.confidence is Confidence.LOW:
            origin = Origin("database", Volatility.PROCESS, Confidence.MEDIUM, whole.expression, whole.span)
            whole = replace(
                whole,
                kind=BlockKind.SYSTEM,
                origins=(origin,),
                volatility=origin.volatility,
                confidence=origin.confidence,
            )
        step = Step(place, "put in place of a marker")
        return (whole, *(_less_sure(segment, step) for segment in fresh), whole)

    def join_texts(self, separator: Str, items: Value, node: ast.AST, frame: Frame) -> Value:
        """`separator.join(items)`."""
        expression, span = self.source_of(node, frame), self.span_of(node, frame)
        if isinstance(items, Alt):
            return self.join(items.guard, [self.join_texts(separator, arm, node, frame) for arm in items.arms], span)
        if isinstance(items, Str):
            return items if not separator.segments else self.derived(expression, span, items)
        if isinstance(items, Dict):
            items = List(self.items_of(items, node, frame), items.span)
        if not isinstance(items, List):
            value = self.opaque(items, node, frame)
            argument = node.args[0] if isinstance(node, ast.Call) and node.args else node
            name = value.name or identifier(self.source_of(argument, frame))
            # Unlike the argument, the call is what a person reads as the slot.
            return Str(
                (
                    self.hole(
                        replace(value, span=self.span_of(argument, frame), name=name),
                        self.source_of(argument, frame),
                        span,
                        name,
                    ),
                )
            )
        if items.disorder:
            value = self.derived(expression, span, items, name=identifier(expression))
            return Str((self.hole(value, expression, span),))
        return Str(self._joined_items(items.items, separator.segments))

    def _joined_items(self, items: tuple[Item, ...], separator: Segments) -> Segments:
        definite = next((index for index, item in enumerate(items) if isinstance(item, Elem)), None)
        result: list[Segment] = []
        for index, item in enumerate(items):
            before = definite is not None and index > definite
            after = definite is not None and index < definite
            if definite is None and index > 0:
                before = True
            lead = separator if before else ()
            tail = separator if after else ()
            if isinstance(item, Elem):
                result.extend((*lead, *self._item_text(item), *tail))
            elif isinstance(item, Rest):
                result.extend((*lead, self.hole(item.hole, item.hole.expression, item.hole.span), *tail))
            elif isinstance(item, Each):
                item = _unfiltered(item)
                body = self._joined_items(item.body, separator)
                whole = static_text(separator)
                if lead or tail or whole is None or not _definite(item.body):
                    if not (lead or tail) and not _definite(item.body):
                        tail = separator
                    inner = tuple(self._each_body(item.body, separator, bool(lead)))
                    part = inner if (lead or tail) else body
                    result.append(self.repeat(item.over, part, item.placed, item.growth))
                else:
                    result.append(self.repeat(item.over, body, item.placed, item.growth, whole))
            else:
                arms = tuple((*lead, *self._joined_items(arm, separator), *tail) if arm else () for arm in item.arms)
                result.append(Choice(item.guard, arms, item.placed))
        return merge(tuple(result))

    def _each_body(self, body: tuple[Item, ...], separator: Segments, lead: bool) -> list[Segment]:
        """One turn's elements, each with its own separator ahead of it or behind it."""
        result: list[Segment] = []
        for item in body:
            if isinstance(item, Pick):
                arms = tuple(tuple(self._each_body(arm, separator, lead)) for arm in item.arms)
                result.append(Choice(item.guard, arms, item.placed))
                continue
            text = self._joined_items((item,), separator)
            result.extend((*separator, *text) if lead else (*text, *separator))
        return result

    def _item_text(self, item: Elem) -> Segments:
        value = item.value
        if isinstance(value, Str):
            return value.segments
        expression = value.expression if isinstance(value, Opaque) else ""
        return self.to_segments(value, expression, value.span if isinstance(value, Opaque) else item.placed)

    # ---- lists

    def list_method(self, target: List, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A method of a list or set."""
        span = self.span_of(node, frame)
        expression = self.source_of(node, frame)
        none = Const(None, span)
        if name in {"append", "add", "appendleft", "put", "put_nowait"} and arguments.positional:
            item = Elem(arguments.positional[0], span)
            items = (item, *target.items) if name == "appendleft" else (*target.items, item)
            self.journal.set_slot(target, "items", items)
            if name == "add" and target.kind == "set" and not target.disorder and len(items) > 1:
                self.journal.set_slot(target, "disorder", self.disorder(node, frame))
            return none
        if name in {"extend", "update"} and arguments.positional:
            argument = node.args[0] if node.args else node
            added = self.items_of(arguments.positional[0], argument, frame)
            if not isinstance(argument, ast.List | ast.Tuple | ast.ListComp | ast.GeneratorExp):
                added = tuple(replace(item, placed=span) if isinstance(item, Rest) else item for item in added)
            self.journal.set_slot(target, "items", (*target.items, *added))
            if name == "update" and target.kind == "set" and not target.disorder:
                self.journal.set_slot(target, "disorder", self.disorder(node, frame))
            return none
        if name == "insert" and len(arguments.positional) >= 2:
            return self._insert(target, arguments, span)
        if name == "pop":
            return self._pop(target, arguments, expression, span)
        if name == "clear":
            self.journal.set_slot(target, "items", ())
            return none
        if name == "copy":
            return List(target.items, span, target.kind, target.disorder)
        if name == "reverse":
            self.journal.set_slot(target, "items", tuple(reversed(target.items)))
            return none
        if name == "sort":
            self.journal.set_slot(target, "disorder", ())
            plain = [self._plain(item.value) if isinstance(item, Elem) else None for item in target.items]
            if not arguments.keywords and all(value is not None for value in plain):
                try:
                    order = sorted(range(len(plain)), key=lambda index: plain[index])  # type: ignore[arg-type,return-value]
                    self.journal.set_slot(target, "items", tuple(target.items[index] for index in order))
                except TypeError:
                    pass
            return none
        if name in {"union", "intersection", "difference", "symmetric_difference"}:
            origins = merge_origins(target.disorder or self.disorder(node, frame))
            items = target.items
            for index, value in enumerate(arguments.positional):
                items = (*items, *self.items_of(value, node.args[index] if index < len(node.args) else node, frame))
            return List(items, span, "set", origins)
        if name == "remove":
            known = target.plain()
            wanted = self._plain(arguments.positional[0]) if arguments.positional else None
            if known is not None and wanted is not None:
                for index, value in enumerate(known):
                    if self._plain(value) == wanted:
                        self.journal.set_slot(target, "items", (*target.items[:index], *target.items[index + 1 :]))
                        break
            return none
        if name in {"index", "count"}:
            return self.derived(expression, span, target, *arguments.all())
        return self.derived(expression, span, target, *arguments.all(), name=identifier(expression))

    def _insert(self, target: List, arguments: Arguments, span: Span) -> Value:
        place = self._plain(arguments.positional[0])
        item = Elem(arguments.positional[1], span)
        items = target.items
        if place is not None and isinstance(place[0], int):
            at = place[0]
            if at == 0 or (at > 0 and all(isinstance(one, Elem) for one in items[:at])):
                at = min(at, len(items))
                self.journal.set_slot(target, "items", (*items[:at], item, *items[at:]))
            elif at < 0 and all(isinstance(one, Elem) for one in items[at:]):
                at = max(len(items) + at, 0)
                self.journal.set_slot(target, "items", (*items[:at], item, *items[at:]))
            else:
                self.journal.set_slot(target, "items", (*items, item))
        else:
            self.journal.set_slot(target, "items", (*items, item))
        return Const(None, span)

    def _pop(self, target: List, arguments: Arguments, expression: str, span: Span) -> Value:
        place = self._plain(arguments.positional[0]) if arguments.positional else (-1,)
        items = target.items
        if place is not None and isinstance(place[0], int) and items:
            at = place[0] if place[0] >= 0 else len(items) + place[0]
            side = items[: at + 1] if place[0] >= 0 else items[at:]
            if 0 <= at < len(items) and all(isinstance(one, Elem) for one in side):
                item = items[at]
                self.journal.set_slot(target, "items", (*items[:at], *items[at + 1 :]))
                assert isinstance(item, Elem)
                return item.value
            if any(isinstance(one, Rest) for one in items) and place[0] == 0:
                self.journal.set_slot(
                    target,
                    "items",
                    tuple(
                        replace(one, hole=replace(one.hole, growth=Growth.WINDOW)) if isinstance(one, Rest) else one
                        for one in items
                    ),
                )
        return self.derived(expression, span, target)

    # ---- dicts

    def dict_method(self, target: Dict, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A method of a dict."""
        span = self.span_of(node, frame)
        expression = self.source_of(node, frame)
        if name in {"get", "setdefault", "pop"} and arguments.positional:
            key = self._plain(arguments.positional[0])
            if key is None:
                picked = self.item(target, arguments.positional[0], node, frame)
                other = arguments.get(1, "default")
                if other is None or not isinstance(picked, Str | Template | Alt):
                    return picked  # what is not known stands for the default too
                values = [entry.value for entry in target.entries]
                values += [] if other in values else [other]
                return self.join(self.guard(node, frame, arguments.positional[0]), values, span)
            entry = next((one for one in target.entries if one.key == str(key[0])), None)
            fallback = arguments.get(1, "default")
            found: Value | None = entry.value if entry is not None else None
            if entry is not None and entry.guard is not None and fallback is not None:
                found = self.join(entry.guard, [entry.value, fallback], span)
            if found is None and target.rest is not None:
                part: Value = self.by_name(expression, span, frame, str(key[0]), target.rest.name)
                if isinstance(fallback, Str | Template):
                    optional = replace(part, optional=True) if isinstance(part, Opaque) else part
                    part = self.join(self.guard(node, frame, part), [optional, fallback], span)
                found = part
            if found is None:
                found = fallback if fallback is not None else Const(None, span)
                if name == "setdefault":
                    self.journal.set_slot(target, "entries", (*target.entries, Entry(str(key[0]), found, span)))
            if name == "pop":
                self.journal.set_slot(target, "entries", tuple(one for one in target.entries if one.key != str(key[0])))
            return found
        if name == "update":
            if arguments.positional:
                self.update(target, arguments.positional[0], node.args[0] if node.args else node, frame)
            for key_name, value in arguments.keywords.items():
                entries = {entry.key: entry for entry in target.entries}
                entries[key_name] = Entry(key_name, value, arguments.places.get(key_name, span))
                self.journal.set_slot(target, "entries", tuple(entries.values()))
            return Const(None, span)
        if name in {"items", "values", "keys"}:
            return self._view(target, name, expression, span)
        if name == "copy":
            return Dict(target.entries, span, target.rest)
        if name == "clear":
            self.journal.set_slot(target, "entries", ())
            return Const(None, span)
        return self.derived(expression, span, target, *arguments.all(), name=identifier(expression))

    def _view(self, target: Dict, name: str, expression: str, span: Span) -> Value:
        items: list[Item] = []
        for entry in target.entries:
            key = Str((Text(entry.key, entry.placed.inexact()),) if entry.key else ())
            if name == "keys":
                value: Value = key
            elif name == "values":
                value = entry.value
            else:
                value = List((Elem(key, entry.placed), Elem(entry.value, entry.placed)), entry.placed, "tuple")
            item: Item = Elem(value, entry.placed)
            items.append(Pick(entry.guard, ((item,), ()), entry.placed) if entry.guard is not None else item)
        if target.rest is not None:
            rest = replace(target.rest, origins=contained(target.rest.origins, STRONG - ORDER))
            if not items:
                return replace(rest, expression=expression, span=span)
            items.append(Rest(rest, span))
        return List(tuple(items), span)


def _less_sure(segment: Segment, step: Step) -> Segment:
    """A hole at a place that only a marker's name tells: medium confidence at most."""
    if not isinstance(segment, Hole):
        return segment
    sure = Confidence.MEDIUM
    origins = tuple(replace(one, confidence=min(one.confidence, sure)) for one in segment.origins)
    return replace(segment, origins=origins, confidence=min(segment.confidence, sure), steps=(*segment.steps, step))


def _unfiltered(item: Each) -> Each:
    """Elements that pass a condition, one by one: the condition decides how many turns there are, and each of them has its separator."""
    if len(item.body) == 1 and isinstance(item.body[0], Pick):
        full = [arm for arm in item.body[0].arms if arm]
        if len(full) == 1 and all(isinstance(one, Elem) for one in full[0]):
            return replace(item, body=full[0])
    return item


def _definite(body: tuple[Item, ...]) -> bool:
    return any(isinstance(item, Elem) for item in body)


def _bound_here(segments: Segments, place: Span, expression: str, slot: Span) -> Segments:
    """Note, on a hole that stands at a template's slot, where its value is bound."""
    result: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Hole) and segment.span == slot and len(segment.steps) < 10:
            note = f"`{expression}` is bound here" if expression else "bound here"
            segment = replace(segment, steps=(*segment.steps, Step(place, note)))
        result.append(segment)
    return tuple(result)
