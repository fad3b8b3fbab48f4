"""Health routes: `/livez`, `/readyz`, `/metrics`, `/status`. Loopback unless told otherwise.

Runs on the app's own event loop, so `/livez` says that the loop turns. With a token every request
but `/livez` must carry it. No feature values and no ids: they are patients.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from dtgol_core.config import ConfigError
from pipeline.access.security import read_secret
from pipeline.settings import WebSettings

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Views:
    """What the pages show; called for every request."""

    unready: Callable[[], list[str]]
    """Why the process is not ready; empty when it is."""
    status: Callable[[], dict[str, Any]]
    registry: CollectorRegistry


class WebServer:
    """The server of one process."""

    def __init__(self, settings: WebSettings, views: Views) -> None:
        self._settings = settings
        self._views = views
        self._token = (
            read_secret("web.token_file", settings.token_file) if settings.token_file else None
        )
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen; the address is logged, because the port may be one that was free."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/status", self._status)
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
        if self._token is not None and request.path != "/livez":
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
        body = generate_latest(self._views.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, _: web.Request) -> web.Response:
        body = orjson.dumps(self._views.status(), option=orjson.OPT_INDENT_2)
        return web.Response(body=body, content_type="application/json")
