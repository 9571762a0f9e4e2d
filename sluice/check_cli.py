"""`sluice check`: what a configuration file says, and what its policies would make of one call or text. Nothing is started or asked, but
policies of somebody's own are loaded, which runs their modules; what those print is no part of the answer.

Exit codes: 0 no mistakes, 1 mistakes, 2 wrong use.
"""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import typer

from protocol.config import Config, did_you_mean
from protocol.errors import PolicyFailed
from protocol.json_strict import AmbiguousJson, loads_arguments
from sluice import check, trial
from sluice.config_file import Document, read
from sluice.errors import SettingsError
from sluice.mistakes import Finding, Mistakes
from sluice.settings import load_settings
from sluice.tables import printable

NO_FILE = "the shipped configuration (no file given)"


def run(file: Path | None, *, call: tuple[str, str] | None, text: str | None, policy: str, as_json: bool) -> int:
    """Check, try what is to be tried, print; return the exit code. Raises SettingsError for wrong use."""
    settings = load_settings(config=file)
    if call is not None and text is not None:
        raise SettingsError("--try-call and --try-text are two trials: give one at a time")
    try:
        document = Document(NO_FILE, config=Config()) if settings.config is None else read(settings.config)
        with contextlib.redirect_stdout(sys.stderr):
            found = check.examine(document, settings.search_path)
        if settings.config is None:
            found = [one for one in found if one.level != "note"]
    except SettingsError as error:
        document, found = Document(str(settings.config)), [Finding("error", (), str(error))]
    is_right = not any(one.level == "error" for one in found)
    tried = None
    if is_right and document.config is not None and (call is not None or text is not None):
        with contextlib.redirect_stdout(sys.stderr):
            tried = _try(document.config, settings.search_path, call, text, policy)
    if as_json:
        shown = {"ok": is_right, "file": document.file, "findings": check.as_object(found)}
        typer.echo(json.dumps(shown | ({"tried": _as_object(tried)} if tried else {})))
        return 0 if is_right else 1
    for one in found:
        typer.echo(printable(f"{one.level}: {one.within(document.file)}"))
    typer.echo(_summary(document, found))
    if tried is not None:
        typer.echo(_shown(tried, policy, call))
    return 0 if is_right else 1


def _summary(document: Document, found: list[Finding]) -> str:
    numbers = {level: sum(one.level == level for one in found) for level in ("error", "warning")}
    said = ", ".join(f"{count} {level}{'s' if count != 1 else ''}" for level, count in numbers.items() if count)
    if numbers["error"] or document.config is None:
        return f"{document.file}: {said}; it would not start"
    return f"{document.file}: {said or 'ok'}; {check.counts(document.config)}"


def _try(
    config: Config, search_path: tuple[str, ...], call: tuple[str, str] | None, text: str | None, policy: str
) -> trial.Tried:  # fmt: skip
    if policy not in config.policies:
        near = did_you_mean(policy, config.policies)
        raise SettingsError(f"--policy: there is no policy {policy!r} (there are {', '.join(config.policies)}){near}")
    try:
        if text is not None:
            return trial.try_text(config, policy, text, search_path=search_path)
        assert call is not None
        tool, arguments = call
        loads_arguments(arguments)
        return trial.try_call(config, policy, tool, arguments, search_path=search_path)
    except AmbiguousJson as error:
        said = f"""--try-call takes a tool's name and its arguments, a JSON object such as '{{"command": "ls"}}': {error}"""
        raise SettingsError(said) from None
    except PolicyFailed as error:
        raise Mistakes("the policies", [Finding("error", ("policies", policy), error.message)]) from None


def _as_object(tried: trial.Tried) -> dict[str, Any]:
    return {name: getattr(tried, name) for name in ("outcome", "policy", "rule", "reason", "judge", "text", "arguments")}


def _shown(tried: trial.Tried, policy: str, call: tuple[str, str] | None) -> str:
    what = f"the tool call {call[0]!r}" if call is not None else "this text"
    by = f" by {tried.policy}" if tried.policy else ""
    by += f", rule {tried.rule!r}" if tried.rule else ""
    by += f" (reason: {tried.reason})" if tried.reason else ""
    changed = "changed" if call is None else "its arguments are replaced"
    said = {
        "allow": "allowed", "block": f"blocked{by}", "replace": f"{changed}{by}",
        "ask": f"a judge would be asked: {tried.judge}. No rule blocks it, so the judge decides",
    }[tried.outcome]  # fmt: skip
    lines = [f"the policy {policy!r} on {what}: {said}"]
    if tried.outcome in ("block", "replace") and tried.text:
        lines.append(f"the client reads: {printable(tried.text)}")
    if tried.outcome == "replace" and tried.arguments:
        lines.append(f"the tool is called with: {printable(tried.arguments)}")
    return "\n".join(lines)
