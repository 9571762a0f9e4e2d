"""The table of dialects: the one place that names them all. A new dialect is a folder and one line
here."""

from collections.abc import Iterable, Mapping

from protocol.dialects.anthropic import Messages
from protocol.dialects.base import ClientDialect, Dialect
from protocol.dialects.converse import Converse
from protocol.dialects.gemini import Gemini
from protocol.dialects.openai_chat import ChatCompletions
from protocol.dialects.responses import Responses
from protocol.request import DialectName, Endpoint

_RESPONSES = Responses()
# some clients send bodies of Responses where chat/completions is served
DEFAULT: ClientDialect = ChatCompletions(_RESPONSES.decode_elsewhere)
"""For whoever named none: an error at a path that nobody serves, a trial of a policy."""
CLIENTS: dict[DialectName, ClientDialect] = {
    dialect.name: dialect for dialect in (DEFAULT, Messages(), _RESPONSES)
}
"""Those that clients speak."""
DIALECTS: dict[DialectName, Dialect] = {
    **CLIENTS,
    **{dialect.name: dialect for dialect in (Gemini(), Converse())},
}
"""All, which upstreams speak."""


def check_name(name: str) -> DialectName:
    """Return the name of a dialect. Raises ValueError."""
    if name not in DIALECTS:
        raise ValueError(f"no dialect has the name {name!r}")
    return name


def client_paths() -> Mapping[str, tuple[ClientDialect, Endpoint]]:
    """Return what is behind each path at which clients send requests."""
    return {
        path: (dialect, endpoint)
        for dialect in CLIENTS.values()
        for path, endpoint in dialect.client_paths.items()
    }


def kept_of(path: str) -> ClientDialect | None:
    """Return the dialect whose clients ask for their kept answers at this path."""
    return next(
        (
            dialect
            for dialect in CLIENTS.values()
            if dialect.kept_path and path.startswith(dialect.kept_path)
        ),
        None,
    )


def of_client(path: str, headers: Iterable[tuple[bytes, bytes]]) -> ClientDialect:
    """Return the dialect in which to report an error to the sender of this request."""
    names = {name for name, _ in headers}
    return next(
        (
            dialect
            for dialect in CLIENTS.values()
            if path.startswith(dialect.error_paths) or names & dialect.error_headers
        ),
        DEFAULT,
    )
