"""Prompts that nothing in the project asks for: constants and functions that no other place mentions, beside others of the same file that are used.

A file of prompts keeps what was replaced long ago. Its text reaches no model, so what it costs there is no news for anybody. Only names are compared, in
code, strings and comments alike: whatever may be a use counts as one.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from promptlint.frontends.base import MAX_FILE_BYTES, Project
from promptlint.ir import Confidence, HistoryEdit, Prompt, blocks_of
from promptlint.source import SourceFile

__all__ = ["doubt_unasked", "doubt_uncalled"]

_TOP = re.compile(r"^(?:(?:async +)?def +|class +)?([A-Za-z_]\w*)(?= *(?:[:=(]))", re.MULTILINE)
_ENTRY = re.compile(r"""^([A-Za-z_]\w*)\[["']([\w-]+)["']\] *=""", re.MULTILINE)
_STATEMENT = re.compile(r"^(?:def |class |async |@|[A-Za-z_][\w\[\]\"']* *=)", re.MULTILINE)
_BY_NAME = re.compile(r"\b(?:getattr|vars|dir)\(\s*([\w.]+)")
"""What is taken out of something by a name that is made at run time."""
MAX_SEARCHES = 500  # names that are looked for; a file of thousands of prompts must not take minutes
_MARKS = ("getattr(", "vars(", "dir(")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
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


def doubt_uncalled(edits: Iterable[HistoryEdit], project: Project) -> list[HistoryEdit]:
    """The edits of conversations; those in a private function that is made and never mentioned, with low confidence."""
    search = _Search(project)
    return [
        replace(edit, confidence=Confidence.LOW)
        if edit.confidence > Confidence.LOW and search.is_uncalled(edit.function, edit.span.path)
        else edit
        for edit in edits
    ]


class _Search:
    """Who mentions a name. Files are read when a name is looked for that its own file mentions only once."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._read = project.read_so_far()
        self._raw: dict[Path, bytes] = {}
        self._naming: dict[Path, list[str]] = {}
        self._answers: dict[tuple[Path, str, str], bool] = {}
        self._used: dict[Path, bool] = {}
        self._entries: dict[
            str, list[tuple[int, int, str, str]]
        ] = {}  # of a file: where each begins and ends, dictionary, key
        self._any_key: dict[
            tuple[Path, str], bool
        ] = {}  # whether a dictionary may be asked for keys that nobody spells
        self._searches = 0

    def is_unasked(self, prompt: Prompt) -> bool:
        path = Path(os.path.normpath(self._project.working_directory / prompt.path))
        source = self._project.source(path) if path in self._project.given else None
        if source is None:
            return False
        holder, name = self._entry(prompt, source) or ("", _name(prompt))
        if not name:
            return False
        key = path, prompt.function, name
        if key not in self._answers:
            self._searches += 1
            if self._searches > MAX_SEARCHES:
                return False
            self._answers[key] = (
                (self._is_entry_alone(holder, name, path, source) if holder else _is_made_alone(name, prompt, source))
                and "globals()" not in source.text
                and "__dict__" not in source.text
                and not any(_mentions(name, text) for text in self._users(path))
                and not any(_mentions(name, text) for text in self._others(path, name))
                and self._is_used(name, path, source)
            )
        return self._answers[key]

    def _entry(self, prompt: Prompt, source: SourceFile) -> tuple[str, str] | None:
        """Dictionary and key of a prompt that a module states as `PROMPTS["name"] = ...`."""
        if prompt.function != "<module>":
            return None
        if source.path not in self._entries:
            self._entries[source.path] = [
                (match.start(), match.end(), match[1], match[2]) for match in _ENTRY.finditer(source.text)
            ]
        entries = self._entries[source.path]
        at = bisect.bisect_left(entries, source.offset(prompt.span.line + 1, 1), key=itemgetter(0)) - 1
        if at < 0 or _STATEMENT.search(source.text, entries[at][1], source.offset(prompt.span.line, 1)):
            return None  # nothing, or something else, begins ahead of the prompt
        return entries[at][2:]

    def is_uncalled(self, function: str, shown: str) -> bool:
        """Whether a function is private by its name, and no place but definitions has that name."""
        name = function.rsplit(".", 1)[-1]
        if not name.startswith("_") or name.startswith("__") or not name.isidentifier():
            return False
        path = Path(os.path.normpath(self._project.working_directory / shown))
        source = self._project.source(path)
        key = path, "", name
        if key not in self._answers:
            self._answers[key] = (
                source is not None
                and all(
                    text.endswith("def ", 0, at)
                    for text in (source.text, *self._others(path, name))
                    for at in _mentions(name, text)
                )
                and all(
                    _decorators(source, source.place(at)[0]) <= _OWN_DECORATORS for at in _mentions(name, source.text)
                )
            )
        return self._answers[key]

    def _is_entry_alone(self, holder: str, key: str, path: Path, source: SourceFile) -> bool:
        """Whether the only mention of a key in its file is the entry's own, and every use of the dictionary spells the key that it asks for."""
        if (path, holder) not in self._any_key:
            texts = (source.text, *self._others(path, holder))
            self._any_key[path, holder] = any(_is_asked_at_run_time(holder, text) for text in texts)
        return not self._any_key[path, holder] and len(_mentions(key, source.text)) == 1

    def _is_used(self, name: str, path: Path, source: SourceFile) -> bool:
        """Whether other files use the file by name, and none of them takes what it holds by a name that is made at run time."""
        if path not in self._used:
            own = set(_TOP.findall(source.text)) - {name}
            texts = [text for text in self._users(path) if _mentions(_module(path), text)]
            holders = {_module(path), *own}
            self._used[path] = not any(
                holders.intersection(match.group(1).split("."))
                for text in (source.text, *texts)
                if any(mark in text for mark in _MARKS)
                for match in _BY_NAME.finditer(text)
            ) and any(not own.isdisjoint(_WORD.findall(text)) for text in texts)
        return self._used[path]

    def _users(self, path: Path) -> list[str]:
        """The texts of the files that name the module: a constant is mostly found there."""
        if path not in self._naming:
            self._naming[path] = list(self._others(path, _module(path)))
        return self._naming[path]

    def _others(self, path: Path, name: str) -> Iterator[str]:
        """The texts of other files that hold a name."""
        as_bytes = name.encode()
        for file in self._project.files:
            source = self._read.get(file)
            if file == path:
                continue
            if source is not None:
                if name in source.text:
                    yield source.text
            elif as_bytes in (data := self._data(file)):
                yield data.decode("utf-8", "replace")

    def _data(self, file: Path) -> bytes:
        """A file that nobody else had to read, which only has to be searched."""
        data = self._raw.get(file)
        if data is None:
            text = self._project.overlay.get(file)
            try:
                if text is not None:
                    data = text.encode("utf-8", "surrogatepass")
                else:
                    data = file.read_bytes() if file.stat().st_size <= MAX_FILE_BYTES else b""
            except OSError:
                data = b""
            self._raw[file] = data
        return data


def _module(path: Path) -> str:
    return path.parent.name if path.stem == "__init__" else path.stem


def _mentions(name: str, text: str) -> list[int]:
    """Where a text holds a name as a word of its own."""
    found = []
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        if not _goes_on(text[at - 1 : at]) and not _goes_on(text[end : end + 1]):
            found.append(at)
        at = text.find(name, end)
    return found


def _is_asked_at_run_time(holder: str, text: str) -> bool:
    """Whether a dictionary is used other than by keys that are spelled, where it is made, or where it is imported."""
    for at in _mentions(holder, text):
        end = at + len(holder)
        line = text[text.rfind("\n", 0, at) + 1 : at].lstrip()
        behind = text[end : _line_end(text, end)].strip()
        spelled = re.match(r"""\s*\[\s*["'][^"']*["']\s*\]""", behind)
        made = not line and re.match(r"(:.*)?=(?!=)", behind)
        imported = line.startswith(("from ", "import ")) or (not line and behind in {"", ","})
        if not (spelled or made or imported):
            return True
    return False


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _goes_on(neighbour: str) -> bool:
    return neighbour == "_" or neighbour.isalnum()


def _name(prompt: Prompt) -> str:
    """The name by which code would ask for a prompt, of a constant or a function; else empty."""
    if prompt.function != "<module>":
        name = prompt.function.rsplit(".", 1)[-1]
        return name if name.isidentifier() and not name.startswith("__") else ""
    names = {block.name for block in blocks_of(prompt.blocks)}
    return names.pop() if len(names) == 1 else ""


def _is_made_alone(name: str, prompt: Prompt, source: SourceFile) -> bool:
    """Whether the only mention of a name in its file is the statement that makes it, and nothing calls what it makes without saying the name."""
    found = _mentions(name, source.text)
    if len(found) != 1:
        return False
    line, column = source.place(found[0])
    text = source.line_text(line)
    before, behind = text[: column - 1].split(), text[column - 1 + len(name) :].lstrip()
    if (
        prompt.function == "<module>"
    ):  # what a class states may be asked for through the class, or be a member of an enumeration
        return column == 1 and behind[:1] in {":", "="}
    if before not in (["def"], ["async", "def"]):
        return False
    own = _decorators(source, line)
    outer = prompt.function.split(".")[:-1]
    if not own <= _OWN_DECORATORS or not outer or own & {"staticmethod", "classmethod"}:
        return own <= _OWN_DECORATORS
    # A class that derives from another may be called through that one.
    return re.search(rf"^[ \t]*class +{re.escape(outer[-1])} *(?:\( *\))? *:", source.text, re.MULTILINE) is not None


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
