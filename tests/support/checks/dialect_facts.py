"""Every recording for clients of every dialect, held against what independent readers said of its
bytes (`expected.json`).

The checks of tests/support/checks/conformance.py compare whole objects for two dialects; these
compare text, thoughts, calls, the reason to stop and tokens for all.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import anthropic
import openai

from protocol.dialects.table import DIALECTS
from protocol.request import DialectName
from tests.support.checks import projection
from tests.support.checks.conformance import (
    CUTTINGS,
    STATUS,
    Result,
    as_stream,
    configuration,
    continuation,
    differences,
)
from tests.support.checks.outcomes import outcome_of
from tests.support.clients.responses_answers import RESPONSES_WAYS, response_facts, tell_response
from tests.support.clients.sdk_answers import WAYS, Clients, Direct, sent
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY
from tests.support.upstreams.bodies import whole_body
from tests.support.upstreams.dialect_recordings import APIS, streamed, whole_of
from tests.support.upstreams.recordings import Recording, expected
from tests.support.upstreams.replay import Replay, Reply, stream

MODELS: dict[DialectName, str] = {
    "openai": "gpt-x",
    "anthropic": "claude-x",
    "responses": "resp-x",
    "gemini": "gem-x",
    "converse": "nova-x",
}
_BASES: dict[DialectName, str] = {"responses": "/v1", "gemini": "/v1beta", "converse": ""}
_NEUTRAL = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_FINISH = projection.FINISH
_STATUS = {
    "max_tokens": ("incomplete", "max_output_tokens"),
    "model_context_window_exceeded": ("incomplete", "max_output_tokens"),
    "refusal": ("incomplete", "content_filter"),
}
"""Of a response; any other turn is completed."""


@dataclass(frozen=True)
class Want:
    """What a recording says. `tokens`: prompt, completion, of the prompt cached; None where nothing
    counts them."""

    outcome: str
    chars: int = 0
    sha: str = ""
    thinking: int = 0
    calls: tuple[Any, ...] = ()
    stop: str = ""
    tokens: tuple[int, int, int | None] | None = None
    status: int = 200


def configuration_of_all(replay: Replay) -> Json:
    """`configuration`, and an upstream of each further dialect in the table."""
    made = configuration(replay)
    for name, base in _BASES.items():
        if name in DIALECTS:
            made["upstreams"][name] = {
                "dialect": name,
                "base_url": replay.url + base,
                "breaker": False,
            }
            made["models"].append({"match": MODELS[name], "upstream": name})
    return made


def wanted(recording: Recording) -> Want:
    """What is right, from the facts that came with it."""
    facts = recording.facts
    if not _is_of_second_set(recording):
        return _wanted_of_first_set(recording)
    if facts.get("stop_reason_neutral") is None:
        status = _error_status(recording)
        # whatever the status line says: an error in an answer of 200 is one with a status of ours
        status = 0 if status == 200 else STATUS.get(status, status)
        return Want("error body", status=502 if b"API_KEY_INVALID" in recording.body else status)
    if facts["stop_reason_neutral"] == "failed":
        return Want("fails")
    told = facts["expected_openai"]["usage"]
    return Want(
        "whole",
        facts["text_chars"],
        facts["text_sha"],
        facts["thinking_chars"] or 0,
        tuple((c["name"], c["arguments"]) for c in facts["calls"] if c["executor"] == "client"),
        facts["stop_reason_neutral"],
        (told["prompt_tokens"], told["completion_tokens"], told["cached_tokens"]) if told else None,
    )


def _is_of_second_set(recording: Recording) -> bool:
    return recording.name.partition("/")[0] in APIS


def _error_status(recording: Recording) -> int:
    status: int = recording.facts["http_status"] or json.loads(recording.body)["error"]["code"]
    return status


def _wanted_of_first_set(recording: Recording) -> Want:
    outcome = outcome_of(recording)
    if outcome == "error body":
        status: int = recording.facts["http_status"]
        return Want(outcome, status=STATUS.get(status, status))
    if outcome != "whole" or not recording.facts:
        return Want(outcome if outcome != "whole" else "unknown")
    said = expected(recording)
    word: str = said["stop"]
    stop = _NEUTRAL.get(word, word)
    stop = "tool_use" if said["calls"] and stop == "end_turn" else stop
    tokens = (*said["tokens"], None) if said["tokens"] else None
    return Want(
        "whole",
        said["chars"],
        said["sha"] or "",
        said["thinking"],
        tuple(said["calls"]),
        stop,
        tokens,
    )


def _continued(want: Want, segment: Json) -> Want:
    """What is right where the gateway goes on with a paused turn."""
    text, usage = segment["content"][0]["text"], segment["usage"]
    tokens = want.tokens and (
        want.tokens[0] + usage["input_tokens"],
        want.tokens[1] + usage["output_tokens"],
        want.tokens[2],
    )
    return replace(
        want, chars=want.chars + len(text), sha="", stop=segment["stop_reason"], tokens=tokens
    )


class Facts:
    """The checks against one product; `seed` decides where streams are cut."""

    def __init__(self, url: str, replay: Replay, seed: int) -> None:
        self._replay, self.seed = replay, seed
        self._direct = Direct()
        self._through = Clients(url, KEY, headers={"x-sluice-policy": "noop"})

    def close(self) -> None:
        """Close the clients."""
        self._direct.close()
        self._through.close()

    def check(self, recording: Recording, client: DialectName) -> list[Result]:
        """Run one recording for clients of one dialect, in every way in which they can ask for
        it."""
        want = wanted(recording)
        for segment in continuation(recording, client):
            want = _continued(want, segment)
        if want.outcome == "unknown":
            return []
        return [
            Result(
                recording.name,
                recording.dialect,
                client,
                way,
                self._problems(recording, client, way.partition(",")[0], want),
            )
            for way in self._ways(recording, client, want)
        ]

    def _ways(self, recording: Recording, client: DialectName, want: Want) -> Iterator[str]:
        """Each way, when the upstream stands ready with the answer to it."""
        ways: Any = RESPONSES_WAYS if client == "responses" else WAYS[client]
        if want.outcome == "error body":
            self._replay.answer(Reply(recording.body, status=_error_status(recording)))
            yield from (*ways[True], *ways[False])
            return
        more = continuation(recording, client)
        if recording.is_stream:
            for cutting in CUTTINGS:
                for way in ways[True]:
                    self._replay.answer(
                        streamed(recording, cutting, self.seed),
                        *(stream(as_stream(m)) for m in more),
                    )
                    yield f"{way}, {cutting}"
        body = self._whole(recording) if want.outcome == "whole" else None
        if body is not None:
            for way in ways[False]:
                self._replay.answer(Reply(body), *(Reply(as_json(m)) for m in more))
                yield way

    def _whole(self, recording: Recording) -> bytes | None:
        if _is_of_second_set(recording):
            return whole_of(recording)
        return whole_body(recording, self._direct)

    def _problems(
        self, recording: Recording, client: DialectName, way: Any, want: Want
    ) -> list[str]:
        try:
            told = self._tell(recording, client, way)
        except (openai.APIStatusError, anthropic.APIStatusError) as error:
            if want.outcome == "error body":
                return differences(
                    {"status": want.status or error.status_code}, {"status": error.status_code}
                )
            return (
                []
                if want.outcome == "fails"
                else [f"status: {error.status_code} {error.message[:200]}"]
            )
        except Exception as error:  # noqa: BLE001 - whatever an SDK raises is the difference
            is_told = isinstance(error, openai.APIError | anthropic.APIError)
            return (
                []
                if want.outcome == "fails" and is_told
                else [f"{type(error).__name__}: {error}"[:300]]
            )
        got = facts_of(client, told)
        if want.outcome == "fails":
            # an application's own loop over Responses sees the failure as the last event
            failed = client == "responses" and got["stop"][0] == "failed" and not got["calls"]
            return [] if failed else [f"no error: {told}"[:200]]
        if want.outcome == "error body":
            return [f"no error: {told}"[:200]]
        problems: list[str] = told.get("problems", [])
        if want.outcome == "cut call":
            return problems + ([f"calls: {got['calls']}"] if got["calls"] else [])
        return problems + self._compared(recording, client, want, got)

    def _tell(self, recording: Recording, client: DialectName, way: Any) -> Json:
        model = MODELS[recording.dialect]
        if client != "responses":
            return self._through.tell(client, way, model, sent)
        custom = [
            call["name"] for call in recording.facts.get("calls", ()) if call["type"] == "custom"
        ]
        return tell_response(self._through.openai, way, model, custom)

    def _compared(
        self, recording: Recording, client: DialectName, want: Want, got: Json
    ) -> list[str]:
        right: Json = {
            "chars": want.chars,
            "thinking": want.thinking,
            "calls": list(want.calls),
            "stop": _stop(client, want.stop),
        }
        told: Json = {
            "chars": len(got["text"]),
            "thinking": len(got["thinking"]),
            "calls": got["calls"],
            "stop": got["stop"],
        }
        if want.sha:
            right["sha"], told["sha"] = want.sha, sha256(got["text"].encode()).hexdigest()[:16]
        if want.tokens:
            cached = want.tokens[2]
            right["tokens"] = list(want.tokens if cached is not None else want.tokens[:2])
            told["tokens"] = [t or 0 for t in got["tokens"]][: len(right["tokens"])]
        if (
            any(call.get("executor") == "mcp_pending" for call in recording.facts.get("calls", ()))
            and client != recording.dialect
        ):
            # a question to a client that cannot answer it: a notice stands for it
            for name in ("chars", "sha"):
                right.pop(name, None), told.pop(name, None)
        if client == recording.dialect == "responses":
            right["items"], told["items"] = recording.facts["item_types"], got["items"]
        unique = len({*got["ids"]}) == len(got["ids"]) and all(got["ids"])
        return ([] if unique else [f"ids: {got['ids']}"]) + differences(right, told)


def _stop(client: DialectName, neutral: str) -> Any:
    if client == "openai":
        return _FINISH[neutral]
    return neutral if client == "anthropic" else _STATUS.get(neutral, ("completed", ""))


def facts_of(client: DialectName, told: Json) -> Json:
    """What a client was told, in the same words for all dialects."""
    if client == "responses":
        return response_facts(told)
    if client == "openai":
        said = projection.told_completion(told)
        usage = said["usage"]
        return {
            "text": said["content"],
            "thinking": said["reasoning"],
            "calls": [(c["name"], c["arguments"]) for c in said["calls"]],
            "ids": [c["id"] for c in said["calls"]],
            "stop": said["finish"],
            "tokens": (usage["prompt_tokens"], usage["completion_tokens"], usage["cached_tokens"]),
        }
    message = projection.told_message(told)
    blocks, usage = message["blocks"], message["usage"]
    read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return {
        "text": "".join(b.get("text", "") for b in blocks if b["type"] == "text"),
        "thinking": "".join(b.get("thinking", "") for b in blocks if b["type"] == "thinking"),
        "calls": [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"],
        "ids": [b.get("id") for b in blocks if b["type"] == "tool_use"],
        "stop": message["stop_reason"],
        "tokens": (usage["input_tokens"] + read + written, usage["output_tokens"], read),
    }


def facts_are_enough(recording: Recording, client: DialectName) -> bool:
    """Whether these checks are those of a direction; the others are held against whole objects of
    the SDKs (`Conformance`)."""
    return client == "responses" or _is_of_second_set(recording)
