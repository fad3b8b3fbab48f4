"""`open_broker`: a running broker of a chosen kind.

`given`, `docker`, `local` and `embedded` mean that kind or a `NoBrokerError`. `auto` takes the
first that is available, from the kinds its caller allows. A given cluster is never among them by
default: a demo or a test must not touch one unless it is asked to.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

from pipeline.errors import NoBrokerError
from pipeline.sandbox.brokers.broker import Broker, BrokerKind
from pipeline.sandbox.brokers.container import open_container
from pipeline.sandbox.brokers.embedded import open_embedded
from pipeline.sandbox.brokers.given import open_given
from pipeline.sandbox.brokers.local import open_local

KINDS: tuple[BrokerKind, ...] = ("given", "docker", "local", "embedded")
REAL: tuple[BrokerKind, ...] = ("docker", "local")

log = logging.getLogger(__name__)


@contextlib.contextmanager
def open_broker(
    kind: BrokerKind | Literal["auto"] = "auto",
    *,
    kinds: Sequence[BrokerKind] = ("docker", "local", "embedded"),
    client: Mapping[str, str] | None = None,
) -> Iterator[Broker]:
    """An answering broker for the length of a `with` block.

    `kinds` is what `auto` may try, in that order; `client` is for `given` alone. Raises
    `NoBrokerError` with every reason when none is available. What was started is ended at the end
    of the block, and also when this process is killed.
    """
    with contextlib.ExitStack() as stack:
        if kind == "auto":
            yield _first(kinds, client, stack)
        else:
            yield stack.enter_context(_open_kind(kind, client))


def _first(
    kinds: Sequence[BrokerKind], client: Mapping[str, str] | None, stack: contextlib.ExitStack
) -> Broker:
    refusals = []
    for kind in kinds:
        try:
            return stack.enter_context(_open_kind(kind, client))
        except NoBrokerError as refusal:
            log.info("no %s broker: %s", kind, refusal)
            refusals.append(f"{kind}: {refusal}")
    raise NoBrokerError("no broker is available. " + "; ".join(refusals))


def _open_kind(
    kind: BrokerKind, client: Mapping[str, str] | None
) -> AbstractContextManager[Broker]:
    if kind == "given":
        return open_given(client)
    if kind == "docker":
        return open_container()
    if kind == "local":
        return open_local()
    return open_embedded()
