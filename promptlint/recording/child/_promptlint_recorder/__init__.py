"""The recorder inside a program's process: patches HTTP clients when the program imports them, and writes what they send to a model.

Everything here obeys three rules. It imports only the standard library, and as little as possible before the program itself needs more. It never raises into the
program: an error of ours is noted in the flags and the call goes on. It never changes what the program sends or receives, nor when.

`start` reads its orders from the environment, so that subprocesses and test workers inherit them.
"""

from __future__ import annotations

import os
import sys
from time import monotonic, time

__all__ = [
    "FILE",
    "FLAGS",
    "KEY",
    "LIBRARIES",
    "PERTURB",
    "PLANT",
    "ROOT",
    "clock",
    "install",
    "monotonic",
    "settings",
    "start",
]

FILE = "PROMPTLINT_RECORD_FILE"
FLAGS = "PROMPTLINT_RECORD_FLAGS"
ROOT = "PROMPTLINT_RECORD_ROOT"
BASE = "PROMPTLINT_RECORD_BASE"
KEY = "PROMPTLINT_RECORD_KEY"
PERTURB = "PROMPTLINT_RECORD_PERTURB"
"""Names of the environment variables: the file to append to, the file of flags, the project's folder, the folder to
which call sites are relative, the key that disguises text (absent: text
is kept), and the file with the factors of `perturb`: a program that prints its environment prints the same in every run."""

PLANT = {
    "httpx": ("clients", "patch_httpx"),
    "httpx2": ("clients", "patch_httpx"),
    "requests.sessions": ("clients", "patch_requests"),
    "aiohttp.client": ("clients", "patch_aiohttp"),
    "botocore.client": ("clients", "patch_botocore"),
    "asyncio.base_events": ("tasks", "patch_asyncio"),
    "langchain_core.language_models.chat_models": ("models", "patch_langchain"),
    "pydantic_ai.models": ("models", "patch_pydantic_ai"),
}
"""What is patched once the module of that name has been imported: the module and the function here that do it."""

LIBRARIES = (
    "openai", "anthropic", "litellm", "langchain_core", "pydantic_ai", "google.genai", "mistralai", "cohere", "groq", "ollama", "botocore",
    "llama_index.core", "agents", "smolagents", "dspy", "crewai", "autogen_core", "haystack", "instructor", "semantic_kernel", "transformers", "vllm", "together",
)  # fmt: skip
"""Libraries whose import is worth telling when nothing was sent. The position of a name is its flag."""

clock = time
"""The real clock, kept before anything shifts it: records carry real times."""


class Settings:
    """Orders for this process. `file` is None where records go to listeners only."""

    def __init__(self) -> None:
        self.file: str | None = None
        self.flags: str | None = None
        self.root = ""
        self.base = ""
        self.key = b""
        self.active = False


settings = Settings()


class Finder:
    """A finder at the head of the path that finds nothing itself: it lets the others find a module and patches it once it has run."""

    def __init__(self) -> None:
        self.busy: set[str] = set()
        self.seen: set[str] = set()
        self.plant: dict[str, object] = {**PLANT, **_later}

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """The spec that the other finders give for a module that we patch; None for all others."""
        if name in _FLAG and name not in self.seen:
            self.seen.add(name)
            _guarded(_flag_library, name)
        if name not in self.plant or name in self.busy:
            return None
        self.busy.add(name)
        try:
            for finder in sys.meta_path:
                find = None if finder is self else getattr(finder, "find_spec", None)  # type: ignore[comparison-overlap]
                spec = None if find is None else find(name, path, target)
                if spec is not None:
                    break
            else:
                return None
        finally:
            self.busy.discard(name)
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, self.plant[name])
        return spec


class Loader:
    """Stands in for a module's loader until the module runs; after that nothing of it is left to be seen."""

    def __init__(self, loader: object, plant: object) -> None:
        self.loader = loader
        self.plant = plant

    def __getattr__(self, name: str) -> object:
        return getattr(self.loader, name)

    def create_module(self, spec: object) -> object:
        create = getattr(self.loader, "create_module", None)
        return None if create is None else create(spec)

    def exec_module(self, module: object) -> None:
        """Run the module by its own loader, then patch it."""
        for holder, name in ((module, "__loader__"), (getattr(module, "__spec__", None), "loader")):
            if holder is not None:
                setattr(holder, name, self.loader)
        self.loader.exec_module(module)  # type: ignore[attr-defined]
        patch(module, self.plant)


_FLAG = {name: index for index, name in enumerate(LIBRARIES)}


def _guarded(function: object, *arguments: object) -> None:
    try:
        function(*arguments)  # type: ignore[operator]
    except Exception as error:  # noqa: BLE001 - the program must not notice
        try:
            from . import sink

            sink.note(error)
        except Exception:  # noqa: BLE001, S110 - as above
            pass


def _flag_library(name: str) -> None:
    from . import sink

    sink.flag(sink.LIBRARY + _FLAG[name])


_later: dict[str, object] = {}


def later(name: str, change: object) -> None:
    """Call `change` with the module of that name when it has been imported. Only before `install`."""
    _later[name] = change


def patch(module: object, plant: object) -> None:
    """Patch a module that has run. Never raises."""
    if callable(plant):
        _guarded(plant, module)
    else:
        _guarded(_patch, module, *plant)  # type: ignore[misc]


def _patch(module: object, file: str, function: str) -> None:
    inner = __import__(f"{__name__}.{file}", fromlist=[function])
    getattr(inner, function)(module)


def install() -> None:
    """Patch what is imported already, and the rest when it is. A second call does nothing."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    finder = Finder()
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    for name, plant in PLANT.items():
        if name in sys.modules:
            patch(sys.modules[name], plant)


def start() -> None:
    """Begin to record in this process, as the environment says. Without orders nothing happens."""
    settings.file = os.environ.get(FILE)
    if not settings.file:
        return
    settings.flags = os.environ.get(FLAGS)
    settings.root = os.environ.get(ROOT, "")
    settings.base = os.environ.get(BASE, "") or settings.root
    settings.key = bytes.fromhex(os.environ.get(KEY, ""))
    settings.active = True
    from . import sink

    sink.flag(sink.LOADED)
    if PERTURB in os.environ:
        from . import factors

        with open(os.environ[PERTURB], encoding="utf-8") as stream:  # noqa: PTH123 - pathlib costs its import
            factors.apply(stream.read())
    install()
