"""Types of an ASGI application, as its specification has them (ASGI, "HTTP & WebSocket ASGI Message
Format"). A gateway loads no framework for them."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
