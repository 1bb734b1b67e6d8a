"""Language server: diagnostics, hover, hints and fixes in an editor, over stdin and stdout."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from promptlint.cli._common import settings_of, settings_options
from promptlint.errors import UserError

if TYPE_CHECKING:
    from promptlint.config import Settings


@click.command("server")
@settings_options
@click.option("--log-file", type=click.Path(path_type=Path), metavar="FILE", help="Write the log there, not to stderr.")
@click.option("--verbose", is_flag=True, help="Log every message of the protocol.")
def command(log_file: Path | None, verbose: bool, **given: Any) -> NoReturn:
    """Speak the language server protocol over stdin and stdout. Needs the extra `lsp`.

    The options are those of check and go before each project's own configuration.
    """
    if importlib.util.find_spec("pygls") is None:
        raise UserError("the language server needs pygls: pip install 'promptlint-cache[lsp]'")
    from promptlint.lsp.server import Server

    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    level = logging.DEBUG if verbose else logging.WARNING
    try:
        handler = logging.FileHandler(log_file, encoding="utf-8") if log_file else logging.StreamHandler(sys.stderr)
    except OSError as error:
        raise UserError(f"{log_file}: cannot be written: {error.strerror or error}") from error
    logging.basicConfig(level=level, format=form, handlers=[handler])

    def load(root: Path) -> Settings:
        return settings_of(root, dict(given))  # type: ignore[no-any-return]

    server = Server(load)
    reading, writing = _channel()
    status: Any = 0
    try:
        server.start_io(reading, writing)
    except SystemExit as end:
        status = end.code
    _leave(status if isinstance(status, int) else 0)


def _leave(status: int) -> NoReturn:
    """End at once. A look at a large project may be under way on its thread, for which Python would wait, and nobody wants its result any more.

    All that a look writes appears whole or not at all.
    """
    logging.shutdown()
    os._exit(status)


def _channel() -> tuple[Any, Any]:
    """The streams of the protocol, taken away from all else: what anybody prints goes to stderr, and whoever reads stdin, a process that we start
    included, finds it empty.
    """
    reading = os.fdopen(os.dup(0), "rb")
    writing = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return reading, writing
