"""Snapshot stores: a directory on one machine, or the compacted topic that any host can read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.settings import Settings
from pipeline.snapshots import Store
from pipeline.stores.directory import DirectoryStore
from pipeline.stores.topic import TopicStore


def make_store(settings: Settings, client: Mapping[str, Any], role: str) -> Store:
    """The snapshot store of a role, as the settings choose it."""
    if settings.snapshots.store == "directory":
        root = Path(settings.snapshots.directory) / (settings.kafka.prefix or "default") / role
        return DirectoryStore(root)
    patience_s = settings.kafka.request_timeout_ms / 1000
    return TopicStore(client, settings.topic("snapshots"), role, patience_s)
