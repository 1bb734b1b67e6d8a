"""What is known of a Python value from its own function: whether it is a set, whether its elements or keys are strings.

Nothing here guesses. "No" means that it is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from promptlint.fixes.code import Code, Function

__all__ = [
    "bindings",
    "is_call",
    "is_join",
    "is_set",
    "is_string",
    "keys_are_strings",
    "own_nodes",
    "stored_names",
    "strings_in",
]

_STRING_METHODS = frozenset(
    {
        "strip",
        "lstrip",
        "rstrip",
        "lower",
        "upper",
        "title",
        "casefold",
        "capitalize",
        "replace",
        "format",
        "join",
        "removeprefix",
        "removesuffix",
    }
)
_ADDING = frozenset({"add", "update", "symmetric_difference_update"})


def is_call(node: ast.AST, names: set[str] | frozenset[str]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def is_set(code: Code, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is known to be a set, or to iterate over one and nothing else."""
    if isinstance(node, ast.Set | ast.SetComp) or is_call(node, {"set", "frozenset"}):
        return True
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return len(node.generators) == 1 and is_set(code, node.generators[0].iter, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return is_set(code, node.left, depth) and (isinstance(node.op, ast.Sub) or is_set(code, node.right, depth))
    if isinstance(node, ast.Name) and depth < 3:
        values, annotation = bindings(code, node)
        if annotation is not None:
            return _head(annotation) in {"set", "frozenset", "Set", "FrozenSet", "AbstractSet"}
        return bool(values) and all(is_set(code, value, depth + 1) for value in values)
    return False


def _head(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return (
        annotation.attr
        if isinstance(annotation, ast.Attribute)
        else annotation.id
        if isinstance(annotation, ast.Name)
        else ""
    )


def bindings(code: Code, name: ast.Name) -> tuple[list[ast.expr], ast.expr | None]:
    """All values that a name may have in its function or module, and its annotation. No values when one of them is not an assignment."""
    scope = code.function_of(name)
    file = code.file
    while True:
        top: ast.AST = scope if scope is not None else file.tree
        values: list[ast.expr] = []
        annotation: ast.expr | None = None
        if isinstance(scope, Function):
            arguments = scope.args
            for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if each.arg == name.id:
                    return [], each.annotation
        for node in own_nodes(top):
            if isinstance(node, ast.Assign):
                if any(isinstance(target, ast.Name) and target.id == name.id for target in node.targets):
                    values.append(node.value)
                elif any(name.id in stored_names(target) for target in node.targets):
                    return [], None
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name.id:
                annotation = node.annotation
                if node.value is not None:
                    values.append(node.value)
            elif isinstance(node, ast.NamedExpr) and node.target.id == name.id:
                values.append(node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name.id:
                if not isinstance(node.op, ast.BitOr):
                    return [], None
            elif (
                (isinstance(node, ast.For | ast.AsyncFor | ast.comprehension) and name.id in stored_names(node.target))
                or (
                    isinstance(node, ast.withitem)
                    and node.optional_vars is not None
                    and name.id in stored_names(node.optional_vars)
                )
                or (isinstance(node, ast.Global | ast.Nonlocal) and name.id in node.names)
            ):
                return [], None
        if values or annotation is not None or scope is None:
            return values, annotation
        scope = next((each for each in file.above(scope) if isinstance(each, Function)), None)


def stored_names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def own_nodes(top: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or module without those of the functions and classes in it."""
    pending = list(ast.iter_child_nodes(top))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def strings_in(code: Code, node: ast.expr, depth: int = 0) -> bool:
    """Whether all elements of a set are known to be strings."""
    if isinstance(node, ast.Set | ast.List | ast.Tuple):
        return all(is_string(code, each, depth) for each in node.elts)
    if isinstance(node, ast.SetComp | ast.GeneratorExp | ast.ListComp):
        return is_string(code, node.elt, depth)
    if is_call(node, {"set", "frozenset", "list", "tuple", "sorted"}):
        assert isinstance(node, ast.Call)
        return not node.args or (len(node.args) == 1 and strings_in(code, node.args[0], depth))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in {"split", "splitlines"} and not node.keywords
    if isinstance(node, ast.BinOp):
        return strings_in(code, node.left, depth) and (
            isinstance(node.op, ast.Sub) or strings_in(code, node.right, depth)
        )
    if isinstance(node, ast.Name) and depth < 3:
        values, annotation = bindings(code, node)
        if annotation is not None:
            inner = annotation.slice if isinstance(annotation, ast.Subscript) else None
            return isinstance(inner, ast.Name) and inner.id == "str"
        return bool(values) and not _grows(code, node) and all(strings_in(code, value, depth + 1) for value in values)
    return False


def _grows(code: Code, name: ast.Name) -> bool:
    """Whether elements are put into a set after it was made: then they are not known."""
    top: ast.AST = code.function_of(name) or code.file.tree
    for node in ast.walk(top):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name.id:
            return True
        called = node.value if isinstance(node, ast.Attribute) and node.attr in _ADDING else None
        if isinstance(called, ast.Name) and called.id == name.id:
            return True
    return False


def is_string(code: Code, node: ast.expr, depth: int = 0) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.JoinedStr) or is_call(node, {"str", "repr", "ascii", "chr", "hex"}):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        # A method that only strings have (bytes have some of them, and never stand in a prompt beside text).
        return node.func.attr in _STRING_METHODS and (node.func.attr != "replace" or len(node.args) == 2)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
        return is_string(code, node.left, depth)
    if isinstance(node, ast.IfExp):
        return is_string(code, node.body, depth) and is_string(code, node.orelse, depth)
    if isinstance(node, ast.Name) and depth < 3:
        values, annotation = bindings(code, node)
        if annotation is not None:
            return isinstance(annotation, ast.Name) and annotation.id == "str"
        return bool(values) and all(is_string(code, value, depth + 1) for value in values)
    return False


def keys_are_strings(code: Code, node: ast.expr, depth: int = 0) -> bool:
    """Whether all keys in a JSON value are known to be strings. Keys of two types cannot be sorted."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.UnaryOp | ast.Compare):
        return True
    if isinstance(node, ast.Dict):
        return all(key is not None and is_string(code, key) for key in node.keys) and all(
            keys_are_strings(code, value, depth) for value in node.values
        )
    if isinstance(node, ast.DictComp):
        only = (
            len(node.generators) == 1
            and isinstance(node.key, ast.Name)
            and isinstance(node.generators[0].target, ast.Name)
        )
        keys = only and node.key.id == node.generators[0].target.id and strings_in(code, node.generators[0].iter)  # type: ignore[attr-defined]
        return (keys or is_string(code, node.key)) and keys_are_strings(code, node.value, depth)
    if isinstance(node, ast.List | ast.Tuple):
        return all(keys_are_strings(code, each, depth) for each in node.elts)
    if isinstance(node, ast.Name) and depth < 3:
        values, _ = bindings(code, node)
        return (
            bool(values)
            and not _grows_by_key(code, node)
            and all(keys_are_strings(code, value, depth + 1) for value in values)
        )
    return is_string(code, node)


def _grows_by_key(code: Code, name: ast.Name) -> bool:
    top: ast.AST = code.function_of(name) or code.file.tree
    for node in ast.walk(top):
        inner = node.value if isinstance(node, ast.Subscript | ast.Attribute) else None
        if isinstance(inner, ast.Name) and inner.id == name.id:
            if isinstance(node, ast.Attribute) and node.attr in {"update", "setdefault", "__setitem__"}:
                return True
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                return True
    return False


def is_join(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "join"
