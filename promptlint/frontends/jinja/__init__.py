"""The Jinja front end: template files, and the templates that another front end found in its own source."""

from __future__ import annotations

from collections.abc import Mapping

from promptlint.frontends.base import Loader
from promptlint.ir import Segment
from promptlint.source import TextMap

__all__ = ["BrokenTemplateError", "read_template"]


class BrokenTemplateError(ValueError):
    """The text is not a Jinja template. `line` counts in the text, from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


def read_template(
    text: str,
    where: TextMap,
    *,
    bound: Mapping[str, tuple[Segment, ...]] | None = None,
    loader: Loader | None = None,
    trim_blocks: bool = False,
    lstrip_blocks: bool = False,
) -> tuple[Segment, ...]:
    """The segments of a template; see `frontends.base.TemplateReader`. Raises BrokenTemplateError when Jinja would refuse the text."""
    from jinja2.exceptions import TemplateSyntaxError

    from promptlint.frontends.jinja import tree
    from promptlint.frontends.jinja.evaluate import Evaluator, Shared

    try:
        template = tree.parse(text, where, trim_blocks=trim_blocks, lstrip_blocks=lstrip_blocks)
        return Evaluator(template, Shared(bound or {}, loader)).run()
    except TemplateSyntaxError as error:
        raise BrokenTemplateError(error.message or "not a template", error.lineno) from error
    except RecursionError as error:
        raise BrokenTemplateError("nested too deeply", 1) from error
