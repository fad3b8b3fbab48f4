"""The whole fold without a broker: duplicates, crashes at every step, broken chains, zombies.

However often it is disturbed, the fold ends in the state of an undisturbed one over the same
journal, and every output of one journal offset has the same bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtgol_core.config import Config
from pipeline.kafka.record import Record
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig
from pipeline.learning.outputs import Output
from pipeline.snapshots.directory import DirectoryStore
from pipeline.snapshots.repository import SnapshotRepository
from tests.support.journal import REF, Journal, fold_all, predictions, restore_fold
from topics.journal import ConfigChange, Reset

CONFIG = FoldConfig(
    learner=Config.read(
        {
            "copula": {"window": 12},
            "graph": {"unverified": 10, "verified": 6},
            "delay": {"expire_steps": 15, "early_steps": 6, "early_max": 4, "settled_max": 8},
        }
    )
)


def lively_journal(seed: int, count: int = 120) -> Journal:
    """Features and labels of three streams in a random order, with bad input and decisions."""
    chance = np.random.default_rng(seed)
    journal = Journal()
    journal.control(ConfigChange(CONFIG.digest(), CONFIG.as_mapping()))
    waiting: list[tuple[str, str]] = []
    for number in range(count):
        stream = f"s{chance.integers(3)}"
        roll = chance.random()
        if roll < 0.55:
            x = {"a": float(chance.normal()), "b": int(chance.integers(4))}
            journal.features(number, x, stream=stream)
            waiting.append((stream, str(number)))
        elif roll < 0.85 and waiting:
            stream, id = waiting[chance.integers(len(waiting))]
            journal.label(id, int(chance.integers(2)), stream=stream)
        elif roll < 0.9:
            journal.label(f"early-{number}", 1, stream=stream)
        elif roll < 0.95:
            journal.features(number, {"a": "text"}, stream=stream)
        else:
            journal.copy("features", b"not json")
        if number == count // 2:
            journal.control(Reset("s0", "half way"))
    return journal


def restart(fold: Fold, root: Path) -> Fold:
    """What a new process makes of the newest snapshot."""
    found = SnapshotRepository(DirectoryStore(root), 0, {}).load(restore_fold)
    assert found is not None
    assert found.next_offset <= fold.next_offset
    return found


def by_offset(records: list[Record], fold: Fold) -> dict[int, list[Output]]:
    return {record.offset: fold.apply(record) for record in records}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_restore_at_every_step_goes_on_to_the_same_bits(seed: int) -> None:
    records = lively_journal(seed).records
    undisturbed, outputs = fold_all(records)
    fold, again = Fold(REF), []
    for record in records:
        again += fold.apply(record)
        taken = fold.snapshot()
        fold = restore_fold(taken.state, taken.changed)
    assert again == outputs
    assert fold.digest() == undisturbed.digest()


def test_crashes_at_random_moments_replay_from_the_last_snapshot(tmp_path: Path) -> None:
    records = lively_journal(3, 200).records
    undisturbed = Fold(REF)
    expected = by_offset(records, undisturbed)
    chance = np.random.default_rng(3)
    fold = Fold(REF)
    repository = SnapshotRepository(DirectoryStore(tmp_path), 0, {})
    repository.save(fold.snapshot())
    crashes = 0
    while fold.next_offset < len(records):
        record = records[fold.next_offset]
        assert fold.apply(record) == expected[record.offset]
        roll = chance.random()
        if roll < 0.2:
            repository.save(fold.snapshot_changed(repository.stored))
        elif roll < 0.25:
            crashes += 1
            fold = restart(fold, tmp_path)
    assert crashes > 3
    assert fold.digest() == undisturbed.digest()


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_a_sequencer_that_repeats_itself_changes_nothing(seed: int) -> None:
    """Runs of the journal come twice, as after a crash before the commit."""
    clean = lively_journal(4, 60)
    chance = np.random.default_rng(seed)
    noisy = Journal()
    for place, record in enumerate(clean.records):
        noisy.again(record)
        if chance.random() < 0.1:
            for old in clean.records[max(0, place - 8) : place + 1]:
                if old.key is not None:
                    noisy.again(old)
    calm, loud = fold_all(clean.records), fold_all(noisy.records)
    assert _answers(loud[1]) == _answers(calm[1])
    assert {name: s.learner.step for name, s in loud[0].streams.items()} == {
        name: s.learner.step for name, s in calm[0].streams.items()
    }


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_a_zombie_beside_its_successor_loses_nothing_and_repeats_nothing(seed: int) -> None:
    """Two sequencers write one source from different places on, interleaved anyhow."""
    chance = np.random.default_rng(seed)
    source = Journal()
    for number in range(40):
        source.features(number, {"a": number % 5})
    committed = int(chance.integers(0, 20))
    zombie = list(source.records[committed : committed + int(chance.integers(0, 20))])
    successor = list(source.records[committed:])
    journal = Journal()
    for record in source.records[:committed]:  # committed means: durable in the journal
        journal.again(record)
    while zombie or successor:
        queue = zombie if zombie and (not successor or chance.random() < 0.5) else successor
        journal.again(queue.pop(0))
    _, outputs = fold_all(journal.records)
    assert [each["id"] for each in predictions(outputs)] == [str(number) for number in range(40)]


def test_a_hole_in_the_journal_stops_its_source_and_no_other() -> None:
    source = Journal()
    for number in range(6):
        source.features(number, {"a": 1})
    source.label(0, 1)
    records = list(source.records)
    del records[2]
    journal = Journal()
    for record in records:
        journal.again(record)
    fold, outputs = fold_all(journal.records)
    assert [each["id"] for each in predictions(outputs)] == ["0", "1"]
    assert fold.counts["records/broken"] == 3
    assert fold.counts["labels/queued"] == 1


def _answers(outputs: list[Output]) -> list[tuple[str, float]]:
    return [(each["id"], each["p"]) for each in predictions(outputs)]
