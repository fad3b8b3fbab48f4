"""Paper: snapshots taken at any time are those of a tree, and what is none is refused."""

from collections.abc import Iterator

import numpy as np
import pytest

from dtgol_core import buffer, ensemble, geometry, graph, logistic, softlabels, tracks
from dtgol_core.config import Config
from dtgol_core.experts import paper as module
from dtgol_core.experts.paper import Paper
from dtgol_core.graph import ROOT, UNKNOWN, Graph
from dtgol_core.state import CORRUPTION_ERRORS, combine, digest
from dtgol_core.types import Instance, Vectors

COLUMNS = 3
CONFIG = Config.read({"graph": {"unverified": 8, "verified": 5, "refresh_steps": 3}})
LOOPS = (buffer, ensemble, geometry, graph, logistic, softlabels, tracks, module)


def new() -> Paper:
    paper = Paper(CONFIG)
    paper.grow(COLUMNS)
    return paper


def records(count: int) -> Iterator[Instance]:
    """Records with many equal ones among them, so that densities and distances tie."""
    chance = np.random.default_rng(2)
    for step in range(1, count + 1):
        row = chance.normal(size=COLUMNS)
        row = np.round(row) if step % 3 else row
        yield Instance(step, Vectors.of(row, -row), np.zeros(2))


def run(paper: Paper, stream: list[Instance], delay: int = 12) -> Iterator[str]:
    """Records, labels in another order, instances that leave; after each what it was."""
    chance = np.random.default_rng(3)
    for place, instance in enumerate(stream):
        paper.observe(instance)
        yield "observe"
        for _ in range(int(chance.integers(3))):
            old = stream[max(0, place - int(chance.integers(delay)))]
            if chance.random() < 0.7:
                known = paper.geometry.buffer.find(old.step)
                if known is None or paper.geometry.buffer.label[known] < 0:
                    paper.learn(old, int(chance.integers(2)))
                    yield "learn"
            else:
                paper.forget(old.step)
                yield "forget"


def assert_is_a_forest(tree: Graph, when: str) -> None:
    """What `Graph.restore` demands: no node twice, every parent before its children."""
    order = tree.nodes().tolist()
    assert len(set(order)) == len(order), when
    places = {slot: place for place, slot in enumerate(order)}
    for slot, above in enumerate(tree.parent.tolist()):
        if slot not in places:
            assert above == UNKNOWN, when
        elif above == ROOT:
            assert places[slot] == 0, when
        elif above != UNKNOWN:
            assert places[above] < places[slot], when


def test_the_parents_are_those_of_a_forest_after_every_call() -> None:
    """Also between two updates, when nodes have left or have come back verified."""
    paper, seen = new(), set()
    for count, when in enumerate(run(paper, list(records(1500)))):
        assert_is_a_forest(paper.geometry.graph, f"{when}, call {count}")
        if count % 7 == 0:
            again = Paper.restore(CONFIG, paper.snapshot(), COLUMNS)
            assert digest(combine({"paper": again.snapshot()})) == digest(
                combine({"paper": paper.snapshot()})
            )
        parents = paper.geometry.graph.parent[paper.geometry.graph.nodes()]
        seen.add((when, ROOT in parents, UNKNOWN in parents))
    assert seen >= {("learn", True, True), ("forget", False, True), ("observe", True, False)}


@pytest.mark.parametrize(
    "damage",
    ["free slot", "later node", "itself", "second root", "root of none", "node twice", "shape"],
)
def test_parents_that_make_no_tree_are_refused(damage: str) -> None:
    paper = new()
    list(run(paper, list(records(40))))
    paper.observe(list(records(41))[-1])
    kept = paper.snapshot()
    order, parent = kept["geometry/graph/order"], kept["geometry/graph/parent"]
    free = np.setdiff1d(np.arange(len(parent)), order)
    Graph.restore(CONFIG.graph, paper.geometry.graph.snapshot(), paper.geometry.buffer.latent)
    if damage == "free slot":
        parent[order[3]] = free[0]
    elif damage == "later node":
        parent[order[3]] = order[4]
    elif damage == "itself":
        parent[order[3]] = order[3]
    elif damage == "second root":
        parent[order[3]] = ROOT
    elif damage == "root of none":
        parent[free[0]] = ROOT
    elif damage == "node twice":
        order[3] = order[4]
    else:
        kept["geometry/graph/parent"] = parent[:-1]
    snapshot = {
        name.removeprefix("geometry/graph/"): each
        for name, each in kept.items()
        if name.startswith("geometry/graph/")
    }
    with pytest.raises(CORRUPTION_ERRORS):
        Graph.restore(CONFIG.graph, snapshot, paper.geometry.buffer.latent)
    with pytest.raises(CORRUPTION_ERRORS):
        Paper.restore(CONFIG, kept, COLUMNS)
