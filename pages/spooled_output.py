"""What is sent to a reader who may be slow, through a file without a name. Must not know: what it
is."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from tempfile import SpooledTemporaryFile
from typing import IO

SPOOLED_BYTES, MOST_SPOOLED, PIECE_BYTES = 2**20, 64 * 2**20, 2**16
"""Of an export that waits for its reader: in memory, and in all. In a container the file may be
memory too."""


async def spooled(lines: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
    """Hand on pieces that come through a file without a name, which is filled beside: whoever takes
    them slowly holds no connection and no snapshot, and a long export begins at once. Past
    `MOST_SPOOLED` that nobody took, what fills it waits: Postgres ends that by itself.
    """
    with SpooledTemporaryFile(max_size=SPOOLED_BYTES) as file:
        moved, written, taken = asyncio.Event(), 0, 0

        async def fill() -> None:
            nonlocal written
            try:
                async with aclosing(lines):
                    async for line in lines:
                        for at in range(0, len(line), PIECE_BYTES):
                            piece = line[at : at + PIECE_BYTES]
                            while written + len(piece) > taken + MOST_SPOOLED:
                                moved.clear()
                                await moved.wait()
                            _write(file, written, piece)
                            written += len(piece)
                            moved.set()
                            # a line may have 100 MB
                            await asyncio.sleep(0)
            finally:
                moved.set()

        filling = asyncio.create_task(fill(), name="export")
        try:
            while True:
                if taken < written:
                    # the file is used in the round
                    file.seek(taken % MOST_SPOOLED)
                    piece = file.read(
                        min(PIECE_BYTES, written - taken, MOST_SPOOLED - taken % MOST_SPOOLED)
                    )
                    taken += len(piece)
                    moved.set()
                    yield piece
                elif filling.done():
                    filling.result()
                    return
                else:
                    moved.clear()
                    await moved.wait()
        finally:
            filling.cancel()
            await asyncio.wait({filling})


def _write(file: IO[bytes], at: int, piece: bytes) -> None:
    first = MOST_SPOOLED - at % MOST_SPOOLED
    file.seek(at % MOST_SPOOLED)
    file.write(piece[:first])
    if piece[first:]:
        file.seek(0)
        file.write(piece[first:])
