"""The report as a page to look at: one file without script or network, light and dark, on screen and on paper."""

from __future__ import annotations

from promptlint.report.html.check import check as html

__all__ = ["html"]
