"""List the prompt-cache terms of API providers, with their age."""

from __future__ import annotations

from pathlib import Path

import click

from promptlint.cli._common import emit, warn, with_own_rules


@click.command("providers")
@click.argument("name", required=False)
@click.option("--model", default="", metavar="MODEL", help="Show the values of one model.")
@click.option(
    "--extra-rules",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Own rule folders whose providers/*.toml override facts, beside those of the project's extra-rules.",
)
@click.option("--output-format", type=click.Choice(("text", "json")), default="text", help="text (default) or json.")
@click.option(
    "-o", "--output-file", type=click.Path(path_type=Path), metavar="FILE", help="Write there instead of stdout."
)
def command(
    name: str | None, model: str, extra_rules: tuple[Path, ...], output_format: str, output_file: Path | None
) -> int:
    """Match mode, minimum, lifetime and prices of each provider's prompt cache; with NAME every fact with its source and date.

    Facts older than 180 days are warned about; low-confidence ones are marked.
    """
    import datetime as dt

    from promptlint.catalog.providers import load_providers, page_for
    from promptlint.errors import UserError
    from promptlint.report import providers as report

    extra_rules = with_own_rules(extra_rules)
    today = dt.datetime.now(tz=dt.UTC).date()
    pages = load_providers(extra_rules)
    chosen = list(pages.values())
    if name is not None or model:
        page = page_for(name or "", model, extra_rules)
        if page is None:
            raise UserError(
                f"no page for provider {name or ''!r}{f' and model {model!r}' if model else ''}; known: {', '.join(sorted(pages))}"
            )
        chosen = [page]
    warn(report.stale(chosen, today))
    if output_format == "json":
        import json

        emit(json.dumps(report.as_json(chosen, model, today), indent=2, default=str) + "\n", output_file)
    elif len(chosen) == 1 and (name is not None or model):
        emit(report.detail(chosen[0], model, today), output_file)
    else:
        emit(report.table(chosen, today), output_file)
    return 0
