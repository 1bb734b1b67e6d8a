"""Helper processes: they answer, and one that dies is noticed."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from promptlint.frontends import workers
from promptlint.frontends.workers import Channel, LostError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes can be copied here")


def is_gone(process: int) -> bool:
    """Whether a process has ended and was waited for."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_worker_answers() -> None:
    def double(channel: Channel) -> None:
        channel.send(channel.receive() * 2)

    worker = workers.start(double)
    assert worker is not None
    with worker:
        worker.send([1, "a" * 200_000])
        assert worker.receive() == [1, "a" * 200_000] * 2
    assert is_gone(worker.process)


@pytest.mark.parametrize("how", ["kill", "raise", "half an answer"])
def test_a_lost_worker_is_noticed(how: str) -> None:
    def work(channel: Channel) -> None:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "half an answer":
            channel._writing.write(b"\x80\x05\x95\xff\xff")
            channel._writing.flush()
        raise ValueError(how)

    worker = workers.start(work)
    assert worker is not None
    with worker, pytest.raises(LostError):
        worker.receive()
    assert is_gone(worker.process)


def test_an_interrupt_ends_the_workers_too() -> None:
    worker = workers.start(lambda channel: channel.receive())
    assert worker is not None
    with pytest.raises(KeyboardInterrupt), worker:
        raise KeyboardInterrupt
    assert is_gone(worker.process)


def test_nothing_is_started_beside_a_thread() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert workers.start(lambda channel: None) is None
    finally:
        stop.set()
        thread.join()


def test_the_environment_bounds_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMPTLINT_WORKERS", "1")
    assert workers.cores() == 1
    monkeypatch.setenv("PROMPTLINT_WORKERS", "many")
    assert workers.cores() >= 1
