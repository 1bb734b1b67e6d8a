"""Text to token ids, offline. Encodings are loaded on first use: that costs 0.5 to 1 s, so never for `--help`."""

from __future__ import annotations

import os
import re
import sys
import zlib
from array import array
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, Protocol

from promptlint.errors import UserError

__all__ = ["DEFAULT", "DISGUISED", "EMBEDDED", "ID_BYTES", "ID_TYPE", "Tokenizer", "get", "spelled", "vocabulary"]

ID_BYTES = 4
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
ID_TYPE = "I" if array("I").itemsize == ID_BYTES else "L"

DEFAULT = "o200k_base"
DISGUISED = "disguised"
EMBEDDED = ("cl100k_base", "o200k_base", "o200k_harmony", "llama3", "qwen3")


class Tokenizer(Protocol):
    """`encode` never interprets special tokens that user text spells; `count` is the length of `encode`.

    `special` is the id of a special token by its text, None where the vocabulary has none of that name.
    """

    @property
    def name(self) -> str: ...

    def encode(self, text: str) -> Sequence[int]: ...

    def count(self, text: str) -> int: ...

    def special(self, text: str) -> int | None: ...

    def packed(self, texts: Sequence[str]) -> list[bytes]:
        """The ids of each text as four-byte integers in the machine's order: what caches compare."""


_BATCH = 8192
"""Characters from which a batch pays: it hands over an array without making an object for each id, but costs some 10 microseconds a call."""
_SHARED = 1 << 18
"""Characters of a batch that are worth a thread each; the ids do not depend on it."""
_MUCH = 8 << 20
"""Characters from which on batches pay at all: the first one loads numpy, which costs what the arrays save on so many."""


@lru_cache(maxsize=4096)
def _packer(count: int) -> Callable[..., bytes]:
    """Packs so many ids as `array` does, in four fifths of its time."""
    return Struct(f"={count}I").pack


def _packed(tokenizer: Tokenizer, texts: Sequence[str]) -> list[bytes]:
    return [_packer(len(ids))(*ids) for ids in map(tokenizer.encode, texts)]


def _clean(text: str) -> str:
    """Lone surrogates (half of an escaped pair, from broken JSON) have no UTF-8 form; servers replace them, and so do we."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Quicktok:
    """One of the encodings that quicktok-v1 carries (checked against 0.4.0)."""

    def __init__(self, name: str) -> None:
        import quicktok

        self.name = name
        self._encoding = quicktok.get_encoding(name)
        self._seen = 0  # characters that were packed so far

    def encode(self, text: str) -> Sequence[int]:
        try:
            ids: Sequence[int] = self._encoding.encode_ordinary(text)
        except (TypeError, UnicodeEncodeError):  # lone surrogates have no UTF-8 form
            ids = self._encoding.encode_ordinary(_clean(text))
        return ids

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def packed(self, texts: Sequence[str]) -> list[bytes]:
        size = sum(map(len, texts))
        self._seen += size
        if size < _BATCH or (self._seen < _MUCH and "numpy" not in sys.modules):
            return _packed(self, texts)
        threads = max(1, min(_CORES, size // _SHARED))
        try:
            ids, offsets = self._encoding.encode_batch(texts, threads)
        except (TypeError, UnicodeEncodeError):
            ids, offsets = self._encoding.encode_batch([_clean(text) for text in texts], threads)
        data = memoryview(ids).cast("B")
        ends = (offsets * ids.itemsize).tolist()
        return [data[start:end].tobytes() for start, end in pairwise(ends)]

    @property
    def raw(self) -> Any:
        """The encoding itself."""
        return self._encoding

    def special(self, text: str) -> int | None:
        ids = self._encoding.encode_with_special_tokens(text)
        return ids[0] if len(ids) == 1 and self._encoding.is_special_token(ids[0]) else None


class _Tiktoken:
    """An encoding of tiktoken that quicktok lacks. Its tables are fetched at run time, or found in TIKTOKEN_CACHE_DIR."""

    def __init__(self, name: str) -> None:
        import tiktoken

        self.name = name
        try:
            self._encoding = tiktoken.get_encoding(name)
        except ValueError:
            raise UserError(f"unknown tokenizer {name!r}; embedded: {', '.join(EMBEDDED)}") from None
        except Exception as error:
            raise UserError(
                f"tokenizer {name!r} needs tables that tiktoken fetches from the network ({type(error).__name__}); "
                f"set TIKTOKEN_CACHE_DIR, or take one of: {', '.join(EMBEDDED)}"
            ) from error

    def encode(self, text: str) -> Sequence[int]:
        return self._encoding.encode_ordinary(text)

    def count(self, text: str) -> int:
        return len(self._encoding.encode_ordinary(text))

    def packed(self, texts: Sequence[str]) -> list[bytes]:
        return _packed(self, texts)

    @property
    def raw(self) -> Any:
        """The encoding itself."""
        return self._encoding

    def special(self, text: str) -> int | None:
        try:
            return self._encoding.encode_single_token(text) if text in self._encoding.special_tokens_set else None
        except KeyError:
            return None


class _Disguised:
    """Counts text whose words were replaced by codes of the same length (`promptlint record`) as an encoding would count the words that stood there.

    No encoding knows the codes, and would give each several tokens. Here a word of up to 12 letters with the space before it is one token, a longer one has a token
    for every 6 letters, three digits are one, and a run of other marks is one. Against o200k_base on English prose, code and JSON this is within 10 %
    (a test says so). Ids are hashes of the pieces: equal pieces, equal ids.
    """

    name = DISGUISED

    def encode(self, text: str) -> Sequence[int]:
        ids = []
        for piece in _PIECES.findall(text):
            word = piece.strip()
            if len(word) > _WORD and word.isalpha():
                ids += [
                    zlib.crc32(piece[at : at + 6].encode("utf-8", "replace")) >> 2 for at in range(0, len(piece), 6)
                ]
            else:
                ids.append(zlib.crc32(piece.encode("utf-8", "replace")) >> 2)
        return ids

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def packed(self, texts: Sequence[str]) -> list[bytes]:
        return _packed(self, texts)

    def special(self, text: str) -> int | None:
        del text
        return None


_WORD = 12
_PIECES = re.compile(r" ?[^\W\d_]+|\d{1,3}| ?[^\w\s]+[\r\n]*|_|\s*[\r\n]+|\s+(?!\S)|\s+")


class _Transformers:
    """A tokenizer of transformers, from a local directory or the hub (the extra `hf`)."""

    def __init__(self, name: str) -> None:
        try:
            import transformers
        except ImportError:
            raise UserError(f"tokenizer {name!r}: install promptlint-cache[hf] to load it") from None
        try:
            self.inner = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            raise UserError(f"tokenizer {name!r} cannot be loaded: {reason[:200]}") from error
        self.name = name

    def encode(self, text: str) -> Sequence[int]:
        ids: Sequence[int] = self.inner.encode(text, add_special_tokens=False, split_special_tokens=True)
        return ids

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def packed(self, texts: Sequence[str]) -> list[bytes]:
        return _packed(self, texts)

    def special(self, text: str) -> int | None:
        ids = self.inner.convert_tokens_to_ids([text])
        return ids[0] if ids and ids[0] is not None and ids[0] != self.inner.unk_token_id else None


@cache
def get(name: str = DEFAULT) -> Tokenizer:
    """The tokenizer of that name: an embedded one, one of tiktoken's, a directory or a model of the hub. Raises UserError when there is none."""
    if name in EMBEDDED:
        return _Quicktok(name)
    if name == DISGUISED:
        return _Disguised()
    if Path(name).is_dir() or "/" in name:
        return _Transformers(name)
    return _Tiktoken(name)


def vocabulary(name: str = DEFAULT) -> tuple[list[bytes], set[int]]:
    """The bytes of each token by id, and the ids of special tokens and of gaps. Raises UserError for a tokenizer that does not give its bytes away."""
    tokenizer = get(name)
    if not isinstance(tokenizer, _Quicktok | _Tiktoken):
        raise UserError(
            f"tokenizer {name!r}: the bytes of its tokens are not known; take one of: {', '.join(EMBEDDED)}"
        )
    encoding = tokenizer.raw
    tokens: list[bytes] = []
    special: set[int] = set()
    names = {encoding.encode_single_token(text) for text in encoding.special_tokens_set}
    for token in range(encoding.max_token_value + 1):
        try:
            tokens.append(encoding.decode_single_token_bytes(token))
        except (KeyError, ValueError, IndexError, OverflowError):
            tokens.append(b"")
            special.add(token)
    return tokens, special | names


def spelled(name: str, ids: Sequence[int]) -> str:
    """The text of some ids. An id that the vocabulary lacks, and half a character at either end, shows as U+FFFD; empty where a tokenizer has no text to give."""
    tokenizer = get(name)
    if isinstance(tokenizer, _Quicktok | _Tiktoken):
        return b"".join(_bytes_of(tokenizer.raw, one) for one in ids).decode("utf-8", "replace")
    if isinstance(tokenizer, _Transformers):
        known = len(tokenizer.inner)
        return str(tokenizer.inner.decode([one for one in ids if one < known]))
    return ""


def _bytes_of(encoding: Any, token: int) -> bytes:
    try:
        found: bytes = encoding.decode_single_token_bytes(token)
    except (KeyError, ValueError, IndexError, OverflowError):
        return "\ufffd".encode()
    return found
