"""A browser, the product with its pages, and tabs that are logged in. All of it is started once,
because that takes seconds."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser import calls, hostile
from tests.browser.calls import Calls
from tests.support.checks.record import fresh_database
from tests.support.clients import packages
from tests.support.clients.node import INSTALL
from tests.support.clients.packages import missing
from tests.support.servers.product import KEY, Product, base_config, digest
from tests.support.upstreams.judges import JudgeModel, judge_model, judged_by

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: `make browser-test` installs it"
)
from playwright.sync_api import (  # noqa: E402 - behind the look whether it is there
    Browser,
    BrowserContext,
    sync_playwright,
)

from tests.browser.tab import Tab  # noqa: E402 - likewise

ADMIN = "sk-sluice-admin"
WIDE, NARROW = (1280, 860), (390, 844)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    path = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if path is None:
        missing("no chromium on the PATH: `apt-get install chromium fonts-dejavu-core`")
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def judges() -> Iterator[JudgeModel]:
    """A judge model that says what it is told to."""
    with judge_model() as made:
        made.probabilities = [0.9]
        yield made


@pytest.fixture(scope="session")
def product(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str, judges: JudgeModel
) -> Iterator[Product]:
    """The whole product with its pages, the scripted model behind it, and debug logs of what the
    key `dev` calls."""
    folder = tmp_path_factory.mktemp("browser")
    scripts = folder / "scripts"
    scripts.mkdir()
    for name, text in {**calls.scripts(), **hostile.scripts()}.items():
        (scripts / name).write_text(text, encoding="utf-8")
    (folder / "payloads.py").write_text(hostile.POLICY)
    config = judged_by(
        base_config() | {"models": [{"match": "script-*", "upstream": "script"}]}, judges
    )
    config["policies"]["shipped"] = [{"use": "preset", "name": "coding-agent"}]
    config["debug"] = {"loggers": ["transport", "endpoint", "policy", "callback"], "keys": ["dev"]}
    for name in hostile.SERIES:
        config["policies"][name] = [{"use": "payloads:Payloads"}, *config["policies"]["asking"]]
        config["keys"][0]["policies"].append(name)
    # evidence is printed once a checkpoint covers it; at the default of 60 s a test would wait for
    # longer than it may
    config["limits"] = config["limits"] | {"checkpoint_s": 0.5}
    config["keys"].append({"name": "boss", "sha256": digest(ADMIN), "roles": ["admin", "auditor"]})
    with fresh_database(database_url) as url, Product(folder, redis_url, url, config) as made:
        given = {"SLUICE_SCRIPTS_DIR": str(scripts), "SLUICE_POLICY_PATH": str(folder)}
        made.start("audit", "judge", "policy", "pages", "gateway", env=given)
        yield made


@pytest.fixture(scope="session")
def made(product: Product) -> Calls:
    """Calls of each kind, on record."""
    return calls.make(product)


@pytest.fixture(scope="session")
def login(browser: Browser, product: Product) -> Callable[[str], dict[str, object]]:
    """Log in with a key, once a key; returns what a context must hold to be logged in."""
    known: dict[str, dict[str, object]] = {}

    def state(key: str) -> dict[str, object]:
        if key not in known:
            context = browser.new_context()
            page = context.new_page()
            page.goto(f"{product.url}/debug/login?next=/debug/calls")
            page.fill("#key", key)
            page.click("main button")
            page.wait_for_url("**/debug/calls")
            known[key] = dict(context.storage_state())
            context.close()
        return known[key]

    return state


NewTab = Callable[..., Tab]


@pytest.fixture
def new_tab(
    browser: Browser, product: Product, login: Callable[[str], dict[str, object]]
) -> Iterator[NewTab]:
    """Open a tab: `key` logs in (None does not), `js`, `dark`, `size`, `bypass_csp` (for axe
    alone). What happened in each is checked."""
    contexts: list[BrowserContext] = []
    tabs: list[Tab] = []

    def make(
        *,
        key: str | None = KEY,
        js: bool = True,
        dark: bool = False,
        size: tuple[int, int] = WIDE,
        bypass_csp: bool = False,
        zone: str = "UTC",
    ) -> Tab:
        context = browser.new_context(
            java_script_enabled=js,
            color_scheme="dark" if dark else "light",
            viewport={"width": size[0], "height": size[1]},
            bypass_csp=bypass_csp,
            timezone_id=zone,
            storage_state=login(key) if key else None,  # type: ignore[arg-type]
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(10_000)
        contexts.append(context)
        tabs.append(Tab(context, product.url))
        return tabs[-1]

    yield make
    for tab in tabs:
        tab.check()
    for context in contexts:
        context.close()


@pytest.fixture
def tab(new_tab: NewTab) -> Tab:
    """A tab of somebody who is logged in as an auditor."""
    return new_tab()


@pytest.fixture(scope="session")
def axe() -> Path:
    """The file of axe-core."""
    wanted = Path(__file__).with_name("package.json")
    if not shutil.which("npm"):
        missing("npm is missing")
    return (
        packages.installed("axe", wanted, lambda _: [INSTALL])
        / "node_modules"
        / "axe-core"
        / "axe.min.js"
    )
