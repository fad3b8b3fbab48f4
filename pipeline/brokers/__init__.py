"""The ladder of brokers: given, docker, local Apache Kafka, embedded. One function opens any."""

from pipeline.brokers.broker import Broker, Kind, Limits, NoBrokerError
from pipeline.brokers.ladder import KINDS, REAL, open_broker
from pipeline.brokers.local import ClusterConfig, LocalCluster
from pipeline.brokers.server_properties import Listener

__all__ = [
    "KINDS",
    "REAL",
    "Broker",
    "ClusterConfig",
    "Kind",
    "Limits",
    "Listener",
    "LocalCluster",
    "NoBrokerError",
    "open_broker",
]
