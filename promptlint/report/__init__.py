"""The versioned JSON report, and its renderers: pure functions that compute nothing."""
