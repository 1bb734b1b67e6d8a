"""A headless Chromium for tests that open a page: the DevTools protocol over a pipe, a few calls of it.

`find` gives the browser's path or None. A page is opened from its file; everything that it asks the network for and everything that it says on the console is kept.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
PATIENCE = 60.0  # seconds for one answer; a shared machine is slow


def find() -> str | None:
    """The path of an installed Chromium."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Opened:
    """What opening a page showed: addresses that were asked for, console messages and errors, seconds until it was loaded."""

    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Browser:
    """One browser with one page. Use as a context manager."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="promptlint-chromium-")
        (there, self._write), (self._read, back) = os.pipe(), os.pipe()
        words = " ".join(f"'{flag}'" for flag in (*FLAGS, f"--user-data-dir={self._profile}", "about:blank"))
        # Chromium reads commands from descriptor 3 and answers on 4. High numbers, so that the shell does not close what it moves.
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec '{path}' {words} 3<&{there} 4>&{back}"],
            pass_fds=(there, back), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(there)
        os.close(back)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._events.append(answer)

    def open(self, page: Path) -> Opened:
        """Load a page and wait until it is complete."""
        self._events.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._next())
        found = Opened(seconds=time.monotonic() - begin)
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        for event in self._events:
            method, values = event.get("method"), event.get("params", {})
            if method == "Network.requestWillBeSent":
                found.requests.append(values["request"]["url"])
            elif method == "Log.entryAdded":
                found.said.append(values["entry"]["text"])
            elif method in {"Runtime.consoleAPICalled", "Runtime.exceptionThrown"}:
                found.said.append(json.dumps(values)[:500])
        return found

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def look(self, *, width: int, dark: bool = False, height: int = 900, media: str = "screen") -> None:
        """Set the window's width in CSS pixels, light or dark, screen or paper."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def picture(self, path: Path, *, clip: tuple[float, float, float, float] | None = None) -> None:
        """A PNG of the window, or of (x, y, width, height) of the page."""
        parameters: dict[str, Any] = {}
        if clip is not None:
            parameters = {
                "clip": dict(zip(("x", "y", "width", "height"), clip, strict=True), scale=1),
                "captureBeyondViewport": True,
            }
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **parameters)["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], PATIENCE)
            if not ready:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise RuntimeError("Chromium ended")
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message
