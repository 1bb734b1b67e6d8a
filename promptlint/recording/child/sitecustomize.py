"""Starts the recorder in a Python process whose PYTHONPATH names this folder, then runs the sitecustomize that would have run without us."""

import os
import sys


def _start() -> None:
    """Start the recorder. Whatever goes wrong in it is no business of the program that is recorded."""
    try:
        recorder = __import__("_promptlint_recorder")
        recorder.start()
    except Exception:  # noqa: BLE001, S110 - see above
        pass


def _chain() -> None:
    """Run the next sitecustomize on the path under the name that it expects. The modules of importlib would cost every process their import."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as for pathlib
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]  # noqa: PTH100
    for finder in sys.meta_path:
        if getattr(finder, "__name__", "") == "PathFinder":
            spec = finder.find_spec("sitecustomize", others)
            if spec is not None and spec.loader is not None:
                module = type(sys)("sitecustomize")
                module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
                sys.modules["sitecustomize"] = module
                spec.loader.exec_module(module)
            return


_start()
_chain()
