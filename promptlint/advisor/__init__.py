"""Reordering, estimates, the verdict, and the diagnosis of misses."""
