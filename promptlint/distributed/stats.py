"""`traffic stats` by inputs: each is counted by itself, and the counts are added up in the order of the inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from promptlint.app.traffic import Tokens, measured
from promptlint.distributed.inputs import Input, identity, inputs, opened
from promptlint.distributed.runner import Job
from promptlint.distributed.tokens import folder_facts
from promptlint.distributed.work import kept, key_of
from promptlint.errors import UserError
from promptlint.traffic.read import Problem, Traffic
from promptlint.traffic.readers.base import Options
from promptlint.traffic.stats import Stats

__all__ = ["Measure", "run"]


class Measure:
    """Counts inputs.

    Args:
        given: `work` (the folder), `format`, `options` (of the readers), `tokenizer`, `render`.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = dict(given)
        self._work = Path(self._given.pop("work"))
        self._tokens = Tokens(given["tokenizer"], given["render"])
        self._facts = folder_facts(given["tokenizer"]), folder_facts(given["render"])

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """The numbers of an input, and what could not be read. Raises UserError."""
        with opened(Input(**task)) as source:
            key = key_of("stats", identity(source), self._given, self._facts)

            def make(_: Path) -> dict[str, Any]:
                traffic = Traffic([], self._given["format"], options=Options(**self._given["options"]))
                found = measured(traffic, traffic.read([source]), self._tokens)
                problems = [[one.file, one.line, one.reason, one.field] for one in traffic.problems]
                return {
                    "stats": {one.name: getattr(found, one.name) for one in fields(Stats)},
                    "problems": problems,
                    "notes": traffic.notes,
                    "formats": traffic.formats,
                    "skipped": traffic.skipped,
                }

            return kept(self._work, key, make)


def run(traffic: Traffic, tokenizer: str | None, render: str | None, job: Job) -> Stats:
    """The numbers of the inputs that `traffic` names; what could not be read is left in it, as by its own iteration. Raises UserError."""
    given = {
        "work": str(job.work),
        "format": traffic.format,
        "options": asdict(traffic.options),
        "tokenizer": tokenizer,
        "render": render,
    }
    tasks = [one.to_json() for one in inputs(map(str, traffic.paths))]
    found = Stats()
    for part in job.run(Measure, given, tasks, "inputs counted"):
        traffic.problems += [Problem(*one) for one in part["problems"]]
        traffic.notes.update(part["notes"])
        traffic.formats.update(part["formats"])
        traffic.skipped += part["skipped"]
        found.merge(_stats(part["stats"]))
    if traffic.strict and traffic.problems:
        raise UserError(str(traffic.problems[0]))
    return found


def _stats(row: Mapping[str, Any]) -> Stats:
    found = Stats()
    for name, value in row.items():
        setattr(found, name, Counter(value) if isinstance(getattr(found, name), Counter) else value)
    return found
