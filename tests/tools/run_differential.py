"""The differential test over any range of seeds, resumable: what .ci/run does for 2,000 programs, for as many as one likes.

    python tests/tools/run_differential.py --count 100000 --log differential.log

Appends every mismatch and a line of progress each 1,000 programs to the log; started again with the same log, it goes on where it ended.
Exits with 1 when a program did not match, or when less than 98 % of the literal characters that were sent lie in fixed text.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from promptlint.frontends.python.roots import Interpreter
from tests.properties.test_differential import check

STEP = 1_000


def resume(log: Path, first: int) -> tuple[int, list[int], Counter[str]]:
    """Where an earlier run ended: the next seed, the seeds that failed, and the characters counted so far."""
    following, failed, characters = first, [], Counter[str]()
    if log.is_file():
        for line in log.read_text("utf-8").splitlines():
            entry = json.loads(line)
            if "failed" in entry:
                failed.append(entry["failed"])
            else:
                following = entry["next"]
                characters = Counter({"sent": entry["sent"], "fixed": entry["fixed"]})
    return following, [seed for seed in failed if seed < following], characters


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=100_000, help="programs in all")
    parser.add_argument("--log", type=Path, default=Path("differential.log"))
    args = parser.parse_args()
    Interpreter.strict = True
    start, failed, characters = resume(args.log, args.first)
    lost: Counter[str] = Counter()
    began = time.monotonic()
    end = args.first + args.count
    with args.log.open("a", encoding="utf-8") as log:
        for seed in range(start, end):
            try:
                check(seed, lost, characters)
            except Exception as error:  # noqa: BLE001 - a crash of the interpreter is a mismatch like any other
                failed.append(seed)
                log.write(json.dumps({"failed": seed, "why": f"{type(error).__name__}: {error}"[:400]}) + "\n")
            if (seed + 1) % STEP == 0 or seed + 1 == end:
                log.write(json.dumps({"next": seed + 1, **characters}) + "\n")
                log.flush()
                rate = (seed + 1 - start) / (time.monotonic() - began)
                sys.stderr.write(
                    f"{seed + 1 - args.first} of {args.count}, {len(failed)} failed, {rate:.0f} a second\n"
                )
    share = characters["fixed"] / max(1, characters["sent"])
    sys.stdout.write(
        f"{args.count} programs, {len(failed)} failed {failed[:20]}, {share:.2%} of the characters fixed\n"
    )
    return 1 if failed or share < 0.98 else 0


if __name__ == "__main__":
    raise SystemExit(main())
