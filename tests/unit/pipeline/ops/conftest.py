"""A fold and its snapshots in a directory, for those who look at them from outside."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from dtgol_core.config import Config
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig
from pipeline.snapshots.directory import DirectoryStore
from pipeline.snapshots.repository import SnapshotRepository
from tests.support.journal import REF, Journal

DESCRIBED = Config.read(
    {"features": {"ward": {"kind": "nominal", "levels": ["A"]}, "age": {"low": 0, "high": 9}}}
)


class Saved(NamedTuple):
    """The folder of partition 0, its store, and the fold that was saved there last."""

    folder: Path
    store: DirectoryStore
    fold: Fold


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Twenty records, and a snapshot after every ten of them."""
    journal, fold = Journal(), Fold(REF, FoldConfig(learner=DESCRIBED))
    store = DirectoryStore(tmp_path)
    repository = SnapshotRepository(store, 0, {}, {"cpu": "here"})
    for number in range(20):
        x = {"ward": ["A", "hidden"][number % 2], "age": number % 9, "weight": number % 9}
        fold.apply(journal.features(str(number), x))
        if number % 10 == 9:
            repository.save(fold.snapshot_changed(repository.stored))
    return Saved(tmp_path / "0", store, fold)
