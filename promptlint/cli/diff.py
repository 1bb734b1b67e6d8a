"""Compare two reports, folders or git revisions: hit rates, findings, cache keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from promptlint.cli._common import FiniteRange, emit, settings_of, settings_options
from promptlint.finding import SEVERITIES

FORMATS = ("full", "markdown", "json")


@click.command("diff")
@click.argument("base")
@click.argument("head", default=".")
@settings_options
@click.option(
    "--path",
    "paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="What is looked at in a revision (the current folder).",
)
@click.option("--traffic", multiple=True, metavar="FILE", help="Traffic log: rendered anew by both sides and replayed.")
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Description of a workload (YAML): the verdict on it is given too.",
)
@click.option(
    "--fail-on", type=click.Choice(SEVERITIES), help="Exit with 1 for a new finding of this severity or above."
)
@click.option(
    "--max-hit-rate-drop",
    type=FiniteRange(min=0),
    metavar="POINTS",
    help="Exit with 1 when a call site's hit rate falls by more percentage points.",
)
@click.option("--output-format", type=click.Choice(FORMATS), default="full", help="full (default), markdown or json.")
@click.option(
    "-o", "--output-file", type=click.Path(path_type=Path), metavar="FILE", help="Write there instead of stdout."
)
def command(base: str, head: str, paths: tuple[Path, ...], **given: Any) -> int:
    """Compare BASE with HEAD (the current folder by default): hit rates before and after, new, fixed and moved findings, changed cache keys.

    Each is a report (`promptlint check --output-format json`), a folder, or a git revision, which is read from a temporary copy. Exit status: 1 only
    when a threshold is given and passed.
    """
    from promptlint.app.check import Request
    from promptlint.app.diff import compare, exceeded, read_side, verdicts

    working_directory = Path.cwd()
    request = Request(paths or (Path(),), working_directory)

    def settings(first: Path) -> Any:
        return settings_of(first, dict(given))

    sides = [read_side(name, settings, request) for name in (base, head)]
    found = verdicts(given["workload"], given["traffic"], settings(working_directory))
    diff = compare(sides[0], sides[1], found, given["traffic"])
    emit(_rendered(diff, given["output_format"]), given["output_file"])
    reasons = exceeded(diff, fail_on=given["fail_on"], max_drop=given["max_hit_rate_drop"])
    for reason in reasons:
        click.echo(f"promptlint: {reason}", err=True)
    return int(bool(reasons))


def _rendered(diff: Any, form: str) -> str:
    if form == "markdown":
        from promptlint.report.diff_markdown import markdown

        return markdown(diff)
    from promptlint.report import diff as forms

    return forms.json(diff) if form == "json" else forms.full(diff)
