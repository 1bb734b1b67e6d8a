"""The pipeline `perturb`: the user's command again and again with one factor changed, its prompts compared with those of the unchanged run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from promptlint.advisor.diagnose.redact import snippet
from promptlint.analysis.matching import Matcher, offset_of
from promptlint.app.discovery import project_root
from promptlint.errors import UserError
from promptlint.recording import compare, session
from promptlint.recording.compare import Difference
from promptlint.recording.measured import FACTORS, RULES, Measurement, Varying
from promptlint.recording.session import Recording, Run
from promptlint.report.model import FindingItem as Finding
from promptlint.traffic.parts import parts_of
from promptlint.traffic.readers.base import Options
from promptlint.traffic.readers.bodies import record_of
from promptlint.traffic.record import Place

__all__ = ["Request", "perturb"]

_SECOND, _HOUR, _DAY = 1.0, 3660.0, 86400.0
_SHIFTS = (("second", _SECOND), ("hour", _HOUR), ("day", _DAY))
"""How far the clock is moved. The hour has a minute more, so that a clock of minutes shows too."""
_SEEDS = ("1", "2", "3")
"""Other hash seeds. One of them leaves a set of two in its order half the time, all three an eighth of it; three more would cost as many runs."""
_USER, _HOST = "promptlint-user", "promptlint-host"
_NEW = "PROMPTLINT_PERTURBED"
_MOST_VARIABLES = 8


@dataclass(frozen=True, slots=True)
class Request:
    """What to run, which factors to change (all), after how many seconds a run is given up, and code whose findings are compared with what was measured."""

    command: tuple[str, ...]
    factors: tuple[str, ...] = FACTORS
    timeout: float | None = None
    code: tuple[Path, ...] = ()
    progress: Callable[[str], None] = field(default=lambda _line: None)


@dataclass(frozen=True, slots=True)
class _Shift:
    """One run: what differs from the first one in the recorder's orders and in the environment."""

    factor: str
    name: str = ""
    orders: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None


def perturb(request: Request) -> Measurement:
    """Run the command twice unchanged, then once (clock and hash seed: up to three times) for each factor. Raises UserError when it sends no request or cannot be run.

    Prompts are kept in a folder of our own while this runs, readable by the user alone, and removed at the end.
    """
    with tempfile.TemporaryDirectory(prefix="promptlint-") as folder:
        return _Runs(request, Path(folder)).measure()


class _Runs:
    """All runs of one measurement."""

    def __init__(self, request: Request, folder: Path) -> None:
        self.request = request
        self.folder = folder
        self.root = project_root(Path.cwd())
        self.start = _start(time.time())
        self.count = 0
        self.first: list[dict[str, Any]] = []
        self.noise: dict[tuple[str, str, int], list[Difference]] = {}

    def measure(self) -> Measurement:
        """The first run, the same again, then the factors."""
        base = self._run(_Shift("", orders={"reads": True}))
        self.first = base.recording.rows
        if not self.first:
            raise UserError(self._why_nothing(base))
        found = Measurement(
            self.request.command,
            len(self.first),
            len({row.get("call_site", "") for row in self.first}),
            base.status,
            factors=self.request.factors,
        )
        again = self._run(_Shift(""))
        self.noise, found.noise, uneven = self._compared(again.recording, _Shift(""))
        if uneven:
            found.uneven["nothing"] = uneven
        for factor in self.request.factors:
            for shift in self._shifts(factor, base.recording):
                if self._measured(shift, base, found):
                    break
        found.varying = _smallest(found.varying)
        if self.request.code:
            found.varying = _with_findings(found.varying, self.first, self.request.code)
            found.compared_with_code = True
        found.runs = self.count
        return found

    def _measured(self, shift: _Shift, base: Run, found: Measurement) -> bool:
        """Measure one run; True where the factor needs no further ones."""
        run = self._run(shift)
        _all, varying, uneven = self._compared(run.recording, shift)
        found.varying += varying
        name = f"{shift.factor} ({shift.name})" if shift.name else shift.factor
        if uneven and "nothing" not in found.uneven:
            found.uneven[name if shift.factor == "environment" else shift.factor] = uneven
        if run.status != base.status:
            found.failed[name if shift.factor == "environment" else shift.factor] = (
                f"the command ended with {run.status} in place of {base.status}"
            )
        # The environment as a whole is in a prompt, or another order was seen: more runs would say the same.
        return bool(varying or uneven) and (shift.factor == "hash-seed" or shift.name == _NEW)

    def _why_nothing(self, run: Run) -> str:
        from promptlint.app.record import summary

        log = (self.folder / "1.log").read_text("utf-8", errors="replace").strip().splitlines()
        said = f"; it ended with {run.status}, its last line: {log[-1]}" if run.status and log else ""
        return summary(run.recording, "", self.request.command)[0] + said

    def _shifts(self, factor: str, base: Recording) -> Iterator[_Shift]:
        """The runs that show a factor."""
        if factor == "hash-seed":
            yield from (_Shift(factor, seed, env={"PYTHONHASHSEED": seed}) for seed in _SEEDS)
        elif factor == "clock":
            yield from (_Shift(factor, name, orders={"clock": self.start + seconds}) for name, seconds in _SHIFTS)
        elif factor == "cwd":
            yield self._elsewhere()
        elif factor == "user":
            yield self._other_user()
        elif factor == "host":
            yield _Shift(
                factor,
                orders={"host": _HOST},
                env={name: _HOST for name in ("HOSTNAME", "HOST", "COMPUTERNAME") if name in os.environ},
            )
        elif factor == "random":
            yield _Shift(factor, orders={"random": "another"})
        elif factor == "listing":
            yield _Shift(factor, orders={"listing": "reversed"})
        elif factor == "environment":
            yield from self._environment(base)

    def _elsewhere(self) -> _Shift:
        """The working directory under another name: a link, so that all files are found."""
        here = Path.cwd()
        link = self.folder / "elsewhere" / f"{here.name or 'root'}-elsewhere"
        link.parent.mkdir()
        link.symlink_to(here, target_is_directory=True)
        return _Shift("cwd", orders={"cwd": {"from": str(here), "to": str(link)}}, env={"PWD": str(link)}, cwd=link)

    def _other_user(self) -> _Shift:
        """Another name, and the home folder under that name."""
        env = {name: _USER for name in ("USER", "LOGNAME", "USERNAME", "LNAME") if name in os.environ}
        env.setdefault("LOGNAME", _USER)  # the first that getpass asks for
        home = os.environ.get("HOME")
        if home and Path(home).is_dir():
            link = self.folder / "home" / _USER
            link.parent.mkdir()
            link.symlink_to(home, target_is_directory=True)
            env["HOME"] = str(link)
        return _Shift("user", orders={"user": _USER}, env=env)

    def _environment(self, base: Recording) -> Iterator[_Shift]:
        """One variable more; then each variable that the project reads or whose value stands in a prompt, with another value."""
        yield _Shift("environment", _NEW, env={_NEW: "1"})
        texts = "\0".join(json.dumps(row, ensure_ascii=False) for row in self.first)
        read = set(base.reads)
        shown = {name for name, value in os.environ.items() if len(value) >= 3 and value in texts}
        number = 0
        for name in (*sorted(read), *sorted(shown - read)):
            value = _changed(name, os.environ.get(name))
            if value is None:
                continue
            number += 1
            if number > _MOST_VARIABLES:
                self.request.progress(
                    f"more than {_MOST_VARIABLES} variables: {name} and those behind it are not tried"
                )
                return
            yield _Shift("environment", name, env={name: value})

    def _run(self, shift: _Shift) -> Run:
        self.count += 1
        name = " ".join(
            part
            for part in (shift.factor or ("unchanged" if self.count == 1 else "unchanged again"), shift.name)
            if part
        )
        self.request.progress(f"run {self.count}: {name}")
        # The same paths in every run: a program may print its environment.
        file, flags, orders = (self.folder / f"run.{kind}" for kind in ("jsonl", "flags", "json"))
        given = {"clock": self.start, "random": "first", "listing": "sorted", **shift.orders}
        orders.write_text(json.dumps(given), "utf-8")
        # A plugin that shuffles tests would be a factor of its own.
        steady = f"{os.environ.get('PYTEST_ADDOPTS', '')} -p no:randomly -p no:random_order".strip()
        base = {**os.environ, "PYTHONHASHSEED": "0", "PYTEST_ADDOPTS": steady, **shift.env}
        env = session.environment(base, file, flags, self.root, Path.cwd(), perturb=str(orders))
        with session.prepared(file, flags), (self.folder / f"{self.count}.log").open("wb") as log:
            status = session.run_command(
                self.request.command, env, cwd=shift.cwd, output=log, timeout=self.request.timeout
            )
            found = session.finished(file, flags)
        file.unlink()
        return Run(status, found)

    def _compared(
        self, run: Recording, shift: _Shift
    ) -> tuple[dict[tuple[str, str, int], list[Difference]], list[Varying], str]:
        """Differences of a run from the first one, by call; those that are no noise, gathered by place; and what is uneven."""
        every: dict[tuple[str, str, int], list[Difference]] = {}
        places: dict[tuple[str, str, str], Varying] = {}
        more = fewer = 0
        for pair in compare.pairs(self.first, run.rows):
            if pair.was is None or pair.now is None:
                more += pair.was is None
                fewer += pair.now is None
                continue
            key = (pair.call_site, pair.test, pair.number)
            every[key] = compare.differences(pair.was, pair.now)
            seen: set[tuple[str, str, str]] = set()
            for one in compare.joined(compare.without(every[key], self.noise.get(key, ()))):
                place = (pair.call_site, one.pointer, one.was[max(0, one.word - 24) : one.word].rpartition("\n")[2])
                if place in places:
                    places[place] = replace(places[place], calls=places[place].calls + (place not in seen))
                else:
                    places[place] = self._varying(one, shift, pair.was)
                seen.add(place)
        uneven = ", ".join(f"{number} {word}" for number, word in ((more, "more"), (fewer, "fewer")) if number)
        return every, list(places.values()), f"{uneven} of {len(self.first)} calls" if uneven else ""

    def _varying(self, one: Difference, shift: _Shift, row: Mapping[str, Any]) -> Varying:
        site = str(row.get("call_site", ""))
        return Varying(
            shift.factor,
            site,
            one.pointer,
            one.start,
            calls=1,
            of=sum(1 for other in self.first if other.get("call_site", "") == site),
            was=snippet(one.was, one.start, one.end),
            now=snippet(one.now, one.now_start, one.now_end),
            shift=shift.name if shift.factor in {"clock", "environment"} else "",
            end=one.end,
            line=int(session.about(row).get("line", 0)),
        )


def _start(now: float) -> float:
    """A moment near to now from which neither a second nor a few sleeps reach the next minute, nor an hour the next day, here or in UTC."""
    moment = now // 60.0 * 60.0 + 10.123456
    while any(day(moment)[:3] != day(moment + _HOUR + 60.0)[:3] for day in (time.localtime, time.gmtime)):
        moment -= 3600.0
    return moment


def _smallest(found: Sequence[Varying]) -> list[Varying]:
    """Each place once for a factor: with the smallest shift of the clock that changes it, which comes first.

    The same value differs in more or fewer of its characters from run to run (a second, a day), so places that touch are one.
    """
    kept: list[Varying] = []
    for one in found:
        same = next(
            (
                old
                for old in kept
                if (old.factor, old.call_site, old.pointer) == (one.factor, one.call_site, one.pointer)
                and old.char <= one.end + _NEAR
                and one.char <= old.end + _NEAR
            ),
            None,
        )
        if same is None:
            kept.append(one)
        elif one.char < same.char:
            kept[kept.index(same)] = replace(same, char=one.char)
    return kept


_NEAR = 16
"""Characters by which two differences of one value may lie apart."""

_UNTOUCHED = """
    key apikey token secret password passwd credential credentials url uri host port endpoint base proxy dir path
    file home root user logname username lname pwd oldpwd shell term tmp temp tmpdir ld python pythonpath pythonhome
    virtual conda shlvl ssl lang language lc tz pytest promptlint
"""
_NOT_TOUCHED = frozenset(_UNTOUCHED.split())
"""Words in the name of a variable that leads to servers, files or keys, that belongs to another factor, or that the interpreter itself obeys: a changed one would only make the command
fail. Names are compared word by word."""


def _changed(name: str, value: str | None) -> str | None:
    """Another value of the same kind; None for a variable that must stay."""
    words = {word for word in name.lower().split("_") if word}
    if (
        not words
        or words & _NOT_TOUCHED
        or name.startswith("PYTHON")
        or (value is not None and ("/" in value or "\\" in value))
    ):
        return None
    if value is None or not value:
        return "promptlint"
    lowered = value.lower()
    for yes, no in (("true", "false"), ("yes", "no"), ("on", "off"), ("1", "0")):
        if lowered == yes:
            return no
        if lowered == no:
            return yes
    with contextlib.suppress(ValueError):
        return str(int(value) + 1)
    return f"{value}-changed"


def _with_findings(found: Sequence[Varying], rows: Sequence[Mapping[str, Any]], code: Sequence[Path]) -> list[Varying]:
    """The places with what the analysis of the code says of them: the hole, and the findings of `check` at that call site under a rule of the factor.

    The call site is found by the request's text, since the analysis looks through the function that sends to the one that says what.
    """
    from promptlint.app import check
    from promptlint.app.discovery import absolute
    from promptlint.app.traffic import code_matcher
    from promptlint.config import load_settings

    settings = replace(
        load_settings(project_root(absolute(code[0])), None, isolated=False),
        persona="pedantic",
        min_confidence="medium",
    )
    report = check.check(settings, check.Request(tuple(code), Path.cwd()))
    matcher = code_matcher(code)
    known: list[Varying] = []
    for one in found:
        row = next(row for row in rows if row.get("call_site", "") == one.call_site)
        site, hole, guessed = _origin(matcher, row, one)
        said = tuple(
            f"{finding.rule} {finding.path}:{finding.line}"
            for finding in report.findings
            if finding.rule in RULES[one.factor] and _at(finding, site) and _same(finding, hole)
        )
        known.append(replace(one, hole=hole, guessed=guessed, found_by=said))
    return known


def _at(finding: Finding, site: str) -> bool:
    """Whether a finding concerns a call site."""
    sites = (finding.call_site, *(item.call_site for item in finding.related))
    return bool(site) and any(_bare(name) == _bare(site) for name in sites if name)


def _same(finding: Finding, hole: str) -> bool:
    """Whether a finding is about that hole. A finding about an order names the collection, the hole is what was made of it."""
    return not hole or finding.rule in _ORDERS or finding.expression in hole or hole in finding.expression


_ORDERS = frozenset(
    {
        "unordered-iteration",
        "template-unordered",
        "unsorted-json",
        "tool-order-differs",
        "unsorted-listing",
        "random-order",
    }
)


def _bare(site: str) -> str:
    return site.partition("#")[0]


def _origin(matcher: Matcher, row: Mapping[str, Any], one: Varying) -> tuple[str, str, str]:
    """Call site, hole and its volatility in the code, at the place in a request."""
    record = record_of(row, Place(""), "canonical", Options())
    parts = parts_of(record)
    match = matcher.match(record, parts)
    if match is None:
        return "", "", ""
    path = re.sub(r"/(\d+)", r"[\1]", one.pointer).replace("/", ".").strip(".").removesuffix(".text")
    depth = next((index for index, part in enumerate(parts) if part.path == path), None)
    hole = match.hole_at(offset_of(parts, depth, one.char)) if depth is not None else None
    return (
        match.call_site,
        hole.expression if hole is not None else "",
        hole.volatility.word if hole is not None else "",
    )
