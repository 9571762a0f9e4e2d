"""The door to the audit API: passes questions under /audit on to the process of the pages, with the
key that asks, and its answers back.

That process checks keys, and says what is wrong with a question. What a gateway knows of a key only
decides where it waits: a client that is no auditor as far as this gateway knows takes no place of
auditors, and its body is not read. Must not know: the record.
"""

import asyncio
import contextlib
from urllib.parse import quote

from db.keyring import KeyRing
from gateway.asgi import Receive, Scope, Send
from gateway.record.pages_process import (
    AwayError,
    CrowdedError,
    FullError,
    Line,
    PagesProcess,
    read_body,
    request_bytes,
)
from protocol.audit_errors import error_body, error_headers
from protocol.bounds import MAX_DECISION_BYTES, MAX_KEY_BYTES, MAX_QUESTIONS, MAX_REVIEW_BYTES
from protocol.errors import (
    AuditUnavailable,
    InvalidRequest,
    PipelineError,
    TooSlow,
    Unauthenticated,
)
from settings.runtime import Runtime

MAX_QUESTIONS_OF_ONE, MAX_EXPORTS, MAX_OF_OTHERS = 8, 8, 4
"""Of the questions under way those of one key, and answers in pieces, of which one key has as many
as are still free; and questions beside them of who is not known as an auditor."""
HEAD_S, HEAD_TIMES = 60.0, 4
"""How long the beginning of an answer may take: that of an export, and so many times what one query
may."""
_MAY_ASK = frozenset(("auditor", "approver"))
_KEYS = frozenset((b"authorization", b"x-api-key"))
_MOST_KEYS, _LONGEST_KEY = 8, 2 * MAX_KEY_BYTES
"""Of the headers with a key so many that differ, and so much of each, are passed on: two keys are
refused, and longer ones."""
_CROWDED = "this gateway already has too many requests for the record; try again later"
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


class AuditDoor:
    """Relays questions for the record to the process at `settings.pages_url`."""

    def __init__(self, settings: Runtime) -> None:
        self._within_s = settings.config.limits.audit_read_s
        head_s = HEAD_S + HEAD_TIMES * self._within_s
        self._process = PagesProcess(
            settings.pages_url, head_s=head_s, most_in_pieces=MAX_EXPORTS, most_streams=0
        )
        # key by key, and address by address: who asks for much waits for oneself
        self._of_auditors, self._of_clients = (
            Line(MAX_QUESTIONS, most=MAX_QUESTIONS_OF_ONE, wait_s=self._within_s) for _ in range(2)
        )
        self._of_others = Line(MAX_OF_OTHERS, most=MAX_OF_OTHERS, wait_s=self._within_s)

    @property
    def open(self) -> int:
        """Connections to that process."""
        return self._process.open

    async def __call__(self, scope: Scope, receive: Receive, send: Send, auditor: str) -> None:
        """Serve one request. `auditor`: the id of the key that asks, empty where it is not known to
        be an auditor's."""
        try:
            body = (
                await self._body(scope, receive) if auditor and scope["method"] == "POST" else b""
            )
            if body is None:
                return
            address = str((scope.get("client") or ("",))[0])
            line, who = (self._of_auditors, auditor) if auditor else (self._of_others, address)
            await self._process.relay(
                _request(scope, body),
                receive,
                send,
                line=line,
                who=who,
                is_head=scope["method"] == "HEAD",
            )
        except CrowdedError:
            await _refuse(send, AuditUnavailable(_CROWDED))
        except FullError:
            await _refuse(
                send,
                AuditUnavailable(
                    f"{MAX_EXPORTS} exports are already running through this gateway; try again"
                    " later"
                ),
            )
        except AwayError:
            sentence = (
                "the process that serves the record (sluice pages) does not answer; it restarts"
                " automatically"
            )
            await _refuse(send, AuditUnavailable(f"{sentence}. Calls are not affected"))
        except PipelineError as error:
            await _refuse(send, error)

    async def serve_answers(self, scope: Scope, receive: Receive, send: Send, client: str) -> None:
        """Pass on what a client asks of its kept answers; `client` is its key. Raises
        PipelineError."""
        try:
            await self._process.relay(
                _request(scope, b""),
                receive,
                send,
                line=self._of_clients,
                who=client,
                is_head=False,
            )
        except CrowdedError:
            raise AuditUnavailable(_CROWDED) from None
        except (FullError, AwayError):
            raise AuditUnavailable(
                "stored responses cannot be read now; try again in 5 seconds", retry_after_s=5
            ) from None

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the body of a review or a decision, and of one that is too long a little more than
        is allowed: the process behind the door refuses it. None where its client is gone. Raises
        TooSlow."""
        is_decision = scope["path"].startswith("/audit/approvals/")
        most = MAX_DECISION_BYTES if is_decision else MAX_REVIEW_BYTES
        try:
            async with asyncio.timeout(self._within_s):
                return await read_body(receive, most)
        except TimeoutError:
            raise TooSlow("the request body did not arrive in time", retry_after_s=1) from None


def _request(scope: Scope, body: bytes) -> bytes:
    query = scope["query_string"]
    target = _printable(scope["raw_path"]) + (b"?" + _printable(query) if query else b"")
    keys = dict.fromkeys(
        b"%b: %b" % (name, value[:_LONGEST_KEY])
        for name, value in scope["headers"]
        if name in _KEYS
    )
    return request_bytes(scope, target, [b"host: gateway", *list(keys)[:_MOST_KEYS]], body)


def _printable(text: bytes) -> bytes:
    """Return a part of a target with % for what some servers refuse there: it reads the same."""
    return quote(text.decode("latin-1"), safe=_PRINTABLE).encode()


async def _refuse(send: Send, error: PipelineError) -> None:
    body, status = error_body(error), error.http_status
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
    } | error_headers(status)
    head = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def auditor_of(keys: KeyRing, headers: list[tuple[bytes, bytes]]) -> str:
    """Return the id of the key that a request carries, of one that may ask here; empty where it
    carries none, two, or one that has expired."""
    with contextlib.suppress(InvalidRequest, Unauthenticated):
        key = await keys.find(headers)
        return key.id if key is not None and _MAY_ASK & {*key.roles} else ""
    return ""


def is_audit(path: str) -> bool:
    """Is this a path of the audit API, or one that it answers with an error?"""
    return path.startswith("/audit")
