"""Calls and models that make pictures, films or sound of a text (rules/media.toml)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from promptlint.catalog import load_toml, rules_root
from promptlint.catalog.names import words
from promptlint.errors import UserError

__all__ = ["MediaWords", "load_media"]


@dataclass(frozen=True, slots=True)
class MediaWords:
    """The file's sets of lower-case words; the file says what each is for."""

    things: frozenset[str]
    making: frozenset[str]
    models: frozenset[str]

    def makes(self, name: str) -> bool:
        """Whether a call of this name makes something, be it text."""
        return not self.making.isdisjoint(words(name))

    def makes_media(self, name: str, owner: str = "") -> bool:
        """Whether a call of this name (`generate_image`), or a method on this object (`images`, `generate`), makes no text of a text."""
        if not self.makes(name):
            return False
        spoken = words(name)
        held = words(owner)
        return spoken[-1] in self.things or (spoken[0] in self.making and bool(held) and held[-1] in self.things)

    def is_media_model(self, model: str) -> bool:
        """Whether a model of this name makes no text."""
        return not self.models.isdisjoint(words(model))


@cache
def load_media() -> MediaWords:
    """The file's sets. Raises UserError when one is missing."""
    path = rules_root() / "media.toml"
    data = load_toml(path)
    try:
        return MediaWords(*(frozenset(data[name]) for name in ("things", "makes", "models")))
    except KeyError as error:
        raise UserError(f"{path}: the set {error} is missing") from error
