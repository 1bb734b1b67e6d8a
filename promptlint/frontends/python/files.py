"""Files that the analysed program reads: paths are followed, and the text of a file of the project enters with its own places.

Nothing is read outside the project. A path that is not known gives a value by its name.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

from promptlint.frontends import scalars
from promptlint.frontends.python.core import Arguments
from promptlint.frontends.python.library import Library
from promptlint.frontends.python.text import static_text
from promptlint.frontends.python.values import (
    Dict,
    Elem,
    Entry,
    Frame,
    Lib,
    List,
    ModuleValue,
    Place,
    Str,
    Template,
    Value,
)
from promptlint.ir import Text
from promptlint.source import SourceFile, Span

__all__ = ["Files"]

_PATHS = frozenset(
    {
        "pathlib.Path",
        "pathlib.PurePath",
        "anyio.Path",
        "os.path.abspath",
        "os.path.realpath",
        "os.path.normpath",
        "os.path.expanduser",
        "str",
        "os.fspath",
    }
)
_OPENERS = frozenset({"open", "io.open", "codecs.open", "aiofiles.open"})
_LOADERS = frozenset(
    {
        "yaml.safe_load",
        "yaml.load",
        "yaml.full_load",
        "json.load",
        "json.loads",
        "ruamel.yaml.safe_load",
        "orjson.loads",
        "ujson.loads",
        "tomllib.load",
        "tomllib.loads",
        "tomli.load",
        "tomli.loads",
        "toml.load",
        "toml.loads",
    }
)
_FOLDERS = frozenset(
    {
        "jinja2.FileSystemLoader",
        "jinja2.loaders.FileSystemLoader",
        "jinja2.PackageLoader",
        "jinja2.loaders.PackageLoader",
    }
)
_ENVIRONMENTS = frozenset(
    {
        "jinja2.Environment",
        "jinja2.sandbox.SandboxedEnvironment",
        "jinja2.sandbox.ImmutableSandboxedEnvironment",
        "jinja2.nativetypes.NativeEnvironment",
    }
)
_READS = frozenset({"read_text", "read", "read_bytes", "readlines", "aread"})


class Files(Library):
    """Paths, opened files, and what loaders make of them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._texts: dict[Path, Str | None] = {}
        self._loaded: dict[Path, Value | None] = {}
        self.loaded_paths: set[Path] = set()

    def lookup(self, name: str, frame: Frame) -> Value | None:
        """A name; `__file__` is the module's path."""
        if name == "__file__":
            return Place(frame.module.path)
        return super().lookup(name, frame)

    def attribute(self, value: Value, name: str, node: ast.AST, frame: Frame) -> Value:
        """An attribute; those of a path are paths."""
        if isinstance(value, Place) and not value.opened:
            if name == "parent":
                return Place(value.path.parent)
            if name in {"name", "stem", "suffix"}:
                return self._fixed(str(getattr(value.path, name)), self.span_of(node, frame))
            if name == "parents":
                return List(
                    tuple(Elem(Place(parent), self.span_of(node, frame)) for parent in list(value.path.parents)[:12]),
                    self.span_of(node, frame),
                )
        return super().attribute(value, name, node, frame)

    def _fixed(self, text: str, span: Span) -> Str:
        return Str((Text(text, span.inexact()),) if text else ())

    def path_of(self, value: Value | None, frame: Frame) -> Path | None:
        """The path that a value spells, None when it is not known."""
        if isinstance(value, Place):
            return value.path
        if isinstance(value, Str):
            text = static_text(value.segments)
            if text and len(text) < 400 and "\n" not in text:
                return Path(text)
        return None

    def set_or_pipe(self, node: ast.BinOp, left: Value, right: Value, frame: Frame) -> Value | None:
        """`folder / name`."""
        if isinstance(node.op, ast.Div) and isinstance(left, Place):
            tail = self.path_of(right, frame)
            return Place(left.path / tail) if tail is not None else None
        return None

    def call_library(self, callee: Lib, arguments: Arguments, node: ast.Call, frame: Frame) -> Value:
        """A call of a library; those about files are computed."""
        first = arguments.positional[0] if arguments.positional else None
        path = callee.path
        if path in _PATHS and isinstance(first, Place | Str) and (path != "str" or isinstance(first, Place)):
            found = self.path_of(first, frame)
            if found is not None:
                for more in arguments.positional[1:]:
                    tail = self.path_of(more, frame)
                    if tail is None:
                        return super().call_library(callee, arguments, node, frame)
                    found = found / tail
                return Place(found)
        if path in {"os.path.join", "os.path.dirname", "os.path.basename"} and first is not None:
            parts = [self.path_of(value, frame) for value in arguments.positional]
            if all(part is not None for part in parts):
                if path == "os.path.dirname":
                    return Place(parts[0].parent)  # type: ignore[union-attr]
                if path == "os.path.join":
                    return Place(Path(*[part for part in parts if part is not None]))
        if path in _OPENERS and first is not None:
            found = self.path_of(first, frame)
            if found is not None and self.resolve(found, frame) is not None:
                return Place(found, opened=True)
        if path in _LOADERS and first is not None:
            loaded = self._load(first, frame)
            if loaded is not None:
                return loaded
        if path in {"importlib.resources.files", "importlib_resources.files"} and first is not None:
            folder = self._package_folder(first, frame)
            if folder is not None:
                return Place(folder)
        if (
            path in {"importlib.resources.read_text", "pkgutil.get_data", "importlib.resources.open_text"}
            and len(arguments.positional) > 1
        ):
            folder = self._package_folder(arguments.positional[0], frame)
            name = self.path_of(arguments.positional[1], frame)
            if folder is not None and name is not None:
                text = self.text_of_file(folder / name, frame)
                if text is not None:
                    return text
        if path in _FOLDERS:
            found = self._template_folder(path, arguments, frame)
            if found is not None:
                return Place(found)
        if path in _ENVIRONMENTS:
            loader = arguments.keywords.get("loader", first)
            return Place(loader.path if isinstance(loader, Place) else frame.module.path.parent, environment=True)
        return super().call_library(callee, arguments, node, frame)

    def _template_folder(self, path: str, arguments: Arguments, frame: Frame) -> Path | None:
        first = arguments.positional[0] if arguments.positional else arguments.keywords.get("searchpath")
        if isinstance(first, List):
            plain = first.plain()
            first = plain[0] if plain else None
        if path.endswith("PackageLoader"):
            folder = self._package_folder(first, frame) if first is not None else None
            inner = self.path_of(arguments.get(1, "package_path"), frame) or Path("templates")
            return folder / inner if folder is not None else None
        return self.path_of(first, frame)

    def _package_folder(self, value: Value, frame: Frame) -> Path | None:
        if isinstance(value, ModuleValue):
            return value.module.path.parent
        name = self.text_of(value)
        if name is None and isinstance(value, Lib) and value.path.startswith("<folder>"):
            return Path(value.path.removeprefix("<folder>"))
        found = self.index.find(name, frame.module.path) if name else None
        return (found.parent if found.name == "__init__.py" else found) if found is not None else None

    def call_place(self, place: Place, name: str, arguments: Arguments, node: ast.Call, frame: Frame) -> Value | None:
        """A method of a path, an opened file or a template environment."""
        first = arguments.positional[0] if arguments.positional else None
        if place.environment:
            if name == "from_string" and first is not None:
                return Template(
                    first,
                    "jinja2",
                    (),
                    None,
                    ("render", "render_async"),
                    (),
                    False,
                    self.span_of(node, frame),
                    str(place.path),
                )
            if name in {"get_template", "select_template"}:
                tail = self.path_of(first, frame)
                text = self.text_of_file(place.path / tail, frame) if tail is not None else None
                if text is not None:
                    return Template(
                        text,
                        "jinja2",
                        (),
                        None,
                        ("render", "render_async"),
                        (),
                        False,
                        self.span_of(node, frame),
                        str(place.path),
                    )
            return None
        if name in _READS:
            return self.text_of_file(place.path, frame)
        if name in {"resolve", "absolute", "expanduser"}:
            return place
        if name == "open":
            return Place(place.path, opened=True)
        if name in {"joinpath", "with_name", "with_suffix", "__truediv__"} and first is not None:
            tails = [self.path_of(value, frame) for value in arguments.positional]
            if any(tail is None for tail in tails):
                return None
            if name == "with_name":
                return Place(place.path.with_name(str(tails[0])))
            if name == "with_suffix":
                return Place(place.path.with_suffix(str(tails[0])))
            return Place(place.path.joinpath(*[tail for tail in tails if tail is not None]))
        return None

    def resolve(self, path: Path, frame: Frame) -> Path | None:
        """The project file that a path means: as it is, beside the module, or below the project's root."""
        root = self.project.root
        candidates = (
            [path]
            if path.is_absolute()
            else [root / path, frame.module.path.parent / path, frame.module.path.parent.parent / path]
        )
        for candidate in candidates:
            clean = Path(os.path.normpath(candidate))
            if (clean == root or root in clean.parents) and clean.is_file():
                return clean
        return None

    def text_of_file(self, path: Path, frame: Frame) -> Str | None:
        """The text of a project file, with its own places; None when it is not there."""
        found = self.resolve(path, frame)
        if found is None:
            return None
        self.note(("file", self.project.display(found)))
        if found not in self._texts:
            source = self.project.source(found)
            self._texts[found] = self._whole(source) if source is not None else None
            self.loaded_paths.add(found)
        return self._texts[found]

    def _whole(self, source: SourceFile) -> Str:
        return Str((self.texts.literal(source.text, source.map()),)) if source.text else Str(())

    def _load(self, value: Value, frame: Frame) -> Value | None:
        """The strings of a YAML, JSON or TOML file as dicts and lists; other values in it are left out."""
        path = value.path if isinstance(value, Place) else None
        if path is None and isinstance(value, Str) and len(value.segments) == 1 and isinstance(value.segments[0], Text):
            span = value.segments[0].span
            path = next(
                (
                    one
                    for one, text in self._texts.items()
                    if text is not None and text.segments and text.segments[0].span == span
                ),
                None,
            )
        found = self.resolve(path, frame) if path is not None else None
        if found is None:
            return None
        self.note(("file", self.project.display(found)))
        if found not in self._loaded:
            source = self.project.source(found)
            self.loaded_paths.add(found)
            self._loaded[found] = self._structure_of(source, found) if source is not None else None
        return self._loaded[found]

    def _structure_of(self, source: SourceFile, path: Path) -> Value | None:
        try:
            readers = {".json": scalars.json_strings, ".toml": scalars.toml_strings}
            strings = readers.get(path.suffix, scalars.yaml_strings)(source)
        except scalars.BrokenDataError:
            return None
        top: dict[Any, Any] = {}
        whole = source.span(0, len(source.text), exact=False)
        for scalar in strings:
            level = top
            for key in scalar.key[:-1]:
                level = level.setdefault(key, {})
                if not isinstance(level, dict):
                    break
            if isinstance(level, dict) and scalar.key:
                level[scalar.key[-1]] = (
                    Str((self.texts.literal(scalar.value, scalar.where),)) if scalar.value else Str(())
                )
        return self._built(top, whole, path)

    def _built(self, value: Any, span: Span, path: Path) -> Value:
        if not isinstance(value, dict):
            found: Value = value
            return found
        if value and all(isinstance(key, int) for key in value):
            return List(tuple(Elem(self._built(one, span, path), span) for one in value.values()), span)
        rest = self.setting(path.stem, span, None)
        return Dict(
            tuple(Entry(str(key), self._built(one, span, path), span) for key, one in value.items()), span, rest
        )
