"""PostgreSQL's own words when it refused or failed, for logs: its message and SQLSTATE, and never
the contents of a row."""

import psycopg

MOST = 200
_VALUES = ("22", "23514")
"""Beginnings of SQLSTATE whose messages quote values: data exceptions, and checks."""


def server_words(error: BaseException) -> str:
    """Return the server's message that caused an error of ours. DETAIL, HINT and CONTEXT, which may
    hold rows, are left out."""
    if error.__cause__ is None and not isinstance(error, psycopg.Error):
        # a sentence of ours, or of Redis
        return str(error)[:MOST]
    cause = error.__cause__ or error
    if isinstance(cause, psycopg.Error) and (state := cause.sqlstate):
        shown = "" if state.startswith(_VALUES) else cause.diag.message_primary or ""
        return f"{shown[:MOST]} (SQLSTATE {state})".strip()
    if isinstance(cause, psycopg.OperationalError | OSError):
        # the driver's own sentence names host and port
        return f"{type(cause).__name__}: {str(cause).partition(chr(10))[0]}"[:MOST]
    return type(cause).__name__
