"""The contract of an expert, for every expert of the list; and that a new one needs only the list.

Restoring, purity, aliasing, growing and bounds are checked in test_stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pytest

from dtgol_core import config as config_module
from dtgol_core import learner as learner_module
from dtgol_core.config import EXPERT_NAMES, Config
from dtgol_core.experts import EXPERTS, Expert
from dtgol_core.learner import Learner
from dtgol_core.state import CORRUPTION_ERRORS, SnapshotError, digest
from dtgol_core.types import FloatArray, Forecast, Inspection, Instance, Vectors
from pipeline.learning.fold import Fold
from pipeline.learning.fold_config import FoldConfig, Lineage
from pipeline.learning.stream import StreamState
from pipeline.ops.snapshots import about_stream
from tests.support.journal import REF, Journal, fold_all
from tests.support.records import nasty_events, play
from tests.support.views import reborn
from topics.codec import read_prediction
from topics.predictions import Prediction

WIDTH = 3
CONFIG = Config.read({"graph": {"unverified": 30, "verified": 20}, "copula": {"window": 20}})
BLIND = {"recent"}
"""Experts that look at no column."""
every_expert = pytest.mark.parametrize("kind", EXPERTS, ids=lambda kind: kind.name)


def all_scales(vector: FloatArray) -> Vectors:
    """A record that is much the same in every scale."""
    single = vector.astype(np.float32)
    return Vectors.of(vector, vector / 2.0, single, single, single)


class Stream:
    """An expert on two clouds, the first column of which decides; labels come five records late."""

    def __init__(self, kind: type[Expert], config: Config = CONFIG) -> None:
        self.kind, self.config = kind, config
        self.expert = kind(config)
        self.expert.grow(WIDTH)
        self.chance = np.random.default_rng(1)
        self.seen: list[tuple[Instance, int]] = []

    def arrive(self) -> Instance:
        label = int(self.chance.integers(2))
        latent = self.chance.normal(size=WIDTH)
        latent[0] += 4.0 * label - 2.0
        vectors = all_scales(latent)
        instance = Instance(len(self.seen) + 1, vectors, np.full(len(self.kind.kept), np.nan))
        answer = self.expert.observe(instance)
        assert not np.isnan(instance.numbers).any(), "it writes all that it wants back"
        assert answer == self.expert.score(instance), "the answer is that of all it knows"
        self.seen.append((instance, label))
        return instance

    def run(self, records: int, delay: int = 5) -> "Stream":
        for _ in range(records):
            self.arrive()
            if len(self.seen) > delay:
                waited, label = self.seen[-1 - delay]
                before = self.expert.score(waited)
                assert self.expert.learn(waited, label) == before, "its answer before the label"
        return self


def far(side: float) -> Instance:
    """A record far out in the first column."""
    return Instance(10**6, all_scales(np.array([side, 0.0, 0.0])), np.full(2, 0.5))


def test_names_are_known_and_different() -> None:
    names = [expert.name for expert in EXPERTS]
    assert names == list(EXPERT_NAMES)
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names), "names are keys in JSON and in snapshots"


@every_expert
def test_before_the_first_label_the_answer_is_exactly_a_half(kind: type[Expert]) -> None:
    stream = Stream(kind)
    for _ in range(40):
        instance = stream.arrive()
        assert stream.expert.score(instance) == 0.5
        assert stream.expert.contributions(instance).tolist() == [0.0] * WIDTH


@pytest.mark.parametrize(
    "kind", [kind for kind in EXPERTS if kind.name not in BLIND], ids=lambda kind: kind.name
)
def test_it_learns_which_column_decides(kind: type[Expert]) -> None:
    expert = Stream(kind).run(200).expert
    assert expert.score(far(3.0)) > 0.8
    assert expert.score(far(-3.0)) < 0.2
    moved = expert.contributions(far(3.0))
    assert moved.shape == (WIDTH,)
    assert moved[0] > abs(moved[1:]).max()


@every_expert
@pytest.mark.parametrize("delay", [0, 1, 29, 60])
def test_answers_are_probabilities_whatever_the_delay(kind: type[Expert], delay: int) -> None:
    stream = Stream(kind).run(120, delay)
    answers = [stream.expert.score(instance) for instance, _ in stream.seen]
    assert all(type(answer) is float and 0.0 <= answer <= 1.0 for answer in answers)


@every_expert
def test_instances_may_be_forgotten_at_any_time(kind: type[Expert]) -> None:
    stream = Stream(kind).run(60)
    for step in (1, 58, 59, 60, 10**9):
        stream.expert.forget(step)
        stream.expert.forget(step)
    answer = stream.run(20).expert.score(stream.arrive())
    assert 0.0 < answer < 1.0


@every_expert
def test_a_very_late_label_is_learnt(kind: type[Expert]) -> None:
    """Long after every window has been left."""
    stream = Stream(kind)
    for _ in range(300):
        stream.arrive()
    first, _ = stream.seen[0]
    before = stream.expert.score(first)
    stream.expert.learn(first, 1)
    assert stream.expert.score(first) > before


@every_expert
def test_inspection_has_numbers_and_a_weight_per_column_and_bias(kind: type[Expert]) -> None:
    found = Stream(kind).run(30).expert.inspect()
    assert all(np.isfinite(number) for number in found.numbers.values())
    assert all(weights.shape == (WIDTH + 1,) for weights in found.weights.values())


def resized(value: Any) -> list[Any]:
    """An array one longer or shorter on each side; the learner checks how many sides there are."""
    if not isinstance(value, np.ndarray):
        return []
    sides = [axis for axis in range(value.ndim) if value.shape[axis]]
    longer = [np.concatenate([value, value.take([0], axis)], axis) for axis in sides]
    return longer + [value.take(range(value.shape[axis] - 1), axis) for axis in sides]


@every_expert
def test_a_snapshot_that_lacks_something_or_has_another_shape_is_refused(
    kind: type[Expert],
) -> None:
    snapshot = Stream(kind).run(50).expert.snapshot()
    kind.restore(CONFIG, snapshot, WIDTH)
    damaged = [{key: each for key, each in snapshot.items() if key != name} for name in snapshot]
    damaged += [
        {**snapshot, name: other} for name, value in snapshot.items() for other in resized(value)
    ]
    for each in damaged:
        with pytest.raises(CORRUPTION_ERRORS):
            kind.restore(CONFIG, each, WIDTH)
    for columns in (WIDTH - 1, WIDTH + 1) if kind.name not in BLIND else ():
        with pytest.raises(CORRUPTION_ERRORS):
            kind.restore(CONFIG, snapshot, columns)


def answers_of(config: Config) -> list[dict[str, float]]:
    """Every expert's answer to every record of a nasty stream."""
    answers = play(Learner(config), nasty_events("half missing", 3, 80))
    forecasts = [each for each in answers if isinstance(each, Forecast)]
    return [{name: each.p for name, each in forecast.experts.items()} for forecast in forecasts]


@pytest.mark.parametrize("ablation", [None, "copula", "softlabels", "dual_track", "risk"])
def test_experts_do_not_depend_on_each_other(
    ablation: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config.read(CONFIG.as_mapping() | {"ablate": {ablation: True} if ablation else {}})
    expected = answers_of(config)
    backwards = replace(config, experts=config.experts[::-1])
    assert answers_of(backwards) == expected
    alone = replace(config, experts=("naive",))
    assert answers_of(alone) == [{"naive": result["naive"]} for result in expected]


@every_expert
def test_an_answer_does_not_depend_on_which_others_are_listed(kind: type[Expert]) -> None:
    names = tuple(dict.fromkeys(("naive", kind.name)))
    alone, together = answers_of(replace(CONFIG, experts=names)), answers_of(CONFIG)
    assert alone == [{name: result[name] for name in names} for result in together]


# --- a new expert --------------------------------------------------------------------------------


class Share:
    """The share of ones among the labels so far: an expert that looks at no column."""

    name: ClassVar[str] = "share"
    kept: ClassVar[tuple[str, ...]] = ("labels", "ones", "step")
    scales: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: Config) -> None:
        self.at = self.labels = self.ones = self.columns = 0

    def observe(self, instance: Instance) -> float:
        instance.numbers[self.at : self.at + 3] = self.labels, self.ones, instance.step
        return self.score(instance)

    def score(self, instance: Instance) -> float:
        return (self.ones + 1) / (self.labels + 2)

    def learn(self, instance: Instance, label: int) -> float:
        labels, ones, step = instance.numbers[self.at : self.at + 3].tolist()
        assert step == instance.step, "what was kept comes back with its instance"
        assert ones <= labels <= self.labels
        before = self.score(instance)
        self.labels += 1
        self.ones += label
        return before

    def forget(self, step: int) -> None:
        return

    def correct(self, step: int, label: int) -> bool:
        return False

    def grow(self, columns: int) -> None:
        self.columns += columns

    def contributions(self, instance: Instance) -> FloatArray:
        return np.zeros(self.columns)

    def inspect(self) -> Inspection:
        return Inspection({"labels": self.labels}, {})

    def snapshot(self) -> dict[str, Any]:
        return {"labels": self.labels, "ones": self.ones}

    @classmethod
    def restore(cls, config: Config, snapshot: Mapping[str, Any], columns: int) -> Self:
        share = cls(config)
        share.labels, share.ones = snapshot["labels"], snapshot["ones"]
        share.columns = columns
        return share


@pytest.fixture
def longer_list(monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """The list with one more expert, whose name is known and stands in the middle."""
    names = (*EXPERT_NAMES[:1], "share", *EXPERT_NAMES[1:])
    monkeypatch.setattr(learner_module, "EXPERTS", (*EXPERTS, Share))
    monkeypatch.setattr(config_module, "EXPERT_NAMES", names)
    return names


def test_a_new_expert_needs_only_the_list(longer_list: Sequence[str]) -> None:
    """Prediction, snapshot, restore and inspection follow."""
    journal = Journal()
    for number in range(40):
        journal.features(str(number), {"a": number % 7, "b": "x"})
        if number >= 3:
            journal.label(str(number - 3), number % 2)
    config = FoldConfig(learner=Config(experts=tuple(longer_list)))
    fold, outputs = fold_all(journal.records, Fold(REF, config))
    newest = read_prediction(outputs[-1].value)
    assert isinstance(newest, Prediction)
    assert list(newest.experts) == list(longer_list)
    assert newest.experts["share"].p == pytest.approx(0.5, abs=0.05)
    snapshot = fold.streams["default"].snapshot()
    again = StreamState.restore(snapshot, Lineage(1, 0))
    assert digest(again.snapshot()) == digest(snapshot)
    about = about_stream("default", again, 1, levels=False)
    assert about["experts"]["share"]["numbers"] == {"labels": 36.0}
    assert about["experts"]["share"]["weight"] == again.learner.combination.weights()[0]["share"]


def test_a_new_expert_sees_late_labels_and_changes_no_other(longer_list: Sequence[str]) -> None:
    longer = answers_of(replace(CONFIG, experts=tuple(longer_list)))
    for with_it, without in zip(longer, answers_of(CONFIG), strict=True):
        assert {name: p for name, p in with_it.items() if name != "share"} == without


def test_a_snapshot_of_another_list_is_refused() -> None:
    learner = Learner(CONFIG)
    play(learner, nasty_events("mixed", 1, 30))
    assert digest(reborn(learner).snapshot()) == digest(learner.snapshot())
    for experts in (CONFIG.experts[:-1], CONFIG.experts[::-1], ("naive",)):
        with pytest.raises(SnapshotError, match="made with another experts: "):
            Learner.restore(replace(CONFIG, experts=experts), learner.snapshot())
