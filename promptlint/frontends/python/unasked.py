"""Prompts that nothing in the project asks for: constants and functions that no other place mentions, beside others of the same file that are used.

A file of prompts keeps what was replaced long ago. Its text reaches no model, so what it costs there is no news for anybody. Only names are compared, in
code, strings and comments alike: whatever may be a use counts as one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from promptlint.frontends.base import Project
from promptlint.ir import Confidence, Prompt, blocks_of
from promptlint.source import SourceFile

__all__ = ["doubt_unasked"]

_TOP = re.compile(r"^(?:(?:async +)?def +|class +)?([A-Za-z_]\w*)(?= *(?:[:=(]))", re.MULTILINE)
_OWN_DECORATORS = frozenset({"staticmethod", "classmethod", "property", "cached_property", "cache", "lru_cache"})
"""Decorators that call nothing by themselves. Any other one may hand the function to a framework, which calls it without its name."""


def doubt_unasked(prompts: Iterable[Prompt], project: Project) -> list[Prompt]:
    """The prompts; those that no call is seen to send, and that nobody asks for, with low confidence."""
    search = _Search(project)
    return [
        replace(prompt, confidence=Confidence.LOW)
        if prompt.origin == "template" and prompt.confidence > Confidence.LOW and search.is_unasked(prompt)
        else prompt
        for prompt in prompts
    ]


class _Search:
    """Who mentions a name. Files are read when a name is looked for that its own file mentions only once."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._files: dict[Path, list[Path]] = {}  # all of them, neighbours of a folder first
        self._answers: dict[tuple[str, str], bool] = {}
        self._used: dict[str, bool] = {}

    def is_unasked(self, prompt: Prompt) -> bool:
        path = Path(os.path.normpath(self._project.working_directory / prompt.path))
        source = self._project.source(path) if path in self._project.given else None
        if source is None:
            return False
        name = _name(prompt, source)
        if not name:
            return False
        key = prompt.path, name
        if key not in self._answers:
            self._answers[key] = self._is_unasked(name, path, source)
        return self._answers[key]

    def _is_unasked(self, name: str, path: Path, source: SourceFile) -> bool:
        return (
            len(_mentions(name, source.text)) == 1
            and "globals()" not in source.text
            and not any(_mentions(name, text) for text in self._others(path, name))
            and self._is_used(name, path, source)
        )

    def _is_used(self, name: str, path: Path, source: SourceFile) -> bool:
        """Whether other files use the file by name, and none of them takes what it holds by a name that is made at run time."""
        key = source.path
        if key not in self._used:
            module = path.parent.name if path.stem == "__init__" else path.stem
            own = set(_TOP.findall(source.text)) - {name}
            texts = [text for text in self._others(path, module) if _mentions(module, text)]
            holders = "|".join(map(re.escape, (module, *sorted(own))))
            by_name = re.compile(
                rf"(?:getattr|vars|dir)\(\s*(?:\w+\.)*(?:{holders})\b|\b(?:{holders})\.__dict__", re.ASCII
            )
            words = re.compile(r"[A-Za-z_]\w*", re.ASCII)
            self._used[key] = any(not own.isdisjoint(words.findall(text)) for text in texts) and not any(
                map(by_name.search, (source.text, *texts))
            )
        return self._used[key]

    def _others(self, path: Path, name: str) -> Iterator[str]:
        """The texts of other files that hold a name, neighbours first."""
        if path.parent not in self._files:
            folder = str(path.parent) + os.sep
            self._files[path.parent] = sorted(self._project.files, key=lambda file: not str(file).startswith(folder))
        for file in self._files[path.parent]:
            source = self._project.source(file) if file != path else None
            if source is not None and name in source.text:
                yield source.text


def _mentions(name: str, text: str) -> Sequence[str]:
    return re.findall(rf"\b{re.escape(name)}\b", text)


def _name(prompt: Prompt, source: SourceFile) -> str:
    """The name by which code would ask for a prompt: of a constant, or of a function that nothing calls without saying its name; else empty."""
    if prompt.function == "<module>":
        names = {block.name for block in blocks_of(prompt.blocks)}
        name = names.pop() if len(names) == 1 else ""
        return name if re.search(rf"^\s*{re.escape(name)}\s*[:=]", source.text, re.MULTILINE) and name else ""
    *outer, name = prompt.function.split(".")
    if not name.isidentifier() or name.startswith("__") or "<" in prompt.function:
        return ""
    found = list(re.finditer(rf"^[ \t]*(?:async +)?def +{name}\b", source.text, re.MULTILINE))
    if len(found) != 1:
        return ""
    own = _decorators(source, source.place(found[0].start())[0])
    if not own <= _OWN_DECORATORS:
        return ""
    if outer and not own & {
        "staticmethod",
        "classmethod",
    }:  # a class that derives from another may be called through that one
        return (
            name
            if re.search(rf"^[ \t]*class +{re.escape(outer[-1])} *(?:\( *\))? *:", source.text, re.MULTILINE)
            else ""
        )
    return name


def _decorators(source: SourceFile, line: int) -> set[str]:
    """Last names of the decorators ahead of a line."""
    found = set()
    while line > 1:
        line -= 1
        text = source.line_text(line).strip()
        if not text.startswith("@"):
            break
        found.add(re.split(r"[(\s]", text[1:])[0].rsplit(".", 1)[-1])
    return found
