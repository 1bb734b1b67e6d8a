"""`rules/` as typed objects. The wheel carries the folder as `promptlint/_rules`; a checkout reads it in place; only this package knows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from promptlint.errors import UserError

__all__ = ["load_toml", "rules_root", "toml_files"]


@cache
def rules_root() -> Path:
    """The folder with the rules: packed beside this package, or at the root of the checkout."""
    packed = Path(__file__).resolve().parent.parent / "_rules"
    return packed if packed.is_dir() else Path(__file__).resolve().parents[2] / "rules"


def toml_files(folder: str, extra: tuple[Path, ...] = ()) -> Iterator[Path]:
    """The TOML files of one folder of the rules, then those of the user's own rule folders, in name order."""
    for root in (rules_root(), *extra):
        yield from sorted((root / folder).glob("*.toml"))


def load_toml(path: Path) -> dict[str, Any]:
    """One data file. Raises UserError with the place when it is not TOML."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error
