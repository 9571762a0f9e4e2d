"""A product whose pages people log in to at a provider, and a browser's way there and back."""

from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
import yaml

from tests.support.json_values import Json
from tests.support.oidc.lying import CLIENT
from tests.support.servers.product import Product, base_config

ROLES = {"readers": ["auditor"], "admins": ["admin"], "deciders": ["approver"]}


def product_with(
    folder: Path, redis_url: str, database_url: str, issuer: str, secret: str, **more: Json
) -> Product:
    """A product that is not started yet."""
    product = Product(folder, redis_url, database_url, base_config())
    (folder / "secret").write_text(f"{secret}\n")
    login = {"issuer": issuer, "client_id": CLIENT, "roles": ROLES}
    login |= {"client_secret_file": str(folder / "secret"), **more}
    config = {**product.config, "pages": {"url": product.url}, "login": {"oidc": login}}
    product.config_file.write_text(yaml.safe_dump(config))
    return product


def asked_of(answer: httpx.Response) -> dict[str, str]:
    """What a browser is sent to the provider with."""
    assert answer.status_code == 303, answer.text
    return dict(parse_qsl(urlsplit(answer.headers["location"]).query, strict_parsing=True))
