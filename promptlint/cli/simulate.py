"""Replay traffic through a cache model and print hit rates."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from promptlint.cli._common import FiniteRange, emit, warn, with_own_rules
from promptlint.cli._runner import on_ray, runner_options

_SERVERS = ("fcfs", "lpm", "dfs-weight", "lof", "priority")


def _capacity(_: click.Context, __: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == "unlimited":
        return value
    try:
        return int(value.replace(",", "").replace("_", ""))
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor `unlimited`") from None


@click.command("simulate")
@click.argument("traffic", nargs=-1)
@click.option(
    "--engine", metavar="NAME", help="sglang (default), vllm, block-lru (default for block hashes), or a provider."
)
@click.option(
    "--capacity-tokens",
    callback=_capacity,
    metavar="N",
    help="KV memory of one replica in tokens, or unlimited (default).",
)
@click.option(
    "--model",
    default="",
    metavar="MODEL",
    help="With --gpu: derives the capacity. With a provider: whose terms apply. A config.json is accepted too.",
)
@click.option("--gpu", metavar="GPU", help="GPU of one replica, e.g. H100.")
@click.option(
    "--tensor-parallel", type=click.IntRange(1), default=1, metavar="N", help="GPUs that share one copy of the model."
)
@click.option(
    "--data-parallel",
    type=click.IntRange(1),
    default=1,
    metavar="N",
    help="Copies of the model, each with a cache of its own.",
)
@click.option("--dp-attention", is_flag=True, help="The data-parallel caches share one tensor-parallel group.")
@click.option("--kv-dtype", default="bf16", metavar="TYPE", help="Type of the KV cache: bf16 (default), fp8, ...")
@click.option("--weights", metavar="TYPE", help="Type of the weights, where it is not the model's own.")
@click.option("--explain-capacity", is_flag=True, help="Print the arithmetic of the capacity and stop.")
@click.option("--page-size", type=click.IntRange(1), default=1, metavar="N", help="Tokens per page, sglang (1).")
@click.option(
    "--block-size", type=click.IntRange(1), metavar="N", help="Tokens per block: vllm (16), block-lru (the trace's)."
)
@click.option(
    "--eviction",
    default="lru",
    type=click.Choice(("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "tlru")),
    help="Eviction policy, sglang.",
)
@click.option(
    "--tree",
    default="unified",
    type=click.Choice(("unified", "radix", "radix-nosplit")),
    help="Which of SGLang's trees.",
)
@click.option("--chunk", type=click.IntRange(0), default=0, metavar="N", help="Chunked prefill size, sglang; 0 is off.")
@click.option(
    "--schedule", type=click.Choice(_SERVERS), help="Serve many requests at once, in this order (vllm: fcfs, priority)."
)
@click.option(
    "--window",
    type=click.IntRange(1),
    default=64,
    metavar="W",
    help="Requests of the closed loop (64): waiting ones for sglang, live ones for vllm.",
)
@click.option("--batch-tokens", type=click.IntRange(1), metavar="B", help="Tokens of one prefill batch or step.")
@click.option("--max-running", type=click.IntRange(1), metavar="N", help="Requests that run at once.")
@click.option(
    "--pace", type=click.Choice(("arrivals",)), help="Requests arrive at their timestamps, not in a closed loop."
)
@click.option("--replicas", type=click.IntRange(1), metavar="N", help="Replicas behind a router.")
@click.option(
    "--router",
    type=click.Choice(("round-robin", "least-loaded", "consistent-hashing", "cache-aware")),
    default="round-robin",
    help="How requests find their replica.",
)
@click.option(
    "--denominator",
    type=click.Choice(("prompt-tokens", "full-blocks")),
    default="prompt-tokens",
    help="What hit_rate is a share of.",
)
@click.option(
    "--warm-up", type=click.IntRange(0), default=0, metavar="N", help="Requests served before counting begins."
)
@click.option("--curve/--no-curve", default=None, help="Hit rate against capacity (html: on).")
@click.option(
    "--sample",
    type=FiniteRange(0, 1, min_open=True),
    default=1.0,
    metavar="SHARE",
    help="Replay this share of the sessions.",
)
@click.option("--no-bounds", is_flag=True, help="Do not compute upper bounds and the bottleneck.")
@click.option("--ttl", default="", metavar="NAME", help="Lifetime, for a provider that offers several.")
@click.option(
    "--delay",
    type=FiniteRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Time until what a provider wrote can be read.",
)
@click.option(
    "--no-overflow",
    is_flag=True,
    help="Keep every request of a prefix on one machine, also above the rate from which a provider sends some elsewhere.",
)
@click.option(
    "--extra-rules",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="DIR",
    help="Own rule folders whose providers/*.toml override a provider's terms, beside those of the project's extra-rules.",
)
@click.option(
    "--per-request",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a JSON line per request: id, prompt_tokens, cached_tokens.",
)
@click.option("--tokenizer", default="", metavar="NAME", help="Tokenizer of text traffic (o200k_base).")
@click.option(
    "--render",
    metavar="MODE",
    help="How messages become text: plain-tags (default; provider for providers), or a chat template.",
)
@click.option("--format", "format_name", default="auto", metavar="NAME", help="Format of the records (auto).")
@click.option(
    "--tools",
    type=click.Path(path_type=Path, exists=True),
    metavar="FILE",
    help="Tools that were sent with every request.",
)
@click.option("--strict", is_flag=True, help="Stop at the first record that cannot be read.")
@click.option("--redact/--no-redact", default=False, help="In html: no text of the prompts as names of branches.")
@runner_options
@click.option(
    "--output-format",
    type=click.Choice(("text", "json", "html")),
    default="text",
    help="text (default), json, or html: one file to look at.",
)
@click.option(
    "-o", "--output-file", type=click.Path(path_type=Path), metavar="FILE", help="Write there instead of stdout."
)
def command(traffic: tuple[str, ...], **given: Any) -> int:
    """Replay TRAFFIC (files, folders, or - for standard input) and say what a prefix cache would have saved.

    Without --schedule requests run one at a time in file order, and nothing is evicted unless a capacity is given.
    """
    from promptlint.app.simulate import ENGINES
    from promptlint.app.simulate_command import explain, run, stale, unused
    from promptlint.report import simulate as report

    if given.pop("explain_capacity"):
        emit(explain(given) + "\n", given["output_file"])
        return 0
    if not traffic:
        raise click.UsageError("Missing argument 'TRAFFIC...'.")
    source = click.get_current_context().get_parameter_source
    named = {name: value for name, value in given.items() if source(name) is ParameterSource.COMMANDLINE}
    if given["engine"] not in {None, *ENGINES}:  # of an engine nobody's rules say anything
        given["extra_rules"] = with_own_rules(given["extra_rules"])
    output, output_format = given.pop("output_file"), given.pop("output_format")
    with on_ray(given) as job:
        if job is not None:
            found = _distributed(traffic, given, job, output_format)
        else:
            with _progress() as progress:
                found = run(traffic, given, progress, tree=output_format == "html")
    warn(unused(found.report.engine, named))
    warn(stale(found.report.engine, given, dt.datetime.now(tz=dt.UTC).date()))
    warn(
        [str(problem) for problem in sorted(found.problems, key=lambda one: not one.lost)]
    )  # what was lost comes first
    if output_format == "html":
        from promptlint.report.html.simulate import simulate

        emit(simulate(found.report, found.tree), output)
    else:
        emit(report.json(found.report) if output_format == "json" else report.text(found.report), output)
    return 0


def _distributed(traffic: tuple[str, ...], given: dict[str, Any], job: Any, output_format: str) -> Any:
    from promptlint.distributed.simulate import run
    from promptlint.errors import UserError

    if output_format == "html":
        raise UserError("--output-format html draws the tree of all prompts: without --runner ray")
    found, why = run(traffic, given, job)
    if why is not None:
        warn([f"tokenised by many workers, simulated by one: {why}"])
    return found


@contextmanager
def _progress() -> Iterator[Callable[[int], None] | None]:
    """A line on stderr that counts requests, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(count: int) -> None:
        click.echo(f"\r{count:,} requests", nl=False, err=True)

    try:
        yield show
    finally:
        click.echo("\r\x1b[K", nl=False, err=True)
