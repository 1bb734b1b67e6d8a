"""The rows of rules/sdk against the packages that are installed: names resolve, arguments exist, positions are right.

A package that is absent is skipped with that reason. One that is installed but cannot be imported here (it needs a GPU stack, or a dependency is
missing) is read as source instead. Rows with `until` describe an older version and are left out; a callable that takes `**kwargs` is open, and
its arguments cannot be checked by name.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import tomllib
import typing
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from promptlint.catalog import rules_root

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("ignore")]  # the packages warn for themselves

FILES = sorted(path for path in (rules_root() / "sdk").glob("*.toml") if path.stem != "generic")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # or it asks the network for prices when it is imported


class Missing(Exception):
    """A name does not resolve."""


@dataclass(frozen=True)
class Shape:
    """What a callable takes: names without self, in order, and whether it takes any others."""

    names: tuple[str, ...]
    open: bool


def installed(name: str) -> bool:
    """Whether the top-level package of a dotted name is there, imported or not."""
    parts = name.split(".")
    try:
        spec = importlib.util.find_spec(parts[0])
        if spec is not None and spec.origin is None and len(parts) > 1:  # a namespace package: its part decides
            spec = importlib.util.find_spec(".".join(parts[:2]))
        return spec is not None
    except (ImportError, ValueError):
        return False


# ---- by import


@cache
def imported(module: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(module)
        except Exception:  # noqa: BLE001  whatever a foreign package raises when a dependency is missing
            return None


def resolve(dotted: str) -> Any:
    """The object of a dotted name; properties of classes are followed by their return type. None when nothing of it can be imported."""
    parts = dotted.split(".")
    value = imported(parts[0])
    if value is None and len(parts) > 1:  # a namespace package
        value = imported(".".join(parts[:2]))
        parts = parts[1:] if value is not None else parts
    if value is None:
        return None
    for index, part in enumerate(parts[1:], 1):
        if inspect.ismodule(value) and not _has(value, part, dotted):
            value = imported(f"{value.__name__}.{part}")
            if value is None:
                raise Missing(f"{dotted}: no {part}")
        else:
            value = _member(value, part, ".".join(parts[: index + 1]))
    return value


def _has(module: Any, part: str, dotted: str) -> bool:
    try:
        return hasattr(module, part)
    except ImportError as error:  # it is passed on from a package that is not installed
        raise Missing(f"{dotted}: {error}") from error


def _member(value: Any, part: str, dotted: str) -> Any:
    if inspect.isclass(value):
        found = inspect.getattr_static(value, part, None)
        getter = (
            getattr(found, "func", None) if type(found).__name__ == "cached_property" else getattr(found, "fget", None)
        )
        if getter is not None:
            hints = _hints(getter)
            if hints is typing.Self or getattr(hints, "__name__", "") == "Self":
                return value
            if inspect.isclass(hints):
                return hints
            raise Missing(f"{dotted}: {part} is a property without a class as its type")
        annotations = inspect.get_annotations(value)
        if found is None and part in annotations:
            return _annotated(value, part)
    try:
        return getattr(value, part)
    except AttributeError as error:
        raise Missing(f"{dotted}: no {part}") from error


def _hints(getter: Any) -> Any:
    try:
        return typing.get_type_hints(getter)["return"]
    except Exception:  # noqa: BLE001  names under TYPE_CHECKING
        module = importlib.import_module(getter.__module__)
        name = getattr(getter, "__annotations__", {}).get("return", "")
        if not isinstance(name, str):
            return name
        for owner in (module, *(imported(m) for m in _imported_modules(module, name))):
            if owner is not None and hasattr(owner, name):
                return getattr(owner, name)
        raise Missing(f"type {name} of {getter.__qualname__}") from None


def _imported_modules(module: Any, name: str) -> list[str]:
    tree = ast.parse(inspect.getsource(module))
    return [
        importlib.util.resolve_name("." * node.level + (node.module or ""), module.__package__)
        if node.level
        else node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names)
    ]


def _annotated(value: Any, part: str) -> Any:
    hint = inspect.get_annotations(value)[part]
    if inspect.isclass(hint):
        return hint
    name = str(hint).strip("'\"")  # an annotation within quotes, in a file whose annotations are texts anyway
    for module in _imported_modules(importlib.import_module(value.__module__), name):
        found = getattr(imported(module), name, None)
        if inspect.isclass(found):
            return found
    raise Missing(f"{value.__name__}.{part} is not a class")


def shape_of(value: Any, dotted: str) -> Shape:
    if inspect.isclass(value) and "__init__" in vars(value):
        value = value.__init__  # a metaclass may hide the constructor's own arguments
    if not callable(value):
        raise Missing(f"{dotted}: cannot be called")
    signature = inspect.signature(value)
    fields = (
        getattr(value, "model_fields", None) or getattr(getattr(value, "__self__", None), "model_fields", None) or {}
    )
    parameters = [p for p in signature.parameters.values() if p.name not in {"self", "cls"}]
    names = [p.name for p in parameters if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}]
    return Shape((*names, *fields), any(p.kind is p.VAR_KEYWORD for p in parameters))


# ---- by source


@cache
def tree_of(module: str) -> ast.Module | None:
    root = importlib.util.find_spec(module.split(".", maxsplit=1)[0])
    if root is None or not root.submodule_search_locations:
        return None
    base = Path(next(iter(root.submodule_search_locations))).joinpath(*module.split(".")[1:])
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return ast.parse(path.read_text("utf-8"))
    return None


def read_source(dotted: str, depth: int = 6) -> ast.AST:
    """The definition of a dotted name, through imports, in the source of an installed package."""
    parts = dotted.split(".")
    for size in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:size])
        tree = tree_of(module)
        if tree is not None:
            break
    else:
        raise Missing(f"{dotted}: no such module")
    node: ast.AST = tree
    for index, part in enumerate(parts[size:], size):
        found = _defined(node, part, module, depth)
        if isinstance(found, str):
            return read_source(".".join([found, *parts[index + 1 :]]), depth - 1)
        if found is None:
            raise Missing(f"{dotted}: no {part}")
        node = found
    return node


def _defined(node: ast.AST, name: str, module: str, depth: int) -> ast.AST | str | None:
    bases = []
    for inner in ast.walk(node) if isinstance(node, ast.Module) else getattr(node, "body", ()):
        if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == name:
            return inner
        if isinstance(inner, ast.ImportFrom) and depth:
            for alias in inner.names:
                if (alias.asname or alias.name) == name:
                    package = module if tree_is_package(module) else module.rpartition(".")[0]
                    for _ in range(inner.level - 1):
                        package = package.rpartition(".")[0]
                    origin = inner.module or ""
                    return f"{package}.{origin}.{alias.name}" if inner.level else f"{origin}.{alias.name}"
        if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call) and len(inner.value.args) == 2:
            target, call = inner.targets[0], inner.value
            if (
                isinstance(target, ast.Name)
                and target.id == name
                and all(isinstance(arg, ast.Constant) for arg in call.args)
            ):
                return ".".join(
                    str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)
                )  # LazyImport("module", "Name")
    if isinstance(node, ast.ClassDef):
        bases = [base for base in node.bases if isinstance(base, ast.Name)]
    for base in bases:
        try:
            parent = read_source(f"{module}.{base.id}", depth - 1)
            return _defined(parent, name, module, depth - 1)
        except Missing:
            continue
    return None


def tree_is_package(module: str) -> bool:
    spec = importlib.util.find_spec(module.split(".", maxsplit=1)[0])
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations))).joinpath(*module.split(".")[1:], "__init__.py").is_file()


def source_shape(node: ast.AST) -> Shape:
    if isinstance(node, ast.ClassDef):
        init = next(
            (inner for inner in node.body if isinstance(inner, ast.FunctionDef) and inner.name == "__init__"), None
        )
        if init is None:
            fields = [
                inner.target.id
                for inner in node.body
                if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
            ]
            return Shape(tuple(fields), open=bool(node.bases))
        node = init
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    names = [
        arg.arg
        for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if arg.arg not in {"self", "cls"}
    ]
    return Shape(tuple(names), node.args.kwarg is not None)


# ---- rows


def shape(dotted: str) -> Shape | None:
    """What a name takes; None when its package is not installed. Raises Missing."""
    if not installed(dotted):
        return None
    try:
        value = resolve(dotted)
    except Missing as missing:
        try:  # a part of the package that does not come in here
            return source_shape(read_source(dotted))
        except Missing:
            raise missing from None
    return shape_of(value, dotted) if value is not None else source_shape(read_source(dotted))


def rows(data: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in data.get(kind, ()) if "until" not in row]


def calls(row: dict[str, Any]) -> list[str]:
    return [row["call"]] if isinstance(row["call"], str) else list(row["call"])


def makers(data: dict[str, Any]) -> dict[str, list[str]]:
    return {
        row["type"]: [made.removesuffix("()") for made in row["made_by"] if "(" not in made.removesuffix("()")]
        for row in data.get("instance", ())
    }


def dotted_names(call: str, types: dict[str, list[str]], package: str) -> list[str]:
    """A call's full names: for a method of a type, on each class of the row's own package that makes one; one of them must fit."""
    head, _, rest = call.partition(".")
    if head not in types:
        return [call]
    classes = [made for made in types[head] if made.startswith(package + ".") and made.rsplit(".", 1)[-1][:1].isupper()]
    return [f"{made}.{rest}" for made in classes]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_rows_fit_the_installed_package(path: Path) -> None:
    data = tomllib.loads(path.read_text("utf-8"))
    package = data["package"]
    if not installed(package) or (package == "google.genai" and imported(package) is None):
        pytest.skip(f"{package} is not installed")
    types = makers(data)
    wrong: list[str] = []
    checked = 0
    for made in (made for names in types.values() for made in names if made.startswith(package)):
        try:
            checked += shape(made) is not None
        except Missing as error:
            wrong.append(str(error))
    for kind in ("sink", "message", "template", "option"):
        for row in rows(data, kind):
            for call in calls(row):
                names = [name for name in dotted_names(call, types, package) if name.startswith(package)]
                if not names:
                    continue
                checked += 1
                faults = [_faults(name, _arguments(row, kind)) for name in names]
                if all(faults):
                    wrong.extend(faults[0])
    if "service" in str(data):
        checked += _check_service(data, wrong)
    if checked == 0 and not wrong:
        pytest.skip(f"{package}: rows of older versions only")
    assert not wrong, "\n".join(wrong)


def _faults(name: str, wanted: dict[str, int | None]) -> list[str]:
    try:
        found = shape(name)
    except Missing as error:
        return [str(error)]
    return [f"{name}: not installed"] if found is None else _misfits(name, found, wanted)


def _arguments(row: dict[str, Any], kind: str) -> dict[str, int | None]:
    if kind == "sink":
        return {name: argument.get("position") for name, argument in row.get("args", {}).items()}
    if kind == "option":
        return {row["argument"]: None, row.get("format", ""): None}
    name = row.get("text", "content" if kind == "message" else "template")
    return dict.fromkeys([name, *row.get("parts", ())])


def _misfits(name: str, found: Shape, wanted: dict[str, int | None]) -> list[str]:
    result = []
    for argument, position in wanted.items():
        if not argument:
            continue
        if argument not in found.names:
            if not found.open:
                result.append(f"{name}: no argument {argument}")
        elif position is not None and found.names.index(argument) != position:
            result.append(f"{name}: {argument} stands at {found.names.index(argument)}, not at {position}")
    return result


def _check_service(data: dict[str, Any], wrong: list[str]) -> int:
    """boto3 makes its clients from service models: operations and members are looked up there."""
    loaders = imported("botocore.loaders")
    checked = 0
    for row in rows(data, "sink"):
        if "service" not in row or loaders is None:
            continue
        model = loaders.Loader().load_service_model(row["service"], "service-2")
        for call in calls(row):
            operation = "".join(word.capitalize() for word in call.rsplit(".", 1)[-1].split("_"))
            if operation not in model["operations"]:
                wrong.append(f"{row['service']}: no operation {operation}")
                continue
            members = model["shapes"][model["operations"][operation]["input"]["shape"]]["members"]
            wrong.extend(
                f"{operation}: no member {name}" for name in (*row["args"], row["model"]) if name not in members
            )
            checked += 1
    return checked
