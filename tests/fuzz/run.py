"""Fuzz the readers of promptlint: `python tests/fuzz/run.py python --minutes 30`, or `all`.

Each input is tried in a child process under a bound on CPU time, wall time and memory. What raises anything but our UserError, exceeds a bound, or
ends the process is kept in `CORPUS/TARGET/found` with its traceback. What made something new happen is kept in `CORPUS/TARGET/kept`, and is the material of the next run:
a run goes on where the last one ended. With Python 3.12 and newer, new lines of promptlint count as something new (sys.monitoring tells them for almost nothing); before,
only the features that a target names. `CORPUS/log.jsonl` gets one line a run.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from mutate import mutated
from targets import TARGETS, TOP, Target

PACKAGE = str(TOP / "promptlint")
RECYCLE = 3_000  # inputs after which a child is replaced, so that a slow leak is seen as what it is and not as a fault of one input


@dataclass(slots=True)
class Bounds:
    """Of one input. CPU seconds are of the child alone; wall seconds also hold what it waits for."""

    cpu: float
    wall: float
    memory: int  # bytes of address space


@dataclass(slots=True)
class Tally:
    """What a run has done."""

    tried: int = 0
    kept: int = 0
    found: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0
    largest: int = 0  # bytes of resident memory


def lines_seen() -> set[tuple[int, int]] | None:
    """A set that fills with (code, line) as lines of promptlint run for the first time; None before Python 3.12."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return None
    seen: set[tuple[int, int]] = set()
    monitoring.use_tool_id(monitoring.COVERAGE_ID, "fuzz")

    def line(code: Any, number: int) -> Any:
        if code.co_filename.startswith(PACKAGE):
            seen.add((hash((code.co_filename, code.co_qualname)), number))
        return monitoring.DISABLE  # each line tells of itself once: it costs nothing after

    monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
    monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)
    return seen


class Child:
    """A forked process that tries inputs, one after the other, each in a fresh folder."""

    def __init__(self, target: Target, bounds: Bounds, work: Path) -> None:
        self.bounds = bounds
        self.trace = work / "trace.txt"
        self.tried = 0
        to_child, self.asking = os.pipe()
        self.answering, from_child = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            os.close(self.asking)
            os.close(self.answering)
            self._serve(target, to_child, from_child, work)
        os.close(to_child)
        os.close(from_child)

    def _serve(self, target: Target, asked: int, told: int, work: Path) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (self.bounds.memory, self.bounds.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with self.trace.open("w") as trace, open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            faulthandler.enable(trace)
            faulthandler.register(
                signal.SIGPROF, trace, chain=True
            )  # the traceback of what hangs; then the signal ends us
            seen = lines_seen()
            with os.fdopen(asked, "rb") as asking, os.fdopen(told, "wb") as telling:
                for line in asking:
                    folder = Path(tempfile.mkdtemp(dir=work))
                    answer = self._try(target, Path(json.loads(line)).read_bytes(), folder, seen)
                    shutil.rmtree(folder, ignore_errors=True)
                    telling.write(json.dumps(answer).encode() + b"\n")
                    telling.flush()
        os._exit(0)

    def _try(self, target: Target, data: bytes, folder: Path, seen: set[tuple[int, int]] | None) -> dict[str, Any]:
        before = set(seen) if seen is not None else set()
        start = time.process_time()
        fault = ""
        features: set[str] = set()
        signal.setitimer(signal.ITIMER_PROF, self.bounds.cpu)
        try:
            for feature in target.read(data, folder):
                features.add(feature)
        except Exception:  # noqa: BLE001  # this is what is looked for
            fault = traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        features |= {f"{code}:{number}" for code, number in (seen or set()) - before}
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "features": sorted(features),
            "fault": fault[-20_000:],
            "seconds": time.process_time() - start,
            "memory": size,
        }

    def ask(self, path: Path) -> dict[str, Any]:
        """The answer for one input; a fault when the child hangs or dies."""
        self.tried += 1
        os.write(self.asking, json.dumps(str(path)).encode() + b"\n")
        answer = b""
        end = time.monotonic() + self.bounds.wall
        while not answer.endswith(b"\n"):
            if not select.select([self.answering], [], [], max(end - time.monotonic(), 0))[0]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.process, signal.SIGPROF)  # it writes where it is, and ends
                time.sleep(0.5)
                self.close()
                return {"fault": f"hang: no answer within {self.bounds.wall:g} s\n{self._traced()}"}
            part = os.read(self.answering, 1 << 20)
            if not part:
                status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
                self.process = 0
                reason = (
                    f"hang: more than {self.bounds.cpu:g} s of CPU time"
                    if status == -signal.SIGPROF
                    else f"the process ended with {status}"
                )
                return {"fault": f"{reason}\n{self._traced()}"}
            answer += part
        found: dict[str, Any] = json.loads(answer)
        return found

    def _traced(self) -> str:
        return self.trace.read_text("utf-8", "replace")[:6000]

    def close(self) -> None:
        """End the process."""
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            self.process = 0
        for pipe in (self.asking, self.answering):
            with contextlib.suppress(OSError):
                os.close(pipe)


def named(data: bytes) -> str:
    """The name under which an input is kept."""
    return hashlib.sha256(data).hexdigest()[:16]


def signature(fault: str) -> str:
    """What two inputs with the same fault share: the kind of error and the innermost place in promptlint."""
    rows = [row.strip() for row in fault.splitlines() if row.strip()]
    places = [row for row in rows if row.startswith("File ") and "promptlint/" in row and "tests/fuzz" not in row]
    last = rows[-1].partition(":")[0] if rows and not fault.startswith(("hang", "the process")) else rows[0]
    return f"{last} at {places[-1].partition('promptlint/')[2] if places else 'no place'}"


def material(target: Target, folder: Path) -> Iterator[bytes]:
    """Seeds, and what earlier runs have kept."""
    yield from target.seeds()
    for path in sorted((folder / "kept").glob("*")):
        yield path.read_bytes()


def fuzz(name: str, folder: Path, seconds: float, seed: int, bounds: Bounds, tally: Tally) -> None:
    """Try inputs for some seconds of CPU time, so that a busy machine does not make the trial shorter, and count them in `tally`.

    The first ones are the seeds and what earlier runs kept and found, so that a fault that was repaired shows itself repaired.
    """
    target = TARGETS[name]
    for part in ("kept", "found"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    inputs = list(material(target, folder))
    again = inputs + [path.read_bytes() for path in sorted((folder / "found").glob("*.input"))]
    known: set[str] = set()
    spent, began = 0.0, time.process_time()  # of the children, and our own
    with tempfile.TemporaryDirectory(prefix="promptlint-fuzz-") as temporary:
        work = Path(temporary)
        child = Child(target, bounds, work)
        try:
            while spent + time.process_time() - began < seconds or again:
                first = bool(again)
                data = again.pop(0) if again else mutated(rng, inputs)
                path = work / "input"
                path.write_bytes(data)
                answer = child.ask(path)
                if answer["fault"].startswith(
                    "hang: no answer"
                ):  # on a busy machine a process may just not be let run: twice in a row counts
                    child.close()
                    child = Child(target, bounds, work)
                    answer = child.ask(path)
                tally.tried += 1
                spent += answer.get("seconds", bounds.cpu)
                tally.slowest = max(tally.slowest, answer.get("seconds", 0.0))
                tally.largest = max(tally.largest, answer.get("memory", 0))
                if answer["fault"]:
                    _keep_fault(folder / "found", data, answer["fault"], tally)
                elif not known.issuperset(answer["features"]):
                    known.update(answer["features"])
                    if not first:
                        inputs.append(data)
                        (folder / "kept" / named(data)).write_bytes(data)
                        tally.kept += 1
                if child.process == 0 or child.tried >= RECYCLE:
                    child.close()
                    child = Child(target, bounds, work)
        finally:
            child.close()


def _keep_fault(folder: Path, data: bytes, fault: str, tally: Tally) -> None:
    """One input for each kind of fault, the shortest."""
    kind = signature(fault)
    tally.found[kind] = tally.found.get(kind, 0) + 1
    base = folder / hashlib.sha256(kind.encode()).hexdigest()[:12]
    before = base.with_suffix(".input")
    if not before.exists() or before.stat().st_size > len(data):
        before.write_bytes(data)
        base.with_suffix(".txt").write_text(f"{kind}\n\n{fault}", "utf-8")
    if tally.found[kind] == 1:
        print(f"  found: {kind} ({before})", flush=True)


def default_corpus() -> Path:
    """Outside of the repository: what is found is not yet reviewed."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "promptlint-fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "targets", nargs="+", choices=[*TARGETS, "all"], metavar="TARGET", help=f"{', '.join(TARGETS)}, or all"
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="of CPU time, for each target")
    parser.add_argument("--corpus", type=Path, default=default_corpus(), help="folder that is read and filled")
    parser.add_argument("--seed", type=int, help="of the mutations; by default another one each run")
    parser.add_argument("--cpu", type=float, default=10.0, help="seconds of CPU time an input may take")
    parser.add_argument("--wall", type=float, default=300.0, help="seconds an input may take")
    parser.add_argument("--memory", type=int, default=2000, help="megabytes of address space")
    given = parser.parse_args()
    os.environ["PROMPTLINT_WORKERS"] = "1"  # faults shall happen where they are seen
    bounds = Bounds(given.cpu, given.wall, given.memory * 1_000_000)
    failed = False
    for name in TARGETS if "all" in given.targets else given.targets:
        seed = given.seed if given.seed is not None else random.randrange(2**32)
        print(f"{name}: {given.minutes:g} min, seed {seed}", flush=True)
        start, used = time.time(), os.times()
        tally = Tally()
        interrupted = False
        try:
            fuzz(name, given.corpus / name, given.minutes * 60, seed, bounds, tally)
        except KeyboardInterrupt:
            interrupted = True
        spent = os.times()
        row = {
            "target": name, "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(start)), "minutes": round((time.time() - start) / 60, 2), "seed": seed,
            "python": sys.version.split()[0], "cpu_minutes": round(sum(spent[:4]) / 60 - sum(used[:4]) / 60, 2), "tried": tally.tried, "kept": tally.kept,
            "slowest_cpu_s": round(tally.slowest, 2), "largest_mb": tally.largest // 1_000_000, "found": tally.found,
        }  # fmt: skip
        with (given.corpus / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        print(
            f"  {tally.tried} inputs, {tally.kept} kept, {sum(tally.found.values())} faults of {len(tally.found)} kinds, slowest {tally.slowest:.1f} s, at most {row['largest_mb']} MB"
        )
        failed |= bool(tally.found)
        if interrupted:
            return 130
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
