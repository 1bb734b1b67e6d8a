"""Prompts for tests, spelled as they would stand in a file.

`Source` lays texts and holes out line after line in one imaginary file, so that spans are as a front end would give them.
"""

from __future__ import annotations

from promptlint.ir import (
    Block,
    BlockChoice,
    BlockKind,
    BlockRepeat,
    Choice,
    Confidence,
    Growth,
    Guard,
    Hole,
    Origin,
    Prompt,
    Reading,
    Repeat,
    Segment,
    Text,
    Volatility,
)
from promptlint.source import Span

RULES = "Answer from the manual only. Name the page that you used. "


class Source:
    """One file in which each new part takes a line of its own."""

    def __init__(self, path: str = "app.py") -> None:
        self.path = path
        self.line = 0

    def span(self, width: int = 10) -> Span:
        self.line += 1
        return Span(self.path, self.line, 1, self.line, 1 + width)

    def text(self, value: str) -> Text:
        return Text(value, self.span(len(value)))

    def hole(
        self,
        kind: str,
        volatility: Volatility = Volatility.REQUEST,
        confidence: Confidence = Confidence.HIGH,
        *,
        name: str = "",
        at_import: bool = False,
        growth: Growth = Growth.FIXED,
        tokens: int | None = None,
        block: BlockKind | None = None,
    ) -> Hole:
        span = self.span()
        expression = name or kind
        origin = Origin(kind, volatility, confidence, expression, span, at_import=at_import)
        return Hole(expression, span, volatility, confidence, (origin,), name, block, growth, tokens)

    def history(self, name: str = "messages", volatility: Volatility = Volatility.SESSION) -> Block:
        hole = self.hole("history", volatility, name=name, growth=Growth.APPEND, block=BlockKind.HISTORY)
        return Block(BlockKind.HISTORY, None, (hole,), hole.span, hole.span, name)

    def guard(self, name: str, volatility: Volatility, kind: str = "request", **more) -> Guard:
        span = self.span()
        origin = Origin(kind, volatility, Confidence.HIGH, name, span)
        return Guard(name, span, volatility, Confidence.HIGH, (origin,), **more)

    def choice(self, guard: Guard, *arms: tuple[Segment, ...]) -> Choice:
        return Choice(guard, arms, guard.span)

    def repeat(self, over: Hole, *body: Segment) -> Repeat:
        return Repeat(over, body, over.span)

    def block(self, kind: BlockKind, *segments: Segment, role: str | None = None, name: str = "") -> Block:
        span = segments[0].span if segments else self.span()
        return Block(kind, role, segments, span, span, name)

    def system(self, *segments: Segment) -> Block:
        return self.block(BlockKind.SYSTEM, *segments, role="system")

    def user(self, *segments: Segment) -> Block:
        return self.block(BlockKind.QUESTION, *segments, role="user")

    def tools(self, *segments: Segment) -> Block:
        return self.block(BlockKind.TOOLS, *segments)

    def prompt(self, *blocks: Block | BlockChoice | BlockRepeat, function: str = "ask", **more) -> Prompt:
        return Prompt(self.path, function, "openai.chat.completions.create", self.span(), blocks, **more)


def reading(*prompts: Prompt, **more) -> Reading:
    return Reading(tuple(prompts), **more)
