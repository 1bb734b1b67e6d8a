"""How fine a clock is printed."""

from __future__ import annotations

import pytest

from promptlint.frontends.dates import coarsened, date_only, letters_date_only, letters_month_only, month_only
from promptlint.ir import Confidence, Origin, Volatility
from promptlint.source import Span


@pytest.mark.parametrize(
    ("spec", "day", "month"),
    [
        ("%Y", True, True),
        ("%B %Y", True, True),
        ("%m/%y", True, True),
        ("%Y-%m-%d", True, False),
        ("%A", True, False),
        ("week %V of %G", True, False),
        ("%Y %H", False, False),
        ("today", False, False),
    ],
)
def test_a_format_of_strftime(spec: str, day: bool, month: bool) -> None:
    assert (date_only(spec), month_only(spec)) == (day, month)


@pytest.mark.parametrize(
    ("spec", "day", "month"),
    [("YYYY", True, True), ("MMMM YYYY", True, True), ("YYYY-MM-DD", True, False), ("YYYY HH:mm", False, False)],
)
def test_a_format_in_letters(spec: str, day: bool, month: bool) -> None:
    assert (letters_date_only(spec), letters_month_only(spec)) == (day, month)


def test_a_clock_of_months_is_a_setting() -> None:
    span = Span("app.py", 1, 1, 1, 2)
    clock = Origin("clock", Volatility.REQUEST, Confidence.HIGH, "now()", span)
    user = Origin("user", Volatility.USER, Confidence.HIGH, "name", span)
    day, other = coarsened((clock, user))
    assert (day.kind, day.volatility, other) == ("clock", Volatility.DAY, user)
    month, other = coarsened((clock, user), month=True)
    assert (month.kind, month.volatility, other) == ("setting", Volatility.PROCESS, user)
