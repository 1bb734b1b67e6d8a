"""Run a command again with one factor changed at a time, and report which prompts differ, and where."""

from __future__ import annotations

from pathlib import Path

import click

from promptlint.cli._common import FiniteRange, emit
from promptlint.recording.measured import FACTORS


@click.command("perturb", context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option(
    "--factor", "factors", multiple=True, type=click.Choice(FACTORS), help="Change only this (may be repeated)."
)
@click.option(
    "--timeout", type=FiniteRange(min=0, min_open=True), metavar="SECONDS", help="Give up a run after this time."
)
@click.option(
    "--code",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Say which differences `check` finds in this code.",
)
@click.option("--output-format", type=click.Choice(("full", "json")), default="full", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the report to a file.")
@click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGS]...")
def command(
    command: tuple[str, ...],
    factors: tuple[str, ...],
    timeout: float | None,
    code: tuple[Path, ...],
    output_format: str,
    output: Path | None,
    *,
    quiet: bool,
) -> int:
    """Run COMMAND twice as it is, then with one factor changed at a time, and compare the prompts that it sends.

    \b
    promptlint perturb -- pytest -q

    Factors: the hash seed, the clock by a second, an hour and a day, the working directory, the user, the host name, random values and UUIDs, environment variables, the order of
    listings. In all other respects the runs are pinned: the clock stands still, random values and orders repeat.
    """  # noqa: D301 - click reads the backspace
    from promptlint.app import perturb as pipeline
    from promptlint.report.perturb import to_json, to_text

    chosen = tuple(name for name in FACTORS if name in factors) or FACTORS

    def progress(line: str) -> None:
        if not quiet:
            click.echo(f"promptlint: {line}", err=True)

    found = pipeline.perturb(pipeline.Request(command, chosen, timeout, code, progress))
    emit(to_json(found) if output_format == "json" else to_text(found), output)
    return 0
