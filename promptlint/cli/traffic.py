"""Convert, measure, anonymize and make up traffic: any supported log to the canonical record, and hashes in place of text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from promptlint.cli._common import FiniteRange, emit, warn
from promptlint.cli._runner import on_ray, runner_options

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _inputs(function: _Function) -> _Function:
    """The options that every reading subcommand takes."""
    for option in reversed(
        (
            click.argument("traffic", nargs=-1, required=True, metavar="TRAFFIC..."),
            click.option(
                "--format",
                "form",
                default="auto",
                metavar="NAME",
                help="Format of all records (default: each record's own).",
            ),
            click.option(
                "--tools",
                type=click.Path(path_type=Path),
                metavar="FILE",
                help="JSON list of the tools sent with every request.",
            ),
            click.option("--block-size", type=click.IntRange(min=1), metavar="N", help="Tokens of one hashed block."),
            click.option(
                "--columns",
                multiple=True,
                metavar="FIELD=COLUMN",
                help="Columns of a parquet file under our field names.",
            ),
            click.option("--strict", is_flag=True, help="The first record that cannot be read ends the run."),
        )
    ):
        function = option(function)
    return function


def _tokens(function: _Function) -> _Function:
    for option in (
        click.option(
            "--render",
            metavar="MODE",
            help="How messages become text: plain-tags, a chat template's name or file (default: by the model).",
        ),
        click.option("--tokenizer", metavar="NAME|DIR", help="Tokenizer (default: by the model)."),
    ):
        function = option(function)
    return function


def _open(traffic: tuple[str, ...], given: dict[str, Any]) -> Any:
    from promptlint.app.traffic import open_traffic
    from promptlint.errors import UserError

    columns = {}
    for pair in given["columns"]:
        name, equals, column = pair.partition("=")
        if not equals:
            raise UserError(f"--columns {pair!r}: must be FIELD=COLUMN")
        columns[name] = column
    return open_traffic(
        traffic,
        form=given["form"],
        strict=given["strict"],
        tools=given["tools"],
        block_size=given["block_size"],
        columns=columns or None,
    )


@contextmanager
def _sink(output: Path | None) -> Iterator[IO[bytes]]:
    """Where records go, one by one: a file, or standard output."""
    from promptlint.app.atomic import writing
    from promptlint.errors import UserError

    if output is None:
        if sys.stdout is None:
            raise UserError("stdout is closed; `-o FILE` writes to a file")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with writing(output) as file:
            yield file
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror or error}") from error


def _write(records: Any, output: Path | None, source: Any = None) -> int:
    from promptlint.app.traffic import lines

    count = 0
    with _sink(output) as sink:
        for line in lines(records, source.problem if source is not None else None):
            sink.write(line)
            count += 1
    return count


def _finish(source: Any, count: int) -> int:
    """Warnings about what could not be read; exit status 2 when nothing could."""
    from promptlint.errors import UserError

    warn([*(f"{note} ({number} records)" for note, number in source.notes.items()), *map(str, source.problems)])
    if not count:
        raise UserError(f"no record could be read from {' '.join(map(str, source.paths))}")
    return 0


@click.group("traffic", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Convert, measure, anonymize and make up traffic."""


@command.command("convert")
@_inputs
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file.")
def convert(traffic: tuple[str, ...], output: Path | None, **given: Any) -> int:
    """Any supported log to the canonical record, one JSON object a line."""
    source = _open(traffic, given)
    return _finish(source, _write(source, output, source))


@command.command("stats")
@_inputs
@_tokens
@click.option(
    "--code",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Measure the call sites and holes of this code.",
)
@runner_options
@click.option("--output-format", type=click.Choice(("full", "json")), default="full", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file.")
def stats(traffic: tuple[str, ...], output: Path | None, output_format: str, **given: Any) -> int:
    """Counts, lengths, sessions, rates and reported hit rates; of metrics, usage exports and launch lines too."""
    from promptlint.app.traffic import Tokens, measure, measure_code
    from promptlint.errors import UserError
    from promptlint.report.traffic import to_json, to_text

    if given["code"] and "-" in traffic:
        raise UserError("--code reads the traffic twice: name a file in place of standard input")
    with on_ray(given) as job:
        source = _open(traffic, given)
        if job is None:
            found = measure(source, Tokens(given["tokenizer"], given["render"]))
        else:
            from promptlint.distributed.stats import run

            if given["code"]:
                raise UserError("--code matches all requests with the code at once: without --runner ray")
            found = run(source, given["tokenizer"], given["render"], job)
    status = _finish(source, found.records)
    problems, skipped = list(source.problems), source.skipped
    measured = measure_code(source, given["code"]) if given["code"] else None
    render = to_json if output_format == "json" else to_text
    emit(render(found, problems, skipped, measured), output)
    return status


@command.command("anonymize")
@_inputs
@_tokens
@click.option(
    "--page", type=click.IntRange(min=1), default=16, show_default=True, metavar="N", help="Tokens of one hashed page."
)
@click.option(
    "--salt",
    metavar="TEXT",
    envvar="PROMPTLINT_SALT",
    help="Secret that two files need in common to be joined (default: random, forgotten).",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file.")
def anonymize(traffic: tuple[str, ...], output: Path | None, page: int, salt: str | None, **given: Any) -> int:
    """Salted, prefix-chained page hashes in place of text; replaying them at that page hits as the text does."""
    from promptlint.app import traffic as pipeline

    source = _open(traffic, given)
    tokens = pipeline.Tokens(given["tokenizer"], given["render"])
    return _finish(source, _write(pipeline.anonymize(source, tokens, page=page, salt=salt), output))


@command.command("synth")
@click.argument("preset", required=False)
@click.option(
    "--workload", type=click.Path(path_type=Path), metavar="FILE", help="A workload file (YAML) in place of a preset."
)
@click.option(
    "--code",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Call sites found in this code, under --profile.",
)
@click.option("--profile", default="typical", metavar="NAME", help="Traffic profile for --code: low, typical, high.")
@click.option("--requests", type=click.IntRange(min=1), metavar="N", help="Number of requests.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--groups", type=click.IntRange(min=1), metavar="N", help="shared-prefix: groups with one system prompt each (64)."
)
@click.option("--prompts-per-group", type=click.IntRange(min=1), metavar="N", help="shared-prefix: (16).")
@click.option(
    "--system", type=click.IntRange(min=1), metavar="TOKENS", help="Tokens of the system prompt; of a node, in tree."
)
@click.option("--question", type=click.IntRange(min=1), metavar="TOKENS")
@click.option("--answer", type=click.IntRange(min=1), metavar="TOKENS")
@click.option("--turns", type=click.IntRange(min=1), metavar="N", help="Requests of a session.")
@click.option("--documents", type=click.IntRange(min=1), metavar="N", help="rag: distinct documents (100).")
@click.option("--document", type=click.IntRange(min=1), metavar="TOKENS")
@click.option("--zipf", type=FiniteRange(min=0), metavar="EXPONENT", help="rag: how uneven the documents are (1.1).")
@click.option("--depth", type=click.IntRange(1, 12), metavar="N", help="tree: levels (3).")
@click.option("--branches", type=click.IntRange(1, 64), metavar="N", help="tree: children of a node (4).")
@click.option("--rate", type=FiniteRange(min=0, min_open=True), metavar="R", help="Requests a second (4).")
@click.option("--ordered", is_flag=True, help="Groups and leaves in order, not shuffled.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to a file.")
def synth(preset: str | None, workload: Path | None, output: Path | None, code: tuple[Path, ...], **given: Any) -> int:
    """Synthetic traffic: PRESET is tree, shared-prefix, chat, rag or agent."""
    from promptlint.app import traffic as pipeline
    from promptlint.errors import UserError
    from promptlint.traffic.synth import PRESETS, generate

    if sum((preset is not None, workload is not None, bool(code))) != 1:
        raise UserError(f"give one of: a preset ({', '.join(PRESETS)}), --workload FILE, --code PATH")
    if workload is not None:
        records = pipeline.synthesise(workload)
    elif code:
        records = pipeline.from_code(code, given["profile"], requests=given["requests"] or 256, seed=given["seed"])
    elif preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}; one of: {', '.join(PRESETS)}")
    else:
        numbers = {name: value for name, value in given.items() if name not in {"profile", "ordered"}}
        records = generate(preset, shuffle=not given["ordered"], **numbers)
    _write(records, output)
    return 0
