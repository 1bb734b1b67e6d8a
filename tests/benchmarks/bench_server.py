# ruff: noqa: T201 - it prints its results
"""How long the language server takes for a change: CPU time of a quick look after a line was put at the top of a file.

Run: python tests/benchmarks/bench_server.py FOLDER FILE. The time of a fixed loop stands beside it, so that figures from machines under load can be compared.
"""

import sys
from pathlib import Path
from time import process_time

from promptlint.app.live import Live
from promptlint.config import Settings


def main(folder, file):
    """Print the CPU times in milliseconds."""
    path = Path(folder, file)
    text = path.read_text("utf-8")
    live = Live(Settings(Path(folder)))
    start = process_time()
    live.look({path: text})
    print(f"first look: {(process_time() - start) * 1000:.0f} ms", flush=True)
    times = []
    for number in range(5):
        start = process_time()
        live.look({path: f"# {number}\n{text}"}, quick=True)
        times.append((process_time() - start) * 1000)
    print(f"after a change in {len(text.splitlines())} lines: {min(times):.0f} to {max(times):.0f} ms")
    start = process_time()
    sum(number * number for number in range(3_000_000))
    print(f"a loop of 3 million squares: {(process_time() - start) * 1000:.0f} ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
