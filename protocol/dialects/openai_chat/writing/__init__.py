"""Writes the parts of chat/completions requests."""
