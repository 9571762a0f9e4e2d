"""What the official SDKs make of bytes: each client over a transport that answers with them."""

from typing import Any

import anthropic
import httpx2
import openai
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion
from openai.types.responses import Response


def _transport(body: bytes, *, stream: bool, status: int) -> httpx2.MockTransport:
    kind = "text/event-stream; charset=utf-8" if stream else "application/json"
    return httpx2.MockTransport(
        lambda _: httpx2.Response(status, headers={"content-type": kind}, content=body)
    )


def openai_answer(body: bytes, *, stream: bool, status: int = 200) -> ChatCompletion:
    """The completion that the openai SDK accumulates."""
    with httpx2.Client(transport=_transport(body, stream=stream, status=status)) as http:
        client = openai.OpenAI(
            api_key="k", base_url="http://upstream/v1", http_client=http, max_retries=0
        )
        messages: Any = [{"role": "user", "content": "x"}]
        if not stream:
            return client.chat.completions.create(model="m", messages=messages)
        # as the SDK's stream helper does, which however raises on the finish reason length
        state: Any = ChatCompletionStreamState()
        for chunk in client.chat.completions.create(model="m", messages=messages, stream=True):
            state.handle_chunk(chunk)
        completion: ChatCompletion = state.current_completion_snapshot
        return completion


def responses_answer(body: bytes, *, stream: bool, status: int = 200) -> Response:
    """The response that the openai SDK accumulates, in whatever way it ended; the accumulator sees
    every event."""
    with httpx2.Client(transport=_transport(body, stream=stream, status=status)) as http:
        client = openai.OpenAI(
            api_key="k", base_url="http://upstream/v1", http_client=http, max_retries=0
        )
        if not stream:
            return client.responses.create(model="m", input="x")
        last: Any = None
        with client.responses.stream(model="m", input="x") as events:
            for event in events:
                last = event
        assert last.type in (
            "response.completed",
            "response.incomplete",
            "response.failed",
        ), last.type
        response: Response = last.response
        return response


def anthropic_answer(body: bytes, *, stream: bool, status: int = 200) -> anthropic.types.Message:
    """The message that the anthropic SDK accumulates."""
    with httpx2.Client(transport=_transport(body, stream=stream, status=status)) as http:
        client = anthropic.Anthropic(
            api_key="k", base_url="http://upstream", http_client=http, max_retries=0
        )
        ask: Any = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "x"}]}
        if not stream:
            answer: anthropic.types.Message = client.messages.create(**ask)
            return answer
        with client.messages.stream(**ask) as events:
            message: anthropic.types.Message = events.get_final_message()
            return message


def anthropic_beta_answer(
    body: bytes, *, stream: bool, status: int = 200
) -> anthropic.types.beta.BetaMessage:
    """The message that the anthropic SDK's beta helper accumulates: it knows more kinds of blocks
    and fields."""
    with httpx2.Client(transport=_transport(body, stream=stream, status=status)) as http:
        client = anthropic.Anthropic(
            api_key="k", base_url="http://upstream", http_client=http, max_retries=0
        )
        ask: Any = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "x"}]}
        if not stream:
            answer: anthropic.types.beta.BetaMessage = client.beta.messages.create(**ask)
            return answer
        with client.beta.messages.stream(**ask) as events:
            message: anthropic.types.beta.BetaMessage = events.get_final_message()
            return message
