"""Commands about a running product."""

import os
import subprocess

from tests.support.clients.commands import run_command
from tests.support.servers.product import ROOT, Product


def run(product: Product, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")} | {
        "SLUICE_DATABASE_URL": product.database_url,
        "SLUICE_CONFIG": str(product.config_file),
        "PYTHONPATH": str(ROOT),
        "SLUICE_PORT": str(product.port),
        "SLUICE_DATA_DIR": str(product.folder / "none"),
    }
    return run_command(*arguments, env=env)
