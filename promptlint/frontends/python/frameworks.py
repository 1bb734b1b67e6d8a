"""What frameworks put into a prompt, or take out of it, because of an argument, a class or a decorator (rules of the kinds option and hook).

The text belongs to the dependency; the user's part is the place that switches it on, and there the finding belongs. `option_edits` reads one file
and needs nothing else. `complete` adds to the prompts that the interpreter found what options put into them. Hooks are functions that the
framework calls for each request: `hook_of` tells the interpreter which ones, so that it can read their results as system text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from promptlint.catalog.sdk import Hook, Option, Sdk
from promptlint.catalog.sources import volatility
from promptlint.frontends.python.index import CallPlace, Module
from promptlint.frontends.python.nodes import walk
from promptlint.ir import (
    Block,
    BlockChoice,
    BlockKind,
    BlockNode,
    BlockRepeat,
    Choice,
    Confidence,
    Growth,
    HistoryEdit,
    Hole,
    Origin,
    Prompt,
    Repeat,
    Segment,
    Step,
    Volatility,
)
from promptlint.source import SourceFile, Span

__all__ = [
    "Switched",
    "complete",
    "hook_of",
    "imported_name",
    "option_edits",
    "switched",
    "with_conversation",
    "worth_parsing",
]

# What an option does to the conversation -> the operation of a HistoryEdit, and how sure it is that a cached prefix suffers.
_EDITS = {
    "window": ("window", Confidence.HIGH),
    "summary": ("summarise", Confidence.MEDIUM),
    "rewrite": ("set-old", Confidence.MEDIUM),
    "handoff": ("hand-off", Confidence.MEDIUM),
    "hook": ("set-old", Confidence.LOW),
}
_TOKENS = {"clock": 12, "host": 8}  # a sentence with a date; with a place


@dataclass(frozen=True, slots=True)
class Switched:
    """An option that a call switches on. `span` is the argument, or the call where the call itself does; `start` the call's first place."""

    option: Option
    span: Span
    start: tuple[str, int, int]
    expression: str
    confidence: Confidence
    function: str
    day: bool = False  # a format in another argument prints no more than the date
    given: tuple[str, ...] = ()  # the call's keyword arguments


def switched(module: Module, sdk: Sdk) -> tuple[Switched, ...]:
    """Every option that the file's calls switch on, in source order."""
    names = _option_names(sdk)
    places = [place for name in module.calls if imported_name(module, name) in names for place in module.calls[name]]
    if not places:
        return ()
    imports = _imports(module.tree)
    found = (one for place in places for one in _switched(place, module.source, sdk, imports))
    return tuple(sorted(found, key=lambda one: one.span))


def imported_name(module: Module, name: str) -> str:
    """The name that a local name has where it comes from: `Agent` of `from agents import Agent as Helper`."""
    for statement in module.bindings.get(name, ()):
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                if alias.asname == name:
                    return alias.name
    return name


@lru_cache(maxsize=8)
def _names_of(calls: tuple[str, ...]) -> frozenset[str]:
    return frozenset(call.rsplit(".", 1)[-1] for call in calls)


def _option_names(sdk: Sdk) -> frozenset[str]:
    return _names_of(tuple(sdk.options))


def worth_parsing(sdk: Sdk) -> re.Pattern[bytes]:
    """Bytes one of which a file holds that switches an option on or edits a request: the option's argument, else the call's telling name."""
    marks = set()
    for options in sdk.options.values():
        for option in options:
            for call in option.call:
                parts = call.split(".")
                telling = parts[-2] if parts[-1].islower() and parts[-2][:1].isupper() else parts[-1]
                marks.add(f"{option.argument}=" if option.argument else telling)
    for path, sink in sdk.sinks.items():
        if sink.history == "behind":
            marks.add(f".{path.rsplit('.', 1)[-1]}(")
    return re.compile("|".join(sorted(re.escape(mark) for mark in marks)).encode())


def _switched(place: CallPlace, source: SourceFile, sdk: Sdk, imports: Mapping[str, str]) -> Iterator[Switched]:
    node = place.node
    for option in sdk.options.get(_resolved(node.func, imports), ()):
        found = _on(node, option)
        if found is None:
            continue
        where, confidence = found
        span, start = _span(where, source), _span(node, source)
        yield Switched(
            option,
            span,
            (start.path, start.line, start.column),
            " ".join(source.slice(span).split())[:200],
            confidence,
            place.function.qualname if place.function is not None else "<module>",
            _prints_a_day(node, option),
            tuple(keyword.arg for keyword in node.keywords if keyword.arg),
        )


def _imports(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted name, for absolute imports anywhere in the file."""
    result: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    result[alias.asname] = alias.name
                else:
                    result[alias.name.split(".")[0]] = alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                result[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return result


def _resolved(node: ast.expr, imports: Mapping[str, str]) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in imports:
        return ""
    return ".".join([imports[node.id], *reversed(parts)])


def _on(call: ast.Call, option: Option) -> tuple[ast.AST, Confidence] | None:
    """The place that switches an option on and how sure that is; None when it is off."""
    keywords = {keyword.arg: keyword for keyword in call.keywords if keyword.arg}
    for name, literal in option.unless:
        given = keywords.get(name)
        if given is not None and isinstance(given.value, ast.Constant) and given.value.value == literal:
            return None
    if not option.argument:
        return None if option.source == "window" and _one_message(call) else (call, Confidence.HIGH)
    keyword = keywords.get(option.argument)
    if keyword is None:
        return None
    value = keyword.value
    if isinstance(value, ast.Constant):
        if option.value == "any":
            return (keyword, Confidence.HIGH) if value.value else None
        wanted = {"true": True, "false": False}.get(option.value, option.value)
        return (keyword, Confidence.HIGH) if value.value == wanted else None
    if isinstance(value, ast.List | ast.Tuple | ast.Dict) and not ast.unparse(value).strip("[](){}"):
        return None
    return keyword, Confidence.HIGH if option.value == "any" else Confidence.MEDIUM


def _one_message(call: ast.Call) -> bool:
    """Whether what a call cuts is a list of one message that is made on the spot: a text that has to fit, and no conversation."""
    given = call.args[0] if call.args else None
    return isinstance(given, ast.List) and len(given.elts) == 1 and not isinstance(given.elts[0], ast.Starred)


def _prints_a_day(call: ast.Call, option: Option) -> bool:
    """Whether the argument with the clock's format is a literal that prints no more than the date."""
    given = next((keyword.value for keyword in call.keywords if option.format and keyword.arg == option.format), None)
    if not isinstance(given, ast.Constant) or not isinstance(given.value, str):
        return False
    codes = {given.value[at + 1 : at + 2] for at, char in enumerate(given.value) if char == "%"}
    return bool(codes) and codes <= set("YymdbBaAjeUWGVuwDxF-%C")


def _span(node: ast.AST, source: SourceFile) -> Span:
    line, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)

    def column(at: int, offset: int) -> int:
        text = source.line_text(at)
        return offset + 1 if text.isascii() else len(text.encode()[:offset].decode("utf-8", "ignore")) + 1

    return Span(
        source.path,
        line,
        column(line, getattr(node, "col_offset", 0)),
        end,
        column(end, getattr(node, "end_col_offset", 0)),
    )


# ---- hooks


def hook_of(sdk: Sdk, name: str, bases: Iterable[str], decorators: Iterable[str]) -> Hook | None:
    """The hook that a function of the user's is: by its decorators' dotted names, or by its name in a class with these library bases.

    A decorator that is a method of an instance has the name "TYPE.method".
    """
    bases, decorators = set(bases), set(decorators)
    for hook in sdk.hooks:
        if "@" in hook.method:
            if decorators.intersection(hook.base):
                return hook
        elif any(base.startswith("@") for base in hook.base):
            if decorators.intersection(f"{base[1:]}.{method}" for base in hook.base for method in hook.method):
                return hook
        elif name in hook.method and bases.intersection(hook.base):
            return hook
    return None


# ---- options that edit the conversation


def option_edits(found: Iterable[Switched]) -> Iterator[HistoryEdit]:
    """The edits of conversations that options make."""
    for one in found:
        known = _EDITS.get(one.option.source)
        if known is None:
            continue
        op, confidence = known
        yield HistoryEdit(
            op,
            one.span,
            "the conversation",
            min(confidence, one.confidence),
            one.expression,
            steps=(Step(one.span, one.option.note),) if one.option.note else (),
            function=one.function,
        )


# ---- options that put something into the prompt


def complete(prompts: Iterable[Prompt], found: Iterable[Switched], sdk: Sdk) -> list[Prompt]:
    """The prompts with what options put into them: a hole at the place where the framework writes it, and the conversation behind.

    A prompt and an option belong together when they are the same call. An agent that is given nothing else has no prompt yet: it gets one.
    """
    by_call: dict[tuple[str, int, int], list[Switched]] = {}
    for one in found:
        if one.option.source not in _EDITS:
            by_call.setdefault(one.start, []).append(one)
    behind = {
        f"{sink.package}.{call.split('.', 1)[-1]}" for call, sink in sdk.sinks.items() if sink.history == "behind"
    }
    result: list[Prompt] = []
    for prompt in prompts:
        if prompt.sink in behind:
            prompt = replace(prompt, blocks=with_conversation(prompt.blocks, prompt.span), in_loop=True)
        place = (prompt.span.path, prompt.span.line, prompt.span.column)
        options = by_call.get(place)
        if options is None or prompt.origin != "sink":
            result.append(prompt)
            continue
        for one in options:
            prompt = _with_option(prompt, one, sdk)
        result.append(prompt)
    return result


def _with_option(prompt: Prompt, one: Switched, sdk: Sdk) -> Prompt:
    option = one.option
    level = Volatility.DAY if one.day else volatility(option.volatility)
    kind = BlockKind(option.block)
    origin = Origin(
        option.source,
        level,
        one.confidence,
        one.expression,
        one.span,
        (Step(one.span, option.note),) if option.note else (),
    )
    hole = Hole(
        one.expression, one.span, level, one.confidence, (origin,), option.argument, tokens=_TOKENS.get(option.source)
    )
    block = Block(kind, "system" if kind is BlockKind.SYSTEM else None, (hole,), one.span, one.span)
    settled = tuple(_fixed_at_construction(node) for node in prompt.blocks)
    at = _place(settled, one, prompt, sdk)
    blocks = (*settled[:at], block, *settled[at:])
    if kind is BlockKind.SYSTEM:
        blocks = with_conversation(blocks, prompt.span)
    return replace(prompt, blocks=blocks, in_loop=True)


def _place(blocks: tuple[BlockNode, ...], one: Switched, prompt: Prompt, sdk: Sdk) -> int:
    """Index at which an option's block stands: at the start or end of its kind, or behind the text of a named argument."""
    option = one.option
    kind = BlockKind(option.block)
    own = [index for index, node in enumerate(blocks) if isinstance(node, Block) and node.kind is kind]
    if not own:
        return len(blocks)
    if option.position == "start":
        return own[0]
    sink = sdk.sinks.get(prompt.sink)
    if option.position == "end" or sink is None:
        return own[-1] + 1
    # The interpreter gives one block for each argument that is given, in the order of the rows, which is the framework's.
    ahead = 0
    for row in sink.args:
        if row.block == option.block and row.name in one.given:
            ahead += 1
        if row.name == option.position:
            break
    return own[min(ahead, len(own)) - 1] + 1 if ahead else own[0]


def with_conversation(blocks: tuple[BlockNode, ...], span: Span) -> tuple[BlockNode, ...]:
    """The blocks with the conversation behind them, unless they hold one."""
    if any(
        isinstance(node, BlockRepeat) or (isinstance(node, Block) and node.kind is BlockKind.HISTORY) for node in blocks
    ):
        return blocks
    return (*blocks, conversation(span))


def conversation(span: Span) -> Block:
    """The conversation that an agent or a framework sends behind its system text; it only grows."""
    origin = Origin("history", Volatility.SESSION, Confidence.MEDIUM, "the conversation", span)
    hole = Hole(
        "the conversation",
        span,
        Volatility.SESSION,
        Confidence.MEDIUM,
        (origin,),
        "history",
        BlockKind.HISTORY,
        Growth.APPEND,
    )
    return Block(BlockKind.HISTORY, None, (hole,), span, span, growth=Growth.APPEND)


def _fixed_at_construction(node: BlockNode) -> BlockNode:
    """What was given to an agent's constructor stays the same for its conversation."""
    if isinstance(node, Block):
        return replace(node, segments=tuple(_fixed(segment) for segment in node.segments))
    if isinstance(node, BlockChoice):
        return replace(node, arms=tuple(tuple(_fixed_at_construction(inner) for inner in arm) for arm in node.arms))
    return (
        replace(node, body=tuple(_fixed_at_construction(inner) for inner in node.body))
        if isinstance(node, BlockRepeat)
        else node
    )


def _fixed(segment: Segment) -> Segment:
    if isinstance(segment, Hole) and segment.volatility > Volatility.SESSION:
        origins = tuple(
            replace(origin, volatility=min(origin.volatility, Volatility.SESSION)) for origin in segment.origins
        )
        return replace(segment, volatility=Volatility.SESSION, origins=origins)
    if isinstance(segment, Choice):
        return replace(segment, arms=tuple(tuple(_fixed(inner) for inner in arm) for arm in segment.arms))
    if isinstance(segment, Repeat):
        over = _fixed(segment.over)
        assert isinstance(over, Hole)
        return replace(segment, over=over, body=tuple(_fixed(inner) for inner in segment.body))
    return segment
