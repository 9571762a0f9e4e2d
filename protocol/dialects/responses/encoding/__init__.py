"""Writes answers of the Responses dialect."""
