"""Lint Python, Jinja and prompt files."""

from __future__ import annotations

import codecs
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from promptlint.cli._common import (
    emit,
    foreign_owners,
    settings_of,
    settings_options,
    use_color,
    warn,
    warn_unsupported,
)
from promptlint.config import FORMATS
from promptlint.errors import UserError
from promptlint.finding import SEVERITIES

if TYPE_CHECKING:
    from promptlint.app.check import Request
    from promptlint.config import Settings
    from promptlint.report.model import CheckReport

_STDIN = Path("-")
WITH_EDITS = frozenset({"json", "json-lines", "sarif", "rdjson"})  # formats that carry edits


@click.command("check")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@settings_options
@click.option("--output-format", type=click.Choice(FORMATS), help="How findings are written (full).")
@click.option(
    "-o",
    "--output-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write findings there instead of stdout.",
)
@click.option(
    "--color", type=click.Choice(("auto", "always", "never")), default="auto", help="Colours in full and concise."
)
@click.option("--fail-on", type=click.Choice(SEVERITIES), help="Least severity that makes the exit status 1 (low).")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 in spite of findings.")
@click.option("--changed", is_flag=True, help="The paths are what changed: report what passes through them, too.")
@click.option(
    "--stdin-filename",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Name of the text that `-` reads from stdin.",
)
@click.option("--fix", is_flag=True, help="Write safe edits: only an order becomes fixed.")
@click.option(
    "--unsafe-fixes", is_flag=True, help="With --fix or --diff: edits that change a text, a time or a key, too."
)
@click.option(
    "--reorder", is_flag=True, help="Write edits that move text of prompts; a model reads them in another order."
)
@click.option("--diff", "show_diff", is_flag=True, help="Print the edits as a unified diff, and write nothing.")
@click.option("--fix-only", is_flag=True, help="Write the edits and report no findings.")
@click.option(
    "--traffic",
    multiple=True,
    metavar="FILE",
    help="Traffic log: measured volatility of its values in place of guesses.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Report only what is not in this baseline, and what of it is fixed.",
)
@click.option(
    "--write-baseline",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write all findings into a baseline and exit with 0.",
)
@click.option("--baseline-ref", metavar="REV", help="Report only what was not there at this git revision.")
@click.option("--locked", is_flag=True, help="Fail when a cache key differs from promptlint.lock.")
@click.option("--statistics", is_flag=True, help="Count findings and tokens lost by rule.")
@click.option("--show-files", is_flag=True, help="List what is read and what is not, and why.")
@click.option("--show-settings", is_flag=True, help="Print the settings in force.")
def command(paths: tuple[Path, ...], **given: Any) -> int:
    """Lint Python, Jinja and prompt files for what breaks a prompt's cacheable prefix.

    PATHS are files and folders, or `-` for stdin; the current folder by default. Exit status: 0 nothing at or above --fail-on,
    1 findings, 2 the arguments, the configuration or every input was unusable.
    """
    from promptlint.app.check import Request, check

    if sum(given[name] is not None for name in ("baseline", "write_baseline", "baseline_ref")) > 1:
        raise UserError("--baseline, --write-baseline and --baseline-ref exclude each other")
    paths, overlay, given["stdin_mark"] = _stdin(paths or (Path(),), given.pop("stdin_filename"))
    no_cache = given.pop("no_cache")
    settings = settings_of(paths[0], given)
    request = Request(paths, Path.cwd(), overlay, given["changed"], given["traffic"])
    form = given["output_format"] or settings.output_format
    output = given["output_file"]
    if given["show_settings"]:
        emit(_settings_text(settings), output)
        return 0
    if given["show_files"]:
        emit(_files_text(settings, request), output)
        return 0
    others = foreign_owners()
    if others:
        warn([f"{', '.join(others)} also installs the package `promptlint`; uninstall one of them"])
    if given["fix"] or given["fix_only"] or given["reorder"] or given["show_diff"]:
        return _fix(settings, request, given, form)
    if given["unsafe_fixes"]:
        warn(["--unsafe-fixes says which edits to make: it does nothing without --fix, --reorder or --diff"])
    edits = form in WITH_EDITS and not given["statistics"] and given["write_baseline"] is None
    use_cache = not (no_cache or overlay or request.traffic)
    report = check(settings, request, use_cache=use_cache, edits=edits)
    warn_unsupported(report.unsupported)
    if given["write_baseline"] is not None:
        return _write_baseline(given["write_baseline"], report, settings, request)
    drifted = given["locked"] and _differs_from_lock(report, settings, request)
    report = _against_baseline(report, settings, request, given["baseline"], given["baseline_ref"])
    if given["statistics"]:
        from promptlint.report.text import statistics

        emit(statistics(report), output)
    else:
        from promptlint.report import render

        emit(render(report, form, color=use_color(given["color"], output)), output)
    if report.unusable:
        raise UserError("no given file could be read")
    failed = report.fails(given["fail_on"] or settings.fail_on) or drifted
    return int(failed and not given["exit_zero"])


def _fix(settings: Settings, request: Request, given: dict[str, Any], form: str) -> int:
    """Apply edits, or print them. Exit status: of a diff 1 when there is one; else as without edits, for the findings that are left."""
    from promptlint.app.discovery import absolute
    from promptlint.app.fix import fix
    from promptlint.report import render
    from promptlint.report.text import fixed_line

    for name in ("baseline", "write_baseline", "baseline_ref", "locked", "statistics", "traffic"):
        if given[name]:
            raise UserError(f"--{name.replace('_', '-')} cannot be used while edits are made")
    gc.enable()  # the project is read several times: what one reading leaves behind must go
    fixed = fix(settings, request, _allowed(given))
    warn_unsupported(fixed.report.unsupported)
    stdin = {absolute(request.working_directory / path) for path in request.overlay or ()}
    output, color = given["output_file"], use_color(given["color"], given["output_file"])
    if given["show_diff"]:
        emit(fixed.diff(), output)
        click.echo(fixed_line(len(fixed.applied), len(fixed.texts), len(fixed.dropped), "would be"), err=True)
        return int(bool(fixed.texts) and not given["exit_zero"])
    fixed.write()
    for path in stdin:
        text = fixed.texts.get(path, (request.overlay or {})[path])
        click.echo(given["stdin_mark"] + text.encode(), nl=False)  # bytes: no line end is translated
    if not given["fix_only"]:
        click.echo(render(fixed.report, form, color=False), err=True) if stdin else emit(
            render(fixed.report, form, color=color), output
        )
    click.echo(fixed_line(len(fixed.applied), len(fixed.texts), len(fixed.dropped), "was"), err=True)
    if fixed.report.unusable:
        raise UserError("no given file could be read")
    failed = not given["fix_only"] and fixed.report.fails(given["fail_on"] or settings.fail_on)
    return int(failed and not given["exit_zero"])


def _allowed(given: dict[str, Any]) -> set[str]:
    """Which edits the options ask for. `--reorder` alone asks for nothing else."""
    found = {"display-only"} if given["reorder"] else set()
    if given["fix"] or (given["fix_only"] and not given["reorder"]) or not given["reorder"]:
        found.add("safe")
    if given["unsafe_fixes"]:
        found.add("unsafe")
    return found


def _write_baseline(path: Path, report: CheckReport, settings: Settings, request: Request) -> int:
    from promptlint.app import baseline

    if report.unusable:
        raise UserError("no given file could be read")
    number = baseline.write(path, report, settings, request)
    click.echo(f"{number} finding{'' if number == 1 else 's'} written to {path}", err=True)
    return 0


def _against_baseline(
    report: CheckReport, settings: Settings, request: Request, file: Path | None, revision: str | None
) -> CheckReport:
    if file is None and revision is None:
        return report
    from promptlint.app import baseline

    known = baseline.read(file) if file is not None else baseline.known_at(str(revision), settings, request)
    return baseline.apply(report, known, settings, request)


def _differs_from_lock(report: CheckReport, settings: Settings, request: Request) -> bool:
    """Whether a cache key changed; every difference from the lock is told on stderr."""
    from promptlint.app import lock
    from promptlint.report.escape import printable

    found = lock.compare(report, settings, request)
    for line in found.lines():
        click.echo(f"{lock.FILE}: {printable(line)}", err=True)
    if found.changed or found.new or found.gone:
        click.echo(f"{lock.FILE}: `promptlint show --write-lock` accepts what is now", err=True)
    return bool(found.changed)


def _stdin(paths: tuple[Path, ...], name: Path | None) -> tuple[tuple[Path, ...], dict[Path, str], bytes]:
    """`-` as a path replaced by the name of stdin's text, that text by absolute path, and the byte order mark ahead of it."""
    from promptlint.app.discovery import absolute

    if _STDIN not in paths:
        if name is not None:
            raise UserError("--stdin-filename needs `-` as a path")
        return paths, {}, b""
    name = name or Path("stdin.py")
    data = sys.stdin.buffer.read()
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = data[len(mark) :].decode()
    except UnicodeDecodeError:
        raise UserError("stdin: not valid UTF-8 text") from None
    return tuple(name if path == _STDIN else path for path in paths), {absolute(name): text}, mark


def _settings_text(settings: Any) -> str:
    from promptlint.config import key_of, options

    lines = [f"project root: {settings.root}", f"configuration: {settings.source or 'none'}"]
    for item in options():
        value = getattr(settings, item.name)
        if item.name == "min_confidence":
            value = settings.confidence
        lines.append(f"{key_of(item)} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it, closely enough to be read."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        if value and isinstance(value[0], tuple):
            return "{ " + ", ".join(f'"{pattern}" = {_toml(rules)}' for pattern, rules in value) + " }"
        return "[" + ", ".join(_toml(entry) for entry in value) + "]"
    return "(default)" if value is None else f'"{value}"'


def _files_text(settings: Any, request: Any) -> str:
    """Every file of the walk with its role or the reason why it is left out, and counts."""
    import os
    from collections import Counter

    from promptlint.app.check import find
    from promptlint.report.escape import printable

    discovery = find(settings, request)
    rows = []
    for item in discovery.listed:
        role = item.role if item.given or item.role == "skipped" else "context"
        rows.append((os.path.relpath(item.path, request.working_directory), role, item.why))
    lines = [f"{printable(path)}: {role} ({why})" for path, role, why in rows]
    roles = Counter(role if role != "skipped" else f"skipped, {why}" for _, role, why in rows)
    lines += [
        "",
        f"project root: {discovery.root}",
        *(f"{number:>6}  {role}" for role, number in sorted(roles.items())),
    ]
    lines += [f"warning: {printable(problem.path)}: {problem.reason}" for problem in discovery.problems]
    return "\n".join(lines) + "\n"
