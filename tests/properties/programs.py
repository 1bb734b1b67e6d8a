"""Small programs that build prompts and send them to a stand-in client: generated from a seed, executed, and read by the front end."""

from __future__ import annotations

import random
from dataclasses import dataclass

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "river",
    "stone",
    "cloud",
    "engine",
    "letter",
    "garden",
    "silver",
    "winter",
    "copper",
    "harbour",
]


@dataclass
class Program:
    """Sources by file name; `main.py` defines `run(client, query, flag, docs, user)`."""

    files: dict[str, str]


class Generator:
    """Grows one program. Every literal is unique within the program, so that a text that is found was not found by chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.functions: list[str] = []
        self.helpers: list[str] = []
        self.prompts: list[str] = []
        self.classes: list[str] = []
        self.names = 0

    def words(self) -> str:
        self.count += 1
        return f"{self.random.choice(WORDS)} {self.random.choice(WORDS)} {self.count}"

    def name(self, stem: str = "v") -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def literal(self) -> str:
        text = self.words()
        kind = self.random.randrange(9)
        if kind == 0:
            return f"'{text}.'"
        if kind == 1:
            return f'"{text}\\n"'
        if kind == 2:
            return f'"""{text}\nsecond line of {self.words()}\n"""'
        if kind == 3:
            return f'r"{text} \\d"'
        if kind == 4:
            return f'("{text} " "{self.words()}")'
        if kind == 5:
            return f'"{text} \\"quoted\\" é"'
        return f'"{text}. "'

    def text(self, scope: list[str], depth: int = 0) -> str:
        """An expression that is a str."""
        choice = self.random.randrange(17 if depth < 2 else 5)
        variable = self.random.choice(scope)
        if choice in {0, 1}:
            return self.literal()
        if choice == 2:
            return f"str({variable})" if self.random.random() < 0.3 else variable
        if choice in {3, 4}:
            return f'f"{self.words()}: {{{variable}}} {self.words()}"'
        if choice == 5:
            return f"{self.text(scope, depth + 1)} + {self.text(scope, depth + 1)}"
        if choice == 6:
            return f'"{self.words()} {{}} {self.words()} {{x}}.".format({self.text(scope, depth + 2)}, x={variable})'
        if choice == 7:
            return f'"{self.words()} %s {self.words()}" % ({variable},)'
        if choice == 8:
            parts = ", ".join(self.text(scope, depth + 1) for _ in range(self.random.randint(1, 3)))
            return f"{self.random.choice([chr(34) * 2, repr(', '), repr(chr(10))])}.join([{parts}])"
        if choice == 9:
            return f"({self.text(scope, depth + 1)} if flag else {self.text(scope, depth + 1)})"
        if choice == 10 and self.helpers:
            return f"{self.random.choice(self.helpers)}({self.text(scope, depth + 2)})"
        if choice == 11:
            return f'"{self.words()} {{a}} {{{{kept}}}} {self.words()}".format_map({{"a": {variable}}})'
        if choice == 12:
            return f'f"""{self.words()}\n{{{variable}}}\n{{{self.inner(scope)}}} {self.words()}\n"""'
        if choice == 13:
            return f'"{self.words()} <mark> {self.words()}".replace("<mark>", {variable})'
        if choice == 14:
            return f'"".join(f"- {{d}} {self.words()}\\n" for d in docs)'
        if choice == 15 and self.prompts:
            return f"{self.random.choice(self.prompts)}.format(slot={variable})"
        if choice == 16:
            return self.library_text(variable)
        return self.literal()

    def library_text(self, variable: str) -> str:
        """Texts that the standard library makes; `parts` imports Template, dedent and the table under other names."""
        return self.random.choice(
            [
                f'Tpl("{self.words()} $a {self.words()}").substitute(a={variable})',
                f'dd("""\\\n    {self.words()}\n      {self.words()}\n    """)',
                f'"{self.words()} %(a)s {self.words()}" % {{"a": {variable}}}',
                f'"\\n".join(f"{self.words()} {{k}}={{v}}" for k, v in TABLE.items())',
                f'" ".join(f"{{n}}. {{d}} {self.words()}" for n, d in enumerate(docs, 1) if d)',
                f'(lambda x: f"{self.words()} {{x}}")({variable})',
                f"kit.forward(lead={self.literal()}, tail={variable})",
                f"Card(title={self.literal()}).show({variable})",
            ]
        )

    def inner(self, scope: list[str]) -> str:
        variable = self.random.choice(scope)
        return self.random.choice([f"{variable}.strip()", f"{variable}.upper()", variable, f"{variable}!s"])

    def helper(self) -> str:
        name = self.name("helper")
        body: list[str] = []
        scope = ["value", "user"] if self.random.random() < 0.0 else ["value"]
        kind = self.random.randrange(5)
        if kind == 0:
            body.append(f"    return {self.plain_text(scope)}")
        elif kind == 1:
            body += [
                f"    if value == {self.literal()}:",
                f"        return {self.plain_text(scope)}",
                f"    return {self.plain_text(scope)}",
            ]
        elif kind == 2:
            body += [
                f"    parts = [{self.plain_text(scope)}]",
                f"    parts.append({self.plain_text(scope)})",
                "    return ' '.join(parts)",
            ]
        elif kind == 3:
            body += [
                f"    out = {self.plain_text(scope)}",
                "    for part in value.split():",
                f"        out += {self.literal()} + part",
                "    return out",
            ]
        else:
            body += [
                f"    out = {self.literal()}",
                "    if value:",
                f"        out += {self.literal()}",
                "    else:",
                f"        out = {self.literal()} + out",
                "    return out",
            ]
        return f"def {name}(value):\n" + "\n".join(body) + "\n", name  # type: ignore[return-value]

    def plain_text(self, scope: list[str]) -> str:
        variable = self.random.choice(scope)
        return self.random.choice(
            [
                self.literal(),
                f'f"{self.words()} {{{variable}}} {self.words()}"',
                f"{self.literal()} + {variable}",
                f'"{self.words()} %s" % {variable}',
            ]
        )

    def statements(self, scope: list[str], indent: str, depth: int = 0) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 4 if depth == 0 else 2)):
            kind = self.random.randrange(16)
            if kind in {0, 1}:
                name = self.name()
                lines.append(f"{indent}{name} = {self.text(scope)}")
                if depth == 0:
                    scope.append(name)
            elif kind == 2:
                name = self.random.choice(scope)
                lines.append(f"{indent}{name} += {self.text(scope, 1)}")
            elif kind == 3 and depth < 2:
                condition = self.random.choice(
                    ["flag", f"{self.random.choice(scope)} == 'x'", "len(docs) > 1", "not flag"]
                )
                lines.append(f"{indent}if {condition}:")
                lines += self.statements(scope, indent + "    ", depth + 1)
                if self.random.random() < 0.5:
                    lines.append(f"{indent}else:")
                    lines += self.statements(scope, indent + "    ", depth + 1)
            elif kind == 4 and depth < 2:
                name = self.random.choice(scope)
                lines.append(f"{indent}for d in docs:")
                lines.append(f"{indent}    {name} += {self.literal()} + d")
            elif kind == 5 and depth == 0:
                name = self.name("items")
                lines.append(f"{indent}{name} = [{self.text(scope, 1)}, {self.text(scope, 1)}]")
                for _ in range(self.random.randint(0, 3)):  # two elements at first, and one pop at most
                    popped = any(line.endswith(f"{name}.pop()") for line in lines)
                    lines.append(indent + self.random.choice([
                        f"{name}.append({self.text(scope, 1)})", f"{name}.extend([{self.text(scope, 1)}])", f"{name}.insert(0, {self.text(scope, 1)})",
                        f"{name} += [{self.text(scope, 1)}]", f"{name}.append({self.literal()})" if popped else f"{name}.pop()", f"{name}[0] = {self.text(scope, 1)}",
                    ]))  # fmt: skip
                joined = self.name()
                lines.append(f"{indent}{joined} = {self.random.choice([repr(' | '), repr(chr(10))])}.join({name})")
                scope.append(joined)
            elif kind == 6 and depth == 0:
                name = self.name()
                lines.append(f"{indent}{name} = ''")
                lines.append(f"{indent}for i, d in enumerate(docs):")
                lines.append(f'{indent}    {name} += f"{{i}} {self.words()} {{d}}\\n"')
                scope.append(name)
            elif kind == 7 and self.classes and depth == 0:
                name = self.name()
                lines.append(
                    f"{indent}{name} = {self.random.choice(self.classes)}({self.text(scope, 1)}).render({self.random.choice(scope)})"
                )
                scope.append(name)
            elif kind >= 9 and depth == 0:
                lines += self.construct(kind, scope, indent)
            else:
                lines.append(f"{indent}{self.random.choice(scope)} += {self.literal()}")
        return lines

    def construct(self, kind: int, scope: list[str], indent: str) -> list[str]:
        """Statements around a fresh name: a counted loop, the entries of a dict, try and finally, a walrus, an inner function, and what `shape` adds."""
        name, variable = self.name(), self.random.choice(scope)
        if kind > 12:
            made = self.shape(name, variable)
            scope.append(name)
            return [indent + line for line in made]
        made = {
            9: [f"{name} = {self.literal()}", "for i in range(3):", f'    {name} += f"{{i}} {self.words()} "'],
            10: [f"{name} = ''", "for k, v in TABLE.items():", f'    {name} += f"{{k}}: {{v}} {self.words()}\\n"'],
            11: [
                f"{name} = {self.literal()}",
                "try:",
                f"    {name} += {self.text(scope, 1)}",
                "finally:",
                f"    {name} += {self.literal()}",
            ],
        }.get(kind) or self.random.choice(
            [
                [f"if ({name} := {variable} + {self.literal()}) != 'x':", f"    {name} = {name} + {self.literal()}"],
                [
                    f"def inner_{name}(x, y=None):",
                    f"    return {self.literal()} + x + ('' if y is None else y) + {variable}",
                    f"{name} = inner_{name}({self.literal()})",
                ],
                [f"{name} = ''", "for i in range(len(docs)):", f'    {name} += f"{{i}} {{docs[i]}} {self.words()}"'],
            ]
        )
        scope.append(name)
        return [indent + line for line in made]

    def shape(self, name: str, variable: str) -> list[str]:
        """Statements of other kinds that make a text of a fresh name."""
        words, literal = self.words, self.literal
        return self.random.choice(
            [
                [
                    "match flag:",
                    "    case True:",
                    f"        {name} = {literal()}",
                    "    case _:",
                    f"        {name} = {literal()} + {variable}",
                ],
                [
                    f"{name}, n = {literal()}, 0",
                    "while n < 2:",
                    f'    {name} += f"{{n}} {words()} "',
                    "    n += 1",
                ],
                [
                    f"def gen_{name}():",
                    f"    yield {literal()}",
                    "    for d in docs:",
                    f'        yield f"{words()} {{d}}"',
                    f"{name} = '\\n'.join(gen_{name}())",
                ],
                [f"with kit.Tracer({literal()}) as t:", f"    {name} = t.text + {literal()} + {variable}"],
                [
                    "try:",
                    f"    {name} = {literal()} + str(int(query))",
                    "except ValueError:",
                    f"    {name} = {literal()} + query",
                ],
                [
                    f'pairs_{name} = {{d: f"{words()} {{d}}" for d in docs}}',
                    f"{name} = '; '.join(pairs_{name}.values())",
                ],
                [f"{name} = kit.Tone.SHORT.value + {variable} + kit.Tone('long').name"],
                [f"{name} = kit.flow({literal()}, {variable}, {literal()})"],
                [f"{name} = kit.flow(*[{literal()}, {variable}])"],
                [f"{name} = {{'x': {literal()}, 'bob': {literal()}}}.get(user, {literal()})"],
                [f'{name} = " ".join(d + {literal()} for d in sorted(docs))'],
                [f'{name} = " ".join([f"{{d}} {words()}" for d in reversed(docs)])'],
                [f"{name} = {literal()}.title() + {literal()}.replace('alpha', 'omega') + {variable}.lower()"],
                [f"{name} = {literal()}.split()[0] + {variable}.partition(' ')[2] + {literal()}.removeprefix('beta ')"],
                [
                    f"{name} = {literal()}",
                    f"def add_{name}(x):",
                    f"    nonlocal {name}",
                    f"    {name} += x",
                    f"add_{name}({literal()})",
                    f"add_{name}({variable})",
                ],
                [
                    f"note_{name} = kit.Note({literal()})",
                    f'{name} = f"{{note_{name}}} {words()} {{note_{name}.short}}"',
                ],
                [f"{name} = kit.Note.of({variable}).short + kit.Note.fixed()"],
                [f"{name} = kit.partial(kit.joined, {literal()})({variable}, end={literal()})"],
                [f'{name} = f"{words()} {{3.14159:.2f}} {{{variable}:>12}} {{7:03d}} {words()}"'],
                [f'{name} = "{words()} {{0}} {{1}} {{0}} {words()}".format({variable}, {literal()})'],
                [f'{name} = "{words()} %-6s|%d%% {words()}" % ({variable}, 40)'],
                [
                    f"{name} = ''",
                    "for d in docs:",
                    "    if d == 'one':",
                    "        continue",
                    f'    {name} += f"{words()} {{d}}; "',
                    "else:",
                    f"    {name} += {literal()}",
                ],
                [
                    f"first_{name}, *rest_{name} = [{literal()}, {variable}, {literal()}]",
                    f"{name} = first_{name} + ''.join(rest_{name})",
                ],
                [f"{name} = ({variable} or {literal()}) + (flag and {literal()} or {literal()})"],
                [
                    f"data_{name} = {{'a': {literal()}, **{{'b': {variable}}}}}",
                    f'{name} = "{words()} {{a}} {{b}}".format(**data_{name})',
                ],
                [
                    f"row_{name} = kit.Row({literal()}, {variable})",
                    f"{name} = ' / '.join(row_{name}) + row_{name}.lead",
                ],
            ]
        )

    def cls(self) -> str:
        name = self.name("Maker")
        return (
            f"class {name}(Base):\n    lead = {self.literal()}\n\n    def __init__(self, given):\n        self.given = given\n        self.tail = {self.literal()}\n\n"
            f"    def head(self):\n        return self.lead + super().head()\n\n"
            f'    def render(self, value):\n        return f"{{self.head()}}{self.words()} {{self.given}} {{value}}" + self.tail\n\n'
        )

    def others(self) -> str:
        """What the statements of `shape` use: an enum, a context manager, a class with other kinds of methods, a named tuple."""
        return (
            f"class Tone(Enum):\n    SHORT = {self.literal()}\n    LONG = 'long'\n\n\n"
            "class Tracer:\n    def __init__(self, text):\n        self.text = text\n\n    def __enter__(self):\n        return self\n\n"
            "    def __exit__(self, *given):\n        return None\n\n\n"
            "class Note:\n    def __init__(self, text):\n        self.text = text\n\n"
            f'    def __str__(self):\n        return f"{self.words()} {{self.text}}"\n\n'
            f"    @property\n    def short(self):\n        return {self.literal()} + self.text\n\n"
            "    @classmethod\n    def of(cls, text):\n        return cls(text)\n\n"
            f"    @staticmethod\n    def fixed():\n        return {self.literal()}\n\n\n"
            "class Row(NamedTuple):\n    lead: str\n    tail: str\n\n\n"
            "def flow(*given):\n    return ' '.join(given)\n"
        )

    def program(self) -> Program:
        base = f"class Base:\n    def head(self):\n        return {self.literal()}\n\n"
        helpers = []
        for _ in range(self.random.randint(1, 3)):
            source, name = self.helper()  # type: ignore[misc]
            helpers.append(source)
            self.helpers.append(name)
        constants = []
        for _ in range(self.random.randint(1, 2)):
            name = self.name("PROMPT")
            constants.append(f'{name} = """{self.words()}\n{{slot}} {self.words()}\nand {self.words()}\n"""\n')
            self.prompts.append(name)
        classes = []
        for _ in range(self.random.randint(0, 2)):
            source = self.cls()
            classes.append(source)
            self.classes.append(source.split("(")[0].removeprefix("class "))
        table = "TABLE = {" + ", ".join(f"{self.literal()}: {self.literal()}" for _ in range(2)) + "}\n"
        card = (
            f"@dataclass\nclass Card:\n    title: str\n    note: str | None = None\n    end: str = {self.literal()}\n\n    def show(self, value):\n"
            '        note = f" ({self.note})" if self.note else ""\n        return f"{self.title}{note}: {value}{self.end}"\n\n'
        )
        forward = (
            "def joined(lead, tail='', *, end=None):\n    return lead + tail + (end or '')\n\n"
            f"def forward(**given):\n    return joined(end={self.literal()}, **given)\n\n"
        )
        head = "from dataclasses import dataclass\nfrom enum import Enum\nfrom functools import partial\nfrom typing import NamedTuple\n\n"
        parts = "\n\n".join([head, base, *helpers, *constants, *classes, table, card, forward, self.others()])
        scope = ["query", "user"]
        body = self.statements(scope, "    ")
        style = self.random.randrange(4)
        system = self.text(scope)
        question = self.text(scope, 1)
        if style == 0:
            send = [
                f'    client.chat.completions.create(model="m", messages=[{{"role": "system", "content": {system}}}, {{"role": "user", "content": {question}}}])'
            ]
        elif style == 1:
            send = [
                f'    messages = [{{"role": "system", "content": {system}}}]', "    if flag:", f'        messages.append({{"role": "user", "content": {self.text(scope, 1)}}})',
                f'    messages.append({{"role": "user", "content": {question}}})', '    client.chat.completions.create(model="m", messages=messages)',
            ]  # fmt: skip
        elif style == 2:
            send = [
                "    messages = []", f'    messages += [dict(role="system", content={system})]', "    for d in docs:", f'        messages.append({{"role": "user", "content": {self.literal()} + d}})',
                f"    send(client, messages, {question})",
            ]  # fmt: skip
        else:
            send = [
                f'    client.messages.create(model="m", max_tokens=9, system={system}, messages=[{{"role": "user", "content": {question}}}])'
            ]
        wrapper = 'def send(client, messages, last):\n    messages.append({"role": "user", "content": last})\n    return client.chat.completions.create(model="m", messages=messages)\n\n\n'
        names = ", ".join([*self.helpers, *self.prompts, *self.classes])
        main = (
            "from string import Template as Tpl\nfrom textwrap import dedent as dd\n"
            f"import parts as kit\nfrom parts import {names}, TABLE, forward, Card\n\n\n{wrapper}def run(client, query, flag, docs, user):\n"
            + "\n".join([*body, *send])
            + "\n"
        )
        return Program({"parts.py": parts, "main.py": main})


def generate(seed: int) -> Program:
    """The program of a seed."""
    return Generator(seed).program()
