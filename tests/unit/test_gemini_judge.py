"""A judge behind Gemini: each form of the question is a request that the API takes, and its reply
is read."""

import json

import pytest

from policy.judging.prompt import REPLY_SCHEMA
from protocol.dialects.table import DIALECTS
from settings.config import Upstream
from tests.support.json_values import Json, as_json
from tests.support.upstreams.gemini import answer, check_request
from tests.support.upstreams.judging import question
from workers.judge.request_forms import LearnedForms, reply_text, request_body

UPSTREAM = Upstream.model_validate({"dialect": "gemini", "base_url": "http://upstream"})
REPLY = '{"score":0.1}'
FORMS = DIALECTS["gemini"].judge_replies


@pytest.mark.parametrize("model", ["gemini-3-flash", "gemini-2.5-flash", "gemini-2.0-flash"])
def test_a_judge_is_asked_in_each_form_and_its_reply_is_read(model: str) -> None:
    asking = LearnedForms().begin("up", UPSTREAM, model)
    seen: Json = {}
    while True:
        sent = json.loads(request_body("gemini", question(model), asking))
        check_request(sent)
        assert sent["generationConfig"]["temperature"] == 0 and sent["systemInstruction"]["parts"]
        seen[asking.form] = sent
        called = {"functionCall": {"name": "judgement", "args": json.loads(REPLY)}}
        part = called if asking.form == "tool" else {"text": REPLY}
        assert json.loads(
            reply_text(
                "gemini",
                asking.form,
                as_json(answer({"text": "hm", "thought": True}, part)),
            )
        ) == {"score": 0.1}
        if not asking.refused(
            400,
            b'{"error":{"message":"Invalid JSON payload: generation_config.response_json_schema"}}',
        ):
            break
    assert tuple(seen) == FORMS
    config = seen["json_schema"]["generationConfig"]
    assert config["responseMimeType"] == "application/json" and (
        config.get("responseJsonSchema") == REPLY_SCHEMA or "responseSchema" in config
    )
    assert seen["tool"]["toolConfig"]["functionCallingConfig"] == {
        "mode": "ANY",
        "allowedFunctionNames": ["judgement"],
    }


def test_the_forms_that_an_error_names_are_left() -> None:
    asking = LearnedForms().begin("up", UPSTREAM, "gemini-3-flash")
    asking.taken()
    for sign, form in ((b"responseJsonSchema", "json_object"), (b"responseMimeType", "tool")):
        assert (
            asking.refused(400, b'{"error":{"message":"Unknown name ' + sign + b'"}}')
            and asking.form == form
        )
    assert not asking.refused(429, b"{}")
