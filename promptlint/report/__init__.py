"""The versioned JSON report, and its renderers: pure functions that compute nothing."""

from __future__ import annotations

import importlib

from promptlint.report.model import CheckReport

__all__ = ["render"]

_MODULES = {
    "full": "text",
    "concise": "text",
    "json": "json",
    "json-lines": "json",
    "github": "github",
    "gitlab": "gitlab",
    "junit": "junit",
    "sarif": "sarif",
    "rdjson": "rdjson",
    "markdown": "markdown",
    "html": "html",
}


def render(report: CheckReport, form: str, *, color: bool = False) -> str:
    """The report as one text that ends with a newline, or is empty. `color` concerns `full` and `concise` only."""
    module = importlib.import_module(f"promptlint.report.{_MODULES[form]}")
    if _MODULES[form] == "text":
        text: str = getattr(module, form)(report, color=color)
    else:
        text = getattr(module, form.replace("-", "_"))(report)
    return text
