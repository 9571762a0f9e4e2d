"""Checks a whole configuration before anything starts: for `sluice check`, every start and the
doctor.

Everything here works offline. `sluice.check.policy_check` loads policies, and
`sluice.check.upstreams` checks whether upstreams can be reached.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, NoReturn

from protocol.errors import PolicyFailed, UpstreamTokenMissing
from settings.config import DEMO_JUDGE, NEAR_END_DAYS, SCRIPTS, Config, Key, PolicyStep
from settings.config_faults import Place
from settings.upstreams import Upstream, named_variable
from sluice.check.address_check import address_mistakes, address_warnings
from sluice.check.policy_check import PRESET, expanded, policy_mistakes
from sluice.config_file import Document
from sluice.config_mistakes import Finding, Mistakes
from sluice.errors import SettingsError

JUDGES = (
    "tool_judge",
    "policy.builtin.tool_judge:ToolJudge",
    "policy.builtin.tool_judge.ToolJudge",
    "text_judge",
)
CONTROLS = ("control", "policy.builtin.control:Control", "policy.builtin.control.Control")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def examine(
    document: Document, search_path: Sequence[str], environment: Mapping[str, str] | None = None
) -> list[Finding]:
    """Return all findings on a file, in the order of its lines: what is wrong, and what will not
    work."""
    all_findings = [*document.mistakes, *policy_mistakes(document, search_path)]
    if document.config is not None:
        config = document.config
        general = [*upstream_mistakes(config), *warnings(config, environment), *_unused(config)]
        general += secret_warnings(config, environment)
        all_findings += [replace(finding, line=document.line(finding.place)) for finding in general]
    return sorted(all_findings, key=lambda finding: finding.line)


def refused(document: Document, search_path: Sequence[str]) -> NoReturn:
    """Raise SettingsError with every mistake of a file that has some."""
    raise Mistakes(
        document.file,
        [finding for finding in examine(document, search_path) if finding.level == "error"],
    )


def refuse(document: Document, search_path: Sequence[str]) -> None:
    """Raise SettingsError with every mistake of a file, if it has one."""
    if any(finding.level == "error" for finding in examine(document, search_path)):
        refused(document, search_path)


def upstream_mistakes(config: Config) -> Iterator[Finding]:
    """Yield what keeps requests from reaching an upstream: an address where nothing is, a header
    that cannot be sent, a proxy that is none, a lost key."""
    from providers.origin import Origin
    from providers.outbound import outbound

    yield from address_mistakes(config)
    for name, upstream in config.upstreams.items():
        place = ("upstreams", name)
        try:
            base = upstream.base_url or "https://host"
            Origin(base).head("/", upstream.headers)
            with contextlib.suppress(OSError):
                # that it cannot be read here is a warning
                outbound(base, upstream)
        except (ValueError, UnicodeError) as error:
            yield Finding("error", place, str(error))
        yield from key_mistakes(config, (name,))


def key_mistakes(config: Config, names: Sequence[str]) -> Iterator[Finding]:
    """Yield which of these upstreams' keys are in a file that cannot be read, or in a variable that
    cannot be one."""
    for name in names:
        upstream = config.upstreams[name]
        for setting, variable in upstream.variables.items():
            if _VARIABLE.fullmatch(variable) is None and variable not in os.environ:
                message = (
                    "must be the name of an environment variable, and this is none (is it the key"
                    " itself? Then take it out of the file)"
                )
                yield Finding("error", ("upstreams", name, setting), message)
        for setting, file in upstream.files.items():
            if message := file_mistake(upstream, setting, file):
                yield Finding("error", ("upstreams", name, setting), message)


def file_mistake(upstream: Upstream, setting: str, file: str) -> str:
    """Return what is wrong with a file of secrets, as far as its own content tells; empty where
    nothing is."""
    from providers.google_token import read_account

    if fault := unreadable(file):
        return fault
    try:
        if setting == "credentials_file" and upstream.door == "vertex":
            read_account(file)
    except ValueError as error:
        return f"{file} {error}"
    if setting == "credentials_file" and upstream.door == "bedrock":
        from providers.doors.bedrock import read_key

        try:
            read_key(upstream)
        except UpstreamTokenMissing as error:
            return error.message
    return ""


def unreadable(file: str) -> str:
    """Return why a file of text cannot be read, empty where it can."""
    try:
        Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        return f"{file} cannot be read here: {reason}"
    return ""


def warnings(config: Config, environment: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Yield what a start says of a configuration that has no mistakes. `environment`: variables,
    those of this process."""
    yield from policy_warnings(config)
    yield from route_warnings(config)
    yield from address_warnings(config)
    yield from key_warnings(config, environment)
    yield from way_warnings(config)
    yield from _shared_names(config)
    yield from _ended_keys(config)
    yield from script_warnings(config, environment)


def start_warnings(config: Config, role: str) -> list[Finding]:
    """Return what a process says of its configuration at its start: of what is its own work."""
    match role:
        case "gateway":
            return list(warnings(config))
        case "policy":
            return [*policy_warnings(config), *route_warnings(config)]
        case "judge":
            return [*route_warnings(config), *key_warnings(config)]
        case "pages" | "audit":
            section = "login" if role == "pages" else "approvals"
            return [found for found in secret_warnings(config) if found.place[0] == section]
        case _:
            return []


def policy_warnings(config: Config) -> Iterator[Finding]:
    """Yield what holds where the file does not say."""
    if "policies" not in config.model_fields_set:
        message = (
            "none are given, so the shipped ones hold: `default` (the preset coding-agent), `demo`"
            " (patterns, the demo judge), `people` (asks about `deploy`) and `noop`"
        )
        yield Finding("note", ("policies",), message)


def can_judge(config: Config, model: str) -> bool:
    """Does a route lead a judge's model to an upstream, or is it the built-in one?"""
    return model == DEMO_JUDGE or config.route(model) in config.upstreams


def route_warnings(config: Config) -> Iterator[Finding]:
    """Yield judges that cannot be asked: every call about which they would be is blocked."""
    for series, steps in config.policies.items():
        for number, written in enumerate(steps):
            for place, model in (
                (place, model) for step in expanded([written]) for place, model in _judges_of(step)
            ):
                if isinstance(model, str) and not can_judge(config, model):
                    message = (
                        f"no route under models leads the judge model {model!r} to an upstream:"
                        " what it is asked about is blocked (judge_unavailable)"
                    )
                    at = ("judge",) if written.use == PRESET else place
                    yield Finding("warning", ("policies", series, number, *at), message)


def _judges_of(step: PolicyStep) -> Iterator[tuple[Place, object]]:
    """Yield the judge models that a step names, and where."""
    if step.use in JUDGES:
        for name in ("model", "judges", "escalate", "fallback"):
            value = step.options.get(name)
            one = value.get("model") if isinstance(value, Mapping) else value
            yield from (((name,), model) for model in (value if isinstance(value, list) else [one]))
    monitors = step.options.get("monitors")
    if step.use in CONTROLS and isinstance(monitors, Sequence):
        for number, monitor in enumerate(monitors):
            if isinstance(monitor, Mapping) and monitor.get("use") == "model":
                yield ("monitors", number, "model"), monitor.get("model")


def _shared_names(config: Config) -> Iterator[Finding]:
    """Yield keys with the name of another, whose calls the record lists under one name."""
    first: dict[str, int] = {}
    for number, key in enumerate(config.keys):
        if (earlier := first.setdefault(key.name, number)) != number:
            yield Finding(
                "warning",
                ("keys", number, "name"),
                f"keys.{earlier} has the same name; the record tells them apart by id alone",
            )


def _ended_keys(config: Config) -> Iterator[Finding]:
    """Yield keys that expire within a week, by this machine's clock, or have expired."""
    now_s = time.time()
    for number, key in enumerate(config.keys):
        if key.expires_at is not None and key.has_expired(now_s + NEAR_END_DAYS * 86400):
            verb = "expired" if key.has_expired(now_s) else "expires"
            message = (
                f"the key {key.name!r} {verb} on {key.expires_at.astimezone(UTC):%Y-%m-%d %H:%M}Z:"
                " put another in its place"
            )
            yield Finding("warning", ("keys", number, "expires_at"), message)


def key_warnings(config: Config, environment: Mapping[str, str] | None = None) -> Iterator[Finding]:
    """Yield upstreams whose key is to come from a variable that is not set."""
    known = os.environ if environment is None else environment
    for name, upstream in config.upstreams.items():
        for setting, variable in upstream.variables.items():
            if _VARIABLE.fullmatch(variable) is not None and not known.get(variable):
                does = (
                    "sends requests to this upstream without a key"
                    if setting == "api_key_env"
                    else "cannot send it requests"
                )
                message = (
                    f"{named_variable(setting, variable)} is not set here; a gateway without it"
                    f" {does}"
                )
                yield Finding("warning", ("upstreams", name, setting), message)
        for setting, file in upstream.files.items():
            if setting != "credentials_file" and _is_empty(file):
                yield Finding(
                    "warning",
                    ("upstreams", name, setting),
                    f"{file} is empty: put the secret into it",
                )


def way_warnings(config: Config) -> Iterator[Finding]:
    """Yield what names a proxy or certificates and cannot be used here. Gateways and judge workers
    need it, which may run elsewhere."""
    from providers.outbound import Outbound

    for name, upstream in config.upstreams.items():
        if upstream.proxy_file and (fault := unreadable(upstream.proxy_file)):
            yield Finding("warning", ("upstreams", name, "proxy_file"), f"{fault}; calls fail")
        way = Outbound(
            "",
            upstream.ca_file or "",
            upstream.client_cert_file or "",
            upstream.client_key_file or "",
        )
        try:
            if way.files:
                way.context()
        except OSError as error:
            why = f"{' or '.join(way.files)} cannot be used here: {error.strerror or error}"
            yield Finding("warning", ("upstreams", name), f"{why}; calls fail")


def secret_warnings(
    config: Config, environment: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Yield secrets of logins and of notices that are not where the file says. The pages and audit
    writers need them, which may run elsewhere."""
    known = os.environ if environment is None else environment
    oidc, nobody = config.login.oidc, "without it nobody can log in at the provider"
    named: list[tuple[Place, str, str]] = [
        (("approvals", "notify", number, "secret_env"), to.secret_env, "without it none is sent")
        for number, to in enumerate(config.approvals.notify)
        if to.secret_env
    ]
    if oidc is not None and oidc.client_secret_env is not None:
        named.append((("login", "oidc", "client_secret_env"), oidc.client_secret_env, nobody))
    for place, variable, effect in named:
        if not known.get(variable):
            message = f"{named_variable(str(place[-1]), variable)} is not set here; {effect}"
            yield Finding("warning", place, message)
    file = "" if oidc is None else oidc.client_secret_file or ""
    fault = unreadable(file) if file else ""
    if file and _is_empty(file):
        fault = f"{file} is empty"
    if fault:
        yield Finding("warning", ("login", "oidc", "client_secret_file"), f"{fault}; {nobody}")


def _is_empty(file: str) -> bool:
    try:
        return not Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        # reported as a mistake
        return False


def script_warnings(
    config: Config, environment: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Yield routes to the scripted model: that it is one, or that it has no folder of scripts."""
    known = os.environ if environment is None else environment
    for number, route in enumerate(config.models):
        if route.upstream in SCRIPTS:
            place, models = (
                ("models", number, "upstream"),
                " and ".join(map(repr, filter(None, [route.match, *route.names[:3]]))),
            )
            folder = known.get("SLUICE_SCRIPTS_DIR")
            if not folder:
                yield Finding(
                    "warning",
                    place,
                    "SLUICE_SCRIPTS_DIR is not set here; a gateway without it has no scripts for"
                    f" {models}",
                )
            elif not Path(folder).is_dir():
                yield Finding(
                    "warning",
                    place,
                    f"SLUICE_SCRIPTS_DIR names {folder}, which is no folder; there are no scripts"
                    f" for {models}",
                )
            else:
                yield Finding(
                    "note",
                    place,
                    f"{models} is no language model: it plays the scripts of {folder}",
                )


def script_mistakes(document: Document, folder: Path | None) -> Iterator[Finding]:
    """Yield what is wrong with the scripts that a configuration's scripted model would play."""
    from demo.scripts import faults

    routes = document.config.models if document.config is not None else ()
    if (
        folder is not None
        and (
            number := next((n for n, route in enumerate(routes) if route.upstream in SCRIPTS), None)
        )
        is not None
    ):
        place = ("models", number, "upstream")
        for _, fault in faults(folder):
            yield Finding("error", place, f"the script {fault}", document.line(place))


def _unused(config: Config) -> Iterator[Finding]:
    """Yield routes that are never taken, and upstreams to which none leads."""
    seen: dict[str, int] = {}
    for number, route in enumerate(config.models):
        earlier = seen.get(route.match, seen.get("*"))
        # names that go elsewhere are mistakes: a route that has some is used
        if earlier is not None and not route.names:
            message = f"is never used: models.{earlier} takes these models first"
            yield Finding("warning", ("models", number), message)
        if route.match:
            seen.setdefault(route.match, number)
    used = {target.upstream for route in config.models for target in (*route.group, *route.then)}
    for name in config.upstreams:
        if name not in used:
            yield Finding("warning", ("upstreams", name), "no route under models leads here")


def unknown_policies(config: Config, keys: Iterable[Key]) -> list[str]:
    """Return a sentence for each key that names policies which there are not."""
    unknown = []
    for key in keys:
        missing = [policy for policy in key.policies if policy not in config.policies]
        if missing:
            default = (
                ": its default, so requests without x-sluice-policy are refused"
                if key.policies[0] in missing
                else ""
            )
            there = ", ".join(config.policies)
            unknown.append(
                f"the key {key.name!r} names {', '.join(map(repr, missing))}, not among the"
                f" policies ({there}){default}"
            )
    return unknown


def counts(config: Config) -> str:
    """Return what is in a configuration, in one line."""
    series = ", ".join(
        f"{name} ({', '.join(map(_shown_step, steps)) or 'empty'})"
        for name, steps in config.policies.items()
    )
    numbers = {
        "upstream": len(config.upstreams),
        "route": len(config.models),
        "key": len(config.keys),
    }
    listed = ", ".join(
        f"{count} {what}{'s' if count != 1 else ''}" for what, count in numbers.items()
    )
    return f"{listed}; policies: {series}"


def _shown_step(step: PolicyStep) -> str:
    return f"preset {step.options.get('name')}" if step.use == PRESET else step.use


def as_object(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings for JSON."""
    return [
        {"level": f.level, "line": f.line, "place": ".".join(map(str, f.place)), "message": f.text}
        for f in findings
    ]


def start_error(
    error: PolicyFailed, file: Path | None, search_path: Sequence[str]
) -> SettingsError:
    """Return what to say where a process could not load a policy: every mistake in the file, else
    what `error` says."""
    from sluice.config_file import read

    if file is not None:
        try:
            refuse(read(file), search_path)
        except SettingsError as whole:
            return whole
    return SettingsError(error.message)
