"""`python -m promptlint` is the command."""

from promptlint.cli import main

if __name__ == "__main__":
    main()
