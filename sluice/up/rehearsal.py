"""Loads a configuration for `sluice up` before anything starts, and collects what the start-up text
says when everything runs.

A separate process loads the policies. So side effects of importing a user's own policy (prints,
threads, an exit, an endless loop) stay out of the launcher, and loaded modules do not stay in its
memory. It answers with lines of JSON, in this order: the mistakes in the file; its warnings; the
policies' verdicts on the calls that the start-up text shows; names in keys that do not exist.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, Self

from settings.config import Config
from sluice.check import check
from sluice.config_file import Document
from sluice.config_mistakes import Finding, Mistakes
from sluice.errors import StartError
from sluice.processes import die_with_parent
from sluice.up.greeting import Shows, shown_calls

LOAD_S = 60.0
"""How long policies may take to load."""
ANSWER_S = 5.0
"""How long the start waits for what it can do without."""
_LONGEST = 4 * 2**20


class Rehearsal:
    """The launcher's side. Start it while there is one thread; `close` it."""

    def __init__(self, file: str, pid: int, reading: int, writing: int) -> None:
        self._file, self._pid, self._reading, self._writing = file, pid, reading, writing
        self._buffer = b""

    @classmethod
    def start(cls, document: Document, search_path: Sequence[str], series: str) -> Self:
        """Fork the process that loads the policies of `document`; `series` is what the calls of the
        start-up text are held to."""
        reading, telling = os.pipe()
        asked, writing = os.pipe()
        launcher = os.getpid()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        pid = os.fork()
        if pid == 0:
            for end in (reading, writing):
                os.close(end)
            _be_the_child(
                launcher, asked, telling, lambda: _answers(document, search_path, series, asked)
            )
        os.close(telling)
        os.close(asked)
        return cls(document.file, pid, reading, writing)

    def refuse(self) -> None:
        """Wait for the mistakes in the file. Raises SettingsError with all of them, StartError
        where the policies cannot be loaded."""
        mistakes = self._answer("mistakes", LOAD_S)
        if mistakes is None:
            raise StartError(
                f"{self._file}: the policies were not loaded: the process that imports them ended,"
                f" or took over {LOAD_S:g} s; look at what your own policies do when they are"
                " imported"
            )
        if mistakes:
            raise Mistakes(
                self._file,
                [Finding("error", tuple(place), text, line) for place, text, line in mistakes],
            )

    def warnings(self) -> list[Finding]:
        """Return what the loaded policies are warned of; after `refuse`."""
        warnings = self._answer("warnings", ANSWER_S) or []
        return [Finding("warning", tuple(place), text, line) for place, text, line in warnings]

    def shows(self) -> Shows | None:
        """Return what the policies make of the calls of the start-up text; None where that is not
        known in time."""
        answer = self._answer("shows", ANSWER_S)
        return Shows(**answer) if answer else None

    def key_warnings(self, database_url: str) -> list[str]:
        """Return sentences about keys in the database that name policies which there are not; after
        `shows`."""
        try:
            os.write(self._writing, (json.dumps(database_url) + "\n").encode())
        except OSError:
            return []
        return self._answer("keys", ANSWER_S) or []

    def close(self) -> None:
        """End the process."""
        if self._pid:
            for end in (self._reading, self._writing):
                os.close(end)
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.waitpid(self._pid, 0)
            self._pid = 0

    def _answer(self, name: str, timeout_s: float) -> Any:
        """The answer of that name; None where none comes in time. One that came too late for
        whoever asked is passed over."""
        until = time.monotonic() + timeout_s
        # not select(), which knows no descriptor over 1,023
        waiting = select.poll()
        waiting.register(self._reading, select.POLLIN)
        while True:
            while b"\n" not in self._buffer:
                if len(self._buffer) > _LONGEST or not waiting.poll(
                    max(0.0, until - time.monotonic()) * 1000
                ):
                    return None
                more = os.read(self._reading, 65_536)
                if not more:
                    return None
                self._buffer += more
            line, _, self._buffer = self._buffer.partition(b"\n")
            answered_name, value = json.loads(line)
            if answered_name == name:
                return value


def _be_the_child(
    launcher: int, asked: int, telling: int, answers: Callable[[], Iterator[tuple[str, Any]]]
) -> NoReturn:
    """Tell each of `answers` as a line, and end, whatever happens on the way."""
    try:
        # Ctrl-C is for the launcher, which ends this one
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        die_with_parent(signal.SIGKILL)
        if os.getppid() == launcher:
            # standard output is for the launcher's result alone
            os.dup2(2, 1)
            for answer in answers():
                os.write(telling, (json.dumps(answer) + "\n").encode())
    finally:
        os._exit(0)


def _answers(
    document: Document, search_path: Sequence[str], series: str, asked: int
) -> Iterator[tuple[str, Any]]:
    findings = check.examine(document, search_path)
    wrong = [finding for finding in findings if finding.level == "error"]
    yield "mistakes", [[finding.place, finding.text, finding.line] for finding in wrong]
    yield (
        "warnings",
        [
            [finding.place, finding.text, finding.line]
            for finding in findings
            if finding.level == "warning"
        ],
    )
    config = document.config
    if wrong or config is None:
        return
    yield "shows", shown_calls(config, series, search_path)
    with open(asked, "rb", closefd=False) as questions:
        if line := questions.readline():
            yield "keys", asyncio.run(_unknown_policies(config, json.loads(line)))


async def _unknown_policies(config: Config, database_url: str) -> list[str]:
    from db.state.polling import Watch
    from protocol.errors import PipelineError

    watch = Watch(database_url)
    try:
        return check.unknown_policies(config, await watch.keys())
    except PipelineError:
        return []
    finally:
        await watch.close()
