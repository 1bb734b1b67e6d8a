"""What the front end reads of small programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from promptlint.ir import (
    Block,
    BlockChoice,
    BlockKind,
    BlockRepeat,
    Choice,
    Confidence,
    Growth,
    Hole,
    Prompt,
    Reading,
    Repeat,
    Text,
    Volatility,
    blocks_of,
    holes_of,
)

Sink = Callable[..., Prompt]
Read = Callable[..., Reading]


def blocks(prompt: Prompt) -> list[Block]:
    return list(blocks_of(prompt.blocks))


def holes(prompt: Prompt, block: int = 0) -> list[Hole]:
    return list(holes_of(blocks(prompt)[block].segments))


def fixed(prompt: Prompt, block: int = 0) -> str:
    return "".join(segment.value if isinstance(segment, Text) else "\0" for segment in blocks(prompt)[block].segments)


def chat(system: str, before: str = "", parameters: str = "client, question") -> str:
    return f"{before}\ndef ask({parameters}):\n    return client.chat.completions.create(model='m', messages=[{{'role': 'system', 'content': {system}}}])\n"


def kinds(hole: Hole) -> set[str]:
    return {origin.kind for origin in hole.origins if origin.confidence > Confidence.LOW}


# ---- sinks


def test_an_sdk_client_is_resolved_through_its_constructor_and_an_attribute(sink: Sink) -> None:
    prompt = sink(
        "from openai import OpenAI as Client\n\nclass Bot:\n    def __init__(self):\n        self.llm = Client()\n\n    def say(self, text):\n"
        "        return self.llm.chat.completions.create(model='gpt-4o', tools=None, messages=[{'role': 'user', 'content': text}])\n"
    )
    assert (prompt.sink, prompt.provider, prompt.model, prompt.confidence) == (
        "openai.chat.completions.create",
        "openai",
        "gpt-4o",
        Confidence.HIGH,
    )
    assert prompt.id == "app.py::Bot.say::openai.chat.completions.create"


def test_an_unknown_receiver_counts_at_medium_confidence_by_the_shape_of_the_call(sink: Sink) -> None:
    assert sink(chat("'x'")).confidence is Confidence.MEDIUM


def test_a_relative_import_never_gains_a_librarys_identity(read: Read) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/openai.py": "class OpenAI:\n    def __init__(self):\n        self.chat = None\n",
        "pkg/app.py": "from .openai import OpenAI\n\ndef ask():\n    return OpenAI().completions.create(prompt='You are a helper. ' * 40)\n",
    }
    assert all(prompt.provider is None for prompt in read(**files).prompts)


def test_system_and_tools_of_anthropic_and_a_cache_marker(sink: Sink) -> None:
    prompt = sink(
        "import anthropic\nRULES = 'Answer from the manual. ' * 9\nTOOLS = [{'name': 'find', 'description': 'Find it.'}]\n\ndef ask(text):\n"
        "    return anthropic.Anthropic().messages.create(model='m', max_tokens=1, tools=TOOLS,\n"
        "        system=[{'type': 'text', 'text': RULES, 'cache_control': {'type': 'ephemeral', 'ttl': '1h'}}],\n"
        "        messages=[{'role': 'user', 'content': text}])\n"
    )
    assert [block.kind for block in blocks(prompt)] == [BlockKind.TOOLS, BlockKind.SYSTEM, BlockKind.QUESTION]
    system = blocks(prompt)[1]
    assert (system.name, system.breakpoint and system.breakpoint.line, system.breakpoint_ttl) == ("RULES", 7, "1h")
    assert fixed(prompt, 0) == '[{"name": "find", "description": "Find it."}]'


@pytest.mark.parametrize("tool", ["SearchResults()", "tools.GetThread(api=key)", "NewsTools.find"])
def test_a_tool_made_by_a_librarys_class_is_fixed_whatever_the_class_is_called(sink: Sink, tool: str) -> None:
    prompt = sink(
        "import litellm, tools\nfrom tools import NewsTools, SearchResults\nkey = 1\n"
        f"litellm.completion(model='m', tools=[{tool}], messages=[])"
    )
    (hole,) = holes(prompt)
    assert (hole.volatility, hole.kind) == (Volatility.PROCESS, BlockKind.TOOLS)


def test_a_wrapper_is_seen_through_and_the_prompt_belongs_to_where_its_text_is(sink: Sink) -> None:
    prompt = sink(
        "def send(client, messages):\n    return client.chat.completions.create(model='m', messages=messages)\n\n"
        "def ask(client, question):\n    return send(client, [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': question}])\n"
    )
    assert prompt.function == "ask"
    assert fixed(prompt) == "Be brief."


def test_two_callers_with_different_constants_are_two_prompts(read: Read) -> None:
    reading = read(
        "def send(client, system):\n    return client.chat.completions.create(messages=[{'role': 'system', 'content': system}])\n\n"
        "def one(client):\n    return send(client, 'First text.')\n\ndef two(client):\n    return send(client, 'Second text.')\n"
    )
    assert {fixed(prompt) for prompt in reading.prompts} == {"First text.", "Second text."}


def test_a_loop_with_a_growing_history_is_a_conversation(sink: Sink) -> None:
    prompt = sink(
        "def run(client, task):\n    messages = [{'role': 'system', 'content': 'Act.'}]\n    step = 0\n    while True:\n        step += 1\n"
        "        messages[0] = {'role': 'system', 'content': f'Act. Step {step}.'}\n        reply = client.chat.completions.create(messages=messages)\n"
        "        messages.append({'role': 'assistant', 'content': reply.text})\n"
    )
    assert prompt.in_loop
    assert "counter" in kinds(holes(prompt)[0])
    assert any(isinstance(node, BlockRepeat) and node.growth is Growth.APPEND for node in prompt.blocks)


# ---- volatility


@pytest.mark.parametrize(
    ("expression", "volatility"),
    [
        ("dt.datetime.now()", Volatility.REQUEST),
        ("dt.datetime.now().isoformat()", Volatility.REQUEST),
        ("dt.datetime.now().strftime('%Y-%m-%d')", Volatility.DAY),
        ("dt.datetime.now().strftime('%Y-%m-%d %H:%M')", Volatility.REQUEST),
        ("dt.datetime.now().date()", Volatility.DAY),
        ("dt.date.today()", Volatility.DAY),
        ("format(dt.datetime.now(), '%d %B')", Volatility.DAY),
        ("dt.datetime.now().isoformat()[:10]", Volatility.DAY),
        ("today()", Volatility.DAY),
        ("STARTED", Volatility.PROCESS),
        ("stamp", Volatility.PROCESS),
        ("once()", Volatility.PROCESS),
    ],
)
def test_a_clock_by_whatever_road(sink: Sink, expression: str, volatility: Volatility) -> None:
    before = (
        "import datetime as dt\nimport functools\nSTARTED = dt.datetime.now()\n\ndef today():\n    now = dt.datetime.now()\n    return now.strftime('%A')\n\n"
        "@functools.cache\ndef once():\n    return dt.datetime.now()\n"
    )
    prompt = sink(chat(f"f'Now {{{expression}}} rules'", before, "client, stamp=dt.datetime.now()"))
    (hole,) = holes(prompt)
    assert hole.volatility is volatility
    assert "clock" in kinds(hole)


def test_what_is_read_at_import_says_so(sink: Sink) -> None:
    prompt = sink(
        chat("INTRO", "from datetime import datetime\nINTRO = f'Today is {datetime.now()}. Follow the rules.'\n")
    )
    (hole,) = holes(prompt)
    assert [origin.at_import for origin in hole.origins] == [True]
    assert (hole.span.line, hole.volatility) == (2, Volatility.PROCESS)


@pytest.mark.parametrize(
    "expression",
    [
        "', '.join({question, 'a'})",
        "', '.join(set(names))",
        "', '.join({n for n in names})",
        "str({'a', 'b'} | set(names))",
        "', '.join(tags)",
    ],
)
def test_the_order_of_a_set_is_an_origin(sink: Sink, expression: str) -> None:
    prompt = sink(chat(f"'Use ' + {expression} + ' well'", "", "client, question, names, tags: set[str]"))
    assert "unordered" in kinds(holes(prompt)[0])


@pytest.mark.parametrize(
    "expression",
    ["', '.join(sorted({'b', 'a'}))", "', '.join(sorted(set(names)))", "', '.join(['b', 'a'])", "', '.join({'only'})"],
)
def test_sorting_is_the_barrier(sink: Sink, expression: str) -> None:
    prompt = sink(chat(f"'Use ' + {expression}", "", "client, question, names"))
    assert all("unordered" not in kinds(hole) for hole in holes(prompt))


def test_the_order_of_turns_is_in_none_of_their_prompts(sink: Sink) -> None:
    prompt = sink(
        "import os, litellm\ndef run(folder):\n    for name in os.listdir(folder):\n"
        "        litellm.completion(model='m', messages=[{'role': 'user', 'content': f'Look at {name} closely.'}])"
    )
    (hole,) = holes(prompt)
    assert "listing" not in {origin.kind for origin in hole.origins}


def test_a_known_name_gives_medium_confidence_and_an_unknown_one_low(sink: Sink) -> None:
    prompt = sink(chat("f'{user_name} {xq7}'", "", "client, user_name, xq7"))
    assert [(hole.volatility, hole.confidence) for hole in holes(prompt)] == [
        (Volatility.USER, Confidence.MEDIUM),
        (Volatility.REQUEST, Confidence.LOW),
    ]


# ---- text


def test_slots_of_a_constant_stand_in_the_constant(sink: Sink) -> None:
    files = {
        "texts.py": 'GUIDE = """You help.\n\nToday: {date}\nUser: {name}\nFollow the rules."""\n',
        "app.py": "from datetime import datetime\nimport texts\n\nclass Bot:\n    def __init__(self, client, prompt=None):\n        self.prompt = prompt or texts.GUIDE\n        self.client = client\n\n"
        "    def ask(self, person):\n        system = self.prompt.format(name=person.name, date=datetime.now())\n        return self.client.chat.completions.create(messages=[{'role': 'system', 'content': system}])\n",
    }
    prompt = sink(**files)
    assert [(hole.span.path, hole.span.line, hole.expression) for hole in holes(prompt)] == [
        ("texts.py", 3, "date"),
        ("texts.py", 4, "name"),
    ]
    clock = holes(prompt)[0]
    assert kinds(clock) == {"clock"}
    assert ("app.py", 10) in {(step.span.path, step.span.line) for step in clock.steps}


def test_every_way_of_filling_keeps_the_order_of_the_template(sink: Sink) -> None:
    for expression in (
        "'%(b)s-%(a)s' % {'a': one, 'b': two}",
        "'{b}-{a}'.format(a=one, b=two)",
        "'{1}-{0}'.format(one, two)",
        "Template('$b-$a').substitute(a=one, b=two)",
        "'{b}-{a}'.format_map(dict(a=one, b=two))",
    ):
        prompt = sink(chat(expression, "from string import Template\n", "client, one, two"))
        assert fixed(prompt) == "\0-\0"
        assert [origin.expression for hole in holes(prompt) for origin in hole.origins] == ["two", "one"]


def test_branches_stay_in_the_tree(sink: Sink) -> None:
    prompt = sink(
        "def ask(client, debug):\n    s = 'Head. '\n    if debug:\n        s += 'Debug. '\n    s += 'Tail.'\n    return client.chat.completions.create(messages=[{'role': 'system', 'content': s}])\n"
    )
    head, choice, tail = blocks(prompt)[0].segments
    assert isinstance(choice, Choice)
    assert isinstance(head, Text)
    assert isinstance(tail, Text)
    assert [len(arm) for arm in choice.arms] == [1, 0]
    assert choice.guard.expression == "debug"


def test_a_join_over_a_comprehension_is_a_repeat(sink: Sink) -> None:
    prompt = sink(chat("'\\n'.join(f'- {p.text}' for p in passages)", "", "client, passages"))
    (repeat,) = blocks(prompt)[0].segments
    assert isinstance(repeat, Repeat)
    assert repeat.separator == "\n"
    assert (repeat.over.name, repeat.over.expression) == ("passages", "p.text")  # where an element is printed


def test_an_overridden_method_and_super(read: Read) -> None:
    reading = read(
        "import time\n\nclass Base:\n    def __init__(self, client):\n        self.client = client\n\n    def head(self):\n        return 'Be kind.'\n\n    def ask(self):\n"
        "        return self.client.chat.completions.create(messages=[{'role': 'system', 'content': self.head() + ' Rules.'}])\n\n"
        "class Timed(Base):\n    def head(self):\n        return super().head() + f' It is {time.time()}.'\n"
    )
    assert {fixed(prompt) for prompt in reading.prompts if prompt.origin == "sink"} == {
        "Be kind. Rules.",
        "Be kind. It is \0. Rules.",
    }


def test_a_template_object_of_a_library_with_partial_bindings_and_a_pipe(sink: Sink) -> None:
    prompt = sink(
        "from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder\nfrom langchain_openai import ChatOpenAI\n\ndef node(state):\n"
        "    prompt = ChatPromptTemplate.from_messages([('system', 'Help. Date {current_date}. {system_message}'), MessagesPlaceholder(variable_name='messages')])\n"
        "    prompt = prompt.partial(system_message='Long rules.')\n    prompt = prompt.partial(current_date=state['trade_date'])\n"
        "    chain = prompt | ChatOpenAI(model='m')\n    return chain.invoke({'messages': state['messages']})\n"
    )
    assert fixed(prompt) == "Help. Date \0. Long rules."
    assert holes(prompt)[0].expression == "current_date"
    assert blocks(prompt)[1].kind is BlockKind.HISTORY


def test_jinja_text_with_the_values_of_render(sink: Sink) -> None:
    prompt = sink(
        chat(
            "Template('Now {{ now }}.{% if x %} More.{% endif %} End').render(now=datetime.now())",
            "from datetime import datetime\nfrom jinja2 import Template\n",
        )
    )
    assert "clock" in kinds(holes(prompt)[0])
    assert any(isinstance(segment, Choice) for segment in blocks(prompt)[0].segments)


# ---- prompts without a sink


PROSE = "You are a careful assistant. You must answer the question of the user with the context below. Always cite the passages that you use, and do not invent facts. If you do not know, say so. "


def test_a_text_that_looks_like_a_prompt_needs_no_sink(read: Read) -> None:
    (prompt,) = read(f'ANSWER_PROMPT = """{PROSE}\nContext: {{context}}\n\n{PROSE}"""\n').prompts
    assert (prompt.origin, prompt.confidence) == ("template", Confidence.MEDIUM)
    assert [(hole.expression, hole.span.line) for hole in holes(prompt)] == [("context", 2)]


def test_a_text_that_a_sink_covers_is_not_reported_again(read: Read) -> None:
    source = f'P = """{PROSE} {{context}} {PROSE}"""\n\ndef ask(client, context):\n    return client.chat.completions.create(messages=[{{"role": "user", "content": P.format(context=context)}}])\n'
    assert [prompt.origin for prompt in read(source).prompts] == ["sink"]


def test_sql_and_log_lines_are_no_prompts(read: Read) -> None:
    assert (
        read(
            "Q = 'SELECT name, prompt FROM users WHERE id = {id} AND role = {role} ORDER BY name LIMIT 10 -- ' + 'x' * 200\n"
        ).prompts
        == ()
    )


def test_a_list_of_messages_without_a_sink(read: Read) -> None:
    (prompt,) = read(
        "def build(question):\n    return [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': question}]\n"
    ).prompts
    assert prompt.origin == "messages"


# ---- robustness


def test_files_in_newer_syntax(sink: Sink) -> None:
    source = (
        "type Name = str\n\ndef first[T](items: list[T]) -> T:\n    return items[0]\n\ndef ask(client, user, items):\n    try:\n        pass\n    except ValueError, KeyError:\n        pass\n"
        "    return client.chat.completions.create(messages=[{'role': 'system', 'content': f'Hé {user['name']} and {'\\n'.join(items)} end'}])\n"
    )
    prompt = sink(source)
    assert fixed(prompt) == "Hé \0 and \0 end"
    assert holes(prompt)[0].expression == "user['name']"


def test_what_nothing_can_read_is_reported_and_the_run_goes_on(read: Read) -> None:
    reading = read(**{"bad.py": "def prompt(:\n", "good.py": chat("'x'")})
    assert len(reading.prompts) == 1
    assert [(unread.path, unread.line) for unread in reading.unread] == [("bad.py", 1)]


def test_deep_nesting_and_recursion_do_not_crash(read: Read) -> None:
    deep = "x = " + "+".join(["'prompt'"] * 3000) + "\ny = " + "(" * 150 + "1" + ")" * 150 + "\n"
    loop = "def prompt(n):\n    return 'You are. ' + prompt(n - 1)\n\n" + chat("prompt(3)")
    assert len(read(**{"deep.py": deep, "loop.py": loop}).prompts) == 1


def test_a_prompt_from_a_database_is_not_read(sink: Sink) -> None:
    prompt = sink(chat("db.fetch_one(question)", "", "client, db, question"))
    assert prompt.resolution < 1
    assert prompt.unresolved


# ---- files


def test_a_text_file_keeps_its_own_places(read: Read, tmp_path: object) -> None:
    files = {
        "prompts/system.md": "You help.\nToday is {date}.\nFollow the rules.\n",
        "app.py": "from pathlib import Path\nfrom datetime import datetime\nTEXT = (Path(__file__).parent / 'prompts' / 'system.md').read_text()\n"
        + chat("TEXT.format(date=datetime.now())"),
    }
    (prompt,) = [prompt for prompt in read(**files).prompts if prompt.origin == "sink"]
    (hole,) = holes(prompt)
    assert (hole.span.path, hole.span.line) == ("prompts/system.md", 2)
    assert "clock" in kinds(hole)


def test_yaml_and_a_template_folder(read: Read) -> None:
    files = {
        "conf.yaml": "agent:\n  system: |\n    Hello there.\n    Ask {question} now.\n",
        "templates/t.jinja": "Dear {{ query }}\nend",
        "app.py": "import yaml\nfrom jinja2 import Environment, FileSystemLoader\nwith open('conf.yaml') as f:\n    CONF = yaml.safe_load(f)\nenv = Environment(loader=FileSystemLoader('templates'))\n"
        + chat(
            "CONF['agent']['system'].format(question=question) + env.get_template('t.jinja').render(query=question)"
        ),
    }
    (prompt,) = [prompt for prompt in read(**files).prompts if prompt.origin == "sink"]
    assert fixed(prompt) == "Hello there.\nAsk \0 now.\nDear \0\nend"
    assert holes(prompt)[0].span.path == "conf.yaml"


# ---- what a value is, and what merely holds one


def test_a_field_left_at_none_is_a_hole_by_its_owner_and_name(sink: Sink) -> None:
    prompt = sink(
        "from pydantic import BaseModel\n\nclass EnvState(BaseModel):\n    place: str | None = None\n\nclass Agent:\n    def __init__(self, client):\n"
        "        self.client = client\n        self.persona = None\n\n    def act(self, env_state: EnvState):\n"
        "        return self.client.chat.completions.create(messages=[{'role': 'system', 'content': f'{self.persona} You are at {env_state.place}.'}])\n"
    )
    assert fixed(prompt) == "\0 You are at \0."
    assert [hole.volatility for hole in holes(prompt)] == [Volatility.PROCESS, Volatility.TURN]


def test_a_clock_in_one_field_makes_no_clock_of_what_holds_it(sink: Sink) -> None:
    prompt = sink(
        "import time, uuid\n\nclass Event:\n    def __init__(self, text):\n        self.text = text\n        self.at = time.time()\n        self.key = uuid.uuid4()\n\n"
        "def ask(client, patch, store):\n    event = Event(patch)\n    log = {'at': time.time(), 'what': patch}\n    found = store.lookup(time.time(), log)\n"
        "    return client.chat.completions.create(messages=[{'role': 'system', 'content': f'{event} {found} {len(log)} {store.show(event)} {event.at}'}])\n"
    )
    *held, read_ = holes(prompt)
    assert [kinds(hole) & {"clock", "random"} for hole in held] == [set()] * len(held)
    assert kinds(read_) == {"clock"}


def test_a_set_that_only_answers_whether_something_is_in_it_orders_nothing(sink: Sink) -> None:
    prompt = sink(
        "def ask(client, names, extra):\n    hidden = set(extra)\n    text = 'You are a helper. '\n    if 'math' in hidden and hidden:\n        text += 'No math. '\n"
        "    return client.chat.completions.create(messages=[{'role': 'system', 'content': text + ', '.join(hidden)}])\n"
    )
    choice = next(segment for segment in blocks(prompt)[0].segments if isinstance(segment, Choice))
    assert "unordered" not in {origin.kind for origin in choice.guard.origins}
    assert "unordered" in kinds(holes(prompt)[-1])


def test_the_turns_of_a_loop_that_sends_are_a_counter_and_not_unrolled(sink: Sink) -> None:
    prompt = sink(
        "def agent(client, task):\n    messages = [{'role': 'user', 'content': task}]\n    for step in range(5):\n"
        "        reply = client.chat.completions.create(messages=[{'role': 'system', 'content': f'Step {step}. Be brief.'}, *messages])\n"
        "        messages.append({'role': 'assistant', 'content': reply.text})\n"
    )
    assert prompt.in_loop
    assert fixed(prompt) == "Step \0. Be brief."
    (origin,) = holes(prompt)[0].origins
    assert (origin.kind, origin.volatility, origin.expression) == ("counter", Volatility.TURN, "step")


@pytest.mark.parametrize(
    "body",
    [
        "for i, note in enumerate(notes):\n        text += f'{i + 1}. {note}\\n'",
        "n = 0\n    for note in notes:\n        n += 1\n        text += f'{n}. {note}\\n'",
        "for i in range(len(notes)):\n        text += f'{i}. {notes[i]}\\n'",
        "for step in notes:\n        text += f'- {step}\\n'",
        "while notes:\n        text += notes.pop()",
    ],
)
def test_numbers_in_a_list_of_texts_are_no_counter(sink: Sink, body: str) -> None:
    prompt = sink(
        f"def ask(client, notes):\n    text = 'Notes:\\n'\n    {body}\n" + chat("text", "", "").split("\n", 2)[2]
    )
    (block,) = blocks(prompt)
    repeat = block.segments[-1]
    assert isinstance(repeat, Repeat)
    assert not any("counter" in kinds(hole) for hole in holes(prompt))


def test_what_is_looped_over_shows_where_an_element_is_printed(sink: Sink) -> None:
    prompt = sink(
        "def ask(client, passages):\n    text = 'Context:\\n'\n    for passage in passages:\n        text += f'- {passage}\\n'\n"
        "    return client.chat.completions.create(messages=[{'role': 'user', 'content': text}])\n"
    )
    repeat = blocks(prompt)[0].segments[-1]
    assert isinstance(repeat, Repeat)
    assert (repeat.over.span.line, repeat.over.name) == (4, "passages")


def test_a_clock_put_in_place_of_a_marker_stands_amid_a_text_that_is_not_read(sink: Sink) -> None:
    prompt = sink(
        "import datetime as dt\n\ndef ask(client, store, key):\n    text = store.load(key).prompt\n"
        "    text = text.replace('{who}', 'Bob').replace('{now}', dt.datetime.now().isoformat())\n"
        + chat("text", "", "").split("\n", 2)[2]
    )
    before, clock, after = holes(prompt)
    assert (before, kinds(clock), clock.confidence) == (after, {"clock"}, Confidence.MEDIUM)
    assert before.volatility < clock.volatility
    assert before.kind is BlockKind.SYSTEM


def test_replacing_what_is_no_marker_brings_no_clock(sink: Sink) -> None:
    prompt = sink(
        "import time\n\ndef ask(client, text):\n    text = text.replace('old words', str(time.time()))\n"
        + chat("text", "", "").split("\n", 2)[2]
    )
    assert all("clock" not in kinds(hole) for hole in holes(prompt))


def test_the_guard_of_a_field_is_the_condition_around_its_write(sink: Sink) -> None:
    prompt = sink(
        "class Bot:\n    def __init__(self, client):\n        self.client = client\n        self.mood = 'You are calm. '\n\n"
        "    def upset(self, angry):\n        if angry:\n            self.mood = 'You are angry. '\n\n"
        "    def ask(self):\n        return self.client.chat.completions.create(messages=[{'role': 'system', 'content': self.mood + 'Answer.'}])\n"
    )
    choice = next(segment for segment in blocks(prompt)[0].segments if isinstance(segment, Choice))
    assert choice.guard.expression == "angry"


def test_parts_of_a_message_that_are_there_under_a_condition(sink: Sink) -> None:
    prompt = sink(
        "def ask(client, notes, question):\n    parts = []\n    if notes:\n        lines = '\\n'.join({f'- {n}' for n in notes})\n"
        "        parts += [{'type': 'text', 'text': f'Notes:\\n{lines}'}]\n    for image in question.images:\n        parts.append({'type': 'text', 'text': image})\n"
        "    return client.chat.completions.create(messages=[{'role': 'user', 'content': parts}])\n"
    )
    optional, repeated = prompt.blocks
    assert isinstance(optional, BlockChoice)
    assert isinstance(repeated, BlockRepeat)
    assert "unordered" in kinds(holes(prompt)[0])


def matched(prompt: Prompt) -> str:
    """The first block's text: each repeat as `<body|separator>`, each choice as `[arm|arm]`, a hole as `_`."""

    def shown(segments: tuple[object, ...]) -> str:
        pieces = []
        for segment in segments:
            if isinstance(segment, Text):
                pieces.append(segment.value)
            elif isinstance(segment, Repeat):
                pieces.append(f"<{shown(segment.body)}|{segment.separator}>")
            elif isinstance(segment, Choice):
                pieces.append("[" + "|".join(shown(arm) for arm in segment.arms) + "]")
            else:
                pieces.append("_")
        return "".join(pieces)

    return shown(blocks(prompt)[0].segments)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("' '.join(f'- {d}' for d in docs if d)", "<- _| >"),
        ("''.join(f'- {d};' for d in docs).strip(';')", "<- _|;>"),
        ("''.join(f'- {d};' for d in docs).lstrip('-')", "< _;|->"),
        ("('head\\n' + ''.join(f'{d}\\n' for d in docs)).strip()", "head[\n|]<_|\n>"),
        ("('a ' if docs else 'b  ').rstrip()", "[a|b]"),
        ("f'a {docs[0]}'.strip()", "a[ |]_"),
        ("('a\\n' + ' '.join(f'{d} b' for d in docs)).strip()", "a[\n|]<_ b| >"),
        ("' '.join(f'{d} b ' for d in docs).strip()", "<_ b[ |]| >"),
        ("(''.join(f'{d}\\n' for d in docs) + ('b' if docs else '')).strip()", "<_|\n>[\n|][b|]"),
        ("('a\\n' + ('b ' if docs else '')).strip()", "a[\nb|]"),
        ("('a\\n' + ((docs[0] if docs else 'c') if client else '')).rstrip()", "a[[[\n|]_|\nc]|]"),
        ("(('b' if docs else '') + '\\na').strip()", "[b\n|]a"),
        ("'\\n'.join(['a' if docs else 'b', docs[0] if client else 'c ']).strip()", "[a|b][[\n|]_|\nc]"),
    ],
)
def test_blanks_at_the_end_of_loops_and_choices(sink: Sink, text: str, expected: str) -> None:
    assert matched(sink(chat(text, "", "client, docs"))) == expected


def test_texts_of_a_counted_loop_hold_any_number(sink: Sink) -> None:
    prompt = sink(
        "def ask(client, question):\n    text, n = 'Rules. ', 0\n    while n < 2:\n        text += f'{n} more '\n        n += 1\n"
        "    return client.chat.completions.create(messages=[{'role': 'system', 'content': text}])\n"
    )
    assert matched(prompt) == "Rules. <_ more |>"


def test_a_class_in_a_function_sees_the_names_around_it(sink: Sink) -> None:
    prompt = sink(
        "def ask(client, question):\n    rules = 'Answer briefly. '\n\n    class Writer:\n        def __init__(self, tone):\n            self.lead = rules + tone\n\n"
        "        def text(self):\n            return self.lead + rules\n\n"
        "    return client.chat.completions.create(messages=[{'role': 'system', 'content': Writer('Be kind. ').text()}])\n"
    )
    assert fixed(prompt) == "Answer briefly. Be kind. Answer briefly. "


@pytest.mark.parametrize("pick", ["WRITERS[style]", "WRITERS.get(style)", "WRITERS.get(style, plain)"])
def test_a_table_of_functions_is_a_choice(sink: Sink, pick: str) -> None:
    prompt = sink(
        "def plain(x):\n    return f'Plain: {x}'\n\ndef rich(x):\n    return f'Rich: {x}'\n\nWRITERS = {'plain': plain, 'rich': rich}\n\n"
        + chat(f"{pick}(question)", "", "client, question, style")
    )
    assert matched(prompt) == "[Plain: _|Rich: _]"


def test_a_registry_that_a_decorator_fills_is_a_choice(sink: Sink) -> None:
    prompt = sink(
        "WRITERS = {}\n\ndef writes(name):\n    def wrap(function):\n        WRITERS[name] = function\n        return function\n    return wrap\n\n"
        "@writes('plain')\ndef plain(x):\n    return f'Plain: {x}'\n\n@writes('rich')\ndef rich(x):\n    return f'Rich: {x}'\n\n"
        + chat("WRITERS[style](question)", "", "client, question, style")
    )
    assert matched(prompt) == "[Plain: _|Rich: _]"


def test_a_pulled_prompt_in_a_pipe_that_is_called_at_once_is_not_read(sink: Sink) -> None:
    prompt = sink(
        "from langchain import hub\nfrom langchain_openai import ChatOpenAI\n\nprompt = hub.pull('team/answer')\n\n"
        "def ask(question):\n    return (prompt | ChatOpenAI()).invoke({'question': question})\n"
    )
    assert prompt.resolution == 0
    assert {one.reason for one in prompt.unresolved} == {"hub"}


def test_the_text_of_an_object_of_a_longer_file(sink: Sink) -> None:
    notes = "# one\n# two\n# three\n# é\n# five\n# six\n\n\nclass Note:\n    def __str__(self):\n        return 'A note. '\n"
    app = "from notes import Note\ndef ask(client):\n    return client.chat.completions.create(messages=[{'role': 'system', 'content': f'{Note()}é'}])\n"
    assert fixed(sink(**{"notes.py": notes, "app.py": app})) == "A note. é"


def test_a_template_is_not_read_alone_where_its_slots_are_seen_filled(read: Read) -> None:
    reading = read(
        "from langchain_core.prompts import PromptTemplate\n"
        "PICK = PromptTemplate.from_template('You pick data sources for the question of a user. Which would you use?\\n{sources}\\n'\n"
        "    'Answer with JSON only, and give a reason for each of the sources that you pick, please.\\nQ: {query}')\n"
        "KNOWN = {'notes': 'what the user wrote', 'web': 'what others wrote'}\n"
        "def choose(query, flags):\n    text = ''\n    for name, told in KNOWN.items():\n        if flags.get(name):\n"
        "            text += f'- {name}: {told}\\n'\n    return send(PICK.format(sources=text, query=query))\n"
    )
    names = {hole.name for prompt in reading.prompts for block in blocks(prompt) for hole in holes_of(block.segments)}
    assert "query" in names
    assert "sources" not in names


PICK = (
    "from langchain_core.prompts import PromptTemplate\n"
    "PICK = PromptTemplate.from_template('You pick data sources for the question of a user. Which would you use?\\n{sources}\\n'\n"
    "    'Answer with JSON only, and give a reason for each of the sources that you pick, please.\\nQ: {query}\\n{zzz}')\n"
    "KNOWN = {'notes': 'what the user wrote', 'web': 'what others wrote'}\n"
    "def choose(query, zzz, flags):\n    text = ''\n    for name, told in KNOWN.items():\n        if flags.get(name):\n"
    "            text += f'- {name}: {told}\\n'\n    return send(PICK.format(sources=text, query=query, zzz=zzz))\n"
)


def test_a_slot_that_is_seen_filled_is_not_judged_by_its_name(read: Read) -> None:
    """Beside another slot, of which nothing is known."""
    holes = [hole for prompt in read(PICK).prompts for block in blocks(prompt) for hole in holes_of(block.segments)]
    assert {hole.confidence for hole in holes if hole.name == "sources"} == {Confidence.LOW}
    assert max(hole.confidence for hole in holes if hole.name == "query") is Confidence.MEDIUM


def test_the_month_of_a_date_that_is_put_together_is_short(sink: Sink) -> None:
    prompt = sink(
        "from datetime import datetime\ndef ask(client):\n    now = datetime.now()\n"
        "    return client.chat.completions.create(messages=[{'role': 'system', 'content': f'{now:%b} {now.day}, {now:%Y}'}])\n"
    )
    (block,) = blocks(prompt)
    assert [hole.tokens for hole in holes_of(block.segments)] == [2, None, 2]


def test_what_is_read_of_none_is_not_known(sink: Sink) -> None:
    """The call that gives it is put there later, by a subclass or at run time."""
    prompt = sink(
        "class Store:\n    zzz = None\n    def ask(self, client):\n"
        "        return client.chat.completions.create(messages=[{'role': 'system', 'content': f'{self.zzz.dtypes}'}])\n"
    )
    (block,) = blocks(prompt)
    assert all(
        hole.confidence < Confidence.HIGH and hole.volatility > Volatility.STATIC for hole in holes_of(block.segments)
    )


@pytest.mark.parametrize("name", ["system", "system_prompt", "system_text"])
def test_a_variable_for_the_system_text_that_is_given_first(sink: Sink, name: str) -> None:
    (block,) = blocks(sink(f"def ask(llm, {name}, history):\n    return llm.chat({name}, history)\n"))
    assert block.kind is BlockKind.SYSTEM


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("f'{rows:>12}'", "__"),  # blanks, then the rows
        ("f'{rows:<12}'", "__"),
        ("f'{rows:^12}'", "___"),
        ("'%12s' % rows", "__"),
        ("f'{rows:>3}'", "_"),  # never shorter than three
        ("f'{rows:s}'", "_"),
        ("'%s' % rows", "_"),
    ],
)
def test_a_text_may_be_shorter_than_its_width(sink: Sink, shown: str, expected: str) -> None:
    prompt = sink(
        "def ask(client, note):\n    rows = 'Row' + note\n"
        f"    return client.chat.completions.create(messages=[{{'role': 'system', 'content': {shown} + ' end'}}])\n"
    )
    assert matched(prompt).replace("Row", "") == expected + " end"


def test_a_text_that_is_cut_keeps_no_certain_character(sink: Sink) -> None:
    prompt = sink(
        "def ask(client, note):\n    rows = 'Row' + note\n"
        "    return client.chat.completions.create(messages=[{'role': 'system', 'content': f'{rows:.2}!'}])\n"
    )
    assert matched(prompt) == "_!"
