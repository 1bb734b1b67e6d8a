"""Is a Jinja text a template over messages? It is when it runs over a list of them and looks at their roles or contents.

Such templates are judged by rendering (`chat_template`). Those that are given nothing but what an engine gives to a chat template are no
prompts of an application, and the ordinary reading of templates leaves them alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from jinja2 import Environment, TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser

__all__ = ["EXTENSIONS", "HISTORY_NAMES", "Conversation", "Generation", "conversation_of"]

HISTORY_NAMES = (
    "messages",
    "history",
    "chat_history",
    "conversation",
    "message_history",
    "conversation_history",
    "turns",
)
_FIELDS = frozenset(("role", "content"))


class Generation(Extension):
    """`{% generation %} … {% endgeneration %}`, with which transformers marks the text of the assistant. It renders as its body."""

    tags = {"generation"}  # noqa: RUF012 (Jinja reads it from the class)

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        """The body, as a scope of its own."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


EXTENSIONS: tuple[str | type[Extension], ...] = ("jinja2.ext.do", "jinja2.ext.loopcontrols", Generation)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a template over messages refers to: `history` is the name that it runs over, `names` all that it is given.

    `pure`: it is a chat template, which an engine renders; the others belong to an application.
    """

    history: str
    names: frozenset[str]
    pure: bool


@lru_cache(maxsize=512)
def conversation_of(text: str) -> Conversation | None:
    """What a template over messages refers to; None for every other text, broken ones included."""
    if "role" not in text or "{" not in text or not any(name in text for name in HISTORY_NAMES):
        return None
    environment = Environment(extensions=EXTENSIONS, cache_size=0)  # noqa: S701 (nothing is rendered)
    try:
        tree = environment.parse(text)
        names = frozenset(meta.find_undeclared_variables(tree))
    except (TemplateSyntaxError, RecursionError):
        return None
    fields: set[object] = {node.attr for node in tree.find_all(nodes.Getattr)}
    fields |= {node.arg.value for node in tree.find_all(nodes.Getitem) if isinstance(node.arg, nodes.Const)}
    if not fields >= _FIELDS and not (_FIELDS & fields and "add_generation_prompt" in names):
        return None
    looped = {name.name for loop in tree.find_all(nodes.For) for name in _names(loop.iter)}
    for name in HISTORY_NAMES:
        if name in names and (name in looped or name == "messages"):
            pure = name == "messages" and bool(
                names & {"add_generation_prompt", "bos_token", "eos_token"} or names == {name}
            )
            return Conversation(name, names, pure)
    return None


def _names(node: nodes.Node) -> list[nodes.Name]:
    return [node] if isinstance(node, nodes.Name) else list(node.find_all(nodes.Name))
