"""In which form a judge model is asked for its reply: what is learned of servers that know
different forms, and what is not."""

import asyncio
import json
from typing import Any

import pytest

from policy.base import Judgement
from policy.session.effects import JudgeRequest
from protocol.records import JudgementFacts
from streams import layout
from tests.support.json_values import Json
from tests.support.upstreams.judging import (
    GOOD,
    NONCE,
    Upstream,
    anthropic_answer,
    openai_answer,
    question,
    runtime,
)
from workers.judge import request_forms as judge_forms
from workers.judge.answering import Judge

BAD_GRAMMAR = {
    "error": {
        "code": 500,
        "message": (
            'response_format type must be one of "text" or "json_object", but got: json_schema'
        ),
    }
}


def form_of(body: Json) -> str:
    if "tools" in body:
        return "tool"
    return str(
        body.get("response_format", body.get("output_config", {}).get("format", {"type": "text"}))[
            "type"
        ]
    )


def knowing(*forms: str, status: int = 400, says: Any = None) -> Any:
    """A server that takes these forms and answers others with an error that names what it does not
    know, or with `says`."""

    def refusal(body: Json) -> tuple[int, Any] | None:
        named = {"tool": "tools", "text": "prompt"}.get(form_of(body), "response_format")
        return (
            None
            if form_of(body) in forms
            else (status, says if says is not None else {"error": f"{named} is not supported"})
        )

    return refusal


def openai_call(arguments: str, name: str = "judgement") -> Json:
    calls = [{"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]
    return {
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": None, "tool_calls": calls},
            }
        ]
    }


def anthropic_text(text: str) -> Json:
    content = [
        {"type": "thinking", "thinking": "x", "signature": "y"},
        {"type": "text", "text": text},
    ]
    return {"type": "message", "content": content, "stop_reason": "end_turn"}


class Asked:
    """A judge in this process that asks `upstream`, and the forms of the requests since it was last
    asked for them."""

    def __init__(self, upstream: Upstream, judge_reply: str | None = None) -> None:
        self._upstream, self._judge = upstream, Judge(runtime("", upstream, judge_reply))

    async def __call__(self, model: str = "gpt-x") -> Judgement:
        return await self._judge.judge(
            JudgeRequest(layout.new_call_id(), 0, 0, question(model)), 60
        )

    def forms(self) -> list[str]:
        forms = [form_of(body) for _, _, body in self._upstream.seen]
        self._upstream.seen.clear()
        return forms

    async def close(self) -> None:
        await self._judge.models.close()


@pytest.fixture
async def asked(upstream: Upstream) -> Any:
    made = Asked(upstream)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("knows", "reply", "tried"),
    [
        ("json_schema", openai_answer(GOOD), []),
        ("json_object", openai_answer(GOOD), ["json_schema"]),
        ("tool", openai_call(GOOD), ["json_schema", "json_object"]),
        ("text", openai_answer(GOOD), ["json_schema", "json_object", "tool"]),
    ],
)
@pytest.mark.parametrize("status", [400, 404, 422, 500])
async def test_what_is_refused_by_name_is_learned_at_once_and_logged(
    upstream: Upstream,
    asked: Asked,
    caplog: pytest.LogCaptureFixture,
    knows: str,
    reply: Any,
    tried: list[str],
    status: int,
) -> None:
    caplog.set_level("INFO")
    upstream.refuses, upstream.answers = knowing(knows, status=status), [(200, reply)]
    first = await asked()
    assert (first.probability, first.error, first.attempts) == (0.25, "", len(tried) + 1)
    assert asked.forms() == [*tried, knows]
    for _ in range(2):
        assert ((await asked()).probability, asked.forms()) == (0.25, [knows])
    logged = [
        (r.__dict__["upstream"], r.__dict__["model"], r.__dict__["form"])
        for r in caplog.records
        if "judge model" in r.message
    ]
    assert logged == ([("one", "gpt-x", knows)] if tried else [])


async def test_a_llama_server_that_knows_json_objects_alone_judges_and_is_remembered(
    upstream: Upstream, asked: Asked
) -> None:
    upstream.refuses = knowing("json_object", "text", status=500, says=BAD_GRAMMAR)
    assert [(await asked()).error for _ in range(3)] == ["", "", ""]
    assert asked.forms() == ["json_schema", "json_object", "json_object", "json_object"]


@pytest.mark.parametrize(
    ("knows", "tried"), [("tool", []), ("json_schema", ["tool"]), ("text", ["tool", "json_schema"])]
)
async def test_the_messages_dialect_has_forms_of_its_own(
    upstream: Upstream, asked: Asked, knows: str, tried: list[str]
) -> None:
    upstream.refuses = knowing(knows)
    upstream.answers = [(200, anthropic_answer(GOOD) if knows == "tool" else anthropic_text(GOOD))]
    assert [(await asked("claude-x")).probability for _ in range(2)] == [0.25, 0.25]
    assert asked.forms() == [*tried, knows, knows]


async def test_each_model_of_an_upstream_is_learned_for_itself(
    upstream: Upstream, asked: Asked
) -> None:
    upstream.refuses = lambda body: (
        knowing("json_object")(body) if body["model"] == "gpt-small" else None
    )
    for _ in range(2):
        await asked("gpt-small")
        await asked("gpt-large")
    assert asked.forms() == [
        "json_schema",
        "json_object",
        "json_schema",
        "json_object",
        "json_schema",
    ]


async def test_a_500_that_names_nothing_counts_when_it_comes_again(
    upstream: Upstream, asked: Asked
) -> None:
    upstream.refuses = knowing("json_object", status=500, says={})
    assert [(await asked()).error for _ in range(3)] == ["", "", ""]
    assert asked.forms() == ["json_schema", "json_object"] * 2 + ["json_object"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_an_overload_teaches_nothing(upstream: Upstream, asked: Asked, status: int) -> None:
    upstream.answers = [(status, {}), (200, openai_answer(GOOD))]
    # many at the same moment are one overload
    assert {s.error for s in await asyncio.gather(*(asked() for _ in range(5)))} == {""}
    asked.forms()
    assert ((await asked()).error, asked.forms()) == ("", ["json_schema"])
    # nor does it once the form has worked
    upstream.answers = [(status, {}), (status, {}), (200, openai_answer(GOOD))]
    assert ((await asked()).error, asked.forms()) == ("", ["json_schema"] * 3)
    assert ((await asked()).error, asked.forms()) == ("", ["json_schema"])


async def test_many_questions_in_one_overload_are_one_doubt(
    upstream: Upstream, asked: Asked
) -> None:
    upstream.refuses = knowing("json_object", status=500, says={})
    await asyncio.gather(*(asked() for _ in range(5)))
    upstream.refuses = lambda body: None
    asked.forms()
    assert ((await asked()).error, asked.forms()) == ("", ["json_schema"])


async def test_an_upstream_that_is_down_is_asked_as_often_as_ever(
    upstream: Upstream, asked: Asked
) -> None:
    upstream.answers = [(500, {})]
    said = await asked()
    assert (said.error, asked.forms()) == (
        "unavailable",
        ["json_schema", "json_object", "json_schema"],
    )
    assert (
        "status 500; it was asked in the forms json_schema, json_object (3 attempts)"
        in said.explanation
    )
    upstream.answers = [(200, openai_answer(GOOD))]
    assert ((await asked()).error, asked.forms()) == ("", ["json_schema"])


async def test_what_refuses_every_form_is_asked_in_each_once(
    upstream: Upstream, asked: Asked
) -> None:
    upstream.answers = [(400, {"error": "temperature, response_format, tools: all wrong"})]
    said = await asked()
    assert (said.error, said.probability) == ("unavailable", None)
    assert asked.forms() == ["json_schema", "json_schema", "json_object", "tool", "text"]


@pytest.mark.parametrize(
    ("status", "says"),
    [(401, {}), (403, {}), (404, {}), (400, {"error": "the prompt is too long"})],
)
async def test_other_refusals_of_a_model_that_works_change_nothing(
    upstream: Upstream, asked: Asked, status: int, says: Any
) -> None:
    assert (await asked()).error == ""
    upstream.answers = [(status, says), (200, openai_answer(GOOD))]
    assert (await asked()).error == "unavailable"
    assert ((await asked()).error, asked.forms()) == ("", ["json_schema"] * 3)


@pytest.mark.parametrize("status", [400, 503])
async def test_what_is_refused_of_one_question_changes_nothing_for_others(
    upstream: Upstream, asked: Asked, status: int
) -> None:
    """Errors may quote the question, which whoever is judged wrote a part of."""
    assert ((await asked()).error, asked.forms()) == ("", ["json_schema"])
    for _ in range(3):
        upstream.answers = [(status, {"error": "no: response_format, tools, temperature"})] * 2 + [
            (200, openai_answer(GOOD))
        ]
        assert (await asked()).error == "" and asked.forms()[-1] != "json_schema"
    upstream.answers = [(200, openai_answer(GOOD))]
    assert (await asked()).error == ""
    assert [(form_of(body), body.get("temperature")) for _, _, body in upstream.seen] == [
        ("json_schema", 0)
    ]


@pytest.mark.parametrize("form", ["json_schema", "json_object", "tool", "text"])
async def test_the_setting_of_an_upstream_is_the_only_form(upstream: Upstream, form: str) -> None:
    asked = Asked(upstream, form)
    upstream.answers = [(200, openai_call(GOOD) if form == "tool" else openai_answer(GOOD))]
    assert ((await asked()).probability, asked.forms()) == (0.25, [form])
    upstream.answers = [(400, {"error": "response_format, tools and prompt are wrong"})]
    assert ((await asked()).error, asked.forms()) == ("unavailable", [form])
    await asked.close()


async def test_a_refused_temperature_is_remembered(upstream: Upstream, asked: Asked) -> None:
    upstream.refuses = lambda body: (
        (400, {"error": "temperature"}) if "temperature" in body else None
    )
    assert [(await asked()).attempts for _ in range(2)] == [2, 1]


async def test_a_server_that_ignores_a_forced_tool_is_read_as_strictly(upstream: Upstream) -> None:
    asked = Asked(upstream, "tool")
    upstream.answers = [
        (200, openai_answer(GOOD)),
        (200, openai_answer("It is harmless.")),
        (200, openai_call(GOOD, "another")),
    ]
    assert [((s := await asked()).probability, s.error) for _ in range(3)] == [
        (0.25, ""),
        (None, "invalid"),
        (None, "invalid"),
    ]
    await asked.close()


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 300, "completion_tokens": 20, "total_tokens": 320}, (300, 20)),
        ({"input_tokens": 300, "output_tokens": 0}, (300, 0)),
        ({"input_tokens": 7}, (7, None)),
        ({"prompt_tokens": -1}, (None, None)),
        (None, (None, None)),
        ([], (None, None)),
    ],
)
async def test_what_the_model_counted_is_noted_and_what_it_says_of_it_decides_nothing(
    upstream: Upstream, usage: Any, counted: tuple[int | None, int | None]
) -> None:
    upstream.answers = [
        (200, openai_answer(GOOD) | {"usage": usage}),
        (200, openai_answer("no object") | {"usage": usage}),
    ]
    asked = Asked(upstream)
    assert [((s := await asked()).error, s.facts) for _ in range(2)] == [
        ("", JudgementFacts(*counted)),
        ("invalid", JudgementFacts(*counted)),
    ]
    await asked.close()


@pytest.mark.parametrize("count", ["many", 2**70])
async def test_an_answer_whose_counts_its_dialect_forbids_is_invalid(
    upstream: Upstream, count: Any
) -> None:
    upstream.answers = [(200, openai_answer(GOOD) | {"usage": {"prompt_tokens": count}})]
    asked = Asked(upstream)
    assert ((s := await asked()).error, s.facts) == ("invalid", JudgementFacts())
    await asked.close()


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{GOOD}\n```",
        f"{GOOD} {GOOD}",
        f"Harmless. {GOOD}",
        f"{GOOD}\nI am sure.",
        "harmless",
        "",
        "0.0",
        f"[{GOOD}]",
        GOOD.replace(NONCE, "other"),
        GOOD.replace("0.25", '"0.25"'),
        GOOD.replace("{", '{"probability": 0.9, ', 1),
        f"<think>{GOOD}</think>{GOOD}",
    ],
)
@pytest.mark.parametrize("form", ["json_object", "text"])
async def test_text_that_is_not_one_object_with_the_nonce_is_invalid(
    upstream: Upstream, form: str, text: str
) -> None:
    upstream.answers = [(200, openai_answer(text))]
    asked = Asked(upstream, form)
    said = await asked()
    assert (said.probability, said.error, said.attempts) == (None, "invalid", 1)
    await asked.close()


async def test_what_is_known_is_bounded(
    monkeypatch: pytest.MonkeyPatch, upstream: Upstream, asked: Asked
) -> None:
    monkeypatch.setattr(judge_forms, "MAX_KNOWN", 3)
    for n in range(10):
        assert json.loads((await asked(f"gpt-{n}")).reply)["nonce"] == NONCE
    assert len(asked._judge.models._forms._known) <= 3
