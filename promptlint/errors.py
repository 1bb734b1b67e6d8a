"""Our exceptions. The reader of a message always learns whose turn it is."""

from __future__ import annotations


class PromptlintError(Exception):
    """Base of the errors that we raise on purpose."""


class UserError(PromptlintError):
    """The user's turn: a bad argument, configuration or file. One line, no traceback, exit status 2."""


class Unsupported(PromptlintError):
    """Valid input that we cannot analyse. Counted and reported; the run goes on.

    Attributes:
        path: file, as given.
        line: 1-based line, or 1 where it is not known.
        reason: one short sentence.
    """

    def __init__(self, path: str, reason: str, line: int = 1) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason
