"""The pipelines `check`, `simulate`, `diagnose` and `advise`: the one place where front ends and back end meet."""
