"""Brokers of four kinds: given, docker, local Apache Kafka, embedded. One function opens any."""

from pipeline.errors import NoBrokerError
from pipeline.sandbox.brokers.broker import Broker, BrokerKind, BrokerLimits
from pipeline.sandbox.brokers.local import ClusterConfig, LocalCluster
from pipeline.sandbox.brokers.open import KINDS, REAL, open_broker
from pipeline.sandbox.brokers.server_properties import Listener

__all__ = [
    "KINDS",
    "REAL",
    "Broker",
    "BrokerKind",
    "BrokerLimits",
    "ClusterConfig",
    "Listener",
    "LocalCluster",
    "NoBrokerError",
    "open_broker",
]
