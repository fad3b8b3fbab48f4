"""What can be seen of a snapshot from outside, and what cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dtgol_core.config import Config
from pipeline.fold import Fold
from pipeline.operators.inspection import about_stream, listed, newest_fold, strongest
from pipeline.operators.replay import start_fold
from pipeline.rules import Rules
from pipeline.snapshots import RefusalError, Shelf
from pipeline.stores.directory import DirectoryStore
from tests.support.journal import PLACE, Journal

DESCRIBED = Config.read(
    {"features": {"ward": {"kind": "nominal", "levels": ["A"]}, "age": {"low": 0, "high": 9}}}
)


def kept(root: Path, rounds: int = 2) -> tuple[DirectoryStore, Fold]:
    """A fold with a snapshot after every ten records."""
    journal, fold = Journal(), Fold(PLACE, Rules(learner=DESCRIBED))
    store = DirectoryStore(root)
    shelf = Shelf(store, 0, {}, {"cpu": "here"})
    for number in range(rounds * 10):
        x = {"ward": ["A", "hidden"][number % 2], "age": number % 9, "weight": number % 9}
        fold.apply(journal.features(str(number), x))
        if number % 10 == 9:
            taken = fold.snapshot(shelf.stored)
            shelf.save(taken.next_offset, taken.state, taken.streams)
    return store, fold


def test_snapshots_are_listed_the_newest_first_with_size_and_age(tmp_path: Path) -> None:
    store, _ = kept(tmp_path)
    rows = listed(store, 0)
    assert [row.next_offset for row in rows] == [20, 10]
    assert all(row.damage is None and row.size > 1000 and row.streams == 1 for row in rows)
    assert all(row.written_ms and row.fingerprint == {"cpu": "here"} for row in rows)
    assert listed(store, 1) == []


def test_a_damaged_one_is_listed_and_the_one_before_is_shown(tmp_path: Path) -> None:
    store, _ = kept(tmp_path)
    newest = max(path for path in (tmp_path / "0").iterdir() if path.name.startswith("manifest."))
    newest.write_bytes(b"{}")
    (tmp_path / "0" / "manifest.nonsense").write_bytes(b"{}")
    damages = [row.damage for row in listed(store, 0)]
    assert [damage is None for damage in damages] == [False, False, True]
    found = newest_fold(store, 0)
    assert found is not None
    assert found[0].next_offset == 10


def test_levels_learnt_from_records_are_numbered_unless_asked_for(tmp_path: Path) -> None:
    store, fold = kept(tmp_path)
    found = newest_fold(store, 0)
    assert found is not None
    assert found[0].digest() == fold.digest()
    stream = found[0].streams["default"]
    about = about_stream("default", stream, 1, levels=False)
    assert about["columns"] == ["ward=A", "age", "weight", "ward=#2"]
    assert "hidden" not in json.dumps(about)
    assert "ward=hidden" in about_stream("default", stream, 1, levels=True)["columns"]
    assert about["features"][0]["bounds"] == [0, 9]
    assert (about["step"], about["pending"], about["labels_learnt"]) == (20, 20, 0)
    rehearsed = {"latent_rehearsed", "original_rehearsed"}
    assert set(about["weights"]) == {"latent", "original", *rehearsed}


def test_the_strongest_pairs_are_of_different_features(tmp_path: Path) -> None:
    _, fold = kept(tmp_path)
    about = about_stream("default", fold.streams["default"], 1, levels=False)
    pairs = strongest(about, 10)
    assert {pairs[0][0], pairs[0][1]} == {"age", "weight"}
    assert ("ward=A", "ward=#2") not in {(one, other) for one, other, _ in pairs}
    sizes = [abs(value) for _, _, value in pairs]
    assert sizes == sorted(sizes, reverse=True)


def test_a_replay_begins_where_the_journal_still_is(tmp_path: Path) -> None:
    store, _ = kept(tmp_path)
    assert start_fold(PLACE, 0, None).next_offset == 0
    assert start_fold(PLACE, 0, store).next_offset == 10
    assert start_fold(PLACE, 11, store).next_offset == 20
    with pytest.raises(RefusalError, match="--from snapshot"):
        start_fold(PLACE, 1, None)
    with pytest.raises(RefusalError, match="no whole snapshot"):
        start_fold(PLACE, 21, store)
