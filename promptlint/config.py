"""Settings from `promptlint.toml` or `[tool.promptlint]` in `pyproject.toml`, and the JSON schema that describes them.

Each setting is a field of `Settings`; its metadata holds the type that the file must give, what it means, and its choices. The reader, its
error messages and the published schema (`promptlint/schemas/config.json`) all come from these fields.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from promptlint.errors import UserError
from promptlint.finding import PERSONAS, SEVERITIES

__all__ = [
    "CONFIDENCES",
    "FORMATS",
    "PROFILES",
    "Settings",
    "find_config",
    "json_schema",
    "load_settings",
    "read_config",
]

CONFIDENCES = ("low", "medium", "high")
FORMATS = ("full", "concise", "json", "json-lines", "github", "gitlab", "junit", "sarif", "rdjson", "markdown", "html")
PROFILES = ("low", "typical", "high")
FILES = ("promptlint.toml", "pyproject.toml")


def _option(kind: str, about: str, *, default: Any = MISSING, choices: tuple[str, ...] = ()) -> Any:
    """A setting. `kind`: string, boolean, strings, table (glob to list of rules) or path."""
    metadata = {"kind": kind, "about": about, "choices": choices}
    if default is MISSING:
        default = {"strings": (), "table": ()}.get(kind)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run was asked for. Paths are absolute; `source` is the file that the settings came from, None without one."""

    root: Path
    source: Path | None = None
    select: tuple[str, ...] = _option("strings", "Rules or categories to run; empty means all.")
    extend_select: tuple[str, ...] = _option("strings", "Rules or categories to run on top of `select`.")
    ignore: tuple[str, ...] = _option("strings", "Rules or categories not to run.")
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = _option(
        "table", "Rules or categories to leave out in files that match a pattern."
    )
    persona: str = _option(
        "string", "Who reads: regular sees what to act on, auditor everything.", default="regular", choices=PERSONAS
    )
    min_confidence: str | None = _option(
        "string", "Least confidence shown; medium, or low under auditor.", choices=CONFIDENCES
    )
    fail_on: str = _option("string", "Least severity that makes the exit status 1.", default="low", choices=SEVERITIES)
    output_format: str = _option("string", "How findings are written.", default="full", choices=FORMATS)
    include: tuple[str, ...] = _option("strings", "Patterns of further prompt files to read on their own.")
    extend_include: tuple[str, ...] = _option("strings", "More patterns, on top of `include`.")
    exclude: tuple[str, ...] = _option("strings", "Patterns of files and folders to leave out.")
    extend_exclude: tuple[str, ...] = _option("strings", "More patterns, on top of `exclude`.")
    force_exclude: bool = _option("boolean", "Leave out what is excluded even when it is named.", default=False)
    respect_gitignore: bool = _option("boolean", "Leave out what .gitignore ignores.", default=True)
    tests: bool = _option("boolean", "Read test files too.", default=False)
    extra_rules: tuple[Path, ...] = _option("path", "Folders with your own rule pages and library models.", default=())
    profile: str = _option("string", "Traffic assumed where there is no log.", default="typical", choices=PROFILES)
    tokenizer: str | None = _option(
        "string", "Encoding that counts every call site; by default that of its model.", default=None
    )
    chat_template: Path | None = _option(  # noqa: RUF009
        "path",
        "Chat template, or a model's folder with one, by which call sites without a known provider are rendered.",
    )
    cache_dir: Path | None = _option("path", "Where reports are kept; .promptlint_cache at the root by default.")  # noqa: RUF009

    @property
    def confidence(self) -> str:
        """The least confidence that is shown."""
        return self.min_confidence or ("low" if self.persona == "auditor" else "medium")


def options() -> list[Field[Any]]:
    """The fields that a configuration file may set."""
    return [item for item in fields(Settings) if "kind" in item.metadata]


def key_of(item: Field[Any]) -> str:
    """How a field is spelled in a file and on the command line."""
    return item.name.replace("_", "-")


def find_config(root: Path) -> Path | None:
    """The configuration file of a project root: promptlint.toml, else a pyproject.toml that has our table."""
    own, shared = (root / name for name in FILES)
    if own.is_file():
        return own
    if shared.is_file() and "promptlint" in _tool_table(_parse(shared)):
        return shared
    return None


def load_settings(root: Path, config: Path | None = None, *, isolated: bool = False) -> Settings:
    """Settings of a project. `config` replaces the search; `isolated` ignores every file. Raises UserError with the place of the fault."""
    source = None if isolated else (config or find_config(root))
    if source is None:
        return Settings(root)
    return read_config(source, root)


def read_config(path: Path, root: Path) -> Settings:
    """Settings of one file. A pyproject.toml is read from `[tool.promptlint]`. Raises UserError naming file and line."""
    data = _parse(path)
    prefix: tuple[str, ...] = ()
    if path.name == "pyproject.toml":
        prefix = ("tool", "promptlint")
        data = _tool_table(data).get("promptlint", {})
        if not isinstance(data, dict):
            raise UserError(f"{_place(path, prefix)}: must be a table")
    known = {key_of(item): item for item in options()}
    values: dict[str, Any] = {}
    for key, value in data.items():
        item = known.get(key)
        if item is None:
            near = difflib.get_close_matches(key.replace("_", "-"), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
            raise UserError(f"{_place(path, (*prefix, key))}: unknown setting {key!r}{hint}")
        try:
            values[item.name] = _convert(item, value, path.parent)
        except ValueError as error:
            raise UserError(f"{_place(path, (*prefix, key))}: {key}: {error}") from None
    return Settings(root, path, **values)


def _convert(item: Field[Any], value: Any, base: Path) -> Any:
    """The value as the field wants it. Raises ValueError with what was expected."""
    kind = item.metadata["kind"]
    choices = item.metadata["choices"]
    if kind == "boolean":
        return _typed(value, bool, "true or false")
    if kind == "strings":
        return _strings(value)
    if kind == "table":
        table = _typed(value, dict, "a table of patterns, each with a list of rules")
        return tuple((pattern, _strings(rules)) for pattern, rules in table.items())
    if kind == "path" and item.name == "extra_rules":
        return tuple(base / entry for entry in _strings(value))
    text = _typed(value, str, "a string")
    if kind == "path":
        return base / text
    if choices and text not in choices:
        near = difflib.get_close_matches(text, choices, n=1)
        raise ValueError(f"{text!r} is none of {', '.join(choices)}" + (f"; did you mean {near[0]!r}?" if near else ""))
    return text


def _typed(value: Any, kind: type, words: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"must be {words}, not {_toml_word(value)}")  # noqa: TRY004  # the caller turns ValueError into a place
    return value


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ValueError("must be a list of strings")
    return tuple(value)


def _toml_word(value: Any) -> str:
    words = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "a table"}
    return words.get(type(value), "that")


def _tool_table(data: dict[str, Any]) -> dict[str, Any]:
    tool = data.get("tool", {})
    return tool if isinstance(tool, dict) else {}


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not valid UTF-8 text") from error
    try:
        return tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # TOML that is broken, a number of thousands of digits, or deep nesting
        # The message ends with "(at line 2, column 5)" or "(at end of document)"; Python 3.14 has attributes for it.
        what, _, where = str(error).rpartition(" (at ")
        words = where.rstrip(")").split()
        line = words[1].rstrip(",") if words[:1] == ["line"] else str(max(len(text.splitlines()), 1))
        raise UserError(f"{path}:{line}: not valid TOML: {what or error}") from error


def _place(path: Path, keys: tuple[str, ...]) -> str:
    """`file:line` of a key. tomllib keeps no positions; the line is where the parsed head of the file first holds the key."""
    lines = path.read_text("utf-8-sig").splitlines()
    start = 0  # first line of the statement that is being read
    for end in range(1, len(lines) + 1):
        try:
            data: Any = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue  # inside a value of several lines
        for key in keys:
            data = data.get(key) if isinstance(data, dict) else None
        if data is not None:
            return f"{path}:{start + 1}"
        start = end
    return str(path)


def json_schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of promptlint.toml and of `[tool.promptlint]`, generated from the fields of `Settings`."""
    rules = {"type": "array", "items": {"type": "string"}}
    properties: dict[str, Any] = {}
    for item in options():
        kind = item.metadata["kind"]
        entry: dict[str, Any] = {"description": item.metadata["about"]}
        if kind == "boolean":
            entry["type"] = "boolean"
        elif kind == "strings" or item.name == "extra_rules":
            entry |= rules
        elif kind == "table":
            entry |= {"type": "object", "additionalProperties": rules}
        else:
            entry["type"] = "string"
        if item.metadata["choices"]:
            entry["enum"] = list(item.metadata["choices"])
        if isinstance(item.default, str | bool):
            entry["default"] = item.default
        properties[key_of(item)] = entry
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "promptlint configuration",
        "description": "promptlint.toml, or the table [tool.promptlint] of pyproject.toml",
        "type": "object",
        "properties": dict(sorted(properties.items())),
        "additionalProperties": False,
    }
