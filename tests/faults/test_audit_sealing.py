"""Audit writers of a running product seal what ended, cover what came late and sign checkpoints; a
kill leaves nothing unsealed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from db.seals import checkpoints
from protocol.records import EventRecord, Record, encode_records
from streams import layout
from tests.support.checks.record import chunks_record, fresh_database, now_ms, rows
from tests.support.checks.sealed import run, verified
from tests.support.servers.product import CLIENT_KEY, KEY, Product, base_config
from tests.support.waiting import wait_for


@pytest.fixture
def product(database_url: str, redis_url: str, tmp_path: Path) -> Iterator[Product]:
    config = base_config() | {"limits": {"lease_s": 1.0, "seal_s": 0.1, "checkpoint_s": 0.3}}
    with fresh_database(database_url) as url, Product(tmp_path, redis_url, url, config) as product:
        yield product


def call(product: Product, prompt: str = "hello") -> str:
    """Make one call; returns its id."""
    body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": prompt}]}
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(
        f"{product.url}/v1/chat/completions", json=body, headers=headers, timeout=30
    )
    assert answer.status_code == 200, product.logs()
    return answer.headers["x-sluice-call-id"]


def seals(product: Product, *calls: str) -> int:
    """How many seals these calls have."""
    [(count,)] = rows(
        product.database_url,
        "SELECT count(*) FROM seals WHERE call_id = ANY(%s::uuid[])",
        list(calls),
    )
    return int(count)


def pem_pair(folder: Path, name: str) -> tuple[str, Path]:
    """A private key as text, and the file of its public key."""
    key = Ed25519PrivateKey.generate()
    public = folder / f"{name}.pem"
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(), public


@pytest.mark.slow
@pytest.mark.case("A1")
def test_a1_what_a_running_product_records_is_sealed_and_verifies(
    product: Product, tmp_path: Path
) -> None:
    private, public = pem_pair(tmp_path, "own")
    _, other = pem_pair(tmp_path, "other")
    secret = tmp_path / "seal.pem"
    secret.write_text(private)
    product.start("audit", env={"SLUICE_SEAL_KEY_FILE": str(secret)})
    product.start("judge", "gateway", "policy")
    made = [call(product, prompt) for prompt in ("hello", "use a tool", "think")]
    wait_for(lambda: seals(product, *made) == 3, what="every ended call is sealed")
    text = wait_for(
        lambda: rows(product.database_url, "SELECT text FROM checkpoints WHERE size >= 3"),
        what="a checkpoint over them",
    )[0][0]
    code, said = verified(product.database_url)
    assert (code, said["calls"], said["unsealed"], said["extended"]) == (0, 3, 0, 0), said

    answer = product.audit("verify", call_id=made[0])
    assert (answer["ok"], answer["calls"], answer["checkpoints"] >= 1) == (True, 1, True)
    assert product.audit("verify", since="2020-01-01")["calls"] == 3
    for params, key, status in (
        ({}, KEY, 400),
        ({"since": "2020-01-01", "q": "x"}, KEY, 400),
        ({"call_id": made[0]}, CLIENT_KEY, 403),
    ):
        refused = httpx.get(
            f"{product.url}/audit/verify", params=params, headers={"x-api-key": key}
        )
        assert refused.status_code == status

    signed = verified(product.database_url, "--public-key", str(public))
    assert (signed[0], signed[1]["signed"]) == (0, signed[1]["checkpoints"])
    code, said = verified(product.database_url, "--public-key", str(other))
    assert (code, said["first"]["class"], said["signed"]) == (1, "checkpoint_mismatch", 0)
    kept = tmp_path / "kept.txt"
    kept.write_text(run(product.database_url, "checkpoint").stdout)
    assert verified(product.database_url, "--against", str(kept))[0] == 0
    assert private not in product.logs()

    root = checkpoints.parse(text).root.hex()
    assert any(root in child.tail() for child in product.of("audit")), (
        "the log holds what the database does"
    )


@pytest.mark.slow
@pytest.mark.case("A1")
def test_a1_a_record_that_comes_after_the_seal_is_covered_before_it_leaves_redis(
    product: Product,
) -> None:
    product.start("audit", "judge", "gateway", "policy")
    made = call(product)
    wait_for(lambda: seals(product, made) == 1)
    late: list[Record] = [
        EventRecord(call_id=made, kind="fenced", number=1, at=now_ms(), detail="FENCED worker old"),
        chunks_record(made, [b"from a worker that had lost the call"], seq=5000),
    ]
    product.redis.xadd(layout.audit_key(0), {layout.BLOB: encode_records(late)})
    wait_for(lambda: seals(product, made) == 2, what="a part that covers the late rows")
    code, said = verified(product.database_url)
    assert (code, said["ok"], said["extended"], said["incomplete_calls"]) == (0, True, 1, []), said
    pending: Any = product.redis.xpending(layout.audit_key(0), layout.AUDIT_GROUP)
    assert pending["pending"] == 0


@pytest.mark.slow
@pytest.mark.case("A1")
def test_a1_a_killed_writer_leaves_nothing_unsealed(product: Product) -> None:
    product.config_file.write_text(
        product.config_file.read_text().replace("seal_s: 0.1", "seal_s: 3600")
    )
    product.start("audit", "judge", "gateway", "policy")
    made = [call(product) for _ in range(3)]
    wait_for(lambda: rows(product.database_url, "SELECT count(*) FROM ends") == [(3,)])
    assert seals(product, *made) == 0
    product.of("audit")[0].kill()
    product.config_file.write_text(
        product.config_file.read_text().replace("seal_s: 3600", "seal_s: 0.1")
    )
    product.start("audit")
    wait_for(lambda: seals(product, *made) == 3, what="the next writer's sweep finds them")
    assert verified(product.database_url)[0] == 0
