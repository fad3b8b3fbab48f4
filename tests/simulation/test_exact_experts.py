"""The fast experts against the plain ones, step by step, within 1e-9.

The plain ones were written from docs/learner.md alone. Every expert by itself, on vectors made
here, with its state; trees must be the same node by node. `test_exact_whole` has the learner with
all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from dtgol_core.bayes import Regression
from dtgol_core.config import EXPERT_NAMES, Config
from dtgol_core.experts import EXPERTS, Expert
from dtgol_core.experts.forest import Forest
from dtgol_core.experts.linear import Linear
from dtgol_core.experts.recent import Recent
from dtgol_core.experts.tracker import (
    CURSOR,
    LIVE,
    MEAN_STEP,
    ONES,
    OWN,
    SHADOW,
    VERIFIED,
    ZEROS,
    Tracker,
)
from dtgol_core.marginals import RunningScales
from dtgol_core.mixture import BLOCK, COMPONENTS, MASS
from dtgol_core.trees import GROWING
from dtgol_core.types import Instance, Vectors
from tests.support.plain_experts import (
    MEMORIES,
    PlainExpert,
    PlainLinear,
    PlainRecent,
    PlainRegression,
    PlainScales,
    Seen,
    close,
)
from tests.support.plain_forest import Node, PlainForest
from tests.support.plain_tracker import PlainMixture, PlainTracker

PLAIN: Mapping[str, Callable[[], PlainExpert]] = {
    "linear": lambda: PlainLinear(MEMORIES["linear"]),
    "linear_fast": lambda: PlainLinear(MEMORIES["linear_fast"]),
    "forest": PlainForest,
    "recent": PlainRecent,
    "tracker": PlainTracker,
}


@dataclass(frozen=True, slots=True)
class Stream:
    """Records of a cloud that moves, as vectors, and how their labels come."""

    columns: int
    columns_max: int
    rows: int
    delay_max: int
    """A label comes 1 to so many records after its features, those due at once in any order."""
    missing: float = 0.2
    empty: float = 0.05
    """Share of rows in which everything is missing."""
    never: float = 0.1
    """Share of records without a label; half of them are forgotten after the longest delay."""
    corrected: float = 0.1
    coarse: bool = False
    """Whole numbers: ties in every split. The first column hardly differs from row to row."""
    one_class: bool = False


STREAMS: Mapping[str, Stream] = {
    "one column": Stream(1, 1, 200, 5),
    "three columns that become eight": Stream(3, 8, 300, 40),
    "from nothing": Stream(0, 8, 120, 10),
    "ties, very late": Stream(2, 6, 400, 250, coarse=True),
    "one class for ever": Stream(5, 5, 120, 30, one_class=True),
    "mostly missing": Stream(4, 6, 150, 20, missing=0.6, empty=0.3),
    "at once": Stream(7, 8, 120, 1, never=0),
    "beyond 64 columns": Stream(62, 70, 90, 8),
}


class Pair:
    """The fast and the plain expert of one name, fed alike."""

    def __init__(self, name: str, columns: int) -> None:
        self.fast: Expert = {expert.name: expert for expert in EXPERTS}[name](Config())
        self.plain = PLAIN[name]()
        self.waiting: dict[int, tuple[Instance, Seen]] = {}
        self.columns = 0
        self.grow(columns)

    def grow(self, columns: int) -> None:
        self.fast.grow(columns)
        self.plain.grow(columns)
        self.columns += columns

    def both(self, step: int) -> tuple[Instance, Seen]:
        ours, theirs = self.waiting[step]
        vectors = ours.vectors.padded(self.columns)
        return ours._replace(vectors=vectors), theirs._replace(vectors=vectors)

    def observe(self, step: int, vectors: Vectors) -> None:
        ours = Instance(step, vectors, np.zeros(len(self.fast.kept)))
        answer, kept = self.fast.observe(ours), self.plain.observe(Seen(step, vectors))
        self.waiting[step] = ours, Seen(step, vectors, kept)
        close(answer, self.plain.score(self.waiting[step][1]), f"step {step}, on arrival")
        self.compare(step, f"step {step}")

    def compare(self, step: int, at: str) -> None:
        ours, theirs = self.both(step)
        close(self.fast.score(ours), self.plain.score(theirs), at)

    def learn(self, step: int, label: int) -> None:
        self.compare(step, f"label of step {step}")
        ours, theirs = self.both(step)
        before = self.plain.score(theirs)
        close(self.fast.learn(ours, label), before, f"label of step {step}: the answer before it")
        self.plain.learn(theirs, label)
        del self.waiting[step]

    def forget(self, step: int) -> None:
        self.fast.forget(step)
        self.plain.forget(step)
        del self.waiting[step]

    def correct(self, step: int, label: int) -> None:
        self.fast.correct(step, label)
        self.plain.correct(step, label)

    def compare_state(self, at: str) -> None:
        match self.fast, self.plain:
            case Linear(), PlainLinear():
                same_regression(self.fast.regression, self.plain.regression, at)
            case Recent(), PlainRecent():
                same_regression(self.fast.regression, self.plain.regression, at)
                close(self.fast.rate, self.plain.rate, at)
            case Forest(), PlainForest():
                same_forest(self.fast, self.plain, at)
            case Tracker(), PlainTracker():
                same_tracker(self.fast, self.plain, at)
            case _:
                raise AssertionError(f"{at}: no comparison of {self.fast.name}")


def same_regression(fast: Regression, plain: PlainRegression, at: str) -> None:
    close(fast.mean, plain.mean, f"{at}: mean")
    kept = fast.snapshot()
    if "covariance" in kept:
        close(kept["covariance"], plain.covariance, f"{at}: covariance")
        return
    blocks = [plain.covariance[i : i + 3, i : i + 3] for i in range(1, len(plain.mean), 3)]
    close(kept["blocks"][0, 0], plain.covariance[0, 0], f"{at}: variance of the bias")
    close(kept["blocks"][:, 1:], np.concatenate(blocks, axis=1), f"{at}: blocks")
    assert np.count_nonzero(plain.covariance) <= 1 + 9 * len(blocks), at


def same_tree(fast: Forest, place: int, nodes: Sequence[Node], open_: set[int], at: str) -> None:
    """Node by node: splits to the bit, the sums of leaves that are not open within 1e-9."""
    trees, size = fast.trees, len(nodes)
    feature, child = trees.feature[place, :size], trees.child[place, :size]
    assert feature.tolist() == [node.feature for node in nodes], at
    splits = feature >= 0
    thresholds = trees.threshold[place, :size][splits].tolist()
    assert thresholds == [float(node.threshold) for node in nodes if node.feature >= 0], at
    children = [(int(left), int(left) + 1) for left in child[splits]]
    assert children == [(node.left, node.right) for node in nodes if node.feature >= 0], at
    leaves = [i for i in range(size) if not splits[i] and i not in open_]
    close(trees.sums[place, child[leaves], 0], [nodes[i].g for i in leaves], at)
    close(trees.sums[place, child[leaves], 1], [nodes[i].h for i in leaves], at)


def same_forest(fast: Forest, plain: PlainForest, at: str) -> None:
    same_regression(fast.regression, plain.regression, at)
    assert fast.finished == plain.finished, at
    for number, nodes in plain.trees.items():
        assert fast.trees.nodes[number] == len(nodes), at
        same_tree(fast, number, nodes, set(), f"{at}: tree {number}")
    growing = plain.growing
    assert fast.growth.grows == (growing is not None), at
    if growing is None:
        return
    open_ = [entry[2] for entry in growing.open]
    assert fast.growth.open_nodes() == open_, at
    assert fast.growth.nodes == len(growing.nodes), at
    same_tree(fast, GROWING, growing.nodes, set(open_), f"{at}: growing tree")
    slots = fast.growth.snapshot()["slots"]
    assert slots.tolist() == (growing.rows % PlainForest.RING).tolist(), at


def same_mixture(fast: Tracker, which: int, plain: PlainMixture, at: str) -> None:
    numbers, means, (scatters, precisions) = (each[which] for each in fast._arrays())
    close(numbers[:COMPONENTS], plain.n, f"{at}: weights")
    close(numbers[MASS], plain.mass, f"{at}: mass")
    close(means, plain.m, f"{at}: means")
    for first in range(0, plain.m.shape[1], BLOCK):
        rows = slice(first, min(first + BLOCK, plain.m.shape[1]))
        size = rows.stop - first
        scatter, precision = scatters[rows, :size], precisions[rows, :size]
        close(scatter, plain.scatter[rows, rows], f"{at}: scatter")
        close(precision, plain.precision[rows, rows], f"{at}: precision")


def same_tracker(fast: Tracker, plain: PlainTracker, at: str) -> None:
    assert fast.live == (plain.live is not None), at
    own = fast.numbers[OWN]
    assert (own[CURSOR] >= 0) == (plain.shadow is not None), at
    waiting, kept = fast.waiting.snapshot(), plain.kept_answers
    assert waiting["steps"].tolist() == sorted(plain.waiting) == sorted(kept), at
    close(waiting["answers"], [kept[step] for step in sorted(kept)], f"{at}: kept answers")
    close(own[MEAN_STEP], plain.mean_step, at)
    close(own[[ZEROS, ONES]], plain.counts, at)
    same_mixture(fast, VERIFIED, plain.verified, f"{at}: verified")
    if plain.shadow is not None:
        same_mixture(fast, SHADOW, plain.shadow, f"{at}: shadow")
    if plain.live is not None:
        same_mixture(fast, LIVE, plain.live, f"{at}: live")


def random_vectors(rng: np.random.Generator, stream: Stream, columns: int, step: int) -> Vectors:
    """A record of a moving cloud; the scales are made up and need not fit together."""
    latent, x = rng.normal(size=columns), rng.normal(size=columns) + np.sin(step / 60)
    if stream.coarse:
        x = np.round(x)
        x[:1] *= 4e-10
    missing = rng.random(columns) < (1.0 if rng.random() < stream.empty else stream.missing)
    return Vectors.of(
        latent,
        latent,
        np.where(missing, 0.0, np.clip(x, -5, 5)).astype(np.float32),
        np.where(missing, 0.0, np.clip(1.3 * x - 0.1, -5, 5)).astype(np.float32),
        np.where(missing, latent, x).astype(np.float32),
    )


def walk(name: str, stream: Stream, seed: int) -> Pair:
    """Feed both experts one stream and compare every answer, and the state after every 10th."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=stream.columns_max)
    pair = Pair(name, stream.columns)
    due: dict[int, list[tuple[int, int]]] = {}
    gone: dict[int, int] = {}
    for step in range(1, stream.rows + 1):
        for labelled, y in rng.permutation(due.pop(step, [])).tolist():
            pair.learn(labelled, y)
            if rng.random() < stream.corrected:
                pair.correct(labelled, 1 - y)
        if step in gone:
            pair.forget(gone[step])
        if pair.columns < stream.columns_max and rng.random() < 0.05:
            pair.grow(min(int(rng.integers(1, 4)), stream.columns_max - pair.columns))
        vectors = random_vectors(rng, stream, pair.columns, step)
        pair.observe(step, vectors)
        if step % 10 == 0:
            pair.compare_state(f"step {step}")
        signal = float(weights[: pair.columns] @ vectors.completed)
        y = int(stream.one_class or signal + rng.normal() > 0)
        if rng.random() >= stream.never:
            at = step + int(rng.integers(1, stream.delay_max + 1))
            due.setdefault(at, []).append((step, y))
        elif rng.random() < 0.5:
            gone[step + stream.delay_max] = step
    return pair


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", PLAIN)
def test_fast_equals_plain(name: str, stream: str) -> None:
    walk(name, STREAMS[stream], 1 + list(STREAMS).index(stream))


def test_every_new_expert_has_a_plain_one() -> None:
    assert {*PLAIN, "naive", "paper"} == set(EXPERT_NAMES)


def test_forest_equals_plain_when_its_ring_is_full() -> None:
    """More labels than the ring has slots, trees that take many labels to grow, all replaced."""
    pair = walk("forest", Stream(2, 3, 1250, 3, never=0, corrected=0.05), 3)
    assert isinstance(pair.plain, PlainForest)
    assert pair.plain.labels > PlainForest.RING
    assert pair.plain.finished > PlainForest.TREES


def test_forest_equals_plain_when_rows_of_its_ring_are_erased() -> None:
    """Before and while a tree grows that has the row, and so many that hardly any are left."""
    stream, rng, pair = Stream(2, 2, 0, 0), np.random.default_rng(6), Pair("forest", 2)
    growing = 0
    for step in range(1, 500):
        vectors = random_vectors(rng, stream, 2, step)
        pair.observe(step, vectors)
        pair.learn(step, int(vectors.completed.sum() + rng.normal() > 0))
        assert isinstance(pair.fast, Forest)
        for erased in [step, *range(100 * (step == 150))]:
            if erased < step or rng.random() < 0.3:
                growing += pair.fast.growth.grows
                pair.fast.forget(erased)
                pair.plain.forget(erased)
        pair.compare_state(f"step {step}")
        if step == 400:
            pair.fast = Forest.restore(Config(), pair.fast.snapshot(), 2)
    assert growing > 30


def test_tracker_equals_plain_when_records_have_waited_too_long() -> None:
    """The first labels after 4,110 records, of old ones: the oldest are no longer gone through."""
    stream, rng = Stream(2, 2, 0, 0), np.random.default_rng(4)
    pair = Pair("tracker", 2)
    for step in range(1, 4111):
        pair.observe(step, random_vectors(rng, stream, 2, step))
    for step in (30, 5, 2, 60):
        pair.learn(step, step % 2)
    for step in range(4111, 4260):
        pair.observe(step, random_vectors(rng, stream, 2, step))
        pair.compare_state(f"step {step}")
    assert isinstance(pair.plain, PlainTracker)
    assert pair.plain.live is not None


def test_tracker_equals_plain_when_a_class_is_forgotten() -> None:
    """No label of class 0 for so long that the weights of its components fall to 0."""
    stream, rng = Stream(1, 1, 0, 0), np.random.default_rng(5)
    pair = Pair("tracker", 1)
    for step in range(1, 2300):
        pair.observe(step, random_vectors(rng, stream, 1, step))
        pair.learn(step, 1 if step > 40 else step % 2)
        if step % 20 == 0:
            pair.compare_state(f"step {step}")
    assert isinstance(pair.plain, PlainTracker)
    assert pair.plain.verified.n[:4] == [0.0] * 4


def test_tracker_equals_plain_when_a_light_component_is_placed_anew() -> None:
    """Four far clouds of one class, two of which end: their components go where records are."""
    rng, pair = np.random.default_rng(8), Pair("tracker", 2)
    corners = np.array([[4.0, 4.0], [-4.0, -4.0], [4.0, -4.0], [-4.0, 4.0]])
    placed = 0
    for step in range(1, 700):
        x = corners[step % (4 if step <= 60 else 2)] + 0.4 * rng.normal(size=2)
        single = x.astype(np.float32)
        pair.observe(step, Vectors.of(x, x, single, single, single))
        assert isinstance(pair.plain, PlainTracker)
        before = min(pair.plain.verified.n[4:])
        pair.learn(step, 1)
        placed += 0 < before < 0.9 * min(pair.plain.verified.n[4:])
        if step % 10 == 0:
            pair.compare_state(f"step {step}")
    assert placed >= 2


# --- scales and regression by themselves, where streams do not take them -------------------------


def test_scales_equal_plain_with_latent_scores_far_out() -> None:
    rng = np.random.default_rng(6)
    fast, plain = RunningScales(), PlainScales()
    for step in range(400):
        columns = 3 + step // 100
        fast.grow(columns - len(fast.counts))
        row, latent = 1e3 * rng.standard_cauchy(columns), 3 * rng.normal(size=columns)
        row[rng.random(columns) < 0.4] = np.nan
        row[:1] = 7.0
        ours = np.zeros((3, columns), dtype=np.float32)
        fast.absorb(row, latent, ours)
        close(ours, plain.absorb(row.tolist(), latent), f"row {step}")


@pytest.mark.parametrize("weights", [4, 193, 196])
def test_regression_equals_plain_when_it_is_sure(weights: int) -> None:
    """Log-odds so large that p(1 − p) is below its floor."""
    rng = np.random.default_rng(7)
    mean, variance = rng.normal(size=weights), rng.uniform(0.001, 0.002, size=weights)
    fast = Regression(mean, variance, 0.99)
    plain = PlainRegression(weights, lambda _: (mean, variance), 0.99)
    for step in range(60):
        x = rng.normal(size=weights) * (1000.0 if step > 30 else 1.0)
        y = int(x[1] > 0)
        close(fast.score(x), plain.score(x), f"step {step}")
        fast.learn(x, y)
        plain.drift()
        plain.learn(x, y)
        same_regression(fast, plain, f"step {step}")
