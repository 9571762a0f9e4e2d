"""Checks of `sluice doctor` on gateways, from their heartbeats in Redis: how many live, which are
silent, which receive nothing. Pure."""

from collections.abc import Mapping

from streams import layout

LIVE_MS = 5_000
"""A gateway shows itself every second."""


def live_gateways(shown: Mapping[bytes, bytes], now_ms: int) -> dict[str, layout.GatewaySign]:
    """Return the signs of the gateways that live, by name; `shown` and `now_ms` as for
    `gateway_faults`."""
    return {
        name: sign
        for name, sign in layout.gateway_signs(shown).items()
        if now_ms - sign.at <= LIVE_MS
    }


def gateway_faults(shown: Mapping[bytes, bytes], now_ms: int) -> list[tuple[str, str]]:
    """Return (state, sentence) pairs for what `GATEWAYS_KEY` holds, `now_ms` being Redis' clock;
    one is about those that are well."""
    signs = {
        name: sign
        for name, sign in layout.gateway_signs(shown).items()
        if now_ms - sign.at <= layout.GATEWAY_KNOWN_MS
    }
    live = live_gateways(shown, now_ms)
    findings = []
    for name, sign in live.items():
        if sign.trouble:
            state = "warning" if sign.trouble.startswith(layout.WARNING) else "failed"
            findings.append(
                (state, f"the gateway {name}: {sign.trouble.removeprefix(layout.WARNING)}")
            )
    for name, sign in signs.items():
        if name not in live:
            sentence = f"no heartbeat from the gateway {name} for {(now_ms - sign.at) // 1000} s"
            findings.append(
                (
                    "warning",
                    (
                        f"{sentence}: if it was killed, its calls have ended; if it runs, see its log"
                        " and whether it reaches Redis"
                    ),
                )
            )
    if not live:
        return [
            *findings,
            (
                "warning",
                (
                    "no gateway of this version is running, so clients have nowhere to connect:"
                    " start `sluice gateway`"
                ),
            ),
        ]
    return findings or [
        ("ok", f"{len(live)} gateways are live" if len(live) > 1 else "1 gateway is live")
    ]
