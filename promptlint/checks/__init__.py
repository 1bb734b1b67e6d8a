"""The checks of the linter, one a file: pure functions from rendered prompts to findings.

A check is a module of this package with a frozen dataclass `Params`, whose fields are what a rule page may set, and a function
`check(context, rule, params)` that yields `Raised` values. A rule page names the module; nothing is registered anywhere.
"""

from promptlint.checks.base import Context, Raised
from promptlint.checks.runner import CheckResult, parameters, run

__all__ = ["CheckResult", "Context", "Raised", "parameters", "run"]
