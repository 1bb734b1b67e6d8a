"""Workload descriptions: what they stand for, and clear errors for what cannot be."""

import pytest

from promptlint.advisor.estimate import content_bound, pool_of, pressure, simulate
from promptlint.advisor.workload import best_order, load_workloads, synthesise, warm_up
from promptlint.errors import UserError

GOOD = """
model: Llama-3.1-8B
gpu: H100
current: vllm
output: 20
requests: 60
concurrency: 4
prompt:
  - {block: system, tokens: 300}
  - {block: context, tokens: 200, varies: tenant, distinct: 4}
  - {block: history}
  - {block: question, tokens: 20, varies: request}
turns: 3
"""


def load(tmp_path, text):
    path = tmp_path / "w.yaml"
    path.write_text(text)
    return load_workloads(path)


def test_prompts_share_exactly_what_is_described(tmp_path):
    (workload,) = load(tmp_path, GOOD)
    requests = synthesise(workload)
    assert len(requests) == 60
    assert {request.prompt[: 300 * 4] for request in requests} == {requests[0].prompt[: 300 * 4]}
    assert len({request.prompt[300 * 4 : 500 * 4] for request in requests}) == 4
    sessions = {}
    for request in requests:
        sessions.setdefault(request.session, []).append(request)
    several = [turns for turns in sessions.values() if len(turns) == 3 and turns[0].prompt_tokens == 520]
    assert several
    for first, second, third in several:
        # A turn's prompt begins with the head and ends with a new question; the history holds question and answer of the turns before.
        question = first.prompt[500 * 4 :]
        assert second.prompt[500 * 4 :].startswith(question + first.output)
        assert third.prompt_tokens == 500 + 2 * (20 + 20) + 20
        assert third.prompt.startswith(second.prompt + second.output)


def test_equal_seeds_give_equal_traffic_whatever_the_order(tmp_path):
    (workload,) = load(tmp_path, GOOD)
    assert synthesise(workload) == synthesise(workload)
    turned = synthesise(workload, order=tuple(reversed(workload.prompt)))
    for one, other in zip(synthesise(workload), turned, strict=True):
        assert sorted(one.prompt) == sorted(other.prompt)
        assert one.output == other.output


def test_branches_share_all_but_what_varies_by_request(tmp_path):
    (workload,) = load(
        tmp_path, GOOD.replace("turns: 3", "turns: 1\nbranches: 5").replace("  - {block: history}\n", "")
    )
    requests = synthesise(workload)
    assert {request.prompt[: 500 * 4] for request in requests[:5]} == {requests[0].prompt[: 500 * 4]}
    assert len({request.prompt for request in requests}) == 60


def test_best_order_is_longest_lived_first(tmp_path):
    text = GOOD.replace("  - {block: system, tokens: 300}\n", "").replace(
        "turns: 3", "  - {block: system, tokens: 300}\nturns: 3"
    )
    (workload,) = load(tmp_path, text)
    assert [block.kind for block in workload.prompt] == ["context", "history", "question", "system"]
    assert [block.kind for block in best_order(workload.prompt)] == ["system", "context", "history", "question"]


def test_several_pools_share_what_stands_outside(tmp_path):
    pools = load(tmp_path, GOOD + "pools:\n  - {name: a, gpu: L40S}\n  - {name: b, replicas: 4}\n")
    assert [(pool.name, pool.gpu, pool.replicas, pool.output) for pool in pools] == [
        ("a", "L40S", 1, 20),
        ("b", "H100", 4, 20),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("gpu: H100", "gpu: H100\ngpus: 4"), "gpus: no such field; did you mean gpu"),
        (("output: 20", ""), "output: missing"),
        (("tokens: 300", "tokens: -3"), "tokens -3"),
        (("tokens: 300", "tokens: '300'"), "tokens '300'"),
        (("varies: tenant", "varies: sometimes"), "varies 'sometimes'"),
        (("block: system", "block: preamble"), "block 'preamble'"),
        (("current: vllm", "current: trt"), "current: 'trt'"),
        (("turns: 3", "turns: 1"), "more than one turn"),
        (("turns: 3", "turns: 3\narrivals: -1"), "arrivals"),
        (("turns: 3", "turns: 3\narrivals: .nan"), "finite"),
        (("concurrency: 4", "concurrency: 0"), "concurrency"),
        (("turns: 3", "turns: 3\ndecode_penalty: {sglang: 0.5}"), "never speed decoding up"),
        (("turns: 3", "turns: 3\nmeasured: {trt: 5}"), "measured"),
        (("turns: 3", "turns: 3\nobserved_hit_rate: 1.2"), "between 0 and 1"),
        (("turns: 3", "turns: 3\nengines: [sglang]"), "not among the engines"),
        (("model: Llama-3.1-8B", ""), "model and gpu"),
        (("model:", "model: ["), "not valid YAML"),
        (("model: Llama-3.1-8B", "model: [a]"), "model: list: a word is expected"),
        (("turns: 3", "turns: 3\ngpu: L40S"), "gpu: stands twice"),
        (("distinct: 4", "distinct: 4, distinct: 8"), "distinct: stands twice in the mapping of line 10"),
        (("turns: 3", "turns: 3\nname: {}"), "name: dict: a word is expected"),
        (("distinct: 4", "distinct: 1000000000"), "up to 1,000,000"),
        (("distinct: 4", "distinct: 4, skew: true"), "skew True"),
        (("tokens: 300", "tokens: 99999999999"), "tokens 99999999999"),
        (("turns: 3", "turns: 3\nhost_cache_gb: -1"), "host_cache_gb"),
        (("turns: 3", "turns: 3\nttft_ms: -1"), "ttft_ms"),
        (("turns: 3", "turns: 3\nmeasured: {sglang: .inf, vllm: 2}"), "measured.sglang"),
        (("turns: 3", "turns: 3\nengines: [[sglang]]"), "engines"),
        (("  - {block: history}", "  - {block: history}\n  - {block: history}"), "one history block"),
        (("turns: 3", "turns: 3\npools: [{name: a}, {name: a}]"), "two are called 'a'"),
    ],
)
def test_what_cannot_be_is_refused_by_field(tmp_path, change, message):
    with pytest.raises(UserError, match=message.replace("[", r"\[")):
        load(tmp_path, GOOD.replace(*change))


def test_a_zero_arrival_rate_is_refused(tmp_path):
    with pytest.raises(UserError, match="arrivals: a rate above 0"):
        load(tmp_path, GOOD + "arrivals: 0\n")


def test_a_request_that_no_pool_holds_is_refused(tmp_path):
    (workload,) = load(tmp_path, GOOD.replace("tokens: 300", "tokens: 60000").replace("H100", "RTX 4090"))
    with pytest.raises(UserError, match="does not fit into"):
        pool_of(workload)


def test_a_session_that_outgrows_the_context_is_refused(tmp_path):
    text = GOOD.replace("Llama-3.1-8B", "Llama-2-7B")
    (workload,) = load(tmp_path, text)
    assert workload.longest_tokens == 520 + 2 * (20 + 20) + 20
    assert pool_of(workload).tokens > 0
    (workload,) = load(tmp_path, text.replace("turns: 3", "turns: 100"))
    with pytest.raises(
        UserError, match=r"w.yaml: a request of 4,500 tokens \(prompt, history and answer\) is longer than the 4,096"
    ):
        pool_of(workload)


def test_a_model_larger_than_the_gpu_is_refused(tmp_path):
    (workload,) = load(tmp_path, GOOD.replace("Llama-3.1-8B", "Llama-3.1-70B"))
    with pytest.raises(UserError, match="fits from tensor parallel 4 on"):
        pool_of(workload)


def test_engines_find_what_is_shared(tmp_path):
    (workload,) = load(tmp_path, GOOD)
    pool, requests = pool_of(workload), synthesise(workload)
    bound = content_bound(workload, requests)
    for engine in ("sglang", "vllm"):
        found = simulate(workload, pool, requests, engine)
        assert 0.5 < found.hit_rate <= bound + 0.02
        assert found.refused == 0
        assert sum(found.share.values()) == pytest.approx(1)
        served = requests[warm_up(workload, len(requests)) :]
        assert found.prompt_tokens == sum(request.prompt_tokens for request in served)
    assert 0 < pressure(workload, pool, requests) < 0.5


def test_a_workload_whose_aliases_unfold_without_end_is_refused_with_its_line(tmp_path):
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"laughs.yaml:\d+: aliases unfold to more than"):
        load_workloads(path)
