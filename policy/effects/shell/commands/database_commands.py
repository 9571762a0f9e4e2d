"""Database clients: their SQL, and commands that empty or drop without any."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from policy.effects.effect import Kind
from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args, args_of
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows
from policy.effects.sql_effects import read_sql
from policy.effects.sql_functions import SqlEffect
from policy.word_tables import by_word
from protocol.bounds import MAX_SQL_CHARS

_DIALECTS = by_word("""
psql pgcli cockroach cqlsh isql usql dbcli : postgres
mysql mariadb mycli : mysql
sqlite3 sqlite litecli : sqlite
sqlcmd tsql bcp : tsql
clickhouse-client clickhouse : clickhouse
duckdb : duckdb
bq : bigquery
snowsql : snowflake
presto : presto
trino : trino
hive beeline impala-shell : hive
spark-sql : spark
sqlplus : oracle
athena : athena
""")
"""Dialects by the names of clients."""
_MAX_SQL_TOKENS = 200
"""Of all SQL in one shell text: the parser takes some 50 microseconds for each."""
_TOKENS_A_TEXT = 8
"""What reading a text takes besides its tokens, counted in them."""
_TOKENS = re.compile(r"\w+|[^\w\s]")
_VALUED = tuple(
    """-c -e -d -h -P -U -u -f -o -v -q -Q -F -R -i -S -D --command --execute --eval --query --dbname --host --port --username
    --user --file --database --password -cmd --output --init-file
    --use_legacy_sql --format""".split()
)
_OF_FILES = ("sqlite3", "sqlite", "duckdb", "litecli")
_OF_FILES_VALUED = "-cmd -init -separator -nullvalue -newline -mmap -vfs -maxsize -c -s -f".split()
"""Their long options have one dash: `sqlite3 -column` is no `-c`."""
_NOT_LOADED = re.compile(
    r"(?is)\b(?:drop|truncate)\s+(?:table|database|schema|index|view|user|role|tablespace"
    r"|keyspace)\b|"
    r"\bdelete\s+from\b(?!.*\bwhere\b)|\btruncate\s+\w+"
)
_BEGINS = re.compile(r"\s*[A-Za-z]+\s")
"""What is known of a statement says what it does; a variable in it is a value or a name."""
_META = re.compile(
    r"(?m)^[^\S\n]*(?:\\(?:!|o\s*\||g\s*\||w\s*\||copy\b.*\b(?:program|to)\b)|\.(?:shell|system|sh"
    r"|excel|output\s*\||once\s*\||"
    r"load)\b|system\b|source\b|!|\\\!|--\s*!)\s*(.*)"
)
_OF_SQL: dict[Kind, tuple[SqlEffect, ...]] = {
    "write": ("write", "schema"),
    "execute": ("execute",),
    "privilege": ("privilege", "catalogue"),
    "read": ("read",),
}
_CLIENT_LINE = re.compile(r"(?m)^[^\S\n]*(?:\\|\.\w).*\n?")
"""A line for the client, not for the server."""


def _sql_client(command: Command, args: Args, findings: Findings) -> None:
    name = command.name
    is_file = name in _OF_FILES
    # a password may stick to its option: `mysql -phunter2`
    words = tuple(word for word in command.words if not re.match(r"-p\S", word.known))
    args = args_of(
        msgspec.structs.replace(command, words=words),
        _OF_FILES_VALUED if is_file else _VALUED,
        single=is_file,
    )
    texts = [*args.all("-c|--command|-e|--execute|-q|-Q|--query|-cmd")]
    if is_file or name == "bq":
        texts += args.operands[1:]
        findings.read(*args.operands[:1])
    if not is_file:
        findings.ask(*args.all("-h|-S|--host"))
    findings.read(*args.all("-f|--file|-i|--init-file"))
    findings.write(*args.all("-o|--output"))
    if command.stdin.kind == "text":
        texts.append(Word(command.stdin.text))
    for text in texts:
        sql(text, _DIALECTS.get(name, "postgres"), findings)


def sql(word: Word, dialect: str, findings: Findings) -> None:
    """Add what a text of SQL does."""
    text = word.filled("x") if _BEGINS.match(word.prefix) else word.text
    if text is None:
        findings.unsure.append("language: SQL that is not known")
        if _NOT_LOADED.search(word.bare[:2000]):
            findings.add("delete", "unknown", word.bare, wide=True)
        return
    for escape in _META.finditer(text):
        # `source FILE` runs statements, the others programs
        findings.add(
            "execute",
            "project" if escape[0].strip().startswith("source") else "unknown",
            escape[0].strip(),
        )
    text = _CLIENT_LINE.sub("", text).strip()
    if not text:
        return
    findings.earlier.sql_read[0] += _TOKENS_A_TEXT + (
        len(_TOKENS.findall(text)) if len(text) <= MAX_SQL_CHARS else _MAX_SQL_TOKENS
    )
    if findings.earlier.sql_read[0] > _MAX_SQL_TOKENS:
        findings.unsure.append("size: more SQL than is read")
        return
    reading = read_sql(text, dialect)
    short = " ".join(text.split())[:100]
    effects = reading.effects
    if "delete" in effects or "unbounded" in effects:
        is_wide = "unbounded" in effects or "schema" in effects
        findings.add("delete", "unknown", short, wide=is_wide)
    for kind, of_sql in _OF_SQL.items():
        if not effects.isdisjoint(of_sql):
            is_served = kind == "write" and findings.command.name not in _OF_FILES
            findings.add(kind, "service" if is_served else "unknown", short)
    if "file" in effects:
        findings.add("read", "credentials", short)
    if reading.unsure:
        if _NOT_LOADED.search(text[:2000]):
            findings.add("delete", "unknown", short, wide=True)
        findings.unsure.append("language: SQL that cannot be read")


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(_DIALECTS, _sql_client),
    **rows(r"""
NEEDED := (?i)config\s+set\s+(?:dir|dbfilename)|module\s+load|role grant|auth\s+disable|slaveof
        |acl setuser
ENDS := (?i)\b(?:shutdown|stop)\b
FLUSHED := '(?is)\bflush(?:all|db)(?:\s+a?sync)?\s*\Z'
THERE := (?i)(?!(?:rediss?://)?(?:[^@/]*@)?(?:localhost|127\.\d|\[?::1|0\.0\.0\.0)).*

redis-cli : -h --host -p -a -u -n
    + -> host -h|--host|-u
    + line~--rdb -> prints-much
    input~<FLUSHED> here !line~--cluster !-h|--host|-u=<THERE> -> delete loopback {line}
    !input~'(?i)\b(?:flushall|flushdb|shutdown|config\s+set\s+(?:dir|dbfilename|requirepass|slave-read-only|protected-mode)|slaveof|replicaof|module\s+load|script\s+flush|debug\s+segfault|acl\s+setuser|del\s+\*|--scan.*\bdel)\b'
        -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
valkey-cli : -h --host -p -a -u -n
    + -> host -h|--host|-u
    + line~--rdb -> prints-much
    input~<FLUSHED> here !line~--cluster !-h|--host|-u=<THERE> -> delete loopback {line}
    !input~'(?i)\b(?:flushall|flushdb|shutdown|config\s+set|slaveof|replicaof|module\s+load)\b' ->
        nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
cypher-shell mgconsole : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)\bmatch\s*\(\s*\w*(?::\w+)?\s*\)(?:(?!where\b|\{).){0,200}?\bdelete\b|\bdrop\s+(?:database|alias|user|role|constraint|index)\b|\bapoc\.(?:schema\.assert|periodic\.|cypher\.run|load\.)'
        -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
keydb-cli : -h --host -p -a -u -n
    + -> host -h|--host|-u
    + line~--rdb -> prints-much
    input~<FLUSHED> here !line~--cluster !-h|--host|-u=<THERE> -> delete loopback {line}
    !input~'(?i)\b(?:flushall|flushdb|shutdown)\b' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
mongo mongosh : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)drop(?:Database|Indexes?|User|Role|AllUsers\w*|AllRoles\w*)?\s*\(|deleteMany\s*\(\s*\{\s*\}|remove\s*\(\s*\{?\s*\}?\s*\)|shutdownServer|updateMany\s*\(\s*\{\s*\}'
        -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
etcdctl : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)\bdel\b.*(?:--prefix|--from-key|\s[\x27\"]{2})|member remove|auth disable|user delete|role grant'
        -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
rabbitmqctl : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)\b(?:reset|force_reset|delete_vhost|delete_queue|purge_queue|stop|delete_user)\b' ->
        nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
influx : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)drop\s+(?:database|measurement|series)|\bdelete\b' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
kafka-topics kafka-topics.sh : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'--delete' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
zkcli.sh zkcli : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)deleteall|rmr' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
nodetool : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)\b(?:decommission|removenode|clearsnapshot|assassinate|stopdaemon)\b' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
mysqladmin : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)\b(?:drop|shutdown)\b' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
pg_ctl : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?i)\bstop\b.*(?:immediate|fast)|-m\s*immediate' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
pg_resetwal pg_dropcluster : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'.' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
dropdb : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'^(?!.*(?:--help|-V))' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
dropuser : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'^(?!.*--help)' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
mongorestore : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'--drop' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
pg_restore : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'(?:-c\b|--clean)' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
rails : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'db:(?:drop|reset|purge|truncate\w*|schema:load|seed:replant)' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
rake : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'db:(?:drop|reset|purge|truncate\w*|schema:load)' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
prisma : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'migrate reset|db push.*(?:--force-reset|--accept-data-loss)' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
flyway : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'\bclean\b' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
liquibase : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'\bdrop-?all\b' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
alembic : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'downgrade base' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
sequelize sequelize-cli : -h --host -p -a -u -n
    + -> host -h|--host|-u
    + line~--rdb -> prints-much
    input~<FLUSHED> here !line~--cluster !-h|--host|-u=<THERE> -> delete loopback {line}
    !input~'db:drop|undo:all' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
artisan : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'migrate:(?:fresh|reset|refresh)|db:wipe' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
knex : -h --host -p -a -u -n
    + -> host -h|--host|-u
    !input~'rollback --all' -> nothing
    input~'<NEEDED>' -> privilege system {line} wide
    input~<ENDS> -> process system {line} wide
    -> delete unknown {line} wide
createuser
    -s|--superuser|-r|--createrole|-d|--createdb -> privilege unknown {line}
manage.py django-admin
    + line~'\b(?:flush|reset_db|sqlflush\s*\||migrate \w+ zero)\b' !w1=sqlflush -> delete unknown
        {line} wide
    -> execute project {line}
pg_dump pg_dumpall mysqldump mariadb-dump mongodump mongoexport pg_basebackup redis-dump mysqlpump mydumper
        : -f --file -h --host -U -u -d --result-file -r -o --out --archive -P -n -t --dbname
    -> writes -f|--file|--result-file|-r|-o|--out ; host -h|--host ; prints-much
"""),
}
"""A dump holds all rows of a database: sent away it is as bad as a key."""


# -- what is made for a test, by its name: one name must say `test`, and none may say anything that
# people depend on

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
_TAKES_AWAY = re.compile(r"(?i)\b(?:drop|truncate|delete)\b")
_MAY_BE_SCRATCH = frozenset(
    "psql mysql mariadb mongosh mongo dropdb mysqladmin rails rake prisma flyway liquibase alembic"
    " sequelize sequelize-cli artisan knex mix manage.py django-admin sqlite3 sqlite duckdb"
    " docker podman nerdctl docker-compose podman-compose".split()
)


def is_scratch(command: Command, findings: Findings, exported: Mapping[str, Word]) -> bool:
    """Is all that a command for databases or containers may delete made for a test, by its name?
    `exported`: variables that were set before it."""
    if command.name not in _MAY_BE_SCRATCH:
        return False
    if command.name in ("sqlite3", "sqlite", "duckdb"):
        if ":memory:" in command.texts:
            return True
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
    statements = f"{command.line} {command.stdin.text}"[:8_192]
    dropped = _DROPPED.findall(statements)
    if dropped and len(_TAKES_AWAY.findall(statements)) > len(dropped):
        # the name of one says nothing of what else goes
        return False
    if dropped and dropped != ["public"]:
        return all(_is_test([name]) for name in dropped)
    if command.name in ("docker", "podman", "nerdctl") and not of_compose:
        # each of the volumes
        return len(operands) > 2 and all(_is_test([name]) for name in operands[2:])
    return _is_test([*texts, *operands])


def _is_test(names: Iterable[str]) -> bool:
    named = list(names)
    return any(map(_TESTS.search, named)) and not any(map(_NEEDED.search, named))


def mark(command: Command, findings: Findings, exported: Mapping[str, Word]) -> None:
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
