"""Say why requests missed the cache: where each diverged from its best earlier relative, ranked by tokens lost."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import click

from promptlint.cli._common import FiniteRange, emit, warn
from promptlint.cli._runner import on_ray, runner_options

FORMATS = ("full", "json", "markdown", "html")


@click.command("diagnose", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("traffic", nargs=-1, metavar="[TRAFFIC]...")
@click.option("--observed", type=FiniteRange(0, 1), metavar="RATE", help="Hit rate that was observed, 0 to 1.")
@click.option("--usage", type=click.Path(path_type=Path), metavar="FILE", help="Usage export or metrics of the server.")
@click.option(
    "--format", "form", default="auto", metavar="NAME", help="Format of the traffic (default: each record's own)."
)
@click.option(
    "--tools", type=click.Path(path_type=Path), metavar="FILE", help="JSON list of the tools sent with every request."
)
@click.option("--block-size", type=click.IntRange(min=1), metavar="N", help="Tokens of one hashed block.")
@click.option("--tokenizer", metavar="NAME|DIR", help="Tokenizer that counts (default: by the model).")
@click.option(
    "--profile", default="typical", metavar="NAME", help="Traffic assumed with --observed: low, typical, high."
)
@click.option(
    "--code",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Name the call site and the hole of each divergence, as found in this code.",
)
@click.option("--strict", is_flag=True, help="The first record that cannot be read ends the run.")
@click.option(
    "--share", type=click.Path(path_type=Path), metavar="FILE.md", help="Write a report without prompt text as well."
)
@runner_options
@click.option("--redact/--no-redact", default=False, help="Lengths and hashes in place of text in the output.")
@click.option("--output-format", type=click.Choice(FORMATS), default="full", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the report to a file.")
def command(
    traffic: tuple[str, ...], form: str, output_format: str, output: Path | None, share: Path | None, **given: Any
) -> int:
    """Say why requests missed the cache.

    TRAFFIC are files or folders in any format that `promptlint traffic` reads, or - for standard input. With --observed and paths of code
    in place of traffic, the causes that would explain that rate are searched and ranked.
    """
    from promptlint.app import diagnose as pipeline
    from promptlint.app.traffic import open_traffic
    from promptlint.errors import UserError
    from promptlint.report.diagnose import shared_page, to_json, to_text

    redact = given["redact"]
    # Dates, names and ids are few enough to be tried one by one against a bare hash.
    salt = os.environ.get("PROMPTLINT_SALT") or secrets.token_hex(16)
    if not traffic and given["observed"] is None and given["usage"] is None:
        raise UserError("name traffic to diagnose, or give --observed RATE or --usage FILE")
    code = [*given["code"], *(Path(path) for path in traffic if path != "-" and pipeline.is_code(Path(path)))]
    named = [path for path in traffic if path == "-" or Path(path) not in code]
    if not named and given["observed"] is None and given["usage"] is None:
        raise UserError("these paths are code: add traffic, or --observed RATE")
    with on_ray(given) as job:
        if not named:
            rated = pipeline.explain_rate(given["observed"], code, usage=given["usage"], profile=given["profile"])
            found = pipeline.Outcome(rated)
        else:
            source = open_traffic(
                named, form=form, strict=given["strict"], tools=given["tools"], block_size=given["block_size"]
            )
            read = None
            if job is not None:
                from promptlint.distributed.diagnose import read as read_by_workers

                read = read_by_workers(source, job)
            found = pipeline.run(source, tokenizer=given["tokenizer"], observed=given["observed"], code=code, read=read)
    warn([str(problem) for problem in found.problems])
    if share is not None:
        emit(shared_page(found.diagnosis, found.problems, salt=salt), share)
    if output_format == "json":
        emit(to_json(found.diagnosis, found.problems, redact=redact, salt=salt), output)
    elif output_format == "markdown":
        emit(shared_page(found.diagnosis, found.problems, salt=salt), output)
    elif output_format == "html":
        from promptlint.report.html.diagnose import diagnose

        emit(diagnose(found.diagnosis, found.problems, redact=redact, salt=salt), output)
    else:
        emit(to_text(found.diagnosis, found.problems), output)
    return 0
