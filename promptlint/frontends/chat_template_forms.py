"""The synthetic conversations that chat templates are judged by.

Templates differ in what they accept, so there are several forms of one conversation; each text in it carries a mark that is found again in the rendering.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

__all__ = ["FORMS", "MARKS", "SYSTEM_MARK", "TOOLS", "TOOL_MARK", "Form", "conversation", "thought"]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{what} a page.",
            "parameters": {
                "type": "object",
                "properties": {"page": {"type": "string", "description": "Name of the page."}},
                "required": ["page"],
            },
        },
    }
    for name, what in (("find_page", "Finds"), ("read_page", "Reads"))
]
TOOL_MARK, SYSTEM_MARK = "Finds a page.", "RULES-OF-THE-HOUSE"


@dataclass(frozen=True, slots=True)
class Form:
    """The shape of a conversation. Templates differ in what they accept; the first form that one renders is the one that it is judged by."""

    system: bool = True
    tools: bool = True  # tool calls and their results, and the tools themselves
    arguments: str = "object"  # of a tool call: an object, or its JSON as text
    parts: bool = False  # contents as lists of parts
    content: str | None = ""  # of a message that calls a tool
    reasoning: bool = True
    fill: bool = False  # names that the template was expected to be given get a value


FORMS = (
    Form(),
    Form(arguments="text"),
    Form(parts=True),
    Form(parts=True, arguments="text"),
    Form(content=None),
    Form(fill=True),
    Form(system=False),
    Form(system=False, arguments="text"),
    Form(tools=False),
    Form(tools=False, parts=True),
    Form(tools=False, system=False),
    Form(tools=False, system=False, parts=True),
    Form(tools=False, system=False, reasoning=False),
    Form(tools=False, system=False, fill=True),
)


def conversation(form: Form) -> list[dict[str, Any]]:
    """System text, then twice: a question, an answer with reasoning that calls a tool, its result, the final answer; then a third question."""

    def content(text: str) -> Any:
        return [{"type": "text", "text": text}] if form.parts else text

    messages: list[dict[str, Any]] = []
    if form.system:
        messages.append({"role": "system", "content": content(f"{SYSTEM_MARK} are few.")})
    for turn in (1, 2):
        messages.append({"role": "user", "content": content(f"QUESTION-{turn} is what?")})
        answer: dict[str, Any] = {
            "role": "assistant",
            "content": form.content if form.tools else content(f"REPLY-{turn} is given."),
        }
        if form.reasoning:  # under each of the names that templates know
            answer |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), thought(turn))
        if form.tools:
            arguments: Any = {"page": f"PAGE-{turn}"}
            call = {
                "name": "find_page",
                "arguments": arguments if form.arguments == "object" else json.dumps(arguments),
            }
            answer["tool_calls"] = [{"id": f"call0000{turn}", "type": "function", "function": call}]
        messages.append(answer)
        if form.tools:
            result = {
                "role": "tool",
                "content": content(f"RESULT-{turn} is found."),
                "tool_call_id": f"call0000{turn}",
                "name": "find_page",
            }
            messages += [result, {"role": "assistant", "content": content(f"ANSWER-{turn} is done.")}]
    messages.append({"role": "user", "content": content("QUESTION-3 is what?")})
    return messages


def thought(turn: int) -> str:
    return f"THOUGHT-{turn} comes to mind."


MARKS = tuple(f"{word}-{turn}" for turn in (1, 2, 3) for word in ("QUESTION", "REPLY", "PAGE", "RESULT", "ANSWER"))
