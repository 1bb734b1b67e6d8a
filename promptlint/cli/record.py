"""Run a command, such as your tests, and record the LLM requests that it sends."""

from __future__ import annotations

from pathlib import Path

import click

from promptlint.cli._common import end_like


@click.command("record", context_settings={"help_option_names": ["-h", "--help"], "allow_interspersed_args": False})
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("promptlint-traffic.jsonl"),
    show_default=True,
    metavar="FILE",
    help="Where the records go; an older recording there is replaced.",
)
@click.option("--append", is_flag=True, help="Keep what the file holds and add to it.")
@click.option("--keep-text", is_flag=True, help="Store prompts as they are. Without it words are replaced by codes.")
@click.option("-q", "--quiet", is_flag=True, help="Print only warnings.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGS]...")
def command(command: tuple[str, ...], output: Path, *, append: bool, keep_text: bool, quiet: bool) -> int:
    """Run COMMAND and record the requests to language models that its Python processes send.

    \b
    promptlint record -- pytest -q
    promptlint diagnose promptlint-traffic.jsonl

    Requests are seen where HTTP clients send them (httpx, httpx2, requests, aiohttp, botocore), whatever SDK is above. The exit status is the command's.
    """  # noqa: D301 - click reads the backspace
    from promptlint.app import record as pipeline

    run = pipeline.record(pipeline.Request(command, output, append=append, keep_text=keep_text))
    for line in pipeline.summary(run.recording, str(output), command):
        if not quiet or line.startswith("warning"):
            click.echo(f"promptlint: {line}", err=True)
    return end_like(run.status)
