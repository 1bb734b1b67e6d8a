"""Typing: whatever is edited, in whatever order, a quick look says what a fresh check of the same texts says."""

import ast
import random

import pytest

from promptlint.app import live as live_module
from promptlint.app.check import Request, check
from promptlint.app.live import Live
from promptlint.config import Settings

LONG = "Answer from the manual only, and name the page. Never guess a price, a date or a name. " * 4

FILES = {
    "texts.py": f'''"""The texts of the bot."""
from datetime import datetime

ROLE = "You are a patient helper of a bicycle shop."  # who speaks
RULES = """{LONG}"""
LANGUAGES = ["en", "de"]
GREETINGS = {{}}


def greeting(name):
    """Register a greeting."""

    def add(function):
        GREETINGS[name] = function
        return function

    return add


@greeting("formal")
def formal(user):
    return f"Good morning, {{user}}. Thank you for writing to us about your bicycle."


def today():
    # the shop is in one time zone
    return datetime.now().strftime("%Y-%m-%d %H:%M")


def opening(user, tone="formal"):
    lines = [ROLE]
    lines.append(f"Now it is {{today()}}.")
    if tone == "formal":
        lines.append(formal(user))
    lines.append(RULES)
    return "\\n".join(lines)
''',
    "base.py": f'''import uuid

from texts import RULES, opening


class Agent:
    tone = "formal"

    def __init__(self, client, user):
        self.client = client
        self.user = user
        self.history = []
        self.session = str(uuid.uuid4())
        self.style = None

    def choose(self, style):
        if style:
            self.style = style

    def system(self):
        return opening(self.user, self.tone)

    def remember(self, question, answer):
        self.history.append({{"role": "user", "content": question}})
        self.history.append({{"role": "assistant", "content": answer}})

    def ask(self, question):
        messages = [{{"role": "system", "content": self.system()}}]
        messages += self.history
        messages.append({{"role": "user", "content": question}})
        reply = self.client.chat.completions.create(model="m", messages=messages)
        self.remember(question, reply)
        return reply


def summary(client, turns):
    prompt = f"Summary of {{len(turns)}} turns.\\n{{RULES}}\\n" + """{LONG}"""
    return client.chat.completions.create(model="m", messages=[{{"role": "user", "content": prompt}}])
''',
    "shop.py": f'''from openai import OpenAI

from base import Agent
from texts import *


class Seller(Agent):
    tone = "plain"

    def system(self):
        return f"Session {{self.session}}.\\n" + super().system()


class Mechanic(Agent):
    def system(self):
        tools = ["pump", "wrench"]
        text = f"Request {{self.session}}: tools are {{tools}}.\\n"
        return text + RULES + f"\\nStyle: {{self.style}}"


def make(user, kind):
    client = OpenAI()
    return Seller(client, user) if kind == "seller" else Mechanic(client, user)


def answer(user, question):
    agent = make(user, "seller")
    agent.choose("short")
    log(question)
    return agent.ask(question)


def log(question):
    print("asked:", question)


def classify(question):
    client = OpenAI()
    prompt = f"""Question: {{question}}
{LONG}"""
    return client.chat.completions.create(model="m", messages=[{{"role": "user", "content": prompt}}])
''',
}

STATEMENTS = (
    "count = 1",
    "log('noted')",
    "prompt = f'{today()} ' + RULES",
    "lines.insert(0, f'Now: {datetime.now()}')",
    "messages.insert(0, {'role': 'system', 'content': f'{uuid.uuid4()} ' + RULES})",
    "self.history = self.history[-4:]",
    "self.style = f'{self.session}'",
    "self.history.append({'role': 'user', 'content': 'Go on.'})",
    "return 'nothing'",
)
IMPORTS = (
    "import os",
    "import uuid",
    "from datetime import datetime",
    "from texts import today",
)


class Typist:
    """Makes one edit after another; each gives a text, which may not be Python for a moment."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def edit(self, text):
        """The text after one edit of a kind that fits it."""
        lines, tree = text.splitlines(keepends=True), ast.parse(text)
        kinds = (
            self.blank,
            self.comment,
            self.literal,
            self.statement,
            self.rename,
            self.delete,
            self.move,
            self.imports,
        )
        return "".join(self.random.choice(kinds)(lines, tree)) or text

    def broken(self, text):
        """The text with an open bracket somewhere."""
        at = self.random.randrange(len(text))
        return f"{text[:at]}({text[at:]}"

    def blank(self, lines, tree):
        lines.insert(self.random.randrange(len(lines)), "\n")
        return lines

    def comment(self, lines, tree):
        statement = self.random.choice(list(statements(tree)))
        lines.insert(statement.lineno - 1, f"{' ' * statement.col_offset}# note {self.random.randrange(9)}\n")
        return lines

    def literal(self, lines, tree):
        strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        node = self.random.choice(strings)
        line = self.random.randrange(node.lineno - 1, node.end_lineno)
        places = [at for at in range(1, len(lines[line])) if lines[line][at - 1] == " " and lines[line][at].isalpha()]
        if places:
            at = self.random.choice(places)
            typed = self.random.choice(("very ", "x", LONG, "{user} ", "{today()} "))
            lines[line] = lines[line][:at] + typed + lines[line][at:]
        return lines

    def statement(self, lines, tree):
        body = self.random.choice(functions(tree)).body
        at = self.random.choice(body)
        lines.insert(at.lineno - 1, f"{' ' * at.col_offset}{self.random.choice(STATEMENTS)}\n")
        return lines

    def rename(self, lines, tree):
        name = self.random.choice(functions(tree)).name
        new = f"{name}_{self.random.randrange(3)}"
        everywhere = self.random.random() < 0.5
        return [
            line.replace(name if everywhere else f"def {name}", new if everywhere else f"def {new}") for line in lines
        ]

    def delete(self, lines, tree):
        statement = self.random.choice(list(statements(tree)))
        del lines[statement.lineno - 1 : statement.end_lineno]
        return lines

    def move(self, lines, tree):
        function = self.random.choice(tree.body)
        first = min([function.lineno, *(one.lineno for one in getattr(function, "decorator_list", ()))]) - 1
        part = lines[first : function.end_lineno]
        del lines[first : function.end_lineno]
        try:
            others = ast.parse("".join(lines)).body
        except SyntaxError:
            return lines
        at = self.random.choice(others).end_lineno if others else 0
        lines[at:at] = ["\n", *part]
        return lines

    def imports(self, lines, tree):
        lines.insert(0, self.random.choice(IMPORTS) + "\n")
        return lines


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)] or [tree]


def statements(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))


def parses(text):
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


@pytest.fixture
def shop(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def everything(report):
    """All that a report says of findings, call sites and what was not read."""
    return report.findings, report.call_sites, report.unsupported, report.summary, report.withheld


def settled(live, texts):
    """The report after a hasty look and, where something waits, the one behind it."""
    look = live.look(texts, quick=True, hasty=True)
    if look.waiting:
        look = live.look(texts, quick=True)
    assert not look.waiting
    return everything(look.report)


@pytest.mark.parametrize("seed", range(10))
def test_a_quick_look_says_what_a_fresh_check_says(shop, seed, monkeypatch):
    monkeypatch.setattr(live_module.gc, "collect", lambda: 0)  # the looks of one test leave little
    typist, settings = Typist(seed), Settings(shop, persona="auditor")
    live = Live(settings)
    live.look({})
    texts = {}
    for number in range(12):
        path = shop / typist.random.choice(list(FILES))
        before = texts.get(path) or path.read_text("utf-8")
        after = typist.edit(before)
        if typist.random.random() < 0.15:
            live.look({**texts, path: typist.broken(after)}, quick=True)
        texts = {**texts, path: after if parses(after) else before}
        if typist.random.random() < 0.1:
            texts.pop(path)
        fresh = check(settings, Request((shop,), shop, texts), use_cache=False)
        assert settled(live, texts) == everything(fresh), f"edit {number} in {path.name}"
