"""Click commands, one a file. They parse arguments, call `app`, and set the exit code."""
