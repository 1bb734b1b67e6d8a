"""What of a prompt may be shown: short stretches around a difference, secrets masked; or structure only."""

from __future__ import annotations

import hashlib
import re

__all__ = ["AROUND", "digest", "masked", "snippet"]

AROUND = 20
"""Characters shown before and behind a difference."""
_LONGEST = 60
_NEAR = 4096
"""Characters beyond a snippet in which a secret may begin or end: a private key in PEM form has some 3,000."""

_SECRET = re.compile(
    r"""(?:sk|pk|rk)[-_][A-Za-z0-9_-]{12,}|://[^\s:@/]+:[^\s@/]+(?=@)|\b(?:ghp|gho|ghs|ghu|github_pat|glpat|xox[abprs]|hf|npm|pypi|AKIA|ASIA|AIza|ya29|eyJ)[A-Za-z0-9_.\-]{12,}
    |-----BEGIN[ A-Z]*PRIVATE\ KEY-----[\s\S]*?(?:-----END[ A-Z]*PRIVATE\ KEY-----|$)
    |(?i:bearer|basic)\s+[A-Za-z0-9._~+/=-]{12,}
    |(?i:(?:api[_-]?key|secret|passwo?r?d|pwd|token|authorization|credential)s?)["']?\s*[:=]\s*["']?[^\s"',;}]{4,}""",
    re.VERBOSE,
)


def masked(text: str) -> str:
    """The text with everything that looks like a key, token or password replaced by stars."""
    return _SECRET.sub("***", text)


def snippet(text: str, start: int, end: int, around: int = AROUND) -> str:
    """The stretch from `start` to `end` with up to `around` characters around it, secrets masked, the middle of a long one left out.

    Secrets are looked for in a wider window, so that one cut by the snippet's edge is masked too.
    """
    end = min(max(end, start), len(text))
    low, high = max(0, start - around), min(len(text), end + around)
    shown: list[str] = []
    at = low
    for match in _SECRET.finditer(text, max(0, low - _NEAR), min(len(text), high + _NEAR)):
        if match.end() > low and match.start() < high:
            shown += [text[at : match.start()], "***"]
            at = match.end()
    return _short("".join([*shown, text[at:high]]))


def _short(text: str) -> str:
    limit = _LONGEST + 2 * AROUND
    return text if len(text) <= limit else f"{text[: limit // 2]}…{text[-limit // 2 :]}"


def digest(text: str, salt: str = "") -> str:
    """A short stable hash of a text, for reports that must not show it."""
    return hashlib.sha256(f"{salt}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:12]
