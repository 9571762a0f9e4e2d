"""Sends approved requests upstream and puts what comes back onto the call's stream. Holds the
provider credentials.

Where a request goes, with which headers and key, comes from the configuration alone. Sent again
only where a kept connection had ended before it was used: further attempts are dispatches of their
own. Redirects are not followed; the answer is split into SSE events by bytes and otherwise
untouched.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from typing import NoReturn
from urllib.parse import urlsplit

from demo.server import DemoServer
from gateway.admission import Shares
from gateway.bus import Bus
from gateway.call import figures
from gateway.call.calls import OpenCall
from gateway.call.repeats import Repeats
from gateway.call.upstream_answer import UpstreamAnswer
from protocol import errors_wire
from protocol.bounds import (
    DEMO_BODY_BYTES,
    MAX_ATTEMPT_WAIT_S,
    MAX_KEPT_HEADS,
    SCRIPT_BODY_BYTES,
)
from protocol.dialects.table import DIALECTS
from protocol.errors import (
    NotFound,
    Overloaded,
    PipelineError,
    RateLimited,
    RequestError,
    TooLarge,
    UpstreamUnreachable,
)
from providers.breaker import Breakers, Permit
from providers.doors.plain import Door
from providers.doors.table import open_door
from providers.endpoints import provider_key
from providers.http1 import Pool
from providers.origin import Origin
from settings.config import DEMO, SCRIPTS, Config
from streams.layout import Dispatch, EntryKind
from streams.metrics import Total

log = logging.getLogger(__name__)
_MOST_WHY = 300


class Upstreams:
    """The configured providers and the built-in models, with one connection pool. `scripts_dir`:
    where the scripted model's files are."""

    def __init__(self, config: Config, bus: Bus, scripts_dir: str = "") -> None:
        self._config, self._limits, self._bus = config, config.limits, bus
        self._doors = {name: open_door(u) for name, u in config.upstreams.items()}
        for door in self._doors.values():
            if door.upstream.compress:
                door.headers["accept-encoding"] = "gzip"
        self._shares = {
            name: Shares(u.calls) for name, u in config.upstreams.items() if u.calls is not None
        }
        self._places = {DEMO: "the demo model"} | dict.fromkeys(SCRIPTS, "the scripted model")
        self._places |= {name: _place_of(door.base()) for name, door in self._doors.items()}
        self._demo, self._scripts_dir = DemoServer(), scripts_dir
        self._scripts = DemoServer("the scripted model", scripts_dir)
        self._heads = dict[tuple[str, ...], tuple[Origin, bytes]]()
        self._breakers = Breakers(bus.gateway)
        self._repeats = Repeats() if config.tries_again else None
        bus.figures.reads.append(lambda: figures.states(self.states))
        self._pool = Pool(
            connect_s=self._limits.connect_s,
            first_byte_s=self._limits.first_byte_s,
            idle_s=self._limits.idle_s,
        )

    @property
    def connections(self) -> int:
        """How many are open."""
        return self._pool.size

    @property
    def states(self) -> dict[str, int]:
        """Whether each upstream that was asked may be asked: as `providers.breaker` has it."""
        return self._breakers.states(time.monotonic())

    @property
    def resting(self) -> list[str]:
        """Which upstreams are left alone, as sentences."""
        return [
            f"the upstream {name!r} failed too often, and gets one request at a time to try it: see"
            " this gateway's log, and the provider"
            for name, state in self.states.items()
            if state
        ]

    async def close(self) -> None:
        """Close the pool and what is open in it."""
        await self._pool.close()
        for door in self._doors.values():
            await door.close()
        await self._demo.close()
        await self._scripts.close()

    async def send(self, call: OpenCall, dispatch: Dispatch) -> None:
        """Send one approved request and append its answer; every ending is appended, none raises
        but cancellation. Without what its budgets have to hold, a call fails instead."""
        if call.budget is not None and not await call.budget.takes(call, dispatch):
            return
        call.appender.is_answering, call.order.upstream_headers = True, {}
        if self._repeats is not None:
            self._repeats.count(time.monotonic())
            if dispatch.wait_ms:
                await asyncio.sleep(min(dispatch.wait_ms / 1000, MAX_ATTEMPT_WAIT_S))
            if dispatch.attempt:
                await self._send_again(self._repeats, call, dispatch)
                return
        await self._send_once(call, dispatch)

    async def _send_again(self, repeats: Repeats, call: OpenCall, dispatch: Dispatch) -> None:
        if not await repeats.begins(call.key, time.monotonic()):
            self._bus.figures.add(Total.UPSTREAM_ATTEMPTS, dispatch.upstream, "refused")
            self._append(call, "failed", text=errors_wire.REPEAT_REFUSED)
            return
        self._bus.figures.add(Total.UPSTREAM_ATTEMPTS, dispatch.upstream, "made")
        held = [call.key]

        def leave() -> None:
            while held:
                repeats.leave(held.pop())

        try:
            await self._send_once(call, dispatch, leave)
        finally:
            leave()

    async def _send_once(
        self, call: OpenCall, dispatch: Dispatch, when_begun: Callable[[], None] | None = None
    ) -> None:
        try:
            await self._send(call, dispatch, when_begun)
            return
        except RequestError as error:
            # as if the provider had answered so: the worker tells the client, and the record has it
            body = DIALECTS[dispatch.dialect].error_body(error)
            self._append(
                call,
                "status",
                [body],
                number=error.http_status,
                text=str(error.retry_after_s or ""),
            )
            return
        except PipelineError as error:
            code, why = error.error_code, f"{self._place(dispatch)}: {_why(error)}"
            figures.failed(self._bus.figures, error)
            log.warning(
                "upstream failed",
                extra={
                    "call_id": call.id,
                    "upstream": dispatch.upstream,
                    "error": code,
                    "why": why,
                },
            )
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the top of a call: whatever broke, its stream must show it
            log.error(
                "upstream failed",
                extra={
                    "call_id": call.id,
                    "upstream": dispatch.upstream,
                    "error": type(error).__name__,
                },
            )
            code, why = UpstreamUnreachable.code, f"{self._place(dispatch)}: {type(error).__name__}"
        self._append(call, "failed", [why.encode(errors="replace")], text=code)

    def _append(
        self,
        call: OpenCall,
        kind: EntryKind,
        chunks: list[bytes] | None = None,
        *,
        number: int = 0,
        text: str = "",
    ) -> None:
        call.appender.append(kind, chunks, number=number, text=text)
        self._bus.append(call)

    def replace(self, call: OpenCall) -> None:
        """Mark the end of an answer that was given up, as another attempt takes its place."""
        if call.appender.is_answering:
            self._append(call, "failed", text=errors_wire.SUPERSEDED)

    async def _send(
        self, call: OpenCall, dispatch: Dispatch, when_begun: Callable[[], None] | None
    ) -> None:
        name = dispatch.upstream
        shares = self._shares.get(name)
        if shares is not None and shares.take(call.key) is not None:
            most = (
                f"{shares.of(call.key)} of the {shares.total} requests that the upstream {name!r}"
                " gets at once"
            )
            raise RateLimited(
                f"this key has used its share, {most}; try again in 1 second", retry_after_s=1
            )
        door = self._doors.get(name)
        answer = UpstreamAnswer(
            call,
            self._bus.append,
            self._limits,
            self._bus.figures,
            door,
            DIALECTS[dispatch.dialect],
        )
        answer.when_begun = when_begun
        try:
            if door is not None and door.upstream.breaker:
                permit = self._breakers.ask(name, call.key, time.monotonic())
                answer.permit = permit if isinstance(permit, Permit) else self._refuse(name, permit)
            answer.upstream = name
            if door is not None and not door.is_fixed:
                await self._send_through(door, call, dispatch, answer)
                return
            origin, head = (
                await self._built_in_head(call, dispatch)
                if name == DEMO or name in SCRIPTS
                else self._head(dispatch)
            )
            await self._pool.post(
                origin,
                head,
                call.take_body(),
                answer,
                when_again=answer.on_again if call.repeats else None,
            )
            if answer.compressed is not None:
                await answer.finish()
            if answer.status == 401:
                self._log_refusal(call, name)
        except PipelineError as error:
            answer.came_to(error.error_code)
            raise
        except asyncio.CancelledError:
            answer.came_to("cancelled")
            raise
        finally:
            answer.leave()
            if shares is not None:
                shares.give_back(call.key)

    def _refuse(self, name: str, rest_s: float) -> NoReturn:
        """Raises Overloaded: this upstream has failed too often to be asked now."""
        after_s = math.ceil(rest_s)
        self._bus.figures.add(Total.UPSTREAM_FAILURES, name, "left_alone")
        raise Overloaded(
            f"the upstream {name!r} failed too often and is left alone for a while; try again in"
            f" {after_s} second{'s' if after_s != 1 else ''}",
            code="upstream_unavailable",
            retry_after_s=after_s,
        )

    async def _send_through(
        self, door: Door, call: OpenCall, dispatch: Dispatch, answer: UpstreamAnswer
    ) -> None:
        """Send a request whose head is made for it alone; once more where the provider says that
        what let it in has expired, and there is something newer."""
        # only until the answer begins: agents send megabytes
        answer.asked = call.take_body()
        for may_renew in (True, False):
            sent = await door.request(dispatch.endpoint, answer.asked, dispatch.betas)
            answer.let_in = sent.let_in if may_renew else None
            when_again = answer.on_again if call.repeats else None
            posting = self._pool.post(
                sent.origin, sent.head, sent.body, answer, when_again=when_again
            )
            del sent
            await posting
            if not answer.is_stale:
                break
            answer.begin_again()
        if answer.compressed is not None:
            await answer.finish()
        if answer.status in (401, 403):
            self._log_refusal(call, dispatch.upstream)

    def _place(self, dispatch: Dispatch) -> str:
        return self._places.get(dispatch.upstream, "not an upstream of this gateway")

    def _log_refusal(self, call: OpenCall, name: str) -> None:
        """Say whose key was refused, and whether there is one: only here is it known."""
        if (upstream := self._config.upstreams.get(name)) is not None:
            details: dict[str, object] = {"key_from": upstream.key_place}
            if self._doors[name].is_fixed:
                details["key_is_set"] = bool(provider_key(upstream))
            log.warning(
                "upstream refused the key", extra={"call_id": call.id, "upstream": name, **details}
            )

    async def _built_in_head(self, call: OpenCall, dispatch: Dispatch) -> tuple[Origin, bytes]:
        is_demo = dispatch.upstream == DEMO
        if len(call.body) > (most := DEMO_BODY_BYTES if is_demo else SCRIPT_BODY_BYTES):
            raise TooLarge(
                f"{self._places[dispatch.upstream]} takes request bodies up to {most} bytes"
            )
        if not is_demo and not self._scripts_dir:
            raise NotFound(
                "there are no scripts here: SLUICE_SCRIPTS_DIR of this gateway is not set",
                code="model_not_found",
                param="model",
            )
        origin = Origin(await (self._demo if is_demo else self._scripts).url())
        return origin, origin.head(
            f"/{dispatch.dialect}/{dispatch.endpoint.partition(' ')[0]}",
            {"content-type": "application/json"},
        )

    def _head(self, dispatch: Dispatch) -> tuple[Origin, bytes]:
        """Where the request goes, and its head; made once for each provider, path (with its model)
        and set of betas."""
        door = self._doors[dispatch.upstream]
        extra = door.betas(dispatch.betas)
        known = (dispatch.upstream, dispatch.endpoint, *extra.values())
        if known not in self._heads:
            if len(self._heads) >= MAX_KEPT_HEADS:
                self._heads.clear()
            self._heads[known] = door.head(dispatch.endpoint, extra)
        return self._heads[known]


def _place_of(base_url: str) -> str:
    """Where an upstream is, as the record and the log may show it: without a login that the address
    may hold."""
    with contextlib.suppress(ValueError):
        url = urlsplit(base_url)
        if url.hostname:
            return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
    return "its base_url"


def _why(error: PipelineError) -> str:
    """Return the network's error for the audit log and the log: addresses and certificates are not
    secret, and it contains no key."""
    return (str(error.__cause__ or "") or error.message)[:_MOST_WHY]
