"""Our caches answer what the engines' own classes answered, request by request."""

import json
from pathlib import Path

import pytest

from promptlint.caches.paged import PagedCache
from promptlint.caches.paged_scheduler import PagedScheduler
from promptlint.caches.radix import RadixCache
from promptlint.caches.radix_scheduler import RadixScheduler
from promptlint.caches.request import Request, pack
from promptlint.caches.schedule import closed_loop

HERE = Path(__file__).parent
AMPLE = 320_000
TIGHT = {
    "tree_8x16": 1600,
    "eviction_thrash": 1600,
    "split_every_offset": 480,
    "multi_turn": 1200,
    "exact_repeats": 160,
    "page_boundary": 480,
    "namespaces": 480,
    "shared_in_batch": 2400,
    "mixed_a": 128,
    "mixed_b": 692,
}


def request(record):
    return Request(
        record["id"],
        pack(record["tokens"]),
        pack(record.get("output_tokens") or []),
        namespace=record.get("key"),
        priority=record.get("priority"),
        max_new_tokens=record.get("max_new_tokens"),
    )


def trace(name):
    return [request(json.loads(line)) for line in (HERE / f"{name}.jsonl").read_text().splitlines()]


def answers(name, engine):
    found = json.loads((HERE / f"{name}.{engine}.json").read_text())["answers"]
    assert found
    return found


def scheduled(scheduler, requests, window):
    """Cached tokens in trace order, the serving order, and the scheduler's counters."""
    done = list(closed_loop(scheduler, requests, window))
    cached = {entry.request.id: entry.outcome.cached_tokens for entry in done}
    return [cached[one.id] for one in requests], [entry.request.id for entry in done], scheduler.stats


def settings(label):
    """`unified-rust page=1 lru tight chunk=32` as words and numbers."""
    words = label.split()
    return [word for word in words if "=" not in word], {
        key: int(value) for key, value in (word.split("=") for word in words if "=" in word)
    }


def check(label, want, requests, run):
    cached, order, stats = run
    assert cached == want["cached"], label
    if "served" in want:
        assert order == want["served"], label
        assert stats == {name: want[name] for name in stats}, label
    assert len(cached) == len(requests)


@pytest.mark.parametrize("name", sorted(TIGHT))
def test_sglang(name):
    requests = trace(name)
    for label, want in answers(name, "sglang").items():
        words, numbers = settings(label)
        tree = "unified" if words[0].startswith("unified") else words[0]
        capacity = AMPLE if words[2] == "ample" else TIGHT[name]
        cache = RadixCache(capacity, numbers["page"], eviction=words[1], tree=tree, chunk=numbers.get("chunk", 0))
        if "window" in numbers:
            scheduler = RadixScheduler(cache, words[3], max_prefill_tokens=numbers["batch"])
            run = scheduled(scheduler, requests, numbers["window"])
        else:
            run = [cache.admit(one).cached_tokens for one in requests], [], {}
        check(f"{name}: {label}", want, requests, run)


@pytest.mark.parametrize("name", sorted(TIGHT))
def test_vllm(name):
    requests = trace(name)
    for label, want in answers(name, "vllm").items():
        words, numbers = settings(label)
        cache = PagedCache(AMPLE if words[1] == "ample" else TIGHT[name], numbers["block"])
        if words[0] == "scheduler":
            scheduler = PagedScheduler(cache, max_batched_tokens=numbers["budget"])
            run = scheduled(scheduler, requests, numbers["window"])
        else:  # the manager's chunks change nothing that a trace can see
            run = [cache.admit(one).cached_tokens for one in requests], [], {}
        check(f"{name}: {label}", want, requests, run)


SEEDED = sorted(HERE.glob("seeded_*.json"))


def test_there_are_seeded_traces():
    assert len(SEEDED) >= 10


@pytest.mark.parametrize("path", SEEDED, ids=lambda path: path.stem)
def test_seeded(path):
    """Random traces under random configurations: pages, policies, chunks, capacities, schedules, windows."""
    data = json.loads(path.read_text())
    requests = [request(record) for record in data["trace"]]
    for row in data["sglang"]:
        config = row["config"]
        tree = "unified" if config["impl"].startswith("unified") else config["impl"]
        cache = RadixCache(config["cap"], config["page"], eviction=config["policy"], tree=tree, chunk=config["chunk"])
        scheduler = None
        if config["sched"]:
            scheduler = RadixScheduler(cache, config["sched"], max_prefill_tokens=config["batch"])
        check_seeded(row, requests, cache, scheduler)
    for row in data["vllm"]:
        config = row["config"]
        cache = PagedCache(config["cap"], config["page"])
        scheduler = None
        if config["sched"]:
            scheduler = PagedScheduler(
                cache, config["vpolicy"], max_batched_tokens=config["batch"], max_running=config["seqs"]
            )
        check_seeded(row, requests, cache, scheduler)


def check_seeded(row, requests, cache, scheduler):
    if scheduler is None:
        assert [cache.admit(one).cached_tokens for one in requests] == row["cached"], row["config"]
        return
    cached, order, stats = scheduled(scheduler, requests, row["config"]["window"])
    assert cached == row["cached"], row["config"]
    assert order == row["served"], row["config"]
    assert stats == row["stats"], row["config"]
