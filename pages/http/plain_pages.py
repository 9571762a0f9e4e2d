"""Pages for those who are not logged in, and for errors: they show nothing of the record and read
nothing.

Must not know: HTTP except its status codes, logins.
"""

from collections.abc import Mapping, Sequence

from pages.page import PageRequest
from pages.render import render_outside

_TITLES = {
    400: "This cannot be shown",
    403: "Not allowed",
    404: "Not found",
    405: "Not done here",
    408: "Too slow",
    413: "Too large",
    421: "Not our name",
    429: "Too many",
    500: "Something broke",
    503: "The record cannot be read now",
}


def login(next_: str, people_at: str, *, fault: str = "", has_readers: bool = True) -> bytes:
    """Ask for a key, or lead people to their provider by `people_at`, if there is one; `fault` says
    what was wrong before."""
    values = {"next": next_, "people_at": people_at, "fault": fault, "has_readers": has_readers}
    return render_outside("login.html", "Log in", values)


def failed(
    status: int,
    sentence: str,
    error_id: str,
    *,
    asked: PageRequest | None = None,
    doctor: Sequence[Mapping[str, str]] = (),
    again: str = "",
    without: str = "",
    param: str = "",
) -> bytes:
    """Say what went wrong; `error_id` finds it in the log. `asked`: by whom, who then has the links
    of all pages; `doctor`: what it found last; `again`: where to try it again; `without`: the same
    page without the parameter that is wrong, whose name is `param`.
    """
    title = _TITLES.get(status, "This did not work")
    values = {"status": status, "sentence": sentence, "error_id": error_id, "doctor": doctor}
    return render_outside(
        "error.html", title, {**values, "again": again, "without": without, "param": param}, asked
    )


def onward(to: str) -> bytes:
    """Go on to a page of ours, by a request of our own, which carries the cookie."""
    return render_outside("onward.html", "One moment", {"to": to})
