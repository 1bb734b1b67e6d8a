"""The order that a chat template gives to the blocks of a prompt, where the template is known.

A server of one's own renders what it is sent through the model's chat template, and templates differ: most write the system text ahead of the
tools, some behind them, some move one or both to the newest user message. What rendering showed (ir.TemplateLayout) then replaces the order of the SDK's row.
"""

from __future__ import annotations

from promptlint.analysis.assumptions import Assumptions
from promptlint.catalog.providers import Terms
from promptlint.ir import (
    Block,
    BlockKind,
    BlockNode,
    Confidence,
    Hole,
    Prompt,
    TemplateLayout,
    Text,
    Volatility,
    blocks_of,
)
from promptlint.source import Span

__all__ = ["TEMPLATE_DATE", "laid_out", "layout_of"]

TEMPLATE_DATE = "date of the chat template"
"""Name of the value that a template prints by itself. It has no origin in the code: the rules on chat templates speak of it."""
_DATE_TOKENS = 8  # "Today Date: 26 Jul 2024"


def layout_of(prompt: Prompt, assumptions: Assumptions, terms: Terms | None) -> TemplateLayout | None:
    """The layout of the template that renders a prompt. None where none is known, where a provider's documented order holds, and for a text that is sent as it is."""
    if not assumptions.layouts or (terms is not None and terms.render_order):
        return None
    if not any(block.role for block in blocks_of(prompt.blocks)):
        return None
    given = next((one.value for one in prompt.parameters if one.name == "chat_template"), None)
    return assumptions.layout(prompt.model, given.value if isinstance(given, Text) else None)


_Nodes = tuple[BlockNode, ...]


def laid_out(nodes: _Nodes, layout: TemplateLayout) -> tuple[_Nodes, _Nodes, _Nodes]:
    """Blocks in the template's order: what it writes first and the messages up to the newest, what it writes late, and the newest message of the user.

    What is written late stands at another place in each turn. A system message behind the first other message keeps its place.
    """
    parts: dict[BlockKind, list[BlockNode]] = {BlockKind.TOOLS: [], BlockKind.SYSTEM: []}
    rest: list[BlockNode] = []
    begun = False
    for node in nodes:
        kind = _part(node)
        if kind is BlockKind.TOOLS or (kind is BlockKind.SYSTEM and not begun):
            parts[kind].append(node)
        else:
            rest.append(node)
            begun = begun or any(block.role for block in blocks_of((node,)))
    unknown = [kind for kind in parts if kind not in (*layout.front, *layout.late)]
    ahead = [parts[kind] for kind in (*unknown, *layout.front)]
    if layout.date == "always" or (layout.date == "without-system" and not parts[BlockKind.SYSTEM]):
        ahead.insert(len(unknown) + layout.date_at, [_date(layout)])
    late = tuple(node for kind in layout.late for node in parts[kind])
    newest = max((index for index, node in enumerate(rest) if _is_user(node)), default=len(rest))
    return (*(node for part in ahead for node in part), *rest[:newest]), late, tuple(rest[newest:])


def _part(node: BlockNode) -> BlockKind | None:
    """Tools, system, or None for everything else. A branch or loop is what all of its blocks are."""
    found = {_of(block) for block in blocks_of((node,))}
    return found.pop() if len(found) == 1 else None


def _of(block: Block) -> BlockKind | None:
    if block.kind is BlockKind.TOOLS:
        return BlockKind.TOOLS
    return BlockKind.SYSTEM if block.role in {"system", "developer"} or block.kind is BlockKind.SYSTEM else None


def _is_user(node: BlockNode) -> bool:
    return any(block.role == "user" or block.kind is BlockKind.QUESTION for block in blocks_of((node,)))


def _date(layout: TemplateLayout) -> Block:
    line = layout.date_line or 1
    span = Span(layout.path, line, 1, line, 1, exact=False)
    hole = Hole(
        TEMPLATE_DATE,
        span,
        Volatility.DAY,
        Confidence.HIGH,
        name=TEMPLATE_DATE,
        tokens=_DATE_TOKENS,
        tokens_from="name",
    )
    return Block(BlockKind.OTHER, "system", (hole,), span, name=TEMPLATE_DATE)
