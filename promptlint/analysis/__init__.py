"""IR to IR: render order, volatility, common prefixes, matching traffic to prompts.

`call_sites` renders the prompts of a reading; `Rendered` is what checks and the advisor read; `cost_of` prices a value at its place.
"""

from promptlint.analysis.assumptions import Assumptions, count_tokens
from promptlint.analysis.callsite import BlockSummary, CallSite, call_sites, describe, terms_used
from promptlint.analysis.estimate import Cost, cost_of, hit_rate, tokens_behind
from promptlint.analysis.render import Item, Rendered, render

__all__ = [
    "Assumptions",
    "BlockSummary",
    "CallSite",
    "Cost",
    "Item",
    "Rendered",
    "call_sites",
    "cost_of",
    "count_tokens",
    "describe",
    "hit_rate",
    "render",
    "terms_used",
    "tokens_behind",
]
