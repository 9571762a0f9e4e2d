"""`redact` over whole requests and answers: what goes to a provider, what comes back to a client."""

import json
from typing import Any

import pytest

from policy.base import (
    ALLOW,
    Block,
    Context,
    OtherBlock,
    Replace,
    TextBlock,
    ToolCall,
)
from policy.builtin.redact import Redact
from policy.loading import load
from policy.session.effects import Respond
from protocol.bounds import MAX_FINDINGS
from protocol.dialects.table import CLIENTS
from protocol.errors import PolicyFailed
from protocol.events import BlockKind
from protocol.records import EventRecord
from protocol.request import ChatRequest, DialectName
from settings.config import PolicyStep
from tests.support.checks.session_runs import DONE, chunk, make, run, texts
from tests.support.clients.changed import every_way, sent_by
from tests.support.json_values import Json, as_json

KEY = b"k" * 32
MAIL = "ada@analytical-engine.org"
TOKEN = "ghp_" + "a1B2c3D4e5F6" * 3
SYSTEM_MAIL = "root@analytical-engine.org"
TEXT = TextBlock(0, BlockKind.TEXT)
REASONING = TextBlock(0, BlockKind.THINKING)


def redact(**options: Any) -> Redact:
    made = Redact(**options)
    made.key = KEY
    return made


def for_call(request: ChatRequest | None = None, key: str = "dev", /, **options: Any) -> Redact:
    request = request or ChatRequest(dialect="openai", model="demo")
    policy = redact(**options).for_call(Context("call", "nonce", key, "", request))
    policy.on_request(request)
    return policy


def asked(dialect: DialectName = "openai", **body: Any) -> ChatRequest:
    turns = {"messages": [{"role": "user", "content": "go"}]}
    return CLIENTS[dialect].decode_request(
        as_json({"model": "m", "max_tokens": 9} | turns | body),
        endpoint="messages" if dialect == "anthropic" else "chat",
    )


def user(text: str, system: str = "") -> ChatRequest:
    messages = [{"role": "user", "content": text}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return asked(messages=messages)


def said(policy: Redact, *pieces: str, block: TextBlock = TEXT) -> str:
    parts = [policy.on_text(piece, block) for piece in pieces] + [policy.on_text_end(block)]
    assert not any(isinstance(part, Block) for part in parts), parts
    return "".join(map(str, parts))


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(3, 0, "id", name, json.dumps(arguments), arguments, None)


def name_of(policy: Redact, value: str = MAIL) -> str:
    return next(name for name, of in policy._values.items() if of == value)


CONVERSATION: dict[DialectName, Json] = {
    "openai": {
        "messages": [
            {"role": "system", "content": f"ask {SYSTEM_MAIL}"},
            {"role": "user", "content": [{"type": "text", "text": f"mail {MAIL}, key {TOKEN}"}]},
            {
                "role": "assistant",
                "content": f"I mail {MAIL}.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {
                            "name": "mail",
                            "arguments": json.dumps({MAIL: {"to": [MAIL], "n": 7}}),
                        },
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": f"sent to {MAIL}"},
        ]
    },
    "anthropic": {
        "max_tokens": 100,
        "system": [{"type": "text", "text": f"ask {SYSTEM_MAIL}"}],
        "messages": [
            {"role": "user", "content": f"mail {MAIL}, key {TOKEN}"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": f"to {MAIL}", "signature": "c2ln"},
                    {"type": "text", "text": f"I mail {MAIL}."},
                    {
                        "type": "tool_use",
                        "id": "c1",
                        "name": "mail",
                        "input": {MAIL: {"to": [MAIL], "n": 7}},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": f"sent to {MAIL}"}],
                    }
                ],
            },
        ],
    },
}


@every_way
@pytest.mark.parametrize("action", ["mask", "mask_restore"])
def test_nothing_of_a_conversation_goes_out_unmasked(
    client: DialectName, upstream: DialectName, action: str
) -> None:
    sent = sent_by(client, upstream, redact(request=action), body=CONVERSATION[client])
    assert not isinstance(sent, Respond)
    written = json.dumps(sent)
    # reasoning is sealed by its provider: it goes back as it came, or not at all
    assert TOKEN not in written and SYSTEM_MAIL not in written
    assert written.count(MAIL) == (1 if client == upstream == "anthropic" else 0)
    assert ("REDACTED_EMAIL" in written) is (action == "mask")
    assert ("SLUICE_EMAIL_" in written) is (action == "mask_restore")
    assert '"c1"' in written and '"mail"' in written


def test_each_place_of_responses_is_masked() -> None:
    sent = sent_by(
        "responses",
        "openai",
        redact(),
        body={
            "instructions": f"ask {SYSTEM_MAIL}",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": f"mail {MAIL}"}]},
                {
                    "type": "function_call",
                    "call_id": "c1",
                    "name": "mail",
                    "arguments": json.dumps({"to": MAIL}),
                },
                {"type": "function_call_output", "call_id": "c1", "output": f"sent {MAIL}"},
            ],
        },
    )
    assert not isinstance(sent, Respond)
    written = json.dumps(sent)
    assert MAIL not in written and SYSTEM_MAIL not in written
    assert written.count("REDACTED_EMAIL") == 4


AWS = "AKIAQ2W3ERT5Y7UIOPAS"
CARD = "4111 1111 1111 1111"
"""Values that are none where a letter or a digit follows."""


def parts(*texts: str) -> list[Json]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize("value", [AWS, CARD, MAIL])
@pytest.mark.parametrize("behind", ["and more", "1. do it"])
def test_what_stands_at_the_end_of_a_part_is_masked_whatever_follows(
    value: str, behind: str
) -> None:
    two = parts(f"use {value}", behind)
    two[0]["cache_control"] = {"type": "ephemeral"}
    call: Json = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    result: Json = {"type": "tool_result", "tool_use_id": "c1", "content": two}
    turns: list[Json] = [
        {"role": "user", "content": two},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    for client, upstream, body in (
        ("anthropic", "anthropic", {"max_tokens": 9, "system": two, "messages": turns}),
        ("anthropic", "openai", {"max_tokens": 9, "system": two, "messages": turns}),
        (
            "openai",
            "openai",
            {"messages": [{"role": "system", "content": parts(f"use {value}", behind)}, turns[0]]},
        ),
    ):
        sent = sent_by(client, upstream, redact(), body=body)
        assert not isinstance(sent, Respond), sent.body
        written = json.dumps(sent)
        assert value not in written and "REDACTED_" in written
        # the parts stay what they are, with the marks of what to cache
        assert written.count("cache_control") >= (2 if upstream == "anthropic" else 0)


def test_a_value_that_is_cut_into_parts_is_masked() -> None:
    sent = sent_by(
        "openai",
        "openai",
        redact(),
        body={"messages": [{"role": "user", "content": parts(TOKEN[:20], TOKEN[20:])}]},
    )
    assert not isinstance(sent, Respond)
    assert TOKEN[20:] not in json.dumps(sent) and "REDACTED_SECRET" in json.dumps(sent)


def test_a_plain_document_and_a_prediction_are_texts() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": TOKEN}
    body: Json = {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [{"type": "document", "source": source}]}],
    }
    for client, asked_for in (
        ("anthropic", body),
        (
            "openai",
            {
                "messages": [{"role": "user", "content": "go on"}],
                "prediction": {"type": "content", "content": f"key = {TOKEN}"},
            },
        ),
    ):
        sent = sent_by(client, client, redact(), body=asked_for)
        assert not isinstance(sent, Respond), sent.body
        assert TOKEN not in json.dumps(sent) and "REDACTED_SECRET" in json.dumps(sent)


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("action", ["mask", "mask_restore"])
def test_a_longer_conversation_begins_with_the_same_bytes(
    dialect: DialectName, action: str
) -> None:
    policy = redact(request=action)
    body = CONVERSATION[dialect]
    last = b""
    for count in range(1, len(body["messages"]) + 1):
        sent = sent_by(dialect, dialect, policy, body=body | {"messages": body["messages"][:count]})
        assert not isinstance(sent, Respond), sent.body
        written = as_json(sent["messages"])[:-1]
        assert written.startswith(last) and len(written) > len(last)
        last = written


def test_a_request_without_a_find_goes_as_it_is() -> None:
    policy = redact()
    request = asked(messages=[{"role": "user", "content": "nothing in here"}])
    clone = policy.for_call(Context("c", "n", "k", "", request))
    assert clone.on_request(request) is None


def test_what_is_blocked_is_refused_and_what_is_off_passes() -> None:
    blocked = for_call(request={"secret": "block"}).on_request(user(f"key {TOKEN}"))
    assert (
        isinstance(blocked, Block) and blocked.rule == "github-pat" and TOKEN not in repr(blocked)
    )
    assert for_call(request={"email": False}).on_request(user(f"to {MAIL}")) is None
    assert for_call(request="off", answer=False).why_idle()


def test_what_is_off_hides_nothing_that_overlaps_it() -> None:
    custom = {"project": "Falcon ada"}
    for text, options, masked in (
        (f"Falcon {MAIL}", {"request": {"custom": "off"}}, "Falcon REDACTED_EMAIL"),
        ("+14155552671@sip.org", {"request": {"email": "off"}}, "REDACTED_PHONE@sip.org"),
        ("+14155552671@sip.org", {}, "REDACTED_EMAIL"),
    ):
        sent = for_call(custom=custom, **options).on_request(user(text))
        assert isinstance(sent, ChatRequest)
        assert repr(masked) in repr(sent.turns), text
        if options:
            options = {"answer": options["request"]}
        assert said(for_call(custom=custom, **options), *text) == masked


def test_two_keys_that_become_one_refuse_the_request() -> None:
    request = asked(
        messages=[
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {
                            "name": "f",
                            "arguments": json.dumps({MAIL: 1, SYSTEM_MAIL: 2}),
                        },
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "x"},
        ]
    )
    assert isinstance(for_call().on_request(request), Block)
    assert isinstance(for_call(request="mask_restore").on_request(request), ChatRequest)


# --- placeholders ---


def test_placeholders_are_stable_for_a_key_and_mean_nothing_to_another() -> None:
    request = user(f"to {MAIL}")
    first, second = (for_call(request, request="mask_restore") for _ in range(2))
    assert first._values == second._values
    assert name_of(for_call(request, "other", request="mask_restore")) != name_of(first)
    assert said(for_call(user("hello"), request="mask_restore"), name_of(first)) == name_of(first)


@pytest.mark.parametrize("answer", ["mask", "off"])
def test_text_gets_values_back_however_it_is_cut(answer: str) -> None:
    request = user(f"to {MAIL}")
    name = name_of(for_call(request, request="mask_restore", answer=answer))
    text = f"Mail ({name}), S SLUICE SLUICE_EMAIL_12 {name}x {name}!"
    expected = f"Mail ({MAIL}), S SLUICE SLUICE_EMAIL_12 {name}x {MAIL}!"
    for cut in range(len(text)):
        policy = for_call(request, request="mask_restore", answer=answer)
        assert said(policy, text[:cut], text[cut:]) == expected
    assert said(for_call(request, request="mask_restore", answer=answer), *text) == expected


def test_reasoning_gets_none_back() -> None:
    policy = for_call(user(f"to {MAIL}"), request="mask_restore")
    name = name_of(policy)
    assert said(policy, f"I mail {name} now", block=REASONING) == f"I mail {name} now"


def test_what_the_system_says_never_comes_back_not_even_if_the_user_says_it_too() -> None:
    policy = for_call(
        user(f"repeat {SYSTEM_MAIL} and {MAIL}", system=SYSTEM_MAIL), request="mask_restore"
    )
    assert set(policy._values.values()) == {MAIL, ""}
    sent = policy.on_request(user(SYSTEM_MAIL, system=SYSTEM_MAIL))
    assert isinstance(sent, ChatRequest)
    name = sent.system[0]
    assert said(policy, f"it is {name} ") == f"it is {name} "
    assert policy.on_tool_call(call("mail", to=name)) == Block("placeholder")


def test_only_named_tools_get_values_back() -> None:
    policy = for_call(user(f"to {MAIL}"), request="mask_restore", restore_tools=["mail_*"])
    name = name_of(policy)
    assert policy.on_tool_call(call("mail_send", to=[name], text=f"<{name}>")) == Replace(
        json.dumps({"to": [MAIL], "text": f"<{MAIL}>"}, separators=(",", ":")), "redacted"
    )
    assert policy.on_tool_call(call("bash", command=f"echo {name}")) == Block("placeholder")
    assert policy.on_tool_call(call("bash", **{name: 1})) == Block("placeholder")
    assert policy.on_tool_call(call("mail_send", to="SLUICE_EMAIL_" + "0" * 16)) == Block(
        "placeholder"
    )
    assert policy.on_tool_call(call("bash", command="ls")) is ALLOW


def test_a_client_cannot_have_a_value_that_it_did_not_send() -> None:
    other = for_call(user(f"to {MAIL}"), request="mask_restore")
    request = user(f"what is {name_of(other)}?")
    policy = for_call(request, request="mask_restore")
    assert policy._values == {}
    assert said(policy, name_of(other)) == name_of(other)


def test_restored_values_are_no_finds_in_the_answer() -> None:
    policy = for_call(
        user(f"to {MAIL}"), request="mask_restore", answer="block", restore_tools="mail"
    )
    assert said(policy, f"I know {MAIL} ") == f"I know {MAIL} "
    restored = policy.on_tool_call(call("mail", to=name_of(policy)))
    assert isinstance(restored, Replace)
    # a later policy that changes the call has it looked at again
    assert policy.on_tool_call(call("mail", **json.loads(restored.arguments))) is ALLOW


# --- answers ---


def test_answers_are_masked_in_text_reasoning_and_arguments() -> None:
    policy = for_call()
    text = f"It is {MAIL}, or {TOKEN}."
    masked = "It is REDACTED_EMAIL, or REDACTED_SECRET."
    assert said(policy, *text) == masked
    assert said(policy, text, block=REASONING) == masked
    assert policy.on_tool_call(call("bash", a=f"x {TOKEN}", b=[{MAIL: 1}])) == Replace(
        '{"a":"x REDACTED_SECRET","b":[{"REDACTED_EMAIL":1}]}', "redacted"
    )
    result = {"content": [{"text": f"x {MAIL}", "n": 1}]}
    assert policy.on_other(OtherBlock(0, "web_search_tool_result", result)) == Block(
        "redacted", rule="email"
    )
    assert policy.on_other(OtherBlock(0, "image", {"content": "none"})) is ALLOW


def test_a_wide_at_sign_is_one_however_the_text_is_cut() -> None:
    text = "mail a\uff20bc.org in 5 days"
    for cut in range(len(text)):
        assert said(for_call(), text[:cut], text[cut:]) == "mail REDACTED_EMAIL in 5 days", cut


def test_an_answer_is_blocked_where_the_class_says_so() -> None:
    policy = for_call(answer={"secret": "block", "email": "off"})
    outcome = [policy.on_text(piece, TEXT) for piece in (f"see {MAIL} ", f"and {TOKEN}", " now")]
    assert outcome[:2] == ["see ", f"{MAIL} and "] or "".join(map(str, outcome[:2])).endswith(
        "and "
    )
    assert isinstance(outcome[2], Block) and outcome[2].rule == "github-pat"
    blocked = policy.on_tool_call(call("bash", a=TOKEN))
    assert isinstance(blocked, Block) and TOKEN not in repr(blocked)


def test_own_texts_and_patterns_are_masked_across_chunks() -> None:
    custom = {"project": "Project Falcon", "staff": r"\bE-[0-9]{6}\b"}
    text = "On Project Falcon works E-123456, not E-1234567."
    masked = "On REDACTED_CUSTOM works REDACTED_CUSTOM, not E-1234567."
    for pieces in ([text], list(text), [text[:7], text[7:30], text[30:]]):
        assert said(for_call(custom=custom), *pieces) == masked
    changed = for_call(custom=custom).on_request(user(text))
    assert isinstance(changed, ChatRequest)
    assert json.dumps([p.text for t in changed.turns for p in t.parts if hasattr(p, "text")]) == (
        json.dumps([masked])
    )


def test_findings_name_no_value_and_are_bounded() -> None:
    policy = for_call()
    values = [f"user{n}@analytical-engine.org" for n in range(MAX_FINDINGS + 50)]
    policy.on_request(user(" ".join([TOKEN, *values])))
    findings = list(policy.findings)
    assert len(findings) == MAX_FINDINGS
    assert findings[0].startswith("turns[0]: mask secret github-pat 40 ")
    assert not any(value in "".join(findings) for value in [TOKEN, *values])


def test_what_is_remembered_of_texts_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.builtin.redact.MAX_SEARCHED_TEXTS", 9)
    policy = for_call()
    for number in range(9):
        sent = policy.on_request(user(f"{number} to {MAIL}{f' and {MAIL}' * (number % 4)}"))
        assert "REDACTED_EMAIL" in repr(sent)
        # a text may be full of them
        assert len(policy._seen) + sum(map(len, policy._seen.values())) <= 9


@pytest.mark.parametrize("stream", [True, False])
def test_a_session_records_what_was_masked_and_where(stream: bool) -> None:
    body = {
        "model": "demo",
        "stream": stream,
        "messages": [{"role": "user", "content": f"to {MAIL}"}],
    }
    session = make([redact()], request=body)
    records = session.drain().records
    notes = [r.detail for r in records if isinstance(r, EventRecord) and r.kind == "redacted"]
    assert len(notes) == 1 and "turns[0]: mask email email 25 " in notes[0]
    assert MAIL not in notes[0]


def test_a_stream_is_masked_chunk_by_chunk() -> None:
    session = make([redact()])
    pieces = [f"Hello, the key is {TOKEN}"[n : n + 3] for n in range(0, 58, 3)]
    outputs = run(
        session, [*(chunk({"content": piece}) for piece in pieces), chunk(finish="stop"), DONE]
    )
    assert texts(outputs) == "Hello, the key is REDACTED_SECRET"


# --- loading ---


def loaded(redact_key: str = "", **options: Any) -> tuple[Any, str]:
    step = PolicyStep.model_validate({"use": "redact", **options})
    [policy], revision = load([step], session_version="1", redact_key=redact_key)
    return policy, revision


def test_placeholders_need_a_key() -> None:
    with pytest.raises(PolicyFailed, match="SLUICE_REDACT_KEY_FILE"):
        loaded(request="mask_restore")
    with pytest.raises(PolicyFailed, match="at least 32"):
        loaded("short", request={"email": "mask_restore"})
    policy, revision = loaded("k" * 32, request="mask_restore")
    assert policy.key == KEY
    # workers with different keys would decide differently
    assert loaded("l" * 32, request="mask_restore")[1] != revision
    assert loaded("l" * 32)[1] == loaded()[1]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"request": "hide"}, "request"),
        ({"request": {"ssn": "mask"}}, "request"),
        ({"answer": "mask_restore"}, "answer"),
        ({"custom": {"a b": "x"}}, "custom"),
        ({"custom": {"a": "("}}, "custom.a"),
        ({"custom": {"a": "x*"}}, "empty"),
    ],
)
def test_bad_options_are_refused(options: Json, complaint: str) -> None:
    with pytest.raises(PolicyFailed, match=complaint):
        loaded(**options)


def test_a_tool_that_sends_is_warned_about() -> None:
    assert "'bash'" in str(redact(request="mask_restore", restore_tools="*").warnings)
    assert not redact(request="mask_restore", restore_tools="crm_*").warnings
