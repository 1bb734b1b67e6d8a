"""The comment that allows a finding: it stands where its reader finds it, and the finding is then suppressed."""

import pytest

pytest.importorskip("lsprotocol.types", reason="pygls is not installed")

from promptlint.app.check import Request, check
from promptlint.config import Settings
from promptlint.fixes.splice import apply
from promptlint.lsp.actions import REASON, allowing
from promptlint.lsp.hover import _prose, hover
from promptlint.source import SourceFile

RULES = "Answer from the manual and from nothing else, and say so when it is silent. " * 40
PYTHON = f'''import time
import openai

RULES = """{RULES}"""


def ask(question):
    if question:
        return openai.OpenAI().chat.completions.create(
            model="gpt-4o",
            messages=[
                {{"role": "system",
                 "content": f"It is {{time.time()}}.{{RULES}}"}},
                {{"role": "user", "content": question}},
            ],
        )
'''
JINJA = "You are a helpful assistant.\nToday is {{ now() }} and the user asks.\n" + RULES + "\n"


def report(folder, name, text):
    (folder / name).write_bytes(text.encode())
    found = check(Settings(folder), Request((folder / name,), folder), use_cache=False)
    return found, SourceFile(name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("app.py", PYTHON),
        ("app.py", PYTHON.replace("\n", "\r\n")),
        (
            "app.py",
            PYTHON.replace(
                "        return openai", "        # promptlint: allow[unsorted-json] why\n        return openai"
            ),
        ),
        ("mail.jinja", JINJA),
    ],
    ids=["python", "crlf", "beside another", "jinja"],
)
def test_an_allowed_finding_is_suppressed(tmp_path, name, text):
    found, source = report(tmp_path, name, text)
    item = next(one for one in found.findings if one.rule != "unused-suppression")
    edit, place = allowing(source, item)
    after = apply(source, [edit])
    assert after.count("\r\n") in {0, after.count("\n")}
    if place is not None:
        assert SourceFile(name, after).slice(place) == REASON
    again, _ = report(tmp_path, name, after)
    assert again.suppressed == 1
    assert item.rule not in [one.rule for one in again.findings]
    assert "suppression-without-reason" not in [one.rule for one in again.findings]


def test_hover_shows_the_bar_and_where_the_prefix_ends(tmp_path):
    found, _ = report(tmp_path, "app.py", PYTHON)
    (item,) = found.findings
    text = hover(found, "app.py", item.line, item.column)
    assert "tokens behind it are lost per request" in text
    assert f"clock `{item.expression}` in the system block" in text
    assert "&#" not in text  # Neovim shows entities as they are written
    (site,) = found.call_sites
    assert f"{site.cacheable_prefix_tokens} of {site.prompt_tokens:,} tokens in the cacheable prefix" in text
    bar, mark = text.split("```text\n")[1].split("\n")[:2]
    assert set(bar) <= set("█▓▒░")
    assert mark.index("^") < len(bar)
    assert hover(found, "app.py", 1, 1) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("the clock `a.now()` is *new*", "the clock `a.now()` is \\*new\\*"),
        ("one ` alone <b>", "one \\` alone \\<b\\>"),
        ("``` fence", "\\`\\`\\` fence"),
        ("`a``b`", "\\`a\\`\\`b\\`"),
        ("[x](http://a) www.b &amp; \u202e", "\\[x\\](http\\://a) www\\.b \\&amp; \\\\u202e"),
        ("`<script>` c_d", "`<script>` c\\_d"),
    ],
)
def test_prose_in_a_hover_stays_text(text, shown):
    assert _prose(text) == shown
