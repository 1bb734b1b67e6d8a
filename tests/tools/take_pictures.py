"""The pictures of the README, taken of the pages as they are: `PROMPTLINT_DATA=DIR python tests/tools/take_pictures.py`; needs a Chromium.

Each picture shows a page from the top of one element to the bottom of another, in light or dark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chromium import Browser, find

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "examples" / "pictures"
WIDTH = 1000
MOST = 200_000  # bytes of a picture


def page(folder: Path, *words: str) -> Path:
    """The page of a command."""
    path = folder / "page.html"
    done = subprocess.run(
        [sys.executable, "-m", "promptlint", *words, "--output-format", "html", "-o", path], cwd=ROOT, check=False
    )
    if done.returncode not in {0, 1}:
        raise SystemExit(f"promptlint {' '.join(words)} failed")
    return path


def take(browser: Browser, path: Path, name: str, top: str, bottom: str, *, dark: bool) -> None:
    """One picture, between two elements that CSS selectors name."""
    browser.look(width=WIDTH, dark=dark)
    browser.open(path)
    place = "document.querySelector({!r}).getBoundingClientRect().{}"
    begin = max(0, browser.evaluate(place.format(top, "top")) - 16)
    end = browser.evaluate(place.format(bottom, "bottom")) + 16
    target = PICTURES / name
    browser.picture(target, clip=(0, begin, WIDTH, end - begin))
    size = target.stat().st_size
    print(f"{target.relative_to(ROOT)}: {size:,} bytes")
    if size > MOST:
        raise SystemExit(f"{name} has more than {MOST:,} bytes")


def main() -> None:
    """Take all of them."""
    chromium, data = find(), os.environ.get("PROMPTLINT_DATA")
    if chromium is None or data is None:
        raise SystemExit("a Chromium and PROMPTLINT_DATA are needed")
    airline = [f"{data}/tau_airline_trajectories.jsonl.gz", "--format", "conversations", "--tools", f"{data}/tau_airline_tools.json"]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Browser(chromium) as browser:
        lab = Path(folder) / "lab.jsonl"
        subprocess.run([sys.executable, ROOT / "examples" / "radix_lab" / "lab.py", "--traffic", lab], check=True)
        made = page(Path(folder), "simulate", str(lab), "--capacity-tokens", "2500")
        take(browser, made, "radix_lab.png", ".brand", "figure.curve", dark=False)
        made = page(Path(folder), "simulate", *airline, "--capacity-tokens", "40000", "--schedule", "lpm", "--no-curve")
        take(browser, made, "airline.png", "#tree h2", ".icicle", dark=True)
        made = page(Path(folder), "check", "examples/support_bot", "--no-cache")
        take(browser, made, "support_bot.png", "#call-sites h2", "#call-sites article:last-of-type", dark=False)


if __name__ == "__main__":
    main()
