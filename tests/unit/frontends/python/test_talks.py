"""Texts whose place no other request shares: the next turn of a conversation, and what goes to a model of pictures."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from promptlint.analysis import Assumptions, call_sites
from promptlint.catalog.rules import load_rules
from promptlint.checks.runner import run
from promptlint.ir import Confidence, Hole, Reading, Volatility, blocks_of, holes_of

Read = Callable[..., Reading]

ORDERS = (
    "Please compare the ideas above and choose one of them. You must give your reason in one sentence, and you should never choose two of them. "
    "Always answer with the number of the idea alone on the first line. Do not use headings, tables or lists, and never repeat what an idea says."
)


def shown(reading: Reading) -> list[tuple[str, str]]:
    """Rule and value of the findings that are shown by default."""
    assumptions = Assumptions.default()
    found = run(reading, load_rules(), assumptions, call_sites(reading.prompts, assumptions)).findings
    return [(one.rule, one.expression) for one in found if one.confidence > Confidence.LOW and one.persona == "regular"]


def turn(call: str, parameters: str, before: str = "") -> str:
    """A function that puts a question ahead of orders and hands both to a call."""
    return f'def discuss({parameters}):\n    question = fetch()\n{before}    prompt = f"""{{question}}\n\n{ORDERS}"""\n    return {call}\n'


@pytest.mark.parametrize(
    "source",
    [
        turn("model.complete_it(prompt, history=history)", "model, history"),
        turn("model.complete_it(history + [{'role': 'user', 'content': prompt}])", "model, history"),
        turn("agent.step(prompt)", "agent", "    agent.step('Read the file.')\n"),
        f'def correct(coder, questions):\n    for question in questions:\n        coder.run(f"""{{question}}\n\n{ORDERS}""")\n',
    ],
)
def test_the_next_turn_of_a_conversation_shares_its_place_with_no_other_request(read: Read, source: str) -> None:
    assert shown(read(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        turn("model.complete_it(prompt)", "model"),
        turn("model.complete_it(prompt, history=[])", "model"),
        turn("agent.step(prompt)", "agent"),  # the first turn, as far as this function tells
        turn("agent.step(prompt)", "agent", "    agent.step('Read the file.')\n    agent.reset()\n"),
        turn("agent.step(prompt)", "", "    agent = Agent()\n    agent.step('Read the file.')\n"),
    ],
)
def test_the_first_text_of_a_conversation_is_a_prompt(read: Read, source: str) -> None:
    assert shown(read(source)) == [("request-data-before-static", "question")]


ROUNDS = f'''
def ask(text, client, history):
    sent = history + [{{"role": "user", "content": text}}]
    if client.is_new:
        reply = client.chat.completions.create(model="m", messages=[{{"role": "system", "content": "Be kind."}}, *sent])
        return reply.text, sent + [{{"role": "assistant", "content": reply.text}}]
    reply = client.chat.completions.create(model="m", messages=sent)
    return reply.text, reply.messages


def rounds(client, ideas):
    for idea in ideas:
        history = []
        for number in range(5):
            head = f"Round {{number}}. "
            answer, history = ask(head + """{ORDERS}""" * 2, client, history)
'''


def test_a_conversation_that_a_call_gives_back_grows_from_round_to_round(read: Read) -> None:
    reading = read(ROUNDS)
    (prompt, *_) = [prompt for prompt in reading.prompts if prompt.origin == "sink"]
    assert any(hole.name == "history" for block in blocks_of(prompt.blocks) for hole in holes_of(block.segments))
    assert shown(reading) == []


def test_a_counter_ahead_of_the_conversation_is_a_fault_all_the_same(read: Read) -> None:
    source = ROUNDS.replace('"Be kind."', "text").replace("*sent]", "*history]")
    assert ("counter-in-prefix", "number") in shown(read(source))


DRAW = f'''
def advert(question):
    return f"""Create a picture for this brand: {{question}}

{ORDERS}"""


def run(client, question):
    prompt = advert(question)
    return CALL
'''


@pytest.mark.parametrize(
    "call",
    [
        "generate_ad_image(prompt)",
        "client.images.generate(prompt)",
        "text_to_speech(input=prompt)",
        "make_video(prompt=prompt)",
    ],
)
def test_what_goes_to_a_model_of_pictures_is_no_prompt(read: Read, call: str) -> None:
    assert shown(read(DRAW.replace("CALL", call))) == []


@pytest.mark.parametrize(
    "call", ["generate_image_prompt(prompt)", "describe_image(prompt)", "client.notes.generate(prompt)"]
)
def test_what_only_speaks_of_pictures_is_one(read: Read, call: str) -> None:
    assert shown(read(DRAW.replace("CALL", call))) == [("request-data-before-static", "question")]


def test_a_model_of_pictures_is_known_by_its_name(read: Read) -> None:
    source = (
        "from google import genai\n\nclient = genai.Client()\n\ndef draw(question):\n"
        f'    return client.models.generate_content(model="MODEL", contents=f"""{{question}}\n\n{ORDERS}""")\n'
    )
    assert shown(read(source.replace("MODEL", "gemini-2.5-flash-image"))) == []
    assert shown(read(source.replace("MODEL", "gemini-2.5-flash"))) == [("request-data-before-static", "question")]


TEMPLATE = f'PROMPT = """You are the assistant of a shop. The current date is {{{{currentDateTime}}}}. {ORDERS}"""\n'
FILL = "import datetime\n\ndef fill(system_prompt):\n    now = datetime.datetime.now()\n    return system_prompt.get().replace('{{NAME}}', now.strftime('%FORMAT'))\n"


@pytest.mark.parametrize(
    ("name", "spec", "volatility"),
    [
        ("currentDateTime", "Y-%m-%d", Volatility.DAY),
        ("currentDateTime", "H:%M", Volatility.REQUEST),
        ("currentDateTime", "B %Y", Volatility.PROCESS),
        ("other", "Y-%m-%d", Volatility.REQUEST),
    ],
)
def test_a_marker_is_printed_as_finely_as_where_it_is_filled(
    read: Read, name: str, spec: str, volatility: Volatility
) -> None:
    filled = FILL.replace("NAME", name).replace("FORMAT", spec)
    reading = read(**{"prompts.py": TEMPLATE, "serve.py": filled})
    (prompt,) = [prompt for prompt in reading.prompts if prompt.path.endswith("prompts.py")]
    (hole,) = (hole for block in blocks_of(prompt.blocks) for hole in holes_of(block.segments))
    assert isinstance(hole, Hole)
    assert hole.volatility is volatility
