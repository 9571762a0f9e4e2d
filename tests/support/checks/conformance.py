"""Recordings through a running product and the official SDKs, in all four directions: what each
client is told, and what is right.

A client of the upstream's dialect is to hold the same message as if it had asked there itself,
field by field; one of the other dialect the projection of it (tests/support/checks/projection.py).
scripts/conformance.py runs it all and prints a table.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import anthropic
import httpx2
import openai

from protocol.request import DialectName
from protocol.server_tools.data import table
from tests.support.checks import projection
from tests.support.checks.outcomes import Outcome, outcome_of, payloads
from tests.support.clients.sdk_answers import WAYS, Clients, Direct, Way, full, sent
from tests.support.json_values import Json, as_json
from tests.support.servers.product import KEY
from tests.support.upstreams.bodies import mended, whole_body
from tests.support.upstreams.product import MODEL, config
from tests.support.upstreams.recordings import Recording, expected, framed
from tests.support.upstreams.replay import Cutting, Replay, Reply, stream

CLIENTS: tuple[DialectName, ...] = ("openai", "anthropic")
PATHS: dict[DialectName, str] = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
CUTTINGS: tuple[Cutting, ...] = ("whole", "random")
STATUS = {401: 502, 402: 502}
"""What becomes of an upstream's status: a key or a bill of ours is not the client's matter
(docs/change/protocol.md 1.8)."""
ONLY_ONE_SIDE = object()


@dataclass(frozen=True)
class Result:
    """What one client in one way was told. `problems` are paths and values, none when all is
    right."""

    recording: str
    upstream: DialectName
    client: DialectName
    way: str
    problems: list[str]

    @property
    def word(self) -> str:
        """The first field that differs."""
        return self.problems[0].split(":")[0].split(".")[0].split("[")[0] if self.problems else "ok"


def configuration(replay: Replay) -> Json:
    """Two upstreams at the replay server and keys that may use all server tools, since recordings
    have all."""
    made = config(replay)
    for key in made["keys"]:
        key["server_tools"] = sorted(table().families)
    # sealed thoughts in fields of one vendor, which only this setting lets pass
    made["unknown"] = ["delta field extra_content", "delta field thought_signature"]
    return made


def differences(want: Any, got: Any, path: str = "") -> list[str]:
    """Every place in which two values differ, with both."""
    if isinstance(want, dict) and isinstance(got, dict):
        return [
            d
            for name in sorted({*want, *got})
            for d in differences(
                want.get(name, ONLY_ONE_SIDE),
                got.get(name, ONLY_ONE_SIDE),
                f"{path}.{name}" if path else name,
            )
        ]
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        return [
            d
            for n, (a, b) in enumerate(zip(want, got, strict=True))
            for d in differences(a, b, f"{path}[{n}]")
        ]
    return (
        []
        if type(want) is type(got) and want == got
        else [f"{path or 'answer'}: {_shown(got)} instead of {_shown(want)}"]
    )


def _shown(value: Any) -> str:
    if value is ONLY_ONE_SIDE:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:60]}... ({len(text)} characters)"


class Conformance:
    """The checks against one product; `seed` decides where streams are cut."""

    def __init__(self, url: str, replay: Replay, seed: int) -> None:
        self.url, self._replay, self.seed = url, replay, seed
        self._direct = Direct()
        self.through = Clients(url, KEY, headers={"x-sluice-policy": "noop"})

    def close(self) -> None:
        """Close the clients."""
        self._direct.close()
        self.through.close()

    def check(self, recording: Recording, client: DialectName) -> list[Result]:
        """Run one recording for clients of one dialect, in every way in which they can ask for
        it."""
        try:
            return self._checked(recording, client)
        except Exception as error:  # noqa: BLE001 - a recording that these checks cannot read must not end the others
            return [
                self._result(recording, client, "reading", [f"{type(error).__name__}: {error}"])
            ]

    def _checked(self, recording: Recording, client: DialectName) -> list[Result]:
        outcome = outcome_of(recording)
        if misread := self._misread(recording, client, outcome):
            return [self._result(recording, client, "reading", misread)]
        if outcome == "error body":
            return [
                self._error_body(recording, client, way)
                for way in (*WAYS[client][True], *WAYS[client][False])
            ]
        if outcome == "whole":
            return [*self._streams(recording, client), *self._bodies(recording, client)]
        check = self._fails if outcome == "fails" else self._cut_call
        return [check(recording, client, cutting) for cutting in CUTTINGS]

    def _misread(self, recording: Recording, client: DialectName, outcome: Outcome) -> list[str]:
        """Where these checks and the facts that come with the recording disagree: then the checks
        are wrong."""
        if recording.must:
            return ["must: the recording reads as whole"] if outcome == "whole" else []
        if outcome != "whole" or not recording.facts:
            return []
        want = expected(recording)
        if recording.dialect == "anthropic":
            way: Way = "beta helper" if recording.is_stream else "beta create"
            facts = projection.completion_facts(
                [self._direct.read("anthropic", way, recording.body, sent)]
            )
        else:
            facts = projection.told_completion(
                self._direct.read(
                    "openai", "iterate" if recording.is_stream else "create", mended(recording)
                )
            )
        got = {
            "chars": len(facts["content"]),
            "sha": sha256(facts["content"].encode()).hexdigest()[:16],
            "thinking": len(facts["reasoning"]),
            "calls": [(c["name"], c["arguments"]) for c in facts["calls"]],
            "stop": facts["finish"],
            "tokens": (facts["usage"]["prompt_tokens"], facts["usage"]["completion_tokens"]),
        }
        if told := recording.facts.get("expected_openai"):
            want["stop"] = told["finish_reason"]
            want["ids"], got["ids"] = (
                [c["id"] for c in told["tool_calls"]],
                [c["id"] for c in facts["calls"]],
            )
            want["cached"], got["cached"] = (
                told["usage"]["cached_tokens"],
                facts["usage"]["cached_tokens"],
            )
        elif recording.dialect == "anthropic":
            want["stop"] = projection.FINISH[want["stop"]]
        return differences(
            want | {"sha": want["sha"] or got["sha"], "tokens": want["tokens"] or (0, 0)}, got
        )

    def _result(
        self, recording: Recording, client: DialectName, way: str, problems: list[str]
    ) -> Result:
        return Result(recording.name, recording.dialect, client, way, problems)

    def _streamed(self, body: bytes, cutting: Cutting) -> Reply:
        return stream(body, cutting=cutting, seed=self.seed)

    def _tell(self, recording: Recording, client: DialectName, way: Way) -> Json:
        return self.through.tell(client, way, MODEL[recording.dialect])

    def _streams(self, recording: Recording, client: DialectName) -> Iterator[Result]:
        if not recording.is_stream:
            return
        for way in WAYS[client][True]:
            want = self._wanted(recording, client, way, mended(recording))
            for cutting in CUTTINGS:
                more = continuation(recording, client)
                self._replay.answer(
                    self._streamed(recording.body, cutting),
                    *([self._streamed(as_stream(m), cutting) for m in more]),
                )
                yield self._result(
                    recording,
                    client,
                    f"{way}, {cutting}",
                    self._compared(recording, client, way, want),
                )

    def _bodies(self, recording: Recording, client: DialectName) -> Iterator[Result]:
        body = whole_body(recording, self._direct)
        for way in WAYS[client][False]:
            want = self._wanted(recording, client, way, body)
            more = continuation(recording, client)
            self._replay.answer(Reply(body), *(Reply(as_json(m)) for m in more))
            yield self._result(recording, client, way, self._compared(recording, client, way, want))

    def _wanted(self, recording: Recording, client: DialectName, way: Way, body: bytes) -> Json:
        """What is right: for the same dialect what the SDK makes of the bytes, in the same way;
        else the projection of it."""
        if client == recording.dialect:
            return self._direct.read(client, way, body)
        if client == "openai":
            whole = self._direct.read(
                "anthropic",
                "beta helper" if way in WAYS[client][True] else "beta create",
                body,
                sent,
            )
            return projection.completion_facts([whole, *continuation(recording, client)])
        if way in WAYS[client][True]:
            iterated = self._direct.read("openai", "iterate", body)
            return projection.message_facts(iterated, iterated["order"])
        return projection.message_facts(self._direct.read("openai", "create", body))

    def _compared(
        self, recording: Recording, client: DialectName, way: Way, want: Json
    ) -> list[str]:
        try:
            told = self.through.tell(
                client, way, MODEL[recording.dialect], full if client == recording.dialect else sent
            )
        except Exception as error:  # noqa: BLE001 - whatever an SDK raises is the difference
            return [f"{type(error).__name__}: {error}"]
        problems: list[str] = told.get("problems", [])
        if client == recording.dialect:
            want, told = (_SAME[client](answer) for answer in (want, told))
            _take_made_up_ids(want, told)
            return problems + differences(want, told)
        if client == "openai":
            got = projection.told_completion(told)
            # the helper keeps unknown fields of the first chunk alone, so that it has no vendor
            # object
            return problems + differences(
                {k: v for k, v in want.items() if k in got or way != "helper"}, got
            )
        got = projection.told_message(told)
        if "helper" in way:
            # which keeps unknown fields of the first event alone
            got["annotations"] = want["annotations"]
        for wanted, found in zip(want["blocks"], got["blocks"], strict=False):
            if wanted.get("id", "") is None and found.get("id"):
                # upstream left it out: any will do
                wanted["id"] = found["id"]
        ids = [b["id"] for b in got["blocks"] if "id" in b]
        return (
            problems + ([] if len({*ids}) == len(ids) else [f"ids: {ids}"]) + differences(want, got)
        )

    def _fails(self, recording: Recording, client: DialectName, cutting: Cutting) -> Result:
        self._replay.answer(self._streamed(recording.body, cutting))
        problems = []
        for way in WAYS[client][True]:
            try:
                told = self._tell(recording, client, way)
            except (openai.APIError, anthropic.APIError) as error:
                if "failed_generation" in str(error.body):
                    problems.append(f"error: {error.body}")
            else:
                problems.append(f"no error: {_shown(told)}")
        problems += failed_frames(recording, client, self._raw(recording, client))
        return self._result(recording, client, f"iterate and helper, {cutting}", problems)

    def _raw(self, recording: Recording, client: DialectName) -> str:
        """The client's stream, as text."""
        body = {
            "model": MODEL[recording.dialect],
            "max_tokens": 9,
            "stream": True,
            "messages": [{"role": "user", "content": "go on"}],
        }
        headers = {"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"}
        return httpx2.post(self.url + PATHS[client], json=body, headers=headers, timeout=30).text

    def _cut_call(self, recording: Recording, client: DialectName, cutting: Cutting) -> Result:
        """What was said before the call may come, the call may not."""
        problems = []
        whole = self._direct.read("anthropic", "beta helper", recording.body)
        text = "".join(b["text"] for b in whole["content"] if b["type"] == "text")
        for way in WAYS[client][True]:
            self._replay.answer(self._streamed(recording.body, cutting))
            told = self._tell(recording, client, way)
            if client == "openai":
                facts = projection.told_completion(told)
                said, calls, stop = facts["content"], facts["calls"], facts["finish"]
            else:
                message = projection.told_message(told)
                said = "".join(b["text"] for b in message["blocks"] if b["type"] == "text")
                calls, stop = (
                    [b for b in message["blocks"] if b["type"] == "tool_use"],
                    message["stop_reason"],
                )
            problems += told.get("problems", [])
            if not said.startswith(text) or calls:
                problems.append(f"calls: {_shown(calls)} after {_shown(said)}")
            if stop != ("length" if client == "openai" else "max_tokens"):
                problems.append(f"stop: {stop}")
        return self._result(recording, client, f"iterate and helper, {cutting}", problems)

    def _error_body(self, recording: Recording, client: DialectName, way: Way) -> Result:
        status = recording.facts["http_status"]
        self._replay.answer(Reply(recording.body, status=status))
        problems = []
        try:
            self._tell(recording, client, way)
        except (openai.APIStatusError, anthropic.APIStatusError) as error:
            problems = error_differences(recording, client, error)
        else:
            problems.append("no error: an answer")
        return self._result(recording, client, way, problems)


def continuation(recording: Recording, client: DialectName) -> list[Json]:
    """What the upstream answers when the gateway goes on with a paused turn, as it does for clients
    of chat/completions."""
    if (
        client == "anthropic"
        or recording.dialect == "openai"
        or b'"pause_turn"' not in recording.body
    ):
        return []
    usage = {"input_tokens": 7, "output_tokens": 5}
    text = {"type": "text", "text": " So it ends."}
    head = {
        "id": "msg_go_on",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "stop_sequence": None,
    }
    return [{**head, "content": [text], "stop_reason": "end_turn", "usage": usage}]


def as_stream(message: Json) -> bytes:
    """A message as its stream, each block whole at its start."""
    frames: list[Json] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    ]
    for index, block in enumerate(message["content"]):
        frames += [
            {"type": "content_block_start", "index": index, "content_block": block},
            {"type": "content_block_stop", "index": index},
        ]
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    frames += [
        {"type": "message_delta", "delta": delta, "usage": message["usage"]},
        {"type": "message_stop"},
    ]
    return framed("anthropic", [json.dumps(f) for f in frames])


def failed_frames(recording: Recording, client: DialectName, data: str) -> list[str]:
    """What is wrong with a stream that failed: it ends with one error frame, with no end made up,
    and no call in it was cut."""
    values = [value for _, value in payloads(data.encode())]
    problems = []
    if values.count("[DONE]") or any(
        isinstance(v, dict) and v.get("type") == "message_stop" for v in values
    ):
        problems.append("end: made up")
    errors = [n for n, v in enumerate(values) if isinstance(v, dict) and v.get("error")]
    if errors != [len(values) - 1]:
        problems.append(f"error: at {errors} of {len(values)}")
    if client == "openai":
        deltas = [c for v in values if isinstance(v, dict) for c in v.get("choices") or ()]
        if any(c.get("finish_reason") for c in deltas):
            problems.append("finish: made up")
        calls = any(c["delta"].get("tool_calls") for c in deltas)
    else:
        calls = any(v.get("content_block", {}).get("type") == "tool_use" for v in values)
        if any(v["type"] == "message_delta" for v in values):
            problems.append("stop_reason: made up")
    # no recording that fails had a whole call before
    return problems + (["calls: released"] if calls else [])


def error_differences(recording: Recording, client: DialectName, error: Any) -> list[str]:
    """Status, type and sentence of an error answer, by docs/change/protocol.md 1.8."""
    status = recording.facts["http_status"]
    want: Json = {"status": STATUS.get(status, status)}
    told = error.body if client == "openai" else error.body["error"]
    got: Json = {"status": error.status_code}
    sentence = json.loads(recording.body)["error"]["message"]
    if status in STATUS:
        want |= {"type": "api_error", "sentence": False, "retry": "false"}
        got |= {
            "type": told["type"],
            "sentence": sentence in told["message"],
            "retry": error.response.headers.get("x-should-retry"),
        }
    else:
        want |= {"type": recording.facts["error_type"], "message": sentence}
        got |= {"type": told["type"], "message": told["message"]}
        if client == "openai" and "context" in recording.name:
            want["code"], got["code"] = "context_length_exceeded", told["code"]
    return differences(want, got)


def _take_made_up_ids(want: Json, got: Json) -> None:
    """An id that a vendor left out was made up, because clients answer by it."""
    if "choices" in want:
        for calls in zip(
            *(answer["choices"][0]["message"].get("tool_calls") or () for answer in (want, got)),
            strict=False,
        ):
            if not calls[0]["id"] and calls[1]["id"]:
                calls[0]["id"] = calls[1]["id"]


def _same_message(message: Json) -> Json:
    """The message without what cannot be the same."""
    return {k: v for k, v in message.items() if k != "problems"}


def _same_completion(completion: Json) -> Json:
    """The completion without what cannot be the same."""
    # padding against eavesdroppers is made for each connection; a name with a blank could be prose,
    # and nobody judged it
    left_out = ("problems", "obfuscation", "provider")
    said = {k: v for k, v in completion.items() if k not in left_out}
    if "choices" not in said:
        said["top"] = {k: v for k, v in said["top"].items() if k not in left_out}
        return said
    [choice] = said["choices"]
    # the helper keeps the first chunk's null or {}, which say nothing, and passes over Azure's
    # first chunk, which says that it is none
    said["choices"] = [
        {
            k: v
            for k, v in choice.items()
            if v or k not in ("native_finish_reason", "content_filter_results")
        }
    ]
    said.pop("prompt_filter_results", None)
    message = choice["message"]
    for field in ("content", "reasoning_content"):
        # vendors say "" in a later chunk where they first said null
        message[field] = message.get(field) or None
    return said


_SAME = {"openai": _same_completion, "anthropic": _same_message}
