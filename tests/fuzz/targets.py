"""What is fuzzed: each target turns bytes into one file of some kind, lets promptlint read it, and says what was seen.

A target must end well for every input: by a report, or by a `UserError` with its one line. Anything else is a fault of ours, and so are a hang and
memory beyond the bound, for which `run.py` watches. The features that come back name what an input made happen; an input with a new one is kept.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptlint.errors import UserError

__all__ = ["TARGETS", "Target", "WrongOutput"]

TOP = Path(__file__).resolve().parents[2]
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class WrongOutput(Exception):
    """promptlint wrote what it promises never to write."""


@dataclass(frozen=True, slots=True)
class Target:
    """`read` tries one input in a folder of its own and yields features; `seeds` are small valid inputs."""

    read: Callable[[bytes, Path], Iterable[str]]
    seeds: Callable[[], Iterable[bytes]]


def _encoded(texts: Iterable[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def _fences(*languages: str) -> list[str]:
    """The programs of the rule pages and of the Markdown cases in some languages."""
    found = []
    for folder in ("rules", "tests/cases"):
        for page in sorted((TOP / folder).rglob("*.md")):
            for language, text in re.findall(
                r"^```(\w+)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
            ):
                if language in languages:
                    found.append(text)
    return found


def _size(number: int) -> str:
    return str(number.bit_length())


# --- the front ends ---------------------------------------------------------------------------------------------------------------------------


def _checked(folder: Path, **settings: Any) -> Iterator[str]:
    """What `check` on a folder does, with every reporter."""
    from promptlint.app.check import Request, check
    from promptlint.config import FORMATS, Settings
    from promptlint.report import render

    with _one_renderer():
        report = check(Settings(folder, persona="auditor", **settings), Request((folder,), folder), use_cache=False)
    for form in FORMATS:
        text = render(report, form)
        if found := _CONTROL.search(text):
            raise WrongOutput(f"{form} holds the control character {found[0]!r}")
        if form in ("json", "sarif", "gitlab", "rdjson"):
            json.loads(text)
    for item in report.findings:
        yield f"rule {item.rule} {item.block} {item.volatility} {_size(len(item.trace))}"
    for site in report.call_sites:
        yield f"site {site.provider} {site.reading} {_size(len(site.blocks))}"
        yield from (f"block {block.kind} {block.role} {block.volatility} {block.growth}" for block in site.blocks)
        yield from (f"unresolved {item.reason}" for item in site.unresolved)
    for verdict in report.chat_templates:
        yield f"template {verdict.verdict} {verdict.date} {verdict.moves_tools} {verdict.moves_system}"
    for item in report.unsupported:
        yield f"unsupported {re.sub(r'[0-9]+|[^a-z ]', '', item.reason)[:50]}"


_renderers: list[Any] = []


@contextlib.contextmanager
def _one_renderer() -> Iterator[None]:
    """One process that renders chat templates for all inputs: to start one takes longer than all else."""
    from promptlint.frontends import chat_template

    own = chat_template.Renderer
    if not _renderers:
        _renderers.append(own(2.0))
    chat_template.Renderer = lambda *_: contextlib.nullcontext(_renderers[0])  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        chat_template.Renderer = own  # type: ignore[misc]


def _python(data: bytes, folder: Path) -> Iterator[str]:
    (folder / "agent.py").write_bytes(data)
    # One in four is also the module that it may import, and its own package: imports in a circle.
    if zlib.crc32(data) % 4 == 0:
        (folder / "app").mkdir(exist_ok=True)
        for name in ("__init__.py", "prompts.py", "agent.py"):
            (folder / "app" / name).write_bytes(data)
    yield from _checked(folder)


def _fix(data: bytes, folder: Path) -> Iterator[str]:
    """Edits of every kind, planned and not written; what comes out must still be read."""
    from promptlint.app.check import Request
    from promptlint.app.fix import fix
    from promptlint.config import Settings

    (folder / "agent.py").write_bytes(data)
    fixed = fix(Settings(folder), Request((folder,), folder), ("safe", "unsafe", "display-only"))
    fixed.diff()
    yield f"edits {_size(len(fixed.applied))}"
    yield from (f"applied {item.finding.rule} {item.fix.applicability}" for item in fixed.applied)
    yield from (f"dropped {item.finding.rule} {item.why[:30]}" for item in fixed.dropped)


def _jinja(data: bytes, folder: Path) -> Iterator[str]:
    (folder / "prompts").mkdir(exist_ok=True)
    for name in ("input.j2", "system.jinja"):
        (folder / "prompts" / name).write_bytes(data)
    # The same text as Python fills it.
    text = (
        data.decode("utf-8", "replace")
        .replace("\\", "\\\\")
        .replace('"""', "'''")
        .replace("\r", "\n")
        .replace("\0", "")
    )
    if zlib.crc32(data) % 4 == 0:
        (folder / "agent.py").write_text(_FILLS.replace("TEMPLATE", text), "utf-8", errors="replace")
    yield from _checked(folder)


_FILLS = '''import datetime, jinja2, openai
loader = jinja2.Environment(loader=jinja2.FileSystemLoader("prompts"))
text = jinja2.Template("""TEMPLATE""").render(x=datetime.datetime.now(), name="n", docs=["a", "b"], messages=[])
more = loader.get_template("input.j2").render(x=text, y={"a": 1}, name="n")
openai.OpenAI().chat.completions.create(model="gpt-4o", messages=[{"role": "system", "content": text + more}, {"role": "user", "content": "hello"}])
'''

_PROMPT_NAMES = (
    "agent.yaml",
    "agent.json",
    "agent.md",
    "agent.txt",
    "agent.prompty",
    "agent.prompt",
    "agent.toml",
    "tokenizer_config.json",
)


def _prompt_file(data: bytes, folder: Path) -> Iterator[str]:
    (folder / "prompts").mkdir(exist_ok=True)
    for name in _PROMPT_NAMES:
        (folder / "prompts" / name).write_bytes(data)
    (folder / "agent.py").write_text(_LOADS, "utf-8")
    yield from _checked(folder, include=("prompts/*",))


_LOADS = """import json, pathlib, tomllib, yaml, openai
client = openai.OpenAI()
def ask(question, context):
    for made in (yaml.safe_load(open("prompts/agent.yaml"))["system"], json.load(open("prompts/agent.json"))["system"], tomllib.load(open("prompts/agent.toml", "rb"))["system"],
                 pathlib.Path("prompts/agent.txt").read_text(), pathlib.Path("prompts/agent.md").read_text().format(context=context)):
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "system", "content": made}, {"role": "user", "content": question}])
"""


def _chat_template(data: bytes, folder: Path) -> Iterator[str]:
    from promptlint.frontends.chat_template import RenderError, judge, layout

    with _one_renderer():
        pass
    text = data.decode("utf-8", "replace")
    try:
        verdict = judge(text, _renderers[0])
        yield f"{verdict.verdict} {verdict.date} {verdict.drops_reasoning} {verdict.moves_tools} {verdict.moves_system} {verdict.form}"
    except RenderError as error:
        yield f"error {error.kind}"
    found = layout(text, "t.jinja", _renderers[0])
    yield f"layout {found is None}"


def _suppressions(data: bytes, folder: Path) -> Iterator[str]:
    from promptlint.app.suppress import read_suppressions
    from promptlint.source import SourceFile

    text = data.decode("utf-8", "replace")
    for suffix in (".py", ".yaml", ".j2", ".md", ".json"):
        found = read_suppressions(SourceFile(f"a{suffix}", text))
        yield f"{suffix} {_size(len(found))} {_size(sum(len(item.rules) for item in found))}"
        for item in found:
            yield f"{suffix} covers {_size(len(item.covers))} {bool(item.reason)} {item.span.line <= item.span.end_line}"


# --- files of settings and results ------------------------------------------------------------------------------------------------------------


def _word(error: UserError) -> str:
    """What kind of complaint it is: names and numbers of the input are left out. A complaint is one line that names the file."""
    text = str(error)
    return "refused " + re.sub(r"'[^']*'|[0-9/]+|[^a-zA-Z ]", "", text.rpartition("input")[2])[:60]


def _config(data: bytes, folder: Path) -> Iterator[str]:
    from promptlint.config import read_config

    for name in ("promptlint.toml", "pyproject.toml"):
        path = folder / name
        path.write_bytes(data)
        try:
            settings = read_config(path, folder)
            yield from (
                f"{name} {key}"
                for key in ("select", "per_file_ignores", "extra_rules", "exclude", "tokenizer")
                if getattr(settings, key)
            )
            yield from _checked(
                folder,
                **{
                    key: getattr(settings, key)
                    for key in ("select", "ignore", "per_file_ignores", "exclude", "include")
                },
            )
        except UserError as error:
            yield _word(error)


def _baseline(data: bytes, folder: Path) -> Iterator[str]:
    from promptlint.app import baseline
    from promptlint.app.check import Request
    from promptlint.config import Settings

    path = folder / "input.json"
    path.write_bytes(data)
    try:
        known = baseline.read(path)
        report = baseline.apply(_sample_report(), known, Settings(folder), Request((folder,), folder))
        yield f"known {_size(len(known))} fixed {_size(len(report.baseline.fixed)) if report.baseline else None}"
    except UserError as error:
        yield _word(error)


def _lock(data: bytes, folder: Path) -> Iterator[str]:
    from promptlint.app import lock
    from promptlint.app.check import Request
    from promptlint.config import Settings

    (folder / lock.FILE).write_bytes(data)
    settings, request = Settings(folder), Request((folder,), folder)
    try:
        found = lock.compare(_sample_report(), settings, request)
        text = "\n".join(found.lines())
        yield f"{_size(len(found.changed))} {_size(len(found.new))} {_size(len(found.gone))} {_size(len(text))}"
        lock.write(_sample_report(), settings, request)
        lock.read(settings)
    except UserError as error:
        yield _word(error)


def _cached(data: bytes, folder: Path) -> Iterator[str]:
    """An entry of the cache, and a report that `diff` reads: both may be damaged, or come from elsewhere."""
    from promptlint.app import cache
    from promptlint.app.check import Request, find
    from promptlint.app.diff import compare, read_side
    from promptlint.config import Settings
    from promptlint.report.diff import full

    settings, request = Settings(folder), Request((folder,), folder)
    kept = cache.Cache(settings, request, find(settings, request))
    kept.folder.mkdir(exist_ok=True)
    kept.path.write_bytes(data)
    (kept.folder / "tokens.json").write_bytes(data)
    yield f"cached {kept.load() is not None}"
    kept.prepare()
    path = folder / "input.json"
    path.write_bytes(data)
    try:
        side = read_side(str(path), lambda root: Settings(root), request)
        diff = compare(side, side)
        yield f"diff {_size(len(full(diff)))}"
    except UserError as error:
        yield _word(error)


def _providers(data: bytes, folder: Path) -> Iterator[str]:
    from promptlint.catalog.providers import load_providers, resolve
    from promptlint.report.providers import detail, table

    (folder / "providers").mkdir(exist_ok=True)
    (folder / "providers" / "input.toml").write_bytes(data)
    load_providers.cache_clear()
    try:
        pages = load_providers((folder,))
        for page in pages.values():
            if page.path.is_relative_to(folder):
                terms = resolve(page, "gpt-4o")
                yield f"{page.default} {sorted(page.facts)} {terms.mode} {terms.ttl_seconds is None}"
                yield f"{_size(len(detail(page, 'gpt-4o', dt.date(2026, 11, 30))))}"
        yield f"{_size(len(table(pages.values(), dt.date(2026, 11, 30))))}"
    except UserError as error:
        yield _word(error)


def _rules(data: bytes, folder: Path) -> Iterator[str]:
    """A user's own rules: a page and models of a library, of sources and of names."""
    places = (
        "volatility/input.md",
        "sdk/input.toml",
        "sources/input.toml",
        "names.toml",
        "models/input.toml",
        "hardware/input.toml",
        "engines/input.toml",
    )
    for place in places:
        own = folder / place.replace("/", "-")
        (own / place).parent.mkdir(parents=True, exist_ok=True)
        (own / place).write_bytes(data)
        try:
            _load_rules(place, own)
            yield f"{place} read"
        except UserError as error:
            yield f"{place} {_word(error)}"


def _load_rules(place: str, own: Path) -> None:
    from promptlint.catalog.engines import load_engines
    from promptlint.catalog.hardware import load_gpus
    from promptlint.catalog.models import load_models
    from promptlint.catalog.names import load_names
    from promptlint.catalog.rules import load_rules
    from promptlint.catalog.sdk import load_sdk
    from promptlint.catalog.sources import load_sources

    loaders: dict[str, Any] = {"volatility": load_rules, "sdk": load_sdk, "sources": load_sources, "names.toml": load_names, "models": load_models, "hardware": load_gpus, "engines": load_engines}  # fmt: skip
    loader = loaders[place.partition("/")[0]]
    getattr(loader, "cache_clear", lambda: None)()
    loader((own,))


def _workload(data: bytes, folder: Path) -> Iterator[str]:
    from promptlint.advisor.workload import load_workloads, synthesise

    path = folder / "input.yaml"
    path.write_bytes(data)
    try:
        for pool in load_workloads(path):
            yield f"pool {any(block.grows for block in pool.prompt)} {pool.order} {_size(pool.prompt_tokens)} {_size(len(pool.prompt))} {pool.router}"
            if pool.prompt_tokens < 20_000:
                from promptlint.advisor.workload import with_changes

                yield f"requests {_size(len(synthesise(with_changes(pool, requests=20))))}"
    except UserError as error:
        yield _word(error)


def _measured(data: bytes, folder: Path) -> Iterator[str]:
    from promptlint.app.measured import load_measured

    path = folder / "input.json"
    path.write_bytes(data)
    try:
        found = load_measured(path)
        yield f"{sorted(found.requests_per_second)} {found.ratio is None} {bool(found.engines)}"
    except UserError as error:
        yield _word(error)


def _model(data: bytes, folder: Path) -> Iterator[str]:
    """A model's config.json, as `--model FOLDER` reads it."""
    from promptlint.catalog.models import model_from_config

    path = folder / "config.json"
    path.write_bytes(data)
    try:
        found = model_from_config(path)
        yield f"{found.is_latent} {found.is_moe} {bool(found.special_attention)} {_size(int(min(found.params, 1e30)))}"
    except UserError as error:
        yield _word(error)


def _recorded(data: bytes, folder: Path) -> Iterator[str]:
    """What `record` left, also by a process that died in the middle; then two such records compared."""
    from promptlint.recording import session
    from promptlint.recording.compare import differences, joined, pairs

    found = session.Recording()
    session.merge(io.BytesIO(data), found)
    path = folder / "input.jsonl"
    path.write_bytes(b"")
    session.replace(path, found.rows)
    for pair in pairs(found.rows, found.rows[::-1]):
        if pair.was is not None and pair.now is not None:
            yield f"differences {_size(len(joined(differences(pair.was, pair.now))))}"
    yield f"rows {_size(len(found.rows))} broken {_size(found.broken)} failed {_size(len(found.failed))} fake {_size(found.fake)}"
    yield from _traffic(path.read_bytes(), folder)


# --- traffic ----------------------------------------------------------------------------------------------------------------------------------

_TRAFFIC_NAMES = (
    "log.jsonl",
    "log.csv",
    "log.txt",
    "log.jsonl.gz",
    "log.jsonl.zst",
    "dump.pkl",
    "table.parquet",
    "cassette.yaml",
)


def _traffic(data: bytes, folder: Path) -> Iterator[str]:
    """One log through reading, diagnosis, statistics, hashing and two simulations; every reader is tried in the order that users get."""
    from promptlint.app import diagnose
    from promptlint.app.traffic import Tokens, anonymize, measure, open_traffic

    path = folder / _TRAFFIC_NAMES[_named(data)]
    path.write_bytes(data)
    traffic = open_traffic([path])
    records = list(traffic)
    yield from (
        f"record {record.format} {bool(record.usage)} {record.is_request} {record.timestamp is None}"
        for record in records
    )
    yield from (
        f"problem {re.sub(r'[^a-z ]', '', problem.reason)[:40]} {re.sub('[^a-z]', '', problem.field)}"
        for problem in traffic.problems
    )
    if not records or len(data) > 20_000:
        return
    tokens = Tokens()
    for step in (
        lambda: diagnose.run(open_traffic([path])),
        lambda: measure(open_traffic([path]), tokens),
        lambda: list(anonymize(open_traffic([path]), tokens, page=16, salt="s")),
        lambda: _simulated(path, "sglang"),
        lambda: _simulated(path, "anthropic"),
        lambda: _simulated(path, "block-lru"),
    ):
        try:
            yield type(step()).__name__
        except UserError as error:
            yield _word(error)


def _simulated(path: Path, engine: str) -> Any:
    """`promptlint simulate` in this process; its complaints as UserError."""
    import click

    from promptlint.cli.simulate import command

    kept = sys.stdout
    sys.stdout = io.StringIO()
    try:
        return command.main([str(path), "--engine", engine, "--output-format", "json"], standalone_mode=False)
    except click.ClickException as error:
        raise UserError(str(error)) from error
    finally:
        sys.stdout = kept


def _named(data: bytes) -> int:
    """Which kind of file the bytes are; most are lines of JSON."""
    for index, (name, head) in enumerate(
        (
            ("jsonl", b"{"),
            ("csv", b"model,"),
            ("txt", b"INFO"),
            ("gz", b"\x1f\x8b"),
            ("zst", b"\x28\xb5\x2f\xfd"),
            ("pkl", b"\x80"),
            ("parquet", b"PAR1"),
            ("yaml", b"interactions"),
        )
    ):
        if data.startswith(head):
            return index if name != "parquet" else _TRAFFIC_NAMES.index("table.parquet")
    return zlib.crc32(data) % len(_TRAFFIC_NAMES)


# --- seeds ------------------------------------------------------------------------------------------------------------------------------------


def _python_seeds() -> Iterator[bytes]:
    yield from _encoded(_fences("py", "python"))
    yield from (path.read_bytes() for path in sorted((TOP / "examples").rglob("*.py")) if path.stat().st_size < 20_000)
    yield _FILLS.encode()
    yield _LOADS.encode()


def _jinja_seeds() -> Iterator[bytes]:
    yield from _encoded(_fences("jinja", "jinja2", "j2"))
    yield from _encoded(_TEMPLATES)


_TEMPLATES = (
    "You are {{ name }}. {% for doc in docs %}{{ loop.index }}. {{ doc.title | upper }}: {{ doc['text'] }}\n{% else %}none{% endfor %}Today is {{ now() }}. {{ question }}",
    "{% extends 'base.j2' %}{% block system %}You are a careful assistant. {{ super() }}{% endblock %}{% macro row(x, y=1) %}{{ x }}={{ y }}{% endmacro %}{{ row(1, y=2) }}",
    "{%- set items = ['a', 'b'] -%}{% if user and not items %}{{ user.name }}{% elif x is defined %}{{ x | tojson }}{% else %}{% include 'part.j2' ignore missing %}{% endif %}",
    "{% raw %}{{ untouched }}{% endraw %}{# a comment #}{% call(item) row(docs) %}<{{ item }}>{% endcall %}{% filter upper %}text{% endfilter %}{{ a if b else c }}{{ d[1:2] }}{{ [1, 2] | join(', ') }}",
    "system: You are helpful.\n{% with a = 1, b = a %}{{ a ~ b }}{% endwith %}{% set text %}{{ history | length }}{% endset %}{{ text }}{% from 'lib.j2' import row as line with context %}{{ line(docs) }}",
    "# line statement\n{% autoescape false %}{{ x|default('y', true)|replace('a', 'b') }}{% endautoescape %}{{ namespace(a=1).a }}{% do items.append(1) %}",
)

_CHAT_TEMPLATES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}{%- set ns = namespace(last=0) %}{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{%- for m in messages %}<|{{ m['role'] }}|>{% if m.reasoning_content and loop.index0 > ns.last %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content | trim }}{% endfor %}",
    "{% if messages[0].role != 'system' %}It is {{ strftime_now('%d %B %Y') }}.\n{% endif %}{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endif %}"
    "{% if m.tool_calls %}{% for t in m.tool_calls %}{{ t.function.name }}{{ t.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}",
    "{{ bos_token }}{% if (messages[0]['role'] == 'assistant') %}{{ raise_exception('no') }}{% endif %}{% for message in messages[-3:] %}{% generation %}[INST] {{ message['content'].split('</think>')[-1] }} [/INST]{% endgeneration %}{% endfor %}",
    "{% macro show(m) %}{{ m.role | capitalize }}: {{ m.content }}{% endmacro %}{% for m in messages | reverse %}{{ show(m) }}{% if loop.first %}{{ tools }}{% endif %}{% endfor %}",
)


def _chat_seeds() -> Iterator[bytes]:
    yield from _encoded(_CHAT_TEMPLATES)
    yield from _encoded(text for text in _fences("jinja", "jinja2", "j2") if "messages" in text)


def _prompt_seeds() -> Iterator[bytes]:
    yield from _encoded(_fences("yaml", "json", "md", "txt", "prompty", "toml"))
    long = "Answer from the manual only, in one line, and name the page. " * 12
    yield f"system: |\n  You are a helper. {long}\n  Today is {{date}}.\nuser: >-\n  {{question}}\nother: &a\n  - *a\n".encode()
    yield json.dumps(
        {
            "system": f"You are {{name}}. {long}",
            "messages": [{"role": "user", "content": "{{question}}"}],
            "chat_template": _CHAT_TEMPLATES[0],
        }
    ).encode()
    yield f"---\nname: x\nmodel:\n  api: chat\ninputs:\n  q: text\n---\nsystem:\nYou are {{{{name}}}}. {long}\n\nuser:\n{{{{q}}}}\n".encode()
    yield f"# Role\nYou are {{name}}. {long}\n\n- {{context}}\n<docs>\n$documents\n</docs>\n%s {{{{#each x}}}}a{{{{/each}}}}".encode()
    yield f'system = """You are. {long}{{date}}"""\n[a]\nb = ["{{x}}"]\n'.encode()


def _suppression_seeds() -> Iterator[bytes]:
    yield b"x = 1  # promptlint: allow[clock-in-prefix] audit wants it\n# promptlint: allow[all,random-order]: why\ny = f(\n    1,\n)  # promptlint: allow[] none\n"
    yield b"{# promptlint: allow[template-clock] said #}\n{{ now }}\n{%- raw %}{# promptlint: allow[x] #}{% endraw %}\n"
    yield b"a: |  # promptlint: allow[x] y\n  text # promptlint: allow[z]\nb: [c, 'd # promptlint: allow[e]']\n"
    yield 'def f():\n    """# promptlint: allow[x]"""\n    return (  # promptlint: allow[y] z\n        1)\nmatch x:\n    case 1: pass # promptlint: allow[ä]\n'.encode()


def _config_seeds() -> Iterator[bytes]:
    yield b'select = ["volatility"]\nextend-select = ["order"]\nignore = ["clock-in-prefix"]\npersona = "auditor"\nmin-confidence = "low"\nexclude = ["a/**"]\ninclude = ["*.md"]\ntests = true\n[per-file-ignores]\n"a/*.py" = ["all"]\n'
    yield b'[project]\nname = "x"\n[tool.promptlint]\nprofile = "high"\nfail-on = "medium"\noutput-format = "json"\nextra-rules = ["rules"]\ntokenizer = "o200k_base"\ncache-dir = "c"\nforce-exclude = false\nrespect-gitignore = true\n'


def _sample_report() -> Any:
    if not _reports:
        sys.path.insert(0, str(TOP / "tests"))
        import report_sample

        _reports.append(report_sample.everything())
    return _reports[0]


_reports: list[Any] = []


def _baseline_seeds() -> Iterator[bytes]:
    row = {"fingerprint": "f" * 16, "rule": "clock-in-prefix", "path": "app/agent.py", "expression": "now()"}
    yield json.dumps(
        {"schema": "promptlint.baseline/1", "findings": [row, {**row, "fingerprint": "e", "path": "gone.py"}]}
    ).encode()


def _lock_seeds() -> Iterator[bytes]:
    row = {"cache_key": "sha256:" + "0" * 64, "prefix_tokens": 12, "blocks": ["system", "history"]}
    sites = {site.id: row for site in _sample_report().call_sites}
    yield json.dumps(
        {"schema": "promptlint.lock/1", "about": "x", "call_sites": {**sites, "a.py::f::openai": row}}, indent=2
    ).encode()


def _report_seeds() -> Iterator[bytes]:
    from promptlint.report import model

    yield json.dumps({"files": {}, "report": model.dump(_sample_report())}).encode()
    yield json.dumps(model.to_json(_sample_report())).encode()
    yield json.dumps({"o200k_base:0": 5, "x": -1}).encode()


def _files_of(*folders: str) -> Iterator[bytes]:
    for folder in folders:
        for path in sorted((TOP / folder).glob("*")):
            if path.is_file() and path.stat().st_size < 30_000:
                yield path.read_bytes()


def _rules_seeds() -> Iterator[bytes]:
    yield from _files_of("rules/sources", "rules/volatility", "rules/engines", "rules/hardware")
    yield from list(_files_of("rules/sdk", "rules/models"))[:12]
    yield (TOP / "rules/names.toml").read_bytes()


def _workload_seeds() -> Iterator[bytes]:
    yield from _files_of("examples/workloads")


def _measured_seeds() -> Iterator[bytes]:
    yield b'{"sglang": 12.1, "vllm": 11.0}'
    figures = {name: {"mean": 0.9} for name in ("requests_per_second", "hit_rate", "ttft_p50_ms", "ttft_p99_ms")}
    repetition = {"answered": 80, "requests": 80, "prompt_tokens": 76_800, "cached_tokens": 70_000}
    rows = [{"target": name, "figures": figures, "repetitions": [repetition]} for name in "AB"]
    figure = {"figure": "requests_per_second", "ratio": 1.3, "ratio_low": 1.2, "ratio_high": 1.4, "pairs": 5}
    cell = {
        "closed": True,
        "structured": False,
        "rate": None,
        "load": "x",
        "targets": rows,
        "comparisons": [{"first": "A", "second": "B", "figures": [figure]}],
    }
    promises = [
        {"target": name, "kept": 8.0, "broken": 16.0, "at_least": False, "structured": False, "slo": "x"}
        for name in "AB"
    ]
    run = {"schema": "promptlint.bench/1", "status": "complete", "refused": [], "unusable": {}, "workload": {"name": "w"}, "settings": {"level": 0.95}, "targets": [{"name": "A", "engine": "vllm"}, {"name": "B", "engine": "sglang"}]}  # fmt: skip
    yield json.dumps({**run, "cells": [cell], "goodput": []}).encode()
    yield json.dumps({**run, "cells": [{**cell, "closed": False, "rate": 8.0}], "goodput": promises}).encode()


def _model_seeds() -> Iterator[bytes]:
    plain = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}  # fmt: skip
    yield json.dumps(plain).encode()
    yield json.dumps({**plain, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "quantization_config": {"quant_method": "fp8"}}).encode()  # fmt: skip
    yield json.dumps(
        {
            "text_config": {
                **plain,
                "layer_types": ["sliding_attention", "full_attention"] * 16,
                "sliding_window": 4096,
                "head_dim": 128,
            }
        }
    ).encode()


def _samples() -> Any:
    if str(TOP / "tests") not in sys.path:
        sys.path.insert(0, str(TOP / "tests"))
    import traffic_samples

    return traffic_samples


def _traffic_seeds() -> Iterator[bytes]:
    import gzip
    import pickle

    samples = _samples()
    yield from _encoded(
        [*samples.CHAT.values(), *samples.OTHER.values(), samples.SGLANG_TEXT, samples.otlp(samples.GENAI)]
    )
    yield (TOP / "examples/support_bot/traffic.jsonl").read_bytes()[:4000]
    rows = [({"text": "a b c", "rid": "r"}, {"meta_info": {"prompt_tokens": 9, "cached_tokens": 4}}, 1.0, 2.0)]
    yield pickle.dumps({"requests": rows})
    yield gzip.compress(samples.CHAT["openai"].encode())
    yield b"model,start_time,input_cached_tokens,input_tokens,num_model_requests\ngpt-4o,2026-03-04,512,900,3\n"
    yield b'# HELP vllm:prefix_cache_queries x\n# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries_total{model_name="m"} 1000.0\nvllm:prefix_cache_hits_total{model_name="m"} 10\n'
    with contextlib.suppress(ImportError):
        import zstandard

        yield zstandard.compress(samples.CHAT["openai"].encode())
    with contextlib.suppress(ImportError):
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = io.BytesIO()
        pq.write_table(pa.table({"prompt": ["a b", "a c"], "timestamp": [1, 2]}), sink)
        yield sink.getvalue()


def _recorded_seeds() -> Iterator[bytes]:
    first = {
        "id": "1",
        "timestamp": 5,
        "model": "m",
        "messages": [{"role": "user", "content": "Hello Ann, it is 10:41"}],
        "call_site": "a.py::f::openai",
        "recorded": {"sdk": "openai", "headers": {"x": "y"}},
    }
    second = {**first, "id": "2", "timestamp": 9, "messages": [{"role": "user", "content": "Hello Bob, it is 10:42"}]}
    answer = {
        "id": "1",
        "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}},
        "recorded": {"status": 200, "headers": {"z": "1"}},
    }
    yield "".join(json.dumps(row) + "\n" for row in (first, second, answer, {"id": "3", "reads": "HOME"})).encode()


TARGETS: dict[str, Target] = {
    "python": Target(_python, _python_seeds),
    "jinja": Target(_jinja, _jinja_seeds),
    "prompt-file": Target(_prompt_file, _prompt_seeds),
    "chat-template": Target(_chat_template, _chat_seeds),
    "fix": Target(_fix, _python_seeds),
    "traffic": Target(_traffic, _traffic_seeds),
    "suppressions": Target(_suppressions, _suppression_seeds),
    "config": Target(_config, _config_seeds),
    "baseline": Target(_baseline, _baseline_seeds),
    "lock": Target(_lock, _lock_seeds),
    "report": Target(_cached, _report_seeds),
    "providers": Target(_providers, lambda: list(_files_of("rules/providers"))[:8]),
    "rules": Target(_rules, _rules_seeds),
    "workload": Target(_workload, _workload_seeds),
    "measured": Target(_measured, _measured_seeds),
    "model": Target(_model, _model_seeds),
    "recorded": Target(_recorded, _recorded_seeds),
}
