"""The demo model where a configuration names other models: not there, unless it is asked for."""

from pathlib import Path

import anthropic
import openai
import pytest

from tests.support.clients.sdk_calls import anthropic_client, openai_client
from tests.support.json_values import Json
from tests.support.upstreams.product import config, replayed
from tests.support.upstreams.replay import Replay, Reply


@pytest.mark.slow
def test_a_demo_model_that_is_switched_off_is_no_model(
    tmp_path: Path, redis_url: str, database_url: str
) -> None:
    def without(server: Replay) -> Json:
        made = config(server)
        del made["demo"]
        return made

    with replayed(tmp_path, redis_url, database_url, without) as (product, replay):
        with openai_client(product.url) as client, anthropic_client(product.url) as other:
            assert [m.id for m in client.models.list()] == [m.id for m in other.models.list()] == []
            for model in ("demo", "demo-openai", "demo-anthropic"):
                with pytest.raises(openai.NotFoundError) as unknown:
                    client.chat.completions.create(
                        model=model, messages=[{"role": "user", "content": "hello"}]
                    )
                assert unknown.value.code == "model_not_found"
                with pytest.raises(anthropic.NotFoundError):
                    other.messages.create(
                        model=model, max_tokens=9, messages=[{"role": "user", "content": "hello"}]
                    )
            replay.answer(
                Reply(
                    b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"},'
                    b' "finish_reason": "stop"}]}'
                )
            )
            bash = {
                "type": "function",
                "function": {"name": "bash", "parameters": {"type": "object"}},
            }
            client.chat.completions.create(
                model="gpt-x",
                tools=[bash],  # type: ignore[list-item]
                messages=[{"role": "user", "content": "go"}],
            )
        assert len(replay.asked) == 1
