"""A tab of a browser that notices everything that should not happen: errors in the console,
refusals by the policy of the page, dialogs, requests to elsewhere. `check` says so; each test ends
with it."""

from typing import Any, Self

from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    Response,
)

_QUIET = ("Failed to load resource",)
"""Said of every answer that is not 2xx, which tests ask for themselves."""
_KINDS = """() => { const found = {}; for (const one of document.querySelectorAll('*')) if (!one.matches('span.c')) {
    const kind = one.tagName + '.' + one.getAttribute('class'); found[kind] = (found[kind] || 0) + 1 } return found }"""
_REPORT = (
    "document.addEventListener('securitypolicyviolation', e => console.error('refused: ' +"
    " e.violatedDirective + ' ' + e.blockedURI))"
)


class Tab:
    """One tab. `page` is Playwright's."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.page: Page = context.new_page()
        self.origin = origin
        self.origins: tuple[str, ...] = ()
        """Others that it may ask."""
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.page.add_init_script(_REPORT)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)

    def open(self, path: str, *, status: int = 200) -> Self:
        """Go to a page of ours, by its path, and see that it answers so."""
        answer = self.page.goto(f"{self.origin}{path}")
        assert isinstance(answer, Response) and answer.status == status, (
            path,
            answer and answer.status,
            self.text[:500],
        )
        return self

    def follow(self, link: str | Locator) -> str:
        """Click what leads to another page, wait until all of that is loaded (rows come before the
        links below them), and give its path."""
        with self.page.expect_navigation():
            (self.page.locator(link).first if isinstance(link, str) else link).click()
        return self.path

    def press_to_go(self, key: str) -> str:
        """Press a key that leads to another page, and wait as `follow` does."""
        with self.page.expect_navigation():
            self.page.keyboard.press(key)
        return self.path

    @property
    def path(self) -> str:
        """Where it is now: path, query and fragment."""
        return self.page.url.removeprefix(self.origin)

    @property
    def text(self) -> str:
        """What is written on the page."""
        return self.page.inner_text("body")

    def elements(self) -> int:
        """How many elements there are."""
        return sum(self.kinds().values())

    def kinds(self) -> dict[str, int]:
        """How many elements there are of each name and class, but for those round characters that
        are spelled out."""
        found: dict[str, int] = self.page.evaluate(_KINDS)
        return found

    def evaluate(self, script: str, *given: Any) -> Any:
        """Run a script in the page."""
        return self.page.evaluate(script, *given)

    def check(self) -> None:
        """Raise AssertionError if anything happened that should not."""
        assert not self.faults, (self.path, self.faults)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_QUIET):
            self.faults.append(f"console: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)
        if not request.url.startswith((self.origin, *self.origins)):
            self.faults.append(f"request to elsewhere: {request.url}")
