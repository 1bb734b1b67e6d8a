"""The pages: well-formed, closed to the network, equal to the JSON report, safe with any text, small."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from desk_project import promptlint
from html_reader import assert_numbers_equal, read, text
from hypothesis import given, settings
from hypothesis import strategies as st
from report_sample import everything, finding, report

from promptlint.advisor.diagnose.misses import Miss
from promptlint.advisor.diagnose.model import Cause, Diagnosis, Divergence, Likely
from promptlint.caches.shares import Branch
from promptlint.report import advise, diagnose, model, simulate
from promptlint.report.advise import Advice, EngineRow, LeverRow, ReasonRow, Reordering, StructuredRow, VerdictRow
from promptlint.report.escape import printable
from promptlint.report.html import html as check_page
from promptlint.report.html import markup
from promptlint.report.html.advise import advise as advise_page
from promptlint.report.html.diagnose import diagnose as diagnose_page
from promptlint.report.html.simulate import simulate as simulate_page
from promptlint.report.model import BlockItem, CallSiteItem
from promptlint.report.simulate import CurvePoint, GroupRow, ReplicaRow, Sampling, SimulateReport
from promptlint.traffic.read import Problem

HOSTILE = (
    "</script><script>alert(1)</script>", "javascript:alert(1)", "\u202eevil\u202c", "\u2066x\u2069", "\x00", "\ud800", "\ufffe", "\x1b[31m",
    "<!--", "-->", "]]>", "</style><style>*{display:none}</style>", "\"onload=alert(1) x='", "&lt;b&gt;", "{{7*7}}", "</title>", "<svg/onload=alert(1)>",
    "\u2028", "\r\n", "\U000e0041", "data:text/html,x", "a" * 3000,
)  # fmt: skip
TEXT = st.one_of(
    st.text(max_size=20), st.sampled_from(HOSTILE), st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join)
)
PAGE_LIMIT = 3_000_000  # bytes


def checked(word: str = "x") -> model.CheckReport:
    """A check report that shows a text wherever it can."""
    whole = everything()
    site = whole.call_sites[0]
    block = replace(site.blocks[0], name=word, path=word)
    unread = replace(site.unresolved[0], expression=word, path=word, next=word)
    sites = (
        replace(site, id=f"{site.id}{word}", model=word, blocks=(block, *site.blocks[1:]), unresolved=(unread,)),
        whole.call_sites[1],
    )
    found = finding(
        message=word, source=word, help=word, hint=word, path=word or "p", call_site=f"{site.id}{word}", expression=word
    )
    return replace(whole, findings=(found, *whole.findings), call_sites=sites)


def simulated(word: str = "x") -> SimulateReport:
    return SimulateReport(
        engine="sglang", engine_version="0.5.23", unit=16, capacity_tokens=4000, schedule="lpm", driver="closed loop of 64", denominator="all prompt tokens",
        requests=3, prompt_tokens=1000, cached_tokens=615, written_tokens=385, hit_rate=0.615, block_hit_rate=0.6, request_hit_rate=2 / 3, evicted_tokens=12,
        bounds={"content": 0.7, "capacity": 0.65, "depth_first": None}, bottleneck="schedule", cost={"relative_input_cost": 0.45, "input_dollars": 1.2345},
        groups=(GroupRow("model", word, 2, 600, 400, 2 / 3), GroupRow("model", "other", 1, 400, 215, 0.5375)),
        replicas=(ReplicaRow(0, 2, 600, 400, 2 / 3), ReplicaRow(1, 1, 400, 215, 0.5375)),
        curve=(CurvePoint(500, 0.1, 0.1), CurvePoint(5000, 0.61, 0.6), CurvePoint(None, 0.7, 0.68)), settings={"page": 16, "note": word},
        stats={"batches": 3}, times={"ttft_p50_s": 0.25}, sampling=Sampling(0.5, 7, 0.0123), refused=1,
        observed={"requests": 2, "prompt_tokens": 900, "cached_tokens": 300, "hit_rate": 1 / 3, "expected_hit_rate": 0.6},
        problems=({"file": word, "line": 3, "field": word, "reason": word},),
    )  # fmt: skip


def tree(word: str = "x") -> Branch:
    leaf = Branch(word, (("call_site", word),), 300, 40, 1, 340, 40, 0)
    rest = Branch("", (), 300, 0, 2, 660, 60, 15, merged=3)
    return Branch("all requests", (), 0, 0, 3, 1000, 0, 0, (Branch(word, (), 0, 300, 3, 1000, 900, 600, (leaf, rest)),))


def diagnosed(word: str = "x") -> Diagnosis:
    return Diagnosis(
        requests=4, prompt_tokens=4000, cached_tokens=1000, starts=1, tokenizer="o200k_base",
        divergences=[Divergence(2, word, 1, word, 6, 2, 5, "clock-in-prefix", word, f"{word} 09:01", f"{word} 09:02", 995, word, word, 0, "log.jsonl:2")],
        causes=[Cause("clock-in-prefix", 1, 995, 0.49875)], likely=[Likely(word, word, word)], observed_prompt_tokens=4000, observed_cached_tokens=640,
        misses=[Miss(4, word, 1, "lifetime-passed", word, 640, 0, 640)],
    )  # fmt: skip


def advised(word: str = "x") -> Advice:
    effect = {"hit_rate": 0.71, "hit_rate_gain": 0.5, "requests_per_second": 12.5, "gain": 1.4, "gpus": 2}
    share = {"prefill": 0.4, "decode": 0.5, "queue": 0.1}
    verdict = VerdictRow(word, word, "vllm", "fix-prompts-first", "fix the prompts", word, (ReasonRow("hit_rate", 0.2123456789, word, word), ReasonRow("open", None, "", "no log")),
                         (word,), (word,), word)  # fmt: skip
    engines = (
        EngineRow(word, "sglang", "lpm", 0.7, 123456, 12.0, (11.0, 14.0), 250.4, float("inf"), share, {}),
        EngineRow(word, "vllm", "measured", None, None, 11.0, (11.0, 11.0), None, None, {}, {}),
    )
    order = Reordering(
        word, ("clock", word), (word, "clock"), 0.01, 0.77, 2068.4, 0.16, word, (word,), f"- {word}\n+ {word}", word
    )
    return Advice(
        "0.1.0", (verdict, replace(verdict, pool=f"{word}2")), (LeverRow(word, "prompts", word, effect, {**effect, "gpus": None}),), engines, (order,),
        {"profile": word, "files": ("a", word)}, ("rule",), ({"cause": word, "why": word, "confirm_with": word},), (word,), (StructuredRow(word, word, 0.4, 0.6, word),),
    )  # fmt: skip


PROBLEMS = [Problem("log.jsonl", 7, "a text is expected, not 3", "messages[0]")]


def pages(word: str = "x") -> dict[str, tuple[str, dict]]:
    """Each page beside the JSON report of the same run."""
    return {
        "check": (check_page(checked(word)), json.loads(json.dumps(model.to_json(checked(word))))),
        "simulate": (simulate_page(simulated(word), tree(word)), json.loads(simulate.json(simulated(word)))),
        "diagnose": (diagnose_page(diagnosed(word), PROBLEMS), json.loads(diagnose.to_json(diagnosed(word), PROBLEMS))),
        "advise": (advise_page(advised(word)), json.loads(advise.to_json(advised(word)))),
    }


@pytest.mark.parametrize("command", ["check", "simulate", "diagnose", "advise"])
def test_every_number_is_that_of_the_json_report(command):
    page, data = pages()[command]
    assert assert_numbers_equal(read(page), data) > 8


@pytest.mark.parametrize("command", ["check", "simulate", "diagnose", "advise"])
def test_the_page(command, golden):
    page = pages()[command][0]
    whole = re.sub(r"<style>.*?</style>", "<style/>", page, flags=re.DOTALL)
    golden(f"html/{command}.html", re.sub(r"sha256-[A-Za-z0-9+/=]+&", "sha256-STYLE&", whole))


@settings(max_examples=20, deadline=None)
@given(TEXT)
def test_any_text_stays_text(word):
    for command, (page, data) in pages(word).items():
        root = read(page)
        assert_numbers_equal(root, data)
        assert not {unicodedata.category(char) for char in set(page) - {"\n"}} & {"Cc", "Cf", "Cs", "Zl", "Zp"}, command


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_text_is_shown_as_it_is(word):
    seen = printable(word).replace("\ufffe", "\\ufffe")
    for command, (page, _) in pages(word).items():
        assert seen in text(read(page)), command


def test_redacted_pages_hold_no_prompt_text():
    secret = "the customer's name is Ada"
    found = diagnosed()
    found.divergences[0] = replace(
        found.divergences[0], was=secret, now=secret + "!", path="tools", cause=f"{secret} changed"
    )
    assert secret in text(read(diagnose_page(found, PROBLEMS)))
    hidden = diagnose_page(found, PROBLEMS, redact=True)
    assert "Ada" not in hidden
    assert f"[{len(secret)} characters, " in text(read(hidden))


def test_what_differs_is_marked_between_what_is_shared():
    found = diagnosed()
    found.divergences[0] = replace(found.divergences[0], was="It is 09:01 now", now="It is 09:27 now")
    marks = [text(mark) for mark in read(diagnose_page(found)).iter("mark")]
    assert marks == ["01", "27"]


@pytest.mark.parametrize(
    ("was", "now", "marks"),
    [("aa", "aaa", ["a"]), ("", "new", ["new"]), ("same", "same", []), ("ab", "cb", ["a", "c"])],
)
def test_marks_of_texts_of_different_length(was, now, marks):
    found = diagnosed()
    found.divergences[0] = replace(found.divergences[0], was=was, now=now)
    assert [text(mark) for mark in read(diagnose_page(found)).iter("mark")] == marks


@pytest.mark.parametrize("ahead", ["", "\t", "x = 1; ", "名前 = ", "é" * 200, "m" * 400, "名" * 90])
def test_the_place_is_marked_in_its_line(ahead):
    """Also behind wide letters, and in a long line of which the beginning is left out."""
    found = finding(source=f"{ahead}datetime.now() + rest", column=len(ahead) + 1, end_column=len(ahead) + 15)
    code = next(read(check_page(report(found))).iter("pre"))
    assert [text(mark) for mark in code.iter("mark")] == ["datetime.now()"]
    assert text(code).strip().endswith("datetime.now() + rest")


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_letters_on_coloured_boxes_can_be_read():
    """A contrast of 4.5 or more, which WCAG asks of small text."""
    style = Path(markup.__file__).with_name("style.css").read_text("utf-8")
    fills = dict(re.findall(r"\.((?:v-|h)\w+) { fill: (#[0-9a-f]{6}); }", style))
    letters = re.search(r"^text\.on { fill: (#\w{6}); }", style, re.MULTILINE).group(1)
    light = re.search(r"^(text\.on\.v-static.*) { fill: (#\w{6}); }", style, re.MULTILINE)
    bright = set(re.findall(r"\.on\.([\w-]+)", light.group(1)))
    assert len(fills) == 20
    for name, fill in fills.items():
        pair = sorted((luminance(fill), luminance(light.group(2) if name in bright else letters)))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, name


def test_the_bar_of_a_prompt():
    blocks = (
        BlockItem("system", "system", "static", "fixed", 600, 600, "RULES", "a.py", 1),
        BlockItem("question", "user", "request", "fixed", 200, 0, "", "a.py", 2),
    )
    site = CallSiteItem("a.py::f::s", "a.py", 3, "s", None, None, False, blocks, 800, 600, 0.5, "sha256:0", 1.0, ())
    root = read(check_page(report(call_sites=(site,))))
    bar = next(svg for svg in root.iter("svg") if svg.attrib.get("class") == "bar")
    boxes = [
        (box.attrib["x"], box.attrib["width"], box.find("rect").attrib["class"])
        for box in bar.iter("svg")
        if box is not bar
    ]
    assert boxes == [("0%", "75%", "block v-static"), ("75%", "25%", "block v-request")]
    mark = next(line for line in bar.iter("line"))
    assert mark.attrib["x1"] == "75%"
    assert bar.attrib["aria-label"] == "a.py::f::s: 800 tokens in 2 blocks; the cacheable prefix ends after 600"


def test_a_block_without_tokens_and_a_prompt_without_any():
    empty = BlockItem("history", None, "session", "append", 0, 0, "", "a.py", 1)
    site = CallSiteItem("a.py::f::s", "a.py", 3, "s", None, None, False, (empty,), 0, 0, None, "sha256:0", 1.0, ())
    assert "No block of this prompt could be measured" in text(read(check_page(report(call_sites=(site,)))))


def test_the_icicle_nests():
    root = read(simulate_page(simulated(), tree("run")))
    icicle = next(svg for svg in root.iter("svg") if svg.attrib.get("class") == "icicle")
    boxes = [
        (float(box.attrib["x"][:-1]), int(box.attrib["y"]), float(box.attrib["width"][:-1]))
        for box in icicle.iter("svg")
        if box is not icicle
    ]
    assert boxes == [(0.0, 0, 100.0), (0.0, 40, 34.0), (34.0, 40, 66.0)]
    assert [link.attrib["aria-label"] for link in icicle.iter("a")] == [
        "1 run: 300 tokens × 3 requests, 67 % hits",
        "1.1 run: run: 40 tokens × 1 request, 0 % hits",
        "1.2 3 other branches, each too narrow to be shown: 60 tokens of 2 requests, 25 % hits",
    ]
    assert "3 of 5 branches are too narrow or too deep to be drawn" in text(root)


@pytest.mark.parametrize(
    "points",
    [
        (CurvePoint(None, 0.5, 0.5),),
        (CurvePoint(100, 0.0, 0.0), CurvePoint(None, 0.0, 0.0)),
        (CurvePoint(1, 1.0, 1.0), CurvePoint(1 << 40, 1.0, 1.0)),
    ],
)
def test_curves_of_any_shape(points):
    page = simulate_page(replace(simulated(), curve=points))
    assert_numbers_equal(read(page), json.loads(simulate.json(replace(simulated(), curve=points))))


def test_a_hundred_thousand_divergences_are_summed_up():
    found = diagnosed()
    found.divergences = [
        Divergence(n + 2, f"request-{n:07}", n + 1, f"messages[{n % 40}].content", n % 97, 3, 9, "clock-in-prefix", "a clock value", "It is 09:01", "It is 09:02", 1000 + n % 7, f"app.py::f{n % 90}::s")
        for n in range(100_000)
    ]  # fmt: skip
    found.misses = [Miss(n + 2, "", 1, "lifetime-passed", "last used 900 s before", 640, 0, n) for n in range(100_000)]
    page = diagnose_page(found)
    assert len(page.encode()) < PAGE_LIMIT
    words = text(read(page))
    assert "The 60 dearest of 100,000" in words
    assert "99,700 requests more in the JSON report" in words


def test_thousands_of_call_sites_and_findings():
    site = everything().call_sites[0]
    sites = tuple(
        replace(site, id=f"app/module_{n}.py::Handler.answer::openai.chat.completions.create") for n in range(3_000)
    )
    findings = tuple(finding(call_site=sites[n].id, line=n + 1) for n in range(1_000))
    page = check_page(report(*findings, call_sites=sites))
    assert len(page.encode()) < PAGE_LIMIT
    words = text(read(page))
    assert "750 findings that cost less stand in the JSON report" in words
    assert "750 call sites more in the JSON report" in words


def test_where_every_command_offers_it(tmp_path):
    for command in ("check", "simulate", "diagnose", "advise"):
        assert "html" in promptlint(command, "--help", cwd=tmp_path).stdout
