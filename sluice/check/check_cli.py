"""`sluice check`: checks a configuration file, and shows what its policies would decide on one call
or text. Nothing is started or asked, but the user's own policies are loaded, which runs their
modules; what those print is not part of the answer.

Exit codes: 0 no mistakes, 1 mistakes (with --strict also warnings), 2 wrong use.
"""

import contextlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from protocol.bytes.json_strict import AmbiguousJson, loads_arguments
from protocol.errors import PolicyFailed
from settings.config import Config
from settings.config_faults import did_you_mean
from sluice.check import check, trial
from sluice.config_file import Document, read
from sluice.config_mistakes import Finding, Mistakes
from sluice.errors import SettingsError
from sluice.sentences import wrapped
from sluice.settings import load_settings
from sluice.tables import printable

DEFAULT = "default"
NO_FILE = "the shipped configuration (no file given)"


def run(
    file: Path | None,
    *,
    call: tuple[str, str] | None,
    text: str | None,
    policy: str | None,
    is_strict: bool,
    as_json: bool,
) -> int:
    """Check, try what is to be tried, print; return the exit code. Raises SettingsError for wrong
    use."""
    settings = load_settings(config=file)
    if call is not None and text is not None:
        raise SettingsError("--try-call and --try-text are two trials: give one at a time")
    try:
        document = (
            Document(NO_FILE, config=Config()) if settings.config is None else read(settings.config)
        )
        with contextlib.redirect_stdout(sys.stderr):
            findings = check.examine(document, settings.search_path)
            findings += check.script_mistakes(document, settings.scripts_dir)
        if settings.config is None:
            findings = [finding for finding in findings if finding.level != "note"]
    except SettingsError as error:
        name = str(settings.config)
        # findings stand behind the file's name, which need not be repeated
        document, findings = (
            Document(name),
            [Finding("error", (), str(error).removeprefix(f"the configuration file {name} "))],
        )
    is_right = not any(finding.level == "error" for finding in findings)
    code = (
        1
        if not is_right or (is_strict and any(finding.level == "warning" for finding in findings))
        else 0
    )
    tried = None
    series, is_trial = policy or DEFAULT, call is not None or text is not None
    if document.config is not None and (policy or is_trial):
        check_series(document.config, series)
    if is_right and document.config is not None and is_trial:
        with contextlib.redirect_stdout(sys.stderr):
            tried = try_it(document.config, settings.search_path, call, text, series)
    if as_json:
        checked = {"ok": not code, "file": document.file, "findings": check.as_object(findings)}
        typer.echo(json.dumps(checked | ({"tried": as_object(tried)} if tried else {})))
        return code
    for finding in findings:
        _say(printable(f"{finding.level}: {finding.within(document.file)}"))
    _say(_summary(document, findings))
    if tried is not None:
        assert document.config is not None
        _say(shown(tried, series, call, can_judge=check.can_judge(document.config, tried.judge)))
    return code


def _say(text: str) -> None:
    typer.echo(wrapped(text, sys.stdout))


def _summary(document: Document, findings: list[Finding]) -> str:
    numbers = {
        level: sum(finding.level == level for finding in findings) for level in ("error", "warning")
    }
    totals = ", ".join(
        f"{count} {level}{'s' if count != 1 else ''}" for level, count in numbers.items() if count
    )
    if numbers["error"] or document.config is None:
        return f"{document.file}: {totals}; it would not start"
    return f"{document.file}: {totals or 'ok'}; {check.counts(document.config)}"


def check_series(config: Config, series: str) -> None:
    """Raise SettingsError where a configuration has no such policies."""
    known = config.policies
    if series not in known:
        raise SettingsError(
            f"--policy: there is no policy {series!r} (there are"
            f" {', '.join(known)}){did_you_mean(series, known)}"
        )


def try_it(
    config: Config,
    search_path: tuple[str, ...],
    call: tuple[str, str] | None,
    text: str | None,
    policy: str,
) -> trial.Tried:
    """Try a call or a text. Raises SettingsError for wrong arguments and policies that cannot be
    loaded."""
    try:
        if text is not None:
            return trial.try_text(config, policy, text, search_path=search_path)
        assert call is not None
        tool, arguments = call
        if not tool:
            raise SettingsError("the tool's name is empty")
        loads_arguments(arguments)
        return trial.try_call(config, policy, tool, arguments, search_path=search_path)
    except AmbiguousJson as error:
        message = f"""a trial takes a tool's name and its arguments, a JSON object such as '{{"command": "ls"}}': {error}"""
        raise SettingsError(message) from None
    except PolicyFailed as error:
        raise Mistakes(
            "the policies", [Finding("error", ("policies", policy), error.message)]
        ) from None


def as_object(tried: trial.Tried) -> dict[str, Any]:
    """Return a trial as JSON has it."""
    return asdict(tried)


def shown(tried: trial.Tried, policy: str, call: tuple[str, str] | None, *, can_judge: bool) -> str:
    """Return what a trial says, in lines."""
    what = f"the tool call {call[0]!r}" if call is not None else "this text"
    by = f" by {tried.policy}" if tried.policy else ""
    by += f", rule {tried.rule!r}" if tried.rule else ""
    by += f" (reason: {tried.reason})" if tried.reason else ""
    by += f": {printable(tried.fault)}" if tried.fault else ""
    changed = "changed" if call is None else "its arguments are replaced"
    asked = (
        "No rule blocks it, so the judge decides"
        if can_judge
        else "No route leads it to an upstream, so the call is blocked"
    )
    outcome = {
        "allow": "allowed",
        "block": f"blocked{by}",
        "replace": f"{changed}{by}",
        "defer": f"another model would be asked for the rest of the turn{by}",
        "held": "people would be asked, and the call waits for them",
        "ask": f"a judge would be asked: {tried.judge}. {asked}",
    }[tried.outcome]
    lines = [f"the policy {policy!r} on {what}: {outcome}"]
    if tried.outcome in ("block", "replace") and tried.text:
        lines.append(f"the client reads: {printable(tried.text)}")
    if tried.outcome == "replace" and tried.arguments:
        lines.append(f"the tool is called with: {printable(tried.arguments)}")
    return "\n".join(lines)
