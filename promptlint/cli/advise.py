"""Recommend an order for each prompt, say what it would bring, and give a verdict on SGLang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from promptlint.cli._common import FiniteRange, emit


@click.command("advise")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Description of the workload (YAML), see examples/workloads.",
)
@click.option("--traffic", multiple=True, metavar="FILE", help="Traffic logs to replay in the recommended order.")
@click.option(
    "--apply-order",
    metavar="KINDS",
    help="Replay the traffic with its blocks in this order, e.g. system,tools,context,history,question.",
)
@click.option(
    "--batch",
    is_flag=True,
    help="The requests of the traffic are independent rows of a table: they may change places too (GGR).",
)
@click.option(
    "--write-traffic",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the traffic in the recommended order, one record a line.",
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own measurement of both engines, in place of estimates: the result of `promptlint bench --save`.",
)
@click.option(
    "--current",
    type=click.Choice(("vllm", "sglang", "provider", "none")),
    help="What serves today (default: the workload's, else inferred from the code).",
)
@click.option(
    "--observed",
    type=FiniteRange(0, 1),
    metavar="RATE",
    help="Hit rate seen in production: its likely causes are ranked.",
)
@click.option(
    "--profile",
    type=click.Choice(("low", "typical", "high")),
    default="typical",
    help="Traffic assumed where there is no log (typical).",
)
@click.option("--tokenizer", metavar="NAME", help="Tokenizer of text traffic and of code.")
@click.option("--render", metavar="MODE", help="How messages become text: plain-tags, or a chat template.")
@click.option("--format", "form", default="auto", metavar="NAME", help="Format of the traffic (auto).")
@click.option(
    "--tools",
    type=click.Path(path_type=Path, exists=True),
    metavar="FILE",
    help="Tools that were sent with every request of the traffic.",
)
@click.option(
    "--extra-rules",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Own rule folders; their verdict.toml overrides thresholds and rule.",
)
@click.option(
    "--no-tipping", is_flag=True, help="Do not look for the pool pressure at which the verdict tips (faster)."
)
@click.option(
    "--record",
    "record_file",
    type=click.Path(path_type=Path),
    metavar="FILE.md",
    help="Write a decision record as well.",
)
@click.option(
    "--output-format",
    type=click.Choice(("text", "json", "html")),
    default="text",
    help="text (default), json, or html: one file to look at.",
)
@click.option(
    "-o", "--output-file", type=click.Path(path_type=Path), metavar="FILE", help="Write there instead of stdout."
)
def command(**given: Any) -> int:
    """Recommend an order for each prompt of the analysed code and traffic, and say whether to adopt SGLang, stay, or fix something else first.

    With --workload the advice rests on a description alone; with --traffic orders are chosen by what the values really did, and replayed.
    """
    import datetime as dt

    from promptlint.app.advise import Asked, run
    from promptlint.report.advise import record, to_json, to_text

    output_format, output, record_file = given.pop("output_format"), given.pop("output_file"), given.pop("record_file")
    advice = run(Asked(**given), progress=lambda text: click.echo(text, err=True))
    if output_format == "html":
        from promptlint.report.html.advise import advise

        emit(advise(advice), output)
    else:
        emit(to_json(advice) if output_format == "json" else to_text(advice), output)
    if record_file is not None:
        emit(record(advice, dt.datetime.now(tz=dt.UTC).date().isoformat()), record_file)
    return 0
