"""Numbers of a page, each tied to its place in the JSON report.

A page is a view of what `--output-format json` gives: every number is read from there and carries the JSON pointer (RFC 6901) that it
was read at, as `<data data-json="/hit_rate" value="0.5115">51.2 %</data>`. So nothing can be shown that the JSON does not say, redaction included,
and a test can compare them in the open page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from promptlint.report.html.markup import Markup, tag
from promptlint.report.words import percent

__all__ = ["Data", "estimate", "money", "plain", "share"]


class Data:
    """A value of a JSON report and the pointer to it."""

    __slots__ = ("pointer", "value")

    def __init__(self, value: Any, pointer: str = "") -> None:
        self.value = value
        self.pointer = pointer

    def __getitem__(self, key: str | int) -> Data:
        name = str(key).replace("~", "~0").replace("/", "~1")
        return Data(self.value[key], f"{self.pointer}/{name}")

    def __iter__(self) -> Iterator[Data]:
        return (self[index] for index in range(len(self.value)))

    def __len__(self) -> int:
        return len(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def get(self, key: str, default: Any = None) -> Any:
        """The plain value under a key."""
        return self.value.get(key, default)

    def items(self) -> Iterator[tuple[str, Data]]:
        """Keys and values of an object."""
        return ((key, self[key]) for key in self.value)

    def show(self, form: Callable[[Any], str] | None = None, missing: str = "-") -> Markup:
        """The number for people, with its value and its place for programs. `missing` stands for null."""
        if self.value is None:
            return tag("data", missing, data_json=self.pointer, value="null")
        return tag("data", (form or plain)(self.value), data_json=self.pointer, value=json.dumps(self.value))


def plain(value: Any) -> str:
    """A value of any type in a few words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
    return str(value)


def share(value: float) -> str:
    """A measured share with two digits behind the point."""
    return f"{100 * value:.2f} %"


def money(value: float) -> str:
    """Dollars."""
    return f"{value:,.2f} $"


estimate = percent
