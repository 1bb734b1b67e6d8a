"""Traffic without its text: salted, prefix-chained hashes of pages of token ids.

The hash of a page covers the salt, the namespace, the page size and all tokens up to its end, so equal hashes mean equal prefixes, and nothing can be looked up in
a table of known texts without the salt. Only whole pages are hashed: what is left of a prompt is told by `input_length`, and no cache with this page reuses it.
Replaying the records at the same page gives the same cached tokens as the text, request by request, because every engine's rule (prefix, last token
computed again, whole pages) can be applied to the pages alone. `output_hash_ids` are the pages that the answer completes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from promptlint.traffic.record import Record

__all__ = ["HASH_BYTES", "anonymous", "page_hashes", "pseudonym"]

HASH_BYTES = 10
"""80 bits a page: with a million distinct pages two equal hashes by accident have a chance below 1e-12."""
_ID_BYTES = 4
_KEPT = ("synthetic",)


def page_hashes(tokens: bytes, page: int, salt: bytes, namespace: str = "") -> list[str]:
    """A hash for every whole page of packed token ids (four bytes each), each chained to the one before."""
    parent = hmac.new(salt, f"{page}\0{namespace}".encode(), hashlib.sha256).digest()
    found = []
    step = page * _ID_BYTES
    for at in range(0, len(tokens) - step + 1, step):
        parent = hmac.new(salt, parent + tokens[at : at + step], hashlib.sha256).digest()
        found.append(parent[:HASH_BYTES].hex())
    return found


def pseudonym(text: str, salt: bytes) -> str:
    """A stable name in place of an id; empty stays empty."""
    return (
        hmac.new(salt, b"name\0" + text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]
        if text
        else ""
    )


def anonymous(record: Record, prompt: bytes, stored: bytes, page: int, salt: bytes) -> Record:
    """The record without text. `prompt` are its packed token ids, `stored` what the cache holds when it is done.

    Times, model, lengths and usage stay; ids, sessions and namespaces become pseudonyms; everything else is left out, file names too.
    """
    namespace = f"{record.model}\0{record.namespace}"
    hashes = page_hashes(prompt, page, salt, namespace)
    kept = page_hashes(stored, page, salt, namespace)
    shared = _common(hashes, kept)
    extra = {key: record.extra[key] for key in _KEPT if key in record.extra}
    if shared == len(hashes):
        extra["output_hash_ids"] = kept[shared:]
    else:  # what is kept is not a continuation of what was sent
        extra["kept_hash_ids"] = kept
    return Record(
        format="anonymous",
        id=pseudonym(record.id, salt),
        session_id=pseudonym(record.session_id, salt),
        timestamp=record.timestamp,
        model=record.model,
        namespace=pseudonym(record.namespace, salt),
        call_site=record.call_site,
        hash_ids=hashes,
        block_size=page,
        input_length=len(prompt) // _ID_BYTES,
        output_length=record.output_length
        if record.output_length is not None
        else max(len(stored) - len(prompt), 0) // _ID_BYTES,
        usage=record.usage,
        extra=extra,
    )


def _common(a: Iterable[str], b: Iterable[str]) -> int:
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count
