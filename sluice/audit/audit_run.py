"""What all commands on the record share: a reader for as long as a command runs, exit codes, JSON.

Exit codes: 0 done, 1 no such call, 2 wrong use or filter, 3 the database is away.
"""

import asyncio
import contextlib
import getpass
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import typer

from db.filters import NOT_A_CALL_ID, Asked, Filters, parse_call_id, parse_filters
from protocol.errors import AuditUnavailable, InvalidRequest, NotFound, PipelineError
from sluice.errors import StartError
from sluice.sentences import wrapped
from sluice.settings import database_url
from sluice.tables import printable
from sluice.times import read_time

if TYPE_CHECKING:
    from db.read.queries import AuditReader

T = TypeVar("T")
NOTE_S = 2.0
"""How long a command waits for the row that says who reads."""


def run(
    read: "Callable[[AuditReader], Awaitable[T]]", as_json: bool, *, is_noted: bool = True
) -> T:
    """Run with a reader, which is noted; errors end the program with their exit code."""
    from db.read.queries import AuditReader

    async def with_reader() -> T:
        reader = AuditReader.open(database_url(), pool_size=1)
        try:
            if is_noted:
                await _note()
            return await read(reader)
        finally:
            await reader.close()

    try:
        with quiet_pipe():
            return asyncio.run(with_reader())
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None


async def _note() -> None:
    """Note who reads, as far as the operating system says. Nobody is held up by it: who has the
    database can read round it."""
    from db.access_log import PageRead, note
    from db.engine import open_engine

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    engine = open_engine(database_url(), read_only=False, answer_s=NOTE_S, pool_size=1)
    words = sys.argv[1:]
    try:
        with contextlib.suppress(AuditUnavailable, OSError):
            async with asyncio.timeout(NOTE_S):
                await note(
                    engine,
                    PageRead(
                        f"user {user}", "", f"sluice {' '.join(words[:2])}", " ".join(words[2:])
                    ),
                )
    finally:
        await engine.dispose()


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End the program well when the reader of a pipe has enough of what is printed within."""
    try:
        yield
    except BrokenPipeError:
        # Python would complain once more when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def run_here(work: Callable[[], T], as_json: bool, *, is_noted: bool = False) -> T:
    """Run without a reader, and note who reads where the work shows or copies content; errors end
    the program with their exit code."""
    try:
        if is_noted:
            asyncio.run(_note())
        return work()
    except (PipelineError, StartError) as error:
        raise typer.Exit(fail(error, as_json)) from None


def whole_id(call: str, as_json: bool) -> str:
    """Return the id of a call that may be named by its beginning; a whole one is not looked up."""
    with suppress(ValueError):
        return str(UUID(call))
    try:
        parse_call_id(call)
    except InvalidRequest as error:
        message = (
            f"{printable(call)} is not a call id"
            if error.error_code == NOT_A_CALL_ID
            else error.message
        )
        raise typer.Exit(fail(InvalidRequest(message, code=error.error_code), as_json)) from None
    return run(lambda reader: find_call(reader, call), as_json, is_noted=False)


def parsed_file(param: str, path: Path, parse: Callable[[str], T]) -> T:
    """Return what is in a file. Raises InvalidRequest that names the option."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise InvalidRequest(f"{path} is not text", param=param) from None
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}", param=param) from None
    except ValueError as error:
        raise InvalidRequest(f"{path}: {error}", param=param) from None


def read_filters(pairs: Iterable[tuple[str, str]], of: Asked) -> Filters:
    """Return filters, with times as people write them. Raises InvalidRequest."""
    return parse_filters(read_times(pairs), of=of)


def read_times(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return what was given with its times as the record's filters take them. Raises
    InvalidRequest."""
    return [
        (name, read_time(value, name) if name in ("since", "until") else value)
        for name, value in pairs
    ]


async def find_call(reader: "AuditReader", text: str) -> str:
    """Return the id of the call that a text names, whole or by its beginning. Raises NotFound,
    InvalidRequest."""
    try:
        return str(await reader.find_call(text))
    except InvalidRequest as error:
        if error.error_code == NOT_A_CALL_ID:
            raise NotFound(f"{printable(text)} is not a call id") from None
        raise InvalidRequest(error.message, code=error.error_code) from None
    except NotFound as error:
        raise NotFound(error.message) from None


def fail(error: PipelineError | StartError, as_json: bool) -> int:
    """Say what went wrong and return the exit code for it."""
    if isinstance(error, StartError):
        error_code, param, message = "settings", None, str(error)
    else:
        error_code, param, message = error.error_code, error.param, error.message
    message = f"--{param.replace('_', '-')}: {message}" if param else message
    if as_json:
        print_json({"error": {"message": message, "code": error_code, "param": param}})
    else:
        typer.echo(wrapped(f"sluice: {message}", sys.stderr), err=True)
    match error:
        case StartError():
            return error.exit_code
        case NotFound():
            return 1
        case AuditUnavailable():
            return 3
        case _:
            return 2


def print_json(value: object) -> None:
    """Print one JSON object."""
    typer.echo(json.dumps(value, ensure_ascii=True))
