"""The radix tree of the prompts as an icicle, and as a table of the same branches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from promptlint.caches.shares import Branch
from promptlint.report.html.data import share
from promptlint.report.html.markup import Markup, join, tag
from promptlint.report.html.page import details, table
from promptlint.report.words import count

__all__ = ["icicle"]

ROW = 40  # pixels
STEPS = 10  # shades between no hit and all hits


@dataclass(frozen=True, slots=True)
class _Cell:
    """A branch with its place: number in the table, level, and the interval of the width that is its own."""

    branch: Branch
    number: str
    level: int
    left: float
    width: float


def icicle(root: Branch, unit: str) -> Markup:
    """The tree: each branch is as wide as its tokens times its requests, below the branch that it continues, and coloured by its share of hits."""
    cells = list(_cells(root))
    depth = 1 + max((cell.level for cell in cells), default=0)
    drawing = tag(
        "svg",
        [_drawn(cell) for cell in cells],
        class_="icicle", width="100%", height=depth * ROW, role="group",
        aria_label=f"Radix tree of {root.requests:,} prompts; the table below lists its branches",
    )  # fmt: skip
    rows = [
        (
            join((cell.number, " ", _name(cell))),
            f"{cell.branch.begin:,}",
            f"{cell.branch.tokens:,}" if not cell.branch.merged else "-",
            f"{cell.branch.requests:,}",
            f"{cell.branch.passed_tokens:,}",
            f"{cell.branch.cached_tokens:,}",
            share(cell.branch.hit_rate) if cell.branch.passed_tokens else "-",
        )
        for cell in cells
    ]
    merged = sum(cell.branch.merged for cell in cells)
    return join(
        (
            _scale(),
            tag(
                "p",
                f"{merged:,} of {merged + sum(not cell.branch.merged for cell in cells):,} branches are too narrow or too deep to be drawn; "
                "each dashed box is the sum of those that would stand there, so nothing is missing from the sums.",
                class_="note",
            )
            if merged
            else None,
            drawing,
            details(
                f"The same as a table: {count(len(cells), 'branch', 'branches')}",
                table(
                    f"Branches of the radix tree, the widest first; {unit}",
                    ("branch", "begins at", "tokens", "requests", "tokens × requests", "cached", "hits"),
                    rows,
                    numbers=range(1, 7),
                    ids=[_id(cell) for cell in cells],
                ),
            ),
        )
    )


def _cells(root: Branch) -> Iterator[_Cell]:
    whole = root.prompt_tokens or 1
    waiting = [_Cell(root, "", -1, 0.0, 100.0)]
    while waiting:
        cell = waiting.pop()
        if cell.level >= 0:
            yield cell
        left = cell.left
        below = []
        for number, child in enumerate(cell.branch.children, 1):
            width = 100 * child.prompt_tokens / whole
            name = f"{cell.number}.{number}" if cell.number else str(number)
            below.append(_Cell(child, name, cell.level + 1, left, width))
            left += width
        waiting += reversed(below)


def _name(cell: _Cell) -> str:
    branch = cell.branch
    if branch.merged:
        return f"{count(branch.merged, 'other branch', 'other branches')}, each too narrow to be shown"
    labels = ", ".join(name for _, name in branch.labels)
    known = labels + (": " if labels and branch.name else "") + branch.name
    if known:
        return known
    return f"shared by {branch.requests:,} requests" if branch.requests > 1 else "one request"


def _drawn(cell: _Cell) -> Markup:
    branch = cell.branch
    name = _name(cell)
    rate = f", {100 * branch.hit_rate:.0f} % hits" if branch.passed_tokens else ""
    size = f"{branch.passed_tokens:,} in all" if branch.merged else f"{branch.tokens:,} × {branch.requests:,}"
    words = f"{cell.number} {name}: {count(branch.tokens, 'token')} × {count(branch.requests, 'request')}{rate}"
    if branch.merged:
        words = f"{cell.number} {name}: {branch.passed_tokens:,} tokens of {count(branch.requests, 'request')}{rate}"
    kind = f"h{round(branch.hit_rate * STEPS)}" if branch.passed_tokens else "none"
    return tag(
        "a",
        tag(
            "svg",
            tag("title", words),
            tag("rect", class_=f"cell {kind}" + (" other" if branch.merged else ""), width="100%", height=ROW - 1),
            _lines(name, f"{size}{rate}", rate.removeprefix(", ").removesuffix(" hits"), kind, cell.width),
            x=f"{cell.left:.3f}%", y=cell.level * ROW, width=f"{cell.width:.3f}%", height=ROW - 1,
        ),
        href=f"#{_id(cell)}", aria_label=words,
    )  # fmt: skip


def _lines(name: str, size: str, rate: str, kind: str, width: float) -> Markup | None:
    """Name and size, where there is room for a few letters; the window clips the rest."""
    if width < 1.5:
        return None
    letters = max(3, round(width * 2))  # more would be clipped on the widest page
    narrow = " narrow" if width < 9 else ""  # left out on a telephone, where it would be a letter or two
    return join(
        (
            tag("text", name[:letters], x=5, y=16, class_=f"on {kind}{narrow}"),
            tag("text", (size if width > 9 else rate)[:letters], x=5, y=31, class_=f"on small {kind}{narrow}"),
        )
    )


def _id(cell: _Cell) -> str:
    return f"branch-{cell.number}"


def _scale() -> Markup:
    steps = [tag("rect", class_=f"h{step}", x=step * 16, width=16, height=12) for step in range(STEPS + 1)]
    return tag(
        "p",
        "Share of hits: none ",
        tag("svg", steps, width=16 * (STEPS + 1), height=12, role="img", aria_label="from none to all"),
        " all. Width: prompt tokens of the requests that go through (tokens × requests); below a branch stands what continues it.",
        class_="note scale-note",
    )
