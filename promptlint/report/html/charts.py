"""Drawings in SVG: the bar of a prompt, shares before and after, hit rate against capacity.

Horizontal places are per cent of the drawing's width and heights are pixels, so letters keep their size on every screen. A nested `svg` is a window
that clips what does not fit into it. Each drawing says in words what it shows; the numbers stand in a table beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from promptlint.report.bar import LEVELS
from promptlint.report.html.markup import Markup, tag
from promptlint.report.words import count, tokens

__all__ = ["capacity_curve", "legend", "prompt_bar", "shares"]

BAR = 34  # pixels


def _pc(value: float) -> str:
    return f"{round(value, 3):g}%"


def prompt_bar(blocks: Sequence[Any], prompt_tokens: int, prefix: int, label: str) -> Markup:
    """A prompt as a bar: a block is as wide as its tokens and coloured by its volatility, a line marks where the cacheable prefix ends.

    `blocks` are the rows of the JSON report, in rendered order.
    """
    whole = sum(block["tokens"] for block in blocks)
    if not whole:
        return tag("p", "No block of this prompt could be measured.", class_="note")
    shown: list[Markup] = []
    begin = 0
    for block in blocks:
        if not block["tokens"]:
            continue
        words = f"{block['kind']} {block['name']}".strip()
        width = block["tokens"] / whole
        shown.append(
            tag(
                "svg",
                tag("title", f"{words}: {block['volatility']}, {count(block['tokens'], 'token')}"),
                tag("rect", class_=f"block v-{block['volatility']}", width="100%", height=BAR),
                _label(block, width, 16 if 0 <= prefix - begin < 0.02 * whole else 7),
                x=_pc(100 * begin / whole),
                y=14,
                width=_pc(100 * width),
                height=BAR,
            )
        )
        begin += block["tokens"]
    at = 100 * min(prefix, whole) / whole
    anchor = "end" if at > 50 else "start"
    words = f"cacheable prefix ends: {tokens(prefix)} of {tokens(prompt_tokens)}"
    mark = [
        tag("line", x1=_pc(at), x2=_pc(at), y1=0, y2=BAR + 20, class_="mark"),
        tag("text", words, x=_pc(at), dx=-6 if at > 50 else 6, y=10, text_anchor=anchor, class_="mark"),
    ]
    return tag(
        "svg", shown, mark, class_="bar", width="100%", height=BAR + 22, role="img",
        aria_label=f"{label}: {begin:,} tokens in {count(len(shown), 'block')}; the cacheable prefix ends after {tokens(prefix)}",
    )  # fmt: skip


def _label(block: Any, width: float, x: int) -> Markup | None:
    """The kind of a block, `x` pixels within it, where a page of usual width has room for it; on a telephone only in wide blocks."""
    if width < (len(block["kind"]) * 7 + 14) / 1000:
        return None
    narrow = " narrow" if width < 0.25 else ""
    return tag("text", block["kind"], x=x, y=22, class_=f"on v-{block['volatility']}{narrow}")


def legend() -> Markup:
    """What the colours of the bars mean, longest-lived first."""
    swatch = [
        tag("li", tag("svg", tag("rect", class_=f"v-{level}", width=12, height=12), width=12, height=12, aria_hidden="true"), " ", level)
        for level in LEVELS
    ]  # fmt: skip
    return tag(
        "div",
        tag("p", "Volatility, from what lives longest to what is new in every request:"),
        tag("ol", swatch),
        class_="legend",
    )


def shares(rows: Sequence[tuple[str, float, Markup, str]], label: str) -> Markup:
    """Bars of shares, 0 to 1, one below the other: (what, share, number, kind). `kind` is `now`, `then`, `seen` (observed) or `bound`."""
    drawn = [
        tag(
            "div",
            tag("dt", what),
            tag(
                "dd",
                tag(
                    "svg",
                    tag("rect", class_="track", width="100%", height=12, rx=3),
                    tag("rect", class_=f"fill {kind}", width=_pc(100 * min(max(value, 0.0), 1.0)), height=12, rx=3),
                    width="100%", height=12, aria_hidden="true",
                ),
                number,
            ),
        )
        for what, value, number, kind in rows
    ]  # fmt: skip
    return tag("dl", drawn, class_="shares", aria_label=label)


HEIGHT, LEFT, BOTTOM = 230, 44, 26  # pixels of the curve's drawing


def capacity_curve(points: Sequence[Any], capacity: int | None, hit_rate: float) -> Markup:
    """Hit rate against capacity, the latter on a logarithmic scale; memory without limit stands at the right edge.

    `points` are the rows of the JSON report, ascending, the last one unlimited.
    """
    sized = [(point["capacity_tokens"], point["hit_rate"]) for point in points if point["capacity_tokens"]]
    endless = next((point["hit_rate"] for point in points if point["capacity_tokens"] is None), None)
    low, high = math.log(sized[0][0]), math.log(sized[-1][0])

    def across(size: float) -> float:
        return 2 + 72 * min(max((math.log(size) - low) / (high - low), 0.0), 1.0) if high > low else 38.0

    def down(rate: float) -> float:
        return 8 + (HEIGHT - BOTTOM - 8) * (1 - rate)

    plot: list[Markup] = []
    for quarter in range(5):
        y = down(quarter / 4)
        plot.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="grid"))
    places = [(across(size), down(rate), size, rate) for size, rate in sized]
    for (x1, y1, _, _), (x2, y2, _, _) in pairwise(places):
        plot.append(tag("line", x1=_pc(x1), y1=round(y1, 1), x2=_pc(x2), y2=round(y2, 1), class_="curve"))
    if endless is not None:
        x, y, _, _ = places[-1]
        plot.append(tag("line", x1=_pc(x), y1=round(y, 1), x2="94%", y2=round(down(endless), 1), class_="curve open"))
        plot.append(_point(94, down(endless), f"unlimited: {100 * endless:.2f} %"))
    plot += [_point(x, y, f"{size:,} tokens: {100 * rate:.2f} %") for x, y, size, rate in places]
    if capacity is not None:
        plot.append(
            tag("g", tag("title", f"this run: {capacity:,} tokens, {100 * hit_rate:.2f} %"),
                tag("line", x1=_pc(across(capacity)), x2=_pc(across(capacity)), y1=8, y2=HEIGHT - BOTTOM, class_="mark"),
                tag("circle", cx=_pc(across(capacity)), cy=round(down(hit_rate), 1), r=5, class_="here"))
        )  # fmt: skip
    for index in sorted({0, len(places) // 2, len(places) - 1}):
        x, _, size, _ = places[index]
        anchor = "start" if index == 0 else "middle"
        plot.append(tag("text", _short(size), x=_pc(x), y=HEIGHT - 8, text_anchor=anchor, class_="axis"))
    plot.append(tag("text", "unlimited", x="100%", y=HEIGHT - 8, text_anchor="end", class_="axis"))
    scale = [
        tag("text", f"{25 * quarter} %", x=LEFT - 6, y=down(quarter / 4) + 4, text_anchor="end", class_="axis")
        for quarter in range(5)
    ]
    first, last = sized[0], sized[-1]
    words = f"Hit rate against capacity: {100 * first[1]:.1f} % with {first[0]:,} tokens, {100 * last[1]:.1f} % with {last[0]:,}"
    # The plot's own window begins right of the scale: a width in per cent less some pixels is what padding in CSS gives.
    return tag(
        "figure",
        tag("svg", scale, width=LEFT, height=HEIGHT, class_="scale", aria_hidden="true"),
        tag("svg", plot, width="100%", height=HEIGHT, class_="plot", role="img", aria_label=words),
        class_="curve",
    )


def _point(x: float, y: float, words: str) -> Markup:
    return tag("circle", tag("title", words), cx=_pc(x), cy=round(y, 1), r=3.5, class_="point")


def _short(size: int) -> str:
    """A number of tokens for an axis: 1.4k, 23M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if size >= unit:
            return f"{size / unit:.3g}{name}"
    return str(size)
