"""GitHub's REST API in a thread: pull requests, comments and artifacts, every request and every answer checked against the OpenAPI subset."""

from __future__ import annotations

import io
import json
import re
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jsonschema

FIXTURES = Path(__file__).parent / "fixtures" / "github"
SPEC = json.loads((FIXTURES / "openapi.json").read_text("utf-8"))
EVENTS = json.loads((FIXTURES / "events.json").read_text("utf-8"))
REPOSITORY = EVENTS["pull_request"]["repository"]["full_name"]
BOT = "github-actions[bot]"


def resolve(node: Any) -> Any:
    while isinstance(node, dict) and "$ref" in node:
        _, _, kind, name = node["$ref"].split("/")
        node = SPEC["components"][kind][name]
    return node


def check(value: Any, schema: Any) -> None:
    jsonschema.Draft202012Validator({**schema, "components": SPEC["components"]}).validate(value)


def sample(schema: Any) -> Any:
    """The smallest value that a schema allows; the tests fill in what they mean."""
    schema = resolve(schema)
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            options = schema[key]
            return None if {"type": "null"} in options else sample(options[0])
    if "allOf" in schema:
        return {key: value for part in schema["allOf"] for key, value in sample(part).items()}
    kind = schema.get("type", "object")
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: sample(properties.get(name, {})) for name in schema.get("required", ())}
    return {"array": [], "integer": 1, "number": 1, "boolean": False, "string": "2026-01-01T00:00:00Z"}[kind]


def answer_schema(path: str, method: str, status: int) -> Any:
    answer = resolve(SPEC["paths"][path][method]["responses"][str(status)])
    return answer.get("content", {}).get("application/json", {}).get("schema")


@dataclass
class Stub:
    """The state of the server. `refusals` are taken one by one by the requests whose method and path they match: (pattern, status, headers)."""

    pulls: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    refusals: list[tuple[str, int, dict[str, str]]] = field(default_factory=list)
    read_only: bool = False
    login: str | None = None
    seen: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    vanishing: bool = False  # comments are deleted just before they are changed
    together: threading.Barrier | None = None  # creations wait for one another

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                stub.handle(self)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any

            def log_message(self, *arguments: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.storage = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        for server in (self.server, self.storage):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        for server in (self.server, self.storage):
            server.shutdown()
            server.server_close()

    # What the tests prepare.

    def add_pull(
        self, number: int, sha: str, *, owner: str = "Codertocat", branch: str = "changes", state: str = "open"
    ) -> None:
        pull = sample({"$ref": "#/components/schemas/pull-request"})
        simple = sample({"$ref": "#/components/schemas/pull-request-simple"})
        pull = {**simple, **pull, "number": number, "state": state}
        pull["head"] = {**sample_part("pull-request", "head"), "sha": sha, "ref": branch, "label": f"{owner}:{branch}"}
        pull["base"] = sample_part("pull-request", "base")
        pull["base"]["repo"]["full_name"] = REPOSITORY
        self.pulls = [other for other in self.pulls if other["number"] != number] + [pull]

    def add_comment(self, body: str, login: str = BOT) -> dict[str, Any]:
        with self.lock:
            comment = sample({"$ref": "#/components/schemas/issue-comment"})
            user = {**sample({"$ref": "#/components/schemas/simple-user"}), "login": login}
            comment |= {"id": 100 + len(self.seen) + len(self.comments), "body": body, "user": user}
            self.comments.append(comment)
        return comment

    def add_artifact(self, name: str, files: dict[str, bytes]) -> None:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for path, data in files.items():
                archive.writestr(path, data)
        artifact = sample({"$ref": "#/components/schemas/artifact"})
        artifact |= {
            "id": 1 + len(self.artifacts),
            "name": name,
            "expired": False,
            "size_in_bytes": len(content.getvalue()),
        }
        self.artifacts.append((artifact, content.getvalue()))

    @property
    def bodies(self) -> list[str]:
        return [comment["body"] for comment in self.comments if comment["user"]["login"] == BOT]

    # What the client meets.

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        length = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(length)) if length else None
        if request.server is self.storage:
            if request.headers.get("Authorization"):
                self.leaked.append(url.path)
            send(request, 200, self.artifacts[int(url.path.rsplit("/", 1)[1]) - 1][1])
            return
        line = f"{request.command} {url.path}"
        self.seen.append(line)
        with self.lock:
            refusal = next((each for each in self.refusals if re.fullmatch(each[0], line)), None)
            if refusal:
                self.refusals.remove(refusal)
        if refusal:
            send(request, refusal[1], {"message": f"refused with {refusal[1]}"}, refusal[2])
            return
        try:
            path = checked_request(request.command.lower(), url.path, dict(parse_qsl(url.query)), body)
            status, answer, headers = self.answer(request, path, dict(parse_qsl(url.query)), body)
            schema = answer_schema(path, request.command.lower(), status) if status < 300 else None
            if schema is not None:
                check(answer, schema)
        except (AssertionError, KeyError, jsonschema.ValidationError) as error:
            self.invalid.append(f"{line}: {error}")
            status, answer, headers = 422, {"message": "Validation Failed"}, {}
        send(request, status, answer, headers)

    def answer(self, request: Any, path: str, query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]]:
        last = urlsplit(request.path).path.rsplit("/", 2)
        missing = (404, {"message": "Not Found"}, {})
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            return 401, {"message": "Requires authentication"}, {}
        if path == "/user":
            if self.login is None:
                return 403, {"message": "Resource not accessible by integration"}, {}
            return 200, {**sample({"$ref": "#/components/schemas/public-user"}), "login": self.login}, {}
        if self.read_only and request.command != "GET":
            return 403, {"message": "Resource not accessible by integration"}, {}
        if path.endswith("/pulls"):
            owner_branch, state = query.get("head"), query.get("state", "open")
            found = [
                pull
                for pull in self.pulls
                if owner_branch in (None, pull["head"]["label"]) and state in ("all", pull["state"])
            ]
            return 200, found, {}
        if path.endswith("/pulls/{pull_number}"):
            found = [pull for pull in self.pulls if pull["number"] == int(last[2])]
            return (200, found[0], {}) if found else missing
        if path.endswith("/issues/{issue_number}/comments"):
            if request.command == "GET":
                start = (int(query.get("page", 1)) - 1) * int(query.get("per_page", 30))
                return 200, self.comments[start : start + int(query.get("per_page", 30))], {}
            if self.together is not None:
                self.together.wait(timeout=20)
            return 201, self.add_comment(body["body"]), {}
        if path.endswith("/issues/comments/{comment_id}"):
            found = [comment for comment in self.comments if comment["id"] == int(last[2])]
            if not found:
                return missing
            if request.command == "PATCH" and self.vanishing:
                self.comments.remove(found[0])
                return missing
            if request.command == "DELETE":
                self.comments.remove(found[0])
                return 204, None, {}
            found[0]["body"] = body["body"]
            return 200, found[0], {}
        if path.endswith("/artifacts"):
            found = [
                artifact for artifact, _ in self.artifacts if artifact["name"] == query.get("name", artifact["name"])
            ]
            return 200, {"total_count": len(found), "artifacts": found}, {}
        return 302, None, {"Location": f"http://127.0.0.1:{self.storage.server_port}/blob/{last[1]}"}


def sample_part(schema: str, name: str) -> Any:
    return sample(SPEC["components"]["schemas"][schema]["properties"][name])


def checked_request(method: str, path: str, query: dict[str, str], body: Any) -> str:
    """The path of the specification that a request fits. Raises AssertionError or ValidationError when it does not."""
    for template, methods in SPEC["paths"].items():
        match = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template), path)
        if not match or method not in methods:
            continue
        operation = methods[method]
        parameters = {(each["in"], each["name"]): each for each in map(resolve, operation.get("parameters", ()))}
        for place, values in (("path", match.groupdict()), ("query", query)):
            for name, text in values.items():
                assert (place, name) in parameters, f"unknown parameter {name}"
                schema = resolve(parameters[place, name]["schema"])
                value = int(text) if schema.get("type") == "integer" else text
                check(value, schema)
        wanted = operation.get("requestBody")
        assert (body is not None) == (wanted is not None), "a body where there should be none, or none"
        if wanted:
            check(body, wanted["content"]["application/json"]["schema"])
            assert len(body.get("body", "")) <= 65_536, "body is too long (maximum is 65536 characters)"
        return template
    raise AssertionError(f"no such operation: {method} {path}")


def send(request: BaseHTTPRequestHandler, status: int, answer: Any, headers: dict[str, str] | None = None) -> None:
    content = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
    request.send_response(status)
    for name, value in (headers or {}).items():
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)
