"""The `given` kind: an existing cluster, used as it is. Nothing is started or ended here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from pipeline.errors import NoBrokerError
from pipeline.sandbox.brokers.broker import Broker, await_metadata

ADDRESS = "KAFKA_BOOTSTRAP_SERVERS"
ANSWER_S = 15


@contextlib.contextmanager
def open_given(client: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """The cluster in `client` (confluent-kafka's names, security included), or in the environment.

    It must answer metadata; error texts never repeat a setting's value: some are secret.
    """
    settings = dict(client or {})
    bootstrap = settings.pop("bootstrap.servers", "") or os.environ.get(ADDRESS, "")
    if not bootstrap:
        raise NoBrokerError(f"no cluster is given: set {ADDRESS}")
    broker = Broker(bootstrap, "given", "", client=settings)
    if await_metadata(broker.config, ANSWER_S) is None:
        raise NoBrokerError(f"the given cluster does not answer in {ANSWER_S} s: {bootstrap}")
    yield broker
