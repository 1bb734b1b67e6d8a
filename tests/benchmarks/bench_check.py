# ruff: noqa: T201 - it prints its results, and runs the commands that it compares
"""`check` on a large tree: cold, warm, and with one file changed; run by hand: `python tests/benchmarks/bench_check.py TREE [--rounds N]`.

The tree is copied first, so nothing is written into it. Without one, a tree of generated programs is made. The variable PCDLINT holds the command
of pcdlint (`/venv/bin/pcdlint check`); with it each round runs both, one after the other, so that the ratio stands though the machine be busy.

Printed for each kind of run: the least wall and CPU seconds of all rounds (CPU of all processes together), the most memory that its processes
held together at one time (proportional set size: a page that several share counts once; sampled, Linux only), and the ratios. The exit
status is 1 when a ratio is worse than promised: pcdlint against cold, cold against one process, `--version` against a bare click program.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROMISED = {"pcdlint / cold": 3.0, "version / click": 1.5}
GENERATED = 400  # files of the tree that is made when none is given
CLICK = "import click\n@click.command()\n@click.version_option('1')\ndef main(): pass\nmain(['--version'])\n"


@dataclass(slots=True)
class Cost:
    """What one run took: seconds, seconds of all processors, megabytes."""

    wall: float
    cpu: float
    memory: float

    def least(self, other: Cost | None) -> Cost:
        """The least time of two runs, and the most memory."""
        if other is None:
            return self
        return Cost(min(self.wall, other.wall), min(self.cpu, other.cpu), max(self.memory, other.memory))


def held(process: int) -> float:
    """Megabytes that a process and its children hold, shared pages counted once; 0 where the system does not say."""
    total = 0.0
    for one in (process, *children(process)):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return total


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    try:
        return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:
        return []


def run(command: list[str], folder: Path, **environment: str) -> Cost:
    """Run a command to its end."""
    before, began = os.times(), time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    most = [0.0]

    def watch() -> None:
        while process.poll() is None:
            most[0] = max(most[0], held(process.pid))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait()
    wall, after = time.perf_counter() - began, os.times()
    watcher.join()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{shlex.join(command)} ended with {process.returncode}")
    return Cost(wall, cpu, most[0])


def tree(given: Path | None, into: Path) -> Path:
    """A copy of the given tree, or a made one."""
    target = into / "tree"
    if given is not None:
        shutil.copytree(given, target, symlinks=True)
        return target
    sys.path.insert(0, str(ROOT))
    from tests.properties.programs import generate

    for seed in range(GENERATED):
        for name, text in generate(seed).files.items():
            path = target / f"app{seed}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return target


def changed(folder: Path, number: int) -> None:
    """Add a statement to a file in the middle of the tree."""
    files = sorted(folder.rglob("*.py"))
    with files[len(files) // 2].open("a", encoding="utf-8") as file:
        file.write(f"\nCHANGED_{number} = {number}\n")


def measured(folder: Path, rounds: int, peer: list[str]) -> dict[str, Cost]:
    """The cost of each kind of run."""
    costs: dict[str, Cost] = {}

    def note(kind: str, cost: Cost) -> None:
        costs[kind] = cost.least(costs.get(kind))
        print(f"  {kind:16} {cost.wall:8.2f} s {cost.cpu:8.2f} CPU s {cost.memory:7.0f} MB", flush=True)

    check = [sys.executable, "-m", "promptlint", "check", "--isolated", "--output-format", "json"]
    bare = folder.parent / "bare.py"
    bare.write_text(CLICK)
    for number in range(rounds):
        print(f"round {number + 1}")
        store = folder.parent / f"cache-{number}"
        cached = [*check, "--cache-dir", str(store), str(folder)]
        note("cold", run(cached, folder.parent))
        note("warm", run(cached, folder.parent))
        changed(folder, number)
        note("one changed", run(cached, folder.parent))
        note("one process", run([*check, "--no-cache", str(folder)], folder.parent, PROMPTLINT_WORKERS="1"))
        note("click", run([sys.executable, str(bare)], folder.parent))
        note("version", run([sys.executable, "-m", "promptlint", "--version"], folder.parent))
        if peer:
            note("pcdlint", run([*peer, str(folder)], folder.parent))
    return costs


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    peer = shlex.split(os.environ.get("PCDLINT", ""))
    with tempfile.TemporaryDirectory() as folder:
        copy = tree(options.tree, Path(folder))
        files = sorted(copy.rglob("*.py"))
        print(f"{len(files)} Python files, {os.cpu_count()} processors, Python {sys.version.split()[0]}")
        costs = measured(copy, options.rounds, peer)
    ratios = {
        "pcdlint / cold": ("pcdlint", "cold"),
        "one process / cold": ("one process", "cold"),
        "cold / warm": ("cold", "warm"),
        "cold / one changed": ("cold", "one changed"),
        "version / click": ("version", "click"),
    }
    missed = False
    print(f"\n{'ratio':20} {'wall':>8} {'CPU':>8}   promised")
    for name, (above, below) in ratios.items():
        if above not in costs:
            print(f"{name:20} not run: set PCDLINT to its command")
            continue
        wall, cpu = costs[above].wall / costs[below].wall, costs[above].cpu / costs[below].cpu
        promised = PROMISED.get(name)
        met = promised is None or (cpu <= promised if name.startswith("version") else wall >= promised)
        missed |= not met
        told = "" if promised is None else f"{promised:g}{'' if met else '  MISSED'}"
        print(f"{name:20} {wall:8.2f} {cpu:8.2f}   {told}")
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
