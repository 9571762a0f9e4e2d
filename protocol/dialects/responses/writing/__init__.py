"""Writes the parts of requests of the Responses dialect."""
