"""What each rule says of prompts in the IR, the look-alikes included."""

from dataclasses import replace

import pytest
from ir_builder import RULES, Source, reading

from promptlint.analysis import Assumptions
from promptlint.catalog.rules import load_rules
from promptlint.checks import run
from promptlint.ir import (
    Block,
    BlockChoice,
    BlockKind,
    Confidence,
    Growth,
    HistoryEdit,
    Hole,
    Origin,
    Step,
    Text,
    Volatility,
)
from promptlint.source import Span

LONG = RULES * 40  # about 500 tokens
SOME = RULES * 4  # about 50
MEDIUM = RULES * 10  # about 120
TYPICAL = Assumptions.default()


def findings(*prompts, **more):
    found = run(reading(*prompts, **more), load_rules(), TYPICAL).findings
    return [
        finding for finding in found if finding.rule != "unstable-token-boundary"
    ]  # all texts here end with a space


def names(*prompts, **more):
    return sorted(finding.rule for finding in findings(*prompts, **more))


@pytest.mark.parametrize(
    ("kind", "volatility", "rule"),
    [
        ("clock", Volatility.REQUEST, "clock-in-prefix"),
        ("clock", Volatility.DAY, "clock-in-prefix"),
        ("random", Volatility.REQUEST, "random-in-prefix"),
        ("random", Volatility.PROCESS, "random-in-prefix"),
        ("counter", Volatility.TURN, "counter-in-prefix"),
        ("host", Volatility.TURN, "host-state-in-prefix"),
        ("host", Volatility.PROCESS, "host-state-in-prefix"),
        ("user", Volatility.USER, "user-data-before-shared"),
        ("tenant", Volatility.TENANT, "user-data-before-shared"),
        ("session", Volatility.SESSION, "user-data-before-shared"),
        ("context", Volatility.REQUEST, "context-before-static"),
        ("document", Volatility.DOCUMENT, "context-before-static"),
        ("request", Volatility.REQUEST, "request-data-before-static"),
        ("state", Volatility.TURN, "request-data-before-static"),
        ("tools", Volatility.REQUEST, "tools-built-per-request"),
        ("unordered", Volatility.PROCESS, "unordered-iteration"),
        ("unordered", Volatility.REQUEST, "unordered-iteration"),
        ("listing", Volatility.PROCESS, "unsorted-listing"),
        ("json", Volatility.PROCESS, "unsorted-json"),
        ("shuffle", Volatility.REQUEST, "random-order"),
    ],
)
def test_each_source_has_its_rule(kind, volatility, rule):
    s = Source()
    assert names(s.prompt(s.user(s.text("Hello. "), s.hole(kind, volatility), s.text(LONG)))) == [rule]


@pytest.mark.parametrize("kind", ["setting", "tools", "unknown", "request", "user"])
def test_values_fixed_at_start_up_are_what_a_cache_wants(kind):
    s = Source()
    assert names(s.prompt(s.user(s.hole(kind, Volatility.PROCESS), s.text(LONG)))) == []


@pytest.mark.parametrize("kind", ["clock", "random", "request", "context", "user", "counter"])
def test_nothing_to_say_about_values_behind_everything(kind):
    s = Source()
    assert names(s.prompt(s.user(s.text(LONG), s.hole(kind)))) == []


def test_short_labels_and_other_values_behind_are_no_loss():
    s = Source()
    prompt = s.prompt(
        s.user(
            s.text(LONG),
            s.text("Question: "),
            s.hole("request"),
            s.text("\nText: "),
            s.hole("context"),
            s.text("\nAnswer:"),
        )
    )
    assert names(prompt) == []


@pytest.mark.parametrize(
    ("between", "rules"),
    [
        ("\n</EARLIER MESSAGES OF THE SAME CONVERSATION>\n\n<THE NEWEST MESSAGE OF THE USER>\n" * 4, []),
        ("\n\n## What the page that is to be extended says of it today\n\n---\n" * 4, []),
        ("\n</EARLIER MESSAGES>\nUse what stands above to answer the question of the user.\n<MESSAGE>\n" * 4, ["request-data-before-static"]),
    ],
)  # fmt: skip
def test_tags_and_headings_go_where_their_value_goes(between, rules):
    s = Source()
    prompt = s.prompt(
        s.user(s.text(LONG), s.hole("request"), s.text(between), s.hole("context"), s.text("\n</MESSAGE>\n"))
    )
    assert names(prompt) == rules


@pytest.mark.parametrize(("confidence", "told"), [(Confidence.HIGH, True), (Confidence.MEDIUM, False)])
def test_values_that_only_a_name_calls_longer_lived_are_not_told_of(confidence, told):
    s = Source()
    value = replace(s.hole("user", Volatility.USER, tokens=100), confidence=confidence)
    [found] = findings(s.prompt(s.user(s.hole("clock", Volatility.REQUEST), s.text(LONG), value)))
    assert ("of values that change less often" in found.message) is told


def test_a_few_tokens_of_values_are_not_told_of_beside_much_fixed_text():
    s = Source()
    [found] = findings(
        s.prompt(s.user(s.hole("clock", Volatility.REQUEST), s.text(LONG), s.hole("user", Volatility.USER, tokens=20)))
    )
    assert "of values that change less often" not in found.message


def test_a_date_as_the_last_line_of_the_system_text_is_fine():
    s = Source()
    prompt = s.prompt(s.system(s.text(LONG), s.hole("clock", Volatility.DAY)), s.history(), s.user(s.hole("request")))
    assert names(prompt) == []


def test_a_time_as_the_last_line_of_the_system_text_costs_the_conversation():
    s = Source()
    prompt = s.prompt(s.system(s.text(LONG), s.hole("clock", Volatility.REQUEST)), s.history())
    [found] = findings(prompt)
    assert found.rule == "clock-in-prefix"
    assert found.tokens_behind == TYPICAL.profile.sizes["history"]


def test_a_date_ahead_of_fixed_text_is_low_and_says_what_it_costs():
    s = Source()
    [found] = findings(s.prompt(s.system(s.hole("clock", Volatility.DAY), s.text(LONG))))
    assert found.severity == "low"
    assert "one miss a day per prefix" in found.message


@pytest.mark.parametrize(("text", "severity"), [(LONG, "high"), (MEDIUM, "medium"), (SOME, "low")])
def test_severity_follows_the_tokens_lost(text, severity):
    s = Source()
    [found] = findings(s.prompt(s.user(s.hole("request"), s.text(text))))
    assert found.severity == severity


def test_an_import_time_clock_is_the_import_time_rule_and_low():
    s = Source()
    [found] = findings(s.prompt(s.system(s.hole("clock", Volatility.PROCESS, at_import=True), s.text(LONG))))
    assert (found.rule, found.severity) == ("import-time-value-in-prefix", "low")


def test_two_sources_in_one_expression_are_two_faults():
    s = Source()
    span = s.span()
    origins = tuple(
        Origin(kind, volatility, Confidence.HIGH, kind, span)
        for kind, volatility in (("clock", Volatility.REQUEST), ("user", Volatility.USER))
    )
    hole = Hole("header(user)", span, Volatility.REQUEST, Confidence.HIGH, origins)
    assert names(s.prompt(s.system(hole, s.text(LONG)))) == ["clock-in-prefix", "user-data-before-shared"]


def test_a_name_adds_nothing_to_a_known_source():
    s = Source()
    span = s.span()
    origins = (
        Origin("clock", Volatility.REQUEST, Confidence.HIGH, "now()", span),
        Origin("request", Volatility.REQUEST, Confidence.MEDIUM, "text", span),
    )
    hole = Hole("text", span, Volatility.REQUEST, Confidence.HIGH, origins)
    assert names(s.prompt(s.system(hole, s.text(LONG)))) == ["clock-in-prefix"]


def test_a_low_confidence_hole_gives_a_low_confidence_finding():
    s = Source()
    [found] = findings(s.prompt(s.user(s.hole("unknown", confidence=Confidence.LOW), s.text(LONG))))
    assert found.confidence is Confidence.LOW


def test_per_turn_state_in_the_system_message_of_a_conversation():
    s = Source()
    prompt = s.prompt(s.system(s.text("Page: "), s.hole("state", Volatility.TURN), s.text(LONG)), s.history())
    assert names(prompt) == ["volatile-system-message"]


def test_context_at_the_tail_of_the_system_message_of_a_conversation():
    s = Source()
    assert names(s.prompt(s.system(s.text(LONG), s.hole("context")), s.history())) == ["volatile-system-message"]
    s = Source()
    assert names(s.prompt(s.system(s.hole("context"), s.text(LONG)), s.history())) == ["context-before-static"]


def test_a_session_value_in_the_system_message_is_no_loss_to_its_own_conversation():
    s = Source()
    assert names(s.prompt(s.system(s.text(LONG), s.hole("user", Volatility.USER)), s.history())) == []


def test_an_elif_is_one_decision_with_its_if():
    s = Source()
    first, second = (
        s.guard(f'platform.system() == "{name}"', Volatility.PROCESS, kind="host") for name in ("Darwin", "Windows")
    )
    first, second = (
        replace(one, origins=(replace(one.origins[0], expression="platform.system()"),)) for one in (first, second)
    )
    inner = s.choice(second, (s.text("Press Win."),), (s.text("Press Super."),))
    prompt = s.prompt(s.system(s.choice(first, (s.text("Press Command."),), (inner,)), s.text(LONG)))
    assert [found.span for found in findings(prompt)] == [first.span]


def test_optional_text_ahead_of_fixed_text():
    s = Source()
    guard = s.guard("question.is_refund", Volatility.REQUEST)
    prompt = s.prompt(s.system(s.choice(guard, (s.text("Be careful."),), ()), s.text(LONG)))
    [found] = findings(prompt)
    assert found.rule == "conditional-block-in-prefix"
    assert found.span == guard.span


@pytest.mark.parametrize(
    ("kind", "volatility", "expected"),
    [
        ("setting", Volatility.PROCESS, []),
        ("history", Volatility.REQUEST, []),
        ("host", Volatility.PROCESS, ["conditional-block-in-prefix"]),
    ],
)
def test_conditions_on_settings_and_on_the_conversation_are_settled_and_on_the_machine_are_not(
    kind, volatility, expected
):
    s = Source()
    guard = s.guard("x", volatility, kind)
    assert names(s.prompt(s.system(s.choice(guard, (s.text("a"),), ()), s.text(LONG)))) == expected


def test_the_value_that_a_condition_asks_for_is_reported_instead():
    s = Source()
    guard = s.guard("context", Volatility.REQUEST)
    prompt = s.prompt(s.system(s.choice(guard, (s.text("Passages: "), s.hole("context")), ()), s.text(LONG)))
    assert names(prompt) == ["context-before-static"]


def test_a_latched_condition_counts_as_one_a_session():
    s = Source()
    guard = s.guard("self.warned", Volatility.TURN, latched=True)
    [found] = findings(s.prompt(s.system(s.choice(guard, (s.text("a"),), ()), s.text(LONG))))
    assert found.volatility is Volatility.SESSION


def test_loops_are_reported_once_at_their_list():
    s = Source()
    over = s.hole("context", name="passages")
    body = (s.text("Passage: "), s.hole("context", name="passage"), s.text("\n"))
    [found] = findings(s.prompt(s.user(s.repeat(over, *body), s.text(LONG))))
    assert found.span == over.span


def test_a_clock_in_a_loop_over_a_fixed_list_is_still_a_clock():
    s = Source()
    over = s.hole("setting", Volatility.STATIC, name="EXAMPLES")
    assert names(s.prompt(s.user(s.repeat(over, s.text("x"), s.hole("clock")), s.text(LONG)))) == ["clock-in-prefix"]


def test_history_in_a_template_ahead_of_instructions():
    s = Source()
    history = s.hole("history", Volatility.SESSION, name="history", growth=Growth.APPEND)
    assert names(s.prompt(s.user(history, s.text(SOME)))) == ["volatile-block-first"]


def test_a_short_reminder_behind_the_conversation_is_fine():
    s = Source()
    assert names(s.prompt(s.system(s.text(LONG)), s.history(), s.user(s.text(SOME), s.hole("request")))) == []
    s = Source()
    assert names(s.prompt(s.system(s.text("x")), s.history(), s.user(s.text(LONG)))) == ["volatile-block-first"]


def edit(op, line=3, **more):
    return HistoryEdit(op, Span("app.py", line, 1, line, 20), "messages", Confidence.HIGH, f"messages {op}", **more)


@pytest.mark.parametrize(
    ("op", "rule"),
    [
        ("window", "history-truncated"),
        ("pop-front", "history-truncated"),
        ("pop-middle", "history-truncated"),
        ("filter", "history-truncated"),
        ("set-old", "history-rewritten"),
        ("summarise", "history-rewritten"),
        ("insert-front", "message-inserted-at-front"),
        ("set-front", "system-message-mutated"),
        ("hand-off", "history-under-changing-head"),
    ],
)
def test_each_edit_of_a_history_has_its_rule(op, rule):
    [found] = findings(edits=(edit(op),))
    assert (found.rule, found.severity) == (rule, "high")


def test_an_edit_that_happens_once_is_fine_and_one_place_is_one_finding():
    assert names(edits=(edit("insert-front", per_call=False),)) == []
    assert names(edits=(edit("window"), edit("window"))) == ["history-truncated"]


def test_tools_that_are_chosen_per_request():
    s = Source()
    prompt = s.prompt(
        s.system(s.text(LONG)), s.tools(s.hole("unknown", Volatility.REQUEST)), render_order=(BlockKind.TOOLS,)
    )
    [found] = findings(prompt)
    assert found.rule == "tools-built-per-request"
    s = Source()
    guard = s.guard("question.is_admin", Volatility.REQUEST)
    tools = BlockChoice(guard, ((s.tools(s.text("{delete}")),), ()), guard.span)
    assert names(s.prompt(tools, s.system(s.text(LONG)))) == ["tools-built-per-request"]


def two_sites(*orders, kind=BlockKind.SYSTEM):
    s = Source()
    texts = {name: Text(f"{name} " + f"speaks of {name} things. " * 30, s.span()) for name in "abc"}
    prompts = []
    for number, order in enumerate(orders):
        blocks = [Block(kind, "system", (texts[name],), texts[name].span, s.span(), name) for name in order]
        prompts.append(s.prompt(*blocks, s.user(s.hole("request")), function=f"f{number}"))
    return prompts


def test_the_same_blocks_in_another_order():
    prompts = two_sites("ab", "ab", "ba")
    [found] = findings(*prompts)
    assert found.rule == "block-order-differs"
    assert found.call_site == prompts[2].id
    assert found.related[0].call_site == prompts[0].id
    assert found.tokens_behind > 200
    assert "2 other call sites" in found.message


def test_equal_order_and_missing_blocks_are_fine():
    assert names(*two_sites("abc", "ab", "ac", "bc")) == []


def test_blocks_behind_different_heads_cannot_be_shared_in_any_order():
    s = Source()
    a, b = Text("a " * 100, s.span()), Text("b " * 100, s.span())
    one = s.prompt(s.system(s.text("You are the judge of all. " * 9)), s.system(a), s.system(b), function="f")
    two = s.prompt(s.system(s.text("Be a poet of few words. " * 9)), s.system(b), s.system(a), function="g")
    assert names(one, two) == []


def test_the_same_tools_in_another_order():
    [found] = findings(*two_sites("ab", "ba", kind=BlockKind.TOOLS))
    assert found.rule == "tool-order-differs"


def test_the_same_text_with_other_whitespace():
    def site(text, function, line):
        s = Source()
        s.line = line
        return s.prompt(s.system(s.text(text)), s.user(s.hole("request")), function=function)

    text = "You help the customers of a shop.\n" + RULES * 8
    drifted = text.replace(".\n", ".\n    ")
    [found] = findings(site(text, "f", 0), site(drifted, "g", 50))
    assert (found.rule, found.span.line) == ("text-drift", 51)
    assert names(site(text, "f", 0), site(text, "g", 50)) == []
    assert names(site(text, "f", 0), site("Write a poem about the sea. " * 20, "g", 50)) == []


def test_texts_that_no_call_is_known_to_send_may_belong_to_two_tasks():
    s = Source()
    text = "You help the customers of a shop.\n" + RULES * 8
    sent = s.prompt(s.system(s.text(text)), s.user(s.hole("request")), function="f")
    template = s.prompt(s.system(s.text(text.replace(".\n", ".\n    "))), function="g")
    [found] = findings(sent, replace(template, origin="template"))
    assert (found.rule, found.confidence) == ("text-drift", Confidence.LOW)


def test_one_conversation_under_two_heads():
    s = Source()
    one = s.prompt(s.system(s.text("You act.")), s.history("self.messages"), function="Agent.act")
    two = s.prompt(s.system(s.text("You plan.")), s.history("self.messages"), function="Agent.plan")
    [found] = findings(one, two)
    assert found.rule == "history-under-changing-head"
    other = s.prompt(s.system(s.text("You plan.")), s.history("self.messages"), function="Planner.plan")
    assert names(one, other) == []


def test_the_same_fault_at_two_call_sites_is_one_finding():
    s = Source()
    clock, text = s.hole("clock"), s.text(LONG)
    one = s.prompt(s.system(clock, text), function="f")
    two = s.prompt(s.system(clock, text), s.user(s.hole("request")), function="g")
    [found] = findings(one, two)
    assert {found.call_site, *(note.call_site for note in found.related)} == {one.id, two.id}


def test_the_place_is_the_slot_behind_which_the_text_is_spelled():
    # now = datetime.now()  (line 2), then a template at line 10 with the slot and a paragraph behind it.
    call = Span("app.py", 2, 7, 2, 21)
    slot = Span("prompts.py", 10, 8, 10, 13)
    origin = Origin("clock", Volatility.REQUEST, Confidence.HIGH, "datetime.now()", call)
    hole = Hole(
        "datetime.now()", call, Volatility.REQUEST, Confidence.HIGH, (origin,), steps=(Step(slot, "fills the slot"),)
    )
    head = Text("Today: ", Span("prompts.py", 10, 1, 10, 8))
    tail = Text(SOME, Span("prompts.py", 10, 13, 14, 9))
    s = Source()
    [found] = findings(s.prompt(s.system(head, hole, tail)))
    assert found.span == slot
    assert next(note.span for note in found.trace) == call


def test_values_next_to_each_other_are_one_finding():
    s = Source()
    prompt = s.prompt(
        s.system(
            s.text("name: "),
            s.hole("user", Volatility.USER, name="user.name"),
            s.text("\nmail: "),
            s.hole("user", Volatility.USER, name="user.mail"),
            s.text(LONG),
        )
    )
    [found] = findings(prompt)
    assert found.expression == "user.name"
    assert [note.span.line for note in found.related] == [4]


def test_the_same_value_again_further_down_is_the_same_fault():
    s = Source()
    slot = [
        s.hole("user", Volatility.USER, name="username"),
        s.text(LONG),
        s.hole("user", Volatility.USER, name="username"),
        s.text(LONG),
    ]
    [found] = findings(s.prompt(s.system(*slot)))
    assert found.span.line == 1
    s = Source()
    other = [
        s.hole("user", Volatility.USER, name="username"),
        s.text(LONG),
        s.hole("user", Volatility.USER, name="city"),
        s.text(LONG),
    ]
    assert len(findings(s.prompt(s.system(*other)))) == 2


def test_an_object_through_which_much_flows_is_no_sure_source():
    def confidence(*kinds):
        s = Source()
        span = s.span()
        origins = tuple(Origin(kind, Volatility.REQUEST, Confidence.HIGH, kind, span) for kind in kinds)
        hole = Hole("reply", span, Volatility.REQUEST, Confidence.HIGH, origins)
        found = findings(s.prompt(s.user(hole, s.text(LONG))))
        return next(each.confidence for each in found if each.rule == "random-in-prefix")

    assert confidence("random", "setting", "request", "context") is Confidence.HIGH
    assert confidence("random", "setting", "request", "context", "unknown") is Confidence.LOW


def test_a_counter_in_another_attribute_makes_the_object_a_state():
    def rule(expression):
        s = Source()
        span = s.span()
        origin = Origin("counter", Volatility.TURN, Confidence.MEDIUM, "self.health_points", span)
        hole = Hole(expression, span, Volatility.TURN, Confidence.MEDIUM, (origin,))
        [found] = findings(s.prompt(s.user(hole, s.text(LONG))))
        return found.rule

    assert rule("winner.health_points") == "counter-in-prefix"
    assert rule("winner.name") == "request-data-before-static"


def test_later_dates_of_one_text_are_folded_into_the_first():
    s = Source()
    dates = [s.hole("clock", Volatility.DAY, name=name) for name in ("today", "yesterday", "month")]
    [found] = findings(
        s.prompt(
            s.system(dates[0], s.text(LONG), dates[1], s.text(LONG), dates[2], s.text(LONG)),
        )
    )
    assert found.expression == "today"
    assert [note.span for note in found.related] == [date.span for date in dates[1:]]


def test_dates_of_alternative_texts_are_faults_of_their_own():
    s = Source()
    guard = s.guard("setting", Volatility.PROCESS, "setting")
    arms = []
    for name, text in (("today", LONG), ("date", SOME)):
        arms.append((s.text(SOME), s.hole("clock", Volatility.DAY, name=name), s.text(text)))
    assert names(s.prompt(s.system(s.choice(guard, *arms)))) == ["clock-in-prefix"] * 2


def test_what_loses_next_to_nothing_is_pedantic():
    s = Source()
    [few] = findings(s.prompt(s.system(s.hole("user", Volatility.USER), s.text(SOME))))
    [many] = findings(s.prompt(s.system(s.hole("user", Volatility.USER), s.text(LONG))))
    assert (few.persona, many.persona) == ("pedantic", "regular")
    assert few.tokens_lost < TYPICAL.thresholds.notice <= many.tokens_lost


def test_a_path_that_passes_through_the_machine_is_doubtful():
    s = Source()
    here = s.span()
    folder = Origin("host", Volatility.PROCESS, Confidence.HIGH, "Path.cwd()", Span("const.py", 3, 1, 3, 9))
    name = Origin("setting", Volatility.PROCESS, Confidence.MEDIUM, "name", here)
    [mixed] = findings(
        s.prompt(s.system(Hole("path", here, Volatility.PROCESS, Confidence.HIGH, (folder, name)), s.text(LONG)))
    )
    [pure] = findings(
        s.prompt(s.system(Hole("cwd", here, Volatility.PROCESS, Confidence.HIGH, (folder,)), s.text(LONG)))
    )
    assert (mixed.confidence, pure.confidence) == (Confidence.LOW, Confidence.HIGH)


@pytest.mark.parametrize(("name", "expected"), [("self.states", []), ("chat_history", ["volatile-block-first"])])
def test_a_list_inside_a_text_is_a_conversation_by_its_name_only(name, expected):
    s = Source()
    hole = s.hole("history", Volatility.SESSION, name=name, growth=Growth.APPEND)
    assert names(s.prompt(s.user(s.text("Before: "), hole, s.text(LONG)))) == expected


@pytest.mark.parametrize(
    ("name", "sure"),
    [
        ("persona", False),
        ("tool_name", False),
        ("SearchTool.name()", False),
        ("answer", True),
        ("'; '.join(options)", True),
    ],
)
def test_what_its_own_spelling_calls_fixed_is_no_sure_retrieval(name, sure):
    s = Source()
    here = s.span()
    origins = tuple(
        Origin(kind, volatility, Confidence.MEDIUM, kind, here)
        for kind, volatility in (("context", Volatility.REQUEST), ("setting", Volatility.PROCESS))
    )
    [found] = findings(
        s.prompt(s.system(Hole(name, here, Volatility.REQUEST, Confidence.MEDIUM, origins), s.text(LONG)))
    )
    assert (found.confidence >= Confidence.MEDIUM) == sure


@pytest.mark.parametrize(
    ("condition", "expected"),
    [("self.task = text", 0), ("self.notes += text", 0), ("task == 'a'", 1), ("f(key = task)", 1), ("(x := task)", 1)],
)
def test_an_attribute_that_may_be_unset_is_no_optional_block(condition, expected):
    s = Source()
    guard = s.guard(condition, Volatility.REQUEST)
    assert len(names(s.prompt(s.system(s.choice(guard, (s.text("a"),), ()), s.text(LONG))))) == expected


def test_a_value_that_may_be_absent_is_no_optional_block():
    s = Source()
    guard = s.guard("task", Volatility.REQUEST)
    bare = s.choice(guard, (s.hole("unknown", confidence=Confidence.LOW), s.text(" ")), ())
    worded = s.choice(guard, (s.text("Do: "), s.hole("unknown", confidence=Confidence.LOW)), ())
    assert "conditional-block-in-prefix" not in names(s.prompt(s.system(bare, s.text(LONG))))
    assert "conditional-block-in-prefix" in names(s.prompt(s.system(worded, s.text(LONG))))


@pytest.mark.parametrize(
    ("record", "name", "rule"),
    [
        ('doc["country"]', "country", "request-data-before-static"),
        ("doc", "subject", "request-data-before-static"),
        ("doc", "text", "context-before-static"),
        ("doc", "doc", "context-before-static"),
        ("chunks", "c", "context-before-static"),
        ("find(doc)", "hit", "context-before-static"),
    ],
)
def test_a_field_of_a_record_is_no_retrieved_text(record, name, rule):
    s = Source()
    here = s.span()
    origin = Origin("context", Volatility.REQUEST, Confidence.MEDIUM, record, here)
    hole = Hole(name, here, Volatility.REQUEST, Confidence.MEDIUM, (origin,), name)
    assert names(s.prompt(s.user(hole, s.text(LONG)))) == [rule]
