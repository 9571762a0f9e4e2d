"""What Sluice's cost for large requests is compared with: a reverse proxy that looks at nothing,
written as one would, with aiohttp.

`python -m bench.plain_proxy PORT UPSTREAM_URL`.
"""

import asyncio
import sys

import aiohttp
import uvloop
from aiohttp import web

MAX_BODY = 64 * 2**20


class Proxy:
    """Passes each request on, and its answer back as it comes."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one request."""
        assert self._session is not None
        body = await request.read()
        headers = {
            "content-type": request.content_type,
            "authorization": request.headers.get("authorization", ""),
        }
        async with self._session.post(
            self._upstream + request.path, data=body, headers=headers
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"content-type": answer.content_type}
            )
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    async def run(self, port: int) -> None:
        """Serve until ended."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False
        ) as self._session:
            app = web.Application(client_max_size=MAX_BODY)
            app.router.add_post("/{path:.*}", self.serve)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            print("ready", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(Proxy(sys.argv[2]).run(int(sys.argv[1])))
