"""Rules on cache markers and routing keys, on prompts in the IR: which provider, which model, how sure."""

import dataclasses

import pytest
from ir_builder import RULES, Source, reading

from promptlint.analysis import Assumptions
from promptlint.catalog.rules import CATEGORIES, load_rules
from promptlint.checks import run
from promptlint.ir import Confidence, Parameter, Text, Volatility

assert "breakpoints" in CATEGORIES
OURS = {name for name, rule in load_rules().items() if rule.category == "breakpoints"}
THOUSAND = RULES * 80  # about 1,040 tokens


def found(prompt, profile="typical"):
    result = run(reading(prompt), load_rules(), Assumptions.default(profile))
    return {finding.rule: finding for finding in result.findings if finding.rule in OURS}


def marked(block, s, ttl=None):
    return dataclasses.replace(block, breakpoint=s.span(), breakpoint_ttl=ttl)


def ask(s, *blocks, provider="anthropic", model="claude-sonnet-4-5", **more):
    question = s.user(s.hole("request", name="question"))
    return s.prompt(*blocks, question, provider=provider, model=model, **more)


@pytest.mark.parametrize(
    ("model", "copies", "missing"),
    [
        ("claude-sonnet-4-5", 1, True),
        ("claude-haiku-4-5", 1, False),  # from 4,096 tokens on
        ("claude-haiku-4-5", 5, True),
        (None, 1, False),  # unknown model: the largest minimum of all
        (None, 5, True),
        ("gpt-4o", 5, False),  # another server behind Anthropic's client: its terms are not known
    ],
)
def test_a_missing_marker_needs_a_prefix_above_the_models_minimum(model, copies, missing):
    s = Source()
    assert ("breakpoint-missing" in found(ask(s, s.system(s.text(THOUSAND * copies)), model=model))) is missing


@pytest.mark.parametrize(
    ("model", "tokens", "flagged"),
    [("claude-haiku-4-5", 1000, True), ("claude-sonnet-4-5", 1000, False), (None, 200, True), (None, 1000, False)],
)
def test_a_marker_below_the_minimum_leaves_room_for_another_tokenizer(model, tokens, flagged):
    s = Source()
    head = marked(s.system(s.text(RULES * (tokens // 13))), s)
    assert ("prefix-below-minimum" in found(ask(s, head, model=model))) is flagged


def test_a_missing_marker_is_doubtful_where_messages_or_tools_were_not_read():
    s = Source()
    prompt = ask(s, s.system(s.text(THOUSAND)), s.history())
    assert found(prompt)["breakpoint-missing"].confidence is Confidence.LOW
    prompt = ask(s, s.tools(s.hole("tools", Volatility.PROCESS, name="tools")), s.system(s.text(THOUSAND)))
    assert found(prompt)["breakpoint-missing"].confidence is Confidence.LOW
    prompt = ask(s, s.system(s.text(THOUSAND)))
    assert found(prompt)["breakpoint-missing"].confidence is Confidence.MEDIUM  # the question may be a list of parts


def test_a_message_that_goes_on_behind_its_stable_head():
    def rules(provider, model, text=THOUSAND):
        s = Source()
        one = s.user(s.text(text), s.hole("request", name="question"))
        return set(found(s.prompt(one, provider=provider, model=model)))

    assert rules("openai", "gpt-5.6") == {"head-and-tail-in-one-message"}
    assert rules("anthropic", "claude-sonnet-4-5") == {"head-and-tail-in-one-message"}
    assert rules("openai", "gpt-4o") == set()
    assert rules("deepseek", "deepseek-chat") == set()
    assert rules("openai", "gpt-5.6", RULES * 40) == set()  # below the minimum anyway


def test_how_many_markers_a_provider_takes():
    def rules(count, provider, model):
        s = Source()
        return set(found(ask(s, *(marked(s.system(s.text(THOUSAND)), s) for _ in range(count)), provider=provider, model=model)))  # fmt: skip

    assert rules(4, "anthropic", "claude-sonnet-4-5") == set()
    assert rules(5, "anthropic", "claude-sonnet-4-5") == {"too-many-breakpoints"}
    assert rules(3, "openai", "gpt-5.6") == set()
    assert rules(4, "openai", "gpt-5.6") == {"too-many-breakpoints"}  # one of four is the provider's own
    assert rules(9, "openai", "gpt-4o") == set()


@pytest.mark.parametrize(
    ("ttls", "flagged"),
    [((None, "1h"), True), (("5m", "1h"), True), (("1h", None), False), (("?", "1h"), False), (("1h", "1h"), False)],
)
def test_the_order_of_lifetimes(ttls, flagged):
    s = Source()
    blocks = [marked(s.system(s.text(THOUSAND)), s, ttl) for ttl in ttls]
    assert ("ttl-order" in found(ask(s, *blocks))) is flagged


def test_only_the_first_of_several_useless_markers_speaks():
    s = Source()
    clock = marked(s.system(s.text(THOUSAND), s.hole("clock")), s)
    again = marked(s.system(s.text(THOUSAND)), s)
    finding = found(ask(s, clock, again))["breakpoint-on-volatile"]
    assert finding.span == clock.breakpoint
    assert finding.hit_rate_now == 0
    assert finding.hit_rate_if_fixed > 0.9


def test_a_routing_key_where_a_prefix_comes_more_often_than_one_machine_takes():
    """OpenAI before GPT-5.6 sends what comes more than 15 times a minute elsewhere; 10,000 requests a day are 7 a minute."""
    s = Source()
    prompt = ask(s, s.system(s.text(THOUSAND * 2)), provider="openai", model="gpt-4o")
    assert "cache-key-missing" not in found(prompt, "typical")
    assert "cache-key-missing" in found(prompt, "high")
    key = Parameter("prompt_cache_key", Text("support", s.span()), s.span())
    assert "cache-key-missing" not in found(dataclasses.replace(prompt, parameters=(key,)), "high")


def test_a_key_that_is_new_each_time_says_where_it_is_made():
    s = Source()
    key = Parameter("prompt_cache_key", s.hole("random", name="uuid4()"), s.span())
    prompt = ask(s, s.system(s.text(THOUSAND)), provider="openai", model="gpt-4o", parameters=(key,))
    finding = found(prompt)["cache-key-per-request"]
    assert finding.span == key.span
    assert finding.tokens_lost > 900
    session = dataclasses.replace(key, value=s.hole("session", Volatility.SESSION, name="session_id"))
    assert found(dataclasses.replace(prompt, parameters=(session,))) == {}


def test_a_line_that_marks_prompts_of_several_lengths_is_worth_it_for_one_of_them():
    s = Source()
    mark = s.span()
    short, long = (dataclasses.replace(s.system(s.text(RULES * copies)), breakpoint=mark) for copies in (5, 80))
    both = [ask(s, short, model=None), dataclasses.replace(ask(s, long, model=None), function="other")]
    rules = load_rules()
    names = {one.rule for one in run(reading(*both), rules, Assumptions.default("typical")).findings}
    assert "prefix-below-minimum" not in names
    assert "prefix-below-minimum" in found(both[0])


def test_a_marked_document_may_be_asked_about_again():
    """A block that is nothing but a document, marked on purpose: that its name says "retrieved" is too little to call the marker useless."""
    s = Source()
    head = marked(s.system(s.text(THOUSAND)), s)
    alone = marked(s.user(s.hole("context", name="doc", volatility=Volatility.REQUEST)), s)
    framed = marked(s.user(s.text("Passages: "), s.hole("context", name="doc", volatility=Volatility.REQUEST)), s)
    assert found(ask(s, head, alone))["breakpoint-on-volatile"].confidence is Confidence.LOW
    assert found(ask(s, head, framed))["breakpoint-on-volatile"].confidence >= Confidence.MEDIUM
