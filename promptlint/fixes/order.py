"""Orders that are not fixed: of sets, of directory listings, of JSON keys, of drawn examples.

`sorted(...)` and `sort_keys=True` are safe where nothing but the order changes: the elements are known to be comparable, all of them are used, and nothing behind
depends on which came first. Where the elements are not known, nothing is offered: a sort may raise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from promptlint.finding import Edit, Finding, Fix
from promptlint.fixes.code import Code, Desk, calls_in
from promptlint.fixes.known import (
    bindings,
    is_call,
    is_join,
    is_set,
    keys_are_strings,
    own_nodes,
    stored_names,
    strings_in,
)

__all__ = ["drawn_once", "fixed_order", "sorted_keys", "sorted_listing"]

_LISTINGS = frozenset({"listdir", "glob", "iglob", "rglob", "iterdir"})
_ITERATORS = frozenset({"iglob", "rglob", "iterdir"})
"""These give an iterator; so does `glob` of a path."""
_WHOLE = frozenset({"list", "tuple", "sorted", "set", "frozenset", "len", "sum", "min", "max", "any", "all"})
_RECORDED = ("argument", "tool_call", "function_call", "tool_use")


def _places(finding: Finding, desk: Desk) -> Iterator[tuple[Code, ast.expr]]:
    """The finding's own place and those of its way, where they are expressions of Python code."""
    for span in (finding.span, *(note.span for note in finding.trace)):
        found = desk.at(span) if span.path.endswith(".py") else None
        if found is not None:
            yield found


def fixed_order(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """Parts in the order of a set: the iteration sorted, or the set written as a list."""
    for code, node in _places(finding, desk):
        for iterated, joined in _iterated(code, node):
            if is_set(code, iterated) and (joined or strings_in(code, iterated)):
                start, end = _inside_call(code, iterated)
                if isinstance(code.parents.get(iterated), ast.Call) and is_call(
                    code.parents[iterated], {"list", "tuple"}
                ):
                    continue
                yield Fix(
                    "sort what comes in the order of a set",
                    "safe" if _uses_all(code, iterated) else "unsafe",
                    (code.edit(start, start, "sorted("), code.edit(end, end, ")")),
                )
    for code, node in _places(finding, desk):
        yield from _as_list(code, node)


def _inside_call(code: Code, node: ast.expr) -> tuple[int, int]:
    """The place of an argument. That of a generator which is the only one has the call's own brackets."""
    start, end = code.range(node)
    parent = code.parents.get(node)
    if isinstance(node, ast.GeneratorExp) and isinstance(parent, ast.Call) and code.range(parent)[1] == end:
        return start + 1, end - 1
    return start, end


def _iterated(code: Code, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The expressions over which a node iterates, with whether `str.join` consumes them, so that all elements are strings."""
    candidates = [node, *(each for each in code.above(node) if isinstance(each, ast.expr | ast.For | ast.AsyncFor))][:6]
    for each in candidates:
        if (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr == "join"
            and len(each.args) == 1
        ):
            argument = each.args[0]
            if isinstance(argument, ast.GeneratorExp | ast.ListComp):
                if len(argument.generators) == 1 and is_set(code, argument.generators[0].iter):
                    yield argument.generators[0].iter, False
                    if isinstance(argument, ast.ListComp) or len(each.args) == 1:
                        yield argument, True
            else:
                yield argument, True
        elif isinstance(each, ast.For):
            yield each.iter, False
        elif isinstance(each, ast.GeneratorExp | ast.ListComp | ast.DictComp) and len(each.generators) == 1:
            yield each.generators[0].iter, False
    return


def _uses_all(code: Code, node: ast.expr) -> bool:
    """Whether all elements are used whatever their order: no slice, no loop that ends early, no count of the turns."""
    parent = code.parents.get(node)
    loop = parent if isinstance(parent, ast.For) else None
    for each in code.above(node):
        if isinstance(each, ast.stmt):
            break
        if isinstance(each, ast.Subscript) and each.value is not node and not isinstance(each.ctx, ast.Store):
            return False
        if is_call(each, {"enumerate", "zip", "next", "iter", "islice"}):
            return False
    if loop is None:
        return True
    return not any(isinstance(each, ast.Break | ast.Return | ast.Continue | ast.Raise) for each in ast.walk(loop))


def _as_list(code: Code, node: ast.expr) -> Iterator[Fix]:
    """A set display of different constants as a list; only where it is iterated over or looked into, and nothing else."""
    literal = node
    if isinstance(node, ast.Name):
        values, annotation = bindings(code, node)
        if len(values) != 1 or annotation is not None:
            return
        literal = values[0]
        code = code.file
    if not isinstance(literal, ast.Set) or not all(isinstance(each, ast.Constant) for each in literal.elts):
        return
    constants = [each.value for each in literal.elts if isinstance(each, ast.Constant)]
    if len({(type(each), each) for each in constants}) != len(constants) or not _only_read(code, literal):
        return
    start, end = code.range(literal)
    yield Fix(
        "write the set as a list, whose order is fixed",
        "unsafe",
        (code.edit(start, start + 1, "["), code.edit(end - 1, end, "]")),
    )


def _only_read(code: Code, literal: ast.Set) -> bool:
    parent = code.parents.get(literal)
    if not isinstance(parent, ast.Assign):
        return isinstance(parent, ast.For | ast.comprehension) or (isinstance(parent, ast.Call) and is_join(parent))
    if len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return False
    name = parent.targets[0].id
    top: ast.AST = code.function_of(parent) or code.tree
    parents = code.parents
    for node in ast.walk(top):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        above = parents.get(node)
        iterated = isinstance(above, ast.For | ast.comprehension) and above.iter is node
        if not iterated and not (
            isinstance(above, ast.Call) and (is_join(above) or is_call(above, {"sorted", "len", "list", "tuple"}))
        ):
            return False
    return True


def sorted_listing(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """A directory listing in sorted order: names and paths of one listing can always be compared."""
    for code, node in _places(finding, desk):
        call = next(
            (each for each in (node, *code.above(node)) if isinstance(each, ast.Call) and _listing_name(each)), None
        )
        if call is None or (call not in code.parents and call is not code.tree):
            continue
        parent = code.parents.get(call)
        if parent is not None and is_call(parent, {"sorted", "next", "iter"}):
            return
        if _listing_name(call) in _ITERATORS | {"glob"} and not _consumed_once(code, call):
            continue
        start, end = code.range(call)
        yield Fix(
            "sort the listing",
            "safe" if _uses_all(code, call) and not _sliced_later(code, call) else "unsafe",
            (code.edit(start, start, "sorted("), code.edit(end, end, ")")),
        )
        return


def _listing_name(call: ast.Call) -> str:
    name = (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )
    return name if name in _LISTINGS else ""


def _consumed_once(code: Code, call: ast.Call) -> bool:
    """Whether an iterator is read to its end where it is made: then a list does as well."""
    parent = code.parents.get(call)
    if isinstance(parent, ast.For | ast.comprehension):
        return parent.iter is call
    if isinstance(parent, ast.Call):
        return is_join(parent) or is_call(parent, _WHOLE)
    # `glob.glob` gives a list, and the glob of a path an iterator.
    return (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "glob"
        and call.func.attr == "glob"
    )


def _sliced_later(code: Code, call: ast.Call) -> bool:
    """Whether the name that the listing gets is cut or indexed: then another order means other elements."""
    parent = code.parents.get(call)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1 or not isinstance(parent.targets[0], ast.Name):
        return not isinstance(parent, ast.For | ast.comprehension | ast.Call | ast.Assign)
    name = parent.targets[0].id
    top: ast.AST = code.function_of(call) or code.file.tree
    for node in ast.walk(top):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
            return True
        loops = isinstance(node, ast.For) and isinstance(node.iter, ast.Name) and node.iter.id == name
        if loops and any(isinstance(each, ast.Break | ast.Return) for each in ast.walk(node)):
            return True
    return False


def sorted_keys(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """`sort_keys=True`; not where the text repeats what a model wrote, because that must stay as it was."""
    for code, node in _places(finding, desk):
        call = next(
            (
                each
                for each in (node, *calls_in(node))
                if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute | ast.Name) and _dumps(each)
            ),
            None,
        )
        if call is None or not call.args or (call is not code.tree and call not in code.parents):
            continue
        if any(keyword.arg in {None, "sort_keys"} for keyword in call.keywords) or any(
            isinstance(each, ast.Starred) for each in call.args
        ):
            continue
        if any(word in code.spelled(call).lower() for word in _RECORDED):
            return
        place, written = _behind_arguments(code, call)
        known = keys_are_strings(code, call.args[0])
        yield Fix(
            "sort the keys",
            "safe" if known else "unsafe",
            (code.edit(place, place, written),),
        )
        return


def _behind_arguments(code: Code, call: ast.Call) -> tuple[int, str]:
    """Where one more argument goes, and how it is written: right behind the last one, ahead of a comment."""
    last = max(code.range(each)[1] for each in (*call.args, *(keyword.value for keyword in call.keywords)))
    text = code.source.text
    closing = re.compile(r"(?:\s*\))*").match(text, last, code.range(call)[1] - 1)  # brackets of the argument itself
    last = closing.end() if closing and closing[0].strip() else last
    comma = re.compile(r"\s*,").match(text, last)
    return (comma.end(), " sort_keys=True,") if comma else (last, ", sort_keys=True")


def _dumps(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr == "dumps" and isinstance(call.func.value, ast.Name) and call.func.value.id == "json"
    return isinstance(call.func, ast.Name) and call.func.id == "dumps"


def drawn_once(finding: Finding, desk: Desk) -> Iterator[Fix]:
    """Examples drawn from a constant of the module, once when it is imported."""
    for code, node in _places(finding, desk):
        call = next((each for each in (node, *code.above(node)) if isinstance(each, ast.Call) and _draws(each)), None)
        if call is None or code.outer is not None:
            continue
        function = code.function_of(call)
        statement = next((each for each in code.above(call) if code.parents.get(each) is code.tree), None)
        if function is None or not isinstance(statement, ast.stmt) or not _of_module(code, call, statement):
            continue
        target = code.parents.get(call)
        base = (
            target.targets[0].id
            if isinstance(target, ast.Assign) and isinstance(target.targets[0], ast.Name)
            else "drawn"
        )
        taken = {each.id for each in ast.walk(code.tree) if isinstance(each, ast.Name)}
        name = f"_{base.strip('_').upper()}"
        while name in taken:
            name += "_"
        decorators = getattr(statement, "decorator_list", [])
        first = min([code.range(statement)[0], *(code.range(each)[0] - 1 for each in decorators)])
        newline = "\r\n" if "\r\n" in code.text else "\n"
        start, end = code.range(call)
        hoisted = f"{name} = {code.source.text[start:end]}{newline}{newline}{newline}"
        edits: tuple[Edit, ...] = (code.edit(first, first, hoisted), code.edit(start, end, name))
        yield Fix("draw the examples once for each process", "unsafe", edits)
        return


def _draws(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in {"sample", "choices"}
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "random"
    )


def _of_module(code: Code, call: ast.Call, statement: ast.stmt) -> bool:
    """Whether a call needs nothing but what the module has defined before the statement."""
    known: set[str] = set()
    assert isinstance(code.tree, ast.Module)
    for each in code.tree.body:
        if each is statement:
            break
        known |= stored_names(each)
        if isinstance(each, ast.Import | ast.ImportFrom):
            known |= {(alias.asname or alias.name).partition(".")[0] for alias in each.names}
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            known.add(each.name)
    used = {each.id for each in ast.walk(call) if isinstance(each, ast.Name)}
    function = code.function_of(call)
    local = {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)} if function else set()
    local |= {name for node in (own_nodes(function) if function else ()) for name in stored_names(node)}
    builtin = {"len", "min", "max", "range", "int"}
    return all(name in known | builtin and name not in local for name in used)
