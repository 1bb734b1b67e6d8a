"""How fine does a format print a date? A clock that is printed to the day changes once a day, one that is printed to the month hardly ever."""

from __future__ import annotations

import re
from dataclasses import replace

from promptlint.ir import Origin, Volatility

__all__ = ["coarsened", "date_only", "letters_date_only", "letters_month_only", "month_only"]

_DIRECTIVE = re.compile(r"%[-#0_^EO]?([A-Za-z%])")
_NO_FINER_THAN_A_MONTH = frozenset("bBmyYGhCgnt%")
_NO_FINER_THAN_A_DAY = _NO_FINER_THAN_A_MONTH | frozenset("aAwdjUWuVxDFe")


def date_only(spec: str) -> bool:
    """Whether a strftime format prints a date and nothing finer; a format without directives prints no clock and does not count."""
    letters = _DIRECTIVE.findall(spec)
    return any(letter not in "nt%" for letter in letters) and _NO_FINER_THAN_A_DAY.issuperset(letters)


def month_only(spec: str) -> bool:
    """Whether a strftime format prints a month or a year and nothing finer."""
    return date_only(spec) and _NO_FINER_THAN_A_MONTH.issuperset(_DIRECTIVE.findall(spec))


def letters_date_only(spec: str) -> bool:
    """The same for a format in letters ("YYYY-MM-DD HH:mm")."""
    spec = re.sub(r"\[[^\]]*\]|'[^']*'|MMM+|dd+|Do|EEE+", "", spec)
    return bool(re.search(r"[YMDyd]", spec)) and not re.search(r"[HhKkmsSaAX]", spec)


def letters_month_only(spec: str) -> bool:
    """Whether a format in letters prints a month or a year and nothing finer ("MMMM YYYY")."""
    return letters_date_only(spec) and re.sub(r"\[[^\]]*\]|'[^']*'|[^A-Za-z]", "", spec).strip("YyM") == ""


def coarsened(origins: tuple[Origin, ...], *, month: bool = False) -> tuple[Origin, ...]:
    """The origins of a value whose clocks are printed to the day.

    `month`: to the month or the year. One miss a month is none, so such a clock counts as a setting.
    """
    kind, ceiling = ("setting", Volatility.PROCESS) if month else ("clock", Volatility.DAY)
    return tuple(
        replace(origin, kind=kind, volatility=min(origin.volatility, ceiling)) if origin.kind == "clock" else origin
        for origin in origins
    )
