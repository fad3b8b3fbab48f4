"""Tracker: follows moving clouds, keeps its store within bounds, restores to the bit."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from dtgol_core import mixture
from dtgol_core.config import Config
from dtgol_core.experts.tracker import (
    ANSWER,
    CURSOR,
    GONE,
    LIVE,
    OWN,
    SHADOW,
    VERIFIED,
    WAITING_STEPS,
    Tracker,
    _kept_answer,
)
from dtgol_core.mixture import BLOCK, COMPONENTS, HALF, MASS, PRECISION
from dtgol_core.state import Snapshot, digest
from dtgol_core.types import FloatArray, Instance, Vectors


def instance(step: int, row: FloatArray | list[float]) -> Instance:
    """The same values in every scale; only the last of them counts."""
    values = np.asarray(row, dtype=np.float64)
    single = np.asarray(row, dtype=np.float32)
    return Instance(step, Vectors.of(values, values, single, single, single), np.zeros(0))


def new(columns: int) -> Tracker:
    tracker = Tracker(Config())
    tracker.grow(columns)
    return tracker


def digest_of(tracker: Tracker) -> str:
    values = tracker.snapshot()
    arrays = {name: each for name, each in values.items() if isinstance(each, np.ndarray)}
    return digest(Snapshot(arrays, {"own": {k: v for k, v in values.items() if k not in arrays}}))


def crossing(records: int, columns: int, seed: int = 1) -> Iterator[tuple[Instance, int]]:
    """Two clouds that change sides in the first column while the second tells them apart."""
    chance = np.random.default_rng(seed)
    for step in range(1, records + 1):
        label = int(chance.integers(2))
        row = chance.normal(size=columns)
        row[0] += (2 * label - 1) * (3.0 - 6.0 * step / records)
        row[1] += (2 * label - 1) * 1.5
        yield instance(step, row / 2.0), label


def run(tracker: Tracker, stream: list[tuple[Instance, int]], delay: int) -> list[float]:
    answers = []
    for place, (arrived, _) in enumerate(stream):
        if place >= delay:
            tracker.learn(*stream[place - delay])
        tracker.observe(arrived)
        answers.append(tracker.score(arrived))
    return answers


def test_it_follows_clouds_that_cross_while_labels_are_late() -> None:
    """By the labels alone, 2,000 records old, the first column tells the wrong class."""
    stream, delay = list(crossing(6000, 4)), 2000
    answers = run(new(4), stream, delay)
    late = [(p > 0.5) != label for p, (_, label) in zip(answers, stream, strict=True)][delay:]
    assert np.mean(late) < 0.06
    assert answers[:delay] == [0.5] * delay


@pytest.mark.parametrize("columns", [1, 5, BLOCK, BLOCK + 3, 2 * BLOCK])
def test_precision_is_the_inverse_of_the_blocks(columns: int) -> None:
    tracker = new(columns)
    run(tracker, list(crossing(100, max(2, columns))), 10) if columns > 1 else None
    for which in (VERIFIED, SHADOW, LIVE):
        numbers, means, (scatter, precision) = (each[which] for each in tracker._arrays())
        mixture.refresh(numbers, means, tracker.matrices[which], mixture.new_vectors(columns))
        expected = np.zeros((columns, columns))
        total = numbers[MASS] + 5.0
        for first in range(0, columns, BLOCK):
            part = slice(first, min(first + BLOCK, columns))
            size = part.stop - first
            covariance = (scatter[part, :size] + 2.5 * np.eye(size)) / total
            expected[part, part] = np.linalg.inv(covariance + 1e-3 * np.eye(size))
            found = precision[part, :size]
            np.testing.assert_allclose(found, expected[part, part], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            numbers[HALF : HALF + COMPONENTS], half_squares(means, expected), rtol=1e-9, atol=1e-9
        )


def half_squares(means: FloatArray, precision: FloatArray) -> FloatArray:
    """½ m'Pm of each component."""
    halves: FloatArray = 0.5 * np.einsum("ki,ij,kj->k", means, precision, means)
    return halves


def test_scatter_and_constants_follow_their_definitions_between_refreshes() -> None:
    """Scatter stays symmetric and positive, constants are those of the means as they move."""
    tracker = new(5)
    run(tracker, list(crossing(333, 5)), 50)
    for which in (VERIFIED, SHADOW, LIVE):
        numbers, means, (scatter, precision) = (each[which] for each in tracker._arrays())
        np.testing.assert_allclose(scatter, scatter.T, rtol=1e-12)
        assert np.linalg.eigvalsh(scatter).min() > 0.0
        expected = half_squares(means, precision)
        np.testing.assert_allclose(numbers[HALF : HALF + COMPONENTS], expected, atol=1e-9)


def test_contributions_add_up_to_the_answer_of_a_linear_discriminant() -> None:
    """With one component per class nothing but the prior is left over."""
    tracker = new(3)
    rows = [instance(1, [1.0, 0.5, 0.0]), instance(2, [-1.0, 0.5, 0.2])]
    for number, each in enumerate(rows):
        tracker.observe(each)
        tracker.learn(each, number)
    asked = instance(3, [0.3, -0.2, 0.4])
    assert tracker.contributions(asked).tolist() == [0.0] * 3, "live has seen one class only"
    tracker.observe(asked)
    p, prior = tracker.score(asked), tracker.inspect().numbers["prior"]
    left_over = math.log(p / (1 - p)) - tracker.contributions(asked).sum()
    assert left_over == pytest.approx(math.log(prior / (1 - prior)), abs=1e-9)


def test_one_class_for_ever_gives_its_share_of_the_labels() -> None:
    tracker = new(2)
    stream = [(each, 1) for each, _ in crossing(3000, 2)]
    answers = run(tracker, stream, 5)
    assert answers[-1] == pytest.approx(0.99)
    assert all(0.5 <= p <= 0.99 for p in answers)


def test_a_class_that_has_died_out_starts_anew() -> None:
    stream = list(crossing(200, 2)) + [(each, 0) for each, _ in crossing(3000, 2, seed=2)]
    stream = [(each._replace(step=step), label) for step, (each, label) in enumerate(stream, 1)]
    tracker = new(2)
    run(tracker, stream, 1)
    assert (tracker.numbers[VERIFIED, 4:COMPONENTS] == 0.0).all()
    back = instance(4000, [4.0, 4.0])
    tracker.observe(back)
    tracker.learn(back, 1)
    np.testing.assert_allclose(tracker.means[VERIFIED, 4], [4.0, 4.0], rtol=1e-15)
    assert tracker.numbers[VERIFIED, 4] == 1.0
    tracker.observe(instance(4001, [0.0, 0.0]))
    assert tracker.score(instance(4002, [4.0, 4.0])) > 0.5


def test_equal_records_do_not_make_equal_components() -> None:
    """Found on kr-vs-kp: three components in one place, parted by nothing but rounding."""
    tracker = new(3)
    for step in range(1, 40):
        tracker.observe(instance(step, [0.0, 0.0, 0.0]))
        tracker.learn(instance(step, [0.0, 0.0, 0.0]), 1)
    assert (tracker.numbers[VERIFIED, :COMPONENTS] > 0.0).sum() == 1


@pytest.mark.parametrize("columns", [0, 1, 3])
def test_hostile_numbers_give_probabilities(columns: int) -> None:
    chance = np.random.default_rng(3)
    pool = [math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 0.0, 5.0, -5.0]
    tracker = new(columns)
    stream = [
        (instance(step, chance.choice(pool, size=columns)), int(chance.integers(2)))
        for step in range(1, 400)
    ]
    assert all(0.0 < p < 1.0 for p in run(tracker, stream, 60))
    assert np.isfinite(tracker.contributions(stream[-1][0])).all()
    assert all(np.isfinite(each).all() for each in tracker._arrays())


def test_columns_that_come_are_zero_in_the_past() -> None:
    tracker, stream = new(2), list(crossing(300, 2))
    run(tracker, stream[:200], 20)
    before = tracker.score(stream[200][0])
    tracker.grow(BLOCK + 1)
    matrices = tracker.matrices[LIVE].copy()
    wider = instance(201, np.append(stream[200][0].vectors.scores[2], np.zeros(BLOCK + 1)))
    assert tracker.score(wider) == pytest.approx(before, abs=1e-12)
    vectors = mixture.new_vectors(BLOCK + 3)
    mixture.refresh(tracker.numbers[LIVE].copy(), tracker.means[LIVE], matrices, vectors)
    found = tracker.matrices[LIVE, PRECISION, 2:]
    np.testing.assert_allclose(found, matrices[PRECISION, 2:], rtol=1e-12)
    for place in range(200, 300):
        tracker.observe(
            instance(place + 1, np.append(stream[place][0].vectors.scores[2], np.ones(BLOCK + 1)))
        )
    assert 0.0 < tracker.score(wider) < 1.0


# --- waiting records -----------------------------------------------------------------------------


def test_waiting_records_are_those_of_the_last_steps() -> None:
    tracker = new(1)
    for step in range(1, 3 * WAITING_STEPS):
        tracker.observe(instance(step, [float(step)]))
        records = tracker.waiting.records
        records[int(records[0, 1]) - 1, ANSWER] = step / 2**20
        if step % 3:
            tracker.forget(step - 5)
        assert len(tracker.waiting.records) <= WAITING_STEPS * 5 // 4 + 65
    kept = tracker.waiting.snapshot()
    last = 3 * WAITING_STEPS - 1
    expected = [s for s in range(1, last + 1) if not ((s + 5) % 3 and s + 5 <= last)]
    assert kept["steps"].tolist() == [s for s in expected if s > last - WAITING_STEPS]
    assert kept["rows"][:, 0].tolist() == kept["steps"].tolist()
    assert kept["answers"].tolist() == [step / 2**20 for step in kept["steps"].tolist()]
    first = int(kept["steps"][0])
    for step in (first, last):
        assert tracker.score(instance(step, [0.0])) == step / 2**20
    assert [_kept_answer(records, step) for step in (last + 1, 1, last - 6)] == [GONE] * 3
    assert len(tracker.waiting) == len(kept["steps"])


def test_a_waiting_record_keeps_its_answer_until_the_shadow_comes_by() -> None:
    """Both clouds cross while labels are 300 steps late; the first records knew nothing."""
    tracker, stream = new(2), list(crossing(400, 2))
    for step, (each, _) in enumerate(stream[:350]):
        tracker.observe(each)
        if step >= 300:
            tracker.learn(*stream[step - 300])
    waiting = stream[50:350]
    assert tracker.score(waiting[-1][0]) != 0.5, "it was answered by labels"
    right = [(tracker.score(each) > 0.5) == label for each, label in waiting]
    assert sum(right) > 0.9 * len(right)
    answer = tracker.score(waiting[0][0])
    tracker.learn(*waiting[0])
    assert tracker.score(waiting[0][0]) != answer, "it waits no longer: the answer is for today"


def test_a_shadow_that_left_from_few_labels_is_given_up() -> None:
    tracker, stream = new(2), list(crossing(2100, 2))
    cursors = []
    for step, (each, _) in enumerate(stream):
        if step >= 2000:
            tracker.learn(*stream[step - 2000])
        tracker.observe(each)
        cursors.append(tracker.numbers[OWN, CURSOR])
    assert cursors[2030] > 900, "from the first label 32 records per step"
    assert cursors[2031] < 100


def test_room_follows_what_waits() -> None:
    tracker = new(2)
    for step in range(1, 5000):
        tracker.observe(instance(step, [0.0, 0.0]))
        tracker.forget(step - 100)
    assert len(tracker.waiting) == 100
    assert len(tracker.waiting.records) < 300


def test_what_is_forgotten_or_labelled_is_not_followed() -> None:
    base = list(crossing(100, 2))
    trackers = [new(2) for _ in range(2)]
    for tracker in trackers:
        run(tracker, base, 0)
    for step in range(101, 131):
        trackers[0].observe(instance(step, [5.0, 5.0]))
        trackers[0].forget(step)
        trackers[0].forget(step)
    asked = instance(131, [0.5, 0.5])
    for tracker in trackers:
        tracker.observe(asked)
    assert trackers[0].score(asked) == trackers[1].score(asked)


def test_labels_in_any_order_and_labels_that_never_come() -> None:
    chance = np.random.default_rng(5)
    tracker = new(3)
    waiting: list[tuple[Instance, int]] = []
    for each, label in crossing(1500, 3):
        if waiting and chance.random() < 0.7:
            tracker.learn(*waiting.pop(int(chance.integers(len(waiting)))))
        tracker.observe(each)
        assert 0.0 <= tracker.score(each) <= 1.0
        if chance.random() < 0.9:
            waiting.append((each, label))
    assert len(tracker.waiting) > 100


# --- snapshots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 3, 100])
def test_restored_at_any_record_it_goes_on_to_the_same_bits(delay: int) -> None:
    stream = list(crossing(260, 3))
    tracker, restored = new(3), new(3)
    for place, (arrived, _) in enumerate(stream):
        for each in (tracker, restored):
            if place >= delay:
                each.learn(*stream[place - delay])
            each.observe(arrived)
        assert tracker.score(arrived) == restored.score(arrived)
        if place % 7 == 0:
            restored = Tracker.restore(Config(), restored.snapshot(), 3)
        assert digest_of(tracker) == digest_of(restored)
