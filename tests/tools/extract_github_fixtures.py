"""Extract tests/fixtures/github from two npm packages, both MIT: `npm pack @octokit/openapi @octokit/webhooks-examples`, unpack, then

    python tests/tools/extract_github_fixtures.py OPENAPI/generated/api.github.com.json WEBHOOKS/api.github.com/index.json

openapi.json: the operations that we call with all schemas that they need. Descriptions and examples are dropped and OpenAPI 3.0's `nullable` is written
as JSON schema has it, so that any JSON schema validator reads it. events.json: payloads of `pull_request` and `workflow_run`, without the links.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures" / "github"
REPOSITORY = "/repos/{owner}/{repo}"
OPERATIONS = {
    "/user": ["get"],
    f"{REPOSITORY}/issues/{{issue_number}}/comments": ["get", "post"],
    f"{REPOSITORY}/issues/comments/{{comment_id}}": ["patch", "delete"],
    f"{REPOSITORY}/pulls": ["get"],
    f"{REPOSITORY}/pulls/{{pull_number}}": ["get"],
    f"{REPOSITORY}/actions/runs/{{run_id}}/artifacts": ["get"],
    f"{REPOSITORY}/actions/artifacts/{{artifact_id}}/{{archive_format}}": ["get"],
}
DROPPED = {
    "description",
    "example",
    "examples",
    "summary",
    "title",
    "externalDocs",
    "x-github",
    "x-webhooks",
    "tags",
    "operationId",
    "links",
}


def main(openapi: str, webhooks: str) -> None:
    whole = json.loads(Path(openapi).read_text("utf-8"))
    paths = {
        path: {method: strip(whole["paths"][path][method]) for method in methods}
        for path, methods in OPERATIONS.items()
    }
    components: dict[str, dict[str, object]] = {}
    take(paths, whole, components)
    license_text = "MIT License, Copyright (c) 2020 Octokit contributors; from @octokit/openapi 23.0.2, whose source is github/rest-api-description (MIT, GitHub)"
    subset = {"license": license_text, "openapi": whole["openapi"], "paths": paths, "components": components}
    (FIXTURES / "openapi.json").write_text(json.dumps(subset, separators=(",", ":"), sort_keys=True) + "\n", "utf-8")

    events = {event["name"]: event["examples"] for event in json.loads(Path(webhooks).read_text("utf-8"))}
    pull = next(example for example in events["pull_request"] if example["action"] == "synchronize")
    finished = next(example for example in events["workflow_run"] if not example["workflow_run"]["pull_requests"])
    payloads = {
        "license": "MIT License, Copyright (c) 2017 Gregor Martynus and contributors; from @octokit/webhooks-examples 7.6.1",
        "pull_request": without_links(pull),
        "workflow_run": without_links(finished),
    }
    (FIXTURES / "events.json").write_text(json.dumps(payloads, indent=1, sort_keys=True) + "\n", "utf-8")


def strip(node: object) -> object:
    """The node without prose; `nullable` as a union with null."""
    if isinstance(node, list):
        return [strip(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        key: {name: strip(value) for name, value in item.items()}
        if key in ("properties", "schemas") and isinstance(item, dict)
        else strip(item)
        for key, item in node.items()
        if key not in DROPPED
    }
    if kept.pop("nullable", False):
        return {"anyOf": [kept, {"type": "null"}]}
    return kept


def take(node: object, whole: dict, components: dict) -> None:
    """Copy all that the node refers to, and what that refers to."""
    if isinstance(node, list):
        for item in node:
            take(item, whole, components)
    elif isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            _, _, kind, name = reference.split("/")
            if name not in components.setdefault(kind, {}):
                components[kind][name] = strip(whole["components"][kind][name])
                take(components[kind][name], whole, components)
        for value in node.values():
            take(value, whole, components)


def without_links(node: object) -> object:
    if isinstance(node, list):
        return [without_links(item) for item in node]
    if isinstance(node, dict):
        return {key: without_links(value) for key, value in node.items() if not key.endswith("url") and key != "_links"}
    return node


if __name__ == "__main__":
    main(*sys.argv[1:])
