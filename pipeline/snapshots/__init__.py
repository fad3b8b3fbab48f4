"""Snapshots of partitions: what they consist of, and where they are kept.

A new kind of store is one file that implements `store.Store`, and one line in `make_store`.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.kafka.clients import ClientSettings
from pipeline.settings import Settings
from pipeline.snapshots.directory import DirectoryStore
from pipeline.snapshots.store import Store
from pipeline.snapshots.topic import TopicStore


def make_store(settings: Settings, client: ClientSettings, role: str) -> Store:
    """The snapshot store of a role, as the settings choose it."""
    if settings.snapshots.store == "directory":
        root = Path(settings.snapshots.directory) / (settings.kafka.prefix or "default") / role
        return DirectoryStore(root)
    durable_s = settings.kafka.request_timeout_ms / 1000
    return TopicStore(client, settings.topic("snapshots"), role, durable_s)
