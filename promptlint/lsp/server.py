"""The protocol's side of the language server: documents in; diagnostics, hovers, hints and actions out.

Looks at a project run on a thread of their own, one at a time for the whole server. A look at texts that have changed meanwhile ends at its next step and is
not published. After each change a quick look answers, for the changed files first; in the next pause everything is read again, and what `check` says is shown. Diagnostics are
published for open documents only, with the version that they were made for.

While a text cannot be parsed, its last diagnostics stay: an editor moves them along with the text.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types
from pygls import uris
from pygls.lsp.server import LanguageServer

from promptlint import __version__
from promptlint.app.discovery import absolute
from promptlint.app.live import Stopped
from promptlint.config import Settings
from promptlint.errors import UserError
from promptlint.lsp import actions
from promptlint.lsp.diagnostics import SOURCE, diagnostics
from promptlint.lsp.folder import CONFIGURATION, LANGUAGES, Document, Folder, Seen, root_of
from promptlint.lsp.hints import hints
from promptlint.lsp.hover import hover
from promptlint.lsp.positions import Positions
from promptlint.report.model import FindingItem
from promptlint.source import SourceFile, Span

__all__ = ["Server"]

log = logging.getLogger("promptlint.server")

DEBOUNCE = 0.05  # seconds without a change before a look begins
LONGEST_WAIT = 0.25  # seconds after which it begins although the typing goes on
PAUSE = 1.0  # seconds without a change before everything is read again
PATIENCE = 5.0  # seconds that a request waits for a look at its text
STACK = (
    256 * 1024 * 1024
)  # bytes of address space; evaluations nest deeply, and threads have small stacks on some systems

_Answer = TypeVar("_Answer")
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class Server(LanguageServer):
    """`load` gives the settings of a project root, and raises UserError for a configuration that does not fit."""

    def __init__(self, load: Callable[[Path], Settings]) -> None:
        # Whole documents are sent: pygls applies changes of ranges by lines that other characters end, too.
        super().__init__(SOURCE, __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full, max_workers=2)
        self.load = load
        self.folders: dict[Path, Folder] = {}
        self.tasks: dict[Path, asyncio.Task[None]] = {}
        self.wanted: dict[Path, asyncio.Event] = {}
        self.looked = asyncio.Condition()
        self.told: set[str] = set()
        size = threading.stack_size(STACK)
        self.looker = ThreadPoolExecutor(1, "promptlint-look")
        self.looker.submit(lambda: None).result()  # the thread starts now, with the large stack
        threading.stack_size(size)
        _register(self)

    # ---- documents and folders

    def workspaces(self) -> tuple[Path, ...]:
        """The workspace folders that are files."""
        found = [uris.to_fs_path(folder.uri) for folder in self.workspace.folders.values()]
        if not found and self.workspace.root_path:
            found = [self.workspace.root_path]
        return tuple(absolute(path) for path in found if path)

    def folder_of(self, uri: str) -> Folder | None:
        """The project that holds an open document."""
        return next((folder for folder in self.folders.values() if uri in folder.documents), None)

    def opened(self, uri: str, text: str, version: int, language: str) -> None:
        """A document was opened: find its project, and look."""
        path = uris.to_fs_path(uri) if uri.startswith("file:") else None
        workspaces = self.workspaces()
        if path is None:
            root = workspaces[0] if workspaces else absolute(Path.cwd())
            alone = not workspaces
            name = uri.rpartition(":")[2].rpartition("/")[2] or "untitled"
            place = root / name if Path(name).suffix else root / (name + LANGUAGES.get(language, ".none"))
        else:
            place = absolute(path)
            root, alone = root_of(place, workspaces)
        folder = self.folders.get(root)
        if folder is None:
            folder = self.folders[root] = Folder(root, alone, self.load)
            self.wanted[root] = asyncio.Event()
            self.tasks[root] = asyncio.get_running_loop().create_task(self._keep_looking(folder))
        folder.open(Document(uri, place, text.removeprefix("\ufeff"), version, path is not None))
        self.wanted[root].set()

    def changed(self, uri: str, text: str, version: int) -> None:
        """A document has a new text."""
        folder = self.folder_of(uri)
        if folder is not None:
            old = folder.documents[uri]
            folder.open(Document(uri, old.path, text.removeprefix("\ufeff"), version, old.saved))
            self.wanted[folder.root].set()

    def closed(self, uri: str) -> None:
        """A document was closed: its diagnostics go. A project without open documents is dropped."""
        folder = self.folder_of(uri)
        if folder is None:
            return
        folder.close(uri)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))
        if folder.documents:
            self.wanted[folder.root].set()
        else:
            self.tasks.pop(folder.root).cancel()
            del self.folders[folder.root], self.wanted[folder.root]

    def file_events(self, events: list[types.FileEvent]) -> None:
        """Files changed on disk."""
        for event in events:
            name = uris.to_fs_path(event.uri)
            if not name:
                continue
            path = absolute(name)
            for folder in list(self.folders.values()):
                if path.is_relative_to(folder.root):
                    folder.file_changed(path, listed=event.type is not types.FileChangeType.Changed)
                    self.wanted[folder.root].set()
            if path.name in CONFIGURATION:
                self._find_projects_anew()

    def _find_projects_anew(self) -> None:
        """A configuration file came or went: documents may belong to another project now."""
        moved = [
            (document, folder)
            for folder in self.folders.values()
            for document in folder.documents.values()
            if document.saved and root_of(document.path, self.workspaces())[0] != folder.root
        ]
        for document, folder in moved:
            folder.close(document.uri)
            self.opened(document.uri, document.text, document.version, "")
            if folder.documents:
                self.wanted[folder.root].set()
            else:
                self.tasks.pop(folder.root).cancel()
                del self.folders[folder.root], self.wanted[folder.root]

    # ---- looking

    async def _keep_looking(self, folder: Folder) -> None:
        """For each change a quick look, first at the files that changed and then at what changes elsewhere, and a full one in the pause behind it."""
        wanted = self.wanted[folder.root]
        while True:
            await wanted.wait()
            for _ in range(int(LONGEST_WAIT / DEBOUNCE)):
                wanted.clear()
                await asyncio.sleep(DEBOUNCE)
                if not wanted.is_set():
                    break
            wanted.clear()
            await self._look(folder, quick=True, hasty=True)
            if not wanted.is_set() and folder.seen is not None and folder.seen.look.waiting:
                await self._look(folder, quick=True)
            try:
                await asyncio.wait_for(wanted.wait(), PAUSE)
            except TimeoutError:
                if not (folder.seen is not None and folder.seen.look.full):
                    await self._look(folder, quick=False)

    async def _look(self, folder: Folder, *, quick: bool, hasty: bool = False) -> None:
        """One look and what is published of it. Errors are told, never raised: the next change gets its look."""
        try:
            seen = await asyncio.get_running_loop().run_in_executor(
                self.looker, lambda: folder.look(quick=quick, hasty=hasty)
            )
        except Stopped:
            self.wanted[folder.root].set()
            return
        except UserError as error:
            folder.problem = str(error)
            self._tell(f"promptlint: {error}")
        except Exception:
            log.exception("looking at %s failed", folder.root)
            folder.problem = "internal error"
        else:
            folder.problem = ""
            folder.seen = seen
            self._publish(folder, seen)
        async with self.looked:
            self.looked.notify_all()

    def _tell(self, message: str) -> None:
        """Show a message, once as long as it stays the same."""
        log.error(message)
        if message not in self.told:
            self.told.add(message)
            self.window_show_message(types.ShowMessageParams(types.MessageType.Error, message))

    def _publish(self, folder: Folder, seen: Seen) -> None:
        """The diagnostics of all open documents whose text is still the one that was looked at."""
        for uri, document in seen.documents.items():
            now = folder.documents.get(uri)
            source = seen.look.source(document.path)
            if now is None or now.version != document.version or uri in seen.broken:
                continue
            rows: list[types.Diagnostic] = []
            if source is not None and document.path in seen.look.analysis.project.given:
                found = _of_file(seen, source.path)
                rows = diagnostics(found, self.positions(source), lambda shown: self._locate(seen, shown))
            self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, rows, document.version))

    def positions(self, source: SourceFile) -> Positions:
        """Positions in the encoding that was agreed with the client."""
        encoding = self.workspace.position_encoding or types.PositionEncodingKind.Utf16
        return Positions(source, types.PositionEncodingKind(encoding).value)

    def _locate(self, seen: Seen, shown: str) -> tuple[str, Positions] | None:
        path = absolute(seen.look.analysis.project.working_directory / shown)
        source = seen.look.source(path)
        return None if source is None else (_uri_of(seen, path), self.positions(source))

    # ---- answers

    async def seen_by(self, uri: str) -> tuple[Seen, SourceFile, Folder] | None:
        """The look at the newest text of a document, when there is one soon."""
        folder = self.folder_of(uri)
        if folder is None:
            return None

        def current() -> Seen | None:
            seen, now = folder.seen, folder.documents.get(uri)
            before = seen.documents.get(uri) if seen is not None else None
            return seen if now is not None and before is not None and before.version == now.version else None

        try:
            async with asyncio.timeout(PATIENCE), self.looked:
                await self.looked.wait_for(lambda: current() is not None or folder.problem != "")
        except TimeoutError:
            return None
        seen = current()
        if seen is None:
            return None
        source = seen.look.source(seen.documents[uri].path)
        return None if source is None or uri in seen.broken else (seen, source, folder)

    async def run(self, work: Callable[[], _Answer]) -> _Answer:
        """Run something long on the thread of the looks."""
        return await asyncio.get_running_loop().run_in_executor(self.looker, work)


def _of_file(seen: Seen, shown: str) -> list[FindingItem]:
    return [finding for finding in seen.look.report.findings if finding.path == shown]


def _uri_of(seen: Seen, path: Path) -> str:
    """The URI of a file; an open document's as the client spells it."""
    known = next((one.uri for one in seen.documents.values() if one.path == path), None)
    return known or uris.from_fs_path(str(path)) or path.as_uri()


def _register(server: Server) -> None:
    """Tell pygls which function answers what."""
    feature: Callable[..., Callable[[_Handler], _Handler]] = server.feature

    @feature(types.TEXT_DOCUMENT_DID_OPEN)
    async def did_open(params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        server.opened(item.uri, item.text, item.version, item.language_id)

    @feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: types.DidChangeTextDocumentParams) -> None:
        uri = params.text_document.uri
        server.changed(uri, server.workspace.get_text_document(uri).source, params.text_document.version)

    @feature(types.TEXT_DOCUMENT_DID_CLOSE)
    async def did_close(params: types.DidCloseTextDocumentParams) -> None:
        server.closed(params.text_document.uri)

    @feature(types.WORKSPACE_DID_CHANGE_WATCHED_FILES)
    async def files_changed(params: types.DidChangeWatchedFilesParams) -> None:
        server.file_events(list(params.changes))

    @feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)
    async def folders_changed(params: types.DidChangeWorkspaceFoldersParams) -> None:  # noqa: ARG001  # the protocol's signature
        server._find_projects_anew()  # noqa: SLF001  # this function is a part of the class

    @feature(types.INITIALIZED)
    async def initialized(params: types.InitializedParams) -> None:  # noqa: ARG001  # as above
        await _watch_files(server)

    @feature(types.TEXT_DOCUMENT_HOVER)
    async def on_hover(params: types.HoverParams) -> types.Hover | None:
        found = await server.seen_by(params.text_document.uri)
        if found is None:
            return None
        seen, source, _ = found
        line, column = server.positions(source).place(params.position)
        text = hover(seen.look.report, source.path, line, column)
        return None if text is None else types.Hover(types.MarkupContent(types.MarkupKind.Markdown, text))

    @feature(types.TEXT_DOCUMENT_INLAY_HINT)
    async def on_inlay_hint(params: types.InlayHintParams) -> list[types.InlayHint]:
        found = await server.seen_by(params.text_document.uri)
        if found is None:
            return []
        seen, source, _ = found
        first, last = params.range.start.line + 1, params.range.end.line + 1
        return hints(seen.look.analysis.result.call_sites, source.path, server.positions(source), first, last)

    options = types.CodeActionOptions([types.CodeActionKind.QuickFix, types.CodeActionKind.RefactorRewrite])

    @feature(types.TEXT_DOCUMENT_CODE_ACTION, options)
    async def on_code_action(params: types.CodeActionParams) -> list[types.CodeAction]:
        found = await server.seen_by(params.text_document.uri)
        if found is None:
            return []
        seen, source, folder = found
        return await server.run(lambda: list(_actions(server, seen, source, folder, params)))


async def _watch_files(server: Server) -> None:
    """Ask the client to tell of files that change on disk, where it can."""
    workspace = server.client_capabilities.workspace
    watched = workspace.did_change_watched_files if workspace is not None else None
    if watched is None or not watched.dynamic_registration:
        return
    pattern = "**/{*.py,*.jinja,*.jinja2,*.j2,*.prompty,*.prompt,*.md,*.txt,*.yaml,*.yml,*.json,pyproject.toml,promptlint.toml,.gitignore}"
    options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher(pattern)])
    registration = types.Registration("promptlint-files", types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
    try:
        await server.client_register_capability_async(types.RegistrationParams([registration]))
    except Exception:  # a client that refuses is served without
        log.exception("the client does not watch files")


def _actions(
    server: Server, seen: Seen, source: SourceFile, folder: Folder, params: types.CodeActionParams
) -> Iterator[types.CodeAction]:
    """The actions for the findings that a range touches: edits that were tried, then the comment that allows the finding."""
    positions = server.positions(source)
    only = params.context.only
    for item in _of_file(seen, source.path):
        place = positions.range(item.line, item.column, item.end_line, item.end_column)
        if not _touch(place, params.range):
            continue
        told = diagnostics([item], positions, lambda shown: server._locate(seen, shown))  # noqa: SLF001  # as above
        finding = actions.finding_of(seen.look, item)
        for fix, _ in _tried(folder, seen, item) if finding is not None else ():
            safe = fix.applicability == "safe"
            kind = types.CodeActionKind.QuickFix if safe else types.CodeActionKind.RefactorRewrite
            if _asked(kind, only):
                edits = [(edit.span, edit.text) for edit in fix.edits]
                yield types.CodeAction(
                    fix.title, kind, told, is_preferred=safe or None, edit=_edit(server, seen, edits)
                )
        allowed = actions.allowing(source, item) if _asked(types.CodeActionKind.QuickFix, only) else None
        if allowed is not None:
            edit, _ = allowed
            title = f"Allow {item.rule} here, with a reason"
            yield types.CodeAction(
                title, types.CodeActionKind.QuickFix, told, edit=_edit(server, seen, [(edit.span, edit.text)])
            )


def _tried(folder: Folder, seen: Seen, item: FindingItem) -> list[Any]:
    """The edits that help; each finding of a look is tried once, however often an editor asks."""
    known = seen.tried.get(item.fingerprint)
    if known is None:
        finding = actions.finding_of(seen.look, item)
        try:
            known = actions.repairs(folder.fork(), seen.look, finding) if finding is not None else []
        except Exception:
            log.exception("trying edits for %s at %s:%d failed", item.rule, item.path, item.line)
            known = []
        seen.tried[item.fingerprint] = known
    return known


def _asked(kind: types.CodeActionKind, only: Any) -> bool:
    """Whether the client wants actions of a kind, or of one above it."""
    return not only or any(
        kind.value == str(getattr(one, "value", one)) or kind.value.startswith(f"{getattr(one, 'value', one)}.")
        for one in only
    )


def _touch(one: types.Range, other: types.Range) -> bool:
    first = (one.start.line, one.start.character), (one.end.line, one.end.character)
    second = (other.start.line, other.start.character), (other.end.line, other.end.character)
    return first[0] <= second[1] and second[0] <= first[1]


def _edit(server: Server, seen: Seen, edits: list[tuple[Span, str]]) -> types.WorkspaceEdit:
    """Edits of any files of the project, for the texts that the look saw."""
    by_path: dict[str, list[types.TextEdit]] = {}
    for span, text in edits:
        known = server._locate(seen, span.path)  # noqa: SLF001  # as above
        if known is not None:
            uri, positions = known
            place = positions.range(span.line, span.column, span.end_line, span.end_column)
            by_path.setdefault(uri, []).append(types.TextEdit(place, text))
    versions = {one.uri: one.version for one in seen.documents.values()}
    changes = [
        types.TextDocumentEdit(types.OptionalVersionedTextDocumentIdentifier(uri, versions.get(uri)), list(rows))
        for uri, rows in by_path.items()
    ]
    return types.WorkspaceEdit(document_changes=list(changes))
