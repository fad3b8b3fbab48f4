"""The web port over real HTTP: loopback unless set otherwise, closed to whoever has no token."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dtgol_core.config import ConfigError
from pipeline.settings import WebSettings
from pipeline.web.server import Views, WebServer

TOKEN = "a-token-that-nobody-may-see"


async def status() -> dict[str, str]:
    return {"role": "test"}


async def page(stream: str | None, partition: int | None) -> dict[str, Any]:
    return {"role": "test"}


VIEWS = Views(list, status, page, CollectorRegistry())
GUARDED = ("/readyz", "/metrics", "/status", "/page.json", "/page.json?stream=s", "/nothing-here")
SHELL = ("/", "/page/main.js", "/page/style.css", "/page/uPlot.iife.min.js")


def serve(settings: WebSettings, look: Callable[[int], Awaitable[None]]) -> None:
    """Run a server for as long as `look` looks at its port."""

    async def run() -> None:
        server = WebServer(settings, VIEWS)
        await server.start()
        try:
            await look(int(server.url.rpartition(":")[2]))
        finally:
            await server.stop()

    asyncio.run(run())


async def ask(port: int, path: str, header: bytes = b"", host: str = "127.0.0.1") -> int:
    """The status of one request, byte by byte as it is given; 0 if nobody listens."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return 0
    writer.write(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" % path.encode())
    writer.write(b"Authorization: %s\r\n\r\n" % header if header else b"\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert TOKEN.encode() not in answer
    return int(answer.split(b" ", 2)[1])


@pytest.fixture
def guarded(tmp_path: Path) -> WebSettings:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return WebSettings(token_file=str(path))


def test_without_a_token_every_page_is_open() -> None:
    async def look(port: int) -> None:
        found = [await ask(port, path) for path in ("/livez", *GUARDED)]
        assert found == [200] * len(GUARDED) + [404]
        assert [await ask(port, path) for path in SHELL] == [200] * len(SHELL)

    serve(WebSettings(), look)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Bearer",
        b"Bearer wrong",
        TOKEN.encode(),
        b"Basic " + TOKEN.encode(),
        b"Bearer " + TOKEN.encode() + b"x",
        b"Bearer " + TOKEN[:-1].encode(),
        b"Bearer \xff\xfe",
        "Bearer ünïcode".encode(),
    ],
)
def test_a_missing_or_wrong_token_is_401_everywhere_but_for_life(
    guarded: WebSettings, header: bytes
) -> None:
    async def look(port: int) -> None:
        assert [await ask(port, path, header) for path in GUARDED] == [401] * len(GUARDED)
        assert [await ask(port, path, header) for path in SHELL] == [200] * len(SHELL)
        assert await ask(port, "/livez", header) == 200

    serve(guarded, look)


def test_the_right_token_opens_and_is_in_no_log(
    guarded: WebSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async def look(port: int) -> None:
        header = b"Bearer " + TOKEN.encode()
        found = [await ask(port, path, header) for path in GUARDED]
        assert found == [200] * (len(GUARDED) - 1) + [404]

    with caplog.at_level(logging.DEBUG):
        serve(guarded, look)
    assert "web: http://127.0.0.1:" in caplog.text
    assert TOKEN not in caplog.text


def test_it_listens_on_loopback_unless_set_otherwise() -> None:
    """127.0.0.2 is another address of this machine, as any outer one would be."""

    async def closed(port: int) -> None:
        assert await ask(port, "/livez", host="127.0.0.1") == 200
        assert await ask(port, "/livez", host="127.0.0.2") == 0

    async def opened(port: int) -> None:
        assert await ask(port, "/livez", host="127.0.0.2") == 200

    serve(WebSettings(), closed)
    serve(WebSettings(host="0.0.0.0"), opened)


def test_a_port_that_is_taken_is_refused() -> None:
    async def never(port: int) -> None:
        raise AssertionError("it must not have started")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match=r"web: cannot listen on 127.0.0.1:"):
            serve(WebSettings(port=taken.getsockname()[1]), never)


def test_an_empty_token_file_is_refused_and_opens_nothing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        WebServer(WebSettings(token_file=str(tmp_path / "token")), VIEWS)


def test_every_page_forbids_scripts_from_elsewhere() -> None:
    async def look(port: int) -> None:
        for path in (*SHELL, "/page.json"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode())
            head = (await reader.read()).partition(b"\r\n\r\n")[0].decode()
            writer.close()
            await writer.wait_closed()
            headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
            policy = headers["Content-Security-Policy"].split("; ")
            assert "default-src 'self'" in policy, path
            assert not any("unsafe" in each or "*" in each for each in policy), path
            assert headers["X-Content-Type-Options"] == "nosniff", path

    serve(WebSettings(), look)
