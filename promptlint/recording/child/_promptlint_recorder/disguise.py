"""Text without its words: each run of letters or digits becomes a code of the same length and shape, under a key that only this machine has.

The code of a run is prefix-preserving: every character is shifted within its class (a-z, A-Z, 0-9) by an amount that depends on the key and on all characters of the run
before it. So two texts part at the very character where the originals part, equal words have equal codes, different words never do, and where two texts
are in step again their codes are too. Lengths, spaces, punctuation and the shape of dates and ids stay: what a cache sees, and what a diagnosis needs. What a word
was cannot be read without the key; how often the same word comes back can, as in any pseudonymised text.

A short public list of words that label a value or tell a time stays readable: "Date:", "step", "user", "Monday". They name what a value is and are none.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

__all__ = ["LABELS", "key_name", "row", "text"]

_LABEL_WORDS = """
    date time now today datum uhrzeit heute fecha hora hoy heure data oggi jan january feb february mar march apr
    april may jun june jul july aug august sep september oct october nov november dec december mon monday tue tues
    tuesday wed wednesday thu thurs thursday fri friday sat saturday sun sunday am pm utc gmt t z request trace
    message messages msg correlation run job req span invocation event nonce seed uuid guid id no number call task
    sess session thread item rid toolu chatcmpl resp fc rs step turn iteration round attempt retry count budget
    remaining left used usage token tokens calls progress page total v x nr cwd working directory dir copy tree
    branch commit git host hostname machine pid process port platform os shell file files path open tabs workspace
    uptime memory load ip user username customer client tenant org organization organisation account member employee
    patient student name mail email phone locale language timezone conversation chat team company plan tier role
    loyalty address preference preferences
"""
LABELS = frozenset(_LABEL_WORDS.split())
_RUN = re.compile(r"[^\W\d_]+|\d+")
_AS_IS = 64
"""Characters of a run that are coded one by one; the rest of a longer one (encoded pictures) in stretches of 32."""
_STRETCH = 32
_MOST = 200_000
_CLASSES = ((0x61, 26), (0x41, 26), (0x30, 10))

_known: dict[bytes, dict[str, str]] = {}

_ENVELOPE = frozenset(["timestamp", "id", "call_site", "usage", "recorded", "model"])
_PLAIN_NAMES = """
    role type model ttl effort reasoning_effort verbosity service_tier mode detail media_type mimeType tool_choice
    required format status prompt_cache_retention truncation strategy encoding stop_reason finish_reason
"""
_PLAIN = frozenset(_PLAIN_NAMES.split())
"""Fields whose text is a word of the interface, not of the prompt."""
_TOOL = frozenset(["parameters", "input_schema", "inputSchema", "arguments", "input", "description", "schema"])
"""Fields that stand beside the name of a tool or of a schema."""


def key_name(key: bytes) -> str:
    """A name by which a key can be found again, and from which it cannot be computed."""
    return hashlib.blake2b(key, digest_size=6, person=b"promptlint-key").hexdigest()


def text(value: str, key: bytes) -> str:
    """A text in disguise."""
    known = _known.setdefault(key, {})

    def code(match: re.Match[str]) -> str:
        run = match.group()
        found = known.get(run)
        if found is None:
            if len(known) >= _MOST:
                known.clear()
            found = known[run] = run if run.lower() in LABELS else _code(run, key)
        return found

    return _RUN.sub(code, value)


def _code(run: str, key: bytes) -> str:
    state = hashlib.blake2b(key=key, digest_size=16)
    out = []
    for character in run[:_AS_IS]:
        shift = int.from_bytes(state.digest()[:4], "big")
        point = ord(character)
        for base, size in _CLASSES:
            if base <= point < base + size:
                out.append(chr(base + (point - base + shift) % size))
                break
        else:  # other scripts: within a block of 64 neighbours
            out.append(chr(point & ~0x3F | (point + shift) & 0x3F))
        state.update(character.encode("utf-8", "surrogatepass"))
    for at in range(_AS_IS, len(run), _STRETCH):
        piece = run[at : at + _STRETCH]
        state.update(piece.encode("utf-8", "surrogatepass"))
        out.append(state.hexdigest()[: len(piece)])
    return "".join(out)


def row(line: dict[str, Any], key: bytes) -> dict[str, Any]:
    """A record in disguise: its numbers, structure and the words of the interface as they are."""
    found = {name: value if name in _ENVELOPE else _value(value, key, name) for name, value in line.items()}
    if "timestamp" in line:
        found["recorded"] = {**line.get("recorded", {}), "disguised": key_name(key)}
    return found


def _value(value: Any, key: bytes, name: str = "") -> Any:
    if isinstance(value, str):
        return value if name in _PLAIN else text(value, key)
    if isinstance(value, dict):
        tool = bool(_TOOL & value.keys())
        return {
            inner: item if inner == "name" and tool and isinstance(item, str) else _value(item, key, inner)
            for inner, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_value(item, key, name) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return text(str(value), key)
