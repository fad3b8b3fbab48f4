"""Every stage and every expert by every check: restore, looking, aliasing, growing, bounds.

A `Stage` here is a thin handle on one stage or expert of the core: its k-th change depends on k
alone, so two handles that went through the same changes must hold the same bits.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
import pytest

from dtgol_core.bayes import Regression, design_prior
from dtgol_core.buffer import VERIFIED
from dtgol_core.columns import Columns, EncodedRecord
from dtgol_core.combination import Combination
from dtgol_core.config import (
    Config,
    CopulaConfig,
    DecisionConfig,
    DelayConfig,
    EnsembleConfig,
    GraphConfig,
    SoftLabelsConfig,
    TracksConfig,
)
from dtgol_core.conformal import ConformalSets
from dtgol_core.copula import Copula
from dtgol_core.delay import DelayTable
from dtgol_core.ensemble import Ensemble
from dtgol_core.experts import EXPERTS, Expert
from dtgol_core.geometry import Geometry
from dtgol_core.ids import id_hash
from dtgol_core.learner import Learner
from dtgol_core.marginals import Marginals, RunningScales
from dtgol_core.scoring import Scoreboard
from dtgol_core.softlabels import SoftLabels
from dtgol_core.state import combine, decode, encode, held_bytes, section
from dtgol_core.tracks import DualTrack
from dtgol_core.types import FloatArray, Instance, Value, Vectors
from tests.support.instances import let_in
from tests.support.views import digest_of, paper_of, sizes_beyond_bounds

Handed = list[Any]
"""What a change was given: arrays and dicts that the caller may overwrite afterwards."""


class Stage(Protocol):
    """What the checks need of a stage."""

    width: int

    def change(self, k: int) -> Handed: ...

    def look(self) -> object: ...

    def grow(self) -> None: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restored(self, snapshot: dict[str, Any]) -> "Stage": ...

    def too_large(self) -> object: ...


def vector(k: int, width: int) -> FloatArray:
    """The k-th vector: small whole steps, so that equal ones come back."""
    return np.array([math.sin((k % 17 + 1) * (column + 1)) for column in range(width)])


def vectors(k: int, width: int) -> Vectors:
    """The k-th record in all scales."""
    scaled = (vector(k + more, width).astype(np.float32) for more in (2, 3, 4))
    return Vectors.of(vector(k, width), vector(k + 1, width), *scaled)


class ColumnsStage:
    width = 0

    def __init__(self) -> None:
        self.config = Config.read({"copula": {"max_columns": 12}})
        self.columns = Columns(self.config)

    def record(self, k: int) -> dict[str, Value]:
        named: dict[str, Value] = {
            "count": k % 40,
            "level": f"level {k % 50}",
            "flag": k % 2 == 0,
            f"new {self.width}": 0.5,
        }
        return {name: value for place, (name, value) in enumerate(named.items()) if k % 5 != place}

    def change(self, k: int) -> Handed:
        record = self.record(k)
        reading = self.columns.read(record)
        if not isinstance(reading, EncodedRecord):
            return [record]
        self.columns.absorb(reading)
        return [record, reading.row]

    def look(self) -> object:
        return [repr(self.columns.read(self.record(k))) for k in range(60)], self.columns.width

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return {"features": self.columns.snapshot()}

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = ColumnsStage()
        stage.width = self.width
        stage.columns = Columns.restore(self.config, snapshot["features"])
        return stage

    def too_large(self) -> object:
        features = self.columns.features.values()
        return self.columns.width > 12 or any(len(each.seen) > 14 for each in features)


class DelayStage:
    width = 2
    config = DelayConfig(
        expire_steps=300, expire_ms=200_000, pending_max=40, early_max=5, settled_max=20
    )

    def __init__(self) -> None:
        self.table = DelayTable(self.config, numbers=3, scores=3)

    def change(self, k: int) -> Handed:
        self.table.settle_due(k + 1)
        self.table.expire(k + 1, 1000 * k)
        self.table.expire_early(k + 1)
        given, numbers = vectors(k, self.width), [0.4, 0.6, k]
        time = None if k % 3 == 0 else 1000 * k
        let_in(self.table, f"id {k}", k + 1, given, numbers, time)
        if k % 4:
            self.table.add_label(f"id {k - k % 7}", k % 2, k + 1)
        if k % 9 == 0:
            self.table.add_label(f"early {k}", 1, k + 1)
        return [*given, numbers]

    def look(self) -> object:
        return (
            len(self.table),
            self.table.early_labels,
            [self.table.knows(f"id {k}", id_hash(f"id {k}")) for k in range(500)],
        )

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.table.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = DelayStage()
        stage.width = self.width
        stage.table = DelayTable.restore(self.config, snapshot, 3, self.width, 3)
        return stage

    def too_large(self) -> object:
        table = self.table
        return (
            len(table) > 40
            or table.early_labels > 5
            or len(table.settled) > 20
            or len(table.settled._index._recent) > 5000
            or len(table._blocks) > 4
            or len(table._labels) > len(table)
            or len(table._queue) > len(table)
            or len(table._by_time) > 2 * 40 + 256
        )


class MarginalsStage:
    width = 3

    def __init__(self) -> None:
        self.marginals = Marginals(window=10)
        self.marginals.grow(3, [-1, -1, -1])

    def change(self, k: int) -> Handed:
        row = np.where(vector(k, self.width) > 0.8, np.nan, vector(k, self.width).round(1))
        kinds, spaces = np.arange(self.width, dtype=np.uint8) % 2, np.zeros((2, self.width))
        spread = self.marginals.absorb(row, kinds, spaces)
        return [row, spaces, spread]

    def look(self) -> object:
        return self.marginals.rows.tobytes()

    def grow(self) -> None:
        self.marginals.grow(2, [0, -1])
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.marginals.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = MarginalsStage()
        stage.width = self.width
        stage.marginals = Marginals.restore(10, snapshot, self.width)
        return stage

    def too_large(self) -> object:
        return self.marginals.rows.shape != (self.width, 10)


class ScalesStage:
    width = 3

    def __init__(self) -> None:
        self.scales = RunningScales()
        self.scales.grow(3)

    def change(self, k: int) -> Handed:
        row = np.where(vector(k, self.width) > 0.8, np.nan, vector(k, self.width).round(1))
        latent, scores = vector(k + 1, self.width), np.zeros((3, self.width), dtype=np.float32)
        self.scales.absorb(row, latent, scores)
        return [row, scores, latent]

    def look(self) -> object:
        return [each.tobytes() for each in self.scales.snapshot().values()]

    def grow(self) -> None:
        self.scales.grow(2)
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.scales.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = ScalesStage()
        stage.width = self.width
        stage.scales = RunningScales.restore(snapshot, self.width)
        return stage

    def too_large(self) -> object:
        scales = self.scales
        shapes = {scales.means.shape, scales.variances.shape, (2, *scales.counts.shape)}
        return shapes != {(2, self.width)}


class RegressionStage:
    """A regression over columns; from 64 columns on it keeps blocks."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.regression = Regression(*design_prior(width), memory=0.99)

    def change(self, k: int) -> Handed:
        x = vectors(k, self.width).design
        self.regression.learn(x, k % 2)
        return [x]

    def look(self) -> object:
        x = vectors(3, self.width).design
        return self.regression.score(x), self.regression.terms(x).tobytes()

    def grow(self) -> None:
        self.width += 2
        self.regression.grow(*design_prior(self.width))

    def snapshot(self) -> dict[str, Any]:
        return self.regression.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = RegressionStage(self.width)
        prior = design_prior(self.width)
        stage.regression = Regression.restore(*prior, 0.99, snapshot)
        return stage

    def too_large(self) -> object:
        weights = 3 * self.width + 1
        shape = (weights, weights) if weights <= 193 else (3, weights)
        return self.regression.covariance.shape != shape


class CombinationStage:
    """Five experts, one of which is not asked again."""

    width = 0
    experts = ("naive", "paper", "forest", "recent", "tracker")

    def __init__(self) -> None:
        self.combination = Combination(self.experts)

    def answers(self, k: int) -> list[float]:
        return [abs(math.sin(k + place)) for place in range(len(self.experts))]

    def numbers(self, k: int) -> FloatArray:
        """Those of an instance, as the learner would have them."""
        return np.array([*self.answers(k), *(0.0 for _ in self.combination.kept)])

    def change(self, k: int) -> Handed:
        arrival, now = self.numbers(k), self.answers(k + 1)
        self.combination.combine(arrival)
        self.combination.learn(k, arrival, now, k % 2)
        self.combination.begin_second(k)
        self.combination.answer_again(k + 1, self.answers(k), arrival)
        return [arrival, now]

    def look(self) -> object:
        asked = self.numbers(7)
        return self.combination.combine(asked), self.combination.pulls(asked)

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.combination.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = CombinationStage()
        stage.width = self.width
        stage.combination = Combination.restore(self.experts, snapshot)
        return stage

    def too_large(self) -> object:
        combination = self.combination
        shapes = combination.stacks.shape, combination.guard.shape
        return (shapes, len(combination.second) < 2) != (((3, 8, 5), (4,)), True)


class ConformalStage:
    width = 0
    config = DecisionConfig(coverage=0.6)

    def __init__(self) -> None:
        self.sets = ConformalSets(self.config)

    def change(self, k: int) -> Handed:
        self.sets.learn(abs(math.sin(k)), k % 2)
        return []

    def look(self) -> object:
        return [self.sets.of(k / 20) for k in range(21)]

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.sets.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = ConformalStage()
        stage.width = self.width
        stage.sets = ConformalSets.restore(self.config, snapshot)
        return stage

    def too_large(self) -> object:
        return max(len(self.sets._ordered(y)) for y in (0, 1)) > 500


class CopulaStage:
    width = 3
    config = CopulaConfig(window=10)

    def __init__(self) -> None:
        self.copula = Copula(self.config)
        self.copula.grow(3)
        self.changes = 0

    def change(self, k: int) -> Handed:
        missing = (vector(k, self.width) > 0.5) & (np.arange(self.width) > 0)
        latent = np.where(missing, np.nan, vector(k, self.width))
        spread = np.abs(vector(k + 1, self.width)) / 4
        self.copula.absorb(latent, spread, k + 1)
        assert not np.isnan(latent).any()
        assert (latent[~missing] == vector(k, self.width)[~missing]).all()
        return [spread, latent]

    def look(self) -> object:
        return self.copula.correlation.tobytes()

    def grow(self) -> None:
        self.copula.grow(2)
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.copula.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = CopulaStage()
        stage.width = self.width
        stage.copula = Copula.restore(self.config, snapshot, self.width)
        return stage

    def too_large(self) -> object:
        return self.copula.correlation.shape != (self.width, self.width)


class GeometryStage:
    """The fine buffer and the graph over it."""

    width = 3
    config = GraphConfig(unverified=9, verified=5)

    def __init__(self) -> None:
        self.geometry = Geometry(self.config)
        self.geometry.grow(3)

    def change(self, k: int) -> Handed:
        given = vectors(k, self.width)
        if k % 2 and k > 3:
            self.geometry.verify(k - 3, vectors(k - 3, self.width), k % 4 // 2)
        if k % 7 == 0:
            self.geometry.forget(k - 2)
        self.geometry.join(self.geometry.enter(k, given))
        return [*given]

    def look(self) -> object:
        buffer, graph = self.geometry.buffer, self.geometry.graph
        found = [buffer.find(step) for step in range(500)]
        return found, buffer.admits(3), len(buffer), graph.nodes().tolist()

    def grow(self) -> None:
        self.geometry.grow(2)
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.geometry.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = GeometryStage()
        stage.width = self.width
        stage.geometry = Geometry.restore(self.config, snapshot, self.width)
        return stage

    def too_large(self) -> object:
        buffer, graph = self.geometry.buffer, self.geometry.graph
        slots = len(buffer.steps)
        return (
            slots > 9 + 5 + 2
            or len(buffer) > 9 + 5
            or len(buffer.window) > 9
            or len(buffer.verified) > 5
            or graph.slots.shape != (2, slots)
            or graph.size != len(buffer)
        )


class SoftLabelsStage:
    width = 2

    def __init__(self) -> None:
        self.softlabels = SoftLabels(SoftLabelsConfig())

    def change(self, k: int) -> Handed:
        self.softlabels.seed(abs(math.sin(k)), k % 2)
        return []

    def look(self) -> object:
        nodes = np.array([2, 0, 1, 3], dtype=np.int64)
        parent = np.array([2, 0, -1, 0], dtype=np.int64)
        latent = np.stack([vector(k, self.width) for k in range(4)])
        label = np.array([-1, 1, -1, 0], dtype=np.int8)
        weights = vector(9, self.width + 1)
        inputs = [array.copy() for array in (nodes, parent, latent, label, weights)]
        soft = self.softlabels.spread(nodes, parent, latent, label, weights)
        for array, copy in zip((nodes, parent, latent, label, weights), inputs, strict=True):
            np.testing.assert_array_equal(array, copy)
        return soft.tobytes()

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.softlabels.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = SoftLabelsStage()
        stage.width = self.width
        stage.softlabels = SoftLabels.restore(SoftLabelsConfig(), snapshot)
        return stage

    def too_large(self) -> object:
        return held_bytes(self.softlabels) > 100


class TrackStage:
    width = 3
    config = TracksConfig(l2=0.01)

    def __init__(self) -> None:
        self.track = DualTrack(self.config)
        self.track.grow(3)

    def change(self, k: int) -> Handed:
        given = vector(k, self.width)
        self.track.learn(given, k % 2, k + 1)
        assert given.tobytes() == vector(k, self.width).tobytes()
        verified = np.stack([vector(k + j, self.width) for j in range(3)])
        label, slots = np.array([1, -1, 0], dtype=np.int8), np.array([0, 2])
        self.track.rehearse(verified, label, slots)
        soft = np.array([0.1, 0.9, 0.5])
        self.track.branch(verified, np.array([2, 1], dtype=np.int64), soft)
        return [given, verified, slots, soft]

    def look(self) -> object:
        given = vector(3, self.width)
        return self.track.answer(given), self.track.score(given), self.track.anchor.tobytes()

    def grow(self) -> None:
        self.track.grow(2)
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.track.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = TrackStage()
        stage.width = self.width
        stage.track = DualTrack.restore(self.config, snapshot, self.width)
        return stage

    def too_large(self) -> object:
        return any(
            weights.shape != (self.width + 1,)
            for weights in (self.track.weights, self.track.anchor, self.track.transient)
        )


class EnsembleStage:
    width = 0

    def __init__(self) -> None:
        self.ensemble = Ensemble(EnsembleConfig())

    def change(self, k: int) -> Handed:
        self.ensemble.reweigh(abs(math.sin(k)), abs(math.cos(k)), k % 2)
        return []

    def look(self) -> object:
        return self.ensemble.latent_weight(), self.ensemble.blend(0.2, 0.7)

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.ensemble.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = EnsembleStage()
        stage.width = self.width
        stage.ensemble = Ensemble.restore(EnsembleConfig(), snapshot)
        return stage

    def too_large(self) -> object:
        return held_bytes(self.ensemble) > 100


class ScoringStage:
    width = 0

    def __init__(self) -> None:
        self.board = Scoreboard(window_rows=20, windows_max=3)

    def change(self, k: int) -> Handed:
        self.board.add(abs(math.sin(k)), abs(math.cos(k)), k % 2, k + 1, k % 30)
        return []

    def look(self) -> object:
        return self.board.summary()

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return {"board": self.board.snapshot()}

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = ScoringStage()
        stage.width = self.width
        stage.board = Scoreboard.restore(snapshot["board"])
        return stage

    def too_large(self) -> object:
        return len(self.board._windows) > 3


def array_bytes(value: object) -> int:
    """The bytes of all arrays that an object holds."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return sum(map(array_bytes, getattr(value, "__dict__", {}).values()))


class ExpertStage:
    """Any expert: labels come four records late, some never."""

    width = 3
    config = Config.read({"graph": {"unverified": 9, "verified": 5}})

    def __init__(self, kind: type[Expert]) -> None:
        self.kind = kind
        self.expert = kind(self.config)
        self.expert.grow(3)
        self.numbers: dict[int, FloatArray] = {}
        self.largest = array_bytes(self.expert)

    def instance(self, k: int) -> Instance:
        numbers = self.numbers.get(k, np.full(len(self.kind.kept), 0.5))
        return Instance(k + 1, vectors(k, self.width), numbers.copy())

    def change(self, k: int) -> Handed:
        waited, arrived = self.instance(k - 4), self.instance(k)
        if k >= 4 and k % 3:
            self.expert.learn(waited, k % 2)
        elif k >= 4:
            self.expert.forget(waited.step)
        self.expert.observe(arrived)
        self.numbers[k] = arrived.numbers
        return [*waited.vectors, *arrived.vectors]

    def look(self) -> object:
        asked = [self.instance(k) for k in range(6)]
        found = self.expert.inspect()
        return (
            [self.expert.score(each) for each in asked],
            [self.expert.contributions(each).tobytes() for each in asked],
            found.numbers,
            {name: each.tobytes() for name, each in found.weights.items()},
        )

    def grow(self) -> None:
        self.expert.grow(2)
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.expert.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = ExpertStage(self.kind)
        stage.width, stage.numbers = self.width, dict(self.numbers)
        stage.expert = self.kind.restore(self.config, snapshot, self.width)
        return stage

    def too_large(self) -> object:
        """Nothing grows after 250 records beyond the arrays that were there at the start."""
        size = len(bits(self))
        if len(self.numbers) <= 250:
            self.largest = max(self.largest, size + 100)
        return size > self.largest


class LearnerStage:
    """All stages and experts together."""

    width = 3
    config = Config.read(
        {
            "copula": {"window": 15, "max_columns": 40},
            "graph": {"unverified": 9, "verified": 5},
            "delay": {"pending_max": 30, "settled_max": 10, "early_max": 4, "early_steps": 20},
        }
    )

    def __init__(self) -> None:
        self.learner = Learner(self.config)

    def record(self, k: int) -> dict[str, Value]:
        numbers: dict[str, Value] = {
            f"x{column}": value for column, value in enumerate(vector(k, self.width).tolist())
        }
        return {**numbers, "level": f"level {k % 6}", f"x{k % 3}": None}

    def change(self, k: int) -> Handed:
        record = self.record(k)
        self.learner.observe(f"id {k}", record)
        self.learner.learn(f"id {k - k % 5}", k % 2)
        return [record]

    def look(self) -> object:
        return [self.learner.peek(self.record(k), why=2) for k in range(3)]

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return {"blob": np.frombuffer(encode(self.learner.snapshot()), dtype=np.uint8)}

    def restored(self, snapshot: dict[str, Any]) -> Stage:
        stage = LearnerStage()
        stage.width = self.width
        stage.learner = Learner.restore(self.config, decode(snapshot["blob"].tobytes()))
        return stage

    def too_large(self) -> object:
        return sizes_beyond_bounds(self.learner)


STAGES: dict[str, Callable[[], Stage]] = {
    "columns": ColumnsStage,
    "delay": DelayStage,
    "marginals": MarginalsStage,
    "scales": ScalesStage,
    "regression": partial(RegressionStage, 3),
    "regression in blocks": partial(RegressionStage, 65),
    "combination": CombinationStage,
    "conformal": ConformalStage,
    "copula": CopulaStage,
    "geometry": GeometryStage,
    "softlabels": SoftLabelsStage,
    "track": TrackStage,
    "ensemble": EnsembleStage,
    "scoring": ScoringStage,
    "learner": LearnerStage,
    **{f"expert {expert.name}": partial(ExpertStage, expert) for expert in EXPERTS},
}
NOT_EVERY_CHANGE = {"columns", "softlabels", *(f"expert {expert.name}" for expert in EXPERTS)}
"""Stages in which some changes leave the state as it was."""
every_stage = pytest.mark.parametrize("name", STAGES)


def bits(stage: Stage) -> bytes:
    return encode(combine({"stage": stage.snapshot()}))


def through_bytes(stage: Stage) -> Stage:
    return stage.restored(section(decode(bits(stage)), "stage"))


@every_stage
def test_restored_equals_the_original_and_goes_on_alike(name: str) -> None:
    steady, crashing = STAGES[name](), STAGES[name]()
    for k in range(60):
        crashing = through_bytes(crashing)
        assert crashing.look() == steady.look(), k
        steady.change(k)
        crashing.change(k)
        assert bits(crashing) == bits(steady), k


@every_stage
def test_looking_changes_nothing(name: str) -> None:
    stage = STAGES[name]()
    for k in range(40):
        before = bits(stage)
        first, second = stage.look(), stage.look()
        assert first == second
        assert bits(stage) == before
        stage.change(k)
        assert bits(stage) != before or name in NOT_EVERY_CHANGE, "nothing was changed"


@every_stage
def test_what_was_handed_in_may_be_overwritten(name: str) -> None:
    kept, spoilt = STAGES[name](), STAGES[name]()
    for k in range(40):
        kept.change(k)
        for given in spoilt.change(k):
            if isinstance(given, np.ndarray):
                given.fill(1e9)
            else:
                given.clear()
        assert bits(spoilt) == bits(kept), k


@every_stage
def test_snapshots_are_copies(name: str) -> None:
    stage = STAGES[name]()
    for k in range(30):
        stage.change(k)
    before = bits(stage)
    first = stage.snapshot()
    restored = stage.restored(first)
    stage.change(30)
    assert encode(combine({"stage": first})) == before
    restored.change(30)
    assert encode(combine({"stage": first})) == before
    assert bits(restored) == bits(stage)


@every_stage
def test_growing_keeps_what_is_known(name: str) -> None:
    """Known numbers stay at the front; a stage that grew goes on, crashed or not."""
    stage = STAGES[name]()
    k = 0
    for _ in range(4):
        for _ in range(6):
            stage.change(k)
            k += 1
        before = stage.snapshot()
        stage.grow()
        after = stage.snapshot()
        for key, old in before.items():
            if isinstance(old, np.ndarray):
                front = after[key][tuple(slice(extent) for extent in old.shape)]
                np.testing.assert_array_equal(front, old)
        again = through_bytes(stage)
        stage.change(k)
        again.change(k)
        assert bits(again) == bits(stage)
        k += 1


@every_stage
def test_memory_is_bounded(name: str) -> None:
    stage = STAGES[name]()
    for k in range(500):
        stage.change(k)
        assert not stage.too_large(), k


def test_bounds_are_watched() -> None:
    """The check of the learner's bounds can fail."""
    stage = LearnerStage()
    for k in range(50):
        stage.change(k)
    before = digest_of(stage.learner)
    lists = paper_of(stage.learner).geometry.buffer.lists
    lists[VERIFIED, 0] += 6
    assert set(sizes_beyond_bounds(stage.learner)) == {"verified"}
    lists[VERIFIED, 0] -= 6
    assert digest_of(stage.learner) == before
