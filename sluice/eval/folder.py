"""The folder of `--out`: the result and its report, and what `sluice eval show` prints from
them."""

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sluice.errors import SettingsError
from sluice.eval import inspect_log, junit, page, table
from sluice.eval.dataset import Dataset

RESULT, PAGE, _MARKDOWN = "result.json", "report.html", "report" + ".md"
FORMATS = ("table", "json", "md", "junit", "inspect")
_MOST_BYTES = 2**28
_NEEDED = ("format", "revision", "policy", "dataset", "totals", "categories", "cases")


def as_object(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One object for all series: the first, and the others in it."""
    return {**results[0], "others": list(results[1:])}


def series_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The series of such an object."""
    return [result, *result.get("others", ())]


def check_form(form: str, count: int) -> None:
    """Raises SettingsError where a form holds one series alone, and there are more."""
    if form == "inspect" and count > 1:
        raise SettingsError(
            "--format inspect is the log of one policy: with several, --out DIR writes one for each"
        )


def rendered(results: Sequence[dict[str, Any]], dataset: Dataset | None, form: str) -> str:
    """Return the results in one of the forms. Raises SettingsError where one form holds one series
    alone."""
    match form:
        case "json":
            return (
                json.dumps(as_object(results), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
            )
        case "md":
            return table.markdown(results)
        case "junit":
            return junit.xml(results)
        case "inspect" if dataset is not None:
            check_form(form, len(results))
            return inspect_log.text(results[0], dataset, at=datetime.now(UTC))
        case _:
            return table.text(results)


def make(folder: Path) -> None:
    """Make the folder. Raises SettingsError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritten(folder, error) from None


def _unwritten(folder: Path, error: OSError) -> SettingsError:
    return SettingsError(f"--out: {folder} cannot be written: {error.strerror}")


def write(folder: Path, results: Sequence[dict[str, Any]], dataset: Dataset) -> None:
    """Write every form into a folder, which is made. Raises SettingsError."""
    made: dict[str, Callable[[], str]] = {
        RESULT: lambda: rendered(results, dataset, "json"),
        PAGE: lambda: page.html(results),
        _MARKDOWN: lambda: table.markdown(results),
        "junit.xml": lambda: junit.xml(results),
    }
    make(folder)
    try:
        for name, text in made.items():
            (folder / name).write_text(text(), encoding="utf-8", errors="backslashreplace")
        for result in results:
            name = re.sub(r"[^A-Za-z0-9._-]", "_", result["policy"])
            log = inspect_log.text(result, dataset, at=datetime.now(UTC))
            (folder / f"inspect-{name}.json").write_text(
                log, encoding="utf-8", errors="backslashreplace"
            )
    except OSError as error:
        raise _unwritten(folder, error) from None


def read(path: Path, what: str) -> dict[str, Any]:
    """Read a result, of a file or of a folder of `--out`. Raises SettingsError that begins with
    `what`."""
    path = path / RESULT if path.is_dir() else path
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise SettingsError(f"{what}: {path} is larger than any result")
        parsed = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"{what}: {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"{what}: {path} is not JSON ({error}): it is what `sluice eval run --json` prints"
        ) from None
    if not isinstance(parsed, dict) or not all(
        name in series for series in series_of(parsed) for name in _NEEDED
    ):
        raise SettingsError(
            f"{what}: {path} is no result: it has not the keys {', '.join(_NEEDED)}"
        )
    return parsed
