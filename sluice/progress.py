"""The progress bar of long commands, on standard error, where a person looks at it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sluice.tables import is_terminal


@contextmanager
def progress(what: str, count: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; gives a function that is called with how many more are done.
    `count` counts all of them, and is not called where nobody looks."""
    if not is_terminal(sys.stderr):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=count())
        yield lambda done: bar.advance(task, done)
