"""Where a value is reported: the construct in which the text behind it is spelled."""

from ir_builder import RULES, Source

from promptlint.analysis import Assumptions, render
from promptlint.analysis.place import primary_location
from promptlint.ir import Block, BlockKind, Confidence, Hole, Origin, Step, Text, Volatility
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
