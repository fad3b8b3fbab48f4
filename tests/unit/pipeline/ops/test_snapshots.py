"""What can be seen of a snapshot from outside, and what cannot."""

from __future__ import annotations

import json

import pytest

from dtgol_core.config import EXPERT_NAMES
from pipeline.ops.snapshots import about_stream, list_snapshots, newest_fold, strongest
from tests.unit.pipeline.ops.conftest import Saved


def test_snapshots_are_listed_the_newest_first_with_size_and_age(saved: Saved) -> None:
    rows = list_snapshots(saved.store, 0)
    assert [row.next_offset for row in rows] == [20, 10]
    assert all(row.damage is None and row.size > 1000 and row.streams == 1 for row in rows)
    assert all(row.written_ms and row.fingerprint == {"cpu": "here"} for row in rows)
    assert list_snapshots(saved.store, 1) == []


def test_a_damaged_one_is_listed_and_the_one_before_is_shown(saved: Saved) -> None:
    newest = max(path for path in saved.folder.iterdir() if path.name.startswith("manifest."))
    newest.write_bytes(b"{}")
    (saved.folder / "manifest.nonsense").write_bytes(b"{}")
    damages = [row.damage for row in list_snapshots(saved.store, 0)]
    assert [damage is None for damage in damages] == [False, False, True]
    found = newest_fold(saved.store, 0)
    assert found is not None
    assert found[0].next_offset == 10


def test_levels_learnt_from_records_are_numbered_unless_asked_for(saved: Saved) -> None:
    found = newest_fold(saved.store, 0)
    assert found is not None
    assert found[0].digest() == saved.fold.digest()
    stream = found[0].streams["default"]
    about = about_stream("default", stream, 1, levels=False)
    assert about["columns"] == ["ward=A", "age", "weight", "ward=#2"]
    assert "hidden" not in json.dumps(about)
    assert "ward=hidden" in about_stream("default", stream, 1, levels=True)["columns"]
    assert about["features"][0]["bounds"] == [0, 9]
    assert (about["step"], about["pending"], about["labels_learnt"]) == (20, 20, 0)
    experts = about["experts"]
    assert list(experts) == list(EXPERT_NAMES)
    weighty = [name for name, each in experts.items() if each["weight"]]
    assert weighty == ["naive", "forest", "tracker"], "by the prior of stacks and guard"
    assert sum(about["guard"].values()) == pytest.approx(1)
    assert experts["naive"]["numbers"] == experts["paper"]["numbers"] == {"latent_weight": 0.5}
    rehearsed = {"latent_rehearsed", "original_rehearsed"}
    assert set(experts["paper"]["weights"]) == {*experts["naive"]["weights"], *rehearsed}
    assert set(experts["naive"]["weights"]["latent"]) == {"(bias)", *about["columns"]}


def test_the_strongest_pairs_are_of_different_features(saved: Saved) -> None:
    about = about_stream("default", saved.fold.streams["default"], 1, levels=False)
    pairs = strongest(about, 10)
    assert {pairs[0][0], pairs[0][1]} == {"age", "weight"}
    assert ("ward=A", "ward=#2") not in {(one, other) for one, other, _ in pairs}
    sizes = [abs(value) for _, _, value in pairs]
    assert sizes == sorted(sizes, reverse=True)
