"""One recorded run of a command: its environment, its end, and the file that it leaves.

While the command runs, its processes append to the file: a line when a request leaves, a second one with the same id when the answer is known. At the end the two
become one canonical record, in order of time, usage under OpenTelemetry's names. A run that ended before that left a file that can be read as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from promptlint.errors import UserError
from promptlint.recording.child import _promptlint_recorder as recorder
from promptlint.recording.child._promptlint_recorder import sink
from promptlint.traffic.record import usage_of

__all__ = ["Recording", "Run", "environment", "finished", "prepared", "run_command"]

CHILD = Path(__file__).parent / "child"
_PASSED_ON = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)
)


@dataclass(slots=True)
class Recording:
    """What a run left. `rows` are canonical records; the counts and notes say what went missing, and why."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    loaded: bool = False
    lost: bool = False
    broken: int = 0
    error: str = ""
    libraries: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()

    @property
    def fake(self) -> int:
        """Requests that no client sent: they were seen at a fake model's interface."""
        return sum(1 for row in self.rows if about(row).get("fake"))

    @property
    def failed(self) -> Counter[str]:
        """Requests without an answer, by status or error."""
        found: Counter[str] = Counter()
        for row in self.rows:
            status, error = about(row).get("status"), about(row).get("error")
            if error:
                found[str(error)] += 1
            elif isinstance(status, int) and status >= 400:
                found[f"status {status}"] += 1
        return found


@dataclass(slots=True)
class Run:
    """How a command ended: its exit status, negative for the signal that ended it."""

    status: int
    recording: Recording


def about(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the recorder says about a record beside the request itself."""
    found = row.get("recorded")
    return found if isinstance(found, Mapping) else {}


def environment(
    base: Mapping[str, str],
    file: Path,
    flags: Path,
    root: Path,
    base_folder: Path,
    *,
    key: bytes = b"",
    perturb: str = "",
) -> dict[str, str]:
    """The environment in which a command is recorded: our folder ahead on PYTHONPATH, and the recorder's orders.

    A frame is the project's when its file lies below `root`; call sites are written relative to `base_folder`. `perturb` is the path of a file with the orders of
    `promptlint perturb`.
    """
    env = dict(base)
    path = env.get("PYTHONPATH", "")
    env["PYTHONPATH"] = f"{CHILD}{os.pathsep}{path}" if path else str(CHILD)
    env |= {
        recorder.FILE: str(file),
        recorder.FLAGS: str(flags),
        recorder.ROOT: str(root),
        recorder.BASE: str(base_folder),
    }
    for name, value in ((recorder.KEY, key.hex()), (recorder.PERTURB, perturb)):
        env.pop(name, None)
        if value:
            env[name] = value
    return env


@contextlib.contextmanager
def prepared(file: Path, flags: Path | None = None) -> Iterator[Path]:
    """An empty file of records that only its owner may read, and for the time of the run the flags, at that path or one of their own. Raises UserError."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.close(descriptor)
        file.chmod(0o600)
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror or error}") from error
    if flags is None:
        descriptor, name = tempfile.mkstemp(prefix="promptlint-", suffix=".flags")
        os.close(descriptor)
        flags = Path(name)
    try:
        flags.write_bytes(bytes(sink.FLAG_BYTES))
        yield flags
    finally:
        flags.unlink(missing_ok=True)


def run_command(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path | None = None,
    output: BinaryIO | None = None,
    timeout: float | None = None,
) -> int:
    """Run a command to its end and return its exit status, negative for the signal that ended it. Raises UserError when it cannot be started.

    An interrupt from the terminal reaches the command itself, which shares our process group, so we wait on; other signals are passed on. With `output`, what it
    prints goes there; with `timeout`, a command that takes longer (in seconds) is killed.
    """
    try:
        child = subprocess.Popen(  # noqa: S603 - running the user's command is the job
            list(command),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL if output is not None else None,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
        )
    except OSError as error:
        raise UserError(f"{command[0]}: cannot be run: {error.strerror or error}") from error

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            child.send_signal(number)

    def wait_on(_number: int, _frame: FrameType | None) -> None:
        """The terminal has sent it to the command too."""

    before = {}
    with contextlib.suppress(ValueError):  # signals can be handled in the main thread only
        before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
        before[signal.SIGINT] = signal.signal(signal.SIGINT, wait_on)
    try:
        return child.wait(timeout)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def finished(file: Path, flags: Path, skip: int = 0) -> Recording:
    """What a run has left in the file behind its first `skip` bytes, and in the flags."""
    found = Recording()
    with contextlib.suppress(OSError):
        raised = flags.read_bytes()
        found.loaded = raised[sink.LOADED] != 0
        found.lost = raised[sink.FAILED] != 0
        if raised[sink.ERROR]:
            found.error = raised[sink.MESSAGE :].rstrip(b"\0").decode("utf-8", "replace")
        found.libraries = tuple(
            name for index, name in enumerate(recorder.LIBRARIES) if raised[sink.LIBRARY + index] != 0
        )
    with file.open("rb") as stream:
        stream.seek(skip)
        merge(stream, found)
    return found


def merge(lines: Iterator[bytes] | BinaryIO, found: Recording) -> None:
    """Fill in the records of a run in order of time, each with its answer, and count the lines that were broken off."""
    rows: dict[str, dict[str, Any]] = {}
    answers: list[dict[str, Any]] = []
    reads: set[str] = set()
    for line in lines:
        if line.isspace():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            found.broken += 1
            continue
        if not isinstance(row, dict) or "id" not in row:
            found.broken += 1
        elif "timestamp" in row:
            rows[str(row["id"])] = row
        elif "reads" in row:
            reads.add(str(row["reads"]))
        else:
            answers.append(row)
    for answer in answers:
        request = rows.get(str(answer["id"]))
        if request is not None:
            _answered(request, answer)
    for row in rows.values():
        if "usage" in row:
            row["usage"] = usage_of(row["usage"]) or row["usage"]
    found.rows = sorted(rows.values(), key=lambda row: row["timestamp"])
    found.reads = tuple(sorted(reads))


def _answered(request: dict[str, Any], answer: Mapping[str, Any]) -> None:
    """Put an answer's line into its request. A repeated request has several: what a later attempt says holds."""
    if "usage" in answer:
        request["usage"] = answer["usage"]
    said = about(answer)
    kept = {name: value for name, value in about(request).items() if name not in {"status", "error"}}
    headers = {**kept.get("headers", {}), **said.get("headers", {})}
    request["recorded"] = {**kept, **said, **({"headers": headers} if headers else {})}


def replace(file: Path, rows: Sequence[Mapping[str, Any]], keep: bytes = b"") -> bool:
    """Write the records, behind what `keep` holds, in place of what the run left.

    In one step through a file beside it; on a full disk in the room that the file has already. False where that is not enough: then it stays as it is.
    """
    data = keep + b"".join(map(_line, rows))
    name = ""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        Path(name).replace(file)
        return True
    except OSError:
        if name:
            Path(name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        if len(data) <= file.stat().st_size:
            with file.open("r+b") as stream:
                stream.write(data)
                stream.truncate()
            return True
    return False


def _line(row: Mapping[str, Any]) -> bytes:
    try:
        return (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
    except UnicodeEncodeError:
        return (json.dumps(row, separators=(",", ":")) + "\n").encode()
