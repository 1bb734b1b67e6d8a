"""Edits of source: libcst for Python, spans for templates."""
