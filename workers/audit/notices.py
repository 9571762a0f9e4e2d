"""Notifies programs that a tool call waits for people, and what became of it.

An audit writer does this, as the notices are in its database: what is due is taken there by one
statement and marked behind the last answer, so that nobody is notified of what is not committed,
writers do not send the same one, and one that was killed while it sent leaves it due again. Where
nobody is configured nothing of this runs. Must not know: SQL.
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from db.write.notices import DueNotice, DueNotices
from policy.effects.credentials import secrets_in
from protocol.errors import AuditUnavailable, PipelineError, RemoteProtocolError
from providers.endpoints import secret
from providers.http1 import Pool, UpstreamConnection
from providers.origin import Origin
from providers.outbound import outbound
from settings.approvals import Approvals, Notified
from settings.runtime import Runtime

log = logging.getLogger(__name__)
EVERY_S = 1.0
POST_S = 5.0
"""How long one post may take. It is less than the first pause before a notice is due again."""
MOST_UNDER_WAY = 64
"""Notices that are being sent; others wait in the database."""
MAX_ANSWER_BYTES = 16 * 1024
PREVIEW_CHARS, _NAME_CHARS = 500, 200
_FIELDS = "approval_id state tool key session rule why decided_by".split()
_WORDS = {
    "open": "waits for approval",
    "approved": "was approved",
    "denied": "was denied",
    "superseded": "is void, as the policy changed",
    "expired": "expired",
}


class _Answer:
    """Takes an answer, of which only the status matters."""

    def __init__(self) -> None:
        self.status = self._size = 0

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Keep the status."""
        self.status = status

    def on_data(self, data: bytes, line: UpstreamConnection) -> None:
        """Count. Raises RemoteProtocolError past the bound."""
        self._size += len(data)
        if self._size > MAX_ANSWER_BYTES:
            raise RemoteProtocolError("the answer is too long")

    def on_end(self) -> None:
        """Nothing is left to do."""


class NoticeSender:
    """Sends what is due, of one writer."""

    def __init__(self, settings: Runtime, *, every_s: float = EVERY_S) -> None:
        self._approvals: Approvals = settings.config.approvals
        self._due = DueNotices(settings.database_url)
        self._every_s = every_s
        self._pool = Pool(connect_s=POST_S, first_byte_s=POST_S, idle_s=POST_S)
        self._under_way = 0
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    with contextlib.suppress(AuditUnavailable):
                        for notice in await self._take():
                            group.create_task(self._send(notice), name="notice")
                    await asyncio.sleep(self._every_s)
        finally:
            await self._pool.close()
            await self._due.close()

    async def _take(self) -> list[DueNotice]:
        room = MOST_UNDER_WAY - self._under_way
        async with self._turn:
            taken = await self._due.take(room) if room else []
        self._under_way += len(taken)
        return taken

    async def _send(self, notice: DueNotice) -> None:
        """Send one to all who have not got it. A request that ended before anybody heard of it is
        sent once, as that."""
        is_over = notice.about == "asked" and notice.state != "open"
        missing = [
            one for one in self._approvals.notify if not is_over and one.name not in notice.sent
        ]
        preview = await asyncio.to_thread(masked, notice.arguments)
        # before it is cut: half a secret looks like none
        notice = notice._replace(why=masked(notice.why))
        done = await asyncio.gather(*(self._post(one, notice, preview) for one in missing))
        sent = [*notice.sent, *(one.name for one, ok in zip(missing, done, strict=True) if ok)]
        self._under_way -= 1
        with contextlib.suppress(AuditUnavailable):
            async with self._turn:
                await self._due.mark(notice, sent, is_done=all(done))

    async def _post(self, to: Notified, notice: DueNotice, preview: str) -> bool:
        """Send it to one of them; says whether it was taken."""
        try:
            origin, head, body = request(to, notice, preview, self._approvals.public_url)
            answer = _Answer()
            async with asyncio.timeout(POST_S):
                # one that closed its connection at that moment did not take it
                await self._pool.post(origin, head, body, answer, when_again=lambda: None)
            if answer.status // 100 == 2:
                return True
            error = f"status {answer.status}"
        except (PipelineError, ValueError, OSError, TimeoutError) as failure:
            error = str(failure) or type(failure).__name__
        log.warning(
            "a notice of an approval was not taken",
            extra={"action": "notify", "to": to.name, "count": notice.tries, "error": error},
        )
        return False


def request(
    to: Notified, notice: DueNotice, preview: str, public_url: str
) -> tuple[Origin, bytes, bytes]:
    """Return where a notice goes, and the head and body of its request. Raises ValueError without
    the secret that signs."""
    link = f"{public_url}/debug/approvals/{notice.approval_id}"
    url = urlsplit(to.url)
    target = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
    headers = {"content-type": "application/json"}
    if to.form == "slack":
        by = f" by {notice.decided_by}" if notice.decided_by else ""
        why = f"it {notice.why}" if notice.why else f"rule {notice.rule}"
        text = f"{notice.tool} of {notice.key} {_WORDS[notice.state]}{by}: {why}"
        body = json.dumps({"text": f"{_escaped(text)}\n{link}"})
    else:
        values = {name: getattr(notice, name)[:_NAME_CHARS] for name in _FIELDS}
        more = {"preview": preview, "expires_at": notice.expires_at.isoformat(), "url": link}
        body = json.dumps({"event": notice.about, **values, **more})
        at, key = str(int(time.time())), secret(None, to.secret_env)
        if not key:
            raise ValueError("no secret")
        signed = hmac.digest(key.encode(), f"{at}.{body}".encode(), hashlib.sha256).hex()
        headers |= {"x-sluice-timestamp": at, "x-sluice-signature": f"v1={signed}"}
    base = f"{url.scheme}://{url.netloc}"
    origin = Origin(base, outbound(base))
    return origin, origin.head(target, headers), body.encode()


def masked(arguments: str) -> str:
    """Return the beginning of arguments, or of why people are asked, without secrets."""
    parts, at = list[str](), 0
    for found in secrets_in(arguments):
        parts += [arguments[at : found.start], f"[{found.kind}]"]
        at = found.end
    return "".join([*parts, arguments[at:]])[:PREVIEW_CHARS]


def _escaped(text: str) -> str:
    """Return text as Slack shows it as it is: no mention and no link, nothing that is not seen."""
    shown = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}"
        for character in text[:PREVIEW_CHARS]
    )
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
