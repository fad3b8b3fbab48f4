"""The expert of the newest labels."""

import numpy as np
import pytest

from dtgol_core.config import Config
from dtgol_core.experts.recent import LAGS, Recent, _unpack
from dtgol_core.state import SnapshotError
from dtgol_core.types import FloatArray, Instance, Vectors

NOTHING = Vectors.of(np.zeros(0), np.zeros(0))


def arrive(recent: Recent, step: int = 1) -> tuple[Instance, float]:
    """A record, and the answer to it."""
    arrived = Instance(step, NOTHING, np.zeros(2))
    return arrived, recent.observe(arrived)


def inputs(instance: Instance) -> FloatArray:
    """x of the regression, from what waits."""
    x = np.full(LAGS + 2, 9.0)
    _unpack(float(instance.numbers[0]), float(instance.numbers[1]), x)
    return x


def after(labels: list[int], delay: int = 0) -> tuple[Recent, list[float]]:
    """The expert after these labels, and its answers on arrival."""
    recent, waiting, answers = Recent(Config()), [], []
    for step, label in enumerate(labels):
        arrived, answer = arrive(recent, step + 1)
        assert recent.score(arrived) == answer
        answers.append(answer)
        waiting.append((arrived, label))
        if step >= delay:
            recent.learn(*waiting[step - delay])
    return recent, answers


def test_what_waits_is_what_was_known_on_arrival() -> None:
    recent, _ = after([1, 1, 0])
    arrived, _ = arrive(recent)
    x, rate = inputs(arrived), arrived.numbers[1]
    assert x[:5].tolist() == [1.0, -1.0, 1.0, 1.0, 0.0], "the newest first"
    assert rate == pytest.approx((0.5 + 2) / 4)
    assert x[LAGS + 1] == pytest.approx(np.log(rate / (1 - rate)))


def test_the_oldest_label_leaves_after_thirty_two() -> None:
    labels = [1] + [0] * 40
    recent, _ = after(labels)
    assert recent.labels == 1 << LAGS
    recent, _ = after([1, *[0] * 31])
    assert inputs(arrive(recent)[0])[LAGS] == 1.0


@pytest.mark.parametrize("delay", [0, 5, 40])
def test_a_period_is_found_whatever_the_delay(delay: int) -> None:
    labels = [int(step % 7 in (0, 1, 4)) for step in range(1500)]
    _, answers = after(labels, delay)
    wrong = [int(p > 0.5) != y for p, y in zip(answers[1000:], labels[1000:], strict=True)]
    assert sum(wrong) < 10


def test_a_snapshot_with_labels_that_cannot_be_is_refused() -> None:
    recent, _ = after([1, 0, 1])
    for labels in (0, -1, 2 << LAGS):
        with pytest.raises(SnapshotError, match="labels of recent"):
            Recent.restore(Config(), recent.snapshot() | {"labels": labels}, 0)
