"""The survey of a file: what the other parts of a project need to know of it."""

from __future__ import annotations

import ast

from promptlint.frontends.python.features import features_of, is_small
from promptlint.frontends.python.index import FunctionInfo, Module, last_name
from promptlint.frontends.python.known import Brief, ClassBrief, FileSurvey

__all__ = ["survey"]

_SMALL = Brief(small=True, telling=True, calls=())
_TELLING = Brief(small=False, telling=True, calls=())


def _brief(info: FunctionInfo, telling_calls: frozenset[str]) -> Brief:
    """A function at a glance; `telling_calls` are last names of calls that make one worth following."""
    if is_small(info.node):
        return _SMALL
    features = features_of(info.node)
    if features.text or not features.calls.isdisjoint(telling_calls):
        return _TELLING
    return Brief(small=False, telling=False, calls=tuple(sorted(features.calls)))


def survey(module: Module, telling_calls: frozenset[str]) -> FileSurvey:
    """The survey of one parsed file."""
    functions: dict[str, tuple[Brief, ...]] = {}
    decorators: set[str] = set()
    for info in module.functions:
        decorators.update(info.decorators)
        if info.name != "<lambda>":
            functions[info.name] = (*functions.get(info.name, ()), _brief(info, telling_calls))
    called = (name for name, places in module.calls.items() if any(place.function is not None for place in places))
    classes = (
        ClassBrief(
            info.name,
            tuple(last_name(base.value if isinstance(base, ast.Subscript) else base) for base in info.node.bases),
            frozenset(info.methods),
        )
        for info in module.classes.values()
    )
    return FileSurvey(module.path, functions, frozenset(called), tuple(classes), frozenset(decorators))
