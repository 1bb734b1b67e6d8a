"""SGLang's request dumps without running anything: an unpickler for which every class is an inert record.

A pickle names functions and calls them. Here no name is ever imported: whatever a pickle asks for becomes a subclass of `Inert`, whose creation
stores its arguments and whose state is a dictionary. What such a file can still do is be large, and the stream's size is bounded by the caller.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Self

from promptlint.traffic.record import Unreadable

__all__ = ["Inert", "load"]


class Inert:
    """Stands for an object of any class. `name` is the class that the file asked for, `arguments` what it would have been called with."""

    name = ""

    def __new__(cls, *arguments: Any, **fields: Any) -> Self:
        made = super().__new__(cls)
        made.__dict__["arguments"] = arguments
        made.__dict__.update(fields)
        return made

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        # Slots and dictionaries come as (dict, slots) or dict; anything else is kept as it is.
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.__dict__.update((str(key), value) for key, value in part.items())

    def append(self, item: Any) -> None:
        """Lists of unknown classes are filled by calls; the items are kept."""
        self.__dict__.setdefault("items", []).append(item)

    def extend(self, items: Any) -> None:
        """As `append`."""
        self.__dict__.setdefault("items", []).extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__.setdefault("entries", {})[key] = value

    def __call__(self, *arguments: Any, **fields: Any) -> Inert:
        return type(self)(*arguments, **fields)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return type(name.rpartition(".")[2] or "Inert", (Inert,), {"name": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> Any:
        return Inert(pid)


def load(data: bytes) -> Any:
    """The object in a pickle, with an `Inert` for every class. Raises Unreadable for what is no pickle."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError, KeyError, ImportError, RecursionError, MemoryError, OverflowError) as error:  # fmt: skip
        raise Unreadable(f"not a readable pickle: {type(error).__name__}: {str(error)[:120]}") from error
