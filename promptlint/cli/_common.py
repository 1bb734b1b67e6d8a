"""What the commands share: options about settings, output to a file or to the terminal, warnings."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from promptlint.config import CONFIDENCES, PROFILES
from promptlint.errors import UserError
from promptlint.finding import PERSONAS

if TYPE_CHECKING:
    from promptlint.report.model import UnsupportedItem

__all__ = [
    "FiniteRange",
    "emit",
    "end_like",
    "settings_of",
    "settings_options",
    "use_color",
    "warn",
    "warn_unsupported",
    "with_own_rules",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
MAX_WARNINGS = 20  # lines on stderr; the report holds them all


def settings_options(function: _Function) -> _Function:
    """The options that every command with settings takes."""
    for option in reversed(
        (
            click.option(
                "--config", type=click.Path(path_type=Path), metavar="FILE", help="Use this configuration file."
            ),
            click.option("--isolated", is_flag=True, help="Ignore all configuration files."),
            click.option(
                "--select", metavar="RULES", multiple=True, help="Rules or categories to run, with commas; `all`."
            ),
            click.option(
                "--extend-select", metavar="RULES", multiple=True, help="Rules to run on top of those selected."
            ),
            click.option("--ignore", metavar="RULES", multiple=True, help="Rules or categories not to run."),
            click.option(
                "--per-file-ignores", metavar="PATTERN:RULES", multiple=True, help="Rules not to run in matching files."
            ),
            click.option(
                "--exclude",
                metavar="PATTERNS",
                multiple=True,
                help="Files and folders to leave out, on top of the configuration.",
            ),
            click.option(
                "--force-exclude/--no-force-exclude",
                default=None,
                help="Leave out excluded files even when they are named.",
            ),
            click.option(
                "--persona", type=click.Choice(PERSONAS), help="Who reads: regular (default), pedantic or auditor."
            ),
            click.option(
                "--min-confidence",
                type=click.Choice(CONFIDENCES),
                help="Least confidence shown (medium; low for auditor).",
            ),
            click.option(
                "--profile", type=click.Choice(PROFILES), help="Traffic assumed where there is no log (typical)."
            ),
            click.option("--tokenizer", metavar="NAME", help="Encoding that counts every call site."),
            click.option("--tests/--no-tests", default=None, help="Read test files too."),
            click.option(
                "--respect-gitignore/--no-respect-gitignore", default=None, help="Leave out what .gitignore ignores."
            ),
            click.option("--no-cache", is_flag=True, help="Neither read nor write cached reports."),
            click.option("--cache-dir", type=click.Path(path_type=Path), metavar="DIR", help="Where reports are kept."),
        )
    ):
        function = option(function)
    return function


def settings_of(first: Path, given: dict[str, Any]) -> Any:
    """The settings for a run whose first path is `first`: defaults, then the configuration file, then the command line.

    Consumes the options of `settings_options` from `given`. Raises UserError for a configuration that does not fit.
    """
    from promptlint.app.discovery import absolute, project_root
    from promptlint.config import load_settings

    config = given.pop("config")
    settings = load_settings(
        project_root(absolute(first)), None if config is None else absolute(config), isolated=given.pop("isolated")
    )
    changes: dict[str, Any] = {}
    for name in ("select", "extend_select", "ignore", "exclude"):
        values = _split(given.pop(name))
        if values:
            target = "extend_exclude" if name == "exclude" else name
            kept = () if name == "select" else getattr(settings, target)
            changes[target] = (*kept, *values)
    rows = [_pattern_rules(text) for text in given.pop("per_file_ignores")]
    if rows:
        changes["per_file_ignores"] = (*settings.per_file_ignores, *rows)
    for name in (
        "persona",
        "min_confidence",
        "profile",
        "tokenizer",
        "tests",
        "force_exclude",
        "respect_gitignore",
        "cache_dir",
    ):
        value = given.pop(name)
        if value is not None:
            changes[name] = absolute(value) if name == "cache_dir" else value
    return replace(settings, **changes)


def with_own_rules(given: tuple[Path, ...]) -> tuple[Path, ...]:
    """Rule folders for a command without settings: those that the project around the current folder names, then those of the command line, which win."""
    from promptlint.app.discovery import project_root
    from promptlint.config import load_settings

    return (*load_settings(project_root(Path.cwd())).extra_rules, *given)


def _split(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _pattern_rules(text: str) -> tuple[str, tuple[str, ...]]:
    pattern, colon, rules = text.rpartition(":")
    if not colon or not pattern:
        raise UserError(f"--per-file-ignores {text!r}: must be PATTERN:RULES")
    return pattern, _split((rules,))


def use_color(choice: str, output: Path | None) -> bool:
    """Whether to colour: as asked; else NO_COLOR, FORCE_COLOR (when not empty) and a terminal decide, in this order."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return output is None and sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def emit(text: str, output: Path | None) -> None:
    """Write data to a file or to stdout. What the encoding cannot carry is written as an escape. Raises UserError for an unwritable file or a closed stdout."""
    if output is not None:
        from promptlint.app.atomic import write_text

        try:
            write_text(output, text, "backslashreplace")
        except OSError as error:
            raise UserError(f"{output}: cannot be written: {error.strerror or error}") from error
        return
    stream = sys.stdout
    if stream is None:
        raise UserError("stdout is closed; `-o FILE` writes to a file")
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    stream.flush()


def warn_unsupported(items: Sequence[UnsupportedItem]) -> None:
    """One line for each place that was not analysed; notebooks, which come in herds, share one."""
    rest = [item for item in items if not item.path.endswith(".ipynb")]
    books = [item for item in items if item.path.endswith(".ipynb")]
    lines = [f"{item.path}:{item.line}: {item.reason}" for item in rest]
    if books:
        more = f" and {len(books) - 1} more" if len(books) > 1 else ""
        lines.append(f"{books[0].path}{more}: notebooks are not supported")
    warn(lines)


def warn(lines: list[str]) -> None:
    """Warnings on stderr, one line each; a long list is cut and says so."""
    from promptlint.report.escape import printable

    for line in lines[:MAX_WARNINGS]:
        click.echo(f"warning: {printable(line)}", err=True)
    if len(lines) > MAX_WARNINGS:
        click.echo(f"warning: and {len(lines) - MAX_WARNINGS} more (`--output-format json` lists all)", err=True)


def foreign_owners() -> list[str]:
    """Other installed distributions that own files of the import package `promptlint`: installing one overwrites ours."""
    folder = Path(__file__).resolve().parents[2]
    found = []
    for record in folder.glob("*prompt*lint*.dist-info/RECORD"):
        name = record.parent.name.removesuffix(".dist-info").rsplit("-", 1)[0]
        if name.replace("_", "-").lower() != "promptlint-cache" and "promptlint/__init__.py" in record.read_text(
            "utf-8", errors="replace"
        ):
            found.append(name)
    return sorted(found)


def end_like(status: int) -> int:
    """The exit status of a command that we ran; where a signal ended it, the same signal ends us, so that a shell sees what it would have seen."""
    if status >= 0:
        return status
    import resource
    import signal

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core dump, the command's, is enough
    with contextlib.suppress(OSError, ValueError):
        signal.signal(-status, signal.SIG_DFL)
    sys.stderr.flush()
    os.kill(os.getpid(), -status)
    return 128 - status


class FiniteRange(click.FloatRange):
    """A range of numbers without the two words that every comparison lets through: `nan`, and `inf` where there is no upper bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; a usage error for what is none."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number", param, ctx)
        return number
