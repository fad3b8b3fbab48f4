"""A TCP proxy on loopback that can be cut: a broker advertises it, and a test ends the network.

`cut("closed")` is a pulled plug that the system notices: connections are reset and new ones
refused. `cut("stalled")` is a black hole: connections stay open, new ones too, and no byte passes.
After `heal` stalled bytes travel on, as TCP would send them again. It runs in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Literal, Self

HOST = "127.0.0.1"
CHUNK_BYTES = 65_536
CALL_S = 10
TURNS = 10
"""Of the event loop, more than anything needs that is under way."""

Cut = Literal["closed", "stalled"]


class Proxy:
    """One front port, known from the start, before one target, known when `lead_to` is called."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._target = 0
        self._port = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S)
        self._loop.close()

    @property
    def port(self) -> int:
        """Where clients connect; the same before and after a cut."""
        return self._port

    def lead_to(self, port: int) -> None:
        """Say which loopback port is behind the proxy."""
        self._target = port

    def cut(self, how: Cut) -> None:
        """End the network between clients and target."""
        self._call(self._cut(how))

    def heal(self) -> None:
        """Give the network back."""
        self._call(self._heal())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    async def _listen(self) -> None:
        server = self._server = await asyncio.start_server(self._serve, HOST, self._port)
        self._port = int(server.sockets[0].getsockname()[1])

    async def _cut(self, how: Cut) -> None:
        if how == "stalled":
            self._flows.clear()
            return
        await self._refuse()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _heal(self) -> None:
        self._flows.set()
        if self._server is None:
            await self._listen()

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _end(self) -> None:
        """End, with nothing left open: a warning would fail whatever test runs by then."""
        await self._refuse()
        for _ in range(TURNS):  # connections that were accepted a moment ago begin to be served
            await asyncio.sleep(0)
        await self._cut("closed")
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(TURNS):  # transports close in a turn after that in which they are aborted
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, both ways, until either side ends it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        pair = [writer]
        self._writers.add(writer)
        try:
            await self._flows.wait()
            back_reader, back_writer = await asyncio.open_connection(HOST, self._target)
            pair.append(back_writer)
            self._writers.add(back_writer)
            ways = (self._pump(reader, back_writer), self._pump(back_reader, writer))
            await asyncio.gather(*ways)
        except (OSError, asyncio.CancelledError):
            pass  # the target is away, or the connection was cut: its client sees it end
        finally:
            for each in pair:
                self._writers.discard(each)
                each.transport.abort()
            self._tasks.discard(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._flows.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("the other side has ended")
