"""The pipeline `record`: run the user's command with the recorder in its processes, then leave one file of canonical records."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptlint.app.discovery import absolute, project_root
from promptlint.errors import UserError
from promptlint.recording import session
from promptlint.recording.session import Recording, Run

__all__ = ["DEFAULT_FILE", "InProcess", "Request", "find_key", "keep_key", "record", "summary"]

DEFAULT_FILE = "promptlint-traffic.jsonl"


@dataclass(frozen=True, slots=True)
class Request:
    """What to run and where to write. `append` keeps what the file holds; `keep_text` stores prompts as they are."""

    command: tuple[str, ...]
    file: Path
    append: bool = False
    keep_text: bool = False


def record(request: Request) -> Run:
    """Run the command and record what its Python processes send to models. Raises UserError when it cannot be started or the file not be written.

    The command's exit status is the run's. Whatever happens to the recording, the command is not disturbed.
    """
    file = absolute(request.file).resolve()  # at its end the file is replaced, and a link shall stay one
    _guard_foreign(file)
    before = _kept(file)
    kept = before if request.append else b""
    root = project_root(Path.cwd())
    key = b"" if request.keep_text else secrets.token_bytes(16)
    if key:
        keep_key(key)
    with session.prepared(file) as flags:
        if not request.append:
            os.truncate(file, 0)
        env = session.environment(os.environ, file, flags, root, Path.cwd(), key=key)
        try:
            status = session.run_command(request.command, env)
        except UserError:  # nothing has run, so an older recording stays
            file.write_bytes(before) if before else file.unlink()
            raise
        found = session.finished(file, flags, len(kept))
        if not session.replace(file, found.rows, kept):
            found.lost = True
    return Run(status, found)


_KEYS = "record-keys"
_MOST_KEYS = 64


def _key_folder() -> Path:
    """Where keys lie: in the project's cache, which git and backup tools leave out."""
    from promptlint.app.cache import FOLDER
    from promptlint.config import load_settings

    root = project_root(Path.cwd())
    with contextlib.suppress(UserError):
        return (load_settings(root, None, isolated=False).cache_dir or root / FOLDER) / _KEYS
    return root / FOLDER / _KEYS


def keep_key(key: bytes) -> None:
    """Keep the key of a recording on this machine, readable by its owner alone: with it `check --traffic` and `diagnose --code` find their fixed texts in disguise.

    Where it cannot be written, the recording is as good as without it, but belongs to no code.
    """
    from promptlint.app.cache import make_folder
    from promptlint.recording.child._promptlint_recorder import disguise

    with contextlib.suppress(OSError):
        folder = _key_folder()
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink():
            return  # brought along by the project: what it leads to is not ours to fill, still less to tidy up
        path = folder / disguise.key_name(key)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(key.hex())
        for old in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime)[:-_MOST_KEYS]:
            old.unlink()


def find_key(name: str) -> bytes | None:
    """The key of that name, if a recording was made here under it."""
    if not name.isalnum():
        return None
    try:
        return bytes.fromhex((_key_folder() / name).read_text("ascii"))
    except (OSError, ValueError):
        return None


def _kept(file: Path) -> bytes:
    try:
        data = file.read_bytes() if file.exists() else b""
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}") from error
    return data if not data or data.endswith(b"\n") else data + b"\n"


def _guard_foreign(file: Path) -> None:
    """Refuse to overwrite what is no recording: a typing error must not cost the user a source file."""
    if not file.exists():
        return
    if not file.is_file():
        raise UserError(f"{file}: is not a file; name another with -o")
    with file.open("rb") as stream:
        line = stream.readline(1 << 20)
    if line.strip() and not (line.startswith(b"{") and b'"recorded":' in line):
        raise UserError(f"{file}: exists and was not written by `promptlint record`; name another file with -o")


def summary(found: Recording, file: str, command: Sequence[str]) -> list[str]:
    """What to tell the user about a recording, one line each; the first says what was recorded."""
    rows = found.rows
    sites = len({row["call_site"] for row in rows if row.get("call_site")})
    lines = []
    if rows:
        lines.append(f"recorded {_count(len(rows), 'request')} from {_count(sites, 'call site')} in {file}")
    if found.fake:
        lines.append(
            f"{found.fake} of them reached no HTTP client (fake models) and were recorded at the model's interface: what the framework handed over, "
            "not what a provider would get"
        )
    for reason, number in found.failed.most_common():
        lines.append(f"{number} failed: {reason}")
    if not rows:
        lines += _nothing(found, command)
    if found.lost:
        lines.append(f"warning: {file} could not be written to its end (no room?): requests are missing")
    if found.broken:
        lines.append(f"warning: {_count(found.broken, 'record')} broken off while being written")
    if found.error:
        lines.append(f"warning: the recorder had an error, the command was not affected: {found.error}")
    return lines


def _nothing(found: Recording, command: Sequence[str]) -> list[str]:
    if not found.loaded:
        return [
            f"nothing was recorded: no Python process of `{command[0]}` loaded the recorder: not Python 3.9 or newer, or with -I, -E, -S or a cleared PYTHONPATH"
        ]
    if found.libraries:
        names = ", ".join(found.libraries)
        said = f"nothing was recorded: imported {names}, but no request to a model was sent"
        return [
            said,
            "where mocks stand for the client, record a run that reaches a server (a local one will do) or uses fake models of LangChain or pydantic-ai",
        ]
    return ["nothing was recorded: no request to a model was sent, and no library for one was imported"]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


class InProcess:
    """A recording of this process, and of workers that share its file, without a wrapper command."""

    def __init__(self, file: Path, *, keep_text: bool = False) -> None:
        self.file = absolute(file).resolve()
        self.key = b"" if keep_text else secrets.token_bytes(16)
        self.flags = ""

    def prepare(self) -> None:
        """Make the file and the flags. Raises UserError."""
        _guard_foreign(self.file)
        self._stack = contextlib.ExitStack()
        self.flags = str(self._stack.enter_context(session.prepared(self.file)))
        os.truncate(self.file, 0)

    def orders(self) -> dict[str, str]:
        """What a worker has to know."""
        return {"key": self.key.hex(), "flags": self.flags}

    def start(self, orders: Mapping[str, str] | None = None) -> None:
        """Record from now on; with the orders of another process, in its file."""
        from promptlint.app.prompt_cache import recorder

        if orders is not None:
            self.key, self.flags = bytes.fromhex(orders["key"]), orders["flags"]
        elif self.key:
            keep_key(self.key)
        settings = recorder().settings
        settings.file, settings.flags, settings.key = str(self.file), self.flags, self.key

    def said(self) -> list[str]:
        """The summary so far."""
        return summary(session.finished(self.file, Path(self.flags)), str(self.file), ("pytest",))

    def stop(self, *, final: bool) -> None:
        """Record no more; the process that made the file puts it in its final form."""
        from promptlint.app.prompt_cache import recorder

        recorder().settings.file = None
        if final:
            session.replace(self.file, session.finished(self.file, Path(self.flags)).rows)
            self._stack.close()
