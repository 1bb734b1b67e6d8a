"""Show each call site's blocks in rendered order and where its cacheable prefix ends."""

from __future__ import annotations

from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import click

from promptlint.cli._common import emit, settings_of, settings_options, use_color, warn_unsupported
from promptlint.errors import UserError

_WIDEST = 120  # columns of a bar


@click.command("show")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@settings_options
@click.option("--output-format", type=click.Choice(("full", "json")), default="full", help="full (default) or json.")
@click.option(
    "-o", "--output-file", type=click.Path(path_type=Path), metavar="FILE", help="Write there instead of stdout."
)
@click.option("--write-lock", is_flag=True, help="Write the cache keys to promptlint.lock at the project root.")
@click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", help="Colours in full.")
def command(paths: tuple[Path, ...], **given: Any) -> int:
    """Show the cache key of each call site: its blocks in rendered order with kind, volatility and tokens, where the cacheable prefix
    ends, and the estimated hit rate.
    """
    from promptlint.app.check import Request, check
    from promptlint.report import render
    from promptlint.report.text import show

    paths = paths or (Path(),)
    no_cache = given.pop("no_cache")
    settings = settings_of(paths[0], given)
    request = Request(paths, Path.cwd())
    report = check(settings, request, use_cache=not no_cache)
    warn_unsupported(report.unsupported)
    if given["write_lock"] and not report.unusable:
        from promptlint.app.lock import write

        click.echo(f"cache keys written to {write(report, settings, request)}", err=True)
    output = given["output_file"]
    text = (
        render(report, "json")
        if given["output_format"] == "json"
        else show(report, color=use_color(given["color"], output), width=min(get_terminal_size().columns, _WIDEST))
    )
    emit(text, output)
    if report.unusable:
        raise UserError("no given file could be read")
    return 0
