"""Findings that are known and accepted for now: kept by fingerprint in a file, or taken from a revision.

A baseline lets a project with old findings fail on new ones only. A fingerprint holds rule, path from the project root, function and
expression, and no line, so a finding that only moved down the file is still known. Where its file is gone, the same finding in another file, in
the same function, is taken to have moved there, each for one. A function that moved to another file that goes on existing is not: that may as well be
the same mistake made again. What is in the baseline, could have been reported and is no longer found is reported as fixed, so that the file can be
written anew.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from promptlint.app.atomic import write_text
from promptlint.app.check import Request, check, wanting
from promptlint.app.discovery import absolute
from promptlint.app.revision import checked_out
from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.finding import SEVERITIES, fingerprint
from promptlint.report.model import BaselineItem, CheckReport, FindingItem, KnownItem
from promptlint.report.schema import object_schema

__all__ = ["SCHEMA", "apply", "baseline_schema", "known_at", "read", "write"]

SCHEMA = "promptlint.baseline/1"
_MOST = 100  # equal findings of one function that are told apart


def read(path: Path) -> tuple[KnownItem, ...]:
    """The findings of a baseline file. Raises UserError when the file cannot be read or is no baseline."""
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["schema"] != SCHEMA:
            raise UserError(f"{path}: written for {data['schema']!r}; this version reads {SCHEMA!r}")
        return tuple(_item(row) for row in data["findings"])
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not a baseline; `promptlint check --write-baseline {path}` writes one") from error


def _item(row: Any) -> KnownItem:
    item = KnownItem(**row)
    if not all(isinstance(value, str) for value in asdict(item).values()):
        raise TypeError(row)
    return item


def write(path: Path, report: CheckReport, settings: Settings, request: Request) -> int:
    """Write the findings of a report as a baseline; how many there are. Ordered by place in the project, so that a change of it reads well.

    Raises UserError when the file cannot be written.
    """
    items = sorted(_known(report, settings, request), key=lambda item: (item.path, item.rule, item.fingerprint))
    data = {"schema": SCHEMA, "findings": [asdict(item) for item in items]}
    try:
        write_text(path, json.dumps(data, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    return len(items)


def known_at(revision: str, settings: Settings, request: Request) -> tuple[KnownItem, ...]:
    """The findings of the same paths at a git revision, under the same settings; where one of them does not exist there, of the whole project, for it may
    have had another name.

    Raises UserError when there is no repository or no such revision.
    """
    with checked_out(revision, settings.root) as checkout:
        there, moved = checkout.request(request), checkout.settings(settings)
        if len(there.paths) < len(request.paths):
            there = replace(there, paths=(moved.root,) if moved.root.exists() else ())
        if not there.paths:
            return ()
        return _known(check(moved, there, use_cache=False), moved, there)


def _known(report: CheckReport, settings: Settings, request: Request) -> tuple[KnownItem, ...]:
    return tuple(
        KnownItem(finding.fingerprint, finding.rule, _from_root(finding.path, settings, request), finding.expression)
        for finding in report.findings
    )


def _from_root(shown: str, settings: Settings, request: Request) -> str:
    return Path(os.path.relpath(absolute(request.working_directory / shown), settings.root)).as_posix()


def apply(report: CheckReport, known: Iterable[KnownItem], settings: Settings, request: Request) -> CheckReport:
    """The report without known findings, which are counted, and with those that are fixed.

    Fixed means: known, in a file and of a rule that this run looked at, and not found any more. What is only hidden or suppressed now is neither.
    """
    by_print = {item.fingerprint: item for item in known}
    found = {finding.fingerprint for finding in report.findings}
    missing = [
        item for item in by_print.values() if item.fingerprint not in found and item.fingerprint not in report.withheld
    ]
    new = [finding for finding in report.findings if finding.fingerprint not in by_print]
    moved = _moved(missing, new, settings)
    kept = tuple(finding for finding in new if finding.fingerprint not in moved)
    unread = {_from_root(item.path, settings, request) for item in report.unsupported}
    wanted = wanting(settings)
    fixed = tuple(
        item
        for item in missing
        if item not in moved.values()
        and item.path not in unread
        and wanted(item.rule, item.path)
        and _looked_at(item, settings, request)
    )
    severities = Counter(finding.severity for finding in kept)
    return replace(
        report,
        findings=kept,
        summary=replace(report.summary, findings={word: severities[word] for word in reversed(SEVERITIES)}),
        baseline=BaselineItem(len(report.findings) - len(kept), fixed),
    )


def _moved(missing: Iterable[KnownItem], new: Sequence[FindingItem], settings: Settings) -> dict[str, KnownItem]:
    """New findings, by fingerprint, that would be known if they stood in a file that is gone: a renamed file or folder."""
    moved: dict[str, KnownItem] = {}
    for item in missing:
        if _exists(settings.root / item.path):
            continue
        for finding in new:
            if finding.fingerprint not in moved and _is_moved(item, finding):
                moved[finding.fingerprint] = item
                break
    return moved


def _exists(path: Path) -> bool:
    """Whether there is such a file. A baseline may name what no system can hold: too long a name, or a zero byte in it."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _is_moved(item: KnownItem, finding: FindingItem) -> bool:
    """Whether the finding would have the item's fingerprint in the item's file."""
    if finding.rule != item.rule or finding.expression.split() != item.expression.split():
        return False
    places = (
        fingerprint(item.rule, item.path, finding.function, finding.expression, number) for number in range(_MOST)
    )
    return item.fingerprint in places


def baseline_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of a baseline file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "promptlint check --write-baseline",
        "type": "object",
        "properties": {"schema": {"const": SCHEMA}, "findings": {"type": "array", "items": object_schema(KnownItem)}},
        "required": ["schema", "findings"],
        "additionalProperties": False,
    }


def _looked_at(item: KnownItem, settings: Settings, request: Request) -> bool:
    place = absolute(settings.root / item.path)
    given = [absolute(request.working_directory / path) for path in request.paths]
    return any(place == path or place.is_relative_to(path) for path in given)
