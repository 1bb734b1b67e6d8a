"""Answers, plans, honesty, fairness, goodput, launch commands, facts: each by small examples."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptlint.benching.answers import Answer, read_answer
from promptlint.benching.client import Reply
from promptlint.benching.drive import Run
from promptlint.benching.expected import expect
from promptlint.benching.fairness import compare_facts
from promptlint.benching.honesty import check_answers
from promptlint.benching.launch import Launch, commands
from promptlint.benching.plan import Load, Sampling, Spelling, arrivals, encode, shots
from promptlint.benching.servers import Counters, Facts, _metric_facts, _sglang_arguments, _vllm_config, counters
from promptlint.benching.slo import Bound, goodput, parse_rates, parse_slo
from promptlint.caches.request import Request, common_prefix, pack
from promptlint.caches.workloads import tree
from promptlint.catalog.engines import load_engines
from promptlint.catalog.hardware import resolve_gpu
from promptlint.errors import UserError

# ---- answers


def reply(*events, at=(10.0, 10.1, 10.2, 10.3, 10.4), cut=None):
    data = [
        b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode()) + b"\n\n" for event in events
    ]
    pieces = [(stamp, piece) for stamp, piece in zip(at, data, strict=False)]
    if cut:  # pieces end anywhere within a line
        whole = b"".join(data)
        pieces = [(10.0, whole[:cut]), (10.5, whole[cut:])]
    return Reply(sent=9.0, status=200, pieces=pieces, ended=11.0)


def token(text="w", finish=None, **more):
    return {"model": "m", "choices": [{"text": text, "finish_reason": finish}], **more}


USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}},
}


def test_an_answer_in_figures():
    one = read_answer(reply(token(), token(finish="length"), USAGE, b"[DONE]"), 3, 8.5, 8.0)
    assert one.ok
    assert (one.index, one.due, one.sent, one.first, one.last, one.ended) == (3, 8.5, 1.0, 2.0, pytest.approx(2.1), 3.0)
    assert (one.prompt_tokens, one.cached_tokens, one.output_tokens, one.events) == (7, 4, 2, 2)
    assert (one.ttft, one.tpot) == (1.0, pytest.approx(0.1))
    assert list(one.gaps) == [pytest.approx(0.1, rel=1e-6)]


@given(st.integers(1, 300))
def test_lines_cut_in_two_are_whole_lines(cut):
    one = read_answer(reply(token(), token(finish="length"), USAGE, b"[DONE]", cut=cut), 0, 0, 0)
    assert (one.error, one.events, one.cached_tokens) == ("", 2, 4)


def test_a_server_without_tokenizer_sends_empty_texts():
    """Its last event brings a token as well as the reason of the end; with texts, an empty last one brings none."""
    assert read_answer(reply(token(""), token(""), token("", "length"), b"[DONE]"), 0, 0, 0).events == 3
    assert read_answer(reply(token("a"), token("b"), token("", "length"), b"[DONE]"), 0, 0, 0).events == 2
    assert read_answer(reply(token("a"), token("", "stop"), b"[DONE]"), 0, 0, 0).events == 1


def test_chat_begins_with_an_event_for_the_role():
    def delta(**fields):
        return {"choices": [{"delta": fields, "finish_reason": fields.pop("finish", None)}]}

    found = read_answer(
        reply(
            delta(role="assistant", content=""),
            delta(reasoning_content="hm"),
            delta(content="a"),
            delta(finish="stop"),
            b"[DONE]",
        ),
        0,
        0,
        0,
    )
    assert (found.events, found.first, found.finish, found.error) == (2, 10.1, "stop", "")


@pytest.mark.parametrize(
    "event", [b"{", b"[1]", b"null", b'"x"', b"[" * 100_000, {"error": {"message": "boom"}}, {"error": "boom"}]
)
def test_events_that_are_none(event):
    found = read_answer(reply(token(), event, b"[DONE]"), 0, 0, 0)
    assert found.error
    assert len(found.error) < 300


@pytest.mark.parametrize(
    "event",
    [
        {"choices": None}, {"choices": [3]}, {"choices": [{"delta": None}]}, {"choices": [{"delta": {"content": None}}]}, {"usage": 3},
        {"usage": {"prompt_tokens": "7", "prompt_tokens_details": 3}}, {"usage": {"prompt_tokens": True}}, {"model": 3},
    ],
)  # fmt: skip
def test_odd_events_are_passed_over(event):
    found = read_answer(reply(token(), token(finish="length"), event, b"[DONE]"), 0, 0, 0)
    assert (found.error, found.prompt_tokens) == ("", None)


def test_a_refusal_quotes_the_server():
    one = Reply(status=400, pieces=[(0, b'{"error": {"message": "max_tokens is too large"}}')])
    assert read_answer(one, 0, 0, 0).error == "status 400: max_tokens is too large"
    plain = Reply(status=502, pieces=[(0, b"<html>Bad\n Gateway</html>")])
    assert read_answer(plain, 0, 0, 0).error == "status 502: <html>Bad Gateway</html>"
    moved = Reply(status=307, headers={"location": "/v2"})
    assert read_answer(moved, 0, 0, 0).kind == "status"


def test_a_server_that_has_enough_is_told_from_one_that_fails():
    one = Reply(status=429, headers={"retry-after": "30"}, pieces=[(0, b'{"error": "slow down"}')])
    error = read_answer(one, 0, 0, 0).error
    assert error.startswith("status 429: slow down")
    assert "Retry-After 30" in error
    assert "smaller --concurrency or --rate" in error


@pytest.mark.parametrize("value", ["7", "x" * 900, [7], {}, True, 7.5, pytest.param(10**400, id="huge")])
def test_a_count_that_is_none_is_a_lie(value):
    """Said once, however often the usage is repeated; and nothing is computed with it."""
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": value}}}
    found = read_answer(reply(token(), token(finish="length"), usage, usage, b"[DONE]"), 0, 0, 0)
    assert (found.error, found.prompt_tokens, found.cached_tokens) == ("", 9, None)
    [words] = found.lies
    assert words.startswith("usage gives cached_tokens as ")
    assert len(words) < 80


def test_a_whole_number_with_a_point_is_a_count():
    usage = {"choices": [], "usage": {"prompt_tokens": 9.0, "completion_tokens": None}}
    found = read_answer(reply(token(), token(finish="length"), usage, b"[DONE]"), 0, 0, 0)
    assert (found.prompt_tokens, found.output_tokens, found.lies) == (9, None, [])


def test_a_line_without_end_costs_no_more_than_its_length():
    """Eight times as much in as small pieces: eight times the work, not sixty-four times."""

    def cost(size):
        pieces = [(0.0, b"x" * 4096)] * (size // 4096)
        start = time.process_time()
        assert read_answer(Reply(status=200, pieces=pieces), 0, 0, 0).error
        return time.process_time() - start

    small = min(cost(1 << 21) for _ in range(3))
    assert cost(1 << 24) < 30 * max(small, 0.001)


def test_a_tool_call_may_come_in_more_events_than_tokens():
    call = {"choices": [{"delta": {"tool_calls": [{"index": 0}]}, "finish_reason": None}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    found = read_answer(reply(call, call, call, end, usage, b"[DONE]", at=(1, 2, 3, 4, 5, 6)), 0, 0, 0)
    made = shots([Request(0, pack(range(3)), pack([0, 0]))], Sampling(), Spelling(), [{"messages": []}])
    check_answers(Run([found], 1.0), made, {"m"}, cold=False, fixed_length=False)
    assert (found.events, found.output_tokens, found.lies) == (3, 2, [])


# ---- plans


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 2**32 - 1), max_size=30),
    st.lists(st.integers(0, 2**32 - 1), max_size=30),
    st.integers(0, 50),
)
def test_spelling_keeps_what_prompts_share(left, right, salt):
    spelling = Spelling(1000, 2**30, salt)
    a, b = spelling(pack(left)), spelling(pack(right))
    shared = common_prefix(pack(left), pack(right), 0, 4 * len(right)) // 4
    assert a[:shared] == b[:shared]
    assert a[shared : shared + 1] != b[shared : shared + 1] or not (left[shared:] and right[shared:])
    assert all(1000 <= one < 2**30 for one in a)


def test_hashed_blocks_are_spelled_as_different_tokens():
    """A block's id stands for all its tokens; spelled as one token it would make blocks alike that only share a remainder."""
    ids = Spelling(1000, 30_000)(pack([5] * 512 + [6] * 512))
    assert len(set(ids)) > 900
    blocks = {tuple(Spelling(1000, 30_000)(pack([2**31 + n] * 16))) for n in range(10_000)}
    assert len(blocks) == 10_000


def test_repetitions_and_namespaces_part_at_the_first_token():
    prompt = pack(range(2**31, 2**31 + 64))
    firsts = {Spelling(0, 2**30, salt)(prompt)[0] for salt in range(200)} | {
        Spelling(0, 2**30)(prompt, name)[0] for name in ("a", "b", ("m", "a"))
    }
    assert len(firsts) == 203


def test_spelling_is_even():
    """Every id of the vocabulary is about as frequent: 200 ids, 100,000 tokens."""
    ids = Spelling(1000, 1200)(pack(range(100_000)))
    counts = [ids.count(one) for one in range(1000, 1200)]
    assert 380 < min(counts) <= max(counts) < 620


def test_bodies_differ_in_the_model_alone():
    [shot] = shots([Request(0, pack([1, 2, 3]), pack([9, 9]))], Sampling(), Spelling())
    a, b = (json.loads(encode(shot, name)) for name in ("org/one", 'two"'))
    assert (a.pop("model"), b.pop("model")) == ("org/one", 'two"')
    assert a == b
    assert a["max_tokens"] == 2
    assert len(a["prompt"]) == 3


def test_a_turn_waits_for_the_turn_before_and_branches_do_not():
    head = list(range(20))
    prompts = [head, [*head, 50, 51], [*head, 60, 61], [*head, 50, 51, 70], [9, 9]]
    rows = [Request(index, pack(prompt), session="s") for index, prompt in enumerate(prompts)]
    assert [shot.after for shot in shots(rows, Sampling(), Spelling())] == [None, 0, None, None, None]
    alone = [Request(index, pack(prompt)) for index, prompt in enumerate(prompts)]
    assert {shot.after for shot in shots(alone, Sampling(), Spelling())} == {None}


def test_half_a_surrogate_pair_of_a_log_is_sent_as_something_that_is_text():
    [shot] = shots([Request(0, pack([1]), pack([2]))], Sampling(), Spelling(), [{"prompt": "a\ud800b"}])
    assert json.loads(encode(shot, "m"))["prompt"] == "a?b"


def test_arrivals():
    rows = [Request(index, pack([1]), timestamp=time) for index, time in enumerate((5.0, 7.0, 6.0, 9.0))]
    assert arrivals(Load(concurrency=3), rows, 1) == [0] * 4
    assert arrivals(Load(rate=4, arrivals="constant"), rows, 1) == [0, 0.25, 0.5, 0.75]
    assert arrivals(Load(arrivals="recorded", speed=2), rows, 1) == [0, 1, 1, 2]
    slow, fast = (arrivals(Load(rate=rate), rows * 500, 7) for rate in (1, 10))
    assert slow == pytest.approx([10 * time for time in fast])
    assert slow[-1] / 1999 == pytest.approx(1.0, rel=0.1)
    with pytest.raises(UserError, match="no times"):
        arrivals(Load(arrivals="recorded"), [Request(0, pack([1]))], 1)


# ---- honesty


def lied(*rows, cold=True, prompts=None, models=("m",)):
    made = shots(
        [Request(index, prompt, pack([0, 0])) for index, prompt in enumerate(prompts or [pack(range(50))] * len(rows))],
        Sampling(),
        Spelling(),
    )
    answers = []
    for index, row in enumerate(rows):
        usage = {
            "prompt_tokens": 50,
            "output_tokens": 2,
            "events": 2,
            "cached_tokens": 0,
            "finish": "length",
            "model": "m",
            "sent": index,
            "first": index + 0.5,
        }
        answers.append(Answer(index, **(usage | row)))
    check_answers(Run(answers, 1.0), made, set(models), cold=cold, fixed_length=True)
    return [answer.lies for answer in answers]


def test_honest_answers():
    assert lied({}, {"cached_tokens": 49}, {"cached_tokens": None, "prompt_tokens": None, "output_tokens": None}) == [
        [],
        [],
        [],
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"cached_tokens": 48}, "shares more than 0"),
        ({"cached_tokens": -1}, "-1 cached"),
        ({"cached_tokens": 51}, "51 cached"),
        ({"prompt_tokens": 49}, "50 were sent"),
        ({"output_tokens": 3}, "2 were asked for"),
        ({"output_tokens": 1, "events": 1}, "stopped by length"),
        ({"events": 3}, "3 came"),
        ({"model": "other"}, "model other"),
    ],
)
def test_lies(row, words):
    [found] = lied(row)
    assert any(words in one for one in found), found


def test_a_text_of_no_tokens_is_a_lie():
    made = shots([Request(0, pack(range(9)), pack([0]))], Sampling(), Spelling(), [{"prompt": "nine words"}])
    for said, lies in ((-4, ["usage says -4 prompt tokens"]), (0, ["usage says 0 prompt tokens"]), (7, [])):
        answer = Answer(0, prompt_tokens=said, output_tokens=1, events=1, finish="length")
        check_answers(Run([answer], 1.0), made, set(), cold=False, fixed_length=True)
        assert answer.lies == lies


def test_a_warm_cache_may_know_more_than_this_run_has_sent():
    assert lied({"cached_tokens": 48}, cold=False) == [[]]


def test_a_request_sent_later_may_be_served_earlier():
    """The engine may take the second first: then the first finds it. It cannot find one that was sent after its own first token."""
    assert lied({"cached_tokens": 48, "first": 1.5}, {}) == [[], []]
    assert lied({"cached_tokens": 48, "first": 0.9}, {})[0]


# ---- fairness


def facts(**fields):
    return Facts(
        **{
            "engine": "vllm",
            "model": "m",
            "names": ("m",),
            "context": 100,
            "dtype": "bfloat16",
            "quantization": "none",
            **fields,
        }
    )


def objections(a, b):
    return [(one.refuse, one.words) for one in compare_facts({"A": a, "B": b})]


def test_equal_servers_have_no_objections():
    assert objections(facts(), facts(engine="sglang")) == []
    assert objections(facts(names=("m", "/data/Llama-3-8B/")), facts(names=("hub", "org/llama-3-8b"))) == []


@pytest.mark.parametrize(
    ("field", "value", "refuse"),
    [
        ("names", ("x",), True), ("dtype", "float16", True), ("quantization", "fp8", True), ("kv_dtype", "fp8", True), ("parallel", "tensor 2", True),
        ("context", 200, False), ("sampling", "other", False), ("eager", True, False), ("prefix_caching", False, False),
    ],
)  # fmt: skip
def test_unlike_servers(field, value, refuse):
    base = {"kv_dtype": "bfloat16", "parallel": "tensor 1", "sampling": "own", "eager": False, "prefix_caching": True}
    found = objections(facts(**base), facts(**{**base, field: value}))
    assert found[0][0] is refuse
    assert "differ" in found[0][1]


@pytest.mark.parametrize(
    ("vllm", "sglang", "refused"),
    [
        ("none", "none", None), ("awq_marlin", "awq", None), ("compressed-tensors", "compressed_tensors", None),
        ("none", "fp8", True), ("fp8", "awq", True), ("awq_marlin", "none", False),
    ],
)  # fmt: skip
def test_quantisations(vllm, sglang, refused):
    """SGLang says "none" also of a quantised checkpoint: that is warned of, not refused."""
    found = objections(facts(quantization=vllm), facts(engine="sglang", quantization=sglang))
    assert [refuse for refuse, _ in found] == ([] if refused is None else [refused])


def test_what_is_not_reported_is_said_and_not_taken_for_equal():
    found = objections(facts(), facts(dtype=None, quantization=None))
    assert [refuse for refuse, _ in found] == [False, False]
    assert all("not known" in words and "VLLM_SERVER_DEV_MODE=1" in words for _, words in found)


# ---- goodput


def test_bounds_on_the_command_line():
    assert parse_slo("ttft_p99=500, tpot_mean=50ms") == (Bound("ttft_p99_ms", 500.0), Bound("tpot_mean_ms", 50.0))
    assert parse_rates("8,2,2,4.5") == (2.0, 4.5, 8.0)
    for text in ("", "ttft=5", "ttft_p98=5", "ttft_p99", "ttft_p99=-1", "ttft_p99=nan", "wall_p99=1"):
        with pytest.raises(UserError):
            parse_slo(text)


def test_goodput_ends_at_the_first_rate_that_breaks():
    bounds = parse_slo("ttft_p99=100")
    swept = {rate: {"ttft_p99_ms": ms} for rate, ms in ((1, 50), (2, 90), (4, 400), (8, 80))}
    one = goodput(swept, {}, bounds, load=9, gpus_per_server=2)
    assert (one.kept, one.broken, one.gpus, one.at_least) == (2, 4, 10, False)
    assert "400.0 ms" in one.why
    assert goodput(swept, {2: 3}, bounds, load=9, gpus_per_server=1).kept == 1
    assert "3 requests failed" in goodput(swept, {1: 3}, bounds, load=9, gpus_per_server=1).why
    whole = goodput({rate: swept[rate] for rate in (1, 2)}, {}, bounds, load=4, gpus_per_server=1)
    assert (whole.at_least, whole.gpus) == (True, 2)
    assert goodput({1: {}}, {}, bounds, load=None, gpus_per_server=1).kept is None
    assert goodput({1: {}}, {}, parse_slo("tpot_p99=5"), load=None, gpus_per_server=1).kept == 1  # answers of one token


# ---- facts, expectations, commands


def test_counters_add_labels_and_tell_a_restart():
    before = counters(
        'vllm:prefix_cache_queries_total{engine="0"} 10\nvllm:prefix_cache_queries_total{engine="1"} 5\nvllm:prefix_cache_hits_total 3.0\nvllm:broken x\n'
    )
    after = counters(
        'vllm:prefix_cache_queries_total{engine="0"} 30\nvllm:prefix_cache_queries_total{engine="1"} 5\nvllm:prefix_cache_hits_total 7.0\n'
    )
    assert after.since(before) == {"queried_tokens": 20, "cached_tokens": 4}
    assert before.since(after) == {}
    assert after.since(Counters()) == {}


@pytest.mark.parametrize(
    "page",
    [
        "sglang:max_total_num_tokens NaN", "sglang:max_total_num_tokens +Inf", "sglang:max_total_num_tokens -3", "sglang:max_total_num_tokens 1e300",
        'vllm:cache_config_info{block_size="\u00b2",num_gpu_blocks="\u00b3"} 1', f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{"9" * 5000}"}} 1',
    ],
)  # fmt: skip
def test_a_metrics_page_may_say_anything(page):
    found = Facts()
    _metric_facts(found, page + "\n")
    assert (found.unit, found.capacity_tokens, found.metrics) == (None, None, True)


def test_counters_that_are_no_numbers_are_passed_over():
    before, after = (
        counters(f"vllm:prompt_tokens_total {value}\nvllm:num_preemptions NaN\n") for value in ("Inf", "Inf")
    )
    assert after.since(before) == {}


def test_a_pool_that_cannot_be_is_not_reported():
    found = Facts()
    _sglang_arguments(found, {"max_total_num_tokens": 10**400, "page_size": 10**30})
    assert (found.capacity_tokens, found.unit) == (None, 1)


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "model_path",
                "version",
                "dtype",
                "quantization",
                "page_size",
                "tp_size",
                "max_total_num_tokens",
                "schedule_policy",
                "kv_cache_dtype",
                "disable_radix_cache",
                "enable_cache_report",
                "sampling_defaults",
                "preferred_sampling_params",
                "disable_cuda_graph",
                "context_length",
                "model_config",
                "cache_config",
                "scheduler_config",
                "parallel_config",
            ]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda x: st.lists(x, max_size=2) | st.dictionaries(st.text(max_size=4), x, max_size=2),
        ),
    )
)
def test_what_servers_say_of_themselves_may_be_anything(info):
    for read in (_vllm_config, _sglang_arguments):
        found = Facts(names=("m",))
        read(found, info)
        assert compare_facts({"A": found, "B": facts()}) is not None
        json.dumps(found.to_json())


def test_expectations_follow_what_the_server_reports():
    rows = tree(100, 4, 40, 8, 20)
    paged = expect(Facts(engine="vllm", unit=32, capacity_tokens=None), rows, 1)
    assert paged.exact
    assert all(cached % 32 == 0 for cached in paged.cached_tokens)
    assert "not reported" in paged.model
    tree_ = expect(Facts(engine="sglang", unit=1, capacity_tokens=100_000), rows, 1)
    assert sum(tree_.cached_tokens) > sum(paged.cached_tokens)
    assert sum(expect(Facts(engine="sglang", capacity_tokens=150, unit=1), rows, 1).cached_tokens) < sum(
        tree_.cached_tokens
    )
    assert not expect(Facts(engine="sglang", unit=1), rows, 8).exact
    assert sum(expect(Facts(engine="vllm", prefix_caching=False), rows, 1).cached_tokens) == 0
    other = expect(Facts(engine="unknown"), rows, 1)
    assert not other.exact
    assert "not known" in other.model


def test_launch_commands_follow_the_gpu():
    engines = [load_engines()["sglang"]]
    text = commands(Launch("org/model", resolve_gpu("RTX 5090"), 2, context=8192, kv_dtype="fp8"), engines)
    vllm, sglang = (line for line in text.splitlines() if "--port" in line)
    assert "--tensor-parallel-size 2" in vllm
    assert "--max-model-len 8192" in vllm
    assert "--tp-size 2" in sglang
    assert "--context-length 8192" in sglang
    assert sglang.endswith("--disable-cuda-graph")
    assert vllm.count("--kv-cache-dtype fp8_e4m3") == sglang.count("--kv-cache-dtype fp8_e4m3") == 1
    assert "--disable-cuda-graph" not in commands(Launch("org/model", resolve_gpu("H100")), engines)
    assert "'a b; rm'" in commands(Launch("a b; rm"), engines)
    assert (
        text.count("--host 127.0.0.1 ") == 2
    )  # vLLM's own default is every interface, and development mode has no key
