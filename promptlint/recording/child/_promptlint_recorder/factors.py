"""The factors of `promptlint perturb`, pinned in every run and shifted in one: clock, random values, order of listings, working directory, user, host name.

Pinned means: the clock stands still but for what the program sleeps, random values come from a stream of their own for each place in the code, listings are sorted. So two
runs of a program send the same prompts, unless something else varies; and a run with one factor shifted differs in what depends on that factor.

The hash seed and environment variables are set by the parent. What the program does with real time (timeouts, the event loop) goes by other clocks and is not touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import Any

from . import frames, monotonic, sink

__all__ = ["apply"]

_PATIENCE = 50
"""Readings of the clock by one line, without any sleep, after which that line is taken to wait for time to pass."""


class Orders:
    """What the parent ordered, as JSON: `clock` in seconds since 1970, `random` a text, `listing` "sorted" or "reversed", `cwd` {from, to}, `user`, `host`, `reads` (tell which
    environment variables the project reads).
    """

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.clock: float | None = given.get("clock")
        self.random: str | None = given.get("random")
        self.listing: str | None = given.get("listing")
        self.cwd: dict[str, str] | None = given.get("cwd")
        self.user: str | None = given.get("user")
        self.host: str | None = given.get("host")
        self.reads: bool = given.get("reads", False)


class Plain:
    """A function that, like the builtin that it stands for, does not become a method where a class holds it (`logging.Formatter.converter = time.localtime`)."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "function")

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.function(*arguments, **options)


def _caller() -> Any:
    """The nearest frame that is not ours."""
    frame: Any = sys._getframe(1)  # noqa: SLF001 - inspect costs its import
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame


def apply(text: str) -> None:
    """Pin and shift in this process. Called before the program's first line."""
    orders = Orders(text)
    if orders.cwd is not None:
        _working_directory(orders.cwd["from"], orders.cwd["to"])
    if orders.listing is not None:
        _listings(reverse=orders.listing == "reversed")
    if orders.user is not None:
        _user(orders.user)
    if orders.host is not None:
        _host(orders.host)
    if orders.random is not None:
        _random(orders.random)
    if orders.reads:
        _environment_reads()
    if orders.clock is not None:
        _clock(orders.clock)


# The clock


class Clock:
    """Nanoseconds since 1970 as the program sees them: a fixed start, plus what it has slept.

    A line that reads the clock again and again while real time passes waits for something: then a second passes for it, so that no loop waits forever.
    """

    def __init__(self, start: float) -> None:
        self.now = int(start * 1e9)
        self.readings: dict[tuple[Any, int], int] = {}
        self.since = monotonic()

    def read(self) -> int:
        frame = _caller()
        key = (frame.f_code, frame.f_lineno)
        count = self.readings.get(key, 0) + 1
        self.readings[key] = count
        if count > _PATIENCE and monotonic() - self.since > 1.0:
            self.since = monotonic()
            self.now += 1_000_000_000
        return self.now

    def slept(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)
        self.readings.clear()
        self.since = monotonic()


def _clock(start: float) -> None:
    clock = Clock(start)
    real_sleep, localtime, gmtime, strftime, ctime, asctime = (
        time.sleep,
        time.localtime,
        time.gmtime,
        time.strftime,
        time.ctime,
        time.asctime,
    )
    real_gettime = getattr(time, "clock_gettime", None)

    def seconds_now() -> float:
        return clock.read() / 1e9

    def sleep(seconds: Any) -> None:
        real_sleep(seconds)
        clock.slept(float(seconds))

    def gettime(which: int) -> float:
        return clock.read() / 1e9 if which == time.CLOCK_REALTIME else real_gettime(which)  # type: ignore[misc]

    def of_seconds(real: Any) -> Any:
        return Plain(lambda seconds=None: real(clock.read() / 1e9 if seconds is None else seconds))

    def present(moment: Any) -> Any:
        return localtime(clock.read() / 1e9) if moment is None else moment

    module: Any = time
    module.time = Plain(seconds_now)
    module.time_ns = Plain(clock.read)
    module.sleep = Plain(sleep)
    module.localtime, module.gmtime, module.ctime = of_seconds(localtime), of_seconds(gmtime), of_seconds(ctime)
    module.asctime = Plain(lambda moment=None: asctime(present(moment)))
    module.strftime = Plain(lambda form, moment=None: strftime(form, present(moment)))
    if real_gettime is not None:
        module.clock_gettime = Plain(gettime)
    _datetime(clock)


def _datetime(clock: Clock) -> None:
    """Classes in place of `datetime.datetime` and `datetime.date` whose present is the clock's. They take part in isinstance for values of the real ones."""
    import datetime  # noqa: ICN001 - its names are replaced

    real_datetime, real_date = datetime.datetime, datetime.date

    class Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            if cls is shifted:
                return isinstance(value, real_datetime)
            if cls is shifted_date:
                return isinstance(value, real_date)
            return type.__instancecheck__(cls, value)

        def __subclasscheck__(cls, other: type) -> bool:
            if cls is shifted:
                return issubclass(other, real_datetime)
            if cls is shifted_date:
                return issubclass(other, real_date)
            return type.__subclasscheck__(cls, other)

    names = {"__module__": "datetime", "__qualname__": "datetime"}

    def now(cls: Any, tz: Any = None) -> Any:
        return cls.fromtimestamp(clock.read() / 1e9, tz)

    def utcnow(cls: Any) -> Any:
        return cls.fromtimestamp(clock.read() / 1e9, datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017 - older Pythons

    def today(cls: Any) -> Any:
        return cls.fromtimestamp(clock.read() / 1e9)

    shifted: Any = Meta(
        "datetime",
        (real_datetime,),
        {
            **names,
            "now": classmethod(now),
            "utcnow": classmethod(utcnow),
            "today": classmethod(today),
        },
    )
    shifted_date: Any = Meta(
        "date",
        (real_date,),
        {"__module__": "datetime", "__qualname__": "date", "today": classmethod(today)},
    )
    module: Any = datetime
    module.datetime = shifted
    module.date = shifted_date

    import copyreg

    # Values of the real classes, which the interpreter itself makes, are pickled by a name that now means ours.
    def reduced(kind: Any) -> Any:
        return lambda value: (kind, value.__reduce_ex__(2)[1])

    copyreg.pickle(real_datetime, reduced(shifted))
    copyreg.pickle(real_date, reduced(shifted_date))


# Random values


class Stream:
    """Bytes that look random and depend on the seed, on the place that asks, and on how often it has asked: other threads and libraries do not disturb them."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self.counts: dict[str, int] = {}

    def __call__(self, size: int) -> bytes:
        place = self._place()
        number = self.counts[place] = self.counts.get(place, 0) + 1
        out = b""
        while len(out) < size:
            out += hashlib.sha256(f"{self.seed}\0{place}\0{number}\0{len(out)}".encode()).digest()
        return out[:size]

    def _place(self) -> str:
        """The nearest line outside the modules that hand random values on, and the nearest of the project."""
        frame = _caller()
        while frame is not None and frame.f_globals.get("__name__") in _HANDING_ON:
            frame = frame.f_back
        near = f"{frame.f_code.co_name}:{frame.f_lineno}" if frame is not None else ""
        path, line, _function = frames.owner(frame)
        return f"{near}|{path}:{line}"


_HANDING_ON = frozenset(["random", "uuid", "secrets", "os", "tempfile", "numpy.random"])


def _random(seed: str) -> None:
    stream = Stream(seed)
    module: Any = os
    module.urandom = stream
    import random

    draw = random.Random.seed

    def seeded(self: Any, a: Any = None, version: int = 2) -> None:
        draw(self, int.from_bytes(stream(16), "big") if a is None and type(self) is random.Random else a, version)

    generators: Any = random
    generators._urandom = stream  # noqa: SLF001 - what SystemRandom and secrets draw from
    generators.Random.seed = seeded
    generators.seed = generators._inst.seed  # noqa: SLF001 - bound to the old one
    first = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")
    random.seed(first)
    if hasattr(os, "register_at_fork"):  # random itself seeds anew in a forked process
        os.register_at_fork(after_in_child=lambda: random.seed(first))
    _after_import("uuid", lambda module: _uuid(module, stream))


def _uuid(module: Any, stream: Any) -> None:
    def uuid1(node: Any = None, clock_seq: Any = None) -> Any:
        del node, clock_seq
        return module.UUID(bytes=stream(16), version=1)

    module.uuid1 = Plain(uuid1)


# Listings


def _listings(*, reverse: bool) -> None:
    """Listings of folders in sorted order, or in reverse: the file system promises neither."""
    real_listdir, real_scandir = os.listdir, os.scandir

    def listdir(path: Any = ".") -> Any:
        return sorted(real_listdir(path), reverse=reverse)

    class Scan:
        """What scandir gives: an iterator that can be closed."""

        def __init__(self, path: Any) -> None:
            with real_scandir(path) as entries:
                self._entries = iter(sorted(entries, key=lambda entry: entry.name, reverse=reverse))

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return next(self._entries)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_error: object) -> None:
            self.close()

        def close(self) -> None:
            self._entries = iter(())

    def scandir(path: Any = ".") -> Any:
        return Scan(path)

    module: Any = os
    module.listdir, module.scandir = Plain(listdir), Plain(scandir)


# Host state


def _working_directory(real: str, shown: str) -> None:
    """`os.getcwd` tells the folder by another name, a link to it, so that every path that begins with it works."""
    getcwd = os.getcwd
    real = os.path.realpath(real)

    def renamed() -> str:
        here = getcwd()
        return shown + here[len(real) :] if here == real or here.startswith(real.rstrip(os.sep) + os.sep) else here

    module: Any = os
    module.getcwd, module.getcwdb = Plain(renamed), Plain(lambda: os.fsencode(renamed()))


def _user(name: str) -> None:
    module: Any = os
    module.getlogin = Plain(lambda: name)
    try:
        import pwd
    except ImportError:
        return
    real = pwd.getpwuid

    def getpwuid(uid: int) -> Any:
        found = real(uid)
        return pwd.struct_passwd((name, *found[1:])) if uid == os.getuid() else found

    users: Any = pwd
    users.getpwuid = Plain(getpwuid)


def _host(name: str) -> None:
    real = os.uname

    def uname() -> Any:
        found = real()
        return os.uname_result((found.sysname, name, found.release, found.version, found.machine))

    module: Any = os
    module.uname = Plain(uname)
    _after_import("socket", lambda module: _socket(module, name))


def _socket(module: Any, name: str) -> None:
    """The host by another name, which still leads to it."""
    real_name = module.gethostname()
    module.gethostname = Plain(lambda: name)
    for function in ("gethostbyname", "gethostbyname_ex", "getaddrinfo"):
        real = getattr(module, function)
        setattr(module, function, _with_real_name(real, name, real_name))


def _with_real_name(function: Any, name: str, real_name: str) -> Any:
    def call(host: Any, *arguments: Any, **options: Any) -> Any:
        return function(real_name if host == name else host, *arguments, **options)

    return Plain(call)


# Environment variables


def _environment_reads() -> None:
    """Tell the parent which variables the project itself reads, those included that are not set."""
    kind: Any = type(os.environ)
    real = kind.__getitem__
    told: set[str] = set()

    def getitem(self: Any, name: Any) -> Any:
        if isinstance(name, str) and name not in told and not name.startswith("PROMPTLINT_"):
            frame = _caller()
            while frame is not None and frame.f_globals.get("__name__") in _READERS:
                frame = frame.f_back
            if frame is not None and frames.is_project(frame.f_code):
                told.add(name)
                sink.tell({"id": f"reads-{name}", "reads": name})
        return real(self, name)

    kind.__getitem__ = getitem


_READERS = frozenset(["os", "_collections_abc", "collections.abc"])


def _after_import(name: str, change: Any) -> None:
    """Change a module now if it is imported, else once it is."""
    if name in sys.modules:
        change(sys.modules[name])
        return
    from . import later

    later(name, change)
