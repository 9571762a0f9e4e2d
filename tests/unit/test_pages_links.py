"""Links of pages: no value of a client, a model or an operator changes which page a link leads
to."""

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.labels import WORDS
from pages import links, verdicts


@given(st.text(alphabet=st.characters()), st.text(alphabet=st.characters()))
def test_each_value_stays_one_part_of_the_path(key: str, session: str) -> None:
    path = urlsplit(links.session(key, session)).path
    assert path.count("/") == 4 and "\\" not in path
    assert [links.read_part(part) for part in path.split("/")[3:]] == [key, session]


@pytest.mark.parametrize("name", [".", "..", "~", "~..", "%2e%2e", "a/../b"])
def test_dots_are_no_way_up(name: str) -> None:
    part = links.policy(name).removeprefix("/debug/policies/")
    assert part not in ("", ".", "..") and "/" not in part and links.read_part(part) == name


def test_a_block_far_down_names_the_page_that_it_is_on() -> None:
    assert links.place("x", 3) == "/debug/calls/x#b3"
    assert links.place("x", 90, q="a") == "/debug/calls/x?q=a&block=90#b90"


def test_what_lies_below_a_block_is_quoted_part_by_part() -> None:
    assert links.evidence("x", 3, "file", size=2) == "/debug/calls/x/blocks/3/evidence/file?size=2"
    assert (
        links.block("x", 3, "raw", of="reply", step=0)
        == "/debug/calls/x/blocks/3/raw?of=reply&step=0"
    )
    assert links.tab("x", "request", "files", "../a") == "/debug/calls/x/request/files/..%2Fa"
    assert (links.logs(), links.logs("policy")) == ("/debug/logs", "/debug/policy")


def test_each_verdict_and_label_has_a_sign_and_a_word() -> None:
    assert set(verdicts.LABELS) == set(WORDS)
    assert (
        set(verdicts.SIGNS)
        == set(verdicts.WORDS)
        >= {verdict for _, verdict in verdicts.LABELS.values()}
    )
