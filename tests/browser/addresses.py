"""Every page there is, by a name. A page that is not here is not looked at: each new page gets its
line.

`{blocked}` and the like are ids of calls of `tests.browser.calls`. What has no route yet is left
out.
"""

from pages.page import Route
from pages.routes import ROUTES
from protocol.errors import PipelineError
from tests.browser.calls import Calls
from tests.support.clients import agent
from tests.support.servers.asked import find

PAGES = {
    "overview": "/debug",
    "calls": "/debug/calls",
    "calls-nothing": "/debug/calls?key=nobody&since=2026-01-01",
    "tool-calls": "/debug/tool-calls",
    "tool-calls-blocked": "/debug/tool-calls?verdict=block&key=dev",
    "judge-blocks": "/debug/judge-blocks",
    "search": "/debug/search?q=echo",
    "search-nothing": "/debug/search",
    "call": "/debug/calls/{blocked}",
    "call-judged": "/debug/calls/{judged}",
    "call-long": "/debug/calls/{long}",
    "call-failed": "/debug/calls/{broken}",
    "call-whole": "/debug/calls/{whole}",
    "call-messages": "/debug/calls/{messages}",
    "wire": "/debug/calls/{blocked}/wire",
    "wire-table": "/debug/calls/{blocked}/wire?view=table",
    "diff": "/debug/calls/{blocked}/diff",
    "diff-side": "/debug/calls/{upper}/diff?view=side&all=1",
    "request": "/debug/calls/{blocked}/request",
    "hooks": "/debug/calls/{blocked}/hooks",
    "proof": "/debug/calls/{blocked}/proof",
    "live": "/debug/calls/{blocked}/live",
    "block": "/debug/calls/{blocked}/blocks/0",
    "evidence": "/debug/calls/{judged}/blocks/1/evidence",
    "sessions": "/debug/sessions",
    "session": "/debug/sessions/dev/s-1",
    "session-branches": agent.PAGE,
    "policies": "/debug/policies",
    "policy": "/debug/policies/default",
    "keys": "/debug/keys",
    "key": "/debug/keys/dev",
    "approvals": "/debug/approvals",
    "logs": "/debug/logs",
    "logs-policy": "/debug/policy",
    "integrity": "/debug/integrity",
}
OF_ADMINS = {"reads": "/debug/reads"}


def _is_there(path: str, routes: tuple[Route, ...] = ROUTES) -> bool:
    try:
        find(path.partition("?")[0], routes)
    except PipelineError:
        return False
    return True


OUTSIDE = {
    "login": ("/debug/login?next=/debug/calls", 200),
    "not-found": ("/debug/calls/01a20a86-69b6-7fcf-abde-7a9c0afc5c00", 404),
    "not-understood": ("/debug/calls?nobody=1", 400),
}
"""Pages that are none of the record: the login, and what is said of requests that cannot be
answered; with their status."""
NAMES = [name for name, path in PAGES.items() if _is_there(path)]
ALL_NAMES = [*NAMES, *(name for name, path in OF_ADMINS.items() if _is_there(path))]


def address(name: str, made: Calls) -> str:
    """Return the path of a page."""
    return {**PAGES, **OF_ADMINS}[name].format(**made.ids)
