"""Does a format of a date print more than the date? A clock that is printed to the day changes once a day."""

from __future__ import annotations

import re

__all__ = ["date_only", "letters_date_only"]

_DIRECTIVE = re.compile(r"%[-#0_^EO]?([A-Za-z%])")
_NO_FINER_THAN_A_DAY = frozenset("aAwdbBmyYjUWGuVxDFhCegnt%")


def date_only(spec: str) -> bool:
    """Whether a strftime format prints a date and nothing finer; a format without directives prints no clock and does not count."""
    letters = _DIRECTIVE.findall(spec)
    return any(letter not in "nt%" for letter in letters) and _NO_FINER_THAN_A_DAY.issuperset(letters)


def letters_date_only(spec: str) -> bool:
    """The same for a format in letters ("YYYY-MM-DD HH:mm")."""
    spec = re.sub(r"\[[^\]]*\]|'[^']*'|MMM+|dd+|Do|EEE+", "", spec)
    return bool(re.search(r"[YMDyd]", spec)) and not re.search(r"[HhKkmsSaAX]", spec)
