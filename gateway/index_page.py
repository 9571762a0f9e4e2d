"""GET /: says what this is and where to go, as a page for a browser and as JSON for everybody else.
It needs no key and shows none.

All of it is fixed text, the same for each gateway: whoever reaches the port may read it, so nothing
of the request or of the configuration is repeated.
"""

import base64
import hashlib
from functools import cache
from html import escape
from importlib import resources
from string import Template

import msgspec

from protocol.dialects.table import client_paths

SERVED = (
    *(
        ("POST", path, dialect.about[endpoint])
        for path, (dialect, endpoint) in client_paths().items()
    ),
    ("GET", "/v1/models", "the models you can use; /v1/models/NAME shows one"),
    (
        "GET",
        "/audit/calls",
        (
            "the record of calls, for keys with the role auditor; also /audit/tool-calls and"
            " /audit/judge-blocks"
        ),
    ),
    (
        "GET",
        "/debug",
        "the record as web pages; log in with a key that has the role auditor or admin",
    ),
    ("GET", "/health", "is this process running?"),
    ("GET", "/ready", "does it accept calls, and if not, why?"),
    ("GET", "/metrics", "metrics for Prometheus, for keys with the role monitor or auditor"),
)
"""Method, path and purpose of what a gateway serves."""
_WHAT = (
    "Sluice is a gateway for AI control. A policy approves what a model sends before a client gets"
    " it, and everything is recorded."
)
_KEY = (
    "Each request needs an API key of this gateway, as Authorization: Bearer KEY or as x-api-key:"
    " KEY. The operator makes keys with `sluice keys create`."
)
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:3rem auto;padding:0 1rem}"
    "td{padding:.2rem 1rem .2rem 0;vertical-align:top}code{white-space:nowrap}"
)
_LINKED = ("/debug", "/health", "/ready")
"""What a browser can open without sending a key."""


def page(
    headers: list[tuple[bytes, bytes]],
) -> tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]:
    """Return content type, body and further headers: HTML where the client names it among what it
    accepts, as browsers do."""
    more: tuple[tuple[bytes, bytes], ...] = ((b"vary", b"accept"), (b"cache-control", b"no-store"))
    if any(name == b"accept" and b"text/html" in value.lower() for name, value in headers):
        return b"text/html; charset=utf-8", _html(), (*more, *_guards())
    served = [{"method": method, "path": path, "what": what} for method, path, what in SERVED]
    return (
        b"application/json",
        msgspec.json.encode(
            {"name": "sluice", "what": _WHAT, "authentication": _KEY, "serves": served}
        ),
        more,
    )


def _guards() -> tuple[tuple[bytes, bytes], ...]:
    """No script, no form, no frame, nothing from elsewhere; of styles only the page's own."""
    style = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    )
    return ((b"content-security-policy", policy.encode()), (b"referrer-policy", b"no-referrer"))


@cache
def _html() -> bytes:
    rows = "".join(
        f"<tr><td><code>{method} {_link(path)}</code></td><td>{escape(what)}</td></tr>\n"
        for method, path, what in SERVED
    )
    template = (
        resources.files("gateway").joinpath("templates", "index.html").read_text(encoding="utf-8")
    )
    return (
        Template(template)
        .substitute(style=_STYLE, what=escape(_WHAT), rows=rows, keys=escape(_KEY))
        .encode()
    )


def _link(path: str) -> str:
    return f'<a href="{escape(path)}">{escape(path)}</a>' if path in _LINKED else escape(path)
