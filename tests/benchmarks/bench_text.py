# ruff: noqa: T201 - it prints its results
"""`simulate` on text against tokenising every rendered prompt, in CPU seconds of one process; run by hand: `[PROMPTLINT_DATA=DIR] python tests/benchmarks/bench_text.py`.

Two kinds of traffic: the tau airline conversations, of which 97 % are shared, and text without repetition (the Python files of the standard library, one a prompt).
Each ratio is the time to tokenise all rendered prompts with the embedded tokenizer over the time of the whole command (reading, rendering, tokenising, caching,
report), the best of some rounds of both in turn.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import resource
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from promptlint import tokenizers
from promptlint.cli.simulate import command
from promptlint.tokenizers.render import Conversation, PlainTags
from promptlint.traffic.read import Traffic
from promptlint.traffic.readers.base import Options

ENCODING = "cl100k_base"
ROUNDS = 7
PROMISED = {"unique": 0.85, "tau airline": 4.0}


def unique(path: Path, characters: int = 12_000_000) -> None:
    """Write prompts that share nothing but, here and there, a first line."""
    left = characters
    with path.open("w", encoding="utf-8") as file:
        for source in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
            text = source.read_text("utf-8", "replace")
            if 2_000 < len(text) < 60_000 and left > 0:
                left -= len(text)
                file.write(json.dumps({"prompt": text}) + "\n")


def prompts(path: Path, form: str, tools: Path | None) -> list[str]:
    """Every rendered prompt of some traffic as one text."""
    sent = json.loads(tools.read_text("utf-8")) if tools is not None else None
    plain = PlainTags()
    return [
        record.prompt
        if record.prompt is not None
        else "".join(plain(Conversation(record.messages or (), record.tools, record.system)).prompt)
        for record in Traffic([path], format=form, options=Options(sent))
    ]


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the process that the work takes."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def ratio(path: Path, form: str, tools: Path | None) -> tuple[float, float]:
    """Best CPU seconds of tokenising alone, and of `simulate`."""
    encode = tokenizers.get(ENCODING).encode
    texts = prompts(path, form, tools)
    arguments = [str(path), "--format", form, "--tokenizer", ENCODING, "--output-format", "json"]
    arguments += ["--tools", str(tools)] if tools is not None else []

    def tokenise() -> None:
        for text in texts:
            encode(text)

    def simulate() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            command(arguments, standalone_mode=False)

    simulate()  # imports
    rounds = [(seconds(tokenise), seconds(simulate)) for _ in range(ROUNDS)]
    return min(one for one, _ in rounds), min(other for _, other in rounds)


def main() -> int:
    """Print a line for each kind of traffic; 1 when a promise is not kept."""
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        traffic: dict[str, tuple[Path, str, Path | None]] = {"unique": (Path(folder, "unique.jsonl"), "auto", None)}
        unique(traffic["unique"][0])
        data = os.environ.get("PROMPTLINT_DATA")
        if data:
            named = (
                Path(data, "tau_airline_trajectories.jsonl.gz"),
                "conversations",
                Path(data, "tau_airline_tools.json"),
            )
            traffic["tau airline"] = named
        else:
            print("tau airline: not run, PROMPTLINT_DATA is not set")
        for name, given in traffic.items():
            alone, whole = ratio(*given)
            kept = kept and alone / whole >= PROMISED[name]
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            print(f"{name}: tokenising {alone:.3f} s, simulate {whole:.3f} s, ratio {alone / whole:.2f} (promised {PROMISED[name]}); peak {memory} MB")  # fmt: skip
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
