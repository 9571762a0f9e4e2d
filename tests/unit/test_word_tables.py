"""Tables of words that stand as text."""

from policy.word_tables import by_word


def test_each_word_of_a_row_has_what_stands_behind_it() -> None:
    table = """
psql pgcli : postgres
mysql :
    mysql or
    mariadb
plain :
"""
    assert by_word(table) == {
        "psql": "postgres",
        "pgcli": "postgres",
        "mysql": "mysql or mariadb",
        "plain": "",
    }
