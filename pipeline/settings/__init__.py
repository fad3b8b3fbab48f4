"""What the operator decides (docs/settings.md)."""

from pipeline.settings.declaration import (
    KafkaSettings,
    SecuritySettings,
    Settings,
    WebSettings,
    WorkerSettings,
)
from pipeline.settings.reading import read_settings

__all__ = [
    "KafkaSettings",
    "SecuritySettings",
    "Settings",
    "WebSettings",
    "WorkerSettings",
    "read_settings",
]
