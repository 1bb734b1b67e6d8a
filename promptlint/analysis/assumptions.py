"""What every estimate rests on. Nothing is estimated without it, and all of it is printed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from promptlint import tokenizers
from promptlint.catalog.profiles import Profile, Thresholds, encoding_for, load_profile, load_thresholds
from promptlint.ir import TemplateLayout

__all__ = ["Assumptions", "count_tokens", "remembered"]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The traffic profile, the tokenizer and the thresholds of one run.

    `tokenizer` None: each call site is counted with its model's own encoding, o200k_base where the model is unknown.
    `layouts`: of chat templates that were found on this machine, by the model's name as the code spells it, or by the template's text where the code
    spells that; "" is the one that holds for every call site without another. `extra_rules`: the user's own folders, whose providers/*.toml override shipped terms.
    """

    profile: Profile
    thresholds: Thresholds
    tokenizer: str | None = None
    layouts: Mapping[str, TemplateLayout] = field(default_factory=dict, hash=False)
    extra_rules: tuple[Path, ...] = ()

    @classmethod
    def default(cls, profile: str = "typical", tokenizer: str | None = None) -> Assumptions:
        """The shipped profile of that name. Raises UserError when there is none."""
        return cls(load_profile(profile), load_thresholds(), tokenizer)

    def encoding(self, model: str | None) -> str:
        """The encoding that counts a call site's tokens."""
        return self.tokenizer or encoding_for(model)[0]

    def layout(self, model: str | None, template: str | None = None) -> TemplateLayout | None:
        """What is known of the chat template that renders a call site: the one that it gives as text, its model's, or the one for all."""
        for name in (template, model, ""):
            if name is not None and name in self.layouts:
                return self.layouts[name]
        return None

    def as_json(self) -> Mapping[str, object]:
        """For the report's `assumptions`: names, counts with their meaning, thresholds."""
        profile = self.profile
        shown = {
            name or "all call sites": {
                "path": layout.path,
                "order": [kind.value for kind in layout.front],
                "behind_history": [kind.value for kind in layout.late],
                "date": layout.date,
            }
            for name, layout in sorted(self.layouts.items())
            if "\n" not in name and "{" not in name
        }
        templates = {"chat_templates": shown} if shown else {}
        return {
            "profile": profile.name,
            "tokenizer": self.tokenizer or tokenizers.DEFAULT,
            "tokenizer_from": "setting" if self.tokenizer else "model of the call site, o200k_base where it is unknown",
            "requests_per_day": profile.requests_per_day,
            "replicas": profile.replicas,
            "tenants": profile.tenants,
            "documents": profile.documents,
            "users": profile.users,
            "sessions": profile.sessions,
            "turns": profile.turns,
            "severity_medium_tokens": self.thresholds.medium,
            "severity_high_tokens": self.thresholds.high,
            "pedantic_below_tokens": self.thresholds.notice,
            **templates,
        }


remembered: dict[str, int] = {}
"""Counts by encoding and digest of the text. The pipeline fills it with those of earlier runs, and keeps it: loading an encoding costs
half a second, which a run that meets no new text need not spend."""


@lru_cache(maxsize=1 << 16)
def count_tokens(encoding: str, text: str) -> int:
    """Tokens of one text. Pieces of a prompt are counted one by one: a seam between two can differ by a token from the joined text."""
    if not text:
        return 0
    key = f"{encoding} {hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"
    if key not in remembered:
        remembered[key] = tokenizers.get(encoding).count(text)
    return remembered[key]
