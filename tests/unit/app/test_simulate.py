"""The pipeline from records to a report."""

import gc
import json

import pytest

from promptlint.app.requests import Requests
from promptlint.app.simulate import Sampler, Setup, no_collector, simulate
from promptlint.caches.request import Request, pack, unpack
from promptlint.caches.workloads import templates_and_users, tree
from promptlint.errors import UserError
from promptlint.report.simulate import text, to_json
from promptlint.traffic.read import Traffic
from promptlint.traffic.readers.base import Options


def traffic(tmp_path, *rows):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return Traffic([path])


def read(tmp_path, *rows, **more):
    requests = Requests(traffic(tmp_path, *rows), **more)
    return list(requests), [(one.line, one.field, one.reason) for one in requests.all_problems()], requests


def test_token_records_become_requests(tmp_path):
    row = {
        "id": 7,
        "tokens": [1, 2],
        "output_tokens": [3],
        "arrival": 2.5,
        "key": "a",
        "priority": 4,
        "max_new_tokens": 9,
    }
    (one,), problems, requests = read(tmp_path, row)
    assert problems == []
    assert one == Request(
        0, pack([1, 2]), pack([3]), namespace="a", timestamp=2.5, priority=4, max_new_tokens=9, session="a",
        labels=(("namespace", "a"),),
    )  # fmt: skip
    assert requests.ids == [7]


def test_an_empty_key_is_kept_apart_from_none_and_a_model_is_part_of_the_key(tmp_path):
    found, _, _ = read(
        tmp_path, {"tokens": [1]}, {"tokens": [1], "key": ""}, {"token_ids": [1], "model": "m", "namespace": "n"}
    )
    assert [one.namespace for one in found] == [None, "", ("m", "n")]


def test_an_answer_of_known_length_is_unlike_everything_else(tmp_path):
    found, _, _ = read(tmp_path, {"tokens": [1], "output_length": 3}, {"tokens": [1], "output_length": 2})
    ids = [list(unpack(one.output)) for one in found]
    assert [len(one) for one in ids] == [3, 2]
    assert not set(ids[0]) & set(ids[1])


def test_block_hashes_become_blocks_or_as_many_tokens(tmp_path):
    row = {"hash_ids": [5, 9], "input_length": 700, "timestamp": 0}
    (blocks,), _, _ = read(tmp_path, row, as_blocks=True)
    assert (len(blocks.blocks), blocks.length, blocks.block_size) == (2, 700, 512)
    (tokens,), _, _ = read(tmp_path, row)
    ids = list(unpack(tokens.prompt))
    assert len(ids) == 700
    assert len(set(ids[:512])) == len(set(ids[512:])) == 1


def test_everything_that_is_refused_names_its_line_and_field(tmp_path):
    found, problems, _ = read(
        tmp_path,
        {"id": 1, "tokens": [1, 2]},
        {"id": 1, "tokens": [1, 2]},
        {"id": 3, "tokens": [1, -2]},
        {"id": 4, "tokens": ["1"]},
        '{"id": 5, "tokens": [1], "arrival": NaN}\n',
        {"id": 6, "tokens": []},
        {"id": 7, "tokens": [1, 2**32]},
        {"id": 8, "tokens": [1], "priority": "high"},
        {"id": 9, "usage": {"prompt_tokens": 5}},
        {"id": 10, "tokens": [4]},
        '{"id": 11, "tokens": [1, 2',
    )
    assert [list(unpack(one.prompt)) for one in found] == [[1, 2], [1, 2], [4]]
    assert [(line, field) for line, field, _ in problems] == [
        (2, "id"), (3, "tokens[1]"), (4, "tokens[0]"), (5, "arrival"), (6, "tokens"), (7, "tokens[1]"),
        (8, "priority"), (9, ""), (11, ""),
    ]  # fmt: skip


def test_arrivals_need_times(tmp_path):
    found, problems, _ = read(tmp_path, {"tokens": [1]}, {"tokens": [1], "arrival": 1}, need_times=True)
    assert len(found) == 1
    assert problems == [(1, "timestamp", "no timestamp, which --pace arrivals needs")]


def test_standard_input_can_be_kept_for_a_second_pass(tmp_path):
    requests = Requests(traffic(tmp_path, {"tokens": [1]}, {"tokens": [2]}), keep=True)
    first = list(requests)
    (tmp_path / "log.jsonl").unlink()
    assert list(requests) == first


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 0}, {"router": "dice"}, {"denominator": "all"}, {"sample": 0.0}, {"capacity": 0}, {"window": 0},
        {"pace": "arrivals"}, {"engine": "block-lru", "schedule": "fcfs"}, {"engine": "block-lru", "replicas": 2},
        {"engine": "openai", "schedule": "lpm"},
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_the_users_turn(wrong):
    with pytest.raises(UserError):
        Setup(**wrong)


def test_nothing_to_replay_is_the_users_turn():
    with pytest.raises(UserError, match="no request"):
        simulate(Setup(), [])
    with pytest.raises(UserError, match="unknown engine"):
        simulate(Setup(engine="nope"), [Request(0, pack([1]))])


def test_the_report_names_everything_that_the_numbers_depend_on():
    result = simulate(Setup(capacity=1_600, page_size=16), tree(200, 4, 60, 4, 20))
    row = to_json(result.report)
    assert list(row)[:20] == [
        "schema", "engine", "engine_version", "unit", "capacity_tokens", "schedule", "driver", "denominator", "requests",
        "prompt_tokens", "cached_tokens", "written_tokens", "hit_rate", "block_hit_rate", "request_hit_rate",
        "evicted_tokens", "bounds", "bottleneck", "cost", "groups",
    ]  # fmt: skip
    assert (row["schema"], row["engine"], row["engine_version"], row["unit"]) == (
        "promptlint.simulate/1",
        "sglang",
        "0.5.23",
        16,
    )
    assert row["prompt_tokens"] == sum(prompt for _, prompt, _ in result.per_request)
    assert row["cached_tokens"] == sum(cached for _, _, cached in result.per_request)
    assert row["hit_rate"] == row["cached_tokens"] / row["prompt_tokens"]
    assert row["bounds"]["content"] >= row["bounds"]["capacity"] >= row["hit_rate"]
    assert json.loads(json.dumps(row)) == row


def scans():
    """A hot prompt, twice at first, and between its later uses enough one-time prompts to push it out of an LRU cache."""
    prompts = [
        [*range(1_000), 10**6 + i] if i % 5 == 0 or i == 1 else range(10**4 * i, 10**4 * i + 700) for i in range(60)
    ]
    return [Request(index, pack(prompt)) for index, prompt in enumerate(prompts)]


@pytest.mark.parametrize(
    ("setup", "requests", "bottleneck"),
    [
        (Setup(), tree(10, 4, 10, 4, 200), "content"),
        (Setup(capacity=2_300), tree(200, 8, 1_000, 16, 40, order="round"), "capacity"),
        (Setup(capacity=3_000), scans(), "policy"),
        (Setup(replicas=8), tree(2_000, 1, 100, 16, 10), "schedule"),
        (Setup(schedule="fcfs", window=16, batch_tokens=100_000), tree(2_000, 1, 100, 16, 10), "schedule"),
    ],
)
def test_the_bottleneck_is_what_a_change_would_gain_most_from(setup, requests, bottleneck):
    assert simulate(setup, requests).report.bottleneck == bottleneck


def test_denominators_and_warm_up():
    requests = [Request(index, pack(range(20)), labels=(("model", "m"),)) for index in range(3)]
    report = simulate(Setup(engine="vllm"), requests).report
    assert (report.hit_rate, report.block_hit_rate) == (32 / 60, 2 / 3)
    report = simulate(Setup(engine="vllm", denominator="full-blocks", warm_up=1), requests).report
    assert (report.requests, report.hit_rate) == (2, 1.0)
    assert report.denominator == "full blocks of the prompts, after the first 1 requests"
    assert report.groups[0].requests == 2


def test_per_request_results_stand_in_file_order_also_under_a_scheduler():
    requests = tree(100, 4, 50, 4, 10)
    result = simulate(Setup(schedule="dfs-weight", window=8, batch_tokens=300), requests)
    assert [name for name, _, _ in result.per_request] == [one.id for one in requests]


def test_replicas_have_their_own_sums():
    report = simulate(Setup(replicas=3, router="consistent-hashing"), tree(100, 4, 50, 4, 10)).report
    assert len(report.replicas) == 3
    assert sum(row.requests for row in report.replicas) == report.requests
    assert sum(row.cached_tokens for row in report.replicas) == report.cached_tokens


def test_the_curve_rises_to_the_unlimited_rate():
    requests = list(templates_and_users(300, 200, templates=5, users=4))
    report = simulate(Setup(engine="vllm", curve=True), requests).report
    rates = [point.hit_rate for point in report.curve]
    assert report.curve[-1].capacity_tokens is None
    assert rates[-1] == report.hit_rate
    assert rates[0] < rates[-2]
    assert rates[-2] == pytest.approx(rates[-1], abs=0.01)


def test_a_sample_keeps_sessions_whole_and_states_its_error():
    requests = [Request(i, pack([i % 200, *range(50)]), session=f"s{i % 200}") for i in range(2_000)]
    kept = list(Sampler(0.3)(requests))
    assert [one.id for one in kept] == [one.id for one in Sampler(0.3)(requests)]
    assert len(kept) == 10 * len({one.session for one in kept})
    report = simulate(Setup(sample=0.3, capacity=4_000), requests).report
    whole = simulate(Setup(capacity=4_000), requests).report
    assert report.capacity_tokens == 4_000
    assert report.sampling.sessions == len({one.session for one in kept})
    assert abs(report.hit_rate - whole.hit_rate) < max(0.02, 4 * report.sampling.error)


def test_a_sample_finds_the_conversations_behind_a_shared_system_prompt():
    """400 conversations of three turns, all behind 500 equal tokens, no session ids."""
    turns = [
        Request(i, pack([*range(500), *range(10_000 * (1 + i % 400), 10_000 * (1 + i % 400) + 100 * (1 + i // 400))]))
        for i in range(1_200)
    ]
    kept = [one.id % 400 for one in Sampler(0.25)(turns)]
    assert 50 < len(set(kept)) < 150
    assert len(kept) == 3 * len(set(kept))


def test_arrivals_are_timed():
    requests = [Request(i, pack(range(100)), pack([1, 2]), timestamp=i * 10.0) for i in range(5)]
    report = simulate(Setup(schedule="fcfs", pace="arrivals"), requests).report
    assert report.cached_tokens == 4 * 99
    assert report.times["ttft_p50_s"] == pytest.approx(1 / 20_000)
    assert report.driver == "paced by arrivals"


def test_block_lru_over_tokens(tmp_path):
    requests = Requests(traffic(tmp_path, *[{"tokens": list(range(40))}] * 2), as_blocks=True, block_size=16)
    report = simulate(Setup(engine="block-lru", curve=True), requests).report
    assert (report.hit_rate, report.block_hit_rate, report.unit) == (0.5, 0.5, 16)
    assert report.curve[-1].hit_rate == 0.5


def test_mixed_block_sizes_are_refused(tmp_path):
    rows = [{"hash_ids": [1], "input_length": 10, "block_size": size} for size in (16, 32)]
    requests = Requests(traffic(tmp_path, *rows), as_blocks=True)
    with pytest.raises(UserError, match="blocks of 16 and of 32"):
        simulate(Setup(engine="block-lru"), requests)


def test_a_provider_is_priced_by_its_terms():
    requests = [Request(i, pack(range(2_000)), timestamp=float(i)) for i in range(2)]
    report = simulate(Setup(engine="openai"), requests).report
    assert report.cached_tokens == 1_920
    assert 0.5 < report.cost["relative_input_cost"] < 1
    assert "bounds" not in text(report)


def test_text_names_engine_version_capacity_and_denominator():
    shown = text(simulate(Setup(capacity=5_000), tree(100, 2, 20, 2, 10)).report)
    assert (
        "sglang 0.5.23 (page 1, eviction lru, tree unified, chunk 0), capacity 5,000 tokens, one request at a time"
        in shown
    )
    assert "(all prompt tokens)" in shown
    assert "bottleneck content" in shown


def test_options_of_the_reader_reach_the_blocks(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"hash_ids": [1, 2], "input_length": 60}) + "\n")
    requests = Requests(Traffic([path], options=Options(block_size=32)), as_blocks=True)
    assert next(iter(requests)).block_size == 32


def test_a_partial_block_without_an_id_is_known_to_nobody_else(tmp_path):
    row = {"hash_ids": [1], "input_length": 700, "output_length": 0}
    found, _, _ = read(tmp_path, row, row, {**row, "output_length": 5}, row)
    result = simulate(Setup(), found)
    assert [cached for _, _, cached in result.per_request] == [0, 512, 512, 512]


@pytest.mark.parametrize("as_blocks", [True, False])
def test_hashed_blocks_and_tokens_in_one_log_share_nothing(tmp_path, as_blocks):
    rows = (
        {"hash_ids": [9, 10], "input_length": 32, "block_size": 16},
        {"tokens": list(range(100, 132))},
        {"tokens": [0] * 16 + [1] * 16},
    )
    found, _, _ = read(tmp_path, *rows, as_blocks=as_blocks)
    assert simulate(Setup("block-lru" if as_blocks else "sglang"), found).report.cached_tokens == 0


def test_lengths_that_no_model_takes_and_negative_limits_are_refused(tmp_path):
    found, problems, _ = read(
        tmp_path,
        {"tokens": [1], "output_length": 3_000_000_000},
        {"hash_ids": [1], "input_length": 3_000_000_000, "block_size": 3_000_000_000},
        {"tokens": [1], "max_new_tokens": -5},
        {"hash_ids": [1], "input_length": 16, "block_size": 16, "kept_hash_ids": {"a": 1}},
        {"tokens": [1], "max_new_tokens": 0},
    )
    assert len(found) == 1
    assert [(line, field) for line, field, _ in problems] == [
        (1, "output_length"), (2, "input_length"), (3, "max_new_tokens"), (4, "kept_hash_ids"),
    ]  # fmt: skip


def test_a_request_without_an_id_is_known_by_its_line(tmp_path):
    _, _, requests = read(tmp_path, {"tokens": [1]}, "nonsense {\n", {"tokens": [2]}, {"id": 9, "tokens": [3]})
    assert requests.ids == [1, 3, 9]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("capacity", [None, 3_000])
def test_bounds_have_the_denominator_of_the_hit_rate(engine, capacity):
    setup = Setup(engine, capacity, page_size=16, denominator="full-blocks")
    row = to_json(simulate(setup, tree(output=4)).report)
    assert row["hit_rate"] == row["block_hit_rate"] <= row["bounds"]["capacity"] <= row["bounds"]["content"]
    whole = to_json(simulate(Setup(engine, capacity, page_size=16), tree(output=4)).report)
    scale = row["hit_rate"] / whole["hit_rate"]
    assert row["bounds"]["content"] == pytest.approx(whole["bounds"]["content"] * scale)


def test_requests_before_the_warm_up_ends_are_in_no_number_of_block_lru(tmp_path):
    rows = [{"hash_ids": [1, 2], "input_length": 1024}] * 4
    found, _, _ = read(tmp_path, *rows, as_blocks=True)
    report = simulate(Setup("block-lru", warm_up=1, curve=True), found).report
    assert report.hit_rate == report.bounds["content"] == report.curve[-1].hit_rate == 1.0
    assert report.denominator == "all prompt tokens, after the first 1 requests"
    report = simulate(Setup("block-lru", denominator="full-blocks"), found).report
    assert report.denominator == "all blocks of the prompts"


def test_what_a_run_made_is_not_walked_by_the_collector_at_its_end():
    walks = []
    gc.unfreeze()  # the language server's tests leave frozen objects, and what somebody froze is left as it is
    gc.collect()
    gc.callbacks.append(lambda phase, _: walks.append(phase))
    try:
        with no_collector():
            assert not gc.isenabled()
            made = [[] for _ in range(50_000)]
        assert gc.isenabled()
        made += [[] for _ in range(50)]
    finally:
        gc.callbacks.pop()
    assert walks == []
    assert gc.get_freeze_count() == 0


def test_an_empty_sample_says_so():
    with pytest.raises(UserError, match="in the sample of 1e-06"):
        simulate(Setup(sample=1e-6), tree())


def test_a_null_field_leaves_its_other_spelling_and_a_key_is_text(tmp_path):
    found, problems, _ = read(
        tmp_path,
        {"token_ids": None, "tokens": [1], "namespace": None, "key": "a"},
        {"tokens": [1], "key": {"tenant": 1}},
        {"tokens": [1], "key": False},
        {"tokens": []},
        {"token_ids": [2**32]},
        {"tokens": [1], "key": 5},
    )
    assert [one.namespace for one in found] == ["a", "5"]
    assert [(line, field) for line, field, _ in problems] == [
        (2, "key"), (3, "key"), (4, "tokens"), (5, "token_ids[0]"),
    ]  # fmt: skip


def test_arrivals_out_of_order_are_named_once(tmp_path):
    rows = [{"tokens": [1], "arrival": time} for time in (1, 5, 2, 5, 3)]
    found, problems, _ = read(tmp_path, *rows, need_times=True)
    assert len(found) == 5
    assert [(line, field) for line, field, _ in problems] == [(3, "timestamp")]
    assert "2 such in all" in problems[0][2]
    assert read(tmp_path, *rows)[1] == []
