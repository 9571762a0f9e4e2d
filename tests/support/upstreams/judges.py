"""A judge model on loopback that answers when it is let, and counts what it was asked."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.json_values import Json, as_json

MODEL = "judge-model"
_NONCE = re.compile(r"[0-9a-f]{32}")


class JudgeModel:
    """Answers one of `probabilities` after the other, then the last, but only while `open` is set;
    `asked` are the prompts that came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.probabilities = [0.0]
        self.explanations = ["as told"]
        """One after the other, and again."""
        self.decide: Callable[[str], float] | None = None
        """Gives the probability for a prompt, in place of `probabilities`."""
        self.answered_at: list[float] = []
        """When it answered, by the monotonic clock."""
        self.open = threading.Event()
        self.open.set()
        self.url = ""

    def answer(self, prompt: str) -> bytes:
        """The answer to a prompt, as a chat completion."""
        self.asked.append(prompt)
        probability = self.probabilities[min(len(self.asked), len(self.probabilities)) - 1]
        if self.decide is not None:
            probability = self.decide(prompt)
        self.open.wait(30)
        self.answered_at.append(time.monotonic())
        found = _NONCE.search(prompt)
        why = self.explanations[len(self.asked) % len(self.explanations)]
        said = json.dumps(
            {"nonce": found[0] if found else "", "probability": probability, "explanation": why},
            ensure_ascii=False,
        )
        return as_json(
            {"choices": [{"index": 0, "finish_reason": "stop", "message": {"content": said}}]}
        )


@contextmanager
def judge_model() -> Iterator[JudgeModel]:
    """Run a judge model."""
    model = JudgeModel()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            data = model.answer(body["messages"][-1]["content"])
            try:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except OSError:
                pass

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        yield model
    finally:
        model.open.set()
        server.shutdown()
        server.server_close()


def judged_by(config: Json, model: JudgeModel, *, deadline_s: float = 20.0) -> Json:
    """The configuration with a policy `asking` that lets this model judge every tool call."""
    config["upstreams"] = config.get("upstreams", {}) | {
        "judges": {"dialect": "openai", "base_url": f"{model.url}/v1"}
    }
    config["demo"] = True
    config["models"] = [{"match": MODEL, "upstream": "judges"}, *config.get("models", ())]
    config["policies"]["asking"] = [
        {"use": "tool_judge", "model": MODEL, "threshold": 0.6, "deadline_s": deadline_s}
    ]
    config["keys"][0]["policies"].append("asking")
    return config
