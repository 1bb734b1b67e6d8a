"""Exact output of diagnose, advise and traffic stats for reports that hold everything, so that a change of wording is a change that somebody reads."""

from __future__ import annotations

from collections import Counter

from promptlint.advisor.diagnose.misses import Miss
from promptlint.advisor.diagnose.model import Cause, Diagnosis, Divergence, Likely
from promptlint.report import advise, diagnose, traffic
from promptlint.report.advise import Advice, EngineRow, LeverRow, ReasonRow, Reordering, StructuredRow, VerdictRow
from promptlint.traffic.read import Problem
from promptlint.traffic.record import CACHE_READ, CACHE_WRITE, INPUT
from promptlint.traffic.stats import Stats

PROBLEMS = [Problem("log.jsonl", 7, "messages[0]", "a text or a list is expected, not 3")]


def diagnosis() -> Diagnosis:
    return Diagnosis(
        requests=4,
        prompt_tokens=4000,
        cached_tokens=1000,
        starts=1,
        tokenizer="o200k_base",
        divergences=[
            Divergence(2, "r-2", 1, "messages[0].content", 6, 2, 5, "clock-in-prefix", "a time changed", "It is 09:01", "It is 09:02", 995, "app/agent.py::answer::s", "now()", 0, "log.jsonl:2"),
            Divergence(3, "", 2, "tools[1]", 0, 0, 80, "tool-order-differs", "the tools changed", '{"name":"a"}', '{"name":"b"}', 920, observed_cached_tokens=None),
        ],
        causes=[Cause("clock-in-prefix", 1, 995, 0.49875), Cause("tool-order-differs", 1, 920, 0.48)],
        likely=[Likely("short prompts", "most prompts are shorter than the provider caches", "promptlint traffic stats log.jsonl")],
        observed_prompt_tokens=4000,
        observed_cached_tokens=640,
        misses=[Miss(4, "r-4", 1, "lifetime-passed", "last used 900 s before, an entry lives 300 s", 640, 0, 640)],
    )  # fmt: skip


def test_diagnose(golden):
    golden("diagnose/full.txt", diagnose.to_text(diagnosis(), PROBLEMS))
    golden("diagnose/json.json", diagnose.to_json(diagnosis(), PROBLEMS))
    golden("diagnose/redacted.json", diagnose.to_json(diagnosis(), PROBLEMS, redact=True))
    golden("diagnose/shared.md", diagnose.shared_page(diagnosis(), PROBLEMS))


def advice() -> Advice:
    effect = {"hit_rate": 0.71, "hit_rate_gain": 0.5, "requests_per_second": 12.5, "gain": 1.4, "gpus": 2}
    share = {"prefill": 0.4, "decode": 0.5, "queue": 0.1}
    seconds = {"prefill": 0.8, "decode": 1.0, "queue": 0.2}
    return Advice(
        version="0.1.0",
        verdicts=(
            VerdictRow("chat | eu", "Llama-3.1-8B", "vllm", "fix-prompts-first", "fix the prompts", "another order gains more than an engine",
                       (ReasonRow("hit_rate", 0.2123456789, "share of prompt tokens", "simulation"), ReasonRow("open", None, "", "no log")),
                       ("the log shows another rate",), ("says nothing of quality",), "promptlint bench --target A --target B"),
        ),
        levers=(LeverRow("chat | eu", "prompts", "the recommended orders", effect, {**effect, "gpus": None}),),
        engines=(
            EngineRow("chat | eu", "sglang", "lpm", 0.7, 123456, 12.0, (11.0, 14.0), 250.4, float("inf"), share, seconds),
            EngineRow("chat | eu", "vllm", "fcfs", 0.6, 150000, 11.0, (11.0, 11.0), 300.0, 900.0, share, {**seconds, "prefill": 1.1}),
        ),
        reordering=(
            Reordering("app/agent.py::answer::s", ("clock", "rules <b>"), ("rules <b>", "clock"), 0.01, 0.77, 2068.4, 0.16, "unsafe: compare answers",
                       ("clock goes behind rules",), "- clock\n+ rules", "profile typical"),
        ),
        assumptions={"profile": "typical", "replicas": 4, "share": 0.125, "files": ("a", "b")},
        rule=("prompts gain more than 10 points", "else stay"),
        causes=({"cause": "short prompts", "why": "below the minimum", "confirm_with": "promptlint traffic stats"},),
        notes=("2 call sites could not be read",),
        structured=(StructuredRow("app/agent.py::answer::s", "Invoice", 0.4, 0.6, "40 answers of the traffic"),),
    )  # fmt: skip


def test_advise(golden):
    golden("advise/text.txt", advise.to_text(advice()))
    golden("advise/json.json", advise.to_json(advice()))
    golden("advise/record.md", advise.record(advice(), "2026-01-02"))


def test_traffic_stats(golden):
    found = Stats(
        records=5, requests=4, formats=Counter(openai=4, prometheus=1), models=Counter({"gpt-4o": 3, "ünique": 1}), sessions=Counter(a=3, b=1),
        roles=Counter(user=6, system=4), with_tools=1, lengths=[10, 20, 30, 4000], outputs=[5, 6], first=0.0, last=90_000.0, usage_records=3,
        usage=Counter({INPUT: 1000, CACHE_READ: 640, CACHE_WRITE: 12}), counted=Counter(preemptions=2), ttft=[0.25], settings=[{"model": "m", "page_size": 16}],
    )  # fmt: skip
    golden("traffic/stats.txt", traffic.to_text(found, PROBLEMS, 3))
    golden("traffic/stats.json", traffic.to_json(found, PROBLEMS, 3))
