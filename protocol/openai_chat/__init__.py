"""The chat/completions dialect. Imports no other dialect."""
