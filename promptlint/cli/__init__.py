"""Click commands, one a file. They parse arguments, call `app`, and set the exit code.

The command `foo` is the object `command` in `promptlint/cli/foo.py`. Commands are found by file name (`_` begins a file
that holds none) and imported only when they run. The line that `promptlint --help` prints for one is the first line of its
module's docstring, read from the file: the list costs nothing but click.

Exit status: 0 and 1 are the command's own; 2 means that arguments, configuration or every input was unusable (one line on
stderr), or a bug of ours (its traceback). `main` is the only place that decides so.
"""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from promptlint import __version__
from promptlint.errors import UserError

__all__ = ["LazyGroup", "cli", "main"]

_FOLDER = os.path.dirname(__file__)  # noqa: PTH120  # pathlib would cost a third of the start-up time
_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_PIPE_CLOSED = 141  # 128 + SIGPIPE


class LazyGroup(click.Group):
    """A group whose commands are the modules beside this file."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """Names of the commands, sorted; nothing is imported."""
        names = (name.removesuffix(".py") for name in os.listdir(_FOLDER) if name.endswith(".py"))  # noqa: PTH208  # as above
        return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None when no file has it."""
        if cmd_name not in self.list_commands(ctx):
            return None
        import importlib

        module = importlib.import_module(f"promptlint.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name added to the complaint about an unknown command."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands with one line each, read from the files."""
        rows = [(name, short_help(name)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line. With `standalone_mode` the process ends with our exit statuses."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        sys.exit(self._status(args, prog_name, complete_var, extra))

    def invoke(self, ctx: click.Context) -> Any:
        """As click does; but a reader of our output who has gone is no error, and never status 1, which means findings."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _reader_gone()

    def _status(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, extra: dict[str, Any]
    ) -> int:
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            if sys.stdout is not None:  # None: it was closed before we began
                sys.stdout.flush()
        except UserError as error:
            click.echo(f"promptlint: error: {one_line(str(error))}", err=True)
            return 2
        except click.ClickException as error:
            error.show()
            return 2
        except (click.Abort, KeyboardInterrupt):
            click.echo("promptlint: interrupted", err=True)
            return _INTERRUPTED
        except BrokenPipeError:
            return _reader_gone()
        except Exception as error:  # noqa: BLE001  # whatever else arrives here is our bug
            if _stream_is_full(error):
                _discard_stdout()
                click.echo(f"promptlint: error: output cannot be written: {error.strerror}", err=True)  # type: ignore[attr-defined]
                return 2
            click.echo(crash_report(error), err=True)
            click.echo(
                f"promptlint: error: this is a bug in promptlint {__version__}; please report it with the lines above",
                err=True,
            )
            return 2
        return result if isinstance(result, int) else 0


def crash_report(error: BaseException) -> str:
    """The traceback of a bug of ours: places in code and kinds of errors. Their messages, which may quote the user's prompts or keys, are left out
    unless PROMPTLINT_TRACEBACK=full asks for them.
    """
    import traceback

    if os.environ.get("PROMPTLINT_TRACEBACK") == "full":
        return "".join(traceback.format_exception(error)).rstrip()
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    lines = []
    for one in reversed(chain):
        lines += [
            "Traceback (most recent call last):\n",
            *traceback.format_tb(one.__traceback__),
            f"{type(one).__name__}\n",
        ]
    return (
        "".join(lines) + "(messages are left out, for they may quote your files; PROMPTLINT_TRACEBACK=full shows them)"
    )


def _reader_gone() -> int:
    _discard_stdout()
    return _PIPE_CLOSED


def _discard_stdout() -> None:
    """Send what is still buffered nowhere, lest Python complain again when it flushes at exit."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115  # pathlib is slow to load; the process ends


def _stream_is_full(error: Exception) -> bool:
    """Whether a stream that is already open takes no more: its errors name no file."""
    return (
        isinstance(error, OSError) and error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    )


def short_help(name: str) -> str:
    """First line of a command's module docstring, without importing it."""
    with open(os.path.join(_FOLDER, f"{name.replace('-', '_')}.py"), encoding="utf-8") as file:  # noqa: PTH118, PTH123  # as above
        return file.readline().strip().strip('"').strip()


def one_line(text: str) -> str:
    """The message on one line, control characters escaped: it may quote a stranger's file."""
    from promptlint.report.escape import printable

    return printable(" ".join(text.split()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="promptlint", message="%(prog)s %(version)s")
def cli() -> None:
    """Find what breaks a prompt's cacheable prefix, and what it costs."""


def main() -> NoReturn:
    """Entry point of the `promptlint` and `promptlint-cache` scripts."""
    if sys.argv[1:2] == ["check"]:
        # One run, then the process ends: its millions of objects are not worth a collection, not even the one at exit.
        gc.disable()
        atexit.register(gc.freeze)
    cli.main(prog_name="promptlint")
    raise AssertionError("unreachable: cli.main ends the process")
