"""A product whose pages people log in to at a provider, and a browser's way there and back."""

import json
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
import yaml

from tests.support.checks.record import fresh_database
from tests.support.clients import packages
from tests.support.clients.node import INSTALL, check_node
from tests.support.oidc.lying import CLIENT
from tests.support.servers.ports import free_port
from tests.support.servers.product import Product, base_config

_HERE = Path(__file__).parent
ROLES = {"readers": ["auditor"], "admins": ["admin"], "deciders": ["approver"]}


def product_with(
    folder: Path, redis_url: str, database_url: str, issuer: str, secret: str, **more: Any
) -> Product:
    """A product that is not started yet."""
    product = Product(folder, redis_url, database_url, base_config())
    (folder / "secret").write_text(f"{secret}\n")
    login = {"issuer": issuer, "client_id": CLIENT, "roles": ROLES}
    login |= {"client_secret_file": str(folder / "secret"), **more}
    config = {**product.config, "pages": {"url": product.url}, "login": {"oidc": login}}
    product.config_file.write_text(yaml.safe_dump(config))
    return product


@contextmanager
def beside_provider(
    folder: Path, redis_url: str, database_url: str
) -> Iterator[tuple[Product, str]]:
    """A gateway and its pages, and the address of the provider of npm that people log in at."""
    check_node()
    installed = packages.installed("oidc", _HERE / "package.json", lambda _: [INSTALL])
    port = free_port()
    issuer = f"http://127.0.0.1:{port}"
    scopes = ["profile", "groups"]
    with (
        TemporaryDirectory(dir=installed) as own,
        fresh_database(database_url) as url,
        product_with(folder, redis_url, url, issuer, "the-client-secret", scopes=scopes) as product,
        (folder / "provider.log").open("w") as log,
    ):
        place = {
            "port": port,
            "redirect_uri": f"{product.url}/debug/login/oidc/done",
            "logout_uri": f"{product.url}/debug/login/oidc/logout",
        }
        # node looks for packages in the folders above the script's
        script = shutil.copy(_HERE / "provider.mjs", own)
        command = ["node", script, json.dumps(place)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as provider:
            try:
                assert provider.stdout is not None
                assert select.select([provider.stdout], [], [], 30)[0], "it does not begin"
                line = provider.stdout.readline()
                assert line == b"ready\n", (folder / "provider.log").read_text()
                product.start("gateway", "pages")
                yield product, issuer
            finally:
                provider.kill()


def asked_of(answer: httpx.Response) -> dict[str, str]:
    """What a browser is sent to the provider with."""
    assert answer.status_code == 303, answer.text
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query, strict_parsing=True))
