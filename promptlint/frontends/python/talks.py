"""Calls that go on with a conversation: the text that they are given is its next turn, behind all that was said before.

Such a text shares its place with no other request, so what stands first in it costs nothing. Two things tell: an argument that is
the conversation (`ask(text, history=history)`), and an object that keeps one, which the same function gives text again and again (`agent.step(text)`).
"""

from __future__ import annotations

import ast

from promptlint.catalog.conversations import load_conversations
from promptlint.catalog.names import NameFact, load_names, words
from promptlint.frontends.python.index import FunctionInfo, last_name
from promptlint.frontends.python.nodes import walk
from promptlint.ir import BlockKind, Confidence

__all__ = ["conversation_behind"]

_FORGETS = frozenset(
    {"reset", "clear", "new", "init", "start"}
)  # first words of methods that begin another conversation


def conversation_behind(call: ast.Call, function: FunctionInfo) -> ast.expr | None:
    """The expression that holds the conversation which a call of a function goes on with; None where there is none to be seen."""
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        if isinstance(argument, ast.Name | ast.Attribute) and _is_conversation(last_name(argument)):
            return argument
    return _talker(call, function)


def _is_conversation(name: str) -> bool:
    fact: NameFact = load_names().fact(name)
    return fact.kind is BlockKind.HISTORY and fact.confidence > Confidence.LOW


def _talker(call: ast.Call, function: FunctionInfo) -> ast.expr | None:
    """The object that keeps a conversation: it was there before the function, is given text more than once, and does not forget."""
    known = load_conversations()
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in known.talking:
        return None
    receiver = call.func.value
    spoken = words(last_name(receiver))
    if not spoken or spoken[-1] not in known.talkers or not _was_there(receiver, function):
        return None
    written = ast.dump(receiver)
    again = False
    for node in walk(function.node):
        if isinstance(node, ast.For | ast.AsyncFor | ast.While):
            again = again or any(inner is call for inner in walk(node))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node is not call:
            if ast.dump(node.func.value) != written:
                continue
            if words(node.func.attr)[:1] and words(node.func.attr)[0] in _FORGETS:
                return None
            again = again or node.func.attr == call.func.attr
    return receiver if again else None


def _was_there(receiver: ast.expr, function: FunctionInfo) -> bool:
    """Whether an object is a parameter of the function or an attribute of its instance."""
    if isinstance(receiver, ast.Attribute):
        return isinstance(receiver.value, ast.Name) and receiver.value.id == "self"
    arguments = function.node.args
    given = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return isinstance(receiver, ast.Name) and any(argument.arg == receiver.id for argument in given)
