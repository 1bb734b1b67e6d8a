"""The little of GitHub's REST API that a comment needs, over the standard library, with retries.

A request that fails because the server or the network did is sent again after 1, 2, 4 … seconds; a rate limit is waited for as the answer's
headers ask. All waits of one process together stay below `MAX_WAIT` seconds: a comment is not worth more of a job's time.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from promptlint import __version__
from promptlint.errors import PromptlintError, UserError

__all__ = ["Api", "ApiError"]

ATTEMPTS = 4
MAX_WAIT = 90.0
MAX_PAGES = 50  # of 100 items: 5,000 comments are more than any pull request has
MAX_BYTES = 20_000_000
TIMEOUT = 30.0
_AGAIN = frozenset({429, 500, 502, 503, 504})


class ApiError(PromptlintError):
    """GitHub refused, or could not be reached in time. `status` is the HTTP status, 0 without an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Downloads are redirected to a storage host, which must not see the token; urllib would send it along."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        again = super().redirect_request(req, fp, code, msg, headers, newurl)
        if again is not None and urllib.parse.urlsplit(newurl).netloc != urllib.parse.urlsplit(req.full_url).netloc:
            again.remove_header("Authorization")
        return again


class Api:
    """One server and one token. `sleep` and `now` are replaced in tests."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise UserError(f"GITHUB_API_URL: {url!r} is no http address")
        self.url = url.rstrip("/")
        self.token = token
        self.sleep = sleep
        self.now = now
        self.waited = 0.0
        self.opener = urllib.request.build_opener(_Redirects())

    def get(self, path: str, **query: str | int) -> Any:
        """Parsed JSON. Raises ApiError."""
        return json.loads(self._send("GET", path, query))

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Parsed JSON. Raises ApiError. After a lost answer the request is sent again: the caller must expect two effects."""
        return json.loads(self._send("POST", path, {}, body))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Parsed JSON. Raises ApiError."""
        return json.loads(self._send("PATCH", path, {}, body))

    def delete(self, path: str) -> None:
        """Raises ApiError."""
        self._send("DELETE", path, {})

    def download(self, path: str) -> bytes:
        """The bytes of a file, at most `MAX_BYTES`. Raises ApiError."""
        return self._send("GET", path, {})

    def pages(self, path: str, **query: str | int) -> Iterator[Any]:
        """The items of a list, page by page. Raises ApiError."""
        for page in range(1, MAX_PAGES + 1):
            items = self.get(path, per_page=100, page=page, **query)
            yield from items
            if len(items) < 100:
                return

    def _send(
        self, method: str, path: str, query: Mapping[str, str | int], body: Mapping[str, Any] | None = None
    ) -> bytes:
        url = self.url + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._once(method, url, body)
            except urllib.error.HTTPError as error:
                failure, pause = _refusal(error), self._pause(error, attempt)
            except (OSError, http.client.HTTPException) as error:
                failure, pause = ApiError(0, f"{type(error).__name__}: {error}"), 2.0 ** (attempt - 1)
            if pause is None or attempt == ATTEMPTS or self.waited + pause > MAX_WAIT:
                raise failure
            self.waited += pause
            self.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _once(self, method: str, url: str, body: Mapping[str, Any] | None) -> bytes:
        request = urllib.request.Request(  # noqa: S310  # the scheme was checked
            url,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "User-Agent": f"promptlint/{__version__}",
                "X-GitHub-Api-Version": "2022-11-28",
                **({} if body is None else {"Content-Type": "application/json"}),
            },
        )
        with self.opener.open(request, timeout=TIMEOUT) as answer:
            content: bytes = answer.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ApiError(0, f"answer of more than {MAX_BYTES} bytes")
        return content

    def _pause(self, error: urllib.error.HTTPError, attempt: int) -> float | None:
        """Seconds until the request may be sent again; None when that would not help."""
        asked = error.headers.get("Retry-After", "")
        spent = error.headers.get("X-RateLimit-Remaining") == "0"
        if error.code in (403, 429) and asked.isdigit():
            return float(asked)
        if error.code in (403, 429) and spent:
            reset = error.headers.get("X-RateLimit-Reset", "")
            return max(float(reset) - self.now(), 1.0) if reset.isdigit() else 60.0
        return 2.0 ** (attempt - 1) if error.code in _AGAIN else None


def _refusal(error: urllib.error.HTTPError) -> ApiError:
    try:
        message = str(json.loads(error.read(10_000))["message"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        message = str(error.reason)
    return ApiError(error.code, f"{error.code} {message}")
