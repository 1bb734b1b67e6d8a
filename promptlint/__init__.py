"""promptlint: finds what breaks a prompt's cacheable prefix, and says what it costs."""

__version__ = "0.1.0"
