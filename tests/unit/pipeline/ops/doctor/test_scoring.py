"""What the doctor says of the evaluator's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.errors import StoreError
from pipeline.evaluation.pairing import Bounds, Evaluation
from pipeline.ops.doctor.findings import Finding, Status
from pipeline.ops.doctor.scoring import check_scoring
from pipeline.snapshots.repository import SnapshotRepository
from tests.support.fake_kafka import MemoryStore
from tests.unit.pipeline.evaluation.test_pairing import predicted, truth


def store_of(state: Evaluation) -> MemoryStore:
    store = MemoryStore()
    SnapshotRepository(store, 0, {}).save(state.snapshot())
    return store


def found(store: MemoryStore, pairs_max: int = 10) -> list[Finding]:
    return list(check_scoring(store, 1, pairs_max))


def test_an_evaluator_that_never_ran_is_a_note() -> None:
    (finding,) = found(MemoryStore())
    assert (finding.status, finding.text[:8]) == (Status.NOTE, "none yet")


def test_what_fits_is_fine_and_what_is_nearly_full_is_a_note() -> None:
    state = Evaluation("j", 0, Bounds(pairs_max=10))
    state.predict(predicted(1))
    assert found(store_of(state))[0].status is Status.OK
    (finding,) = found(store_of(state), pairs_max=1)
    assert finding.status is Status.NOTE
    assert "wait for one take 100% of evaluator.pairs_bytes_max" in finding.text
    state.label(truth("i1", 1), 0)
    assert found(store_of(state), pairs_max=1)[0].status is Status.OK  # full of scored ones


@pytest.mark.parametrize("labels_come", [False, True])
def test_scores_that_are_lost_for_memory_are_a_problem(labels_come: bool) -> None:
    """Labels that came after days were learnt and never scored, and nothing said so."""
    state = Evaluation("j", 0, Bounds(pairs_max=10, labels_max=5))
    for offset in range(100):
        state.predict(predicted(offset))
    for offset in range(80 if labels_come else 0):
        state.label(truth(f"i{offset}", 1), offset)
    (finding,) = found(store_of(state))
    assert "90 were forgotten without a label" in finding.text
    assert finding.status is (Status.PROBLEM if labels_come else Status.NOTE)
    assert "raise evaluator.pairs_bytes_max" in finding.advice


def test_records_that_failed_are_a_problem() -> None:
    state = Evaluation("j", 0, Bounds())
    state.predict(replace(predicted(1)))
    state.counts["labels/failed"] = 2
    *_, finding = found(store_of(state))
    assert (finding.status, finding.text[:9]) == (Status.PROBLEM, "2 records")


def test_a_store_that_does_not_answer_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()

    def fail(partition: int) -> dict[str, bytes]:
        raise StoreError("the volume is gone")

    monkeypatch.setattr(store, "read", fail)
    (finding,) = found(store)
    assert (finding.status, "the volume is gone" in finding.text) == (Status.NOTE, True)
