"""What a workflow run knows of itself: environment variables and the payload of the event. Nothing of it is taken on trust but the types."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptlint.errors import UserError

__all__ = ["Workflow", "dig"]


def dig(payload: Any, *keys: str) -> Any:
    """The value at a path of keys, None when any is missing."""
    for key in keys:
        payload = payload.get(key) if isinstance(payload, dict) else None
    return payload


@dataclass(frozen=True, slots=True)
class Workflow:
    """The run of a workflow: its event with payload, and where its outputs go."""

    event: str
    payload: Any
    repository: str
    api_url: str
    token: str
    run_number: int
    attempt: int
    output: Path | None
    summary: Path | None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Workflow:
        """Raises UserError outside of a workflow, or when the payload cannot be read."""
        event, path, repository = (
            environment.get(f"GITHUB_{name}", "") for name in ("EVENT_NAME", "EVENT_PATH", "REPOSITORY")
        )
        if not (event and path and repository):
            raise UserError(
                "not in a GitHub workflow: GITHUB_EVENT_NAME, GITHUB_EVENT_PATH and GITHUB_REPOSITORY are not set"
            )
        try:
            payload = json.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"{path}: the event cannot be read: {error}") from error
        return cls(
            event,
            payload,
            repository,
            environment.get("GITHUB_API_URL") or "https://api.github.com",
            environment.get("GITHUB_TOKEN", ""),
            _number(environment.get("GITHUB_RUN_NUMBER")),
            _number(environment.get("GITHUB_RUN_ATTEMPT")),
            _path(environment.get("GITHUB_OUTPUT")),
            _path(environment.get("GITHUB_STEP_SUMMARY")),
        )

    def write_outputs(self, values: Mapping[str, str]) -> None:
        """Outputs of the step. A random delimiter keeps a value from adding outputs of its own."""
        if self.output is None:
            return
        with self.output.open("a", encoding="utf-8") as file:
            for name, value in values.items():
                delimiter = f"end-{secrets.token_hex(16)}"
                file.write(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")

    def write_summary(self, text: str) -> None:
        """More of the step's summary page."""
        if self.summary is not None:
            with self.summary.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text + "\n")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 1


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
