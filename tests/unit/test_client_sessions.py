"""Which session of its client a call belongs to, by what agents send: the shapes are those of
Claude Code, opencode, Goose and Codex."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.base import Policy
from policy.session.effects import CallInfo
from policy.session.session import Session
from protocol.conversations import sessions
from protocol.conversations.sessions import SessionHeaders
from protocol.records import CallRecord, EventRecord
from protocol.request import ChatRequest
from settings.config import Config
from tests.support.json_values import as_json
from tests.support.worker_calls import call_info

UUID = "b3a2e6b0-3f0c-4c7e-9a55-0e6d1f5a7c11"
CLAUDE = {
    b"user-agent": b"claude-cli/2.1.234 (external, cli)",
    b"x-app": b"cli",
    b"x-claude-code-session-id": UUID.encode(),
}
OLD_USER = f"user_{'0f' * 32}_account_7c1b0a34-0000-4000-8000-000000000000_session_{UUID}"
NEW_USER = json.dumps({"device_id": "0f" * 32, "account_uuid": "", "session_id": UUID})


@pytest.mark.parametrize(
    ("headers", "own", "expected"),
    [
        ({}, "", SessionHeaders()),
        (CLAUDE, "", SessionHeaders(UUID, "x-claude-code-session-id")),
        (CLAUDE, "mine", SessionHeaders("mine", "x-sluice-session")),
        (
            {**CLAUDE, b"x-claude-code-agent-id": b"a9f", b"x-claude-code-parent-agent-id": b"a01"},
            "",
            SessionHeaders(UUID, "x-claude-code-session-id", "a9f", "a01"),
        ),
        (
            {b"agent-session-id": b"20261123_7"},
            "",
            SessionHeaders("20261123_7", "agent-session-id"),
        ),
        (
            {b"x-session-id": b"ses_b", b"x-session-affinity": b"ses_b"},
            "",
            SessionHeaders("ses_b", "x-session-id"),
        ),
        (
            {b"x-session-affinity": b"ses_b", b"x-parent-session-id": b"ses_a"},
            "",
            SessionHeaders("ses_b", "x-session-affinity", "", "ses_a"),
        ),
        ({b"session_id": b"s", b"thread-id": b"s"}, "", SessionHeaders("s", "session_id")),
        (
            {b"session-id": b"s", b"thread-id": b"t", b"x-codex-parent-thread-id": b"s"},
            "",
            SessionHeaders("s", "session-id", "t"),
        ),
        (
            {b"x-claude-code-session-id": b"a\x80", b"session-id": b"s"},
            "",
            SessionHeaders("s", "session-id"),
        ),
        ({b"session-id": b"s" * 201}, "", SessionHeaders()),
        ({b"session-id": b"  "}, "", SessionHeaders()),
    ],
)
def test_headers_of_agents_name_the_session(
    headers: dict[bytes, bytes], own: str, expected: SessionHeaders
) -> None:
    assert sessions.read_headers(headers, own) == expected


@pytest.mark.parametrize(
    ("user", "extra", "expected"),
    [
        (OLD_USER, {"metadata": {"user_id": OLD_USER}}, (UUID, "metadata.user_id")),
        (NEW_USER, {"metadata": {"user_id": NEW_USER}}, (UUID, "metadata.user_id")),
        ("user-7", {"metadata": {"user_id": "user-7"}}, ("", "")),
        ("{" * 4_000, {"metadata": {"user_id": "{" * 4_000}}, ("", "")),
        ('{"session_id":7}', {"metadata": {"user_id": '{"session_id":7}'}}, ("", "")),
        ("{" + " " * 5_000 + "}", {"metadata": {"user_id": "{" + " " * 5_000 + "}"}}, ("", "")),
        # chat/completions: `user` is a person
        (OLD_USER, {}, ("", "")),
        (None, {"metadata": {"session_id": "s-1"}}, ("s-1", "metadata.session_id")),
        (
            None,
            {"metadata": {"session_id": "s" * 201}, "prompt_cache_key": "k"},
            ("k", "prompt_cache_key"),
        ),
        (None, {"metadata": {"session_id": "a\nb"}}, ("", "")),
        (None, {"prompt_cache_key": 7}, ("", "")),
    ],
)
def test_the_body_names_the_session(
    user: str | None, extra: dict[str, object], expected: tuple[str, str]
) -> None:
    assert sessions.of_body(user, extra) == expected


@pytest.mark.slow
@given(
    st.text(),
    st.dictionaries(
        st.sampled_from(["metadata", "prompt_cache_key"]),
        st.recursive(st.text(), lambda x: st.dictionaries(st.text(), x)),
    ),
)
def test_whatever_a_body_says_gives_200_printable_characters_or_nothing(
    user: str, extra: dict[str, object]
) -> None:
    session, source = sessions.of_body(user, extra)
    assert len(session) <= 200 and session.isprintable() and bool(session) == bool(source)


def _begun(
    call: CallInfo, body: dict[str, object], policies: list[Policy] | None = None
) -> tuple[CallRecord, list[EventRecord]]:
    session = Session(call, policies or [], Config())
    session.begin(as_json(body))
    records = session.drain().records
    return next(r for r in records if isinstance(r, CallRecord)), [
        r for r in records if isinstance(r, EventRecord) and r.kind == "identified"
    ]


_CALL = call_info("019b7600-0000-7000-8000-000000000001", "anthropic")
_BODY: dict[str, object] = {
    "model": "demo",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
}


def test_the_session_of_the_body_is_that_of_the_call_and_an_event_says_so() -> None:
    body = {**_BODY, "metadata": {"user_id": NEW_USER}}
    record, (event,) = _begun(_CALL, body)
    assert record.session == UUID
    assert sessions.identified(event.detail) == sessions.Identified("metadata.user_id")
    # a second owner, or one that begins anew, says the same
    assert _begun(_CALL, body) == (record, [event])
    session = Session(_CALL, [], Config())
    session.begin(as_json(body))
    again = session.anew()
    again.begin(as_json(body))
    assert [record, event] == again.drain().records[:2]


def test_policies_are_told_the_session() -> None:
    seen: list[str] = []

    class Looks(Policy):
        """Remembers the session."""

        def on_request(self, request: ChatRequest) -> None:
            """Take it."""
            seen.append(self.context.session)

    _begun(_CALL, {**_BODY, "metadata": {"user_id": OLD_USER}}, [Looks()])
    assert seen == [UUID]


def test_a_header_goes_before_the_body() -> None:
    call = msgspec.structs.replace(
        _CALL, session="h", source="x-claude-code-session-id", agent="a", parent="b"
    )
    record, (event,) = _begun(call, {**_BODY, "metadata": {"user_id": NEW_USER}})
    assert record.session == "h"
    assert sessions.identified(event.detail) == sessions.Identified(
        "x-claude-code-session-id", "a", "b"
    )


def test_what_is_no_detail_says_nothing() -> None:
    assert sessions.identified("") == sessions.identified('{"source":1}') == sessions.Identified("")


@pytest.mark.parametrize(
    ("source", "user_agent", "program"),
    [
        ("x-claude-code-session-id", "", "Claude Code"),
        ("prompt_cache_key", "OpenAI/Python 1.2", "OpenAI"),
        ("", "aider/0.8 x", "aider"),
        ("", "", ""),
    ],
)
def test_the_program_is_known_by_the_header_or_its_user_agent(
    source: str, user_agent: str, program: str
) -> None:
    assert sessions.program(source, user_agent) == program
