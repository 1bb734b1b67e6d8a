"""What `promptlint init` finds in a project, and the configuration that fits it.

The configuration says only what the defaults do not: folders of prompts whose names the walk does not know. Everything else that was found is told to the user. The
text is read by the configuration reader before it takes its place, in one step; another table of a pyproject.toml is never changed.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from promptlint.app.check import Request, check, find
from promptlint.app.discovery import PROMPT_FOLDERS, PROSE_SUFFIXES, Discovery
from promptlint.catalog.sdk import load_sdk
from promptlint.config import Settings, find_config, read_config
from promptlint.errors import UserError
from promptlint.report import model

__all__ = ["Found", "configuration", "look", "target", "write"]

HEAD = "[tool.promptlint]"
TRAFFIC_SUFFIXES = (".jsonl", ".ndjson")
MAX_LOGS = 200  # files whose first line is looked at
MAX_LINE = 1_000_000  # bytes of a first line


@dataclass(frozen=True, slots=True)
class Found:
    """What a project holds. `folders` are prompt folders that the defaults pass over; paths are relative to the root."""

    report: model.CheckReport
    folders: tuple[str, ...]
    prompt_files: int
    traffic: tuple[str, ...]
    pre_commit: str  # "", "without" or "with" our hook

    @property
    def empty(self) -> bool:
        """Whether there is nothing to lint yet."""
        counts = self.report.summary
        return not (counts.call_sites or counts.texts or self.report.chat_templates or self.folders)

    def lines(self) -> Iterator[str]:
        """What was found, a line each."""
        counts, sites = self.report.summary, self.report.call_sites
        if self.empty:
            yield f"no prompt found in {counts.files} files; `promptlint check --show-files` lists what was looked at"
        if counts.call_sites:
            yield f"{counts.call_sites} call sites: {_counted(map(_sender, sites))}"
        providers = _counted(site.provider for site in sites if site.provider)
        models = _counted(site.model for site in sites if site.model)
        if providers:
            yield f"providers: {providers}"
        if models:
            yield f"models: {models}"
        if counts.texts or self.prompt_files:
            yield f"{counts.texts} prompts without a known sender, {self.prompt_files} template and prompt files"
        if self.folders:
            yield f"folders of prompts: {', '.join(self.folders)} (added to extend-include)"
        if self.report.findings:
            rules = _counted(item.rule for item in self.report.findings)
            yield f"{len(self.report.findings)} findings now: {rules}"
        if self.traffic:
            yield f"traffic: {', '.join(self.traffic)}; try `promptlint check --traffic {self.traffic[0]}`"
        if self.pre_commit == "without":
            yield ".pre-commit-config.yaml has no promptlint hook yet: the README's section on pre-commit shows one"


def _counted(values: Iterator[str | None]) -> str:
    counts = Counter(value for value in values if value)
    return ", ".join(f"{name} ({number})" for name, number in sorted(counts.items(), key=lambda row: (-row[1], row[0])))


def _sender(site: model.CallSiteItem) -> str:
    """Whose call it is: the library, where the receiver is known to be one's; else what was seen instead of it."""
    library = next((name for name in _libraries() if site.sink.startswith(f"{name}.")), None)
    return library or ("clients of unknown type" if "." in site.sink else "lists of messages whose sender is unknown")


@cache
def _libraries() -> tuple[str, ...]:
    return tuple(sorted((package.name for package in load_sdk().packages), key=len, reverse=True))


def look(root: Path) -> Found:
    """Read the project with the default settings. Raises UserError as `check` does."""
    settings = Settings(root)
    request = Request((root,), root)
    discovery = find(settings, request)
    report = check(settings, request, use_cache=False)
    files = len(discovery.jinja) + len(discovery.prompts)
    return Found(report, tuple(_folders(discovery)), files, tuple(_traffic(root)), _pre_commit(root))


def _folders(discovery: Discovery) -> list[str]:
    """Folders called something with `prompt` that hold text which the defaults read only when code names it."""
    known = set(discovery.prompts)
    found: set[str] = set()
    for item in discovery.listed:
        folder = item.path.parent
        if item.role == "skipped" or item.path in known or item.path.suffix.lower() not in PROSE_SUFFIXES:
            continue
        inside = folder.relative_to(discovery.root).parts if folder.is_relative_to(discovery.root) else ()
        for number, part in enumerate(inside, 1):
            if "prompt" in part.lower() and part.lower() not in PROMPT_FOLDERS:
                found.add("/".join(inside[:number]))
                break
    return sorted(found)


def _traffic(root: Path) -> Iterator[str]:
    """Logs of requests to a model, by what their first line holds; two folders deep."""
    seen = 0
    for pattern in ("*", "*/*"):
        for path in sorted(root.glob(pattern)):
            if not path.name.endswith(TRAFFIC_SUFFIXES) or path.relative_to(root).parts[0].startswith("."):
                continue
            seen += 1
            if seen > MAX_LOGS:
                return
            if path.is_file() and not path.is_symlink() and _is_log(path):
                yield path.relative_to(root).as_posix()


def _is_log(path: Path) -> bool:
    """Whether a file begins with a record that has text and says when it was sent or what it cost: a data set of conversations has neither."""
    try:
        with path.open("rb") as file:
            row = json.loads(file.readline(MAX_LINE))
    except (OSError, ValueError, RecursionError):
        return False
    if not isinstance(row, dict):
        return False
    text = row.keys() & {"messages", "prompt", "token_ids", "hash_ids", "request", "body"}
    return bool(text and row.keys() & {"timestamp", "usage", "arrival", "response", "output_length"})


def _pre_commit(root: Path) -> str:
    try:
        text = (root / ".pre-commit-config.yaml").read_text("utf-8", errors="replace")
    except OSError:
        return ""
    return "with" if "promptlint" in text else "without"


def configuration(found: Found) -> str:
    """The settings as TOML, without a table's head."""
    lines = [
        "# `promptlint check --show-settings` prints every setting.",
        'profile = "typical" # traffic assumed where there is no log: low, typical or high',
    ]
    if found.folders:
        patterns = ", ".join(json.dumps(f"{folder}/**", ensure_ascii=False) for folder in found.folders)
        lines.append(f"extend-include = [{patterns}]")
    return "\n".join(lines) + "\n"


def target(root: Path, *, force: bool) -> Path:
    """The file to write: promptlint.toml where it is there already or no pyproject.toml is. Raises UserError when there are settings already."""
    known = find_config(root)
    if known is not None and not force:
        raise UserError(f"{known}: has settings for promptlint already; --force replaces them")
    shared = root / "pyproject.toml"
    return known or (shared if shared.is_file() else root / "promptlint.toml")


def write(path: Path, root: Path, settings: str) -> None:
    """Write the settings: the whole of a promptlint.toml, our table of a pyproject.toml. Raises UserError, and then nothing has changed."""
    text = settings
    if path.name == "pyproject.toml":
        with path.open(encoding="utf-8", newline="") as file:
            before = file.read()
        text = _with_table(before, settings)
        if _others(before) != _others(text):
            raise UserError(f"{path}: the table {HEAD} is written in a way that cannot be replaced; remove it by hand")
    try:
        folder = Path(tempfile.mkdtemp(prefix=".promptlint-", dir=path.parent))
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    trial = folder / path.name
    try:
        with trial.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
        read_config(trial, root)
        if path.exists():
            trial.chmod(path.stat().st_mode & 0o777)
        os.replace(trial, path.resolve())  # noqa: PTH105  # one step, through a link
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        trial.unlink(missing_ok=True)
        folder.rmdir()


def _with_table(text: str, settings: str) -> str:
    """The text of a pyproject.toml with our table, in the place of an old one or at the end."""
    end = "\r\n" if "\r\n" in text else "\n"
    table = (HEAD + "\n" + settings).replace("\n", end)
    kept: list[str] = []
    ours = False
    for line in text.splitlines(keepends=True):
        head = line.strip().replace(" ", "")
        if head.startswith("["):
            ours = head.startswith((HEAD, "[tool.promptlint."))
        if not ours:
            kept.append(line)
    rest = "".join(kept).rstrip()
    return (rest + end + end if rest else "") + table


def _others(text: str) -> object:
    """All of a pyproject.toml but our table. Raises UserError when it is no TOML."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UserError(f"pyproject.toml: not valid TOML: {error}") from error
    tool = dict(data.get("tool", {}))
    tool.pop("promptlint", None)
    return {**data, "tool": tool}
