"""`python -m promptlint` is the command."""

import os
import sys

if __name__ == "__main__":
    if sys.path and sys.path[0] in {"", os.getcwd()} and not sys.flags.safe_path:  # noqa: PTH109  # pathlib is slow to load
        # `-m` puts the current folder first: an analysed project with a yaml.py or a click/ of its own would be executed instead of the library.
        # This package is found by now, wherever it lies.
        del sys.path[0]

    from promptlint.cli import main

    main()
