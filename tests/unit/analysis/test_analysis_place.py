"""Where a value is reported: the construct in which the text behind it is spelled."""

from ir_builder import RULES, Source

from promptlint.analysis import Assumptions, render
from promptlint.analysis.place import primary_location
from promptlint.ir import Block, BlockKind, Choice, Confidence, Guard, Hole, Origin, Step, Text, Volatility
from promptlint.source import Span

TYPICAL = Assumptions.default()
LONG = RULES * 4


def at(line, column, end, path="app.py"):
    return Span(path, line, column, line, end)


def clock(span, *slots):
    origin = Origin("clock", Volatility.REQUEST, Confidence.HIGH, "now()", span)
    steps = tuple(Step(slot, "placed here") for slot in slots)
    return Hole("now()", span, Volatility.REQUEST, Confidence.HIGH, (origin,), steps=steps)


def place(*segments, placed=None):
    span = segments[0].span
    block = Block(BlockKind.SYSTEM, "system", segments, span, placed)
    rendered = render(Source().prompt(block), TYPICAL)
    item = next(item for item in rendered.items if isinstance(item.node, Hole))
    return primary_location(rendered, item, Volatility.REQUEST)


def test_the_slot_in_whose_own_literal_the_text_goes_on():
    hole = clock(at(1, 8, 13), at(9, 5, 13))
    assert place(Text("Today: ", at(1, 1, 8)), hole, Text(LONG, at(1, 13, 200))) == hole.span


def test_a_constant_between_two_pieces_of_the_literal_belongs_to_it():
    hole = clock(at(11, 8, 13), at(23, 5, 13))
    rules = Text(LONG, at(6, 14, 80))
    assert place(hole, Text("\n\n", at(11, 13, 14)), rules, Text("\n\n", at(13, 13, 14))) == hole.span


def test_the_operand_of_the_concatenation_that_goes_on():
    # def state(): return "Now: " + now()      (line 3)
    # "You edit.\n" + state() + "\n" + RULES   (line 14)
    hole = clock(at(3, 20, 25), at(14, 17, 24))
    rules = Text(LONG, at(1, 9, 80))
    assert place(Text("Now: ", at(3, 12, 19)), hole, Text("\n", at(14, 27, 31)), rules) == at(14, 17, 24)


def test_the_slot_of_a_template_in_another_file():
    slot = at(2, 7, 14, "page.jinja")
    hole = clock(at(40, 9, 20), slot)
    assert place(Text("Time: ", at(2, 1, 7, "page.jinja")), hole, Text(LONG, at(2, 14, 90, "page.jinja"))) == slot


def test_the_element_of_the_message_list_is_no_construct_of_the_text():
    element = at(20, 5, 60)
    hole = clock(at(3, 20, 25), element)
    assert place(hole, Text(LONG, at(20, 60, 90)), placed=element) == hole.span


def test_without_text_inside_any_construct_the_literal_that_holds_the_value():
    slot = at(5, 10, 15)
    hole = clock(at(9, 30, 35), slot)
    assert place(Text("Now: ", at(5, 5, 10)), hole, Text(".", at(5, 15, 16)), Text(LONG, at(80, 1, 9, "b.py"))) == slot


def test_a_call_that_hands_the_value_on_is_no_construct_of_the_next_line():
    # value = read(source)                     (line 4)
    # folder = f"{base}/{value}"               (line 5)
    # PAGE.format(folder=folder)               (page.md, line 2)
    slot = at(2, 7, 14, "page.md")
    origin = Origin("request", Volatility.REQUEST, Confidence.HIGH, "value", at(4, 9, 21))
    steps = (Step(at(4, 9, 21), "returned by read"), Step(slot, "placed here"))
    hole = Hole("value", at(5, 19, 26), Volatility.REQUEST, Confidence.HIGH, (origin,), steps=steps)
    base = Text("a folder with a long name that is spelled out here, so that it counts for something", at(5, 12, 18))
    assert place(hole, Text(LONG, at(2, 14, 90, "page.md")), base, Text(LONG, at(3, 1, 90, "page.md"))) == slot


def test_text_that_may_be_absent_does_not_hold_the_value_to_its_place():
    slot = at(2, 7, 14, "page.md")
    guard = Guard("more", at(4, 4, 8), Volatility.REQUEST, Confidence.MEDIUM)
    optional = Choice(guard, ((Text(LONG, at(5, 10, 90)),), ()), at(4, 1, 90))
    hole = clock(at(3, 20, 25), slot)
    assert place(hole, Text(".", at(3, 25, 26)), optional, Text(LONG, at(2, 14, 90, "page.md"))) == slot


def test_a_value_that_is_a_whole_message_stands_at_its_element():
    element = at(20, 5, 60)
    question = Block(BlockKind.QUESTION, "user", (clock(at(2, 10, 18)),), at(2, 10, 18), element)
    rules = Block(BlockKind.SYSTEM, "user", (Text(LONG, at(21, 5, 60)),), at(21, 5, 60), at(21, 5, 60))
    rendered = render(Source().prompt(question, rules), TYPICAL)
    assert primary_location(rendered, rendered.items[0], Volatility.REQUEST) == element
