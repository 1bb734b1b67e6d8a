# ruff: noqa: T201 - it prints its results, and runs the commands that it compares
"""Every comparison with another tool in one run: `python tests/benchmarks/bench_all.py [--tree TREE] [--write docs/benchmarks.md]`.

Each pair runs on the same input in turn, so that a ratio stands though the machine be busy; the least wall time of some rounds counts. The other tools
are commands that the variables PCDLINT (`… check`), KVLINT, LLMTRAFFICLENS and KVCACHE_SIMULATOR hold, or that are on the path; one that is absent is reported as
not run. Where both sides name a hit rate, both are printed: no speed counts that comes with another number.

- `check`: pcdlint, on TREE or on a tree of generated programs (`bench_check.py` says more);
- `simulate` on text: kvlint, which tokenises with a tokenizer from transformers. Its Python trains a small one, because none may be fetched here;
- `simulate` on block hashes, and its curve over capacities: llmtrafficlens (a whole curve, one pass) and kvcache-simulator (given capacities);
- text against tokenising alone (`bench_text.py`; conversations only where PROMPTLINT_DATA names the data).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench_hashes import BLOCK, SHORT, write

ROOT = Path(__file__).parents[2]
OWN = [sys.executable, "-m", "promptlint"]
TALKS, TURNS = 400, 5  # of the text that kvlint reads, too
TRAIN = """
import sys, pathlib
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast
tokenizer = ByteLevelBPETokenizer()
tokenizer.train_from_iterator([pathlib.Path(sys.argv[1]).read_text()], vocab_size=8000)
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer)
fast.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
fast.save_pretrained(sys.argv[2])
"""


@dataclass(frozen=True, slots=True)
class Run:
    """Wall seconds of a whole command, and what it printed."""

    seconds: float
    output: str


def timed(command: list[str], folder: Path) -> Run:
    """One run. Raises RuntimeError with the command's last words when it fails."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}, check=False)  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command[:3])}: {(done.stderr or done.stdout).strip()[-300:]}")
    return Run(time.perf_counter() - start, done.stdout)


def pair(own: list[str], other: list[str], folder: Path, rounds: int) -> tuple[Run, Run]:
    """The best round of each, in turn."""
    runs = [(timed(own, folder), timed(other, folder)) for _ in range(rounds)]
    return min((run for run, _ in runs), key=lambda run: run.seconds), min((run for _, run in runs), key=lambda run: run.seconds)  # fmt: skip


def command_of(variable: str, name: str) -> list[str] | None:
    """The other tool's command, None where it is absent."""
    given = os.environ.get(variable) or shutil.which(name)
    return shlex.split(given) if given else None


def line(what: str, tool: str, own: Run, other: Run, numbers: str) -> str:
    """A row of the comparison."""
    return f"{what}: {own.seconds:.2f} s, {tool} {other.seconds:.2f} s: {other.seconds / own.seconds:.1f} times as fast; {numbers}"


def write_talks(path: Path, words: list[str]) -> None:
    """Chats of some turns each under one of eight system texts, interleaved, one request body a line."""
    draw = random.Random(7)

    def said(count: int) -> str:
        return " ".join(draw.choices(words, k=count))

    systems = [said(600) for _ in range(8)]
    talks = [[{"role": "system", "content": draw.choice(systems)}] for _ in range(TALKS)]
    with path.open("w", encoding="utf-8") as file:
        for turn in range(TURNS):
            for talk in talks:
                if turn:
                    talk.append({"role": "assistant", "content": said(80)})
                talk.append({"role": "user", "content": said(30)})
                file.write(json.dumps({"model": "m", "messages": talk}) + "\n")


def on_text(folder: Path, rounds: int) -> Iterator[str]:
    """`simulate` against kvlint on the same chats. The tokenizers differ, so the hit rates agree only nearly."""
    kvlint = command_of("KVLINT", "kvlint")
    if kvlint is None:
        yield "simulate on text: not run, kvlint is absent"
        return
    book = (ROOT / "README.md").read_text("utf-8") + "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))  # fmt: skip
    (folder / "book.txt").write_text(book, "utf-8")
    write_talks(folder / "talks.jsonl", re.findall(r"[a-z]{2,}", book))
    timed([str(Path(kvlint[0]).with_name("python")), "-c", TRAIN, "book.txt", "tokenizer"], folder)
    for engine in ("vllm", "sglang"):
        own, other = pair(
            [*OWN, "simulate", "talks.jsonl", "--engine", engine, "--output-format", "json"],
            [*kvlint, "analyze", "talks.jsonl", "--model", "tokenizer", "--engine", engine, "--json", "kvlint.json"],
            folder,
            rounds,
        )
        ours, theirs = json.loads(own.output), json.loads((folder / "kvlint.json").read_text("utf-8"))
        numbers = f"hit rate {ours['hit_rate']:.3f}, {_rate(theirs):.3f} by kvlint with its own tokens"
        yield line(f"simulate, {TALKS * TURNS:,} requests of text, {engine}", "kvlint", own, other, numbers)


def _rate(report: object) -> float:
    """The first hit rate in another tool's JSON."""
    if isinstance(report, dict):
        for key, value in report.items():
            if "hit_rate" in key and isinstance(value, int | float):
                return float(value)
        report = list(report.values())
    if isinstance(report, list):
        return next((found for found in map(_rate, report) if found == found), float("nan"))
    return float("nan")


def on_hashes(folder: Path, requests: int, rounds: int) -> Iterator[str]:
    """The curve against llmtrafficlens and kvcache-simulator on the same trace of block hashes."""
    write(folder / "trace.jsonl", requests)
    curve = [*OWN, "simulate", "trace.jsonl", "--curve", "--output-format", "json"]
    lens = command_of("LLMTRAFFICLENS", "llmtrafficlens")
    if lens is None:
        yield "curve: not run, llmtrafficlens is absent"
    else:
        own, other = pair(curve, [*lens, "profile", "--format", "mooncake", "--warmup", "0", "-o", "lens", "trace.jsonl"], folder, rounds)  # fmt: skip
        ceiling = re.search(r"unbounded\s+([\d.]+)%", other.output)
        most = max(point["block_hit_rate"] for point in json.loads(own.output)["curve"])
        numbers = f"ceiling {most:.3f} of blocks, {float(ceiling[1]) / 100 if ceiling else float('nan'):.3f} by llmtrafficlens, which counts a last block of {BLOCK - SHORT} tokens as full"
        yield line(f"curve, {requests:,} requests of hashes", "llmtrafficlens", own, other, numbers)
    simulator = command_of("KVCACHE_SIMULATOR", "kvcache-simulator")
    if simulator is None:
        yield "curve: not run, kvcache-simulator is absent"
        return
    budgets = ",".join(str(4**power) for power in range(2, 8))
    own, other = pair(
        curve,
        [
            *simulator,
            "run",
            "--trace",
            "trace.jsonl",
            "--model",
            "cohere-command-r-v01",
            "--block-size",
            str(BLOCK),
            "--policies",
            "lru",
            "--budgets-gib",
            budgets,
            "--no-progress",
        ],
        folder,
        rounds,
    )
    yield line(
        f"curve, {requests:,} requests of hashes",
        "kvcache-simulator",
        own,
        other,
        "it counts the second half of the trace only",
    )


def part(name: str, *arguments: str) -> Iterator[str]:
    """The lines of another benchmark of this folder, with its verdict."""
    done = subprocess.run([sys.executable, str(Path(__file__).with_name(name)), *arguments], capture_output=True, text=True, cwd=ROOT, check=False)  # fmt: skip
    yield from (done.stdout or done.stderr).strip().splitlines()
    if done.returncode:
        yield f"{name}: exit status {done.returncode}: a promised ratio was missed, or it did not run"


def machine() -> str:
    """Processor, cores, Python, and the versions of the other tools."""
    model = next((row.partition(":")[2].strip() for row in _lines("/proc/cpuinfo") if row.startswith("model name")), platform.processor())  # fmt: skip
    found = []
    for variable, name in (("PCDLINT", "pcdlint"), ("KVLINT", "kvlint"), ("LLMTRAFFICLENS", "llmtrafficlens"), ("KVCACHE_SIMULATOR", "kvcache-simulator")):  # fmt: skip
        command = command_of(variable, name)
        if command is not None:
            ask = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
            done = subprocess.run([str(Path(command[0]).with_name("python")), "-c", ask], capture_output=True, text=True, check=False)  # fmt: skip
            found.append(f"{name} {done.stdout.strip() or 'of unknown version'}")
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}; " + (
        ", ".join(found) or "no other tool"
    )


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8").splitlines()
    except OSError:
        return []


def main() -> int:
    """Print each comparison as it is done; 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", help="folder of Python files for `check`; by default one is generated")
    parser.add_argument("--requests", type=int, default=100_000, help="of the trace of block hashes")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", type=Path, help="Markdown file for the result")
    given = parser.parse_args()
    told, failed = [machine()], False
    print(told[0])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        parts = {
            "check": part("bench_check.py", *([given.tree] if given.tree else [])),
            "text": part("bench_text.py"),
            "simulate": on_text(folder, given.rounds),
            "curve": on_hashes(folder, given.requests, given.rounds),
        }
        for name, rows in parts.items():
            try:
                for row in rows:
                    print(row, flush=True)
                    told.append(row)
                    failed = failed or "exit status" in row
            except (RuntimeError, OSError) as error:
                failed = True
                print(f"{name}: failed: {error}")
                told.append(f"{name}: failed: {error}")
    if given.write:
        given.write.write_text(_page(told), "utf-8")
    return int(failed)


def _page(told: list[str]) -> str:
    return "\n".join(
        [
            "# Benchmarks",
            "",
            "Printed by `python tests/benchmarks/bench_all.py --write docs/benchmarks.md`: each pair of tools on the same input, in turn, in one run.",
            "Ratios are what to read; seconds belong to this machine.",
            "",
            "```text",
            *told,
            "```",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
