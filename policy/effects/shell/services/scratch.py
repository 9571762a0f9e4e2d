"""Tells databases and containers that are made for a test from those that hold what somebody needs,
by their names alone.

A name is only what somebody calls a thing, so one of them must say `test`, and none may say
anything that people depend on.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import args_of

if TYPE_CHECKING:
    from policy.effects.shell.commands.findings import Findings

_TESTS = re.compile(
    r"(?i)(?:^|[^a-z])(?:tests?|testing|testdb|ci|e2e|scratch|sandbox|throwaway"
    r"|fixtures?)(?:[^a-z]|\Z)"
)
_NEEDED = re.compile(r"(?i)prod|(?:^|[^a-z])(?:live|main|master|staging|backups?)(?:[^a-z]|\Z)")
_ENVIRONMENTS = frozenset(
    "RAILS_ENV RACK_ENV NODE_ENV APP_ENV MIX_ENV FLASK_ENV DJANGO_SETTINGS_MODULE ENVIRONMENT"
    " COMPOSE_PROJECT_NAME COMPOSE_FILE DATABASE_URL PGDATABASE MYSQL_DATABASE DB_NAME DB_DATABASE"
    " POSTGRES_DB".split()
)
_NAMES = (
    "-d -D --dbname --database --db --env --environment --settings --schema --url --uri".split()
)
_OF_COMPOSE = "-p -f --project-name --file --env-file".split()
"""Options whose value says which database, stack or settings."""
_OTHERS = (
    "-h --host -U -u --user --username -W --password --port -p -P -c -e --eval --command".split()
)
_DROPPED = re.compile(
    r"(?i)\bdrop\s+(?:database|schema)\s+(?:if\s+exists\s+)?[`\"\[]?([\w.-]{1,128})"
)
_ONE_DATABASE = frozenset("dropdb createdb mysqladmin".split())
_STORES = frozenset(
    "psql mysql mariadb mongosh mongo dropdb mysqladmin rails rake prisma flyway liquibase alembic"
    " sequelize sequelize-cli artisan knex mix manage.py django-admin sqlite3 sqlite duckdb"
    " docker podman nerdctl docker-compose podman-compose".split()
)


def is_scratch(command: Command, findings: "Findings", exported: Mapping[str, Word]) -> bool:
    """Is all that a command for databases or containers may delete made for a test, by its name?
    `exported`: variables that were set before it."""
    if command.name not in _STORES:
        return False
    if command.name in ("sqlite3", "sqlite", "duckdb"):
        place = findings.place(command.words[1]) if len(command.words) > 1 else None
        return place is not None and (place.scope == "temp" or _is_test([place.path]))
    of_compose = "compose" in command.name or "compose" in command.texts[:1]
    names = _OF_COMPOSE if of_compose else _NAMES
    args = args_of(command, names if of_compose else [*names, *_OTHERS])
    variables = {**exported, **dict(command.assignments)}
    words = [word for option, word in args.values if option in names]
    words += [variables[name] for name in sorted(_ENVIRONMENTS & variables.keys())]
    if any(word.text is None for word in words):
        return False
    texts = [word.known for word in words]
    operands = [text for text in args.texts if not re.search(r"\s", text)]
    dropped = _DROPPED.findall(f"{command.line} {command.stdin.text}"[:8_192])
    if dropped and dropped != ["public"]:
        return all(_is_test([name]) for name in dropped)
    if command.name in ("docker", "podman", "nerdctl") and not of_compose:
        # each of the volumes
        return len(operands) > 2 and all(_is_test([name]) for name in operands[2:])
    return _is_test([*texts, *operands])


def _is_test(names: Iterable[str]) -> bool:
    named = list(names)
    return any(map(_TESTS.search, named)) and not any(map(_NEEDED.search, named))


def mark(command: Command, findings: "Findings", exported: Mapping[str, Word]) -> None:
    """Give what such a command deletes the scope `scratch`."""
    effects = findings.effects
    if any(e.kind == "delete" and e.scope == "unknown" for e in effects) and is_scratch(
        command, findings, exported
    ):
        findings.effects = [
            msgspec.structs.replace(effect, scope="scratch")
            if effect.kind == "delete" and effect.scope == "unknown"
            else effect
            for effect in effects
        ]


def exports(command: Command) -> dict[str, Word]:
    """The variables of which `is_scratch` asks that a command sets for those behind it."""
    if command.name not in ("", "export"):
        return {}
    return {name: value for name, value in command.assignments if name in _ENVIRONMENTS}
