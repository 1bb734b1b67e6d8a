"""How many tokens of a structured answer its grammar forces, by llguidance (the extra `structured`).

A token is forced where the schema allows no other continuation: keys, punctuation, the rest of an enum's only word. An engine with jump-forward decoding would not
have to sample them. Neither SGLang 0.5.23 nor vLLM 0.32.0 skips them today, so the share is potential and nothing else. Answers are taken as compact JSON; tokens
are those that survive tokenisation on their own (a byte string that could be skipped beyond is not counted). Checked against llguidance 1.9.1.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from promptlint import tokenizers

__all__ = ["Forced", "example", "forced_tokens", "installed", "schema_in"]

SHORT, LONG = 1, 20  # words of a text in an example answer
_ITEMS = 2
_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Forced:
    """Tokens of one answer, and those of them that the grammar forces."""

    tokens: int
    forced: int

    @property
    def share(self) -> float:
        return self.forced / self.tokens if self.tokens else 0.0


def installed() -> bool:
    """Whether the extra `structured` is there."""
    return importlib.util.find_spec("llguidance") is not None


def schema_in(value: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Name and JSON schema of a response format as the SDKs spell it, or of a bare schema; a text is read as JSON. None when there is none to be read."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if not isinstance(value, Mapping):
        return None
    for key in ("json_schema", "format", "schema"):  # chat completions, responses, both of their insides
        inner = value.get(key)
        if isinstance(inner, Mapping):
            found = schema_in(inner)
            if found is not None:
                return (str(value.get("name") or found[0]), found[1])
    if isinstance(value.get("properties"), Mapping) or "$ref" in value or "anyOf" in value:
        return str(value.get("title") or "schema"), value
    return None


def example(schema: Mapping[str, Any], words: int) -> Any:
    """An answer that the schema allows, with texts of so many words and lists of two items: only its shape matters. Raises ValueError for what it cannot make up."""
    return _example(schema, schema, words, _DEPTH)


def _example(schema: Any, root: Mapping[str, Any], words: int, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth == 0:
        raise ValueError("a schema without end, or none")
    if "$ref" in schema:
        return _example(_pointed(root, str(schema["$ref"])), root, words, depth - 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], root, words, depth - 1)
    kind = schema.get("type")
    kind = next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        return {name: _example(one, root, words, depth - 1) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        count = max(int(schema.get("minItems", 0)), min(_ITEMS, int(schema.get("maxItems", _ITEMS))))
        return [_example(schema.get("items"), root, words, depth - 1) for _ in range(count)]
    made: dict[Any, Any] = {
        "string": " ".join(["word"] * words),
        "integer": 42,
        "number": 12.5,
        "boolean": True,
        "null": None,
    }
    if kind not in made or "pattern" in schema or "format" in schema:
        raise ValueError(f"no example of type {kind!r}")
    return made[kind]


def _pointed(root: Mapping[str, Any], pointer: str) -> Any:
    found: Any = root
    for part in pointer.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def forced_tokens(schema: Mapping[str, Any], answer: str, tokenizer: str = tokenizers.DEFAULT) -> Forced | None:
    """Walk an answer through the grammar of its schema. None when the answer does not follow it, or the schema has no grammar. Needs llguidance."""
    import llguidance

    vocabulary = _vocabulary(tokenizer)
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(dict(schema), {"whitespace_flexible": False})
        matcher = llguidance.LLMatcher(vocabulary.inner, grammar)
        rest = json.dumps(json.loads(answer), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    if matcher.is_error():
        return None
    encode = tokenizers.get(tokenizer).encode
    ahead = list(encode(rest))
    left = rest.encode()
    total = forced = 0
    while left:
        sure = matcher.compute_ff_tokens()
        step = list(sure) or ahead[:1]
        spelled = b"".join(vocabulary.tokens[token] for token in step)
        if not left.startswith(spelled) or matcher.try_consume_tokens(step) != len(step):
            return None
        total += len(step)
        forced += len(sure)
        left = left[len(spelled) :]
        # A forced run may end inside a token of the text: what follows is then cut anew.
        ahead = ahead[len(step) :] if ahead[: len(step)] == step else list(encode(left.decode("utf-8", "replace")))
    return Forced(total, forced)


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    inner: Any  # llguidance's tokenizer
    tokens: list[bytes]


@cache
def _vocabulary(name: str) -> _Vocabulary:
    """A vocabulary as llguidance wants it; it takes about a second to make."""
    import llguidance

    tokenizer = tokenizers.get(name)
    tokens, special = tokenizers.vocabulary(name)

    class Wrapped:
        """What llguidance asks a tokenizer for."""

        eos_token_id = max(special)
        bos_token_id = None
        special_token_ids = sorted(special)

        def __init__(self) -> None:
            self.tokens = tokens

        def __call__(self, text: str | bytes) -> list[int]:
            return list(tokenizer.encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text))

    return _Vocabulary(llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped())), tokens)
