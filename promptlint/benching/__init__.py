"""Measuring running servers: the load, a client that only stamps while the clock runs, what servers say of themselves, and the statistics of a fair comparison."""
