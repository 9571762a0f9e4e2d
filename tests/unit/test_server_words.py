"""What a log says of PostgreSQL's errors: its own words, and nothing of a row."""

import psycopg
import pytest

from db.connections import conninfo
from db.state.postgres_errors import server_words
from protocol.errors import AuditUnavailable


def caused_by(error: BaseException) -> AuditUnavailable:
    made = AuditUnavailable("the audit log cannot be written now")
    made.__cause__ = error
    return made


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT 'canary'::int", "(SQLSTATE 22P02)"),
        (
            "INSERT INTO one VALUES (7, 'canary')",
            'duplicate key value violates unique constraint "one_pkey" (SQLSTATE 23505)',
        ),
        ("INSERT INTO one VALUES (8, '')", "(SQLSTATE 23514)"),
        (
            "INSERT INTO one VALUES (NULL, 'canary')",
            (
                'null value in column "n" of relation "one" violates not-null constraint (SQLSTATE'
                " 23502)"
            ),
        ),
        ("SELECT * FROM no_such_table", 'relation "no_such_table" does not exist (SQLSTATE 42P01)'),
    ],
)
def test_the_servers_message_is_in_the_log_and_no_row_is(
    url: str, statement: str, words: str
) -> None:
    with psycopg.connect(conninfo(url), autocommit=True) as connection:
        connection.execute("CREATE TABLE one (n int PRIMARY KEY, t text CHECK (t <> ''))")
        connection.execute("INSERT INTO one VALUES (7, 'canary')")
        with pytest.raises(psycopg.Error) as failed:
            connection.execute(statement.encode())
    assert server_words(caused_by(failed.value)) == words


def test_a_server_that_is_away_is_named_and_a_sentence_of_ours_stays() -> None:
    with pytest.raises(psycopg.OperationalError) as failed:
        psycopg.connect("host=127.0.0.1 port=1 password=canary connect_timeout=2")
    said = server_words(caused_by(failed.value))
    assert "refused" in said and "canary" not in said
    assert server_words(AuditUnavailable("too slow")) == "too slow"
