"""Writes examples/support_bot/traffic.jsonl: one morning at the support desk, as the example application really sends it.

    python examples/make_traffic.py

The application runs with a stand-in for the `openai` package that records each request instead of sending it; the clock is set by hand and
everything else comes from a seeded generator, so the file is the same on every machine. One JSON object a line: `timestamp`
(milliseconds), `id`, `session_id`, `model`, `call_site`, `messages`, `output_length` (tokens).
"""

from __future__ import annotations

import datetime as dt
import json
import random
import sys
import types
from pathlib import Path

HERE = Path(__file__).parent
START = dt.datetime(2026, 11, 2, 8, 0, tzinfo=dt.timezone.utc)
TOOLS = ("hedge trimmer", "long-handled spade", "battery mower", "pruning saw", "hose reel", "seed drill")
PROBLEMS = ("does not start", "has a loose handle", "makes a grinding noise", "arrived without its charger", "cuts unevenly", "leaks")
QUESTIONS = (
    "How long will that take?",
    "Do I have to send it in, or can I bring it to the shop?",
    "Is that covered by the warranty?",
    "Could you tell me the number of the spare part?",
    "And what will it cost if it is not covered?",
)
NAMES = ("Ada Moreno", "Jonas Beck", "Priya Nair", "Tom Okafor", "Lena Fischer", "Yusuf Demir")
CONVERSATIONS, TICKETS = 9, 12


class Recorder:
    """Stands in for an OpenAI client: keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[dict[str, object]] = []
        self.chat = types.SimpleNamespace(completions=types.SimpleNamespace(create=self.create))

    def create(self, **request: object) -> types.SimpleNamespace:
        self.requests.append(request)
        message = types.SimpleNamespace(content="We have looked at it and will write to you by tomorrow evening.")
        return types.SimpleNamespace(choices=[types.SimpleNamespace(message=message)])


class Clock(dt.datetime):
    """`datetime` with a `now` that the script sets."""

    current = START

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
        return cls.current


def requests() -> list[dict[str, object]]:
    """All requests of the morning, in the order of their timestamps."""
    recorder = Recorder()
    sys.modules["openai"] = types.ModuleType("openai")
    sys.modules["openai"].OpenAI = lambda: recorder  # type: ignore[attr-defined]
    sys.path.insert(0, str(HERE / "support_bot"))
    from support import desk, mail

    desk.datetime = Clock
    rng = random.Random(20261102)
    events: list[tuple[dt.datetime, str, str]] = []
    for number in range(CONVERSATIONS):
        moment = START + dt.timedelta(seconds=rng.uniform(0, 3000))
        for _ in range(rng.randint(1, 4)):
            events.append((moment, "answer", f"chat-{number}"))
            moment += dt.timedelta(seconds=rng.uniform(25, 160))
    events += [(START + dt.timedelta(seconds=rng.uniform(0, 3600)), rng.choice(("triage", "draft")), f"ticket-{n}") for n in range(TICKETS)]

    histories: dict[str, list[dict[str, str]]] = {}
    records = []
    for number, (moment, kind, session) in enumerate(sorted(events), 1):
        Clock.current = moment.replace(microsecond=rng.randrange(1_000_000))
        ticket = f"My {rng.choice(TOOLS)} {rng.choice(PROBLEMS)}. I bought it {rng.randint(2, 40)} months ago."
        if kind == "answer":
            history = histories.setdefault(session, [])
            question = rng.choice(QUESTIONS) if history else ticket
            reply = desk.answer(history, question)
            history += [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
        elif kind == "triage":
            desk.triage(ticket)
        else:
            mail.draft(rng.choice(NAMES), ticket)
        sent = recorder.requests[-1]
        module = "mail" if kind == "draft" else "desk"
        records.append(
            {
                "timestamp": int(moment.timestamp() * 1000),
                "id": f"r{number}",
                "session_id": session,
                "model": sent["model"],
                "call_site": f"support/{module}.py::{kind}::openai.chat.completions.create",
                "messages": sent["messages"],
                "output_length": rng.randint(4, 8) if kind == "triage" else rng.randint(60, 180),
            }
        )
    return records


def main() -> None:
    text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in requests())
    (HERE / "support_bot" / "traffic.jsonl").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
