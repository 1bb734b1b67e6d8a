"""YAML from strangers: the safe loader, and a bound on what aliases may unfold to (a "billion laughs" file is a few hundred bytes)."""

from __future__ import annotations

from typing import Any

from promptlint.errors import UserError

__all__ = ["load_yaml"]

MOST_NODES = 2_000_000
"""Nodes of a document with every alias unfolded; a cassette of 100 MB of bodies has some ten thousand."""


def load_yaml(text: str | bytes, name: str) -> Any:
    """The document of a YAML file. Raises UserError with the place for what is no YAML, or unfolds beyond `MOST_NODES`."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node = yaml.compose(text, Loader=loader)
        if node is None:
            return None
        _bound(node, name)
        made = loader("")
        try:
            return made.construct_document(node)
        finally:
            made.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        raise UserError(f"{name}:{line}: not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{name}: not valid YAML: {error or 'nested too deeply'}") from error


def _bound(node: Any, name: str) -> None:
    """Count the nodes with aliases unfolded, each distinct node once."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    stack: list[tuple[Any, bool]] = [(node, False)]
    while stack:
        current, done = stack.pop()
        key = id(current)
        children = (
            [child for pair in current.value for child in (pair if isinstance(pair, tuple) else (pair,))]
            if isinstance(current.value, list)
            else []
        )
        if done:
            sizes[key] = 1 + sum(sizes[id(child)] for child in children)
            open_nodes.discard(key)
            if sizes[key] > MOST_NODES:
                mark = current.start_mark
                raise UserError(f"{name}:{mark.line + 1}: aliases unfold to more than {MOST_NODES:,} nodes")
        elif key not in sizes:
            open_nodes.add(key)
            stack.append((current, True))
            for child in children:
                if id(child) in open_nodes:
                    raise UserError(f"{name}:{child.start_mark.line + 1}: an alias that contains itself")
                if id(child) not in sizes:
                    stack.append((child, False))
