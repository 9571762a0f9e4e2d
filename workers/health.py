"""Is a process of this role alive on this machine? The healthcheck of compose.yaml: `python -m workers.health policy`.

A worker is alive when its sign of life in Redis is fresh; a gateway when it answers /health. Exit code 0 or 1.
"""

import os
import socket
import sys
import urllib.request

from redis import Redis

from streams import layout
from workers.process import STALE_MS


def is_alive(role: str) -> bool:
    """Look once. Raises OSError or redis' errors where nothing answers."""
    if role == "gateway":
        port = os.environ.get("SLUICE_PORT", "8080")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=3) as answer:
            return bool(answer.status == 200)
    url = os.environ["SLUICE_REDIS_URL"]
    with Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3) as redis:
        found: dict[bytes, bytes] = redis.hgetall(layout.WORKERS_KEY)
        now_ms = layout.time_ms(redis.time())
    mine = f"{role}:{socket.gethostname()}-".encode()
    return any(name.startswith(mine) and now_ms - int(at) <= STALE_MS for name, at in found.items())


if __name__ == "__main__":
    sys.exit(0 if is_alive(sys.argv[1]) else 1)
