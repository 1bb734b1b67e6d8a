"""Each habit is found where it is written, and its look-alikes stay silent."""

import ast
import textwrap
import time

import pytest

from promptlint.frontends.python.history import edits
from promptlint.ir import Confidence, HistoryEdit
from promptlint.source import SourceFile

HEAD = 'USER = {"role": "user", "content": "hello"}\n'


def read(program: str) -> tuple[HistoryEdit, ...]:
    text = HEAD + textwrap.dedent(program)
    return edits(ast.parse(text), SourceFile("app.py", text))


def found(program: str) -> list[tuple[str, str]]:
    """Kind and text of the source at the span, of what is shown by default."""
    text = HEAD + textwrap.dedent(program)
    source = SourceFile("app.py", text)
    return [
        (edit.op, source.slice(edit.span))
        for edit in edits(ast.parse(text), source)
        if edit.confidence >= Confidence.MEDIUM
    ]


FLAGGED = {
    "deque that is sent": (
        "from collections import deque\nclass Bot:\n    def __init__(self):\n        self.history = deque(maxlen=20)\n    def say(self, text):\n        self.history.append({'role': 'user', 'content': text})\n        print(len(self.history))\n        return self.llm.chat(list(self.history))\n",
        [("window", "deque(maxlen=20)")],
    ),
    "last n, copied": (
        "def recent(messages):\n    return messages[-10:].copy()\n",
        [("window", "messages[-10:]")],
    ),
    "last n of a tool box, sent from there": (
        "class BrowserToolkit:\n    def observe(self, llm):\n        text = ''\n        for m in self.history[-5:]:\n            text += m['content']\n        llm.chat([{'role': 'user', 'content': text}])\n",
        [("window", "self.history[-5:]")],
    ),
    "last n, sent by the caller": (
        "def recent(messages):\n    return messages[-10:]\ndef ask(llm, messages):\n    log(len(recent(messages)))\n    return llm.chat(recent(messages))\n",
        [("window", "messages[-10:]")],
    ),
    "newest that fit, of both sides": (
        "def fit(turns, budget):\n    kept = []\n    for t in reversed(turns):\n        if t.role == 'user' or t.pinned:\n            kept.append(t)\n            if len(kept) >= budget:\n                break\n    return kept\n",
        [("window", "len(kept) >= budget")],
    ),
    "last n, returned": (
        "def recent(messages):\n    return messages[-10:]\n",
        [("window", "messages[-10:]")],
    ),
    "head and last n": (
        "def fit(self, messages):\n    kept = [messages[0]] + messages[-2 * self.k :]\n    return self.llm.chat(kept)\n",
        [("window", "messages[-2 * self.k :]")],
    ),
    "last n as text of another prompt": (
        "def ask(llm, history):\n    text = \"\\n\".join(f\"{m['role']}: {m['content']}\" for m in history[-6:])\n    return llm.complete(text)\n",
        [("window", "history[-6:]")],
    ),
    "bound through a default": (
        "def form(history, limit=-6):\n    out = ''\n    for h in history[limit:]:\n        out += h['content']\n    return out\n",
        [("window", "history[limit:]")],
    ),
    "bound through a local": (
        "def form(chat_history, n):\n    start = len(chat_history) - n\n    return [m for m in chat_history[start:]]\n",
        [("window", "chat_history[start:]")],
    ),
    "kept on the object": (
        "class Bot:\n    def add(self, message):\n        self.messages.append({'role': 'user', 'content': message})\n        self.messages = self.messages[-20:]\n",
        [("window", "self.messages[-20:]")],
    ),
    "pop from the front over a budget": (
        "def trim(messages, limit):\n    while count_tokens(messages) > limit:\n        messages.pop(0)\n    return messages\n",
        [("pop-front", "messages.pop(0)")],
    ),
    "behind the system message": (
        "def trim(messages, limit):\n    while len(messages) > limit:\n        messages.pop(1)\n",
        [("pop-front", "messages.pop(1)")],
    ),
    "delete a stretch": ("def trim(messages, n):\n    del messages[1:n]\n", [("pop-front", "del messages[1:n]")]),
    "delete what does not fit": (
        "def trim(messages, limit):\n    total, start = 0, 0\n    for i in reversed(range(len(messages))):\n        total += len(messages[i]['content'])\n        if total > limit:\n            start = i\n            break\n    del messages[0:start]\n",
        [("pop-front", "del messages[0:start]")],
    ),
    "pop in the middle": (
        "def trim(messages, limit):\n    while tokens(messages) > limit:\n        middle = len(messages) // 2\n        messages.pop(middle)\n",
        [("pop-middle", "messages.pop(middle)")],
    ),
    "deque": (
        "from collections import deque\nclass Bot:\n    def __init__(self):\n        self.history = deque(maxlen=20)\n    def say(self, text):\n        self.history.append({'role': 'user', 'content': text})\n",
        [("window", "deque(maxlen=20)")],
    ),
    "newest that fit": (
        "def fit(messages, budget):\n    kept, total = [], 0\n    for m in reversed(messages):\n        total += len(m['content'])\n        if total > budget:\n            break\n        kept.insert(0, m)\n    return kept\n",
        [("window", "total > budget")],
    ),
    "newest that fit, break in the other arm": (
        "def fit(messages, budget):\n    kept, total = [], 0\n    for m in messages[::-1]:\n        if total + size(m) <= budget:\n            kept.append(m)\n        else:\n            break\n    return kept[::-1]\n",
        [("window", "total + size(m) <= budget")],
    ),
    "system and the last only": (
        "def fit(msg, limit):\n    kept = [m for m in msg if m['role'] == 'system']\n    kept.append(msg[-1])\n    return kept\n",
        [("window", "[m for m in msg if m['role'] == 'system']")],
    ),
    "retrieved text at the front of a lasting list": (
        "class Bot:\n    def ask(self, question):\n        memories = self.store.search(question)\n        self.messages.insert(0, {'role': 'system', 'content': f'Known: {memories}'})\n        return self.llm.chat(self.messages)\n",
        [("insert-front", "self.messages.insert(0, {'role': 'system', 'content': f'Known: {memories}'})")],
    ),
    "element 0 again each turn": (
        "class Bot:\n    def ask(self, question):\n        self.messages[0]['content'] = f'Today is {now()}. Help.'\n        return self.llm.chat(self.messages)\n",
        [("set-front", "self.messages[0]['content'] = f'Today is {now()}. Help.'")],
    ),
    "element 0 with the step": (
        "def run(llm, messages, steps):\n    for step in range(steps):\n        messages[0] = {'role': 'system', 'content': render(step)}\n        llm.chat(messages)\n",
        [("set-front", "messages[0] = {'role': 'system', 'content': render(step)}")],
    ),
    "another head over the same conversation": (
        "def final(self, llm, messages):\n    return llm.chat([{'role': 'system', 'content': self.final_prompt}] + messages[1:])\n",
        [("set-front", "messages[1:]")],
    ),
    "older outputs replaced by their distance from the end": (
        "def fold(messages, keep):\n    for i, m in enumerate(messages):\n        if m['role'] == 'tool' and i < len(messages) - keep:\n            m['content'] = '[omitted]'\n",
        [("set-old", "m['content'] = '[omitted]'")],
    ),
    "older outputs replaced by a counter": (
        "def fold(messages, keep):\n    seen = 0\n    for m in reversed(messages):\n        if m['role'] != 'tool':\n            continue\n        seen += 1\n        if seen > keep:\n            m['content'] = '[omitted]'\n",
        [("set-old", "m['content'] = '[omitted]'")],
    ),
    "all but the newest": (
        "def fold(messages):\n    for m in messages[:-4]:\n        m['content'] = shorten(m['content'])\n",
        [("set-old", "m['content'] = shorten(m['content'])")],
    ),
    "summary takes the place of the old part": (
        "class Bot:\n    def compact(self):\n        summary = self.llm.complete(render(self.messages))\n        self.messages = [self.messages[0], {'role': 'user', 'content': summary}, *self.messages[-4:]]\n",
        [
            (
                "summarise",
                "self.messages = [self.messages[0], {'role': 'user', 'content': summary}, *self.messages[-4:]]",
            ),
            ("window", "self.messages[-4:]"),
        ],
    ),
    "by annotation": (
        "from langchain_core.messages import BaseMessage\ndef cut(buffer: list[BaseMessage], k):\n    return buffer[-k:]\n",
        [("window", "buffer[-k:]")],
    ),
    "by what it was made of": (
        "class M:\n    def prune(self):\n        buffer = self.chat_memory.messages\n        while self.llm.get_num_tokens(buffer) > self.max_token_limit:\n            buffer.pop(0)\n",
        [("pop-front", "buffer.pop(0)")],
    ),
    "through a property": (
        "class M:\n    @property\n    def buffer(self):\n        return self.chat_memory.messages\n    def load(self):\n        return {'history': self.buffer[-self.k * 2 :]}\n",
        [("window", "self.buffer[-self.k * 2 :]")],
    ),
}

FINE = {
    "a dictionary by its key": "class Watch:\n    def trim(self, limit):\n        while len(self.old_messages) > limit:\n            old_id = self.oldest()\n            self.old_messages.pop(old_id)\n",
    "a dictionary with a default": "def trim(messages, limit, place):\n    while len(messages) > limit:\n        messages.pop(place, None)\n",
    "a dictionary by what comes first in it": "def trim(messages, limit):\n    while len(messages) > limit:\n        messages.pop(next(iter(messages)), None)\n    while len(messages) > limit:\n        messages.pop(next(iter(messages)))\n",
    "a page of a log, answered to the browser": "@router.get('/page')\ndef page(messages, needed):\n    shown = []\n    for m in reversed(messages):\n        shown.append(m)\n        if len(shown) >= needed:\n            break\n    return list(shown[::-1])\n",
    "the end of a text": "def fit(messages, most):\n    conversation = '\\n'.join(m['content'] for m in messages)\n    if len(conversation) > most:\n        conversation = conversation[-most:]\n    return conversation\n",
    "what is taken out of it": "def _extract_topics(messages, limit):\n    topics = []\n    for m in messages[-limit:]:\n        topics.append(first_word(m['content']))\n    return topics\n",
    "a name for a conversation": "def generate_name(llm, messages):\n    return llm.chat(messages[-4:])\n",
    "what the user said, by the class of the message": "def said(messages):\n    found = []\n    for m in reversed(messages):\n        if isinstance(m, HumanMessage):\n            text = str(m.content)\n            if text:\n                found.append(text[:200])\n                if len(found) >= 3:\n                    break\n    return found\n",
    "a function of one's own called limit": "def rows(messages):\n    use(messages[:][0]['role'])\n    query.order_by(created.desc()).limit()\n    return [{'role': 'user', 'content': x} for x in limit(40)]\n",
    "the first message itself, cut to fit": "def fit(messages, limit):\n    kept = [m for m in messages if m['role'] == 'system']\n    messages = kept\n    while True:\n        messages[0]['content'] = cut(kept[0]['content'], limit)\n        return messages\n",
    "the newest taken back": "def forget(messages, count):\n    n = len(messages)\n    start = max(0, n - count)\n    del messages[start:n]\n",
    "all ahead of the newest question, at once": "def clear(messages):\n    newest = None\n    for i in reversed(range(len(messages))):\n        if messages[i]['role'] == 'user':\n            newest = i\n            break\n    if newest is not None:\n        del messages[1:newest]\n",
    "a bounded list that a screen shows": "from collections import deque\nclass Screen:\n    def __init__(self):\n        self.messages = deque(maxlen=100)\n    def add(self, text):\n        self.messages.append({'role': 'user', 'content': text})\ndef update(screen, table):\n    rows = []\n    for m in screen.messages:\n        rows.append(m['content'])\n    for row in rows:\n        table.add_row(row)\n",
    "what a tool answers": "class MessageToolkit:\n    def get_messages(self, agent, limit):\n        history = self.message_history.get(agent, [])\n        history = history[-limit:]\n        lines = []\n        for m in history:\n            lines.append(f\"{m['role']}: {m['content']}\")\n        return '\\n'.join(lines)\n",
    "what a decorated tool answers": "@tool\ndef recall(history, n):\n    return str(history[-n:])\n",
    "a log that only a tool reads": "class MessageToolkit:\n    def note(self, agent, m):\n        history = self.message_history[agent]\n        history.append(m)\n        self.message_history[agent] = history[-10:]\n    def answer(self, agent):\n        return str(self.message_history.get(agent))\n",
    "what a script stores": "def recent(messages):\n    return messages[-10:]\ndef store_exchange(key, messages):\n    request(key, messages)\ndef main(messages):\n    found = recent(messages)\n    store_exchange('k', found)\n",
    "what the user said, for a search": "def said(turns, n):\n    found = []\n    for turn in turns[::-1]:\n        if turn.role == Role.USER:\n            found.append(turn.content)\n            if n and len(found) >= n:\n                break\n    return found\n",
    "the last message": "def last(messages):\n    return messages[-1]['content'], messages[-1:]\n",
    "all but the last": "def past(messages):\n    return messages[:-1]\n",
    "the head": "def cut(messages, n):\n    return messages[:n]\n",
    "printed": "def trace(messages):\n    print(messages[-5:])\n    logger.info('%s', messages[-5:])\n",
    "counted": "def small(messages):\n    return len(messages[-5:]) < 3\n",
    "tested": "def has_tool(messages):\n    return any(m['role'] == 'tool' for m in messages[-4:])\n",
    "a chat command that shows the last ones": "def cmd_history(messages, count):\n    return 'Last: ' + str(messages[-count:])\n",
    "a file that is read back": "def parse_transcript(messages, n):\n    return messages[-n:]\n",
    "a file that is rotated": "def rotate_transcript(messages, start):\n    kept = messages[-100:]\n    store(kept)\n",
    "looked through": "def last_user(messages):\n    for m in messages[-4:]:\n        if m['role'] == 'user':\n            return m\n",
    "dead store": "def run(llm, messages):\n    trimmed = messages[-5:]\n    return llm.chat(messages)\n",
    "shown in a list": "def list_recent(messages):\n    return messages[-5:]\n",
    "a title": "def make_title(llm, messages):\n    return llm.chat(messages[-5:])\n",
    "answered to the browser": "@app.get('/history')\ndef history(conversation):\n    messages = conversation['messages']\n    return {'messages': messages[-50:]}\n",
    "prices": "def slope(price_history):\n    return price_history[-20:]\n",
    "log lines": "def tail(log_messages):\n    return log_messages[-20:]\n",
    "what was just added": "def new(messages, results):\n    return messages[-len(results) :]\n",
    "what came after": "def delta(messages, seen):\n    return messages[seen:]\n",
    "taken off for the provider": "def convert(messages):\n    system = messages[0]['content']\n    if messages[0]['role'] == 'system':\n        messages = messages[1:]\n    return system, messages\n",
    "system popped for the provider": "def convert(messages):\n    if messages[0]['role'] == 'system':\n        system = messages.pop(0)\n    return system, messages\n",
    "the last is taken back": "def undo(messages):\n    while len(messages) > 3:\n        messages.pop()\n    messages.pop(-1)\n",
    "a queue": "def work(messages):\n    while messages:\n        handle(messages.pop(0))\n",
    "a key of a message": "def clean(messages):\n    for message in messages:\n        message.pop('name', None)\n",
    "system if it is missing": "def start(self, history, system):\n    if system and history and history[0]['role'] != 'system':\n        history.insert(0, {'role': 'system', 'content': system})\n",
    "system by type, if missing": "def start(messages, text):\n    if not any(isinstance(m, SystemMessage) for m in messages):\n        messages.insert(0, SystemMessage(content=f'{text} {now()}'))\n",
    "a fresh list": "def build(system, context, question):\n    messages = [{'role': 'user', 'content': question}]\n    messages.insert(0, {'role': 'system', 'content': f'{system} {context}'})\n    return messages\n",
    "rebuilt from the end": "def rebuild(messages):\n    out = []\n    for m in reversed(messages):\n        out.insert(0, m)\n    return out\n",
    "up the chain of parents": "def path(node):\n    messages = []\n    while node:\n        messages.insert(0, {'role': node.role, 'content': node.state})\n        node = node.parent\n    return messages\n",
    "converted while walking": "def convert(messages):\n    out = []\n    for m in messages:\n        out.append({'role': m['role'], 'content': [m['content']]})\n    return out\n",
    "every message the same way": "def flatten(messages):\n    for m in messages:\n        if isinstance(m['content'], list):\n            m['content'] = ' '.join(m['content'])\n    return messages\n",
    "merged into the first message": "def merge(messages, system):\n    messages[0]['content'] = system + messages[0]['content']\n    return messages\n",
    "the role of the first": "def fix(messages):\n    messages[0]['role'] = 'developer'\n    return messages\n",
    "found from the end": "def find(messages):\n    for m in reversed(messages):\n        if m['role'] == 'user':\n            break\n    return m\n",
    "the last two of a kind": "def last_two(messages):\n    kept = []\n    for m in reversed(messages):\n        kept.append(m)\n        if len(kept) == 2:\n            break\n    return kept\n",
    "chat room": "import discord\nasync def purge(messages: list[discord.Message]):\n    while len(messages) > 100:\n        await messages.pop(0).delete()\n",
    "a test": "def test_window():\n    messages = [{'role': 'user', 'content': 'x'}]\n    assert run(messages[-3:])\n",
    "a list of roles of people": "def staff(roles):\n    return roles[-3:]\n",
    "numbers": "def smooth(history: list[float]):\n    return history[-5:]\n",
}


@pytest.mark.parametrize("name", FLAGGED)
def test_flagged(name: str) -> None:
    program, expected = FLAGGED[name]
    assert sorted(found(program)) == sorted(expected)


@pytest.mark.parametrize("name", FINE)
def test_fine(name: str) -> None:
    assert found(FINE[name]) == []


def test_two_places_of_one_habit_are_one_edit() -> None:
    program = "def trim(messages, n):\n    while len(messages) > n:\n        messages.pop(0)\n        messages.pop(0)\n"
    (edit,) = read(program)
    assert edit.span.line == 4
    assert [step.span.line for step in edit.steps] == [5]


def test_names_and_evidence_decide_the_confidence() -> None:
    near = read("def f(messages):\n    use(messages[0]['role'])\n    return messages[-9:]\n")
    far = read("def f(messages):\n    return messages[-9:]\n")
    assert [edit.confidence for edit in (*near, *far)] == [Confidence.HIGH, Confidence.MEDIUM]
    text = "def f(messages):\n    return messages[-9:]\n"  # no roles, no model library anywhere
    assert edits(ast.parse(text), SourceFile("app.py", text)) == ()


def test_a_line_of_brackets_takes_no_more_time_than_its_length() -> None:
    start = time.process_time()
    assert found(f"role = {'[' * 60 + '0' + ']' * 60!r} # messages[:{'[' * 30_000}\n") == []
    assert time.process_time() - start < 5  # seconds; it took minutes


def test_columns_count_characters() -> None:
    program = "def f(messages):\n    return 'äöü', messages[-9:]\n"
    (edit,) = read(program)
    assert (edit.span.line, edit.span.column, edit.span.end_column) == (3, 19, 32)


def test_a_restored_conversation_is_cut_once() -> None:
    (edit,) = read("class Bot:\n    def __init__(self, messages):\n        self.messages = messages[-9:]\n")
    assert not edit.per_call
    assert edit.function == "Bot.__init__"
