"""The published schema of the JSON report is the one that the code has, and it refuses what is not such a report."""

from __future__ import annotations

import copy
import json

import jsonschema
import pytest
from report_sample import everything, report

from promptlint.report.model import to_json
from promptlint.report.schema import check_schema


def test_reports_follow_it():
    schema = check_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for each in (everything(), report()):
        jsonschema.validate(json.loads(json.dumps(to_json(each))), schema)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("suppressed"),
        lambda data: data.update(extra=1),
        lambda data: data["findings"][0].update(severity="fatal"),
        lambda data: data["findings"][0].update(line=0),
        lambda data: data["findings"][0]["trace"][0].update(call_site="x"),
        lambda data: data["findings"][0].update(hit_rate_now=1.5),
        lambda data: data["call_sites"][0]["blocks"][0].update(kind="prompt"),
        lambda data: data["summary"]["findings"].update(high="1"),
        lambda data: data.update(schema="promptlint.check/2"),
    ],
)
def test_it_refuses_what_is_no_such_report(spoil):
    data = json.loads(json.dumps(to_json(everything())))
    spoil(copy.deepcopy(data))
    jsonschema.validate(data, check_schema())
    spoil(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, check_schema())
