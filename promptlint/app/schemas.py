"""Every JSON schema that is published in `promptlint/schemas`, by file name: settings, the files that we write, and the output of each command.

`show` prints the report of `check`, `ci github` keeps that of `diff`, and `traffic convert` writes records, whose unknown fields are kept and which therefore have no
closed schema. GitLab's, SARIF's and reviewdog's formats are described by their owners.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from promptlint.app.baseline import baseline_schema
from promptlint.app.lock import lock_schema
from promptlint.config import json_schema
from promptlint.report import output_schemas as outputs
from promptlint.report.diff_schema import diff_schema
from promptlint.report.schema import check_schema

__all__ = ["PUBLISHED"]

PUBLISHED: Mapping[str, Callable[[], dict[str, Any]]] = {
    "advise": outputs.advise_schema,
    "baseline": baseline_schema,
    "bench": outputs.bench_schema,
    "bench-request": outputs.bench_request_schema,
    "check": check_schema,
    "check-line": outputs.finding_schema,
    "config": json_schema,
    "diagnose": outputs.diagnose_schema,
    "diff": diff_schema,
    "lock": lock_schema,
    "perturb": outputs.perturb_schema,
    "providers": outputs.providers_schema,
    "rules": outputs.rules_schema,
    "simulate": outputs.simulate_schema,
    "simulate-request": outputs.simulate_request_schema,
    "traffic-stats": outputs.stats_schema,
}
