"""Runs a shell text in thought: variables, wrappers and interpreters, to the commands that really
run."""
