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
    """Run the next sitecustomize on the path under the name that it expects."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would cost every process its import
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_start()
_chain()
