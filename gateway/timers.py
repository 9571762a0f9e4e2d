"""The timers of a gateway's calls, all in one place: what waits too long is notified."""

import asyncio
import time

from gateway.bus import Bus
from gateway.policy_sets import PolicySets
from protocol.errors import AuditUnavailable, Overloaded, StreamConnectionLost, StreamTimeout
from settings.limits import Limits


async def watch(bus: Bus, limits: Limits, sets: PolicySets) -> None:
    """Twice a second: unclaimed, silent and overdue calls, and keepalives that waited. Runs until
    cancelled."""
    while True:
        await asyncio.sleep(0.5)
        now = time.monotonic()
        for call in list(bus.calls.values()):
            call.outgoing.add_up()
            call.show_life(now)
            call.relay()
            if (
                call.order.expected == 0
                and now - call.started > limits.claim_s + 0.5
                and now - call.last_reply > limits.claim_s + 0.5
            ):
                bus.untaken += call.order.error is None
                why = sets.fault or "no policy worker took the call"
                call.fail(
                    Overloaded(f"{why}; try again in 1 second", code="no_worker", retry_after_s=1)
                )
            elif now - call.last_reply > call.activity_s and bus.heartbeat.is_refused:
                why = "Sluice cannot write to Redis now; try again in 2 seconds"
                call.fail(StreamConnectionLost(why, code="streams_unavailable", retry_after_s=2))
            elif (
                now - call.last_reply > call.activity_s
                and bus.gate is not None
                and bus.gate.is_waiting
            ):
                call.fail(AuditUnavailable("the audit log cannot be written now"))
            elif now - call.last_reply > call.activity_s:
                call.fail(
                    StreamTimeout(f"no heartbeat from the policy workers for {call.activity_s:g} s")
                )
            elif now > call.deadline:
                if now > call.deadline + 5:
                    call.fail(StreamTimeout("the call's deadline has passed", code="call_deadline"))
                if call.order.become_overdue():
                    call.appender.append("failed", text="call_deadline")
                    bus.append(call)


async def drain(bus: Bus, grace_s: float) -> None:
    """Give open calls `grace_s`, then end them with an error of their dialect."""
    until = time.monotonic() + grace_s
    while bus.calls and time.monotonic() < until:
        await asyncio.sleep(0.05)
    for call in list(bus.calls.values()):
        call.fail(StreamConnectionLost("the gateway is shutting down", code="gateway_shutdown"))
    while bus.calls and time.monotonic() < until + 2:
        await asyncio.sleep(0.02)
