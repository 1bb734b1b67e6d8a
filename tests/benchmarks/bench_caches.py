# ruff: noqa: T201 - it prints its results
"""Speed and memory of the cache models; run by hand: `python tests/benchmarks/bench_caches.py`.

Prints prompt tokens a second for the sequential replay with eviction, how time grows with the number of requests,
and the memory of the largest run. Given the engines' own classes behind a command that prints `N prompt tokens/s` on stderr for
a trace (`--sglang CMD`, `--vllm CMD`, or the variables PROMPTLINT_BENCH_SGLANG and PROMPTLINT_BENCH_VLLM; `{trace}` and `{capacity}`
stand for the file and the tokens of the pool), it runs them on the same trace in the same run and prints the ratios that we
promise: 15 for SGLang's Rust core, 8 for vLLM's KVCacheManager. A ratio below its promise makes the exit status 1.
"""

import argparse
import gc
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from promptlint.caches.paged import PagedCache
from promptlint.caches.radix import RadixCache
from promptlint.caches.request import unpack
from promptlint.caches.workloads import templates_and_users

CAPACITY = 1_000_000
PROMISED = {"sglang": 15, "vllm": 8}


def speed(make, requests, repeats=3):
    """(best prompt tokens per second of wall time, as the engines report theirs, cached tokens)."""
    tokens = sum(request.prompt_tokens for request in requests)
    best, cached = 0.0, 0
    for _ in range(repeats):
        cache = make()
        start = time.perf_counter()
        cached = sum(cache.admit(request).cached_tokens for request in requests)
        best = max(best, tokens / (time.perf_counter() - start))
    return best, cached


def oracle(command, trace):
    """(tokens per second, cached tokens) that an engine's own classes report."""
    done = subprocess.run(
        shlex.split(command.format(trace=trace, capacity=CAPACITY)), capture_output=True, text=True, check=True
    )
    rate = float(re.search(r"([\d,]+) prompt tokens/s", done.stderr)[1].replace(",", ""))
    return rate, json.loads(done.stdout.splitlines()[-1])["summary"]["cached_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sglang", metavar="CMD", default=os.environ.get("PROMPTLINT_BENCH_SGLANG"))
    parser.add_argument("--vllm", metavar="CMD", default=os.environ.get("PROMPTLINT_BENCH_VLLM"))
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--skip-growth", action="store_true")
    given = parser.parse_args()
    gc.disable()  # as `promptlint simulate` does
    requests = list(templates_and_users(given.requests))
    ours = {}
    for name, make in (
        ("sglang", lambda: RadixCache(CAPACITY)),
        ("sglang, page 64", lambda: RadixCache(CAPACITY, 64)),
        ("vllm", lambda: PagedCache(CAPACITY, 16)),
    ):
        ours[name] = speed(make, requests)
        print(f"{name:16} {ours[name][0] / 1e6:8.1f} M tokens/s   {ours[name][1]:,} cached")
    kept = compare({"sglang": given.sglang, "vllm": given.vllm}, requests, ours)
    del requests
    if not given.skip_growth:
        growth()
    return 0 if kept else 1


def compare(commands, requests, ours):
    """Print the ratio to each engine that there is a command for; true when every promise is kept."""
    kept = True
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        if any(commands.values()):
            for one in requests:
                row = {"id": one.id, "tokens": list(unpack(one.prompt)), "output_tokens": list(unpack(one.output))}
                file.write(json.dumps(row) + "\n")
            file.flush()
        for name, command in commands.items():
            if not command:
                print(f"{name}: engine not run, no command given")
                continue
            rate, cached = oracle(command, file.name)
            assert cached == ours[name][1], f"{name}: {cached} cached tokens, ours {ours[name][1]}"
            ratio = ours[name][0] / rate
            kept = kept and ratio >= PROMISED[name]
            print(
                f"{name}: engine {rate / 1e6:.2f} M tokens/s, ratio {ratio:.1f} (promised {PROMISED[name]})", flush=True
            )
    return kept


def growth():
    """Print how time grows with the number of requests, and the peak memory."""
    print("requests   seconds (us per request), streamed")
    for count in (1_000, 10_000, 100_000):
        for name, cache in (("sglang", RadixCache(None)), ("vllm", PagedCache(None, 16))):
            spent = 0.0
            for request in templates_and_users(count):
                start = time.process_time()
                cache.admit(request)
                spent += time.process_time() - start
            print(f"{count:8,}   {name:7} {spent:7.2f} ({spent / count * 1e6:.1f})")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    sys.exit(main())
