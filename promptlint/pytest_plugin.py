"""The pytest plugin: the fixture `prompt_cache`, and `--promptlint-record FILE` for a recording without the wrapper command.

It is loaded in every pytest run of an environment that has promptlint, so nothing of ours is imported before a test or an option asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from promptlint.app.prompt_cache import PromptCache

__all__ = ["prompt_cache", "pytest_addoption", "pytest_configure", "pytest_unconfigure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin."""
    group = parser.getgroup("promptlint")
    group.addoption("--promptlint-record", metavar="FILE", help="Record the LLM requests of the tests in FILE.")
    group.addoption("--promptlint-keep-text", action="store_true", help="Store prompts as they are, not disguised.")


@pytest.fixture
def prompt_cache() -> Iterator[PromptCache]:
    """The LLM requests that the test sends from its own process, with assertions on what a prefix cache makes of them.

    `append_only()`, `same_prefix(a, b)`, `hit_rate(minimum)`; `requests` are the records themselves.
    """
    from promptlint.app.prompt_cache import watching

    with watching() as cache:
        yield cache


_RECORDING = pytest.StashKey[Any]()


def pytest_configure(config: pytest.Config) -> None:
    """Start to record, when asked; a worker of pytest-xdist appends to the file that the main process has made."""
    name = config.getoption("--promptlint-record")
    if not name:
        return
    from promptlint.app.record import InProcess

    worker = getattr(config, "workerinput", None)
    recording = InProcess(
        Path(config.invocation_params.dir, name), keep_text=config.getoption("--promptlint-keep-text")
    )
    if worker is None:
        recording.prepare()
    recording.start(worker["promptlint"] if worker is not None else None)
    config.stash[_RECORDING] = recording


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the key and the file of flags to a worker of pytest-xdist."""
    recording = node.config.stash.get(_RECORDING, None)
    if recording is not None:
        node.workerinput["promptlint"] = recording.orders()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Put the file in its final form, once, in the main process."""
    recording = config.stash.get(_RECORDING, None)
    if recording is not None:
        recording.stop(final=not hasattr(config, "workerinput"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what was recorded."""
    recording = config.stash.get(_RECORDING, None)
    if recording is not None:
        for line in recording.said():
            terminalreporter.write_line(f"promptlint: {line}")
