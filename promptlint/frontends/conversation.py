"""Is a Jinja text a template over messages? It is when it runs over a list of them and looks at their roles or contents.

Such templates are judged by rendering (`chat_template`). Those that are given nothing but what an engine gives to a chat template are no
prompts of an application, and the ordinary reading of templates leaves them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.defaults import DEFAULT_NAMESPACE
from jinja2.ext import Extension

from promptlint.frontends.chat_template_worker import Generation

__all__ = ["EXTENSIONS", "HISTORY_NAMES", "LONGEST", "Conversation", "conversation_of"]

HISTORY_NAMES = (
    "messages",
    "conversations",  # a batch of them
    "history",
    "chat_history",
    "conversation",
    "message_history",
    "conversation_history",
    "turns",
)
_ENGINE = frozenset(("messages", "conversations"))  # what an engine calls the history that it gives to a chat template
_OWN = frozenset(
    (*DEFAULT_NAMESPACE, "loop", "caller", "varargs", "kwargs", "self", "super")
)  # what Jinja itself gives
_FIELDS = frozenset(("role", "content"))


LONGEST = 200_000  # characters of a template over messages; the longest of 114 real ones has 19,000
EXTENSIONS: tuple[str | type[Extension], ...] = ("jinja2.ext.do", "jinja2.ext.loopcontrols", Generation)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a template over messages refers to: `history` is the name that it runs over, `names` all that it is given.

    `pure`: it runs over `messages`, as an engine calls them; the others belong to an application, which writes more around its history.
    """

    history: str
    names: frozenset[str]
    pure: bool


@lru_cache(maxsize=512)
def conversation_of(text: str) -> Conversation | None:
    """What a template over messages refers to; None for every other text, broken ones included."""
    if (
        len(text) > LONGEST
        or ("role" not in text and "content" not in text)
        or "{" not in text
        or not any(name in text for name in HISTORY_NAMES)
    ):
        return None
    environment = Environment(extensions=EXTENSIONS, cache_size=0)  # noqa: S701 (nothing is rendered)
    try:
        return _referred_to(environment.parse(text))
    except (
        TemplateSyntaxError,
        RecursionError,
    ):  # a chain of attributes parses at any length, and is walked by recursion
        return None


def _referred_to(tree: nodes.Template) -> Conversation | None:
    # By hand: jinja2.meta generates code, and that computes constants, of which a template may spell one of gigabytes.
    seen = {
        context: {name.name for name in tree.find_all(nodes.Name) if name.ctx == context}
        for context in ("load", "store")
    }
    names = frozenset(seen["load"] - (seen["store"] - set(HISTORY_NAMES)) - _OWN)
    fields: set[object] = {node.attr for node in tree.find_all(nodes.Getattr)}
    fields |= {node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str)}
    if not _FIELDS & fields:
        return None
    looped = {name.name for loop in tree.find_all(nodes.For) for name in _names(loop.iter)}
    for name in HISTORY_NAMES:
        if name in names and (name in _ENGINE or (name in looped and fields >= _FIELDS)):
            return Conversation(name, names, name in _ENGINE)
    return None


def _names(node: nodes.Node) -> list[nodes.Name]:
    return [node] if isinstance(node, nodes.Name) else list(node.find_all(nodes.Name))
