"""Reports upstreams and judges that failed lately, for `sluice doctor` and the pages: cause, count,
and the last network error.

Read from the audit log, which has an event of each call whose upstream failed
(docs/run/operations.md). No upstream is asked."""

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import groupby

from db.read.failures import Failures, Unjudged, judge_failures, upstream_failures

WITHIN = timedelta(hours=1)
CAUSES = {
    "upstream_dns": "its name was not found",
    "upstream_refused": "it refused the connection",
    "upstream_tls": "no TLS there, or its certificate is not trusted",
    "upstream_certificates": "a file of certificates for it cannot be read",
    "upstream_connect_timeout": "no connection in time",
    "proxy_dns": "the name of its proxy was not found",
    "proxy_refused": "its proxy refused the connection",
    "proxy_connect_timeout": "no connection through its proxy in time",
    "proxy_unreachable": "the network to its proxy failed",
    "proxy_denied": "its proxy let no request through",
    "upstream_unreachable": "the network failed",
    "upstream_closed": "it closed the connection without an answer",
    "upstream_cut": "its answer was cut",
    "upstream_timeout": "it was silent for too long",
    "upstream_encoding": "its compressed answer could not be opened",
    "upstream_protocol_error": "its answer was not HTTP",
    "upstream_too_large": "its answer was past limits.output_bytes",
    "upstream_token": "there is no access token or signing key for it",
    "upstream_authentication": "it rejected our key",
    "upstream_billing": "it refused for billing reasons",
    "protocol_error": "its answer was not of its dialect",
}
"""By the kind of event, in words."""
_UNJUDGED = {
    "deadline": "it did not answer in time",
    "unavailable": "it could not be asked",
    "invalid": "its answer could not be used",
    "fault": "asking it failed",
}
_MOST_CHARS = 300
_CHUNK = re.compile(r"^-?\d+: ")
"""Before what a session notes: the number of the chunk."""


def failed_upstreams(url: str) -> list[tuple[str, str]]:
    """Did calls fail in the last hour because of an upstream? A warning for each that did."""
    failures = upstream_failures(url, tuple(CAUSES), within=WITHIN)
    return [
        ("warning", say(name, list(group)))
        for name, group in groupby(failures, key=lambda failure: failure.upstream)
    ]


def failed_judges(url: str) -> list[tuple[str, str]]:
    """Were questions to judges left without an answer in the last hour? A warning for each
    model."""
    failures = judge_failures(url, within=WITHIN)
    return [
        ("warning", say_unjudged(model, list(group)))
        for model, group in groupby(failures, key=lambda failure: failure.model)
    ]


def say_unjudged(model: str, each: Sequence[Unjudged]) -> str:
    """Return the sentence for one judge model, of which `each` has at least one, the newest
    first."""
    total = sum(failure.questions for failure in each)
    causes = "; ".join(
        f"{_UNJUDGED.get(failure.error, failure.error)} ({failure.questions:,})" for failure in each
    )
    name = "".join(c if c.isprintable() else "?" for c in model[:_MOST_CHARS])
    summary = (
        f"the judge {name!r} gave no answer to {total:,} question{'s' if total > 1 else ''} of the"
        " last hour, so those calls were blocked"
    )
    return (
        f"{summary}: {causes}; the last at {each[0].last_at:%H:%M:%S}Z. What it said: `sluice audit"
        " judge-blocks`"
    )


def say(name: str, failures: Iterable[Failures]) -> str:
    """Return the sentence for one upstream, of which `failures` has at least one, the newest
    first."""
    each = list(failures)
    causes = "; ".join(
        f"{CAUSES[failure.kind]} ({failure.kind}, {failure.calls:,})" for failure in each
    )
    last = f"the last at {each[0].last_at:%H:%M:%S}Z"
    if detail := _CHUNK.sub("", each[0].detail, count=1)[:_MOST_CHARS]:
        last += f", {''.join(c if c.isprintable() else '?' for c in detail)}"
    total = sum(failure.calls for failure in each)
    return (
        f"the upstream {name!r} failed in {total:,} call{'s' if total > 1 else ''} of the last"
        f" hour: {causes}; {last}"
    )
