"""Small producers and a consumer for Python users of the topics (docs/guide-clients.md)."""

from pipeline.client.predictions import PredictionConsumer
from pipeline.client.producers import FeatureProducer, LabelProducer
from pipeline.errors import ClusterError, DeliveryError, RefusedError

__all__ = [
    "ClusterError",
    "DeliveryError",
    "FeatureProducer",
    "LabelProducer",
    "PredictionConsumer",
    "RefusedError",
]
