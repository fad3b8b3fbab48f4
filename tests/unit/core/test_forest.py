"""Forest: learns what a line cannot, grows within its budget, restores in the middle of a tree."""

import math

import numpy as np
import pytest

from dtgol_core import trees as module
from dtgol_core.config import Config
from dtgol_core.experts.forest import Forest
from dtgol_core.losses import log_odds
from dtgol_core.state import CORRUPTION_ERRORS, Snapshot, digest
from dtgol_core.trees import (
    BEGAN,
    CREDIT,
    DEPTH,
    DRAWS,
    ERASED,
    FINISHED,
    GROWING,
    LABELS,
    NODES,
    ON_STACK,
    RIDGE,
    RING,
    ROWS,
    SIDE_ROWS_MIN,
    TREES,
    VISITS,
)
from dtgol_core.types import FloatArray, Instance, Vectors


def instance(step: int, row: FloatArray | list[float]) -> Instance:
    """The same values in every scale, but for signs: columns of different scales differ."""
    latent = np.asarray(row, dtype=np.float64)
    single = latent.astype(np.float32)
    return Instance(step, Vectors.of(latent, latent, single, -single), np.zeros(0))


def new(columns: int) -> Forest:
    forest = Forest(Config())
    forest.grow(columns)
    return forest


def exclusive_or(labels: int, columns: int = 2, seed: int = 1) -> list[tuple[Instance, int]]:
    """The label says whether the first two columns have the same sign."""
    chance = np.random.default_rng(seed)
    rows = chance.normal(size=(labels, columns))
    return [(instance(step + 1, row), int(row[0] * row[1] > 0)) for step, row in enumerate(rows)]


def learn(forest: Forest, stream: list[tuple[Instance, int]]) -> Forest:
    for each, label in stream:
        forest.learn(each, label)
    return forest


def digest_of(forest: Forest) -> str:
    values = forest.snapshot()
    arrays = {name: each for name, each in values.items() if isinstance(each, np.ndarray)}
    return digest(Snapshot(arrays, {"own": {k: v for k, v in values.items() if k not in arrays}}))


def test_it_learns_what_no_line_can() -> None:
    stream = exclusive_or(1200)
    forest, wrong, wrong_linear = new(2), [], []
    for each, label in stream:
        wrong.append((forest.score(each) > 0.5) != label)
        u = each.vectors.design
        wrong_linear.append((forest.regression.score(u) > 0.0) != label)
        forest.learn(each, label)
    assert np.mean(wrong[300:]) < 0.12
    assert np.mean(wrong_linear[300:]) > 0.4


def test_draws_are_splitmix64_of_tree_and_counter() -> None:
    def expected(seed: int, counter: int) -> float:
        mask = 2**64 - 1
        v = (seed * 0x2545F4914F6CDD1D + counter + 0x9E3779B97F4A7C15) & mask
        v = ((v ^ (v >> 30)) * 0xBF58476D1CE4E5B9) & mask
        v = ((v ^ (v >> 27)) * 0x94D049BB133111EB) & mask
        return ((v ^ (v >> 31)) >> 11) / 2**53

    draws = [(seed, counter) for seed in (1, 2, 33, 10**12) for counter in (0, 1, 15000)]
    assert [module._uniform(*each) for each in draws] == [expected(*each) for each in draws]
    assert module._uniform(1, 0) == expected(1, 0) != expected(2, 0)


def peeling(labels: int) -> list[tuple[Instance, int]]:
    """Values over many orders of magnitude and labels without sense: deep, lopsided trees."""
    chance = np.random.default_rng(2)
    rows = 5.0 * 10.0 ** -chance.uniform(0, 30, size=(labels, 1))
    return [(instance(k + 1, row), int(chance.integers(2))) for k, row in enumerate(rows)]


@pytest.mark.parametrize("stream", [exclusive_or(2600, 4), peeling(2600)], ids=["xor", "peeling"])
def test_the_rows_of_a_growing_tree_are_not_overwritten(
    stream: list[tuple[Instance, int]],
) -> None:
    forest = new(len(stream[0][0].vectors.latent))
    began, longest = -1, 0
    rows = forest.rows
    for each, label in stream:
        forest.learn(each, label)
        growth = forest.growth
        assert growth.numbers[CREDIT] > -DRAWS * ROWS - ROWS
        if not growth.grows:
            continue
        slots = np.sort(growth.slots[: growth.numbers[module.ROW_COUNT]])
        if growth.numbers[BEGAN] != began:
            began, rows = int(growth.numbers[BEGAN]), forest.rows[:, slots].copy()
        np.testing.assert_array_equal(forest.rows[:, slots], rows)
        longest = max(longest, forest.labels_learnt - began)
    assert forest.finished > TREES
    assert 5 < longest < RING - ROWS


def test_the_largest_tree_fits_into_the_slack_of_the_ring() -> None:
    """Whatever the data: visits of a tree over visits per label."""
    assert math.ceil((ROWS + DEPTH * DRAWS * ROWS) / VISITS) + 1 < RING - ROWS


def test_trees_keep_their_minimum_and_their_sums() -> None:
    """Each leaf has three rows; the sums of a tree that has just been finished are those of its
    rows, the newest label among them."""
    forest, finished = new(3), 0
    for each, label in exclusive_or(700, 3):
        forest.learn(each, label)
        if forest.finished == finished:
            continue
        finished = forest.finished
        tree = (finished - 1) % TREES
        nodes, leaves = forest.growth.nodes, forest.growth.leaves
        assert nodes == 2 * leaves - 1 == forest.trees.nodes[tree] <= NODES
        rows = int(forest.growth.numbers[module.ROW_COUNT])
        assert leaves <= rows // SIDE_ROWS_MIN
        late = range(int(forest.growth.numbers[BEGAN]), forest.labels_learnt)
        expected = forest.growth.residuals[0, :rows].sum()
        for number in late:
            u = np.append(1.0, forest.rows[:, number % RING])
            logit = float(forest.regression.mean @ u)
            expected += forest.labels[number % RING] - 1 / (1 + math.exp(-min(8, max(-8, logit))))
        total = forest.trees.sums[tree, :leaves, 0].sum()
        assert total == pytest.approx(expected, abs=1e-9)
    assert finished > TREES


def test_contributions_and_the_roots_add_up_to_the_answer() -> None:
    forest = learn(new(3), exclusive_or(500, 3))
    asked = instance(501, [0.4, -1.2, 0.3])
    trees = range(min(forest.finished, TREES))
    roots = []
    for tree in trees:
        leaves = (forest.trees.nodes[tree] + 1) // 2
        gradient = forest.trees.sums[tree, :leaves, 0].sum()
        roots.append(gradient / (forest.trees.sums[tree, :leaves, 1].sum() + RIDGE))
    u = asked.vectors.design
    bias = forest.regression.terms(u)[0]
    p = forest.score(asked)
    expected = math.log(p / (1 - p)) - bias - np.mean(roots)
    assert forest.contributions(asked).sum() == pytest.approx(expected, abs=1e-9)


def test_a_corrected_label_is_replaced_in_the_ring_alone() -> None:
    stream = exclusive_or(300)
    forest = learn(new(2), stream)
    asked, before = stream[7][0], digest_of(forest)
    p = forest.score(asked)
    forest.correct(asked.step, stream[7][1])
    forest.correct(10**6, 1)
    assert digest_of(forest) == before
    forest.correct(asked.step, 1 - stream[7][1])
    assert forest.labels[7] == 1 - stream[7][1]
    assert forest.score(asked) == p
    other = learn(new(2), stream)
    for each, label in exclusive_or(100, seed=2):
        for one in (forest, other):
            one.learn(each._replace(step=each.step + 300), label)
    assert forest.score(asked) != other.score(asked), "later trees have seen it"


def test_an_erased_row_is_zero_and_no_later_tree_has_it() -> None:
    forest = learn(new(2), exclusive_or(300))
    forest.forget(10**6)
    before = digest_of(forest)
    forest.forget(8)
    assert digest_of(forest) != before
    assert not forest.rows[:, 7].any()
    assert (forest.labels[7], forest.steps[7]) == (0, ERASED)
    assert not forest.correct(8, 1)
    for step in range(9, 298):
        forest.forget(step)
    began = forest.finished
    for each, label in exclusive_or(40, seed=2):
        forest.learn(each._replace(step=each.step + 300), label)
        if forest.finished > began and forest.growth.grows:
            rows = forest.growth.slots[: forest.growth.numbers[module.ROW_COUNT]]
            assert not set(range(7, 297)) & set(rows.tolist())
    assert forest.finished > began + 10
    assert digest_of(Forest.restore(Config(), forest.snapshot(), 2)) == digest_of(forest)


def test_when_all_rows_are_erased_it_goes_on() -> None:
    forest = learn(new(2), exclusive_or(100))
    for step in range(1, 101):
        forest.forget(step)
    learn(forest, [(each._replace(step=each.step + 100), y) for each, y in exclusive_or(90)])
    assert 0.0 < forest.score(instance(191, [0.5, 0.5])) < 1.0
    assert digest_of(Forest.restore(Config(), forest.snapshot(), 2)) == digest_of(forest)


def test_wrong_labels_that_are_corrected_are_unlearnt_by_new_trees() -> None:
    forest = new(2)
    for each, label in exclusive_or(900):
        forest.learn(each, 1 - label)
        forest.correct(each.step, label)
    tests = exclusive_or(200, seed=3)
    linear = [forest.regression.score(each.vectors.design) for each, _ in tests]
    trees = [log_odds(forest.score(each)) - a for (each, _), a in zip(tests, linear, strict=True)]
    assert np.mean([(t > 0) == label for t, (_, label) in zip(trees, tests, strict=True)]) > 0.8


@pytest.mark.parametrize("columns", [0, 1])
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_for_ever(columns: int, label: int) -> None:
    forest = new(columns)
    chance = np.random.default_rng(4)
    for step in range(1, 400):
        forest.learn(instance(step, chance.normal(size=columns)), label)
    p = forest.score(instance(400, np.zeros(columns)))
    assert (p > 0.95) == bool(label)
    assert (p < 0.05) != bool(label)


def test_no_tree_before_there_are_rows_for_one() -> None:
    forest, stream = new(2), exclusive_or(6)
    for place, (each, label) in enumerate(stream):
        assert forest.finished == 0
        assert not forest.growth.grows
        forest.learn(each, label)
        assert (forest.finished == 1) == (place + 1 >= 2 * SIDE_ROWS_MIN)


def test_columns_may_come_in_the_middle_of_a_tree() -> None:
    forest, growing = new(2), 0
    for place, (each, label) in enumerate(exclusive_or(600)):
        row = each.vectors.latent
        extra = place // 100
        if place % 100 == 0 and place:
            growing += forest.growth.grows
            forest.grow(1)
        forest.learn(instance(each.step, np.append(row, np.ones(extra) * row[0])), label)
        assert 0.0 < forest.score(instance(10**6, np.zeros(2 + extra))) < 1.0
    assert growing
    assert forest.trees.feature.max() >= 3 * 2


# --- snapshots -----------------------------------------------------------------------------------


def test_restored_at_any_label_it_goes_on_to_the_same_bits() -> None:
    forest, restored = new(3), new(3)
    growing = 0
    for place, (each, label) in enumerate(exclusive_or(1150, 3)):
        for one in (forest, restored):
            one.learn(each, label)
        if place < 60 or place % 9 == 0:
            growing += forest.growth.grows
            restored = Forest.restore(Config(), restored.snapshot(), 3)
            assert digest_of(forest) == digest_of(restored)
    assert growing > 50
    assert forest.score(each) == restored.score(each)
    assert forest.contributions(each).tolist() == restored.contributions(each).tolist()


def test_state_is_bounded_in_bytes() -> None:
    forest = learn(new(16), exclusive_or(1500, 16))
    values = forest.snapshot().values()
    held = [v for part in (forest, forest.trees, forest.growth) for v in vars(part).values()]
    assert sum(each.nbytes for each in values if isinstance(each, np.ndarray)) < 450_000
    assert sum(each.nbytes for each in held if isinstance(each, np.ndarray)) < 570_000


def damaged_by_one(
    snapshot: dict[str, object], name: str, chance: np.random.Generator
) -> dict[str, object]:
    """The snapshot with one number of one value changed."""
    value = snapshot[name]
    if not isinstance(value, np.ndarray):
        return {**snapshot, name: chance.choice([-1, 5, 10**9]).item()}
    changed = value.copy()
    if changed.size:
        changed.flat[int(chance.integers(changed.size))] = chance.choice([-2, -1, 0, 1, 40, 900])
    return {**snapshot, name: changed}


@pytest.mark.parametrize("labels", [9, 61, 1100])
def test_a_damaged_snapshot_is_refused_or_harmless(labels: int) -> None:
    """Compiled loops check no bounds: run without compiling, an index out of range would raise."""
    stream = exclusive_or(labels + 70, 3)
    forest = learn(new(3), stream[:labels])
    while not forest.growth.grows:
        forest.learn(*stream[forest.labels_learnt])
    assert forest.growth.numbers[ON_STACK]
    snapshot, start = forest.snapshot(), forest.labels_learnt
    chance, refused, tried = np.random.default_rng(5), 0, 0
    with pytest.MonkeyPatch.context() as patch:
        for name, each in vars(module).items():
            own = getattr(each, "__module__", "") == module.__name__
            if own and hasattr(each, "py_func") and name != "_uniform":  # no arrays, and overflows
                patch.setattr(module, name, each.py_func)
        for name in snapshot:
            for _ in range(8):
                damaged = damaged_by_one(snapshot, name, chance)
                try:
                    again = Forest.restore(Config(), damaged, 3)
                except CORRUPTION_ERRORS:
                    refused += 1
                    continue
                tried += 1
                if tried % (2 if labels < 100 else 12) == 0:
                    learn(again, stream[start : start + 3])
                again.contributions(stream[0][0])
                again.score(stream[0][0])
    assert refused > 30
    assert tried > 30


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("trees/feature", 0, 9),
        ("trees/child", 0, 0),
        ("trees/child", 0, 1000),
        ("trees/nodes", 0, 700),
        ("growth/slots", 0, RING),
        ("growth/slots", 0, -1),
        ("growth/stack", 1, ROWS + 1),
        ("growth/stack", 2, NODES),
        ("growth/stack", 3, DEPTH + 1),
        ("growth/numbers", ON_STACK, DEPTH + 2),
        ("growth/numbers", BEGAN, 0),
        ("growth/numbers", CREDIT, 10**9),
        ("growth/numbers", LABELS, -1),
        ("growth/numbers", FINISHED, 2**62),
    ],
)
def test_indices_out_of_range_are_refused(name: str, place: int, value: int) -> None:
    forest = learn(new(3), exclusive_or(1000, 3))
    assert forest.growth.grows
    snapshot = forest.snapshot()
    snapshot[name].flat[place] = value
    with pytest.raises(CORRUPTION_ERRORS):
        Forest.restore(Config(), snapshot, 3)


def test_the_growing_tree_is_checked_too() -> None:
    forest = learn(new(3), exclusive_or(1000, 3))
    assert forest.growth.nodes > 1
    forest.trees.child[GROWING, 0] = 2
    with pytest.raises(CORRUPTION_ERRORS):
        Forest.restore(Config(), forest.snapshot(), 3)
