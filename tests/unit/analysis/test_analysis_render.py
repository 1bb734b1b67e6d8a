"""Rendered order, tokens, governing volatility, and the contract's hit rate."""

import dataclasses

import pytest
from ir_builder import RULES, Source

from promptlint.analysis import Assumptions, call_sites, cost_of, count_tokens, describe, hit_rate, render, terms_used
from promptlint.ir import BlockKind, Confidence, Growth, Guard, Hole, Media, Parameter, Text, Volatility

LONG = RULES * 40
TYPICAL = Assumptions.default()
N = TYPICAL.profile.requests_per_day


def tokens(text):
    return count_tokens("o200k_base", text)


def test_blocks_follow_the_providers_order_and_messages_keep_theirs():
    s = Source()
    prompt = s.prompt(
        s.system(s.text("A")),
        s.user(s.text("B")),
        s.tools(s.text("C")),
        render_order=(BlockKind.TOOLS, BlockKind.SYSTEM),
    )
    assert [item.node.value for item in render(prompt, TYPICAL).items] == ["C", "A", "B"]


def test_written_order_where_the_providers_is_unknown():
    s = Source()
    prompt = s.prompt(s.user(s.text("B")), s.tools(s.text("C")))
    assert [item.node.value for item in render(prompt, TYPICAL).items] == ["B", "C"]


def test_the_highest_volatility_so_far_governs():
    s = Source()
    prompt = s.prompt(
        s.system(
            s.text("a"), s.hole("user", Volatility.USER), s.text("b"), s.hole("clock", Volatility.DAY), s.text("c")
        )
    )
    governing = [item.governing for item in render(prompt, TYPICAL).items]
    assert governing == [Volatility.STATIC, Volatility.USER, Volatility.USER, Volatility.USER, Volatility.USER]


def test_the_cacheable_prefix_ends_before_the_first_hole_above_process():
    s = Source()
    first, second = "You help.", "Be brief."
    setting = s.hole("setting", Volatility.PROCESS, tokens=7)
    prompt = s.prompt(s.system(s.text(first), setting, s.text(second), s.hole("clock"), s.text(LONG)))
    site = describe(render(prompt, TYPICAL))
    assert site.cacheable_prefix_tokens == tokens(first) + 7 + tokens(second)


def test_hit_rate_by_the_formula():
    s = Source()
    prompt = s.prompt(
        s.system(s.text(LONG), s.hole("user", Volatility.USER, tokens=10), s.text(RULES)),
        s.user(s.hole("request", tokens=50)),
    )
    rendered = render(prompt, TYPICAL)
    users = TYPICAL.profile.users
    expected = tokens(LONG) * (1 - 1 / N) + (10 + tokens(RULES)) * (1 - users / N)
    assert hit_rate(rendered.main(), TYPICAL.profile) == pytest.approx(
        expected / (tokens(LONG) + 10 + tokens(RULES) + 50)
    )


def test_a_request_clock_loses_all_that_lives_longer_behind_it():
    s = Source()
    clock = s.hole("clock", tokens=12)
    prompt = s.prompt(s.system(s.text("Now: "), clock, s.text(LONG)), s.user(s.hole("request", tokens=50)))
    rendered = render(prompt, TYPICAL)
    cost = cost_of(rendered, rendered.items[1], Volatility.REQUEST)
    whole = tokens("Now: ") + 12 + tokens(LONG) + 50
    assert cost.behind == tokens(LONG)
    assert cost.lost == pytest.approx(tokens(LONG) * (1 - 1 / N))
    assert cost.now == pytest.approx(tokens("Now: ") * (1 - 1 / N) / whole)
    assert cost.if_fixed == pytest.approx((tokens("Now: ") + tokens(LONG)) * (1 - 1 / N) / whole)


def test_what_stands_in_for_a_value_is_no_fixed_text():
    s = Source()
    known = s.guard("name", Volatility.USER)
    default = s.choice(known, (s.hole("user", Volatility.USER, tokens=1),), (s.text("a customer of ours"),))
    optional = s.choice(known, (s.text("Be brief."),), ())
    prompt = s.prompt(s.system(s.hole("clock", tokens=12), default, optional, s.text(LONG)))
    rendered = render(prompt, TYPICAL)
    assert cost_of(rendered, rendered.items[0], Volatility.REQUEST).fixed == tokens("Be brief.") + tokens(LONG)


def test_a_date_has_much_behind_it_and_loses_next_to_nothing():
    s = Source()
    prompt = s.prompt(s.system(s.hole("clock", Volatility.DAY), s.text(LONG)))
    rendered = render(prompt, TYPICAL)
    cost = cost_of(rendered, rendered.items[0], Volatility.DAY)
    assert cost.behind == tokens(LONG)
    assert cost.lost < 1


def test_a_history_is_behind_a_counter_but_not_behind_a_date():
    s = Source()
    prompt = s.prompt(s.system(s.hole("counter", Volatility.TURN)), s.history())
    rendered = render(prompt, TYPICAL)
    history = TYPICAL.profile.sizes["history"]
    assert cost_of(rendered, rendered.items[0], Volatility.TURN).behind == history
    assert cost_of(rendered, rendered.items[0], Volatility.DAY).behind == 0


def test_an_append_only_history_counts_the_turns_that_were_sent_before():
    s = Source()
    prompt = s.prompt(s.history())
    rendered = render(prompt, TYPICAL)
    assert hit_rate(rendered.main(), TYPICAL.profile) == pytest.approx(1 - 2 * TYPICAL.profile.sessions / N)


def test_text_behind_a_history_is_not_shared_between_turns():
    s = Source()
    prompt = s.prompt(s.history(), s.user(s.text(LONG)))
    assert render(prompt, TYPICAL).items[-1].governing >= Volatility.STATIC
    rate = hit_rate(render(prompt, TYPICAL).main(), TYPICAL.profile)
    turns = TYPICAL.profile.turns
    history = TYPICAL.profile.sizes["history"]
    expected = history * (1 - 2 * TYPICAL.profile.sessions / N) + tokens(LONG) * (1 - turns / N)
    assert rate == pytest.approx(expected / (history + tokens(LONG)))


def test_text_that_may_be_absent_lives_as_long_as_its_condition():
    s = Source()
    guard = s.guard("question", Volatility.REQUEST)
    prompt = s.prompt(s.system(s.choice(guard, (s.text("extra"),), ()), s.text(LONG)))
    items = render(prompt, TYPICAL).items
    assert isinstance(items[0].node, Guard)
    assert items[1].own is Volatility.REQUEST
    assert items[2].governing is Volatility.REQUEST
    assert items[2].own is Volatility.STATIC


def test_totals_count_the_longest_arm_only():
    s = Source()
    guard = s.guard("mode", Volatility.PROCESS, "setting")
    prompt = s.prompt(s.system(s.choice(guard, (s.text("short"),), (s.text(LONG),)), s.text("end")))
    rendered = render(prompt, TYPICAL)
    assert rendered.prompt_tokens == tokens(LONG) + tokens("end")
    short = rendered.items[1]
    assert [item.node.value for item in rendered.after(short)] == ["end"]


def test_a_loop_over_a_fixed_list_is_fixed_text():
    s = Source()
    over = s.hole("setting", Volatility.STATIC, name="EXAMPLES")
    prompt = s.prompt(s.system(s.repeat(over, s.text(RULES)), s.text(LONG)))
    rendered = render(prompt, TYPICAL)
    assert all(item.own is Volatility.STATIC for item in rendered.items)
    assert rendered.cacheable_prefix_tokens == tokens(RULES) * TYPICAL.profile.repeats + tokens(LONG)


def test_a_loop_over_retrieved_passages_changes_as_a_whole():
    s = Source()
    over = s.hole("context", name="passages")
    prompt = s.prompt(s.system(s.repeat(over, s.text("Passage: "), s.hole("context", name="passage")), s.text(LONG)))
    items = render(prompt, TYPICAL).items
    assert items[1].own is Volatility.REQUEST
    assert items[1].over is over


def test_equal_ids_are_numbered():
    s = Source()
    one = s.prompt(s.user(s.text("a")))
    sites = call_sites((one, dataclasses.replace(one), dataclasses.replace(one)), TYPICAL)
    assert [site.id for site in sites] == [one.id, f"{one.id}#2", f"{one.id}#3"]


def test_the_cache_key_changes_with_the_prefix_and_not_with_what_follows():
    def key(head, tail):
        s = Source()
        return describe(render(s.prompt(s.system(s.text(head), s.hole("clock"), s.text(tail))), TYPICAL)).cache_key

    assert key("a", "x") == key("a", "y")
    assert key("a", "x") != key("b", "x")


def test_media_and_unknown_growth():
    s = Source()
    picture = Media("image", s.span(), Volatility.REQUEST, 85)
    window = s.hole("history", Volatility.TURN, growth=Growth.WINDOW)
    rendered = render(s.prompt(s.user(picture, window)), TYPICAL)
    assert [item.tokens for item in rendered.items] == [85, TYPICAL.profile.sizes["history"]]
    assert not rendered.items[1].append


def test_tokens_are_those_of_the_models_own_encoding():
    s = Source()
    text = "Übergrößenträger " * 20
    qwen = render(s.prompt(s.user(s.text(text)), model="Qwen/Qwen3-8B"), TYPICAL)
    unknown = render(s.prompt(s.user(s.text(text))), TYPICAL)
    assert qwen.encoding == "qwen3"
    assert qwen.prompt_tokens == count_tokens("qwen3", text)
    assert unknown.encoding == "o200k_base"


def test_items_carry_the_confidence_of_what_changes():
    s = Source()
    rendered = render(s.prompt(s.user(s.text("a"), s.hole("unknown", confidence=Confidence.LOW))), TYPICAL)
    assert [item.confidence for item in rendered.items] == [Confidence.HIGH, Confidence.LOW]
    assert [type(item.node) for item in rendered.items] == [Text, Hole]


def test_terms_apply_where_the_model_is_the_providers():
    def rate(model, text, provider="openai"):
        s = Source()
        prompt = s.prompt(s.system(s.text(text)), s.user(s.hole("request", tokens=50)), provider=provider, model=model)
        return describe(render(prompt, TYPICAL)).estimated_hit_rate

    short, long = RULES * 10, RULES * 200
    assert rate("gpt-4o", short) == 0  # below the minimum of 1,024 tokens
    assert rate("my-own-model", short) > 0.5  # an OpenAI client that talks to another server
    floored = tokens(long) // 128 * 128
    assert rate("gpt-4o", long) == pytest.approx(floored * (1 - 1 / N) / (tokens(long) + 50), rel=1e-3)
    assert rate("claude-sonnet-4-5", long, "anthropic") == 0  # nothing is cached without a mark


def test_a_mark_is_where_the_prefix_ends():
    s = Source()
    head, tail = s.system(s.text(RULES * 100)), s.user(s.text(RULES * 100))
    marked = dataclasses.replace(head, breakpoint=head.span)
    prompt = s.prompt(marked, tail, provider="anthropic", model="claude-sonnet-4-5")
    rendered = render(prompt, TYPICAL)
    expected = tokens(RULES * 100) / (2 * tokens(RULES * 100))
    assert hit_rate(rendered.main(), TYPICAL.profile, rendered.terms) == pytest.approx(expected, rel=1e-3)
    assert hit_rate(rendered.main(), TYPICAL.profile, rendered.terms, best_breakpoint=True) == pytest.approx(
        1, rel=1e-3
    )


def test_a_users_prefix_has_often_expired():
    s = Source()
    user = s.hole("user", Volatility.USER, tokens=10)
    block = dataclasses.replace(s.system(user, s.text(RULES * 100)), breakpoint=s.span())
    rendered = render(s.prompt(block, provider="anthropic", model="claude-sonnet-4-5"), TYPICAL)
    assert hit_rate(rendered.main(), TYPICAL.profile, rendered.terms) < 0.1


def test_inside_an_arm_its_condition_has_been_met():
    s = Source()
    guard = s.guard("mode", Volatility.REQUEST)
    clock = s.hole("clock", Volatility.DAY)
    prompt = s.prompt(s.system(s.choice(guard, (clock, s.text(LONG)), (s.text("other"),)), s.text(RULES)))
    rendered = render(prompt, TYPICAL)
    item = next(item for item in rendered.items if item.node == clock)
    assert cost_of(rendered, item, Volatility.DAY).behind == tokens(LONG) + tokens(RULES)
    outside = rendered.items[0]
    assert cost_of(rendered, outside, Volatility.REQUEST).behind == tokens(RULES)


def rate_of(*blocks, provider, model, **more):
    prompt = Source().prompt(*blocks, provider=provider, model=model, **more)
    return describe(render(prompt, TYPICAL)).estimated_hit_rate


def test_a_clock_in_the_last_line_of_a_long_system_message():
    """Where only whole messages are stored it costs everything; where any prefix is reused, nearly nothing."""
    s = Source()
    rules, clock, question = s.text(RULES * 200), s.hole("clock", tokens=12), s.hole("request", tokens=50)
    dated, clean = s.system(rules, clock), s.system(rules)
    without = tokens(RULES * 200) / (tokens(RULES * 200) + 62)
    assert rate_of(dated, s.user(question), provider="openai", model="gpt-5.6") == 0
    assert rate_of(clean, s.user(clock, question), provider="openai", model="gpt-5.6") == pytest.approx(
        without, rel=1e-3
    )
    assert rate_of(dated, s.user(question), provider=None, model=None) == pytest.approx(without, rel=1e-3)
    floored = tokens(RULES * 200) // 128 * 128 / (tokens(RULES * 200) + 62)
    assert rate_of(dated, s.user(question), provider="openai", model="gpt-4o") == pytest.approx(floored, rel=1e-3)


def test_a_stable_head_and_a_changing_tail_in_one_message():
    s = Source()
    one = s.user(s.text(RULES * 200), s.hole("request", tokens=50))
    assert rate_of(one, provider="openai", model="gpt-5.6") == 0
    assert rate_of(one, provider="openai", model="gpt-4o") > 0.9
    assert rate_of(one, provider="deepseek", model="deepseek-chat") > 0.9  # units at fixed intervals


def test_a_growing_conversation_is_found_in_front_of_its_newest_mark():
    s = Source()
    history, question = s.history(), s.user(s.hole("request", tokens=50))
    marked = dataclasses.replace(question, breakpoint=question.span)
    head = s.system(s.text(RULES * 200))
    given = {"provider": "anthropic", "model": "claude-sonnet-4-5"}
    assert rate_of(head, history, question, **given) == 0
    assert rate_of(head, history, marked, **given) > 0.6
    whole = Parameter("cache_control", Text("{}", s.span()), s.span())
    assert rate_of(head, history, question, parameters=(whole,), **given) > 0.6
    # A marker for the whole request moves with it: without a history nothing stands there again.
    assert rate_of(head, question, parameters=(whole,), **given) == 0


def test_the_terms_of_a_gateway_are_those_of_its_model():
    def provider(sink, model):
        s = Source()
        prompt = dataclasses.replace(s.prompt(s.user(s.text("a"))), sink=sink, provider=None, model=model)
        terms = render(prompt, TYPICAL).terms
        return terms and terms.provider

    assert provider("litellm.completion", "anthropic/claude-sonnet-4-5") == "anthropic"
    assert provider("litellm.completion", "gpt-4o") is None
    assert provider("vllm.LLM.generate", "mistralai/Mistral-7B-Instruct") is None


def test_what_an_estimate_rests_on_is_told():
    s = Source()
    site = describe(render(s.prompt(s.user(s.text("a")), provider="openai", model="gpt-5.6"), TYPICAL))
    (told,) = terms_used([site]).values()
    assert told["minimum_tokens"] == 1024
    assert told["lifetime_seconds"] == 1800
    assert "the provider's own" in told["breakpoints"]
    assert told["low_confidence"] == ["lookback"]


def test_beside_a_value_that_only_its_name_tells_of_no_other_such_value_counts_as_behind_it():
    s = Source()
    prompt = s.prompt(
        s.user(
            s.hole("request", Volatility.TURN, tokens=60),
            s.text(RULES),
            s.hole("setting", Volatility.PROCESS, confidence=Confidence.MEDIUM, tokens=600),
            s.hole("setting", Volatility.PROCESS, confidence=Confidence.HIGH, tokens=30),
        )
    )
    rendered = render(prompt, TYPICAL)
    assert cost_of(rendered, rendered.items[0], Volatility.TURN, guessed=True).behind == tokens(RULES) + 30
    assert cost_of(rendered, rendered.items[0], Volatility.TURN).behind == tokens(RULES) + 630


def test_a_change_that_gives_nothing_is_not_said_to_lower_the_hit_rate():
    s = Source()
    prompt = s.prompt(
        s.user(
            s.hole("state", Volatility.TURN, tokens=60),
            s.hole("unknown", Volatility.REQUEST, confidence=Confidence.LOW, tokens=40),
            s.text(RULES),
        )
    )
    rendered = render(prompt, TYPICAL)
    cost = cost_of(rendered, rendered.items[0], Volatility.TURN)
    assert cost.now == cost.if_fixed > 0
