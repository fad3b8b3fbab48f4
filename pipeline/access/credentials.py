"""`Security` as Faust's credentials: the second half of what `security` does for librdkafka."""

from __future__ import annotations

from typing import Any

import faust
from aiokafka.abc import AbstractTokenProvider

from pipeline.access.security import Security


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's question for a token, answered from its file each time it is asked."""

    def __init__(self, security: Security) -> None:
        self._security = security

    async def token(self) -> str:
        """The token."""
        return self._security.secret("token_file")


def faust_credentials(security: Security) -> Any:
    """For Faust's `broker_credentials`; None for PLAINTEXT."""
    own = security.settings
    context = security.ssl_context() if security.encrypted else None
    if security.authenticated:
        if own.mechanism == "OAUTHBEARER":
            return faust.OAuthCredentials(oauth_cb=TokenFile(security), ssl_context=context)
        return faust.SASLCredentials(
            mechanism=own.mechanism,
            username=own.username,
            password=security.secret("password_file"),
            ssl_context=context,
        )
    return faust.SSLCredentials(context=context) if context is not None else None
