"""Write a configuration that fits the project, and say what was found."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("init")
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace settings that are there already.")
def command(path: Path | None, force: bool) -> int:
    """Write [tool.promptlint] of pyproject.toml, or promptlint.toml where there is none, and say what the project at PATH holds.

    Nothing is overwritten without --force, and nothing of the project is executed.
    """
    from promptlint.app import init
    from promptlint.app.discovery import absolute, check_given, project_root
    from promptlint.report.escape import printable

    start = absolute(path or Path())
    check_given([start])
    root = project_root(start)
    target = init.target(root, force=force)
    found = init.look(root)
    for line in found.lines():
        click.echo(printable(line))
    init.write(target, root, init.configuration(found))
    why = "[tool.promptlint], because the project has one" if target.name == "pyproject.toml" else "all settings"
    click.echo(f"written: {printable(str(target))} ({why})")
    if found.report.findings:
        click.echo("next: promptlint check, or promptlint check --write-baseline FILE to begin with what is new")
    else:
        click.echo("next: promptlint show")
    return 0
