"""Chat templates of common open models, written from their published formats, so that embedded tokenizers render messages without a download.

Each renders runs: a `Special` is one token, everything else is text that is tokenised on its own and can never become a special token,
whatever a user writes. The answer is what the model itself produces behind the generation prompt, its stop token last.

- `chatml`: the generic format; tools as a section of the system text in the style of Hermes.
- `qwen3`: Qwen/Qwen3-8B, chat_template of 2025-04. Old reasoning is dropped ahead of the last user message.
- `llama3`: meta-llama/Llama-3.1-8B-Instruct. Dated (the fixed date of the template unless one is given); tools in the first user message.
- `mistral`: mistralai/Mistral-7B-Instruct-v0.3. System text and tools move to the last user message.
- `gpt-oss`: the harmony format of openai/gpt-oss-20b. Old reasoning is dropped, tools are written as TypeScript.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from promptlint.tokenizers.render import Conversation, Rendered, compact, content_text, unmarked
from promptlint.tokenizers.segments import Mark, Run, Special

__all__ = ["TEMPLATES", "as_chat", "chatml", "gpt_oss", "llama3", "mistral", "provider", "qwen3"]


def _spaced(value: Any, indent: int | None = None) -> str:
    """JSON as transformers' `tojson` writes it."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def as_chat(conversation: Conversation) -> tuple[str | None, list[Mapping[str, Any]]]:
    """The system text (the body's own field, or a leading system message) and the other messages in chat form."""
    messages = [_chat(message) for message in conversation.messages]
    if conversation.system is not None:
        return content_text(conversation.system), messages
    if messages and messages[0].get("role") in {"system", "developer"}:
        return content_text(messages[0].get("content")), messages[1:]
    return None, messages


def _chat(message: Any) -> Mapping[str, Any]:
    """A message of any body in OpenAI's chat form: Anthropic's tool blocks, Responses items and Gemini parts become calls and results."""
    if not isinstance(message, Mapping):
        return {"role": "user", "content": str(message)}
    kind = message.get("type")
    if kind == "function_call":
        call = {
            "id": message.get("call_id"),
            "function": {"name": message.get("name"), "arguments": message.get("arguments")},
        }
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        return {"role": "tool", "content": content_text(message.get("output")), "tool_call_id": message.get("call_id")}
    if "parts" in message:
        return {
            "role": {"model": "assistant"}.get(message.get("role", ""), message.get("role", "user")),
            "content": message["parts"],
        }
    content = message.get("content")
    if isinstance(content, list) and any(
        isinstance(part, Mapping) and part.get("type") in {"tool_use", "tool_result"} for part in content
    ):
        return _blocks(message, content)
    return message


def _blocks(message: Mapping[str, Any], content: list[Any]) -> Mapping[str, Any]:
    calls = []
    rest = []
    results = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "tool_use":
            calls.append({"id": part.get("id"), "function": {"name": part.get("name"), "arguments": part.get("input")}})
        elif kind == "tool_result":
            results.append(content_text(part.get("content")))
        else:
            rest.append(part)
    if results:
        return {"role": "tool", "content": "\n".join([*results, *([content_text(rest)] if rest else [])])}
    return {"role": message.get("role"), "content": rest or None, "tool_calls": calls}


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and arguments (as JSON text) of each call; arguments that are text already are kept as they are."""
    found = []
    for call in message.get("tool_calls") or ():
        inner = call.get("function", call) if isinstance(call, Mapping) else {}
        arguments = inner.get("arguments")
        found.append((str(inner.get("name")), arguments if isinstance(arguments, str) else _spaced(arguments)))
    return found


def _answer(conversation: Conversation) -> Mapping[str, Any] | None:
    answer = conversation.answer
    if answer is None:
        return None
    if isinstance(answer, str):
        return {"role": "assistant", "content": answer}
    if isinstance(answer, list):  # items of a Responses answer: the message and the calls
        texts = [
            content_text(item.get("content"))
            for item in answer
            if isinstance(item, Mapping) and item.get("type") == "message"
        ]
        calls = [call for item in answer for call in _chat(item).get("tool_calls") or ()]
        return {"role": "assistant", "content": "".join(texts), "tool_calls": calls}
    return _chat(answer)


_IM_START, _IM_SEP, _IM_END = Special("<|im_start|>"), Special("<|im_sep|>"), Special("<|im_end|>")
_TOOL_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOL_FOOT = "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
_TOOL_FORM = '\n{"name": <function-name>, "arguments": <args-json-object>}\n'


def chatml(conversation: Conversation) -> Rendered:
    """The generic ChatML format: every message as role, line feed and content between `<|im_start|>` and `<|im_end|>`."""
    return _chat_ml(conversation, thinking=False)


def qwen3(conversation: Conversation) -> Rendered:
    """Qwen 3: ChatML with `<tool_call>`, `<tool_response>` and `<think>` tokens."""
    return _chat_ml(conversation, thinking=True)


def _chat_ml(conversation: Conversation, *, thinking: bool) -> Rendered:
    mark: Callable[[str], str] = Special if thinking else str
    system, messages = as_chat(conversation)
    runs: list[Run] = []
    if conversation.tools:
        lead = f"system\n{system}\n\n" if system else "system\n"
        listed = "".join("\n" + _spaced(tool) for tool in conversation.tools)
        runs += [_IM_START, lead + _TOOL_HEAD + listed + _TOOL_FOOT]
        runs += _joined(
            [
                mark("<tool_call>"),
                mark("</tool_call>"),
                " XML tags:\n",
                mark("<tool_call>"),
                _TOOL_FORM,
                mark("</tool_call>"),
            ]
        )
        runs += [_IM_END, "\n"]
    elif system is not None:
        runs += [_IM_START, f"system\n{system}", _IM_END, "\n"]
    last_query = max(
        (index for index, message in enumerate(messages) if message.get("role") == "user"), default=len(messages)
    )
    for index, message in enumerate(messages):
        role = str(message.get("role"))
        text = content_text(message.get("content"))
        if role in {"tool", "function"}:
            first = index == 0 or messages[index - 1].get("role") not in {"tool", "function"}
            last = index + 1 == len(messages) or messages[index + 1].get("role") not in {"tool", "function"}
            runs += _joined([*([_IM_START, "user"] if first else []), "\n", mark("<tool_response>"), f"\n{text}\n", mark("</tool_response>"), *([_IM_END, "\n"] if last else [])])  # fmt: skip
        elif role == "assistant":
            kept = thinking and index > last_query
            runs += [
                _IM_START,
                *_joined(["assistant\n", *_spoken(message, mark, keep_reasoning=kept, thinking=thinking)]),
                _IM_END,
                "\n",
            ]
        else:
            runs += [_IM_START, f"{role}\n{text}", _IM_END, "\n"]
    runs += [_IM_START, "assistant\n"]
    answer = _answer(conversation)
    said = (
        [] if answer is None else [*_joined(_spoken(answer, mark, keep_reasoning=thinking, thinking=thinking)), _IM_END]
    )
    return Rendered(runs, said)


def _spoken(
    message: Mapping[str, Any], mark: Callable[[str], str], *, keep_reasoning: bool, thinking: bool
) -> list[Run]:
    """What an assistant message says, without its frame."""
    text = content_text(message.get("content"))
    reasoning = message.get("reasoning_content")
    if thinking and not isinstance(reasoning, str) and "</think>" in text:
        before, _, text = text.rpartition("</think>")
        reasoning = before.rstrip("\n").rpartition("<think>")[2].lstrip("\n")
        text = text.lstrip("\n")
    runs: list[Run] = []
    if keep_reasoning and reasoning:
        runs += [mark("<think>"), f"\n{str(reasoning).strip(chr(10))}\n", mark("</think>"), "\n\n"]
        text = text.lstrip("\n")
    runs.append(text)
    for number, (name, arguments) in enumerate(_calls(message)):
        lead = "\n" if number or text else ""
        runs += [lead, mark("<tool_call>"), f'\n{{"name": "{name}", "arguments": {arguments}}}\n', mark("</tool_call>")]
    return runs


def _joined(runs: Sequence[Run]) -> list[Run]:
    """The runs with neighbouring texts put together, as one text is tokenised; empty ones dropped."""
    found: list[Run] = []
    for run in runs:
        if not run and not isinstance(run, Mark):
            continue
        if found and type(run) is str and type(found[-1]) is str:
            found[-1] = str(found[-1]) + str(run)
        else:
            found.append(run)
    return found


_LLAMA_TOOLS = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that best answers the given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.Do not use variables.\n\n'
)


def llama3(conversation: Conversation) -> Rendered:
    """Llama 3.1: header tokens around the role, contents trimmed, a date in the system message."""
    system, messages = as_chat(conversation)
    eot = Special("<|eot_id|>")

    def head(role: str) -> list[Run]:
        return [Special("<|start_header_id|>"), role, Special("<|end_header_id|>")]

    environment = "Environment: ipython\n" if conversation.tools else ""
    dated = (
        f"\n\n{environment}Cutting Knowledge Date: December 2023\nToday Date: {conversation.date or '26 Jul 2024'}\n\n"
    )
    runs: list[Run] = [Special("<|begin_of_text|>"), *head("system"), dated + (system or "").strip(), eot]
    if conversation.tools and messages:
        listed = "".join(_spaced(tool, 4) + "\n\n" for tool in conversation.tools)
        runs += [*head("user"), "\n\n" + _LLAMA_TOOLS + listed + content_text(messages[0].get("content")).strip(), eot]
        messages = messages[1:]
    for message in messages:
        role = str(message.get("role"))
        if role in {"tool", "ipython"}:
            runs += [*head("ipython"), "\n\n" + _spaced(content_text(message.get("content"))), eot]
        else:
            runs += [*head(role), "\n\n" + _llama_said(message), eot]
    runs += [*head("assistant"), "\n\n"]
    answer = _answer(conversation)
    return Rendered(runs, [] if answer is None else _joined([_llama_said(answer), eot]))


def _llama_said(message: Mapping[str, Any]) -> str:
    calls = _calls(message)
    if calls:
        return "".join(f'{{"name": "{name}", "parameters": {arguments}}}' for name, arguments in calls)
    return content_text(message.get("content")).strip()


def mistral(conversation: Conversation) -> Rendered:
    """Mistral Instruct v0.3: no system role and no tool role; both stand in front of the last user message."""
    system, messages = as_chat(conversation)
    last_user = max((index for index, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    runs: list[Run] = [Special("<s>")]
    for index, message in enumerate(messages):
        role = message.get("role")
        text = content_text(message.get("content"))
        if role == "assistant":
            runs += [*_mistral_said(message), Special("</s>")]
        elif role in {"tool", "function"}:
            result = _spaced({"content": text, "call_id": str(message.get("tool_call_id") or "")})
            runs += [Special("[TOOL_RESULTS]"), " " + result, Special("[/TOOL_RESULTS]")]
        else:
            if index == last_user and conversation.tools:
                runs += [
                    Special("[AVAILABLE_TOOLS]"),
                    " " + _spaced(list(conversation.tools)),
                    Special("[/AVAILABLE_TOOLS]"),
                ]
            lead = f"{system}\n\n" if index == last_user and system else ""
            runs += [Special("[INST]"), f" {lead}{text}", Special("[/INST]")]
    answer = _answer(conversation)
    return Rendered(runs, [] if answer is None else [*_mistral_said(answer), Special("</s>")])


def _mistral_said(message: Mapping[str, Any]) -> list[Run]:
    calls = _calls(message)
    if calls:
        listed = ", ".join(f'{{"name": "{name}", "arguments": {arguments}}}' for name, arguments in calls)
        return [Special("[TOOL_CALLS]"), f" [{listed}]"]
    return [" " + content_text(message.get("content"))]


_START, _MESSAGE, _CHANNEL, _END, _CALL, _RETURN = (
    Special(f"<|{name}|>") for name in ("start", "message", "channel", "end", "call", "return")
)  # fmt: skip


def gpt_oss(conversation: Conversation) -> Rendered:
    """Harmony: a fixed system message with a date, the application's text as developer message, a channel for every answer."""
    system, messages = as_chat(conversation)
    text = (
        "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
        f"Current date: {conversation.date or '2025-06-28'}\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message."
    )
    if conversation.tools:
        text += "\nCalls to these tools must go to the commentary channel: 'functions'."
    runs: list[Run] = [_START, "system", _MESSAGE, text, _END]
    developer = f"# Instructions\n\n{system}" if system else ""
    if conversation.tools:
        developer += ("\n\n" if developer else "") + _typescript(conversation.tools)
    if developer:
        runs += [_START, "developer", _MESSAGE, developer, _END]
    names: dict[str, str] = {}
    last_final = max(
        (index for index, m in enumerate(messages) if m.get("role") == "assistant" and not m.get("tool_calls")),
        default=-1,
    )
    for index, message in enumerate(messages):
        role = str(message.get("role"))
        content = content_text(message.get("content"))
        if role == "assistant":
            for call in message.get("tool_calls") or ():
                names[str(call.get("id"))] = str(call.get("function", call).get("name"))
            runs += _harmony_said(message, keep_reasoning=index > last_final, stop=_END)
        elif role in {"tool", "function"}:
            name = names.get(str(message.get("tool_call_id")), str(message.get("name") or "tool"))
            runs += [_START, f"functions.{name} to=assistant", _CHANNEL, "commentary", _MESSAGE, _spaced(content), _END]
        else:
            runs += [_START, role, _MESSAGE, content, _END]
    runs += [_START, "assistant"]
    answer = _answer(conversation)
    said = [] if answer is None else _harmony_said(answer, keep_reasoning=True, stop=_RETURN)[2:]
    if said and _calls(answer or {}) and not isinstance(said[0], Special):
        said[0] = said[0].removeprefix("assistant")
    return Rendered(runs, said)


def _harmony_said(message: Mapping[str, Any], *, keep_reasoning: bool, stop: Special) -> list[Run]:
    runs: list[Run] = []
    reasoning = message.get("reasoning_content", message.get("thinking"))
    if keep_reasoning and isinstance(reasoning, str) and reasoning:
        runs += [_START, "assistant", _CHANNEL, "analysis", _MESSAGE, reasoning, _END]
    calls = _calls(message)
    for name, arguments in calls:
        runs += [_START, "assistant", f" to=functions.{name}", _CHANNEL, "commentary json", _MESSAGE, arguments, _CALL]
    if not calls:
        runs += [_START, "assistant", _CHANNEL, "final", _MESSAGE, content_text(message.get("content")), stop]
    return runs


def _typescript(tools: Sequence[Any]) -> str:
    """The tools as a TypeScript namespace, the way harmony declares them."""
    lines = ["# Tools", "", "## functions", "", "namespace functions {", ""]
    for tool in tools:
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        lines.extend(f"// {line}" for line in str(inner.get("description") or "").splitlines())
        schema = inner.get("parameters", inner.get("input_schema")) or {}
        properties = schema.get("properties") or {}
        if not properties:
            lines += [f"type {inner.get('name')} = () => any;", ""]
            continue
        lines.append(f"type {inner.get('name')} = (_: {{")
        required = schema.get("required") or ()
        for name, value in properties.items():
            value = value if isinstance(value, Mapping) else {}
            lines.extend(f"// {line}" for line in str(value.get("description") or "").splitlines())
            lines.append(f"{name}{'' if name in required else '?'}: {_type(value)},")
        lines += ["}) => any;", ""]
    return "\n".join([*lines, "} // namespace functions"])


def _type(schema: Mapping[str, Any]) -> str:
    if isinstance(schema.get("enum"), list):
        return " | ".join(_spaced(one) for one in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        inner = schema.get("items")
        return f"{_type(inner) if isinstance(inner, Mapping) else 'any'}[]"
    if isinstance(kind, list):
        return " | ".join(_type({"type": one}) for one in kind)
    return {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}.get(str(kind), "object" if kind == "object" else "any")  # fmt: skip


def provider(conversation: Conversation) -> Rendered:
    """An approximation of a closed provider's rendering: tools, then the system text, then the messages.

    The order is the documented one of OpenAI and Anthropic. Each message costs four tokens of frame beside its text, close to the three or
    four that OpenAI documents; tools are counted as their compact JSON, which is some per cent more than the providers bill. Cache markers
    become `Mark` runs where they stand.
    """
    runs: list[Run] = []
    if conversation.tools:
        runs += [_IM_START, "tools", _IM_SEP]
        for tool in conversation.tools:
            runs += [compact(unmarked(tool)), *_mark(tool)]
        runs.append(_IM_END)
    if conversation.system is not None:
        runs += [_IM_START, "system", _IM_SEP, *_marked_content(conversation.system), _IM_END]
    for message in conversation.messages:
        row = _chat(message)
        calls = row.get("tool_calls")
        runs += [_IM_START, str(row.get("role")), _IM_SEP, *_marked_content(row.get("content"))]
        runs += [*([compact(calls)] if calls else []), _IM_END, *_mark(message)]
    runs += [_IM_START, "assistant", _IM_SEP]
    answer = _answer(conversation)
    if answer is None:
        return Rendered(runs)
    calls = answer.get("tool_calls")
    return Rendered(runs, [*_marked_content(answer.get("content")), *([compact(calls)] if calls else []), _IM_END])


def _marked_content(content: Any) -> list[Run]:
    """The texts of a content, each part a run of its own only where a marker follows it."""
    if not isinstance(content, list):
        return _joined([content_text(content)])
    runs: list[Run] = []
    for part in content:
        runs += [content_text([unmarked(part)]), *_mark(part)]
    return _joined(runs)


def _mark(value: Any) -> list[Run]:
    """The marker on a tool, a block or a message: Anthropic's, OpenAI's or Bedrock's."""
    if not isinstance(value, Mapping):
        return []
    found = next(
        (value[key] for key in ("cache_control", "prompt_cache_breakpoint", "cachePoint") if value.get(key)), None
    )
    if found is None and isinstance(value.get("function"), Mapping):
        found = value["function"].get("cache_control")
    if found is None:
        return []
    return [Mark(found.get("ttl", "") if isinstance(found, Mapping) else "")]


TEMPLATES: dict[str, Callable[[Conversation], Rendered]] = {
    "chatml": chatml,
    "qwen3": qwen3,
    "llama3": llama3,
    "mistral": mistral,
    "gpt-oss": gpt_oss,
    "provider": provider,
}
