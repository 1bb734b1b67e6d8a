"""Edits of single places: what they write, and where they keep their hands off."""

import ast

import pytest

from promptlint.fixes import clock, messages, newest, order
from promptlint.fixes.canvases import canvas_at
from promptlint.fixes.code import Desk
from promptlint.fixes.move import move_in
from promptlint.fixes.splice import apply
from promptlint.source import SourceFile

RULES = "Answer from the manual only. Keep it short."


def _desk(text):
    return Desk({"a.py": SourceFile("a.py", text)})


def _moved(text, slot):
    """The program with a slot of one of its literals moved, or None."""
    desk = _desk(text)
    start = text.index(slot)
    canvas = canvas_at(desk, desk.sources["a.py"].span(start, start + len(slot)))
    edits = move_in(canvas, start, start + len(slot))
    return apply(desk.sources["a.py"], edits) if edits else None


@pytest.mark.parametrize(
    ("text", "slot"),
    [
        (f't = "Size: {{:>{{}}}}\\n{RULES}\\nThe id is {{}}. {RULES}".format(a, 9, b)\n', "{:>{}}"),
        (f't = "Name: {{.name}}\\n{RULES}\\nThe tag is {{.tag}}. {RULES}".format(a, b)\n', "{.name}"),
        (f't = "Name: {{[0]}}\\n{RULES}\\nThe tag is {{}}. {RULES}".format(a, b)\n', "{[0]}"),
        (f't = "Share: %5.1g\\n{RULES}\\nThe code is %c. {RULES}" % (a, b)\n', "%5.1g"),
        (f't = f"Name: {{(n := a.strip())}}\\n{RULES}\\nAgain {{n}}. {RULES}"\n', "{(n := a.strip())}"),
        (f't = f"First: {{items.pop()}}\\n{RULES}\\nThen {{items.pop()}}. {RULES}"\n', "{items.pop()}"),
    ],
    ids=["nested spec", "attribute", "index", "percent", "walrus", "pop"],
)
def test_a_value_that_depends_on_its_place_is_not_moved(text, slot):
    assert _moved(text, slot) is None


def test_a_literal_without_slots_loses_its_prefix():
    text = f't = (\n    f"Name: {{a}}\\n{RULES} "\n    f"Be {{b}}. "\n    "Stop. {RULES}\\n"\n)\n'
    text = text.replace("Name: {a}", "Be kind. The name is {a}.")
    moved = _moved(text, "{a}")
    assert f'\n    "Be kind.\\n{RULES} "' in moved
    assert '\n    f"Be {b}. "' in moved
    values = {"a": "Ann", "b": "brief"}
    words = [sorted(eval(each.removeprefix("t = "), dict(values)).split()) for each in (text, moved)]
    assert words[0] == words[1]


def test_a_brace_that_is_spelled_twice_keeps_the_prefix():
    text = f't = (\n    f"Use {{{{x}}}}. The name is {{a}}.\\n"\n    "{RULES}\\n"\n)\n'
    assert '\n    f"Use {{x}}.' in _moved(text, "{a}")


def test_a_list_in_brackets_is_not_put_in_front_of_its_plus():
    for text in ("m = [a] + (b if c else d)\n", "m = [a] + (b or c)\n", "h.insert(0,  # first\n  a)\n"):
        desk = _desk(text)
        code = desk.code("a.py")
        assert messages._appended(code, code.tree.body[0]) == ()


@pytest.mark.parametrize(
    ("code", "is_list"),
    [
        ("S = [{}]\nsend(S)", True),
        ("S = 'a' * 9\nsend(S)", False),
        ("def f(s: list):\n    send(s)", True),
        ("def f(s: str):\n    send(s)", False),
        ("send('a' + B)", False),
        ("send([a] + B)", True),
    ],
)
def test_blocks_are_not_wrapped_as_text(code, is_list):
    parsed = _desk(code).code("a.py")
    call = next(
        node for node in parsed.nodes() if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "send"
    )
    assert messages._may_be_list(parsed, call.args[0]) is is_list


@pytest.mark.parametrize(
    ("text", "now"),
    [
        ("json.dumps(a)", "json.dumps(a, sort_keys=True)"),
        (
            "json.dumps(\n    a,  # data\n    indent=2,  # pretty\n)",
            "json.dumps(\n    a,  # data\n    indent=2, sort_keys=True,  # pretty\n)",
        ),
        ("json.dumps((a))", "json.dumps((a), sort_keys=True)"),
        ("json.dumps(a, )", "json.dumps(a, sort_keys=True, )"),
    ],
)
def test_an_argument_is_added_ahead_of_comments(text, now):
    code = _desk(text).code("a.py")
    at, written = order._behind_arguments(code, code.tree.body[0].value)
    assert text[:at] + written + text[at:] == now
    ast.parse(now)


@pytest.mark.parametrize(
    "text",
    [
        "f\"{datetime.now().isoformat().split('T')[1]}\"",
        "f\"{datetime.now().strftime('%Y-%m-%d %H:%M')[11:]}\"",
    ],
)
def test_a_clock_that_is_taken_apart_stays(text):
    desk = _desk(text)
    start = text.index("datetime")
    code, node = desk.at(desk.sources["a.py"].span(start, text.rindex("}")))
    assert clock._edits(code, node) == ()


def test_a_stamp_that_also_names_a_file_stays():
    text = "stamp = datetime.now().strftime('%Y%m%d_%H%M')\nsend(f'{stamp}')\nopen(stamp)\n"
    for program, repaired in ((text, False), (text.replace("open(stamp)\n", ""), True)):
        desk = _desk(program)
        start = program.index("{stamp}")
        edits = clock._edits(*desk.at(desk.sources["a.py"].span(start, start + 7)))
        assert bool(edits) is repaired
    assert "'%Y%m%d'" in apply(desk.sources["a.py"], edits)


def test_a_list_that_grows_later_has_no_newest_message_yet():
    text = "def f():\n    m = [a, b]\n    m.append(c)\n    n = [a]\n    send(m, n)\n"
    code = _desk(text).code("a.py")
    call = next(node for node in code.nodes() if isinstance(node, ast.Call) and len(node.args) == 2)
    assert [newest._grows(code, each) for each in call.args] == [True, False]
