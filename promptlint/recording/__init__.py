"""Recording: hooks that run inside the user's own processes, and what the parent does with their records.

`child/` is a folder for PYTHONPATH. Its `sitecustomize` starts the recorder in every Python process of a command; the recorder imports nothing but the
standard library, because the command's Python need not have promptlint. `session` prepares and ends such a run, `compare` finds where two runs differ.
"""
