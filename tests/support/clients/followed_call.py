"""A call to the demo model that goes on while it is looked at."""

import threading

import httpx2 as httpx

from tests.support.servers.product import KEY, Product

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}


class Call:
    """A call to the demo model that goes on in a thread."""

    def __init__(self, product: Product, say: str, *, model: str = "demo") -> None:
        self.id, self._begun, self._enough = "", threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(product, say, model))
        self._thread.start()
        assert self._begun.wait(10)

    def _run(self, product: Product, say: str, model: str) -> None:
        body = {
            "model": model,
            "stream": True,
            "messages": [{"role": "user", "content": say}],
            "tools": [BASH],
        }
        with httpx.stream(
            "POST",
            f"{product.url}/v1/chat/completions",
            json=body,
            headers={"authorization": f"Bearer {KEY}"},
            timeout=30,
        ) as answer:
            self.id = answer.headers["x-sluice-call-id"]
            self._begun.set()
            for _ in answer.iter_raw():
                if self._enough.is_set():
                    return

    def stop(self) -> None:
        """Go away, if it has not ended."""
        self._enough.set()
        self._thread.join(30)
