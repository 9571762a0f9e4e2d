"""Plays cases through a running Sluice: its scripted model writes the calls, and its record shows
their outcome.

Each case is a trajectory in a file of the folder that the gateway's SLUICE_SCRIPTS_DIR names; the
files are taken away at the end.
"""

import http.client
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from policy.session.approvals import PEOPLE
from protocol.dialects.table import CLIENTS
from protocol.records import PASSED
from protocol.request import DialectName
from sluice.errors import SettingsError, Unavailable
from sluice.eval import case_bytes
from sluice.eval.dataset import Case
from sluice.eval.play import BY_REASON, CaseJudgement, CaseOutcome, highest, settled
from sluice.eval.run import CONCURRENT, Played, PlayPlan, Progress

_FILE_BYTES, _FILE_CASES = 8 * 2**20, 10_000
"""Of one file of scripts: half of what a gateway reads."""
_TIMEOUT_S = 300.0
_RECORD_S, _LOOK_S = 30.0, 0.05
"""How long the record of a call that was answered is waited for, and how often it is looked for."""
_SPLITS: dict[str, Any] = {"whole": "whole", "stream": "whole", "bytes": "byte", "text": "whole"}


class LiveTarget(msgspec.Struct, frozen=True):
    """Where a running Sluice is, and how to have it play: `scripts` is the folder of its
    scripts."""

    url: str
    key: str
    scripts: Path


@contextmanager
def scripted(place: LiveTarget, cases: Sequence[Case], plan: PlayPlan) -> Iterator[list[str]]:
    """Write the cases as scripts while the block runs; gives the model's name for each."""
    mark, names, written, size = secrets.token_hex(6), list[str](), list[Path](), 0
    lines: list[bytes] = []

    def flush() -> None:
        nonlocal size
        path = place.scripts / f"sluice-eval-{mark}-{len(written)}.jsonl"
        written.append(path)
        path.write_bytes(b"\n".join(lines))
        lines.clear()
        size = 0

    try:
        for number, case in enumerate(cases):
            line = msgspec.json.encode(
                {"id": f"c{number}", "turns": _turns(case, case.wire or plan.wire)}
            )
            if lines and (size + len(line) > _FILE_BYTES or len(lines) >= _FILE_CASES):
                flush()
            names.append(f"script-sluice-eval-{mark}-{len(written)}:c{number}")
            lines.append(line)
            size += len(line) + 1
        flush()
        yield names
    except OSError as error:
        raise SettingsError(
            f"--scripts: {place.scripts} cannot be written: {error.strerror}"
        ) from None
    finally:
        for path in written:
            with suppress(OSError):
                path.unlink()


def _turns(case: Case, wire: str) -> list[dict[str, Any]]:
    """The turn of a case, at its place: a script plays the turn that has the number of assistant
    messages in the request."""
    before = sum(message.get("role") == "assistant" for message in case.messages)
    text, calls = (
        "".join(case.said),
        [{"name": call.tool, "arguments": call.arguments} for call in case.calls],
    )
    if wire == "text":
        text, calls = case_bytes.as_text(case), []
    split = _SPLITS.get(wire)
    if split is None:
        # pieces of uneven lengths fall inside of escapes
        split = [
            len(piece) for piece in case_bytes.pieces(case.call.arguments, wire)[:1_000]
        ] or "byte"
    return [*([{"text": "-"}] * before), {"text": text, "calls": calls, "split": split}]


def run(
    place: LiveTarget, policy: str, cases: Sequence[Case], plan: PlayPlan, progress: Progress
) -> tuple[Played, str]:
    """Play all cases under one policy; returns what came of them, and the revision. Raises
    SettingsError, Unavailable."""
    client = _Client(place, policy, plan.client)
    began = time.perf_counter()
    rounds = [(number, repeat) for repeat in range(plan.repeat) for number in range(len(cases))]
    with scripted(place, cases, plan) as models:

        def play(of: tuple[int, int]) -> CaseOutcome | _Begun:
            begun = client.play(cases[of[0]], models[of[0]], plan.wire, of[1])
            progress(1)
            return begun

        # the first alone: what is wrong with address, key or policy is wrong for all
        begun = [play(rounds[0])]
        if client.lost:
            raise Unavailable(f"Sluice at {place.url} does not answer: {client.lost}")
        with ThreadPoolExecutor(CONCURRENT) as pool:
            begun += pool.map(play, rounds[1:])
            # the record is written behind the answers: by now most of it is there
            outcomes = list(
                pool.map(
                    lambda played: (
                        played if isinstance(played, CaseOutcome) else client.recorded(played)
                    ),
                    begun,
                )
            )
    return Played(outcomes, time.perf_counter() - began, []), client.revision


class _Begun(msgspec.Struct, frozen=True):
    """A case that was answered. `is_out`: does what the client got hold the call's arguments?"""

    case: Case
    call_id: str
    took_us: float
    repeat: int
    is_out: bool


class _Client:
    """A client of one gateway, which also asks for its record; each time by a new connection."""

    def __init__(self, place: LiveTarget, policy: str, dialect: DialectName) -> None:
        parts = urlsplit(place.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(
                f"--url: {place.url!r} is no address: it begins with http:// or https://"
            )
        self._parts, self._key, self._policy, self._dialect = parts, place.key, policy, dialect
        client_dialect = CLIENTS[dialect]
        self._path = next(
            path
            for path, endpoint in client_dialect.client_paths.items()
            if endpoint == client_dialect.answers
        )
        self.revision, self.lost = "", ""

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        is_tls = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if is_tls else http.client.HTTPConnection
        sent = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        host = self._parts.hostname or ""
        with closing(kind(host, self._parts.port, timeout=_TIMEOUT_S)) as connection:
            whole = self._parts.path.rstrip("/") + path
            connection.request(method, whole, body, {**sent, **headers})
            answer = connection.getresponse()
            lower = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, lower, answer.read()

    def play(self, case: Case, model: str, wire: str, repeat: int) -> CaseOutcome | _Begun:
        """Send one case; what Sluice does not answer is an error of that case."""
        body = case_bytes.request(
            case, self._dialect, model, is_streamed=(case.wire or wire) != case_bytes.WHOLE
        )
        began = time.perf_counter()
        try:
            status, headers, answer = self._ask(
                "POST", self._path, body, {"x-sluice-policy": self._policy}
            )
            took_us = round((time.perf_counter() - began) * 1e6, 1)
            self.revision = headers.get("x-sluice-policy", "").rpartition("@")[2] or self.revision
            details = _error(answer) if status != 200 else {}
            # one dialect's errors have no code
            if (
                status == 403
                and details.get("code", "blocked_by_policy") == "blocked_by_policy"
                and "this key" not in details.get("message", "")
            ):
                return CaseOutcome(
                    id=case.id, verdict="block", reason="request", decide_us=took_us, repeat=repeat
                )
            if status in (400, 401, 403, 404):
                raise SettingsError(
                    f"{self._parts.geturl()} refuses the case {case.id!r} ({status}):"
                    f" {details.get('message', '')}{_hint(status)}"
                )
            call_id = headers.get("x-sluice-call-id", "")
            if status != 200 or not call_id:
                return CaseOutcome(
                    id=case.id, verdict="error", reason=f"status_{status}", repeat=repeat
                )
            text = case.call.arguments
            return _Begun(
                case,
                call_id,
                took_us,
                repeat,
                text.encode() in answer or json.dumps(text)[1:-1].encode() in answer,
            )
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.lost = str(error) or type(error).__name__
            return CaseOutcome(
                id=case.id, verdict="error", reason="sluice_unavailable", repeat=repeat
            )

    def recorded(self, begun: _Begun) -> CaseOutcome:
        """Return what is on record of a case, as soon as that is complete."""
        case, until = begun.case, time.monotonic() + _RECORD_S
        while True:
            try:
                status, _, raw = self._ask("GET", f"/audit/calls/{quote(begun.call_id)}", None, {})
            except (OSError, http.client.HTTPException):
                status, raw = 503, b""
            if status in (401, 403):
                raise SettingsError(
                    f"the record cannot be read ({status}): {_error(raw).get('message', '')}: --key"
                    " needs the role auditor"
                )
            if status == 200 and (call := json.loads(raw))["state"] != "ACTIVE":
                return _outcome(begun, call)
            if time.monotonic() > until:
                return CaseOutcome(
                    id=case.id, verdict="error", reason="not_recorded", repeat=begun.repeat
                )
            time.sleep(_LOOK_S)


def _outcome(begun: _Begun, call: Mapping[str, Any]) -> CaseOutcome:
    """What a recorded call says of its case."""
    case = begun.case
    record = next((row for row in call["tool_calls"] if row["index"] == case.at), None)
    asked = tuple(_asked(row) for row in call["judgements"] if row["model"] != PEOPLE)
    measured = [
        *((row.name, row.probability) for row in asked),
        *((row["monitor"], row["value"]) for row in call["scores"]),
        *((row["policy"], row["score"]) for row in call["decisions"]),
    ]
    decided = call["decisions"][-1] if call["decisions"] else {}
    if record is None:
        verdict, reason, policy, rule = (
            ("allow", "no_call", "", "") if begun.is_out else ("block", "withheld", "", "")
        )
    else:
        verdict, reason, policy, rule = (
            record[name] or "" for name in ("verdict", "reason", "policy", "rule")
        )
        if verdict == "discarded":
            verdict = "defer"
        elif verdict not in PASSED:
            verdict = BY_REASON.get(reason, "block")
    return CaseOutcome(
        id=case.id,
        verdict=settled(verdict, asked),
        reason=reason,
        policy=policy,
        rule=rule,
        decide_us=begun.took_us,
        asked=asked,
        scores=highest(measured),
        repeat=begun.repeat,
        action=decided.get("action") or "",
        audit=decided.get("audit") or "",
        why=(record or {}).get("why") or "",
    )


def _asked(judgement: Mapping[str, Any]) -> CaseJudgement:
    return CaseJudgement(
        judgement["model"],
        judgement["probability"],
        judgement["latency_ms"] or 0,
        judgement.get("input_tokens"),
        judgement.get("output_tokens"),
        judgement["error"] or "",
    )


def _error(raw: bytes) -> dict[str, str]:
    try:
        error = json.loads(raw)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: str(value) for name, value in error.items()} if isinstance(error, dict) else {}


def _hint(status: int) -> str:
    if status == 404:
        return (
            " (its configuration routes `script-*` to the upstream `script`, and its"
            " SLUICE_SCRIPTS_DIR is the folder of --scripts?)"
        )
    return ""
