"""Which packages the wheel carries; all else about it stands in pyproject.toml."""

from setuptools import find_packages, setup

TOP = (
    *("db", "demo", "gateway", "pages", "policy", "protocol", "providers", "settings", "sluice"),
    *("streams", "workers"),
)
SCRIPTS = {"db.scripts": "alembic", "db.scripts.versions": "alembic/versions"}
"""The migrations travel in the wheel as db/scripts: a top-level `alembic` there would mix with the
library of that name."""

setup(
    packages=[
        *find_packages(include=[name for top in TOP for name in (top, f"{top}.*")]),
        *SCRIPTS,
    ],
    package_dir=SCRIPTS,
)
