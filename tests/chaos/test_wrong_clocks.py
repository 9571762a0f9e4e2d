"""Clocks that are days off, jump and come back: nothing of today goes, and no call gets onto record
under a wrong day."""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from db.migrations.migrate import upgrade
from db.seals.retention import KINDS, RetentionRun, RetentionStep
from protocol.errors import InvalidRequest
from settings.config import Config
from settings.runtime import Runtime
from sluice.check.live_database import clock
from streams.clock import read_time
from tests.support.checks.record import call_id, rows
from tests.support.checks.sealed import fill
from tests.support.servers.product import KEY, ROOT, Product, base_config
from tests.support.servers.stores import own_postgres, own_valkey
from tests.support.servers.wrong_clock import wrong_clocks
from tests.support.waiting import wait_for, wait_until
from workers.audit.retention import RetentionLoop

CALLS = "SELECT count(*)::int FROM calls"


@pytest.mark.case("C12")
def test_nothing_old_goes_while_one_of_three_clocks_is_wrong(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "sluice.yaml"
    config.write_text("retention: {everything: 30, chunks: 30}\n")
    with (
        wrong_clocks(3) as (of_postgres, of_redis, of_command),
        own_postgres(tmp_path, of_postgres.env) as postgres,
        own_valkey(tmp_path, of_redis.env) as valkey,
    ):
        url, chance = postgres.url, random.Random(seed)
        upgrade(url, retains=True)
        fill(url, chance, calls=2, checkpoints=1, days_ago=40)
        fill(url, chance, calls=2, checkpoints=1)
        shown = {
            "SLUICE_DATABASE_URL": url,
            "SLUICE_REDIS_URL": valkey.url,
            "SLUICE_CONFIG": str(config),
            "PYTHONPATH": str(ROOT),
        }

        def retention() -> tuple[int, str]:
            command = [sys.executable, "-m", "sluice.cli", "audit", "retention", "--yes", "--json"]
            env = {**os.environ, **shown, **of_command.env}
            done = subprocess.run(
                command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
            )
            return done.returncode, done.stdout + done.stderr

        for wrong in (of_postgres, of_redis):
            for days in (45, -45):
                wrong.set(days)
                redis_time = partial(read_time, valkey.url)
                with (
                    RetentionRun(url, {"everything": 30}, redis_time=redis_time) as one,
                    pytest.raises(InvalidRequest, match=r"45\.0 days"),
                ):
                    one.due()
            wrong.set(0)
        of_command.set(45)
        code, said = retention()
        assert (
            code == 2
            and "45.0 days" in said
            and "no old rows are deleted while clocks differ" in said
        ), said
        of_command.set(0)
        assert rows(url, CALLS) == [(4,)]

        # the writer, by itself
        of_postgres.set(45)
        [(state, sentence)] = clock(url)
        assert (
            state == "failed"
            and "the clock of PostgreSQL is 45.0 days ahead" in sentence
            and "no old rows are deleted" in sentence
        )
        runtime = Runtime(
            config=Config.model_validate({"retention": {"everything": 30}}),
            redis_url=valkey.url,
            database_url=url,
            name="w",
        )

        async def writer() -> None:
            loop = asyncio.create_task(RetentionLoop(runtime, first_s=0.0, step_s=0.0).run())
            await wait_until(
                lambda: "45.0 days" in str([vars(one) for one in caplog.records]),
                what="the writer's log",
            )
            loop.cancel()
            await asyncio.wait([loop])

        asyncio.run(writer())
        assert rows(url, CALLS) == [(4,)]

        # what was found by a clock that has come back since
        of_postgres.set(0)
        with (
            RetentionRun(url, {"everything": 30}, redis_time=time.time) as late,
            pytest.raises(InvalidRequest, match="may not go yet"),
        ):
            late.take(RetentionStep(KINDS[-1], datetime.now(UTC).date(), 0))
        code, said = retention()
        assert (
            code == 0
            and sum(
                one["taken"] for one in json.loads(said)["items"] if one["table"] == "everything"
            )
            == 2
        ), said
        assert rows(url, CALLS) == [(2,)]


@pytest.mark.case("C12")
def test_a_gateway_whose_clock_is_wrong_takes_no_calls_until_it_is_right(
    tmp_path: Path, redis_url: str, url: str
) -> None:
    config = base_config() | {"retention": {"everything": 1}}
    with wrong_clocks(1) as (wrong,), Product(tmp_path, redis_url, url, config) as product:
        wrong.set(-3)
        product.start("policy", "audit")
        product.start("gateway", env=wrong.env)

        def ask(path: str, **more: Any) -> httpx.Response:
            body = {"model": "demo", "messages": [{"role": "user", "content": "hello"}], **more}
            return httpx.post(
                product.url + path,
                json=body,
                headers={"authorization": f"Bearer {KEY}", "x-sluice-policy": "noop"},
                timeout=20,
            )

        def ready() -> tuple[int, str]:
            found = httpx.get(f"{product.url}/ready", timeout=5)
            return found.status_code, found.text

        for answer in (ask("/v1/chat/completions"), ask("/v1/messages", max_tokens=5)):
            said = answer.json()["error"]
            assert (
                answer.status_code == 503
                and "3.0 days behind Redis" in said["message"]
                and "NTP" in said["message"]
            ), answer.text
            assert "retry-after" in answer.headers
        assert ready()[0] == 503 and "3.0 days behind" in ready()[1]
        wrong.set(0)
        assert (
            wait_for(lambda: ready()[0] == 200, what="it is ready again")
            and ask("/v1/chat/completions").status_code == 200
        )
        # by the call itself, before any heartbeat
        wrong.set(3)
        assert ask("/v1/chat/completions").status_code == 503
        wrong.set(30 / 86_400)
        wait_for(lambda: "30.0 s ahead of Redis" in ready()[1], what="the warning")
        assert ready()[0] == ask("/v1/chat/completions").status_code == 200
        wait_for(lambda: rows(url, CALLS) == [(2,)], what="the record of both")
        least, most = call_id(int(time.time() - 120) * 1000), call_id(int(time.time() + 120) * 1000)
        assert rows(
            url, f"{CALLS} WHERE call_id > %s::uuid AND call_id < %s::uuid", least, most
        ) == [(2,)]
