"""Inspection of snapshots: which there are, whether they are whole, what is in them.

Only reads; no worker is affected. Of records nothing is shown but the names of features: levels
that were learnt from records are counted, and named only where the caller asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtgol_core.columns import KIND_NAMES, NOMINAL, Feature
from dtgol_core.config import FeatureConfig
from dtgol_core.experts import Expert
from dtgol_core.learner import Learner
from dtgol_core.state import SnapshotError
from pipeline.learning.early import UNOPENED
from pipeline.learning.fold import Fold
from pipeline.learning.outputs import PartitionRef
from pipeline.learning.stream import StreamState
from pipeline.snapshots.manifest import ManifestInfo, find_snapshots
from pipeline.snapshots.store import Store


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """One manifest of one partition."""

    partition: int
    name: str
    next_offset: int
    written_ms: int | None
    size: int
    streams: int
    damage: str | None
    """Why it cannot be used; None if it is whole."""
    fingerprint: Mapping[str, Any]


def list_snapshots(store: Store, partition: int) -> list[SnapshotEntry]:
    """Every manifest of a partition, the newest first; all it names is fetched and checked."""
    return [
        SnapshotEntry(
            partition=partition,
            name=found.name,
            next_offset=found.next_offset,
            written_ms=store.written_ms(partition, found.name),
            size=found.size,
            streams=len(found.blobs.keys() - {UNOPENED}),
            damage=found.damage,
            fingerprint=found.environment,
        )
        for found in find_snapshots(store.read(partition))
    ]


def newest_fold(store: Store, partition: int) -> tuple[Fold, ManifestInfo] | None:
    """The newest state that is whole, and the manifest it comes from."""
    for found in find_snapshots(store.read(partition)):
        fold = restore_fold(found)
        if fold is not None:
            return fold, found
    return None


def restore_fold(found: ManifestInfo) -> Fold | None:
    """The fold that a snapshot describes; None if it is damaged."""
    if found.damage is not None:
        return None
    try:
        return Fold.restore(PartitionRef(**found.state["partition"]), found.state, found.assemble())
    except (SnapshotError, TypeError):
        return None


def about_partition(fold: Fold, found: ManifestInfo, written_ms: int | None) -> dict[str, Any]:
    """What is known of a partition besides its streams."""
    return {
        "partition": fold.ref.partition,
        "snapshot": found.name,
        "next_offset": fold.next_offset,
        "written_ms": written_ms,
        "bytes": found.size,
        "clock_ms": fold.clock_ms,
        "config": fold.config_digest,
        "fingerprint": dict(found.environment),
        "counts": dict(fold.counts),
    }


def about_stream(name: str, stream: StreamState, size: int, levels: bool) -> dict[str, Any]:
    """What the learner of one stream knows."""
    learner = stream.learner
    columns = column_names(learner, levels)
    correlation = learner.copula.correlation
    weights, guard = learner.combination.weights()
    return {
        "stream": name,
        "model": stream.model,
        "next_offset": stream.next_offset,
        "clock_ms": learner.clock_ms,
        "step": learner.step,
        "labels_learnt": learner.labels_learnt,
        "pending": learner.pending,
        "held_labels": learner.delay.early_labels,
        "bytes": size,
        "features": [
            _about_feature(each, feature, learner.config.features.get(each), levels)
            for each, feature in sorted(learner.columns.features.items())
        ],
        "columns": columns,
        "column_features": _owners(learner),
        "experts": {
            name: {"weight": weights[name], **_about_expert(each, columns)}
            for name, each in learner.experts.items()
        },
        "guard": guard,
        "correlation": [[float(value) for value in row] for row in correlation],
    }


def column_names(learner: Learner, levels: bool) -> list[str]:
    """A name for every column: the feature's, with its level where it has several columns."""
    names = [""] * learner.columns.width
    for name, feature in learner.columns.features.items():
        declared = learner.config.features.get(name, FeatureConfig()).levels
        for column in feature.retired:
            names[column] = f"{name}, column {column} of another kind"
        if feature.kind != NOMINAL:
            for column in feature.columns:
                names[column] = name
            continue
        by_column = sorted(feature.levels.items(), key=lambda known: known[1])
        for number, (level, column) in enumerate(by_column, start=1):
            shown = level if levels or level in declared else f"#{number}"
            names[column] = f"{name}={shown}"
        if feature.other >= 0:
            names[feature.other] = f"{name}=(other)"
    return names


def _owners(learner: Learner) -> list[str]:
    """The feature of every column."""
    owners = [""] * learner.columns.width
    for name, feature in learner.columns.features.items():
        for column in (*feature.columns, *feature.retired):
            owners[column] = name
    return owners


def strongest(about: Mapping[str, Any], most: int) -> list[tuple[str, str, float]]:
    """The pairs of columns with the largest correlation, levels of one feature left out."""
    columns, owners = about["columns"], about["column_features"]
    matrix = np.array(about["correlation"])
    pairs = [
        (one, other, float(matrix[row, column]))
        for row, one in enumerate(columns)
        for column, other in enumerate(columns[:row])
        if owners[row] != owners[column]
    ]
    pairs.sort(key=lambda pair: (-abs(pair[2]), pair[1], pair[0]))
    return [(other, one, value) for one, other, value in pairs[:most]]


def _about_expert(expert: Expert, columns: list[str]) -> dict[str, Any]:
    """The numbers of an expert, and its weights by column."""
    found, names = expert.inspect(), ["(bias)", *columns]
    weights = {
        name: dict(zip(names, map(float, each), strict=True))
        for name, each in found.weights.items()
    }
    return {
        "numbers": {name: float(each) for name, each in found.numbers.items()},
        "weights": weights,
    }


def _about_feature(
    name: str, feature: Feature, declared: FeatureConfig | None, levels: bool
) -> dict[str, Any]:
    about: dict[str, Any] = {
        "feature": name,
        "kind": KIND_NAMES[feature.kind],
        "declared": declared is not None and declared.kind is not None,
        "columns": len(feature.columns),
        "kind_conflicts": feature.conflicts,
        "provisional": bool(feature.votes),
    }
    if feature.kind == NOMINAL:
        named = declared.levels if declared is not None else ()
        about["levels"] = sorted(level for level in feature.levels if levels or level in named)
        about["levels_known"] = len(feature.levels)
    if declared is not None and (declared.low is not None or declared.high is not None):
        about["bounds"] = [declared.low, declared.high]
    return about
