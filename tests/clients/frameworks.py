"""LangChain and instructor: structured answers in each way they know, a tool, a wrong key.

The script gets one argument, {url, key, words, cases: [{name, client, way, model}]}, and prints one
line of JSON for each case: {name, got} or {name, error, kind}. It runs in an environment of its
own, with the packages of requirements.txt beside it.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, Literal

import anthropic
import instructor
import openai
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

PLACE: dict[str, Any] = {}
"""The script's argument."""
LIMITS: dict[str, Any] = {"max_retries": 0, "timeout": 20}


class Event(BaseModel):
    """What is asked for."""

    name: str
    day: Literal["Friday", "Saturday"]
    guests: list[str]
    place: str | None


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def key_for(way: str) -> str:
    """The key, or one that is none."""
    return "sk-wrong" if way == "key" else str(PLACE["key"])


def langchain(chat: Any, way: str) -> Any:
    """Ask LangChain's model."""
    match way:
        case "key":
            return chat.invoke(PLACE["words"]).text
        case "tool":
            return (
                chat.bind_tools([get_weather], tool_choice="get_weather")
                .invoke("weather in Oslo")
                .tool_calls[0]["args"]
            )
        case "stream":
            return list(chat.with_structured_output(Event).stream(PLACE["words"]))[-1].model_dump()
        case method:
            return (
                chat.with_structured_output(Event, method=method)
                .invoke(PLACE["words"])
                .model_dump()
            )


def langchain_openai(way: str, model: str) -> Any:
    """LangChain's client for chat/completions."""
    return langchain(
        ChatOpenAI(model=model, base_url=PLACE["url"] + "/v1", api_key=key_for(way), **LIMITS), way
    )


def langchain_anthropic(way: str, model: str) -> Any:
    """LangChain's client for Messages."""
    return langchain(
        ChatAnthropic(model=model, base_url=PLACE["url"], api_key=key_for(way), **LIMITS), way
    )


def instructor_openai(way: str, model: str) -> Any:
    """instructor over the openai SDK; `way` is one of its modes."""
    plain = openai.OpenAI(base_url=PLACE["url"] + "/v1", api_key=key_for(way), **LIMITS)
    client = instructor.from_openai(plain, mode=instructor.Mode[way])
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": PLACE["words"]}],
        "response_model": Event,
        "max_retries": 0,
    }
    return client.chat.completions.create(model=model, **asked).model_dump()


def instructor_anthropic(way: str, model: str) -> Any:
    """instructor over the anthropic SDK."""
    plain = anthropic.Anthropic(base_url=PLACE["url"], api_key=key_for(way), **LIMITS)
    client = instructor.from_anthropic(plain, mode=instructor.Mode[way])
    asked: dict[str, Any] = {
        "messages": [{"role": "user", "content": PLACE["words"]}],
        "response_model": Event,
        "max_retries": 0,
    }
    return client.messages.create(model=model, max_tokens=1000, **asked).model_dump()


CLIENTS: dict[str, Callable[[str, str], Any]] = {
    "langchain-openai": langchain_openai,
    "langchain-anthropic": langchain_anthropic,
    "instructor-openai": instructor_openai,
    "instructor-anthropic": instructor_anthropic,
}

if __name__ == "__main__":
    PLACE.update(json.loads(sys.argv[1]))
    for case in PLACE["cases"]:
        said = {"name": case["name"]}
        try:
            said["got"] = CLIENTS[case["client"]](case["way"], case["model"])
        except Exception as error:  # noqa: BLE001  each error is the answer of its case
            said |= {"error": str(error), "kind": [base.__name__ for base in type(error).__mro__]}
        print(json.dumps(said))
