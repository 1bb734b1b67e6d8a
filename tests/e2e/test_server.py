"""The language server over its own protocol, as an editor drives it."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

types = pytest.importorskip("lsprotocol.types", reason="pygls is not installed")
from pygls.lsp.client import LanguageClient  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
WAIT = 60  # seconds; machines differ


class Editor:
    """A client with the diagnostics that it was sent, by URI."""

    def __init__(self):
        self.client = LanguageClient("editor", "1")
        self.told = {}
        self.messages = []
        self.news = asyncio.Condition()

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        async def published(params):
            async with self.news:
                self.told.setdefault(params.uri, []).append(params)
                self.news.notify_all()

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        async def shown(params):
            async with self.news:
                self.messages.append(params.message)
                self.news.notify_all()

    async def start(self, folder, *options, encodings=None):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        await self.client.start_io(
            sys.executable, "-m", "promptlint", "server", *options, cwd=str(folder), env=environment
        )
        general = types.GeneralClientCapabilities(position_encodings=encodings) if encodings else None
        folders = [types.WorkspaceFolder(folder.as_uri(), folder.name)]
        result = await self.client.initialize_async(
            types.InitializeParams(types.ClientCapabilities(general=general), workspace_folders=folders)
        )
        self.client.initialized(types.InitializedParams())
        return result

    def open(self, path, text=None, language="python", uri=None):
        uri = uri or path.as_uri()
        text = path.read_bytes().decode("utf-8") if text is None else text
        self.client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, language, 1, text))
        )
        return uri

    def change(self, uri, text, version):
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version, uri),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    async def diagnostics(self, uri, version=1):
        """What was published for a version of a document; waits for it."""

        def found():
            return next((each for each in reversed(self.told.get(uri, [])) if each.version == version), None)

        async with asyncio.timeout(WAIT), self.news:
            await self.news.wait_for(lambda: found() is not None)
        return list(found().diagnostics)

    async def stop(self):
        with contextlib.suppress(Exception):
            await self.client.shutdown_async(None)
            self.client.exit(None)
        with contextlib.suppress(Exception):
            await self.client.stop()


def session(work):
    """Run a coroutine function with an editor that is stopped in the end."""

    async def run():
        editor = Editor()
        try:
            async with asyncio.timeout(2 * WAIT):
                await work(editor)
        finally:
            await editor.stop()

    asyncio.run(run())


def document(uri):
    return types.TextDocumentIdentifier(uri)


@pytest.fixture
def desk(tmp_path):
    """The example of the README, in a folder of its own."""
    folder = tmp_path / "desk"
    shutil.copytree(ROOT / "examples" / "support_bot", folder)
    (folder / "promptlint.toml").write_text("")
    return folder


def test_an_editing_session(desk):
    path = desk / "support" / "desk.py"

    async def work(editor):
        result = await editor.start(desk)
        assert result.capabilities.hover_provider
        uri = editor.open(path)
        rows = await editor.diagnostics(uri)
        assert [row.code for row in rows] == ["clock-in-prefix", "block-order-differs"]
        clock = rows[0]
        lines = path.read_text("utf-8").split("\n")
        shown = lines[clock.range.start.line][clock.range.start.character : clock.range.end.character]
        assert shown == "{datetime.now().isoformat()}"
        assert {info.location.uri for info in clock.related_information} == {uri}

        hover = await editor.client.text_document_hover_async(types.HoverParams(document(uri), clock.range.start))
        assert "clock-in-prefix" in hover.contents.value
        assert "^ cacheable prefix ends" in hover.contents.value

        whole = types.Range(types.Position(0, 0), types.Position(len(lines), 0))
        hints = await editor.client.text_document_inlay_hint_async(types.InlayHintParams(document(uri), whole))
        assert [hint.label for hint in hints] == [
            "cacheable prefix ends here: 3 tokens",
            "cacheable prefix ends here: 1,119 tokens",
        ]
        assert hints[0].position == clock.range.start

        answer = await editor.client.text_document_code_action_async(
            types.CodeActionParams(document(uri), clock.range, types.CodeActionContext([clock]))
        )
        titles = [action.title for action in answer]
        assert titles[-1] == "Allow clock-in-prefix here, with a reason"
        kinds = {action.title: action.kind for action in answer}
        assert all(kinds[title] == types.CodeActionKind.RefactorRewrite for title in titles[:-1])
        assert len(titles) > 1
        editor.change(uri, applied(path.read_text("utf-8"), answer[-1], uri), 2)
        assert [row.code for row in await editor.diagnostics(uri, 2)] == ["block-order-differs"]
        editor.change(uri, applied(path.read_text("utf-8"), answer[0], uri), 3)
        (left,) = [row for row in await editor.diagnostics(uri, 3) if row.code == "clock-in-prefix"]
        assert "one miss a day" in left.message  # the offered edit prints no more than the date

        template = desk / "support" / "prompts" / "mail.jinja"
        inside = editor.open(template, language="jinja")
        rows = await editor.diagnostics(inside)
        assert [row.code for row in rows] == ["user-data-before-shared"]
        editor.change(inside, "{{ customer_name }}\n" * 2, 2)
        await editor.diagnostics(inside, 2)
        editor.client.text_document_did_close(types.DidCloseTextDocumentParams(document(inside)))
        assert await editor.diagnostics(inside, None) == []

    session(work)


def applied(text, action, uri):
    """The text after an action that changes one document by edits of ASCII lines."""
    (change,) = action.edit.document_changes
    assert change.text_document.uri == uri
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for edit in sorted(
        change.edits, key=lambda edit: (edit.range.start.line, edit.range.start.character), reverse=True
    ):
        first = starts[edit.range.start.line] + edit.range.start.character
        last = starts[edit.range.end.line] + edit.range.end.character
        text = text[:first] + edit.new_text + text[last:]
    return text


FAULT = """import json
import openai

RULES = "Answer from the manual and from nothing else, and say so when it is silent. " * 40


def ask(names: set[str], question: str):
    system = f"Tools: {', '.join(names)}\\n{RULES}"
    return openai.OpenAI().chat.completions.create(
        model="gpt-4o", messages=[{"role": "system", "content": system}, {"role": "user", "content": question}]
    )
"""
CLOCK = """import time
import openai

RULES = "Answer from the manual and from nothing else, and say so when it is silent. " * 40


def ask(question: str):
    return openai.OpenAI().chat.completions.create(
        model="gpt-4o",
        messages=[
            {"role": "system", "content": f"😀 {time.time()} {RULES}"},
            {"role": "user", "content": question},
        ],
    )
"""


def test_places_with_astral_characters_tabs_and_carriage_returns(tmp_path):
    text = CLOCK.replace("            {", "\t\t\t{").replace("\n", "\r\n")
    row = next(number for number, line in enumerate(text.split("\r\n")) if "😀" in line)
    line = text.split("\r\n")[row]
    at = line.index("{time")
    (tmp_path / "promptlint.toml").write_text("")
    path = tmp_path / "app.py"
    path.write_bytes(text.encode())

    def check(encodings, column):
        async def work(editor):
            result = await editor.start(tmp_path, encodings=encodings)
            assert result.capabilities.position_encoding == (encodings or [types.PositionEncodingKind.Utf16])[0]
            (found,) = await editor.diagnostics(editor.open(path))
            assert found.range.start == types.Position(row, column)
            assert found.range.end == types.Position(row, column + len("{time.time()}"))

        session(work)

    check(None, at + 1)  # the face is two units of UTF-16; the other encodings stand in the tests of positions


def test_safe_edits_are_preferred(tmp_path):
    (tmp_path / "promptlint.toml").write_text("")
    path = tmp_path / "app.py"
    path.write_text(FAULT)

    async def work(editor):
        await editor.start(tmp_path)
        uri = editor.open(path)
        (found,) = await editor.diagnostics(uri)
        assert found.code == "unordered-iteration"
        answer = await editor.client.text_document_code_action_async(
            types.CodeActionParams(document(uri), found.range, types.CodeActionContext([found]))
        )
        fix, *others = answer
        assert (fix.kind, fix.is_preferred) == (types.CodeActionKind.QuickFix, True)
        assert not any(other.is_preferred for other in others)
        editor.change(uri, applied(FAULT, fix, uri), 2)
        assert await editor.diagnostics(uri, 2) == []

    session(work)


def test_only_the_newest_text_is_answered_and_a_broken_one_keeps_its_marks(tmp_path):
    (tmp_path / "promptlint.toml").write_text("")
    path = tmp_path / "app.py"
    path.write_text(CLOCK)

    async def work(editor):
        await editor.start(tmp_path)
        uri = editor.open(path)
        await editor.diagnostics(uri)
        for version in range(2, 30):
            editor.change(uri, "\n" * version + CLOCK, version)
        (found,) = await editor.diagnostics(uri, 29)
        assert found.range.start.line == 29 + CLOCK.split("\n").index(next(x for x in CLOCK.split("\n") if "😀" in x))
        versions = [each.version for each in editor.told[uri]]
        assert versions == sorted(versions)
        assert len(versions) < 12  # a burst is answered once or twice, not every time
        editor.change(uri, CLOCK + "def (", 30)
        editor.change(uri, CLOCK, 31)
        await editor.diagnostics(uri, 31)
        assert not [each for each in editor.told[uri] if each.version == 30 and each.diagnostics == []]

    session(work)


def test_buffers_without_a_file_files_elsewhere_and_a_broken_configuration(tmp_path):
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    settings = project / "promptlint.toml"
    settings.write_text('persona = "nobody"\n')
    path = project / "app.py"
    path.write_text(CLOCK)
    other = outside / "other.py"
    other.write_text(CLOCK)
    (outside / "beside.py").write_text("def (")

    async def work(editor):
        await editor.start(project)
        uri = editor.open(path)
        async with asyncio.timeout(WAIT), editor.news:
            await editor.news.wait_for(lambda: editor.messages)
        assert "promptlint.toml:1: persona: 'nobody' is none of" in editor.messages[0]
        assert uri not in editor.told
        settings.write_text('ignore = ["clock-in-prefix"]\n')
        editor.client.workspace_did_change_watched_files(
            types.DidChangeWatchedFilesParams([types.FileEvent(settings.as_uri(), types.FileChangeType.Changed)])
        )
        assert await editor.diagnostics(uri) == []
        assert [row.code for row in await editor.diagnostics(editor.open(other))] == ["clock-in-prefix"]
        settings.unlink()
        editor.told.clear()
        editor.client.workspace_did_change_watched_files(
            types.DidChangeWatchedFilesParams([types.FileEvent(settings.as_uri(), types.FileChangeType.Deleted)])
        )
        assert [row.code for row in await editor.diagnostics(uri)] == ["clock-in-prefix"]
        buffer = editor.open(None, CLOCK, uri="untitled:Untitled-1")
        assert [row.code for row in await editor.diagnostics(buffer)] == ["clock-in-prefix"]

    session(work)


SLOW = """
import sys, time
from promptlint.lsp.folder import Folder
def look(self, *, quick, hasty=False):
    print("looking", flush=True)
    time.sleep(1000)
Folder.look = look
from promptlint.cli import main
sys.argv = ["promptlint", "server"]
main()
"""


@pytest.mark.parametrize("goodbye", [True, False])
def test_the_end_does_not_wait_for_a_look(desk, goodbye):
    """An editor that leaves, or is gone without a word, leaves no process behind that reads a large project to its end."""
    path = desk / "support" / "desk.py"
    item = {"uri": path.as_uri(), "languageId": "python", "version": 1, "text": path.read_text("utf-8")}
    server = subprocess.Popen(
        [sys.executable, "-c", SLOW], cwd=desk, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip

    def say(method, params=None, **more):
        data = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        server.stdin.flush()

    try:
        say("initialize", {"capabilities": {}, "processId": None, "rootUri": desk.as_uri()}, id=1)
        say("initialized", {})
        say("textDocument/didOpen", {"textDocument": item})
        assert server.stderr.readline() == b"looking\n"
        if goodbye:
            say("shutdown", id=2)
            say("exit")
        server.stdin.close()
        assert server.wait(WAIT) == 0
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
        server.stderr.close()
