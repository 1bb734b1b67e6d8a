"""CPU seconds and bytes of the stages of `--runner ray`, done by this process: the figures of docs/large_logs.md.

    python tests/tools/stage_rates.py [REQUESTS]

Needs pyarrow. CPU time, so that other work on the machine changes little.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from unit.distributed import samples  # noqa: E402  # behind the path

from promptlint.cli.simulate import command  # noqa: E402  # behind the path
from promptlint.distributed import simulate  # noqa: E402  # behind the path
from promptlint.distributed.runner import Here, Job  # noqa: E402  # behind the path


class Timed(Here):
    """Tells what each stage took."""

    def map(self, worker, options, tasks):
        begun = time.process_time()
        yield from super().map(worker, options, tasks)
        print(f"  {worker.__name__}: {len(tasks)} tasks, {time.process_time() - begun:.2f} CPU s")


def main(count):
    with tempfile.TemporaryDirectory() as folder:
        log = samples.write(Path(folder, "log"), samples.rows(count), 4, parquet=False)
        work = Path(folder, "work")
        print(f"{count:,} requests, {_bytes(log):,} bytes of JSONL")
        for options in ((), ("--page-size", "16"), ("--engine", "vllm"), ("--capacity-tokens", "200000")):
            found = command.make_context("simulate", ["x", *options]).params
            for name in ("traffic", "runner", "work_dir", "workers", "partitions", "output_file", "output_format"):
                found.pop(name)
            begun = time.process_time()
            result, why = simulate.run((str(log),), found, Job(work, Timed()))
            report = result.report
            print(
                f"{' '.join(options) or 'sglang'}: {time.process_time() - begun:.2f} CPU s, {report.prompt_tokens:,} prompt tokens, "
                f"{report.written_tokens:,} written, {'one stream' if why else 'partitions'}"
            )
        print(f"pieces: {sum(_bytes(one) for one in work.glob('piece-*')):,} bytes")


def _bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
