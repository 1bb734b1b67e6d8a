"""Tasks on Ray: `ray.data` gives them to actors, starts new ones in place of those that die, and gives their tasks out again.

With the environment variable RAY_ADDRESS the cluster of that name works; else Ray is started on this machine with a small object store, without a dashboard, its
log, its progress bars and its usage statistics. The data itself never passes through the object store: workers read inputs and write files in the work folder,
which on a cluster has to be one folder for all machines.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from types import TracebackType
from typing import Any, Self

from promptlint.distributed.runner import Worker
from promptlint.errors import UserError

__all__ = ["OnRay"]

OBJECT_STORE = 200 << 20
"""Bytes; tasks and manifests are all that goes through it."""


class OnRay:
    """A runner on Ray; a context manager that stops what it started. What Ray prints of workers that died goes to stderr: stdout is for the report.

    Args:
        workers: processes; None for as many as there are processors.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers
        self._started = False
        self._printed = ExitStack()

    def __enter__(self) -> Self:
        # Read when ray is imported.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_DEDUP_LOGS", "0")
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise UserError(
                f"--runner ray needs Ray: install promptlint-cache[ray] ({error}); without the option one process does the same"
            ) from None
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        if not ray.is_initialized():
            _start(ray, self._workers)
            self._started = True
        if self._workers is None:
            self._workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._printed.enter_context(redirect_stdout(sys.stderr))
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with self._printed:
            if self._started:
                import ray

                ray.shutdown()

    def map(
        self, worker: Worker, options: Mapping[str, Any], tasks: Sequence[dict[str, Any]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """See `runner.Runner`."""
        import ray.data

        if not tasks:
            return
        items = [{"number": number, "task": json.dumps(task)} for number, task in enumerate(tasks)]
        size = min(self._workers or 1, len(tasks))
        # Strings on the way: Arrow would give one type to a field of all tasks.
        found = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            Actor,
            batch_size=1,
            batch_format="numpy",
            fn_constructor_args=(worker, json.dumps(options, default=str)),
            compute=ray.data.ActorPoolStrategy(size=size),
            num_cpus=1,
        )
        for row in found.iter_rows():
            result = json.loads(row["result"])
            if "user_error" in result:
                raise UserError(result["user_error"])
            yield int(row["number"]), result["found"]


class Actor:
    """A worker in a process of Ray: what it was made of, a tokenizer say, is kept from task to task."""

    def __init__(self, worker: Worker, options: str) -> None:
        self._work = worker(json.loads(options))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """One task. An error of the user's is a result: Ray would try again, and wrap it."""
        import numpy as np

        found = []
        for task in batch["task"]:
            try:
                found.append(json.dumps({"found": self._work(json.loads(str(task)))}))
            except UserError as error:
                found.append(json.dumps({"user_error": str(error)}))
        return {"number": batch["number"], "result": np.array(found, dtype=object)}


def _start(ray: Any, workers: int | None) -> None:
    import logging

    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        if os.environ.get("RAY_ADDRESS"):
            ray.init(**quiet)
            return
        ray.init(
            num_cpus=workers or os.cpu_count() or 1,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            **quiet,
        )
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        raise UserError(f"Ray did not start: {error}") from error
