"""The JSON schema of `promptlint check --output-format json`, generated from the report's own classes."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from promptlint.finding import APPLICABILITY, PERSONAS, SEVERITIES
from promptlint.ir import BlockKind, Confidence, Growth, Volatility
from promptlint.report import model

__all__ = ["check_schema", "object_schema"]

_PRIVATE = {
    model.FindingItem: ("help", "hint", "source", "function", "suggestion"),
    model.CheckReport: ("rules", "unusable", "withheld"),
    model.Summary: ("texts",),
}
_OPTIONAL: dict[type, tuple[str, ...]] = {model.CheckReport: ("baseline",)}
_WORDS: dict[tuple[type, str], tuple[str, ...]] = {
    (model.FindingItem, "severity"): SEVERITIES,
    (model.FindingItem, "confidence"): tuple(level.word for level in Confidence),
    (model.FindingItem, "persona"): PERSONAS,
    (model.FindingItem, "volatility"): tuple(level.word for level in Volatility),
    (model.FindingItem, "block"): tuple(kind.value for kind in BlockKind),
    (model.BlockItem, "kind"): tuple(kind.value for kind in BlockKind),
    (model.BlockItem, "volatility"): tuple(level.word for level in Volatility),
    (model.BlockItem, "growth"): tuple(growth.value for growth in Growth),
    (model.FixItem, "applicability"): APPLICABILITY,
    (model.TemplateItem, "verdict"): (
        "stable",
        "stable-in-serving",
        "generation-prompt-not-replayed",
        "rewrites-history",
    ),
    (model.TemplateItem, "date"): ("never", "always", "without-system"),
}
_SHARES = frozenset(
    [
        "hit_rate",
        "hit_rate_base",
        "hit_rate_head",
        "hit_rate_now",
        "hit_rate_if_fixed",
        "hit_rate_then",
        "estimated_hit_rate",
        "resolution",
        "reusable_share",
        "block_hit_rate",
        "request_hit_rate",
    ]
)


def check_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of schema `promptlint.check/1`: exactly these keys, all of them always there but `baseline`, which needs one."""
    body = object_schema(model.CheckReport)
    body["properties"] = {"schema": {"const": model.SCHEMA}, **body["properties"]}
    body["required"] = ["schema", *body["required"]]
    finding = body["properties"]["findings"]["items"]
    place = finding["properties"]["trace"]["items"]
    del place["properties"]["call_site"]
    place["required"].remove("call_site")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "promptlint check --output-format json",
        **body,
    }


def object_schema(cls: type) -> dict[str, Any]:
    """The schema of a dataclass of the report, whose fields are the keys of its JSON."""
    hints = typing.get_type_hints(cls)
    names = [item.name for item in fields(cls) if item.name not in _PRIVATE.get(cls, ())]
    return {
        "description": (cls.__doc__ or "").split("\n\n")[0],
        "type": "object",
        "properties": {name: _field(cls, name, hints[name]) for name in names},
        "required": [name for name in names if name not in _OPTIONAL.get(cls, ())],
        "additionalProperties": False,
    }


def _field(cls: type, name: str, hint: Any) -> dict[str, Any]:
    found = _value(hint)
    words = _WORDS.get((cls, name))
    if words:
        optional = isinstance(found["type"], list)
        found["enum"] = [*words, None] if optional else list(words)
    if name in _SHARES:
        found |= {"minimum": 0, "maximum": 1}
    elif name in ("line", "column", "end_line", "end_column") and cls is not model.TemplateItem:
        found["minimum"] = 1
    elif found.get("type") == "integer":
        found["minimum"] = 0
    return found


def _value(hint: Any) -> dict[str, Any]:
    if hint is Any:
        return {}
    simple = {str: "string", bool: "boolean", int: "integer", float: "number"}
    if hint in simple:
        return {"type": simple[hint]}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType or origin is typing.Union:
        inner = _value(next(part for part in arguments if part is not type(None)))
        return {**inner, "type": [inner["type"], "null"]}
    if origin is tuple:
        return {"type": "array", "items": _value(arguments[0])}
    if origin in (Mapping, dict):
        values = {} if arguments[1] is Any else {"additionalProperties": {**_value(arguments[1]), "minimum": 0}}
        return {"type": "object", **values}
    assert is_dataclass(hint), hint
    return object_schema(typing.cast("type", hint))
