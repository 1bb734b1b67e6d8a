"""The JSON schema of `promptlint diff --output-format json`, generated from the report's own classes."""

from __future__ import annotations

from typing import Any

from promptlint.report import diff_model
from promptlint.report.schema import object_schema

__all__ = ["diff_schema"]


def diff_schema() -> dict[str, Any]:
    """JSON schema (2020-12) of schema `promptlint.diff/1`: exactly these keys, all of them always there."""
    body = object_schema(diff_model.DiffReport)
    body["properties"] = {"schema": {"const": diff_model.SCHEMA}, **body["properties"]}
    body["required"] = ["schema", *body["required"]]
    properties = body["properties"]
    findings = [properties[name]["items"] for name in ("new_findings", "fixed_findings")]
    findings.append(properties["moved_findings"]["items"]["properties"]["finding"])
    for finding in findings:
        place = finding["properties"]["trace"]["items"]
        del place["properties"]["call_site"]
        place["required"].remove("call_site")
    properties["call_sites"]["items"]["properties"]["status"]["enum"] = ["new", "gone", "changed", "same"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "promptlint diff --output-format json",
        **body,
    }
