"""Dialects: what one is, the table of all, what their writers share, and a folder for each."""
