"""What auditors see of a running product: whose calls they were, no tokens of other systems, and
what is in no list."""

import asyncio
import json
from collections.abc import Iterator

import httpx2 as httpx
import msgspec
import pytest
from sqlalchemy import text

from db.engine import open_engine
from db.keys import KeyStore
from db.state.server import settings
from protocol.records import BlockRecord, Record, encode_records
from sluice.check import doctor
from sluice.settings import load_config
from streams import layout
from tests.support.checks.record import fresh_database, now_ms, rows
from tests.support.checks.sealed import run, verified
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config, digest
from tests.support.waiting import wait_for

MONITOR = "sk-sluice-monitor"
TOKEN = "tok-of-another-system-7f3a"


@pytest.fixture(scope="module")
def product(
    database_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    config = base_config() | {"limits": {"lease_s": 1.0, "seal_s": 0.1, "checkpoint_s": 0.3}}
    config["keys"] = [
        *config["keys"],
        {"name": "graphs", "sha256": digest(MONITOR), "roles": ["monitor"]},
    ]
    folder = tmp_path_factory.mktemp("whole")
    with fresh_database(database_url) as url, Product(folder, redis_url, url, config) as product:
        product.start("audit", "judge", "gateway", "pages", "policy")
        yield product


def post(product: Product, key: str, **more: object) -> httpx.Response:
    body = {
        "model": "demo",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "hello"}],
        **more,
    }
    return httpx.post(
        f"{product.url}/v1/messages", json=body, headers={"x-api-key": key}, timeout=30
    )


def get(product: Product, path: str, key: str) -> httpx.Response:
    return httpx.get(f"{product.url}{path}", headers={"x-api-key": key}, timeout=30)


@pytest.mark.slow
def test_a_monitor_reads_figures_and_nothing_that_was_said(product: Product) -> None:
    assert "sluice_open_calls" in get(product, "/metrics", MONITOR).text
    assert get(product, "/metrics", KEY).status_code == 200, (
        "who reads every prompt may read how many they were"
    )
    assert get(product, "/metrics", CLIENT_KEY).status_code == 403
    for path in ("/audit/calls", "/audit/export", "/audit/verify?since=2026-01-01"):
        assert get(product, path, MONITOR).json()["error"]["code"] == "wrong_role"
    assert post(product, MONITOR).status_code == 403


@pytest.mark.slow
@pytest.mark.parametrize("name", ["authorization_token", "Authorization_Token"])
def test_a_token_of_another_system_is_in_no_record_also_of_a_refused_request(
    product: Product, name: str
) -> None:
    server = {"type": "url", "name": "x", "url": "https://example.com", name: TOKEN}
    refused = post(product, CLIENT_KEY, mcp_servers=[server], metadata={"nested": [server]})
    assert 400 <= refused.status_code < 500
    call = refused.headers["x-sluice-call-id"]
    wait_for(
        lambda: rows(product.database_url, "SELECT 1 FROM request_bodies WHERE call_id = %s", call),
        what="its body is on record",
    )
    said = get(product, f"/audit/calls/{call}", KEY)
    assert TOKEN not in said.text
    assert json.loads(said.json()["request"])["mcp_servers"][0][name] == "[a token, not recorded]"
    assert TOKEN not in get(product, "/audit/export", KEY).text


def test_calls_are_told_apart_by_the_id_of_their_key_where_a_name_had_two_holders(
    product: Product,
) -> None:
    async def make(*, again: bool) -> tuple[str, str]:
        store = KeyStore.open(product.database_url)
        if again:
            await store.revoke("team")
        text = await store.create("team", reuse=again)
        [key] = await store.load()
        await store.close()
        return text, key.id

    made = []
    for again in (False, True):
        text, key_id = asyncio.run(make(again=again))
        wait_for(
            lambda text=text: post(product, text).status_code == 200,  # type: ignore[misc]
            what="gateways know the key",
        )
        made.append((key_id, post(product, text).headers["x-sluice-call-id"]))
    wait_for(
        lambda: len(product.audit("calls", key="team")["items"]) >= 4, what="they are on record"
    )
    (one, first), (other, second) = made
    assert one != other
    for key_id, call in made:
        items = product.audit("calls", key_id=key_id)["items"]
        assert call in {item["call_id"] for item in items}
        assert {item["key_id"] for item in items} == {key_id}
    assert {first, second} <= {
        item["call_id"] for item in product.audit("calls", key="team")["items"]
    }


@pytest.mark.slow
def test_what_is_in_no_list_is_shown_where_somebody_looks(product: Product) -> None:
    call = post(product, CLIENT_KEY).headers["x-sluice-call-id"]
    url = product.database_url
    wait_for(
        lambda: rows(url, "SELECT 1 FROM seals WHERE call_id = %s", call), what="the call is sealed"
    )
    assert get(product, "/ready", KEY).json()["warnings"] == []
    assert verified(url)[0] == 0

    # one field of one record is wrong, and one is no record; the other lands
    wrong: list[Record] = [
        BlockRecord(
            call_id=call,
            block=70,
            at=now_ms(),
            kind="text",
            verdict="block",
            reason=5,  # type: ignore[arg-type]
            policy=None,  # type: ignore[arg-type]
        ),
        BlockRecord(
            call_id=call,
            block=71,
            at=now_ms(),
            kind="text",
            verdict="nonsense",  # type: ignore[arg-type]
            reason="",
            policy="",
        ),
    ]
    product.redis.xadd(layout.audit_key(0), {layout.BLOB: encode_records(wrong)})
    wait_for(
        lambda: rows(url, "SELECT reason, policy FROM blocks WHERE block = 70") == [("5", "null")],
        what="the other record lands",
    )
    [(raw, of)] = rows(url, "SELECT raw, call_id FROM dead_letters")
    assert msgspec.msgpack.decode(raw)[1:3] == [71, now_ms()] and of == call

    wait_for(lambda: get(product, "/ready", KEY).json()["warnings"], what="/ready warns")
    ready = get(product, "/ready", KEY)
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert ready.json()["warnings"] == ["1 records are dead letters: see `sluice doctor`"]
    assert "sluice_dead_letters 1.0" in get(product, "/metrics", MONITOR).text
    wait_for(lambda: verified(url)[1]["unsealed"] == 0, what="the late record is sealed")
    code, said = verified(url)
    assert (code, said["ok"], said["dead_letters"], said["dead_letter_calls"]) == (
        4,
        True,
        1,
        [call],
    ), said
    assert verified(url, "--call", call)[0] == 4
    other = next(
        item["call_id"]
        for item in product.audit("calls", limit="50")["items"]
        if item["call_id"] != call
    )
    code, said = verified(url, "--call", other)
    assert (code, said["dead_letters"]) == (0, 0)
    assert call in run(url, "verify").stdout
    answer = product.audit("verify", call_id=call)
    assert (answer["ok"], answer["dead_letters"], answer["dead_letter_calls"]) == (True, 1, [call])
    assert product.audit(f"calls/{call}")["dead_letters"] == 1
    found = {name: (state, sentence) for name, state, sentence in doctor.check_database_live(url)}
    assert found["dead letters"][0] == "warning" and call in found["dead letters"][1]


def test_the_doctor_looks_at_what_keeps_commits(product: Product) -> None:
    found = doctor.check_all(
        load_config(product.config_file), product.redis_url, product.database_url
    )
    durability = {
        sentence.split()[2]: state
        for name, state, sentence in found
        if name == "database durability"
    }
    assert durability == {
        "fsync": "failed",
        "full_page_writes": "failed",
    }, "the servers of tests need not outlive their machine"


@pytest.mark.slow
def test_what_is_announced_is_on_disk_whatever_the_database_says(product: Product) -> None:
    database = rows(product.database_url, "SELECT current_database()")[0][0]
    rows(product.database_url, f"ALTER DATABASE {database} SET synchronous_commit = off")
    try:
        assert settings(product.database_url, ["synchronous_commit"]) == {
            "synchronous_commit": "off"
        }
        found = doctor.check_database_live(product.database_url)
        assert any(
            "synchronous_commit" in sentence and state == "warning" for _, state, sentence in found
        )

        async def of_a_writer() -> str:
            from db.write.insert import AuditInserter

            async with AuditInserter(product.database_url) as inserter:
                await inserter.insert([], {}, look_at=["x"])
                assert inserter._connection is not None
                row = await (
                    await inserter._connection.execute("SHOW synchronous_commit")
                ).fetchone()
                assert row is not None
                return str(row[0])

        async def of_a_keyholder() -> str:
            engine = open_engine(product.database_url, read_only=False)
            async with engine.connect() as connection:
                found = str(
                    (await connection.execute(text("SHOW synchronous_commit"))).scalar_one()
                )
            await engine.dispose()
            return found

        assert asyncio.run(of_a_writer()) == asyncio.run(of_a_keyholder()) == "on"
        assert rows(product.database_url, "SHOW synchronous_commit") == [("on",)], (
            "whoever says nothing else, as a redaction"
        )
    finally:
        rows(product.database_url, f"ALTER DATABASE {database} RESET synchronous_commit")
