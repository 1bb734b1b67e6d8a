"""The bar of a prompt at a terminal, and its absence where there is none."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_sample import everything

from promptlint.ir import Volatility
from promptlint.report import text
from promptlint.report.bar import bar, legend
from promptlint.report.model import BlockItem, CallSiteItem

ESCAPES = re.compile(r"\x1b\[[\d;]*m")


def site(*sizes: int, prefix: int = 0, level: str = "static") -> CallSiteItem:
    blocks = tuple(BlockItem("system", "system", level, "fixed", size, size, "", "a.py", 1) for size in sizes)
    return CallSiteItem(
        "a.py::f::s", "a.py", 1, "s", None, None, False, blocks, sum(sizes), prefix, None, "sha256:0", 1.0, ()
    )


def plain(lines: list[str]) -> list[str]:
    return [ESCAPES.sub("", line) for line in lines]


@given(st.lists(st.integers(0, 10_000), max_size=30), st.integers(8, 130), st.floats(0, 1))
def test_the_bar_is_as_wide_as_asked(sizes, width, share):
    drawn = plain(bar(site(*sizes, prefix=int(share * sum(sizes))), width))
    if not sum(sizes):
        assert drawn == []
        return
    assert len(drawn[0]) == width
    assert drawn[1].count("^") == 1
    assert drawn[1].index("^") < width


def test_widths_are_shares_of_the_tokens():
    drawn = bar(site(300, 100, prefix=300), 42)
    assert plain(drawn) == ["system".ljust(31) + "system".ljust(11), "prefix ends after 300 ^".rjust(33)]
    assert plain(bar(site(300, 100, prefix=0), 42))[1] == "^ prefix ends after 0"


def test_a_small_block_keeps_a_column():
    assert [len(cell) for cell in re.findall(r"m([^\x1b]+)\x1b", bar(site(1, 100_000, 1), 20)[0])] == [1, 18, 1]


@pytest.mark.parametrize("level", [level.word for level in Volatility])
def test_every_level_has_its_colour(level):
    others = {bar(site(10, level=one.word), 20)[0] for one in Volatility if one.word != level}
    assert bar(site(10, level=level), 20)[0] not in others
    assert f" {level} " in plain([legend()])[0]


def test_show_draws_bars_in_colour_only():
    coloured, uncoloured = text.show(everything(), color=True, width=60), text.show(everything())
    lines = plain(coloured.splitlines())
    added = [line for line in lines if line and line not in uncoloured.splitlines()]
    assert [line.split()[0] for line in added] == ["static", "system", "^"]
    kept = [line for line in lines if line not in added]
    assert kept[0] == ""  # behind the legend
    assert kept[1:] == uncoloured.splitlines()
