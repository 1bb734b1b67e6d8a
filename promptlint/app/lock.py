"""`promptlint.lock`: the cache key of each call site, kept beside the code so that a change of one is seen where the code is reviewed.

A changed key costs once: after deployment no request finds the prefix that earlier ones left behind. The file is opt-in: `promptlint show
--write-lock` writes it at the project root, and `promptlint check --locked` fails when a key changed and the file did not. A call site that is new
or gone costs nothing and does not fail; it is named, so that the lock does not rot.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from promptlint.app.atomic import write_text
from promptlint.app.check import Request
from promptlint.app.discovery import absolute
from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.report.model import CallSiteItem, CheckReport
from promptlint.report.schema import object_schema

__all__ = ["FILE", "SCHEMA", "Differences", "Locked", "compare", "lock_schema", "read", "write"]

FILE = "promptlint.lock"
SCHEMA = "promptlint.lock/1"


@dataclass(frozen=True, slots=True)
class Locked:
    """One call site: its key, the tokens of its static prefix, and its block kinds in rendered order."""

    cache_key: str
    prefix_tokens: int
    blocks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """The lock against a run, by call-site id from the project root. Only `changed` makes `check --locked` fail."""

    changed: tuple[tuple[str, Locked, Locked], ...]  # id, as locked, as it is
    new: tuple[str, ...]
    gone: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """One sentence a difference."""
        for site, was, now in self.changed:
            order = (
                ""
                if was.blocks == now.blocks
                else f"; blocks were {', '.join(was.blocks)}, are {', '.join(now.blocks)}"
            )
            yield (
                f"{site}: the cache key changed: {was.cache_key[:19]} with {was.prefix_tokens:,} tokens in the lock, "
                f"{now.cache_key[:19]} with {now.prefix_tokens:,} now{order}"
            )
        yield from (f"{site}: not in {FILE} yet" for site in self.new)
        yield from (f"{site}: in {FILE}, but gone from the code" for site in self.gone)


def read(settings: Settings) -> dict[str, Locked]:
    """The lock of a project by call-site id. Raises UserError when there is none or it is no lock."""
    path = settings.root / FILE
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["schema"] != SCHEMA:
            raise UserError(
                f"{path}: written for {data['schema']!r}, this version reads {SCHEMA!r}; remove it to have it written anew"
            )
        return {site: _locked(row) for site, row in data["call_sites"].items()}
    except FileNotFoundError:
        raise UserError(f"{path}: there is no lock; `promptlint show --write-lock` writes it") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path}: not a lock (a merge conflict, perhaps); remove it, and `promptlint show --write-lock` writes it anew"
        ) from error


def _locked(row: Mapping[str, Any]) -> Locked:
    key, tokens, blocks = row["cache_key"], row["prefix_tokens"], row["blocks"]
    fits = isinstance(key, str) and type(tokens) is int and isinstance(blocks, list)
    if len(row) != 3 or not fits or not all(isinstance(kind, str) for kind in blocks):
        raise ValueError(row)
    return Locked(key, tokens, tuple(blocks))


def write(report: CheckReport, settings: Settings, request: Request) -> Path:
    """Write the call sites of a report into the lock, which keeps those outside of the request's paths. Raises UserError when it cannot."""
    path = settings.root / FILE
    kept = {}
    if path.exists():
        kept = {site: row for site, row in read(settings).items() if not _in_paths(site, settings, request)}
    rows = kept | _rows(report, settings, request)
    data = {
        "schema": SCHEMA,
        "about": "Cache keys of the call sites, written by `promptlint show --write-lock`; a change costs its prefix once after deployment.",
        "call_sites": {site: asdict(rows[site]) for site in sorted(rows)},
    }
    try:
        write_text(path, json.dumps(data, indent=2) + "\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path


def compare(report: CheckReport, settings: Settings, request: Request) -> Differences:
    """The lock of the project against a report, within the paths of the request. Raises UserError without a lock."""
    known = {site: row for site, row in read(settings).items() if _in_paths(site, settings, request)}
    found = _rows(report, settings, request)
    both = sorted(known.keys() & found.keys())
    unread = {_from_root(site, settings, request) for site in report.call_sites if site.reading == "not"}
    return Differences(
        tuple((site, known[site], found[site]) for site in both if known[site].cache_key != found[site].cache_key),
        tuple(sorted(found.keys() - known.keys())),
        tuple(sorted(known.keys() - found.keys() - unread)),
    )


def lock_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of promptlint.lock."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": FILE,
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA},
            "about": {"type": "string"},
            "call_sites": {"type": "object", "additionalProperties": object_schema(Locked)},
        },
        "required": ["schema", "about", "call_sites"],
        "additionalProperties": False,
    }


def _rows(report: CheckReport, settings: Settings, request: Request) -> dict[str, Locked]:
    """By id from the project root. A call site that was not read has no key worth keeping."""
    return {
        _from_root(site, settings, request): Locked(
            site.cache_key, site.cacheable_prefix_tokens, tuple(block.kind for block in site.blocks)
        )
        for site in report.call_sites
        if site.reading != "not"
    }


def _from_root(site: CallSiteItem, settings: Settings, request: Request) -> str:
    path = Path(os.path.relpath(absolute(request.working_directory / site.path), settings.root)).as_posix()
    return path + site.id.removeprefix(site.path)


def _in_paths(site: str, settings: Settings, request: Request) -> bool:
    place = absolute(settings.root / site.split("::", 1)[0])
    given = [absolute(request.working_directory / path) for path in request.paths]
    return any(place == path or place.is_relative_to(path) for path in given)
