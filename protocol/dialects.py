"""The table of dialects: the one place that names them all. A new dialect is a folder and one line
here."""

from collections.abc import Iterable, Mapping

from protocol import anthropic, converse, gemini, openai_chat, responses
from protocol.dialect import Dialect
from protocol.request import DialectName, Endpoint

DIALECTS: dict[DialectName, Dialect] = {
    dialect.name: dialect
    for dialect in (
        openai_chat.DIALECT,
        anthropic.DIALECT,
        responses.DIALECT,
        gemini.DIALECT,
        converse.DIALECT,
    )
}
CLIENTS: dict[DialectName, Dialect] = {
    name: dialect for name, dialect in DIALECTS.items() if dialect.client_paths
}
"""Those that clients speak. The others have no reader and no encoder."""
DEFAULT: Dialect = openai_chat.DIALECT
"""For whoever named none: an error at a path that nobody serves, a trial of a policy."""


def check_name(name: str) -> DialectName:
    """Return the name of a dialect. Raises ValueError."""
    if name not in DIALECTS:
        raise ValueError(f"no dialect has the name {name!r}")
    return name


def client_paths() -> Mapping[str, tuple[Dialect, Endpoint]]:
    """Return what is behind each path at which clients send requests."""
    return {
        path: (dialect, endpoint)
        for dialect in DIALECTS.values()
        for path, endpoint in dialect.client_paths.items()
    }


def kept_of(path: str) -> Dialect | None:
    """Return the dialect whose clients ask for their kept answers at this path."""
    return next(
        (
            dialect
            for dialect in CLIENTS.values()
            if dialect.kept_path and path.startswith(dialect.kept_path)
        ),
        None,
    )


def of_client(path: str, headers: Iterable[tuple[bytes, bytes]]) -> Dialect:
    """Return the dialect in which to report an error to the sender of this request."""
    names = {name for name, _ in headers}
    return next(
        (
            dialect
            for dialect in DIALECTS.values()
            if path.startswith(dialect.error_paths) or names & dialect.error_headers
        ),
        DEFAULT,
    )
