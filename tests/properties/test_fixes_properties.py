"""Edits over made-up programs: what comes out parses, says the same, and keeps every byte that is none of its business."""

from __future__ import annotations

import ast
import datetime as dt
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from promptlint.finding import Edit, Finding, Note
from promptlint.fixes import Desk, clock, messages, order
from promptlint.fixes.canvases import canvas_at
from promptlint.fixes.move import move_in
from promptlint.fixes.splice import apply
from promptlint.ir import Confidence
from promptlint.source import SourceFile, Span

# What a line of a prompt may hold, as it is said; how it is spelled is decided later.
FIXED = st.sampled_from(
    [
        "Answer from the manual only, and name the page that you used.",
        "Keep it short; do not guess.",
        'Say "I do not know" when you don\'t know.',
        "Grüße den Gast, 你好, \U0001f600.",
        "\tIndent lists with a tab.",
        "Write C:\\temp\\new as it is.",
        "Use {curly} and {{double}} braces, [square] and (round) ones.",
        "- Be kind.",
        "# Rules",
        "100% sure answers cost $5.",
    ]
)
SLOTS = [
    "name",
    "data['k']",
    "', '.join(items)",
    "(lambda x: {'a': x}['a'])(name)",
    "data.get('none', [1, {1: name}[1]])[1]",
    "name!r",
    "number:>8.2f",
]
MARK = "~"  # in every text that is a value, and in no fixed line
VALUES = {"name": "A~n", "data": {"k": "v~ 1"}, "items": ["b~", "a~"], "number": 3.5}
LABELS = ["Question: ", "The guest is called ", "Today's guest: "]


@st.composite
def literals(draw: st.DrawFn) -> tuple[str, str, str]:
    """(source of an expression, the slot as it is spelled there, what it says): a labelled value among fixed lines, spelled in some way."""
    above = draw(st.lists(FIXED, max_size=2))
    below = draw(st.lists(FIXED, min_size=1, max_size=4))
    expression = draw(st.sampled_from(SLOTS))
    label = draw(st.sampled_from(LABELS))
    end = "." if label.startswith("The") else ""
    gap = draw(st.sampled_from(["\n", "\n\n"]))
    lines = [*above, f"{label}\0{end}", *below]
    said = gap.join(lines)
    form = draw(st.sampled_from(["quoted", "triple", "raw", "adjacent", "format", "plus"]))
    if form == "plus":
        before, after = said.split("\0")
        return f"{before!r} + str({_bare(expression)}) + {after!r}", f"str({_bare(expression)})", form
    slot = "{" + (expression if form != "format" else "value") + "}"
    if form == "format":
        spelled = repr(_doubled(said)).replace("\\x00", slot)
        return f"{spelled}.format(value={_bare(expression)})", slot, form
    if form == "raw":
        text = _doubled(said).replace('"""', "'").replace("\\", "/")
        return f'rf"""{text}"""'.replace("\0", slot), slot, form
    if form == "triple":
        text = (
            _doubled(said)
            .replace("\\", "\\\\")
            .replace('"""', '\\"""')
            .replace("\t", draw(st.sampled_from(["\t", "\\t"])))
        )
        return f'f"""{text}\n"""'.replace("\0", slot), slot, form
    quote = '"'  # the expressions hold single quotes
    if form == "quoted":
        return f"f{quote}{_escaped(_doubled(said))}{quote}".replace("\0", slot), slot, form
    pieces = [f"{line}{gap}" for line in lines[:-1]] + [lines[-1]]
    tokens = []
    for piece in pieces:
        if "\0" in piece or draw(st.booleans()):
            tokens.append(f"f{quote}{_escaped(_doubled(piece))}{quote}".replace("\0", slot))
        else:
            tokens.append(repr(piece))
    return "(\n    " + "\n    ".join(tokens) + "\n)", slot, form


def _bare(expression: str) -> str:
    return "name" if expression[-2:] == "!r" else "number" if ":>" in expression else expression


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")


def _value(source: str) -> str:
    space: dict[str, object] = {}
    exec(compile(source, "<case>", "exec"), dict(VALUES), space)
    return str(space["prompt"])


HEAD = "# -*- coding: utf-8 -*-\nother = [ 1,2 ]   # kept  as it is\n"
TAIL = "\n\nclass   Kept : pass\n"


@given(literals(), st.booleans())
@settings(max_examples=250)
def test_a_moved_value_says_the_same_in_another_order(case: tuple[str, str, str], windows: bool) -> None:
    expression, slot, _ = case
    program = f"{HEAD}prompt = {expression}{TAIL}"
    if windows:
        program = program.replace("\n", "\r\n")
    source = SourceFile("a.py", program)
    start = program.index(slot, len(HEAD))
    edits = _moved(source, start, start + len(slot))
    if not edits:
        return
    changed = apply(source, edits)
    before, after = _value(program), _value(changed)
    assert Counter(before.split()) == Counter(after.split())
    head, tail = (text.replace("\n", "\r\n") if windows else text for text in (HEAD, TAIL))
    assert changed.startswith(head)
    assert changed.endswith(tail)
    assert changed.count("\r\n") == changed.count("\n") if windows else "\r" not in changed
    mark = "3.5" if "3.5" in before else MARK
    assert after.rindex(mark) > before.rindex(mark)
    again = SourceFile("a.py", changed)
    place = changed.rindex(slot)
    assert _moved(again, place, place + len(slot)) == ()


def test_most_labelled_values_can_be_moved() -> None:
    moved = Counter()
    for label in LABELS:
        for form in ("f'''{}'''", 'f"{}"', '"{}".format(name=name)'):
            text = f"Be kind.\n\n{label}{{name}}\n\nAnswer from the manual only. Keep it short."
            spelled = form.format(text if "'''" in form else text.replace("\n", "\\n")) if form.count("{}") else form
            program = f"prompt = {spelled}\n"
            start = program.index("{name}")
            moved[bool(_moved(SourceFile("a.py", program), start, start + 6))] += 1
    assert moved[True] == 9


def _moved(source: SourceFile, start: int, end: int) -> tuple[Edit, ...]:
    canvas = canvas_at(Desk({source.path: source}), source.span(start, end))
    return move_in(canvas, start, end) if canvas is not None else ()


JINJA = st.sampled_from(
    [
        "Be kind.",
        "{# a note #}",
        "{% if x %}Be brief.{% endif %}",
        "{% for d in docs %}- {{ d }}\n{% endfor %}",
        "{%- set v = 1 -%}",
        "{% raw %}{{ kept }}{% endraw %}",
        "Grüße “{{ other }}”.",
        "\tTabs too.",
        "Name the page that you used, and keep it short.",
        """Say {{ 'it"s {{ odd }}' }} or {{ "don't %} do" }}.""",
    ]
)
ODD_SLOTS = ["""{{ q | default("it's {{ none }}", true) }}""", """{{ q ~ '"%}' }}""", """{{ [q, {1: "]}}"}[1]][0] }}"""]


@given(
    st.lists(JINJA, max_size=3),
    st.lists(JINJA, min_size=1, max_size=4),
    st.sampled_from(["{{ q }}", "{{ q | upper }}", "{{- q -}}", *ODD_SLOTS]),
    st.booleans(),
)
@settings(max_examples=150)
def test_a_moved_slot_of_a_template_renders_the_same_words(
    above: list[str], below: list[str], slot: str, windows: bool
) -> None:
    import jinja2

    text = "\n\n".join([*above, f"Question: {slot}", *below]) + "\n"
    text = text.replace("\n", "\r\n") if windows else text
    source = SourceFile("a.j2", text)
    start = text.index(slot)
    edits = _moved(source, start, start + len(slot))
    if not edits:
        return
    changed = apply(source, edits)
    assert changed.count("\r\n") == (changed.count("\n") if windows else 0)
    values = {"q": "WHAT", "x": True, "docs": ["D1", "D2"], "other": "O"}
    render = jinja2.Environment(autoescape=False).from_string
    before, after = render(text).render(values), render(changed).render(values)
    assert Counter("".join(before.split())) == Counter("".join(after.split()))
    if "-%}" not in text and "-" not in slot:  # strip markers glue words to what now stands beside them
        assert Counter(before.split()) == Counter(after.split())


ELEMENTS = st.lists(st.text("abcé你\U0001f600 -.", min_size=1, max_size=6), min_size=1, max_size=6)


@given(
    ELEMENTS,
    st.sampled_from(
        [
            "', '.join({given})",
            "', '.join(x for x in {given})",
            "', '.join([x.upper()\n    for x in {given}  # why\n])",
            "f\"{{', '.join({given})}}\"",
            "', '.join(f'{{x}}' for x in set({given}) | {given})",
        ]
    ),
    st.booleans(),
)
@settings(max_examples=150)
def test_a_sorted_set_joins_the_same_parts(elements: list[str], form: str, named: bool) -> None:
    spelled = "{" + ", ".join(map(repr, elements)) + "}"
    first = f"parts = {spelled}\n" if named else ""
    program = f"{first}prompt = {form.format(given='parts' if named else spelled)}\n"
    source = SourceFile("a.py", program)
    node = ast.parse(program).body[-1]
    assert isinstance(node, ast.Assign)
    start = program.index(", '.join") - 1
    span = source.span(start, start + len("', '.join("))
    fixes = [fix for fix in order.fixed_order(_finding(span), Desk({"a.py": source})) if fix.applicability == "safe"]
    assert fixes
    for fix in fixes:
        changed = apply(source, fix.edits)
        assert sorted(_value(program).split(", ")) == sorted(_value(changed).split(", "))


@given(
    st.dictionaries(
        st.text(max_size=4),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=4),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        ),
        max_size=4,
    ),
    st.sampled_from(["json.dumps({})", "json.dumps({}, indent=2)", "json.dumps(\n    {},\n)", "json.dumps({}, )"]),
)
@settings(max_examples=150)
def test_json_with_sorted_keys_loads_the_same(value: dict[str, object], form: str) -> None:
    program = f"prompt = {form.format(repr(value))}\n"
    source = SourceFile("a.py", program)
    start = program.index("json.dumps")
    fixes = list(order.sorted_keys(_finding(source.span(start, len(program) - 1)), Desk({"a.py": source})))
    assert [fix.applicability for fix in fixes] == ["safe"]
    space: dict[str, object] = {"json": json}
    texts = []
    for text in (program, apply(source, fixes[0].edits)):
        exec(text, space)
        texts.append(str(space["prompt"]))
    assert json.loads(texts[0]) == json.loads(texts[1]) == json.loads(json.dumps(value))


@given(
    st.lists(
        st.sampled_from(
            [
                "%Y-%m-%d",
                "%A",
                "%d.%m.%y",
                "%B",
                "%H:%M",
                "%H:%M:%S.%f",
                "%I %p",
                "%Z",
                " at ",
                ", ",
                " ",
                "T",
                "Today: ",
            ]
        ),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=300)
def test_a_format_without_its_time_prints_one_text_a_day(parts: list[str]) -> None:
    pattern = "".join(parts)
    cut = clock.time_of_day(pattern)
    if cut is None:
        return
    shorter = pattern[: cut[0]] + pattern[cut[1] :]
    one, other = (dt.datetime(2026, 3, 1, hour, 8, 7, 6, tzinfo=dt.UTC) for hour in (9, 21))
    assert one.strftime(shorter) == other.strftime(shorter)
    for part in parts:
        if part in {"%Y-%m-%d", "%A", "%d.%m.%y", "%B"}:
            assert one.strftime(part) in one.strftime(shorter)


MESSAGE = st.sampled_from(
    ["m", '{"role": "user", "content": f"a, {b}"}', "dict(role='user',\n    content='x(')", "make([1, 2], {3: '}'})"]
)


@given(
    MESSAGE,
    st.sampled_from(
        [
            "messages.insert(0, {})",
            "messages.insert( 0 , {} )",
            "messages = [{}, *messages]",
            "messages = [{}] + messages",
            "messages = [ {} , *messages, ]",
        ]
    ),
)
def test_an_appended_message_is_the_same_message(message: str, form: str) -> None:
    program = form.replace("{}", message, 1) + "\n"
    source = SourceFile("a.py", program)
    fixes = list(messages.appended(_finding(source.span(0, len(program) - 1)), Desk({"a.py": source})))
    assert len(fixes) == 1
    changed = apply(source, fixes[0].edits)
    space: dict[str, object] = {"m": "m", "b": 1, "make": lambda *given: repr(given), "messages": ["old"]}
    before = dict(space, messages=["old"])
    exec(program, before)
    exec(changed, space)
    one, other = before["messages"], space["messages"]
    assert isinstance(one, list)
    assert isinstance(other, list)
    assert one[0] == other[-1]
    assert one[1:] == other[:-1] == ["old"]


LISTINGS = st.sampled_from(
    [
        "prompt = ', '.join(os.listdir(root))",
        "prompt = ', '.join( [name.upper() for name in os.listdir( root )] )  # why",
        "prompt = f\"{', '.join(os.listdir(root))}\"",
        "prompt = ', '.join(name for name in glob.glob('*.md', root_dir=root) if name != '[x]')",
        "names = os.listdir(\n    root  # here\n)\nprompt = ', '.join(names)",
        "prompt = ''\nfor name in os.listdir(root):\n\tprompt += f'{name}, '",
    ]
)


@given(LISTINGS, st.lists(st.text("abcé你(. ", min_size=1, max_size=5), max_size=5, unique=True), st.booleans())
@settings(max_examples=150)
def test_a_sorted_listing_joins_the_same_names(program: str, names: list[str], windows: bool) -> None:
    program = f"{program}\n".replace("\n", "\r\n" if windows else "\n")
    source = SourceFile("a.py", program)
    start = program.index("os.listdir" if "listdir" in program else "glob.glob")
    fixes = list(order.sorted_listing(_finding(source.span(start, start + len("os.listdir"))), Desk({"a.py": source})))
    assert [fix.applicability for fix in fixes] == ["safe"]
    texts = []
    for listed in (names, names[::-1]):
        for text in (program, apply(source, fixes[0].edits)):
            found = SimpleNamespace(listdir=lambda root, listed=listed: list(listed))
            space = {
                "os": found,
                "glob": SimpleNamespace(glob=lambda *_, listed=listed, **__: list(listed)),
                "root": ".",
            }
            exec(compile(text, "<case>", "exec"), space)
            texts.append(str(space["prompt"]))
    assert texts[1] == texts[3]  # one order, whatever the folder says
    assert all(sorted(text.split(", ")) == sorted(texts[0].split(", ")) for text in texts)


BLOCKS = st.lists(
    st.sampled_from(
        [
            '{"role": "system", "content": "a (b] \\" }"}',
            "{'role': 'system', 'content': RULES}",
            "dict(role='system',\n        content=f'{name}, [x')",
            "make([1, 2], {3: ')'})",
            'f"{name!r} and {{}}"',
            "GREETING",
        ]
    ),
    min_size=2,
    max_size=5,
    unique=True,
)
BLOCK_VALUES = {"RULES": "Be kind.", "name": "é", "GREETING": "你好", "make": lambda *given: repr(given)}


@given(BLOCKS, st.data(), st.sampled_from([", ", " ,", ",\n    ", ",  # why, [\n    "]), st.booleans())
@settings(max_examples=150)
def test_exchanged_blocks_are_the_same_blocks(
    blocks: list[str], data: st.DataObject, joint: str, windows: bool
) -> None:
    first = data.draw(st.integers(0, len(blocks) - 2))
    second = data.draw(st.integers(first + 1, len(blocks) - 1))
    program = f"{HEAD}messages = [ {joint.join(blocks)} ]{TAIL}".replace("\n", "\r\n" if windows else "\n")
    source = SourceFile("a.py", program)
    spans = [_span_of(source, blocks[number], windows) for number in (first, second)]
    finding = Finding(
        "x", "low", Confidence.HIGH, "regular", spans[0], "", trace=tuple(Note(span, "this block") for span in spans)
    )
    fixes = list(messages.swapped(finding, Desk({"a.py": source})))
    assert len(fixes) == 1
    before, after = (_messages(text) for text in (program, apply(source, fixes[0].edits)))
    before[first], before[second] = before[second], before[first]
    assert after == before


TEXTS = st.sampled_from(
    [
        'f"Be kind. \\"Never\\" guess.\\n\\nNow: {now}"',
        "f'Grüße, 你好.\\tUse {{x}} and (y]. Now: {now}, {name}.'",
        'f"""Be kind.\n\n  Keep it short.\nNow: {now}\n"""',
        'f"{RULES} Now: {now}"',
        "rf'C:\\temp is [one of (them. The time is {now}.'",
    ]
)


@given(TEXTS, st.booleans(), st.booleans())
@settings(max_examples=100)
def test_a_split_text_says_the_same(text: str, marker: bool, windows: bool) -> None:
    """Blanks between the two parts aside: that they are two says as much."""
    block = f'{{"type": "text", "text": {text}, "cache_control": {{"type": "ephemeral"}} }}'
    message = f'{{"role": "user", "content": {text}}}'
    program = f"{HEAD}messages = [{block if marker else message}]{TAIL}".replace("\n", "\r\n" if windows else "\n")
    source = SourceFile("a.py", program)
    start = program.index('{"type": "ephemeral"}' if marker else "{now}")
    span = source.span(start + 1, start + (8 if marker else 4))
    finding = Finding("x", "low", Confidence.HIGH, "regular", span, "", expression="now")
    split = messages.split_at_marker if marker else messages.split_message
    fixes = list(split(finding, Desk({"a.py": source})))
    assert len(fixes) == 1
    (one,), (head, tail) = (_messages(each) for each in (program, apply(source, fixes[0].edits)))
    key = "text" if marker else "content"
    assert "".join(str(one[key]).split()) == "".join(f"{head[key]}{tail[key]}".split())
    assert "NOW" not in str(head[key])
    assert ("cache_control" in head, "cache_control" in tail) == (marker, False)


def _span_of(source: SourceFile, text: str, windows: bool) -> Span:
    text = text.replace("\n", "\r\n") if windows else text
    start = source.text.index(text, source.text.index("messages"))
    return source.span(start, start + len(text))


def _messages(program: str) -> list[Any]:
    space: dict[str, object] = {**BLOCK_VALUES, "now": "NOW"}
    exec(compile(program, "<case>", "exec"), space)
    found = space["messages"]
    assert isinstance(found, list)
    return found


def _finding(span: Span) -> Finding:
    return Finding("x", "low", Confidence.HIGH, "regular", span, "", trace=(Note(span, ""),))
