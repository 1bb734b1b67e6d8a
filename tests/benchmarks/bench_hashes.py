# ruff: noqa: T201 - it prints its results
"""`simulate` on block hashes at scale; run by hand: `python tests/benchmarks/bench_hashes.py [--requests N] [--curve N] [--peer CMD]`.

Requests come from a seeded generator: 8 ids each out of a million, as chains of blocks of which some are popular, written as a trace in the format of Mooncake. The
run has an LRU of 200,000 blocks. Promised on two quiet cores: 10 million requests within 5 minutes and 2 GB, and the curve of 1 million within 20 s.

Seconds depend on the machine, so each run also prints its time over that of the least that any simulator has to do in Python with the same file: parse each line
and keep an `OrderedDict` of blocks. `--peer CMD` runs another simulator on the file that `{trace}` stands for (kvcache-simulator, say) and prints its seconds too.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

CHAINS, LENGTH, BLOCK, ROOM = 125_000, 8, 512, 200_000
SHORT = 100  # tokens that the last block of a prompt lacks
PROMISED = {"replay": (10_000_000, 300.0, 2048), "curve": (1_000_000, 20.0, 2048)}  # requests, seconds, MB


def write(path: Path, requests: int) -> None:
    """The trace: popular chains more often than others."""
    draw = random.Random(4).random
    with path.open("w") as file:
        for index in range(requests):
            first = int(CHAINS * draw() ** 2) * LENGTH
            ids = ", ".join(map(str, range(first, first + LENGTH)))
            file.write(f'{{"timestamp": {index}, "input_length": {LENGTH * BLOCK - SHORT}, "output_length": 50, "hash_ids": [{ids}]}}\n')  # fmt: skip


def least(path: Path) -> tuple[float, int]:
    """CPU seconds of parsing and of a plain LRU, and the blocks that hit."""
    start = time.process_time()
    room: OrderedDict[int, None] = OrderedDict()
    hits = 0
    with path.open("rb") as lines:
        for line in lines:
            ids = json.loads(line)["hash_ids"]
            for block in ids:
                if block not in room:
                    break
                hits += 1
            for block in reversed(ids):
                room[block] = None
                room.move_to_end(block)
            while len(room) > ROOM:
                room.popitem(last=False)
    return time.process_time() - start, hits


def simulate(path: Path, *more: str) -> tuple[float, float, int, int]:
    """Seconds, CPU seconds and peak MB of the whole command in a process of its own, and the blocks that hit."""
    command = [sys.executable, "-m", "promptlint", "simulate", str(path), "--capacity-tokens", str(ROOM * BLOCK), "--output-format", "json", *more]  # fmt: skip
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - start
    report = json.loads(done.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss >> 10, round(report["block_hit_rate"] * report["requests"] * LENGTH)


def main() -> int:
    """Print a line for each run; 1 when a promise is not kept, or another number comes out than the plain LRU's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=PROMISED["replay"][0])
    parser.add_argument("--curve", type=int, default=PROMISED["curve"][0])
    parser.add_argument("--peer", metavar="CMD")
    given = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.jsonl")
        for name, count, more in (("curve", given.curve, ["--curve"]), ("replay", given.requests, [])):
            if not count:
                continue
            write(path, count)
            alone, hits = least(path)
            wall, cpu, memory, found = simulate(path, *more)
            full, seconds, megabytes = PROMISED[name]
            share = count / full
            kept = kept and wall <= seconds * max(share, 0.05) and memory <= megabytes and abs(found - hits) <= 1e-6 * LENGTH * count + 1  # fmt: skip
            print(f"{name}: {count:,} requests in {wall:.1f} s (promised {seconds * share:.1f}), CPU {cpu:.1f} s, {cpu / alone:.2f} times the plain LRU's {alone:.1f} s; peak {memory} MB; {found:,} blocks hit, {hits:,} by the plain LRU")  # fmt: skip
            if given.peer:
                start = time.perf_counter()
                subprocess.run(shlex.split(given.peer.format(trace=path)), capture_output=True, check=True)
                print(f"  peer: {time.perf_counter() - start:.1f} s")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
