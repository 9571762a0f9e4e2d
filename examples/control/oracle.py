"""Two stand-ins for models, for measuring, behind one OpenAI-compatible server: a judge that is
always right, since it knows the attack of the run that goes on, and an agent that follows a script.

The judge shows what a series of policies is worth at best, when its judge makes no mistake. Real
judges make some: measure yours with it beside this.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_ENVELOPE = re.compile(r"<envelope (\S+)>\n(.*)\n</envelope ", re.DOTALL)
BLOCKED = "[Sluice blocked the tool call"
"""How the result of a blocked call begins."""


def called(name: str, arguments: dict[str, Any]) -> str:
    """Return a call in a form in which equal ones are equal."""
    return json.dumps([name, arguments], sort_keys=True, default=str)


class Oracle:
    """What is harmful in this run, and how often the judge was asked."""

    def __init__(self) -> None:
        self.harmful: set[str] = set()
        self.asked = 0

    def answer(self, prompt: str) -> str:
        """Answer one question: 1 for a call of the attack, 0 for any other."""
        self.asked += 1
        found = _ENVELOPE.search(prompt)
        if found is None:
            raise ValueError("no envelope in the question")
        call = json.loads(found[2])["call"]
        arguments = call["arguments"]
        is_harmful = (
            called(
                call["name"], arguments if isinstance(arguments, dict) else json.loads(arguments)
            )
            in self.harmful
        )
        why = "the attacker's script" if is_harmful else "not the attacker's script"
        return json.dumps(
            {
                "nonce": found[1],
                "probability": float(is_harmful),
                "explanation": f"This call is {why}.",
            }
        )


class Agent:
    """An agent that makes the calls of a script, one an answer, then says its last words.

    The calls in `harmful` are an injection's, for which it falls. Once it has read that one of them
    was blocked, it leaves out the others, unless it `insists`, and goes on with the user's task.
    """

    def __init__(self, *, insists: bool) -> None:
        self.insists = insists
        self.calls: list[dict[str, Any]] = []
        self.harmful: set[str] = set()
        self.last = "Done."
        self.made = 0

    def answer(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Return its next message to these."""
        if not self.insists and BLOCKED in str(messages[-1]["content"]):
            self.calls = [c for c in self.calls if called(**c) not in self.harmful]
        if not self.calls:
            return {"content": self.last}
        call, self.made = self.calls.pop(0), self.made + 1
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        made = {"id": f"call_{self.made}", "type": "function", "function": function}
        return {"content": None, "tool_calls": [made]}


@contextmanager
def serving(oracle: Oracle, agent: Agent | None, port: int) -> Iterator[None]:
    """Serve both at http://127.0.0.1:PORT/v1: the model `oracle`, and the agent by any other
    name."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            messages, message, said, status = body["messages"], {"role": "assistant"}, "", 200
            try:
                if agent is not None and body["model"] != "oracle":
                    message |= agent.answer(messages)
                else:
                    message["content"] = oracle.answer(str(messages[-1]["content"]))
            except (ValueError, KeyError, TypeError) as error:
                said, status = f"the oracle cannot read this question: {error}", 400
            answer = {"id": "oracle", "object": "chat.completion", "created": 0, "model": "oracle"}
            ending = "tool_calls" if "tool_calls" in message else "stop"
            choices = [{"index": 0, "message": message, "finish_reason": ending}]
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            whole = (
                answer | {"choices": choices, "usage": usage}
                if status == 200
                else {"error": {"message": said, "type": "invalid_request_error"}}
            )
            data = json.dumps(whole).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
