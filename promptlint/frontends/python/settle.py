"""From what single evaluations saw to the prompts that are reported: each once, at the place where its text is put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from promptlint.frontends.python.index import FunctionInfo, Module
from promptlint.frontends.python.sinks import ELSEWHERE, MARKER, Draft
from promptlint.ir import (
    Block,
    BlockChoice,
    BlockNode,
    Choice,
    Confidence,
    Hole,
    Prompt,
    Repeat,
    Segment,
    Text,
    blocks_of,
    holes_of,
    text_of,
)
from promptlint.source import Span

__all__ = ["MAX_VARIANTS", "Sight", "settle", "sight"]

_Place: TypeAlias = tuple[str, int, int]
_Slot: TypeAlias = tuple[_Place | None, _Place | None]  # the texts of a template around it
_MARKING = " {}[]<>%$@_#"  # characters around the name of a marker
MAX_VARIANTS = 12  # prompts of one sink that differ by caller


@dataclass(frozen=True, slots=True)
class Sight:
    """A draft without the trees that it was found in, so that it can be sent between processes.

    `placed` is the prompt at the innermost function that puts text or messages together, `depth` how many functions it was reached through.
    """

    placed: Prompt
    at: tuple[Span, str]  # the sink
    origin: str
    parameters: bool
    depth: int


def sight(draft: Draft) -> Sight:
    """What settling needs of a draft."""
    prompt = draft.prompt
    placed = _placed(draft) if prompt.origin == "sink" else prompt
    return Sight(placed, (prompt.span, prompt.sink), prompt.origin, draft.parameters, len(draft.chain))


def settle(sights: Iterable[Sight]) -> list[Prompt]:
    """Each prompt once: at the place where its text is put together, in the fullest form that was seen."""
    sights = list(sights)
    groups: dict[tuple[Span, str], list[Sight]] = {}
    for one in sights:
        if one.origin == "sink":
            groups.setdefault(one.at, []).append(one)
    result: list[Prompt] = []
    covered: set[_Place] = set()
    known: set[_Place] = set()
    for group in groups.values():
        kept = [one for one in group if not one.parameters] or group
        longer = [one for one in group if one.depth > 1]
        if longer and any(one.parameters and one.depth == 1 for one in group):
            kept = [one for one in group if not (one.parameters and one.depth == 1)]
        seen: set[tuple[BlockNode, ...]] = set()
        for one in sorted(kept, key=lambda one: one.depth):
            if one.placed.blocks in seen or len(seen) >= MAX_VARIANTS:
                continue
            seen.add(one.placed.blocks)
            result.append(one.placed)
            covered.update(_places(one.placed.blocks))
            known |= _surely_filled(one.placed)
    for one in sights:
        if one.origin == ELSEWHERE:
            covered |= _places(one.placed.blocks)
    markers = _markers(sights)
    for kind in ("messages", "template"):
        ordered = [(_places(one.placed.blocks), one.placed) for one in sights if one.origin == kind]
        # A template on its own comes last: where a function was seen to fill its slots with what is known, their names say nothing more.
        for places, prompt in sorted(ordered, key=lambda row: (_alone(row[1]), -len(row[0]))):
            told = _places(prompt.blocks, holes=False) if _alone(prompt) else set()
            if places and not places <= covered and not (told and told <= known):
                covered |= places
                if told:
                    prompt = _doubt_filled_slots(prompt, told, result)
                result.append(_filled(prompt, markers) if markers else prompt)
            known |= _surely_filled(prompt)
    return result


def _doubt_filled_slots(prompt: Prompt, told: set[_Place], others: Iterable[Prompt]) -> Prompt:
    """A template on its own, with low confidence for the slots of which others show what they are filled with: that counts, and not their name."""
    filled: dict[_Slot, bool] = {}
    for other in others:
        for block in blocks_of(other.blocks):
            for slot, is_known in _fillings(block.segments, told):
                filled[slot] = is_known and filled.get(slot, True)
    if not any(filled.values()):
        return prompt

    def doubt(block: Block) -> Block:
        found: list[Segment] = []
        texts = [_place(segment) for segment in block.segments if isinstance(segment, Text) and segment.value.strip()]
        before: _Place | None = None
        for segment in block.segments:
            if isinstance(segment, Text) and segment.value.strip():
                before = texts.pop(0)
            elif isinstance(segment, Hole) and filled.get((before, texts[0] if texts else None)):
                segment = replace(segment, confidence=Confidence.LOW)
            found.append(segment)
        return replace(block, segments=tuple(found))

    blocks = tuple(doubt(node) if isinstance(node, Block) else node for node in prompt.blocks)
    return replace(prompt, blocks=blocks)


def _fillings(segments: tuple[Segment, ...], told: set[_Place]) -> Iterator[tuple[_Slot, bool]]:
    """What stands between the texts of a template, each with whether all of it is known: a value with at least a telling name, or text."""
    before: _Place | None = None
    seen = is_known = False
    for segment in segments:
        if isinstance(segment, Text):
            if _place(segment) in told:
                if before is not None or seen:
                    yield (before, _place(segment)), seen and is_known
                before, seen, is_known = _place(segment), False, True
                continue
            seen = seen or bool(segment.value.strip())
        else:
            nested = (segment,)
            seen = True
            is_known = (
                is_known
                and all(hole.confidence > Confidence.LOW for hole in holes_of(nested))
                and not any(_place(text) in told for text in text_of(nested))
            )
    if before is not None:
        yield (before, None), seen and is_known


def _markers(sights: Iterable[Sight]) -> dict[str, Hole]:
    """What fills the markers of the project's templates, by name; of several values the one that changes most often."""
    found: dict[str, Hole] = {}
    for one in sights:
        if one.origin != MARKER:
            continue
        name = one.placed.sink.strip(_MARKING)
        (hole,) = holes_of(next(blocks_of(one.placed.blocks)).segments)
        if name not in found or hole.volatility > found[name].volatility:
            found[name] = hole
    return found


def _filled(prompt: Prompt, markers: Mapping[str, Hole]) -> Prompt:
    """A template of which only the names of its slots are known, with the clocks that fill its markers elsewhere."""

    def fill(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        found: list[Segment] = []
        for segment in segments:
            if isinstance(segment, Hole) and any(each.kind == "clock" for each in segment.origins):
                value = markers.get(segment.expression.strip(_MARKING))
                if value is not None:
                    segment = replace(segment, origins=value.origins, volatility=value.volatility)
            elif isinstance(segment, Choice):
                segment = replace(segment, arms=tuple(fill(arm) for arm in segment.arms))
            elif isinstance(segment, Repeat):
                segment = replace(segment, body=fill(segment.body))
            found.append(segment)
        return tuple(found)

    def node(one: BlockNode) -> BlockNode:
        if isinstance(one, Block):
            return replace(one, segments=fill(one.segments))
        if isinstance(one, BlockChoice):
            return replace(one, arms=tuple(tuple(map(node, arm)) for arm in one.arms))
        return replace(one, body=tuple(map(node, one.body)))

    return replace(prompt, blocks=tuple(map(node, prompt.blocks)))


def _alone(prompt: Prompt) -> bool:
    """Whether a prompt is a template as a module states it, with open slots."""
    return prompt.origin == "template" and prompt.function == "<module>"


def _surely_filled(prompt: Prompt) -> set[_Place]:
    """Where those blocks of a prompt stand that hold no value of which nothing is known, not even by its name."""
    return {
        place
        for block in blocks_of(prompt.blocks)
        if all(hole.confidence > Confidence.LOW for hole in holes_of(block.segments))
        for place in _places((block,))
    }


def _placed(draft: Draft) -> Prompt:
    """The prompt at the innermost function that puts text or messages together."""
    prompt = draft.prompt
    if len(draft.chain) == 1:
        return prompt
    spans = [text.span for block in blocks_of(prompt.blocks) for text in text_of(block.segments)]
    spans += [block.placed for block in blocks_of(prompt.blocks) if block.placed is not None]
    for module, function, call in reversed(draft.chain):
        if function is None:
            continue
        first, last = function.lines
        if any(span.path == module.source.path and first <= span.line <= last for span in spans) and not _only_passes(
            prompt, module, function
        ):
            return replace(prompt, path=module.source.path, function=function.qualname, span=call)
    return prompt


def _only_passes(prompt: Prompt, module: Module, function: FunctionInfo) -> bool:
    """Whether nothing but the sink call's own arguments stands in a function."""
    first, last = function.lines
    for block in blocks_of(prompt.blocks):
        for text in text_of(block.segments):
            if text.span.path == module.source.path and first <= text.span.line <= last and text.value.strip():
                return False
        if (
            block.placed is not None
            and block.placed.path == module.source.path
            and first <= block.placed.line <= last
            and block.placed.line != prompt.span.line
        ):
            return False
    return True


def _place(text: Text) -> _Place:
    return text.span.path, text.span.line, text.span.column


def _places(nodes: tuple[BlockNode, ...], *, holes: bool = True) -> set[_Place]:
    """Where the text and the holes of a prompt stand."""
    result: set[_Place] = set()

    def add(segments: tuple[Segment, ...]) -> None:
        for segment in segments:
            if isinstance(segment, Text):
                if segment.value.strip():
                    result.add((segment.span.path, segment.span.line, segment.span.column))
            elif isinstance(segment, Hole):
                if holes:
                    result.add((segment.span.path, segment.span.line, segment.span.column))
            elif isinstance(segment, Choice):
                for arm in segment.arms:
                    add(arm)
            elif isinstance(segment, Repeat):
                add(segment.body)

    for block in blocks_of(nodes):
        add(block.segments)
    return result
