"""Inputs from seeds: cut, splice, repeat, nest, and odd bytes. Everything comes from one `random.Random`, so a run can be repeated.

Two kinds of change are mixed. Those of bytes find what a decoder or a lexer does not expect; those of words, lines and brackets keep most of an input in
its grammar, so that it gets past the lexer and tries the code behind it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

__all__ = ["MOST_BYTES", "mutated"]

MOST_BYTES = (
    60_000  # of one input: what grows without bounds is slow to try and hard to read; hand-made inputs are larger
)

ODD: tuple[bytes, ...] = (
    b"\0", b"\r", b"\r\n", b"\x0c", b"\x1b[31m", b"\x1b]0;x\x07", b"\xef\xbb\xbf", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\x85", b"\xa0",
    "\u2028".encode(), "\u202e".encode(), "\u0130".encode(), "\U0001f600".encode(), "e\u0301".encode(), "\ufeff".encode(), b"\t", b"  ", b"\\", b"\\\n",
    b"'", b'"', b'"""', b"'''", b"`", b"$", b"$$", b"%", b"%%", b"%s", b"%(x)s", b"%-5.3d", b"{", b"}", b"{{", b"}}", b"{%", b"%}", b"{#", b"#}", b"{{-", b"-%}",
    b"[", b"]", b"(", b")", b":", b",", b";", b"#", b"&a ", b"*a", b"!!python/object:os.system ", b"<<: ", b"---\n", b"- ", b"? ", b"|\n", b">-\n",
    b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"1e-320", b"99999999999999999999999999", b"-0.0", b"0x1f", b"1_0", b"null", b"None", b"true", b"[]", b"{}", b'""',
    b"lambda: ", b"await ", b"yield ", b"async ", b"*", b"**", b":= ", b"match x:\n", b"case _:\n", b"del x\n", b"global x\n", b"return ", b"class A(A): ", b"def f(f=f): ",
    b"self.", b"f(", b".format(", b".join(", b".append(", b"[::-1]", b"[0:", b"for x in ", b" if x else ", b"import ", b"from . import *\n",
    b"\n", b"\n\n", b"\n    ", b"# promptlint: allow[all] x", b"{# promptlint: allow[", b"# type: ignore", b"# -*- coding: utf-7 -*-\n", b"# coding: \x00\n",
    b"{% include 'input.j2' %}", b"{% extends 'input.j2' %}", b"{% import 'input.j2' as x %}", b"{% block a %}", b"{% endblock %}", b"{% raw %}", b"{{ super() }}",
    b"{{ x.__class__.__mro__ }}", b"{% for x in range(10**9) %}", b"{{ 'a' * 10**9 }}", b"{{ loop.index }}", b"|tojson", b"|join(",
)  # fmt: skip
WORDS = re.compile(rb"[A-Za-z_][A-Za-z0-9_.]*|\d+|\s+|[^\sA-Za-z0-9_]")
PAIRS = ((b"(", b")"), (b"[", b"]"), (b"{", b"}"), (b'f"{', b'}"'), (b"{% if x %}", b"{% endif %}"), (b"{{ ", b" }}"), (b"{% for x in y %}", b"{% endfor %}"), (b'{"a":', b"}"), (b"not ", b""), (b"-", b""), (b"x.", b""), (b"", b".x"), (b"", b"()"), (b"lambda: ", b""), (b"if x:\n ", b""))  # fmt: skip


def mutated(rng: random.Random, inputs: Sequence[bytes]) -> bytes:
    """One new input, made from one or two of `inputs` by a few changes; never longer than `MOST_BYTES`."""
    data = rng.choice(inputs)
    for _ in range(1 + min(int(rng.expovariate(0.5)), 12)):
        data = rng.choice(_CHANGES)(rng, data, inputs)[:MOST_BYTES]
    return data


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    """A stretch of the input: mostly short, sometimes anything."""
    start = rng.randrange(len(data) + 1)
    length = int(rng.expovariate(1 / 12)) if rng.random() < 0.7 else rng.randrange(len(data) + 1)
    return start, min(start + length, len(data))


def _cut(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    return data[:start] + data[end:]


def _end(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _repeat(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    times = rng.choice((2, 2, 3, 8, 40, 400))
    return data[:start] + data[start:end] * min(times, MOST_BYTES // max(end - start, 1) + 1) + data[end:]


def _move(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    rest = data[:start] + data[end:]
    place = rng.randrange(len(rest) + 1)
    return rest[:place] + data[start:end] + rest[place:]


def _splice(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    other = rng.choice(inputs)
    start, end = _range(rng, other)
    place, after = _range(rng, data)
    return data[:place] + other[start:end] + data[after if rng.random() < 0.5 else place :]


def _cross(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """The first lines of one and the last lines of another."""
    first, second = data.split(b"\n"), rng.choice(inputs).split(b"\n")
    return b"\n".join(first[: rng.randrange(len(first) + 1)] + second[rng.randrange(len(second) + 1) :])


def _odd(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place, after = _range(rng, data)
    return data[:place] + rng.choice(ODD) + data[after if rng.random() < 0.3 else place :]


def _byte(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + bytes([rng.randrange(256)]) + data[place + rng.randrange(2) :]


def _word(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """One word becomes another word of this or another input, or an odd one."""
    words = list(WORDS.finditer(data))
    if not words:
        return data
    found = rng.choice(words)
    kind = rng.random()
    if kind < 0.4:
        new = rng.choice(words)[0]
    elif kind < 0.7:
        new = rng.choice(WORDS.findall(rng.choice(inputs)) or [b""])
    else:
        new = rng.choice(ODD)
    return data[: found.start()] + new + data[found.end() :]


def _line(rng: random.Random, data: bytes, inputs: Sequence[bytes]) -> bytes:
    """Lines are swapped, doubled, indented, or taken from another input."""
    lines = data.split(b"\n")
    place = rng.randrange(len(lines))
    kind = rng.randrange(4)
    if kind == 0:
        other = rng.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    elif kind == 1:
        lines.insert(rng.randrange(len(lines) + 1), lines[place])
    elif kind == 2:
        lines[place] = (
            rng.choice((b"", b" ", b"    ", b"\t")) + lines[place].lstrip()
            if rng.random() < 0.5
            else b"    " + lines[place]
        )
    else:
        lines.insert(place, rng.choice(rng.choice(inputs).split(b"\n")))
    return b"\n".join(lines)


def _nest(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A stretch between words is wrapped in brackets, a few times or very deep."""
    places = [found.start() for found in WORDS.finditer(data)] or [0]
    start = rng.choice(places)
    end = next((place for place in places if place > start), len(data))
    depth = rng.choice((1, 1, 2, 5, 30, 90, 250, 2_000))
    before, after = rng.choice(PAIRS)
    return data[:start] + before * depth + data[start:end] + after * depth + data[end:]


_Change = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
_CHANGES: tuple[_Change, ...] = (_cut, _end, _repeat, _move, _splice, _splice, _cross, _odd, _odd, _byte, _word, _word, _word, _line, _line, _nest)  # fmt: skip
