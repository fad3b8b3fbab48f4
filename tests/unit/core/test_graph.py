"""The tree of density ascents: cutoff, densities, parents, ties and amortisation."""

import math

import numpy as np
import pytest

from dtgol_core.config import GraphConfig
from dtgol_core.graph import REFRESH, SINCE, Graph
from dtgol_core.types import FloatArray, IntArray
from tests.support.views import tree_of


class Nodes:
    """A graph with its vectors; the step of a node is its slot plus `first`."""

    def __init__(
        self, points: list[list[float]], steps: list[int] | None = None, **settings: float | None
    ) -> None:
        config = {"percentile": 2.0, "refresh_steps": 1, **settings}
        self.graph = Graph(GraphConfig(**config))  # type: ignore[arg-type]
        self.rows: FloatArray = np.array(points, dtype=np.float64)
        self.latent = self.rows, np.ascontiguousarray(self.rows.T)
        numbers = range(1, len(points) + 1) if steps is None else steps
        self.steps: IntArray = np.array(numbers, dtype=np.int64)

    def insert(self, *slots: int) -> None:
        for slot in slots:
            self.graph.insert(slot, self.latent)

    def update(self) -> dict[int, int | None]:
        """Parents by step."""
        self.graph.update(self.steps, self.latent)
        return tree_of(self.graph, self.steps).parents

    def all_at_once(self) -> dict[int, int | None]:
        self.insert(*range(len(self.rows)))
        return self.update()


def test_single_node_is_the_root() -> None:
    nodes = Nodes([[0.0]])
    assert nodes.all_at_once() == {1: None}
    assert nodes.graph.cutoff == 1.0
    assert nodes.graph.density[0] == 0.0


def test_parent_is_the_nearest_of_higher_density() -> None:
    """Three together, one apart, one far: everyone climbs towards the middle of the three."""
    nodes = Nodes([[0.0], [1.0], [2.0], [4.0], [9.0]], percentile=0)
    assert nodes.all_at_once() == {1: 2, 2: None, 3: 2, 4: 3, 5: 4}


def test_density_is_the_sum_of_kernels_over_the_others() -> None:
    nodes = Nodes([[0.0], [1.0], [3.0]], percentile=50)
    nodes.all_at_once()
    assert nodes.graph.cutoff == 2.0  # the median of 1, 2, 3
    kernels = [math.exp(-(d**2) / 4) for d in (1, 3, 2)]
    expected = [kernels[0] + kernels[1], kernels[0] + kernels[2], kernels[1] + kernels[2]]
    assert nodes.graph.density.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("percentile", [0, 2, 10, 33.3, 50, 99, 100])
def test_cutoff_is_numpys_percentile_of_all_pairs(percentile: float) -> None:
    rng = np.random.default_rng(2)
    points = rng.normal(size=(25, 3))
    nodes = Nodes(points.tolist(), percentile=percentile)
    nodes.all_at_once()
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    pairs = distance[np.triu_indices(25, 1)]
    assert nodes.graph.cutoff == pytest.approx(float(np.percentile(pairs, percentile)), abs=1e-12)


def test_cutoff_of_zero_becomes_the_smallest_positive_distance() -> None:
    nodes = Nodes([[0.0]] * 5 + [[3.0], [10.0]])
    nodes.all_at_once()
    assert nodes.graph.cutoff == 3.0


@pytest.mark.parametrize("percentile", [1e-155, 1e-157, 1e-158, 1e-300])
def test_cutoff_whose_square_vanishes_is_taken_for_zero(percentile: float) -> None:
    """Regression: with such a percentile 0/0, or 0 by infinity, made densities NaN."""
    nodes = Nodes([[0.0], [0.0], [3.0], [7.0]], percentile=percentile)
    assert nodes.all_at_once() == {1: None, 2: 1, 3: 1, 4: 3}
    assert nodes.graph.cutoff == 3.0
    assert np.isfinite(nodes.graph.density).all()


def test_cutoff_of_equal_points_is_one() -> None:
    nodes = Nodes([[2.0]] * 4)
    nodes.all_at_once()
    assert nodes.graph.cutoff == 1.0
    assert nodes.graph.density.tolist() == [3.0] * 4


def test_distance_below_a_billionth_is_none() -> None:
    nodes = Nodes([[0.0], [0.9e-9], [1.1e-9 + 0.9e-9]])
    nodes.all_at_once()
    parents, (_, nearest) = nodes.graph.parent, nodes.graph.slots
    assert parents.tolist() == [-1, 0, 1]
    assert nearest[1] == 0.0
    assert nearest[2] == pytest.approx(1.1e-9)


def test_of_equal_densities_the_older_is_higher() -> None:
    nodes = Nodes([[0.0], [1.0]], steps=[7, 3])
    assert nodes.all_at_once() == {3: None, 7: 3}


def test_densities_that_differ_by_less_than_a_billionth_are_equal() -> None:
    nodes = Nodes([[0.0], [5.0]], steps=[7, 3])
    nodes.all_at_once()
    nodes.graph.density[:2] = 1.0 + 1e-12, 1.0
    nodes.graph.numbers[REFRESH] = 1000  # keep these densities
    assert nodes.update() == {3: None, 7: 3}
    nodes.graph.density[:2] = 1.0 + 2e-9, 1.0
    assert nodes.update() == {3: 7, 7: None}


def test_of_equal_distances_the_older_is_nearer() -> None:
    """A square and its centre: each corner's neighbours are equally far."""
    for steps in ([5, 1, 2, 3], [5, 3, 2, 1], [5, 2, 3, 1]):
        # 5 stands between 1, 2 and 3, all at distance 1, and is less dense than each of them.
        nodes = Nodes([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], steps=steps)
        nodes.insert(0, 1, 2, 3)
        nodes.graph.numbers[[REFRESH, SINCE]] = 1000, 5
        nodes.graph.density[:] = [0.1, 3.0, 3.0, 3.0]
        assert nodes.update()[5] == 1


def test_parents_do_not_depend_on_the_order_of_entering() -> None:
    rng = np.random.default_rng(8)
    points = rng.integers(0, 4, size=(20, 2)).astype(float).tolist()
    reference = Nodes(points).all_at_once()
    for _ in range(5):
        nodes = Nodes(points)
        for slot in rng.permutation(20).tolist():
            nodes.insert(slot)
            nodes.update()
        assert nodes.update() == reference


def test_children_of_an_evicted_node_find_another_parent() -> None:
    nodes = Nodes([[0.0], [1.0], [2.0], [3.5]], percentile=50)
    assert nodes.all_at_once()[4] == 3
    nodes.graph.evict(2, nodes.latent)
    left = nodes.update()
    assert set(left) == {1, 2, 4}
    fresh = Nodes([[0.0], [1.0], [3.5]], steps=[1, 2, 4], percentile=50)
    assert left == fresh.all_at_once()


def test_between_refreshes_the_cutoff_is_kept_and_kernels_come_and_go() -> None:
    nodes = Nodes([[0.0], [1.0], [2.5], [4.0]], refresh_steps=100, percentile=50)
    nodes.insert(0, 1, 2)
    nodes.update()
    cutoff = nodes.graph.cutoff
    nodes.insert(3)
    nodes.update()
    assert nodes.graph.cutoff == cutoff
    assert nodes.graph.since == 1
    kernels = [math.exp(-(d**2) / cutoff**2) for d in (4.0, 3.0, 1.5)]
    assert nodes.graph.density[3] == pytest.approx(sum(kernels))
    before = nodes.graph.density[0]
    nodes.graph.evict(3, nodes.latent)
    assert nodes.graph.density[0] == pytest.approx(before - kernels[0])


@pytest.mark.parametrize(("refresh_steps", "expected"), [(1, 1), (3, 3), (None, 2)])
def test_refresh_comes_after_so_many_steps(refresh_steps: int | None, expected: int) -> None:
    """Auto is an eighth of the nodes: 2 of 20."""
    rng = np.random.default_rng(0)
    nodes = Nodes(rng.normal(size=(20, 2)).tolist(), refresh_steps=refresh_steps)
    nodes.all_at_once()
    assert nodes.graph.since == 0
    rounds = []
    for _ in range(6):
        nodes.update()
        rounds.append(nodes.graph.since)
    assert rounds == [(k + 1) % expected for k in range(6)]


def test_amortised_densities_are_near_the_exact_ones() -> None:
    rng = np.random.default_rng(4)
    points = rng.normal(size=(60, 3)).tolist()
    nodes = Nodes(points, refresh_steps=1_000_000)
    nodes.insert(*range(30))
    nodes.update()
    for slot in range(30, 60):
        nodes.graph.evict(slot - 30, nodes.latent)
        nodes.insert(slot)
        nodes.update()
    squares = ((nodes.rows[30:, None] - nodes.rows[None, 30:]) ** 2).sum(axis=2)
    exact = np.exp(-squares / nodes.graph.cutoff**2).sum(axis=1) - 1
    np.testing.assert_allclose(nodes.graph.density[30:], exact, atol=1e-12)


def test_restored_graph_keeps_its_bits_and_does_not_refresh() -> None:
    rng = np.random.default_rng(4)
    nodes = Nodes(rng.normal(size=(12, 2)).tolist(), refresh_steps=50)
    nodes.insert(*range(9))
    nodes.update()
    nodes.insert(9)
    nodes.update()
    again = Graph.restore(GraphConfig(refresh_steps=50), nodes.graph.snapshot(), nodes.rows)
    assert again.since == 1
    assert again.cutoff == nodes.graph.cutoff
    for graph in (again, nodes.graph):
        graph.insert(10, nodes.latent)
        graph.update(nodes.steps, nodes.latent)
    assert again.density.tobytes() == nodes.graph.density.tobytes()
    assert again.nodes().tolist() == nodes.graph.nodes().tolist()
    assert again.parent.tolist() == nodes.graph.parent.tolist()
