"""The ladder itself: one function that turns a word into an answering broker.

`given`, `docker`, `local` and `embedded` mean that rung or a clear refusal. `auto` takes the first
that can be had, from the rungs its caller allows. A given cluster is never among them by default:
a demo or a test must not touch one unless told to.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

from pipeline.brokers.broker import Broker, Kind, NoBrokerError
from pipeline.brokers.container import open_container
from pipeline.brokers.embedded import open_embedded
from pipeline.brokers.given import open_given
from pipeline.brokers.local import open_local

KINDS: tuple[Kind, ...] = ("given", "docker", "local", "embedded")
REAL: tuple[Kind, ...] = ("docker", "local")

log = logging.getLogger(__name__)


@contextlib.contextmanager
def open_broker(
    kind: Kind | Literal["auto"] = "auto",
    *,
    rungs: Sequence[Kind] = ("docker", "local", "embedded"),
    client: Mapping[str, str] | None = None,
) -> Iterator[Broker]:
    """An answering broker for the length of a `with` block.

    `rungs` is what `auto` may try, in that order; `client` is for `given` alone. Raises
    `NoBrokerError` with every reason when none can be had. What was started is ended at the end
    of the block, and also when this process is killed.
    """
    with contextlib.ExitStack() as held:
        if kind == "auto":
            yield _first(rungs, client, held)
        else:
            yield held.enter_context(_rung(kind, client))


def _first(
    rungs: Sequence[Kind], client: Mapping[str, str] | None, held: contextlib.ExitStack
) -> Broker:
    refusals = []
    for kind in rungs:
        try:
            return held.enter_context(_rung(kind, client))
        except NoBrokerError as refusal:
            log.info("no %s broker: %s", kind, refusal)
            refusals.append(f"{kind}: {refusal}")
    raise NoBrokerError("no broker can be had. " + "; ".join(refusals))


def _rung(kind: Kind, client: Mapping[str, str] | None) -> AbstractContextManager[Broker]:
    if kind == "given":
        return open_given(client)
    if kind == "docker":
        return open_container()
    if kind == "local":
        return open_local()
    return open_embedded()
