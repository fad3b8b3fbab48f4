"""Health routes and the live page: `/livez`, `/readyz`, `/metrics`, `/status`, `/`, `/page.json`.

On loopback by default. Runs on the app's own event loop, so `/livez` shows that the loop runs. With
a token every request must carry it but `/livez` and the files of the page, which hold no data: its
script asks for the token. No feature values and no ids: they may be about patients.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from dtgol_core.config import ConfigError
from pipeline.kafka.auth import read_secret
from pipeline.settings import WebSettings

log = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
"""What is served of the folder of the page."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Views:
    """What the pages show; called for every request."""

    unready: Callable[[], list[str]]
    """Why the process is not ready; empty when it is."""
    status: Callable[[], Awaitable[dict[str, Any]]]
    page: Callable[[str | None, int | None], Awaitable[dict[str, Any]]]
    """What the live page shows; it may ask for a stream of a partition."""
    registry: CollectorRegistry


class WebServer:
    """The server of one process."""

    def __init__(self, settings: WebSettings, views: Views) -> None:
        self._settings = settings
        self._views = views
        self._token = (
            read_secret("web.token_file", settings.token_file) if settings.token_file else None
        )
        self._files = {
            f"/page/{path.name}": (path.read_bytes(), TYPES[path.suffix])
            for path in PAGE.iterdir()
            if path.suffix in TYPES
        }
        self._files["/"] = self._files["/page/index.html"]
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen; the address is logged, because with port 0 the system chooses one."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/status", self._status)
        app.router.add_get("/page.json", self._page)
        for path in self._files:
            app.router.add_get(path, self._file)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.host, self._settings.port)
        try:
            await site.start()
        except OSError as error:
            where = f"{self._settings.host}:{self._settings.port}"
            raise ConfigError(f"web: cannot listen on {where}: {error.strerror}") from None
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        log.info("web: %s", self.url)

    async def stop(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._token is not None and request.path not in {"/livez", *self._files}:
            # Bytes that are no UTF-8 come as surrogates; they are a wrong token like any other.
            given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
                return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="alive\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reasons = self._views.unready()
        text = "ready\n" if not reasons else "".join(f"{reason}\n" for reason in reasons)
        return web.Response(text=text, status=503 if reasons else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        # Collected here, so that it is of one moment; a thread makes the text, which takes longer.
        metrics = list(self._views.registry.collect())
        collected: Any = SimpleNamespace(collect=lambda: metrics)
        body = await asyncio.to_thread(generate_latest, collected)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, _: web.Request) -> web.Response:
        body = orjson.dumps(await self._views.status(), option=orjson.OPT_INDENT_2)
        return web.Response(body=body, content_type="application/json")

    async def _page(self, request: web.Request) -> web.Response:
        stream, partition = request.query.get("stream"), request.query.get("partition", "")
        number = int(partition) if partition.isdecimal() else None
        body = orjson.dumps(await self._views.page(stream, number))
        response = web.Response(body=body, content_type="application/json", headers=HEADERS)
        response.enable_compression()
        return response

    async def _file(self, request: web.Request) -> web.Response:
        body, kind = self._files[request.path]
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=HEADERS)
