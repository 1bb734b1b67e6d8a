"""A value moved behind the fixed text of its literal, template or file: the text that stays the same comes first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from promptlint.finding import Edit, Finding, Fix
from promptlint.fixes.canvas import Canvas
from promptlint.fixes.canvases import canvas_at
from promptlint.fixes.code import Desk
from promptlint.fixes.prose import Move, Prose, plan, to_the_end

__all__ = ["moved_behind", "prose_of"]

_CONSTANT = re.compile(r"\{\s*(?:[A-Za-z_]\w*\.)*[A-Z][A-Z0-9_]+\s*\}")
"""A slot for a constant, which is fixed text."""
_POSITIONAL = re.compile(r"\{\s*(?:[!:.\[].*)?\}|%[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[a-zA-Z]", re.DOTALL)
_EFFECT = re.compile(r":=|\bawait\b|\bnext\s*\(|\.pop\s*\(")
"""Expressions that change what those behind them see."""


def moved_behind(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """The value with its label or its sentence moved to the end of the text around it."""
    places = [finding.span, *(note.span for note in finding.trace)]
    for span in dict.fromkeys(places):
        canvas = canvas_at(desk, span)
        if canvas is None:
            continue
        start, end = (
            desk.sources[span.path].offset(span.line, span.column),
            desk.sources[span.path].offset(span.end_line, span.end_column),
        )
        for edits in dict.fromkeys(move_in(canvas, start, end, last=last) for last in (False, True)):
            if edits:
                yield Fix("move the value behind the text that stays the same", "display-only", edits)
        return


def move_in(canvas: Canvas, start: int, end: int, *, last: bool = False) -> tuple[Edit, ...]:
    """Edits that move the slot between two source offsets to the end of its text; none when that is not to be done.

    `last`: to the very end, also behind what seems to be the question, because it may be fixed text too.
    """
    found = canvas.text_range(start, end)
    if found is None:
        return ()
    slots = [each for each in canvas.slots if each[0] < found[1] and found[0] < each[1]]
    low, high = (min(slots)[0], max(slots)[1]) if slots else found
    if any(begin < high and low < end for begin, end in canvas.fixed):
        return ()
    prose = prose_of(canvas, found)
    move = plan(prose, low, high)
    if move is not None and last:
        move = to_the_end(prose, move)
    if (
        move is None
        or _changes_arguments(canvas, move)
        or _changes_effects(canvas, move)
        or any(low < move.end and move.start < high for low, high in canvas.fixed)
    ):
        return ()
    return _edits(canvas, move)


def prose_of(canvas: Canvas, found: tuple[int, int]) -> Prose:
    """The text with the slots whose values change; `found` is one of them."""
    values = [each for each in canvas.slots if not _CONSTANT.fullmatch(canvas.text[slice(*each)])]
    return Prose(canvas.text, values or [found], [*canvas.sections, *canvas.fixed])


def _changes_arguments(canvas: Canvas, move: Move) -> bool:
    """Whether values that are filled in by their position would change places."""

    def positional(start: int, end: int) -> bool:
        return any(
            _POSITIONAL.fullmatch(canvas.text[low:high]) for low, high in canvas.slots if start <= low and high <= end
        )

    return positional(move.start, move.end) and positional(move.end, move.goal)


def _changes_effects(canvas: Canvas, move: Move) -> bool:
    """Whether a value that has an effect (`{(n := ...)}`, `{items.pop()}`) would pass another value, or be passed by it."""

    def within(start: int, end: int) -> list[str]:
        return [canvas.text[low:high] for low, high in canvas.slots if start <= low and high <= end]

    moved, passed = within(move.start, move.end), within(move.end, move.goal)
    return bool(moved and passed) and any(map(_EFFECT.search, (*moved, *passed)))


def _edits(canvas: Canvas, move: Move) -> tuple[Edit, ...]:
    text = canvas.text
    start, end = move.start, move.end
    lines = "\n" in text.strip("\n")
    bare_end = end - 1 if move.whole_lines and text[start:end].endswith("\n") else end
    paragraph = (
        move.whole_lines and (not text[:start].strip() or text[:start].endswith("\n\n")) and text[end : end + 1] == "\n"
    )
    gone = (start, end)
    if paragraph:
        gone = (start, end + 1)
    elif not move.whole_lines:
        gone = (
            (start, end + 1)
            if text[end : end + 1] == " "
            else (start - 1, end)
            if text[start - 1 : start] == " "
            else (start, end)
        )
    pieces: list[tuple[int, int] | str] = []
    if not move.whole_lines and lines:
        line = text.rfind("\n", 0, start) + 1
        blanks = len(text[line:]) - len(text[line:].lstrip(" \t"))
        if blanks and line + blanks <= start:
            pieces.append((line, line + blanks))
    pieces.append((start, bare_end))
    parted = "\n\n" in text.strip()
    gap = ("\n\n" if parted else "\n") if lines else " "
    if not text[move.goal :].strip():
        at = len(text.rstrip())
        if not text[end:at].strip():
            return ()
        if lines and "\n" in text[at:]:
            at = text.index("\n", at)  # blanks stay at the end of their line
        pieces.insert(0, gap)
    else:
        at = move.goal
        inline = at > 0 and text[at - 1] != "\n"
        pieces = [" ", (start, bare_end)] if inline else [*pieces, "\n\n" if paragraph else "\n"]
        if not inline and parted and not _free(text, at, canvas):
            pieces.insert(0, "\n")
    removed = canvas.removed(*gone)
    inserted = canvas.inserted(at, pieces, gone)
    if inserted is None and text.endswith("\n") and not text[move.goal :].strip():
        # A literal of another kind ends with the last line end: a new one goes behind it.
        inserted = canvas.inserted(len(text), [gap[1:], *pieces[1:], "\n"], gone)
    if inserted is None and lines:
        inserted = (
            canvas.inserted(at, [" ", (start, bare_end)], gone) if pieces[0] == gap and not move.whole_lines else None
        )
    if removed is None or inserted is None:
        return ()
    edits = (*removed, inserted)
    return (*canvas.unprefixed(gone, edits), *edits)


def _free(text: str, at: int, canvas: Canvas) -> bool:
    """Whether the line above a line start is empty, or holds a value itself."""
    above = text[text.rfind("\n", 0, at - 1) + 1 : at]
    begin = at - len(above)
    return not above.strip() or any(begin <= low < at for low, _ in canvas.slots)
