"""What readers share: the format's description, its options, and small checks that name the field they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from promptlint.traffic.record import Place, Record, Unreadable

__all__ = ["Format", "Options", "as_list", "as_object", "as_text", "kind", "parsed", "text_or_none"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says about the input: tools sent with every request, the size of a hashed block, a map of columns."""

    tools: list[Any] | None = None
    block_size: int | None = None
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of JSON record. `matches` looks at keys only and is cheap; `read` yields the requests in it or raises Unreadable.

    `only_named`: such records are read only when the format is named; found by themselves they are counted as skipped.
    """

    name: str
    about: str
    matches: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Mapping[str, Any], Place, Options], Iterator[Record]]
    only_named: bool = False


def as_object(value: Any, field: str) -> Mapping[str, Any]:
    """The value as an object. Raises Unreadable naming the field."""
    if not isinstance(value, Mapping):
        raise Unreadable(f"expected an object, found {kind(value)}", field)
    return value


def as_list(value: Any, field: str) -> list[Any]:
    """The value as a list. Raises Unreadable naming the field."""
    if not isinstance(value, list):
        raise Unreadable(f"expected a list, found {kind(value)}", field)
    return value


def as_text(value: Any, field: str) -> str:
    """The value as text. Raises Unreadable naming the field."""
    if not isinstance(value, str):
        raise Unreadable(f"expected text, found {kind(value)}", field)
    return value


def text_or_none(value: Any) -> str:
    """An identifier as text; numbers are spelled, everything else is empty."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return ""


def parsed(value: Any, field: str) -> Any:
    """A value that some exporters write as a JSON text. Raises Unreadable when the text is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not valid JSON: {error}", field) from error


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "null"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)
