"""Prompt files: text, Markdown, YAML, JSON, TOML, `.prompty` and `.prompt` files whose text has slots.

A text or a string of a YAML, JSON or TOML file that looks like a prompt becomes a prompt of its own, with one block; a list of role and content in a data file, and the
messages of a `.prompty` file, become one prompt together. What fills the slots is known by name only. Documentation of a project is never taken for a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from promptlint.catalog.names import words
from promptlint.frontends import promptlike, slots
from promptlint.frontends.base import Project, TemplateReader
from promptlint.frontends.scalars import BrokenDataError, Key, Scalar, json_strings, toml_strings, yaml_strings
from promptlint.ir import Block, BlockKind, Confidence, Prompt, Reading, Segment, Text, Unread
from promptlint.source import SourceFile, Span, TextMap

__all__ = ["MIN_WORDS", "read", "read_text", "role_of"]

# What a slot begins with, as the braces of a data file itself do not. Only to pass over files in which there is none.
_MAY_HOLD_SLOTS = re.compile(r"\{[\w{%#]|\{ *\w[\w.]* *\}|\$[\w{]|%\(")

MIN_WORDS = 60  # of a string in a data file: shorter ones are labels and messages

_ROLES = {
    "system": "system", "sys": "system", "sysprompt": "system", "developer": "system", "user": "user", "human": "user", "instance": "user", "assistant": "assistant", "ai": "assistant",
}  # fmt: skip
_READERS = {".yaml": yaml_strings, ".yml": yaml_strings, ".json": json_strings, ".toml": toml_strings}
_PROMPTY_ROLE = re.compile(
    r"^[ \t]*#?[ \t]*(system|developer|user|assistant|function|tool)[ \t]*:[ \t]*\r?$", re.IGNORECASE | re.MULTILINE
)
_DOTPROMPT_ROLE = re.compile(r"\{\{\s*role\s+[\"'](\w+)[\"']\s*\}\}")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_DOCUMENTATION = frozenset(
    ("readme", "changelog", "contributing", "license", "licence", "copying", "notice", "security", "authors", "requirements", "history", "todo", "install", "news", "code_of_conduct", "maintainers")
)  # fmt: skip

_RECORDED = frozenset(
    ("report", "reports", "output", "outputs", "result", "results", "response", "responses", "answer", "answers", "completion", "completions", "prediction", "predictions", "transcript", "trajectory", "log", "stdout", "stderr")
)  # fmt: skip
"""Last words of the keys under which programs record what a model or a tool said. Braces in such a text are no slots."""


def role_of(name: str) -> str | None:
    """The role that a name tells: "system_prompt" is a system message, "user_template" a user message."""
    return next((_ROLES[word] for word in words(name) if word in _ROLES), None)


def read_text(
    text: str, where: TextMap, syntax: str | None = None, *, templates: TemplateReader | None = None
) -> tuple[Segment, ...]:
    """The segments of a text with slots. `syntax`: one of slots.SYNTAXES or "jinja2"; None guesses. Text that does not follow it is fixed text.

    Without `templates`, a text in Jinja is fixed text.
    """
    syntax = syntax or slots.guess(text)
    try:
        if syntax == "jinja2" and templates is not None:
            return templates(text, where)
        if syntax is not None and syntax != "jinja2":
            return slots.read(text, where, syntax)
    except ValueError:  # BadTemplateError, or the Jinja front end's own: it is no template after all
        pass
    return slots.fixed_text(text, 0, len(text), text, where)


def read(project: Project, paths: Sequence[Path], *, templates: TemplateReader | None = None) -> Reading:
    """The prompts of these files, each on its own. `templates` reads the texts in Jinja."""
    readings: list[Reading] = []
    for path in paths:
        source = project.source(path)
        if source is None:
            continue
        reader = _File(source, path, templates)
        readings.append(reader.data() if path.suffix.lower() in _READERS else reader.text())
    return Reading(
        prompts=tuple(prompt for reading in readings for prompt in reading.prompts),
        unread=tuple(unread for reading in readings for unread in reading.unread),
        parsed=tuple(path for reading in readings for path in reading.parsed),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """A stretch of text with its role."""

    role: str | None
    text: str
    where: TextMap
    span: Span


class _File:
    """One prompt file."""

    def __init__(self, source: SourceFile, path: Path, templates: TemplateReader | None) -> None:
        self.source = source
        self.path = path
        self.templates = templates
        self.stem = path.name.partition(".")[0]
        folders = [folder.lower() for folder in path.parts[-4:-1]]
        self.context = ("prompt-folder",) if any("prompt" in folder for folder in folders) else ()

    # ---- text files

    def text(self) -> Reading:
        """A text file: one prompt, or none."""
        suffix = self.path.suffix.lower()
        done = Reading(parsed=(self.source.path,))
        if self.stem.lower().replace("-", "_") in _DOCUMENTATION or (
            self.stem.isupper() and suffix == ".md" and "PROMPT" not in self.stem
        ):
            return done
        text = self.source.text
        front = _FRONT_MATTER.match(text)
        start = front.end() if front else 0
        parts = list(self.parts(start, suffix))
        context = (*self.context, "prompt-extension") if suffix in {".prompty", ".prompt"} else self.context
        likeness = promptlike.score(text[start:], self.stem, context)
        if not likeness.is_prompt and suffix not in {".prompty", ".prompt"}:
            return done
        syntax = self.syntax(front[1] if front else "", text[start:], suffix)
        blocks = tuple(block for part in parts if (block := self.block(part, syntax, self.stem)) is not None)
        if not any(_has_holes(block) for block in blocks):
            return done  # fixed text is fixed wherever it goes: nothing to say about it alone
        return done + Reading(prompts=(self.prompt(blocks, "", self.source.span(0, len(text))),))

    def syntax(self, front: str, body: str, suffix: str) -> str | None:
        """How a text's slots are written: `.prompty` says so itself, its default is Jinja."""
        if suffix == ".prompty":
            return "mustache" if "mustache" in front else "jinja2"
        if suffix == ".prompt" and _DOTPROMPT_ROLE.search(body):
            return "mustache"
        return slots.guess(body)

    def parts(self, start: int, suffix: str) -> Iterator[_Part]:
        """The messages of a text file: those that it marks, else one."""
        text = self.source.text
        pattern = {".prompty": _PROMPTY_ROLE, ".prompt": _DOTPROMPT_ROLE}.get(suffix)
        marks = list(pattern.finditer(text, start)) if pattern is not None else []
        role = role_of(self.stem)
        begin = start
        for mark in marks:
            if text[begin : mark.start()].strip():
                yield self.part(role, begin, mark.start())
            role, begin = mark[1].lower(), mark.end()
        if text[begin:].strip():
            yield self.part(role, begin, len(text))

    def part(self, role: str | None, start: int, end: int) -> _Part:
        while start < end and self.source.text[start] in " \t\r\n":
            start += 1
        where = TextMap(self.source, ((0, start, end - start, True),))
        return _Part(_ROLES.get(role or "", role), self.source.text[start:end], where, self.source.span(start, end))

    # ---- data files

    def data(self) -> Reading:
        """A YAML, JSON or TOML file: one prompt for each string that looks like one."""
        text = self.source.text
        if not _MAY_HOLD_SLOTS.search(text) or len(text.split()) < MIN_WORDS:
            return Reading(parsed=(self.source.path,))
        try:
            strings = _READERS[self.path.suffix.lower()](self.source)
        except BrokenDataError as error:
            if not promptlike.score(text, self.stem, self.context).is_prompt:
                return Reading()  # a template of some other program, JSON with comments: not our business
            return Reading(unread=(Unread(self.source.path, error.line, f"not valid data: {error}"),))
        return Reading(prompts=tuple(self.data_prompts(strings)), parsed=(self.source.path,))

    def data_prompts(self, strings: tuple[Scalar, ...]) -> Iterator[Prompt]:
        jinja = any(slots.guess(string.value) == "jinja2" for string in strings)
        grouped = _messages(strings)
        used: set[Key] = set()
        for string in strings:
            if string.key in used:
                continue
            group = grouped.get(string.key[:-2]) if len(string.key) > 1 else None
            if group is not None and string.key in group:
                used.update(group)
                members = [member for member in strings if member.key in group]
                together = replace(string, value="\n".join(member.value for member in members))
                if len(together.value.split()) < MIN_WORDS or not self.looks(together, jinja):
                    continue
                blocks = [self.scalar_block(member, jinja, group[member.key]) for member in members]
                key = members[0]
                name = replace(key, key=key.key[:-2]).path
            else:
                if len(string.value.split()) < MIN_WORDS or not self.looks(string, jinja):
                    continue
                blocks = [self.scalar_block(string, jinja, role_of(_name(string.key)) or role_of(self.stem))]
                name = string.path
            found = tuple(block for block in blocks if block is not None)
            if any(_has_holes(block) for block in found):
                yield self.prompt(found, name, found[0].span)

    def looks(self, string: Scalar, jinja: bool) -> bool:
        """Whether a string of a data file counts: slots, and the looks of a prompt."""
        syntax = slots.guess(string.value)
        if syntax is None or (jinja and syntax in {"format", "braces"}):
            return False
        name = f"{self.stem} {'.'.join(map(str, string.key))}"
        context = (*self.context, "record") if self.is_record(string) else self.context
        return promptlike.score(string.value, name, context).is_prompt

    def is_record(self, string: Scalar) -> bool:
        """Whether a string of a JSON file is what was said in a run, by its key."""
        named = words(f"{self.stem} {' '.join(map(str, string.key))}")
        last = words(_name(string.key))[-1:]
        mine = self.context or "prompt" in named or "prompts" in named
        return self.path.suffix.lower() == ".json" and not mine and _RECORDED.issuperset(last) and bool(last)

    def scalar_block(self, string: Scalar, jinja: bool, role: str | None) -> Block | None:
        span = string.where.span(0, len(string.value))
        syntax = "jinja2" if jinja else None
        return self.block(_Part(role, string.value, string.where, span), syntax, _name(string.key) or self.stem)

    # ---- both

    def block(self, part: _Part, syntax: str | None, name: str) -> Block | None:
        segments = read_text(part.text, part.where, syntax, templates=self.templates)
        if not segments:
            return None
        kind = BlockKind.SYSTEM if part.role == "system" else BlockKind.OTHER
        return Block(kind, part.role, segments, part.span, name=name)

    def prompt(self, blocks: tuple[Block, ...], function: str, span: Span) -> Prompt:
        return Prompt(
            self.source.path, function, "template", span, blocks, origin="template", confidence=Confidence.MEDIUM
        )


def _has_holes(block: Block) -> bool:
    return any(not isinstance(segment, Text) for segment in block.segments)


def _name(key: Key) -> str:
    """The last key that is a word."""
    return next((part for part in reversed(key) if isinstance(part, str)), "")


def _messages(strings: tuple[Scalar, ...]) -> dict[Key, dict[Key, str | None]]:
    """Lists of role and content: the list's key, with the keys of the contents and their roles."""
    roles = {string.key[:-1]: string.value for string in strings if string.key and string.key[-1] == "role"}
    found: dict[Key, dict[Key, str | None]] = {}
    for string in strings:
        parent = string.key[:-1]
        if (
            parent in roles
            and len(parent)
            and isinstance(parent[-1], int)
            and string.key[-1] in {"content", "text", "template", "prompt"}
        ):
            role = roles[parent].strip().lower()
            found.setdefault(parent[:-1], {})[string.key] = _ROLES.get(role, role)
    return found
