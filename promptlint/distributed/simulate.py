"""`simulate` in two stages: pieces, then each partition replayed by itself and the counts added up."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from promptlint.app.requests import Requests, repeats_id
from promptlint.app.simulate import Setup, no_collector, run_of, simulate
from promptlint.app.simulate_command import (
    Found,
    observed_of,
    options_of,
    problem_rows,
    setup_of,
    totals_of,
    write_requests,
)
from promptlint.distributed.inputs import inputs
from promptlint.distributed.pieces import Piece, Stored, name_hashes, name_of, parquet, rows
from promptlint.distributed.runner import Job
from promptlint.distributed.tokens import Tokenise, folder_facts, piece_of
from promptlint.distributed.work import create, kept, key_of
from promptlint.errors import UserError
from promptlint.traffic.read import Problem
from promptlint.traffic.record import Place, Record

__all__ = ["Simulate", "run", "whole_because"]


def run(paths: tuple[str, ...], given: Mapping[str, Any], job: Job) -> tuple[Found, str | None]:
    """What `simulate_command.run` finds, and why the requests were replayed as one stream (None: as partitions). Raises UserError."""
    given = {**given, "paths": paths, "curve": bool(given["curve"])}
    if given["engine"] is not None:
        setup_of(given["engine"], given)  # what is wrong with it is told before anything is read
    if given["per_request"] is not None:
        write_requests(given["per_request"], [], [])
    manifests = _pieces(paths, given, job)
    pieces = [piece_of(job.work, number, manifest) for number, manifest in enumerate(manifests)]
    problems = [
        Problem(manifest["name"], line, reason, field)
        for manifest in manifests
        for line, reason, field in manifest["problems"]
    ]
    if given["strict"] and problems:
        raise UserError(str(problems[0]))
    if given["engine"] is None:
        first = next((one["first_hashed"] for one in manifests if one["first_hashed"] is not None), False)
        given["engine"] = "block-lru" if first else "sglang"
    setup = setup_of(given["engine"], given)
    mixed = any(one["hashed"] for one in manifests) and any(one["other"] for one in manifests)
    why = whole_because(setup, mixed=mixed)
    if why is None:
        found = _partitions(setup, given, pieces, problems, job)
    else:
        job.progress("simulating all requests as one stream")
        found = _whole(setup, given, pieces, problems)
    return found, why


def whole_because(setup: Setup, *, mixed: bool = False) -> str | None:
    """Why partitions could not stand alone: what one request finds then depends on requests of all of them; None where they can."""
    if setup.capacity is not None:
        return "all namespaces share one cache of limited size, so what is evicted depends on every request"
    if setup.schedule is not None:
        return "one scheduler orders all requests"
    if setup.replicas > 1:
        return "one router sees all requests"
    if setup.curve:
        return "the curve is about caches of limited size that all namespaces share"
    if setup.sample < 1:
        return "what a session is, for a sample, is learnt from the first requests of all"
    if setup.warm_up:
        return "the requests of the warm-up are counted over all"
    if mixed and setup.engine == "block-lru":
        return "block hashes and tokens stand in one log"
    return None


def _pieces(paths: tuple[str, ...], given: Mapping[str, Any], job: Job) -> list[dict[str, Any]]:
    from promptlint.app.simulate import ENGINES

    options = options_of(given)
    marks = given["engine"] is not None and given["engine"] not in ENGINES
    stage = {
        "work": str(job.work), "format": given["format_name"], "tools": options.tools, "block_size": options.block_size,
        "mode": given["render"], "tokenizer": given["tokenizer"], "marks": marks, "buckets": job.buckets,
    }  # fmt: skip
    tasks = [one.to_json() for one in inputs(paths)]
    return job.run(Tokenise, stage, tasks, "inputs tokenised")


class _Rows:
    """Rows of pieces as a source of `Requests`; what could not be read is known already."""

    def __init__(self, pieces: Sequence[Piece], bucket: int | None, problems: list[Problem]) -> None:
        self._pieces = pieces
        self._bucket = bucket
        self.problems = problems

    def __iter__(self) -> Iterator[Record]:
        return iter(rows(self._pieces, self._bucket))


def _requests(source: _Rows, setup: Setup, **more: Any) -> Requests:
    return Requests(
        source,
        as_blocks=setup.engine == "block-lru",
        block_size=setup.block_size,
        render=Stored(),
        need_times=setup.pace is not None,
        **more,
    )


def _whole(setup: Setup, given: Mapping[str, Any], pieces: Sequence[Piece], problems: list[Problem]) -> Found:
    """The run of one process, from where it has tokens."""
    requests = _requests(_Rows(pieces, None, problems), setup)
    try:
        result = simulate(setup, requests)
    except UserError as error:
        raise _nothing(error, requests.all_problems()) from error
    found = requests.all_problems()
    if given["per_request"] is not None:
        write_requests(given["per_request"], result.per_request, requests.ids)
    for name, reason in result.refused:
        place = requests.place(name)
        found.append(Problem(place.file, place.line, reason, "tokens"))
    totals = totals_of(requests, result.per_request)
    observed = observed_of(totals, provider=setup.is_provider, requests=result.report.requests)
    return Found(replace(result.report, problems=problem_rows(found), observed=observed), found)


def _nothing(error: UserError, problems: Sequence[Problem]) -> UserError:
    if problems and str(error) == "no request to replay":
        return UserError(f"no request to replay; the first of {len(problems)} problems: {problems[0]}")
    return error


class Simulate:
    """Stage 2: replays one bucket of all pieces and keeps what it counted, and each request's result.

    Args:
        given: `work`, and the options of the command.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = {
            **given["options"],
            "extra_rules": tuple(Path(one) for one in given["options"]["extra_rules"]),
        }
        self._work = Path(given["work"])
        # Terms and sizes of models are data that a user can change between two runs.
        self._facts = [folder_facts(str(one)) for one in self._given["extra_rules"]], folder_facts(self._given["model"])

    def __call__(self, task: dict[str, Any]) -> dict[str, Any]:
        """The manifest of the replay of a bucket. Raises UserError."""
        setup = setup_of(self._given["engine"], self._given)
        pieces = [Piece(self._work / key, name, number, (task["bucket"],)) for number, key, name in task["pieces"]]
        relevant = {name: self._given[name] for name in sorted(self._given) if name not in _IRRELEVANT}
        key = key_of("replay", task, relevant, self._facts)
        made = kept(self._work, key, lambda folder: _replayed(setup, pieces, task["bucket"], folder))
        return {"key": key, **made}


_IRRELEVANT = frozenset({"paths", "per_request", "redact", "strict"})  # to what a partition counts


def _replayed(setup: Setup, pieces: Sequence[Piece], bucket: int, folder: Path) -> dict[str, Any]:
    made: list[tuple[int, int]] = []
    requests = _requests(
        _Rows(pieces, bucket, []),
        setup,
        made=lambda row: made.append((row.piece, row.order)),
        repeats=False,
    )
    replay = run_of(setup)
    with no_collector():
        replay.replay(requests)
    refused = []
    for name, reason in replay.tally.refused:
        assert isinstance(name, int)  # a position
        place = requests.place(name)
        refused.append([*made[name], place.file, place.line, reason])
    _write_results(folder / "results.parquet", made, requests.ids, replay.results)
    return {
        "partial": replay.partial(),
        "problems": [[one.file, one.line, one.reason, one.field] for one in requests.problems],
        "refused": refused,
        "observed": list(totals_of(requests, replay.results)),
        "requests": len(made),
    }


def _write_results(path: Path, made: list[tuple[int, int]], ids: list[Any], results: Iterable[tuple[Any, int, int]]) -> None:  # fmt: skip
    pa, pq = parquet()
    table = list(results)
    columns = {
        "piece": pa.array([piece for piece, _ in made], pa.int64()),
        "order": pa.array([order for _, order in made], pa.int64()),
        "id": pa.array([json.dumps(one) for one in ids], pa.string()),
        "prompt_tokens": pa.array([row[1] for row in table], pa.int64()),
        "cached_tokens": pa.array([row[2] for row in table], pa.int64()),
    }
    with create(path) as file:
        pq.write_table(pa.table(columns), file, compression="zstd", row_group_size=1 << 16)


def _partitions(
    setup: Setup,
    given: Mapping[str, Any],
    pieces: Sequence[Piece],
    problems: list[Problem],
    job: Job,
) -> Found:
    options = {
        name: str(value) if isinstance(value, Path) else value for name, value in given.items() if name != "paths"
    }
    options["extra_rules"] = [str(Path(one).absolute()) for one in given["extra_rules"]]
    buckets = sorted({bucket for piece in pieces for bucket in piece.buckets})
    tasks = [
        {
            "bucket": bucket,
            "pieces": [[one.number, one.folder.name, one.name] for one in pieces if bucket in one.buckets],
        }
        for bucket in buckets
    ]
    stage = {"work": str(job.work), "options": options}
    parts = job.run(Simulate, stage, tasks, "partitions simulated")
    own = [Problem(*one) for part in parts for one in part["problems"]]
    found = sorted([*problems, *own, *_repeated(pieces)], key=lambda one: (one.file, one.line))
    if not any(part["requests"] for part in parts):
        raise _nothing(UserError("no request to replay"), found)
    merged = run_of(setup)
    for part in parts:
        merged.absorb(part["partial"])
    refused = sorted(one for part in parts for one in part["refused"])
    merged.tally.refused += [(None, reason) for *_, reason in refused]
    report = merged.report(())
    if given["per_request"] is not None:
        files = [job.work / part["key"] / "results.parquet" for part in parts]
        merged_rows = heapq.merge(*map(_results, files), key=lambda row: row[:2])
        write_requests(given["per_request"], ((json.loads(row[2]), *row[3:]) for row in merged_rows), None)
    found += [Problem(file, line, reason, "tokens") for _, _, file, line, reason in refused]
    totals = [sum(column) for column in zip(*(part["observed"] for part in parts), strict=True)]
    observed = observed_of(totals, provider=setup.is_provider, requests=report.requests)
    return Found(replace(report, problems=problem_rows(found), observed=observed), found)


def _results(path: Path) -> Iterator[tuple[Any, ...]]:
    """(piece, order, id as JSON, prompt tokens, cached tokens) of each request of a partition."""
    _, pq = parquet()
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1 << 14):
            yield from zip(*batch.to_pydict().values(), strict=True)


def _repeated(pieces: Sequence[Piece]) -> list[Problem]:
    """The ids that stand in a log twice, wherever their requests were replayed. Hashes are looked at first, eight bytes a request."""
    import numpy as np

    hashes = list(chain.from_iterable(map(name_hashes, pieces)))
    if not hashes:
        return []
    every, counts = np.unique(np.concatenate(hashes), return_counts=True)
    again = every[counts > 1]
    if not len(again):
        return []
    known: dict[str, Place] = {}
    found = []
    # Only pieces that hold one of them are read again.
    for row in rows([one for one in pieces if any(np.isin(each, again).any() for each in name_hashes(one))], None):
        name = name_of(row) if row.is_request else None
        if name is None:
            continue
        first = known.setdefault(name, row.place)
        if first is not row.place and first != row.place:
            where = f"line {first.line}" if first.file == row.place.file else str(first)
            found.append(Problem(row.place.file, row.place.line, repeats_id(where), "id", lost=False))
    return found
