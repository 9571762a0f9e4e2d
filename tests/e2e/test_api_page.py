"""docs/use/api.md says what a running product answers: every path, who may ask there, the fields of
each answer, its headers."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import anthropic
import httpx2 as httpx
import openai
import pytest
from msgspec import structs

from db.seals.seal import Sealer
from db.write.insert import AuditInserter
from protocol.dialects.table import of_client
from protocol.records import Record
from scripts.dashboard import lines
from streams.metrics import Now, Span, Total
from tests.support.checks.asking import ask
from tests.support.checks.markdown import DOCS, names, section, tables
from tests.support.checks.record import call_id, control_records, fresh_database, whole_call
from tests.support.json_values import Json
from tests.support.servers.product import KEY, Product, base_config, digest, running
from tests.support.waiting import wait_for

PAGE = (DOCS / "use" / "api.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"
KEYS = {role: f"sk-sluice-only-{role}" for role in ("client", "auditor", "monitor", "approver")}
BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
HELLO = [{"role": "user", "content": "hello"}]
REVIEW = "/audit/reviews/ID/BLOCK"
APPROVAL = "/audit/approvals/ID"
BODIES: Json = {
    "/v1/chat/completions": {"model": "demo", "messages": HELLO},
    "/v1/responses": {"model": "demo", "input": HELLO},
    "/v1/messages": {"model": "demo", "messages": HELLO, "max_tokens": 50},
    "/v1/messages/count_tokens": {"model": "demo-openai", "messages": HELLO},
    REVIEW: {"label": "honest"},
    APPROVAL: {"decision": "approve"},
}


async def store(url: str, *records: Record) -> None:
    """Put the records of a call there, with its seal."""
    async with AuditInserter(url) as inserter:
        assert not await inserter.insert(records, {})
    with Sealer(url) as sealer:
        await asyncio.to_thread(sealer.seal, [UUID(records[0].call_id)])


class Asked:
    """A product that was asked for some calls; `answers` are theirs."""

    controlled = ""
    """A call on which a policy `control` decided."""

    def __init__(self, product: Product) -> None:
        self.url = product.url
        self.product = product
        self.http = httpx.Client(base_url=product.url, headers={"x-api-key": KEY}, timeout=30)
        self.answers = [
            self.chat("list the files"),
            self.chat("delete everything with rm -rf /x", stream=True),
            self.chat("delete everything with rm -rf /y", policy="judged"),
            self.chat("hello", model="demo-anthropic", seed=7),
            *(
                self.http.post(path, json=body)
                for path, body in BODIES.items()
                if path.startswith("/v1")
            ),
        ]
        # its own: what is kept is for the key that was given it alone
        self.answers.append(
            httpx.post(
                f"{product.url}/v1/responses",
                json=BODIES["/v1/responses"],
                headers={"x-api-key": KEYS["client"]},
            )
        )
        self.kept = str(self.answers[-1].json()["id"])
        self.ids = [answer.headers["x-sluice-call-id"] for answer in self.answers]

    def chat(self, words: str, *, policy: str = "default", **more: Any) -> httpx.Response:
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": words}],
            "tools": [BASH],
            **more,
        }
        return self.http.post(
            "/v1/chat/completions", json=body, headers={"x-sluice-policy": policy}
        )

    def get(self, path: str, **given: str) -> Any:
        answer = self.http.get(path, params=given)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def is_on_record(self) -> bool:
        calls = self.get("/audit/calls")["items"]
        sealed = (
            all(not self.get("/audit/verify", call_id=i)["unsealed"] for i in self.ids)
            if len(calls) == len(self.ids)
            else False
        )
        return sealed and all(call["state"] != "ACTIVE" for call in calls)


@pytest.fixture(scope="module")
def asked(
    tmp_path_factory: pytest.TempPathFactory, redis_url: str, database_url: str
) -> Iterator[Asked]:
    config = base_config()
    config["policies"]["judged"] = config["policies"]["default"][1:]
    config["keys"][0]["policies"].append("judged")
    config["keys"] += [
        {"name": f"only-{role}", "sha256": digest(text), "roles": [role]}
        for role, text in KEYS.items()
    ]
    # its own: lists hold nothing but these calls
    with (
        fresh_database(database_url) as url,
        running(tmp_path_factory.mktemp("api"), redis_url, url, config) as product,
    ):
        product.start("pages")
        controlled = call_id()
        score, *others = control_records(controlled)
        # what a monitor measures besides has names of its own
        asyncio.run(store(url, *whole_call(controlled), structs.replace(score, dims=""), *others))
        ask(url, "apr_1", call=controlled)
        made = Asked(product)
        made.ids.append(controlled)
        made.controlled = controlled
        head = {"x-api-key": KEYS["auditor"]}
        assert (
            made.http.post(
                f"/audit/reviews/{controlled}/1", json=BODIES[REVIEW], headers=head
            ).status_code
            == 201
        )
        wait_for(made.is_on_record, what="all calls are on record")
        yield made
        made.http.close()


def fields(heading: str, which: int = 0) -> set[str]:
    """What a table of fields names; of a list of objects its name without brackets."""
    found = [table for table in tables(PAGE, heading) if table[0][0] == "field"][which]
    return {name.removesuffix("[]") for row in found[1:] for name in names(row[0])}


def leaves(value: object, place: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{place}.{key}" if place else key)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for one in value:
            yield from leaves(one, f"{place}[]")
    else:
        yield place


def shape(*values: object) -> set[str]:
    """The fields of all values together; what is null or empty in one and has fields in another is
    named by those."""
    found = {leaf for value in values for leaf in leaves(value)}
    return {
        one
        for one in found
        if not any(other.startswith((f"{one}.", f"{one}[]")) for other in found)
    }


# --- paths ---


ROWS = [
    (*names(where)[0].split(" "), role)
    for where, role, _ in tables(PAGE, "Paths")[0][1:]
    if role != "a login"
]
"""Method, path and role. Pages, which ask for a login, are tried in
tests/service/test_pages_http.py."""


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "role"), ROWS)
def test_a_path_answers_those_with_its_role_alone(
    asked: Asked, method: str, path: str, role: str
) -> None:
    known = {
        "/v1/models/ID": "demo",
        APPROVAL: "apr_1",
        "/v1/responses/ID": asked.kept,
        "/v1/responses/ID/input_items": asked.kept,
    }
    place = path.replace("ID", known.get(path, asked.controlled)).replace("BLOCK", "1")
    given = {"call_id": asked.ids[0]} if path == "/audit/verify" else {}
    for own, key in {**KEYS, "": ""}.items():
        head = {"authorization": f"Bearer {key}"} if key else {}
        answer = httpx.request(
            method,
            asked.url + place,
            params=given,
            json=BODIES.get(path) if method == "POST" else None,
            headers=head,
            timeout=30,
        )
        expected = 200 if role == "none" or own in names(role) else 403 if own else 401
        # clients of some dialects are told another status
        expected = (
            of_client(path, []).statuses.get(expected, expected)
            if not path.startswith(("/audit", "/debug"))
            else expected
        )
        assert answer.status_code == expected, (own, answer.text)


def test_a_request_for_approval_has_these_fields(asked: Asked) -> None:
    [item] = asked.get("/audit/approvals")["items"]
    assert shape(item) == fields("Approvals")


def test_clients_work_with_the_base_urls(asked: Asked) -> None:
    [table] = tables(PAGE, "The HTTP API")
    ours, theirs = (names(row[1])[0].replace(ADDRESS, asked.url) for row in table[1:3])
    with (
        openai.OpenAI(base_url=ours, api_key=KEY) as client,
        anthropic.Anthropic(base_url=theirs, api_key=KEY) as other,
    ):
        assert client.models.retrieve("demo").id == other.models.retrieve("demo").id == "demo"


def test_cors_is_not_served(asked: Asked) -> None:
    assert "CORS is not served" in PAGE
    for method, path, _ in ROWS:
        head = {"origin": "https://example.org", "access-control-request-method": method}
        for answer in (
            asked.http.options(path, headers=head),
            asked.http.request(method, path, headers=head),
        ):
            assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert asked.http.options(path, headers=head).status_code in (404, 405)


# --- fields ---


def test_a_call(asked: Asked) -> None:
    page = asked.get("/audit/calls")
    assert set(page) == {"items", "next_cursor"}
    assert shape(*page["items"]) == fields("A call")


def test_one_call(asked: Asked) -> None:
    calls = [asked.get(f"/audit/calls/{i}") for i in asked.ids]
    assert shape(*(tool_call for call in calls for tool_call in call["tool_calls"])) == fields(
        "A tool call"
    )
    assert shape(*(call | {"tool_calls": []} for call in calls)) == fields("A call") | fields(
        "One call"
    )


def test_a_tool_call_and_a_judge_block(asked: Asked) -> None:
    assert shape(*asked.get("/audit/tool-calls")["items"]) == fields("A tool call")
    assert shape(*asked.get("/audit/judge-blocks")["items"]) == fields("A tool call") | fields(
        "A judge block"
    )


def test_a_session(asked: Asked) -> None:
    page = asked.get("/audit/sessions")
    assert set(page) == {"items", "next_cursor", "looked_to"}
    assert shape(*page["items"]) == fields("A session")


def test_chunks(asked: Asked) -> None:
    pages = [asked.get(f"/audit/calls/{i}/chunks") for i in asked.ids]
    items = [item for page in pages for item in page["items"]]
    pieces = [piece for one in [*pages, *items] for piece in one["released"]]
    assert shape(*pieces) == fields("Chunks", 1)
    bare = [
        page | {"released": [], "items": [item | {"released": []} for item in page["items"]]}
        for page in pages
    ]
    assert shape(*bare) == fields("Chunks")


def test_reviews(asked: Asked) -> None:
    page = asked.get("/audit/reviews")
    assert set(page) == {"items", "counts", "next_cursor"}
    assert {f"counts.{name}" for name in page["counts"]} <= set(names(section(PAGE, "Reviews")))
    assert shape(*page["items"]) == fields("Reviews")


@pytest.mark.parametrize("by", ["day,key,verdict", "name,policy,reason", "session,model,key_id"])
def test_counts(asked: Asked, by: str) -> None:
    answer = asked.get("/audit/counts", by=by)
    assert shape(answer) == fields("Counts") | {f"items[].{name}" for name in by.split(",")}


@pytest.mark.parametrize("by", ["day,key", "hour,model,policy,revision"])
def test_usage(asked: Asked, by: str) -> None:
    answer = asked.get("/audit/usage", by=by)
    assert answer["newest"] == "counted"
    assert shape(answer) == fields("Usage") | {f"items[].{name}" for name in by.split(",")}


def test_export(asked: Asked) -> None:
    lines: dict[str, list[Json]] = defaultdict(list)
    for text in asked.http.get("/audit/export").text.splitlines():
        line = json.loads(text)
        if line["type"] != "export_end":
            assert line.pop("call_id")
        lines[line.pop("type")].append(line)
    [named] = [table for table in tables(PAGE, "Export") if table[0][0] == "line"]
    one, chunk = (
        fields("One call"),
        {name.removeprefix("items[].") for name in fields("Chunks") if name.startswith("items[].")},
    )
    kinds = ("block", "judgement", "score", "decision", "attempt", "event")
    want = {
        "call": fields("A call"),
        # why is an event there
        "tool_call": fields("A tool call") - {"why"},
        "chunk": chunk - {"released"},
        **{
            what: {n.partition("].")[2] for n in one if n.startswith(f"{what}s[].")}
            for what in kinds
        },
        **{names(row[0])[0]: set(names(row[1])) for row in named[1:]},
    }
    assert {kind: shape(*found) for kind, found in lines.items()} == {
        kind: found - {"call_id"} for kind, found in want.items()
    }


def test_verify(asked: Asked) -> None:
    assert shape(asked.get("/audit/verify", call_id=asked.ids[0])) == fields("Verify")


def test_models(asked: Asked) -> None:
    listed = asked.get("/v1/models")
    before_the_table = section(PAGE, "Models").partition("|")[0]
    assert set(names(before_the_table)) == {"GET /v1/models", *listed}
    assert shape(*listed["data"], asked.get("/v1/models/demo")) == fields("Models")


def test_state(asked: Asked) -> None:
    [table] = tables(PAGE, "State")
    said: dict[str, set[str]] = defaultdict(set)
    for path, named, _ in table[1:]:
        said[names(path)[0].removeprefix("GET ")] |= set(names(named))
    metrics = set(re.findall(r"^(sluice_\w+)", asked.http.get("/metrics").text, re.MULTILINE))
    # those of one process are on a page of their own
    own = {line.name for line in lines(Total, Span, Now)} - {"sluice_calls_total"}
    assert said.pop("/metrics") == {
        name for name in metrics if re.sub("_(bucket|count|sum)$", "", name) not in own
    }
    assert said == {path: set(asked.get(path)) for path in said}


# --- headers and errors ---


_OF_SOME = {
    "retry-after",
    "x-should-retry",
    # tests/e2e/test_routes.py, test_budgets.py, and those of keepalives
    *("x-sluice-attempts", "x-sluice-upstream", "x-sluice-model"),
    "x-sluice-limit",
    "x-sluice-waiting",
}
"""Headers that none of these answers has."""


@pytest.mark.slow
def test_every_response_header_is_on_the_page(asked: Asked) -> None:
    others = [
        asked.http.get(path)
        for path in (
            "/",
            "/v1/models",
            "/audit/calls",
            "/audit/export",
            "/nothing",
            "/audit/nothing",
        )
    ]
    others.append(asked.http.get("/", headers={"accept": "text/html"}))
    others.append(asked.chat("hello", policy="nobody"))
    found = {name for answer in [*asked.answers, *others] for name in answer.headers}
    [table] = tables(PAGE, "Response headers")
    said = {name for row in table[1:] for name in names(row[0])}
    assert found <= said
    assert said - found == _OF_SOME


@pytest.mark.slow
def test_errors_have_the_form_of_their_dialect(asked: Asked) -> None:
    [example] = re.findall(r"```json\n(.*?)```", section(PAGE, "Errors"), re.DOTALL)
    ours, theirs = (json.loads(line) for line in example.splitlines())
    for path, want in (("/v1/chat/completions", ours), ("/v1/messages", theirs)):
        answer = asked.http.post(path, json=BODIES[path] | {"model": "nobody"}).json()
        assert shape(answer) == shape(want)
        assert answer["error"]["type"] == want["error"]["type"]
    assert (
        asked.http.post("/v1/chat/completions", json={"model": "nobody", "messages": HELLO}).json()[
            "error"
        ]["code"]
        == "model_not_found"
    )
