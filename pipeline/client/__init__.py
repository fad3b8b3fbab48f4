"""Small producers and a consumer for Python users of the topics (docs/guide-clients.md)."""

from pipeline.client.predictions import PredictionConsumer
from pipeline.client.producers import FeatureProducer, LabelProducer, RefusedError
from pipeline.client.sending import ClusterError, DeliveryError

__all__ = [
    "ClusterError",
    "DeliveryError",
    "FeatureProducer",
    "LabelProducer",
    "PredictionConsumer",
    "RefusedError",
]
