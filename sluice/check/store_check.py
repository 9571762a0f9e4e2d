"""A check of `sluice doctor` that asks a store, in its own thread: a store that hangs delays
neither others nor the command."""

import threading
import time
from collections.abc import Callable

from sluice.errors import StartError

Checked = tuple[str, str, str]
"""What was checked, `ok` or `warning` or `failed`, and a sentence."""
WITHIN_S = 2.5
"""How long the first checks may take, all together: with the start of the command less than five
seconds."""
LOOK_S = 20.0
"""How long a look may take: longer than one that reads all keys of a large Redis."""
LATE_S = 1.0
"""After this time a waiting user sees what is awaited."""
TITLES = {
    "redis": "Redis",
    "database": "PostgreSQL",
    "identity": "one of both",
    "keys": "PostgreSQL",
}


class StoreCheck:
    """A check in its own thread, then the check of a running product through the same store: one
    that hangs delays no other."""

    def __init__(
        self, name: str, check: Callable[[], list[str]], look: Callable[[], list[Checked]] | None
    ) -> None:
        self._name, self._check, self._look = name, check, look
        self._answer: list[Checked] = []
        self._seen: list[Checked] = []
        self._error: BaseException | None = None
        self._answered = threading.Event()
        # a daemon: one that hangs must not keep the command from its end
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def has_answered(self) -> bool:
        """Has its check ended?"""
        return self._answered.is_set()

    def wait_for_answer(self, until: float, is_late: Callable[[str], None]) -> None:
        """Wait until its check has ended, or it is `until`. Calls `is_late` once, when that takes
        long."""
        patience_s = min(LATE_S, until - time.monotonic())
        if patience_s > 0 and not self._answered.wait(patience_s):
            is_late(TITLES[self._name])
        self._answered.wait(max(0.0, until - time.monotonic()))

    def answer(self) -> list[Checked]:
        """Return what its check found. Raises what ended it."""
        if self._error is not None:
            raise self._error
        if not self.has_answered:
            return [
                (
                    self._name,
                    "failed",
                    f"no answer within {WITHIN_S:g} s: see whether it hangs, and the network to it",
                )
            ]
        return self._answer

    def look(self) -> list[Checked]:
        """Wait for what the look found, and return it. Raises what ended it."""
        self._thread.join(LOOK_S)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            return [
                (
                    self._name,
                    "failed",
                    (
                        "it answered at first and then hung: what it holds was not read within"
                        f" {LOOK_S:g} s"
                    ),
                )
            ]
        return self._seen

    def _run(self) -> None:
        try:
            self._answer = self._checked()
            self._answered.set()
            if self._look is not None:
                self._seen = self._looked(self._look)
        except BaseException as error:  # noqa: BLE001 - raised again where the command sees it
            self._error = error
        finally:
            self._answered.set()

    def _checked(self) -> list[Checked]:
        try:
            return [(self._name, "warning", sentence) for sentence in self._check()] or [
                (self._name, "ok", "")
            ]
        except StartError as error:
            return [(self._name, "failed", str(error))]

    def _looked(self, look: Callable[[], list[Checked]]) -> list[Checked]:
        try:
            return look()
        except StartError as error:
            # a store that is away or not fit is reported by its check
            is_reported = any(state == "failed" for _, state, _ in self._answer)
            return [] if is_reported else [(self._name, "failed", str(error))]
