"""The project's modules: which file a name refers to, and what each file defines.

Files are parsed when something needs them. One walk over a parsed file notes its functions, classes, top-level bindings and the calls and literals
that may be roots; nothing here evaluates.
"""

from __future__ import annotations

import ast
import copy
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from promptlint.frontends.base import Project
from promptlint.frontends.python.known import Known
from promptlint.frontends.python.nodes import SHAPES, shape
from promptlint.ir import Unread
from promptlint.source import SourceFile, Span

__all__ = ["ClassInfo", "FunctionInfo", "Index", "Module", "Unit", "Write"]

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

Unit = tuple[str, str, str]
"""A part of the project that changes as a whole: what it is (function, class, ...), the printed path of its file, and its name there, which stays the same while other parts of the file change."""


@dataclass(slots=True, eq=False)
class FunctionInfo:
    """A function, method or lambda of the project."""

    module: Module
    node: FunctionNode
    name: str
    qualname: str
    cls: ClassInfo | None = None
    outer: FunctionInfo | None = None
    decorators: tuple[str, ...] = ()  # last names, as written
    unit: Unit = ("function", "", "")

    @property
    def lines(self) -> tuple[int, int]:
        """First and last line, decorators left out."""
        return self.node.lineno, self.node.end_lineno or self.node.lineno

    @property
    def is_generator(self) -> bool:
        """Whether the body yields."""
        return id(self.node) in self.module.generators


@dataclass(slots=True, eq=False)
class Write:
    """A statement that writes `self.NAME`, or calls a changing method on it."""

    function: FunctionInfo
    node: ast.AST
    how: str  # assign, augment, append, other


@dataclass(slots=True, eq=False)
class ClassInfo:
    """A class of the project. `attributes` are class-level bindings, `annotations` declared fields in order."""

    module: Module
    node: ast.ClassDef
    name: str
    qualname: str
    outer: FunctionInfo | None = None
    methods: dict[str, FunctionInfo] = field(default_factory=dict)
    attributes: dict[str, ast.expr] = field(default_factory=dict)
    annotations: dict[str, ast.expr] = field(default_factory=dict)
    writes: dict[str, list[Write]] = field(default_factory=dict)
    unit: Unit = ("class", "", "")


@dataclass(slots=True)
class CallPlace:
    """A call in a file, with the function around it."""

    node: ast.Call
    function: FunctionInfo | None


@dataclass(slots=True, eq=False)
class Module:
    """One parsed file."""

    path: Path
    name: str
    source: SourceFile
    tree: ast.Module
    is_package: bool
    functions: list[FunctionInfo] = field(default_factory=list)
    by_node: dict[int, FunctionInfo] = field(default_factory=dict)
    classes: dict[int, ClassInfo] = field(default_factory=dict)
    bindings: dict[str, list[ast.stmt]] = field(default_factory=dict)
    calls: dict[str, list[CallPlace]] = field(default_factory=dict)
    literals: list[tuple[ast.expr, FunctionInfo | None, bool]] = field(
        default_factory=list
    )  # long texts; True: a docstring
    roles: list[tuple[ast.Dict, FunctionInfo | None]] = field(default_factory=list)
    mentions: dict[str, set[FunctionInfo | None]] = field(default_factory=dict)  # UPPER names and attributes
    generators: set[int] = field(default_factory=set)
    ascii: bool = True
    stars: list[ast.ImportFrom] | None = None
    newer: bool = False  # read by `newer_syntax`: f-strings stand in the tree as plain literals
    trusted: bool = True  # columns of the parser may be used

    @property
    def units(self) -> dict[Unit, FunctionInfo | ClassInfo]:
        """The functions and classes."""
        known: list[FunctionInfo | ClassInfo] = [*self.functions, *self.classes.values()]
        return {info.unit: info for info in known}

    def column(self, line: int, offset: int) -> int:
        """1-based column in characters from the parser's 0-based column in UTF-8 bytes."""
        if self.ascii:
            return offset + 1
        starts = self.source.starts
        begin = starts[line - 1]
        end = starts[line] if line < len(starts) else len(self.source.text)
        text = self.source.text[begin:end]
        if text.isascii():
            return offset + 1
        return len(text.encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "replace")) + 1

    def span(self, node: ast.AST) -> Span:
        """Place of a node; exact in the sense that the source there spells the node. Kept on the node, since it is asked for often."""
        found: Span | None = node.__dict__.get("_span")
        if found is not None:
            return found
        line = node.lineno  # type: ignore[attr-defined]
        end = node.end_lineno  # type: ignore[attr-defined]
        found = node._span = Span(  # type: ignore[attr-defined]
            self.source.path,
            line,
            self.column(line, node.col_offset),  # type: ignore[attr-defined]
            end,
            self.column(end, node.end_col_offset),  # type: ignore[attr-defined]
        )
        return found

    def text(self, node: ast.AST, limit: int = 200) -> str:
        """Source of a node, in one line and shortened where it is long."""
        value: str | None = node.__dict__.get("_text")
        if value is None:
            value = self.source.slice(self.span(node))
            if "\n" in value:
                value = " ".join(value.split())
            if len(value) > limit:
                value = value[: limit - 1] + "…"
            node._text = value  # type: ignore[attr-defined]
        return value


LONG_TEXT = 160  # characters from which a literal may be a prompt of its own


class Index:
    """Finds and parses the files of a project.

    `sibling` makes another view of the same files. What a view answers depends on what was asked of it alone, so that the parts of a project
    may be read in one process or in several.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self._read: dict[Path, tuple[Module | None, tuple[Unread, ...]]] = {}  # shared by all views
        self.files = {path: None for path in project.files if path.suffix in {".py", ".pyi"} and path.suffix == ".py"}
        self._directories = {parent for path in self.files for parent in (path.parent,)}
        self._packages = {path.parent for path in self.files if path.name == "__init__.py"}
        for directory in list(self._directories):
            for parent in directory.parents:
                if parent in self._directories or parent == project.root.parent:
                    break
                self._directories.add(parent)
        self._resolved: dict[tuple[Path, str], Path | None] = {}
        self._reset()

    def _reset(self) -> None:
        self._modules: dict[Path, Module | None] = {}
        self.asked: list[Path] = []  # every file that the current step asked for, again and again
        self.unread: list[Unread] = []
        self.known = Known()
        self._named: dict[str, list[FunctionInfo]] = {}
        self._named_at = 0
        self._units: dict[str, Module] = {}

    def sibling(self) -> Index:
        """A view of the same files that knows nothing yet; a file that one of them has parsed is not parsed again."""
        other = copy.copy(self)
        other._reset()
        return other

    def take_over(self, known: Index) -> None:
        """Keep the trees of an earlier index whose files have the very same source here."""
        for path, (module, unread) in known._read.items():
            if module is not None and path in self.files and self.project.source(path) is module.source:
                self._read[path] = (module, unread)
        if known.files.keys() == self.files.keys():
            self._resolved = known._resolved

    def has_asked(self, path: Path) -> bool:
        """Whether this view was asked for a file."""
        return path in self._modules

    @property
    def asked_files(self) -> list[Path]:
        """The files that this view was asked for, in order."""
        return list(self._modules)

    def tree(self, path: Path) -> Module | None:
        """A parsed file, although nobody asks for it."""
        if path not in self._read:
            self._read[path] = self._parse(path)
        return self._read[path][0]

    def unit(self, unit: Unit) -> FunctionInfo | ClassInfo | None:
        """A function or class of the parsed files by its unit."""
        if len(self._units) < len(self._modules):
            self._units = {module.source.path: module for module in self.parsed}
        module = self._units.get(unit[1])
        return module.units.get(unit) if module is not None else None

    # ---- names of modules

    def module_name(self, path: Path) -> str:
        """Dotted name below the innermost folder that is no package."""
        parts = [] if path.name == "__init__.py" else [path.stem]
        directory = path.parent
        while directory in self._packages:
            parts.append(directory.name)
            directory = directory.parent
        return ".".join(reversed(parts)) or path.stem

    def find(self, name: str, importer: Path) -> Path | None:
        """The file or package folder that an absolute import means, seen from a file: folders that can be on the path, innermost first."""
        directory = importer.parent
        while directory in self._packages:
            directory = directory.parent
        key = (directory, name)
        if key not in self._resolved:
            self._resolved[key] = self._find(name, directory)
        return self._resolved[key]

    def _find(self, name: str, directory: Path) -> Path | None:
        parts = name.split(".")
        root = self.project.root
        places = [directory, *directory.parents]
        for place in places:
            if place not in self._packages:
                found = self._below(place, parts)
                if found is not None:
                    return found
                found = self._below(place / "src", parts) if place / "src" in self._directories else None
                if found is not None:
                    return found
            if place == root or root not in place.parents:
                break
        for place in self._roots():
            found = self._below(place, parts)
            if found is not None:
                return found
        return None

    def _roots(self) -> list[Path]:
        """Folders that hold a top-level package: other distributions of the same project are found there."""
        if not hasattr(self, "_root_list"):
            roots = {package.parent for package in self._packages if package.parent not in self._packages}
            self._root_list = sorted(roots, key=lambda path: (len(path.parts), str(path)))
        return self._root_list

    def _below(self, place: Path, parts: list[str]) -> Path | None:
        target = place.joinpath(*parts)
        init = target / "__init__.py"
        if init in self.files:
            return init
        file = target.with_name(target.name + ".py")
        if file in self.files:
            return file
        # A folder without __init__ is a namespace package, but only below the first component, or everything would be one.
        return target if target in self._directories and (len(parts) > 1 or place == self.project.root) else None

    def relative(self, importer: Path, level: int, name: str | None) -> Path | None:
        """The file that a relative import means."""
        directory = importer.parent
        for _ in range(level - 1):
            directory = directory.parent
        if not name:
            init = directory / "__init__.py"
            return init if init in self.files else (directory if directory in self._directories else None)
        target = directory.joinpath(*name.split("."))
        if target / "__init__.py" in self.files:
            return target / "__init__.py"
        file = target.with_name(target.name + ".py")
        if file in self.files:
            return file
        return target if target in self._directories else None

    # ---- files

    def module(self, path: Path) -> Module | None:
        """The parsed file, or None with an entry in `unread`."""
        self.asked.append(path)
        if path not in self._modules:
            if path not in self._read:
                self._read[path] = self._parse(path)
            self._modules[path], unread = self._read[path]
            self.unread.extend(unread)
        return self._modules[path]

    def functions_named(self, name: str) -> list[FunctionInfo]:
        """Functions and methods of the parsed files with a name."""
        if self._named_at < len(self._modules):
            for module in itertools.islice(self._modules.values(), self._named_at, None):
                for info in module.functions if module is not None else ():
                    self._named.setdefault(info.name, []).append(info)
            self._named_at = len(self._modules)
        return self._named.get(name, [])

    @property
    def parsed(self) -> list[Module]:
        """Modules that were parsed so far."""
        return [module for module in self._modules.values() if module is not None]

    def _parse(self, path: Path) -> tuple[Module | None, tuple[Unread, ...]]:
        source = self.project.source(path) if path in self.files else None
        if source is None:
            return None, ()
        newer = False
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(source.text)
        except SyntaxError as error:
            from promptlint.frontends.python.newer_syntax import parse_newer

            converted = parse_newer(source.text)
            if converted is None:
                return None, (Unread(source.path, error.lineno or 1, f"cannot be parsed: {error.msg}"),)
            tree = converted
            newer = True
        except (ValueError, RecursionError, MemoryError) as error:
            return None, (Unread(source.path, 1, f"cannot be parsed: {type(error).__name__}"),)
        module = Module(
            path,
            self.module_name(path),
            source,
            tree,
            path.name == "__init__.py",
            ascii=source.text.isascii(),
            newer=newer,
        )
        try:
            _Walk(module).run()
        except RecursionError:
            return None, (Unread(source.path, 1, "nested too deeply"),)
        return module, ()


_CHANGING = frozenset(
    {"append", "extend", "insert", "pop", "clear", "remove", "reverse", "sort", "update", "setdefault", "add"}
)


class _Walk:
    """One pass over a file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.numbers: Counter[tuple[str, str]] = Counter()

    def run(self) -> None:
        self._bindings(self.module.tree.body)
        self._walk(self.module.tree, None, None)

    def _bindings(self, body: list[ast.stmt]) -> None:
        bindings = self.module.bindings
        for statement in body:
            for name in bound_names(statement):
                bindings.setdefault(name, []).append(statement)

    def _walk(self, root: ast.AST, function: FunctionInfo | None, cls: ClassInfo | None) -> None:
        module = self.module
        stack: list[tuple[ast.AST, FunctionInfo | None, ClassInfo | None]] = [(root, function, cls)]
        calls, literals, mentions = module.calls, module.literals, module.mentions
        while stack:
            node, function, cls = stack.pop()
            kind = type(node)
            if kind is ast.Expr and type(node.value) is ast.Constant:  # type: ignore[attr-defined]
                continue  # a docstring of a class or module, or a text that is thrown away
            if kind is ast.Name:
                name = node.id  # type: ignore[attr-defined]
                if name.isupper() and len(name) > 3:
                    mentions.setdefault(name, set()).add(function)
                continue
            if kind is ast.Constant:
                value = node.value  # type: ignore[attr-defined]
                if type(value) is str and len(value) >= LONG_TEXT:
                    literals.append((node, function, False))  # type: ignore[arg-type]
                continue
            if kind is ast.Attribute:
                name = node.attr  # type: ignore[attr-defined]
                if name.isupper() and len(name) > 3:
                    mentions.setdefault(name, set()).add(function)
            elif kind is ast.Call:
                target = node.func  # type: ignore[attr-defined]
                name = target.attr if type(target) is ast.Attribute else target.id if type(target) is ast.Name else ""
                if name:
                    calls.setdefault(name, []).append(CallPlace(node, function))  # type: ignore[arg-type]
                if cls is not None and function is not None and name in _CHANGING and type(target) is ast.Attribute:
                    how = "append" if name in {"append", "extend", "add"} else "other"
                    self._write(cls, function, target.value, node, how)
            elif kind is ast.JoinedStr:
                if _size(node) >= LONG_TEXT:  # type: ignore[arg-type]
                    literals.append((node, function, False))  # type: ignore[arg-type]
                stack.extend((part, function, cls) for part in node.values if type(part) is not ast.Constant)  # type: ignore[attr-defined]
                continue
            elif kind is ast.Dict:
                if _is_role_dict(node):  # type: ignore[arg-type]
                    module.roles.append((node, function))  # type: ignore[arg-type]
            elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef or kind is ast.Lambda:
                info = self._function(node, function, cls)  # type: ignore[arg-type]
                inner_cls = cls if function is None or info.cls is not None else None
                self._enter_function(node, info, function, inner_cls, stack)
                continue
            elif kind is ast.ClassDef:
                info_cls = self._class(node, function, cls)  # type: ignore[arg-type]
                for decorator in node.decorator_list:  # type: ignore[attr-defined]
                    stack.append((decorator, function, cls))
                stack.extend((statement, None, info_cls) for statement in reversed(node.body))  # type: ignore[attr-defined]
                continue
            elif kind is ast.Yield or kind is ast.YieldFrom:
                if function is not None:
                    module.generators.add(id(function.node))
            elif cls is not None and function is not None:
                if kind is ast.Assign:
                    for target in node.targets:  # type: ignore[attr-defined]
                        for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                            self._write(cls, function, one, node, "assign")
                elif kind is ast.AnnAssign and node.value is not None:  # type: ignore[attr-defined]
                    self._write(cls, function, node.target, node, "assign")  # type: ignore[attr-defined]
                elif kind is ast.AugAssign:
                    self._write(cls, function, node.target, node, "augment")  # type: ignore[attr-defined]
            for name, many in SHAPES.get(kind) or shape(kind):
                child = getattr(node, name, None)
                if not child:
                    continue
                if many:
                    stack += [(item, function, cls) for item in reversed(child) if item is not None]
                else:
                    stack.append((child, function, cls))

    def _write(self, cls: ClassInfo, function: FunctionInfo, target: ast.AST, node: ast.AST, how: str) -> None:
        if type(target) is ast.Subscript:
            target, how = target.value, "other"
        if type(target) is ast.Attribute and type(target.value) is ast.Name and target.value.id in {"self", "cls"}:
            cls.writes.setdefault(target.attr, []).append(Write(function, node, how))

    def _function(self, node: FunctionNode, outer: FunctionInfo | None, cls: ClassInfo | None) -> FunctionInfo:
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        owner = cls if outer is None and not isinstance(node, ast.Lambda) else None
        if outer is not None:
            qualname = f"{outer.qualname}.{name}"
        elif cls is not None:
            qualname = f"{cls.qualname}.{name}"
        else:
            qualname = name
        decorators = (
            () if isinstance(node, ast.Lambda) else tuple(last_name(decorator) for decorator in node.decorator_list)
        )
        info = FunctionInfo(
            self.module, node, name, qualname, owner, outer, decorators, self._unit("function", qualname)
        )
        self.module.functions.append(info)
        self.module.by_node[id(node)] = info
        if owner is not None and not ({"setter", "deleter", "overload"} & set(decorators)):
            owner.methods[name] = info
        return info

    def _unit(self, kind: str, qualname: str) -> Unit:
        """Of several with one name, each gets its number."""
        number = self.numbers[kind, qualname]
        self.numbers[kind, qualname] += 1
        return kind, self.module.source.path, f"{qualname}#{number}" if number else qualname

    def _enter_function(
        self,
        node: ast.AST,
        info: FunctionInfo,
        outer: FunctionInfo | None,
        cls: ClassInfo | None,
        stack: list[tuple[ast.AST, FunctionInfo | None, ClassInfo | None]],
    ) -> None:
        arguments: ast.arguments = node.args  # type: ignore[attr-defined]
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                stack.append((default, outer, None))
        for decorator in getattr(node, "decorator_list", ()):
            stack.append((decorator, outer, None))
        body = node.body  # type: ignore[attr-defined]
        if isinstance(body, list):
            statements = body
            if statements and isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
                value = statements[0].value.value
                if isinstance(value, str) and len(value) >= LONG_TEXT:
                    self.module.literals.append((statements[0].value, info, True))
                statements = statements[1:]
            stack.extend((statement, info, cls) for statement in reversed(statements))
        else:
            stack.append((body, info, cls))

    def _class(self, node: ast.ClassDef, function: FunctionInfo | None, cls: ClassInfo | None) -> ClassInfo:
        outer = function.qualname + "." if function else cls.qualname + "." if cls else ""
        qualname = outer + node.name
        info = ClassInfo(self.module, node, node.name, qualname, function, unit=self._unit("class", qualname))
        self.module.classes[id(node)] = info
        for statement in node.body:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        info.attributes[target.id] = statement.value
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                info.annotations[statement.target.id] = statement.annotation
                if statement.value is not None:
                    info.attributes[statement.target.id] = statement.value
        return info


def _size(node: ast.JoinedStr) -> int:
    return sum(
        len(part.value) for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )


def _is_role_dict(node: ast.Dict) -> bool:
    keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
    return "role" in keys and ("content" in keys or "parts" in keys)


def last_name(node: ast.AST) -> str:
    """The last identifier of a (called) dotted name: `tool` of `@agents.tool(strict=True)`."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    return ""


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement at the top level binds or changes, those in its branches included."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or (alias.name if isinstance(statement, ast.ImportFrom) else alias.name.split(".")[0])
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _target_names(target)
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        if not (isinstance(statement, ast.AnnAssign) and statement.value is None):
            yield from _target_names(statement.target)
    elif isinstance(statement, ast.Expr):
        call = statement.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _CHANGING:
            yield from _target_names(call.func.value)
    elif isinstance(statement, ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try):
        if isinstance(statement, ast.If) and _is_main(statement.test):
            return
        if isinstance(statement, ast.For | ast.AsyncFor):
            yield from _target_names(statement.target)
        if isinstance(statement, ast.With | ast.AsyncWith):
            for item in statement.items:
                if item.optional_vars is not None:
                    yield from _target_names(item.optional_vars)
        seen = set()
        for part in ("body", "orelse", "finalbody"):
            for inner in getattr(statement, part, ()):
                for name in bound_names(inner):
                    if name not in seen:
                        seen.add(name)
                        yield name
        for handler in getattr(statement, "handlers", ()):
            for inner in handler.body:
                for name in bound_names(inner):
                    if name not in seen:
                        seen.add(name)
                        yield name


def _target_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _target_names(element)
    elif isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
        yield from _target_names(target.value)


def _is_main(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"
