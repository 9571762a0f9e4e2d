"""Parameters of chat/completions that are not known are left out and named; those that route, store
or open files need a right."""

import json

import pytest

from policy.session.effects import Respond, SendUpstream
from policy.session.session import Session
from protocol.bounds import MAX_FIELDS
from protocol.server_tools.data import table
from protocol.target import MAX_DROPPED
from settings.config import Config
from tests.support.clients.answering import CONFIG
from tests.support.json_values import Json, as_json
from tests.support.worker_calls import call_info


def asked(
    more: Json, config: Config = CONFIG, families: tuple[str, ...] = ()
) -> tuple[Json | Respond, tuple[str, ...]]:
    body = {"model": "gpt-x", "messages": [{"role": "user", "content": "hi"}], **more}
    info = call_info(max_arguments_bytes=1000, server_tools=families)
    session = Session(info, [], config)
    session.begin(as_json(body))
    [out] = session.drain().outputs
    if isinstance(out, Respond):
        return out, session.dropped
    assert isinstance(out, SendUpstream)
    return (json.loads(out.body) if out.body is not None else body), session.dropped


UNKNOWN: Json = {
    "documents": [{"text": "past the policies"}],
    "best_of": 5,
    "options": {"num_ctx": 9},
    "keep_alive": "24h",
    "transforms": ["middle-out"],
    "made_up": 1,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_left_out_and_named(name: str) -> None:
    sent, dropped = asked({name: UNKNOWN[name], "seed": 5})
    assert isinstance(sent, dict) and name not in sent and sent["seed"] == 5
    assert dropped == (name,)


def test_what_the_operator_names_passes() -> None:
    sent, dropped = asked(
        {"options": {"num_ctx": 9}, "keep_alive": "1h"},
        CONFIG.model_copy(update={"unknown": ("parameter options",)}),
    )
    assert isinstance(sent, dict) and sent["options"] == {"num_ctx": 9} and "keep_alive" not in sent
    assert dropped == ("keep_alive",)


@pytest.mark.parametrize(
    "name",
    ["lora", "lora_name", "lora_request", "LORA", "chat_template", "adapter_id", "adapter_source"],
)
def test_what_chooses_the_code_that_answers_is_refused(name: str) -> None:
    sent, _ = asked({name: "x"})
    assert isinstance(sent, Respond) and sent.status == 400 and name.encode() in sent.body


FAMILIES = {
    "provider": ({"order": ["x"]}, "fallback"),
    "store": (True, "threads"),
    "background": (True, "threads"),
    "deferred": (True, "threads"),
    "file_ids": (["file-1"], "files"),
    "attachments": ([{"file_id": "file-1"}], "files"),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_what_routes_stores_or_opens_files_needs_its_family(name: str) -> None:
    value, family = FAMILIES[name]
    sent, _ = asked({name: value})
    assert isinstance(sent, Respond) and sent.status == 400 and family.encode() in sent.body
    sent, dropped = asked({name: value}, families=(family,))
    assert isinstance(sent, dict) and sent[name] == value and dropped == ()


def test_what_is_switched_off_needs_none() -> None:
    sent, dropped = asked({"store": False, "background": False})
    assert isinstance(sent, dict) and sent["store"] is False and dropped == ()


@pytest.mark.parametrize(
    "name",
    sorted(
        table().known_openai - {"audio", "modalities", "n", "stream_options", "response_format"}
    ),
)
def test_what_is_known_goes_as_it_came(name: str) -> None:
    sent, dropped = asked({name: None})
    assert isinstance(sent, dict) and name in sent and dropped == ()


def test_many_unknown_ones_cost_what_they_are() -> None:
    sent, dropped = asked({f"x{n}": n for n in range(MAX_FIELDS - 2)})
    assert isinstance(sent, dict) and sent.keys() == {"model", "messages"}
    assert len(dropped) == min(MAX_FIELDS - 2, MAX_DROPPED + 1)
