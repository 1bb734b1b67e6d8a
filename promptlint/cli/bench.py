"""Compare running servers on one workload, fairly: same requests, order, arrivals and answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from promptlint.cli import one_line
from promptlint.cli._common import FiniteRange, emit
from promptlint.errors import UserError


def _must_be_writable(paths: Sequence[Path]) -> None:
    """Before the measurement, not after it. Leaves no file behind."""
    for path in paths:
        if paths.count(path) > 1:
            raise UserError(f"{path}: named for two outputs, the second would replace the first")
        new = not path.exists()
        try:
            path.open("a", encoding="utf-8").close()
            if new:
                path.unlink()
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def _write(outputs: Sequence[tuple[str, Path | None]]) -> bool:
    """Write each text to its file, None is stdout; one that fails, on a full disk, costs none of the others. Whether all were written."""
    whole = True
    for text, path in outputs:
        try:
            emit(text, path)
        except UserError as error:
            whole = False
            click.echo(f"promptlint: error: {one_line(str(error))}", err=True)
    return whole


_EXIT = {"complete": 0, "unfair": 1, "interrupted": 130, "refused": 2, "unusable": 2}


@click.command("bench")
@click.option(
    "--target",
    multiple=True,
    metavar="[NAME=]URL",
    help="A running OpenAI-compatible server; give two or more to compare. The first is what others are compared with.",
)
@click.option("--model", metavar="ID", help="Model to ask for (default: what each server serves).")
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Description of the workload (YAML); default: a tree of 8 branches, 128 requests.",
)
@click.option("--pool", metavar="NAME", help="Pool of a workload file that holds several.")
@click.option("--traffic", multiple=True, metavar="FILE", help="Recorded or anonymised traffic to replay.")
@click.option("--format", "form", default="auto", metavar="NAME", help="Format of the traffic (auto).")
@click.option(
    "--block-size", type=click.IntRange(1), metavar="N", help="Tokens per hash of block traces that do not say."
)
@click.option(
    "--send",
    type=click.Choice(("auto", "text", "tokens")),
    default="auto",
    help="Traffic with text: as it is (auto, text), or as random tokens with the same sharing. A described workload: as tokens (auto), or as words in a chat message (text).",
)
@click.option("--tokenizer", metavar="NAME", help="Tokenizer that finds what texts share.")
@click.option("--render", metavar="MODE", help="How messages become text for that: plain-tags, or a chat template.")
@click.option(
    "--tools",
    type=click.Path(path_type=Path, exists=True),
    metavar="FILE",
    help="Tools that were sent with every request of the traffic.",
)
@click.option(
    "--variant",
    multiple=True,
    type=click.Choice(("as-is", "one-branch", "shuffled")),
    help="Of a described workload: as it is, all on one branch, blocks in another order each time. Several may be given.",
)
@click.option("--requests", type=click.IntRange(1, 20_000), metavar="N", help="Requests of one repetition.")
@click.option(
    "--longest",
    type=click.IntRange(1),
    metavar="TOKENS",
    help="Leave out requests that are longer with their answer (the result says how many).",
)
@click.option(
    "--output-tokens",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Length of every answer (default: the workload's; of traffic as recorded, 64 where it does not say).",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Closed loop: so many requests always under way (default: the workload's, else 16).",
)
@click.option(
    "--rate",
    type=FiniteRange(0, min_open=True),
    metavar="R",
    help="Open load: requests a second, whether or not earlier ones are answered.",
)
@click.option(
    "--arrivals",
    type=click.Choice(("poisson", "constant", "recorded")),
    help="When they arrive: at a rate (poisson is the default), or at the traffic's own times.",
)
@click.option(
    "--speed",
    type=FiniteRange(0, min_open=True),
    default=1.0,
    metavar="X",
    help="Recorded arrivals so many times as fast.",
)
@click.option("--rate-sweep", metavar="R,R,...", help="Measure at each of these rates.")
@click.option(
    "--slo",
    metavar="BOUNDS",
    help="Promises in milliseconds, e.g. ttft_p99=500,tpot_p99=50: gives the goodput of a sweep.",
)
@click.option(
    "--load",
    type=FiniteRange(0, min_open=True),
    metavar="R",
    help="Requests a second that you have to serve: gives the GPUs needed.",
)
@click.option(
    "--gpus",
    type=click.IntRange(1),
    metavar="N",
    help="GPUs of one target (default: the workload's tensor_parallel, else 1).",
)
@click.option(
    "--structured",
    type=click.Choice(("off", "on", "both")),
    default="off",
    help="Ask for JSON by a schema; both measures without and with it.",
)
@click.option(
    "--json-schema",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The schema of --structured (default: a small verdict).",
)
@click.option(
    "--repetitions", type=click.IntRange(1, 100), default=5, help="Runs of each target, interleaved A B A B (5)."
)
@click.option("--level", type=FiniteRange(0.5, 0.9999), default=0.95, help="Level of the intervals (0.95).")
@click.option(
    "--warm-up",
    type=click.IntRange(1, 1000),
    default=8,
    metavar="N",
    help="Requests to each target that are not counted (8).",
)
@click.option(
    "--timeout",
    type=FiniteRange(0.05, 3600),
    default=60.0,
    metavar="SECONDS",
    help="Wait so long for the next byte of an answer (60); a whole answer gets ten times that.",
)
@click.option(
    "--connect-timeout",
    type=FiniteRange(0.05, 600),
    default=10.0,
    metavar="SECONDS",
    help="Wait so long for a connection (10).",
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 31) - 1),
    metavar="N",
    help="Of tokens and arrival times (default: new each time, so that no cache knows the prompts; it stands in the result).",
)
@click.option("--vocabulary", default="1000:30000", metavar="LOW:HIGH", help="Token ids that may be sent (1000:30000).")
@click.option(
    "--fixed-length/--no-fixed-length", default=True, help="Ask for answers of full length (ignore_eos; the default)."
)
@click.option(
    "--flush/--no-flush", default=True, help="Empty the servers' caches before each run, where they can (the default)."
)
@click.option(
    "--allow-different",
    is_flag=True,
    help="Measure although models, number formats, quantisation or parallelism differ.",
)
@click.option("--api-key-env", metavar="NAME", help="Environment variable with the key to send.")
@click.option(
    "--print-launch",
    is_flag=True,
    help="Print commands that start both engines for --model or --workload, and measure nothing.",
)
@click.option("--gpu", metavar="NAME", help="GPU that --print-launch is for (default: the workload's).")
@click.option(
    "--extra-rules",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Own rule folders.",
)
@click.option(
    "--per-request", type=click.Path(path_type=Path), metavar="FILE", help="Write a line for each answer (JSON lines)."
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the result (JSON) for `promptlint advise --measured FILE`, beside what is printed.",
)
@click.option("--output-format", type=click.Choice(("text", "json")), default="text", help="text (default) or json.")
@click.option(
    "-o", "--output-file", type=click.Path(path_type=Path), metavar="FILE", help="Write there instead of stdout."
)
def command(**given: Any) -> int:
    """Measure two or more running servers side by side on one workload.

    Exit status: 0 measured as planned; 1 measured, but requests failed or a server contradicted itself; 2 nothing could be measured, or it would not have been fair;
    130 interrupted (what was measured until then is written).
    """
    import json

    from promptlint.app.bench import Asked, launch, run
    from promptlint.report.bench import to_text

    output_format, output, save, rows_file = (
        given.pop(name) for name in ("output_format", "output_file", "save", "per_request")
    )
    _must_be_writable([path for path in (output, save, rows_file) if path is not None])
    if given.pop("print_launch"):
        emit(launch(Asked(**given)), output)
        return 0
    data, rows = run(Asked(**given), progress=lambda text: click.echo(text, err=True))
    addresses = {target["name"]: target["url"] for target in data["targets"]}
    for name, why in data["unusable"].items():
        click.echo(f"promptlint: error: {one_line(f'target {name} ({addresses[name]}): {why}')}", err=True)
    for why in data["refused"] if data["status"] == "refused" else ():
        click.echo(f"promptlint: error: not a fair comparison: {one_line(why)}", err=True)
    document = json.dumps(data, indent=2) + "\n"
    outputs: list[tuple[str, Path | None]] = []  # what is kept comes first: an impatient second Ctrl-C ends the rest
    if save is not None:
        outputs.append((document, save))
    if rows_file is not None:
        outputs.append(("".join(json.dumps(row) + "\n" for row in rows), rows_file))
    outputs.append((document if output_format == "json" else to_text(data), output))
    return _EXIT[data["status"]] if _write(outputs) else 2
