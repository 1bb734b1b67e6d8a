"""The checks of the linter, one a file: pure functions from the rendered prompt to findings."""
