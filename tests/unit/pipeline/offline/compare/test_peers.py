"""Learners from elsewhere: they learn when a label comes, and not before."""

import pytest

from pipeline.offline.compare.peers import LastLabel


@pytest.mark.parametrize(
    "maker", ["logistic_regression", "adaptive_tree", "adaptive_forest", "random_patches"]
)
def test_a_river_peer_changes_only_when_a_label_comes(maker: str) -> None:
    river_peers = pytest.importorskip("pipeline.offline.compare.river_peers")
    peer = getattr(river_peers, maker)(1)

    def says() -> dict[int, float]:
        return dict(peer._model.predict_proba_one({"x": 1.0}))

    for number in range(20):
        peer.observe(str(number), {"x": float(number % 2), "y": None})
    untaught = says()
    for number in range(20, 40):
        peer.observe(str(number), {"x": float(number % 2)})
    assert says() == untaught
    taught: list[tuple[dict[str, float], int]] = []
    learn_one = peer._model.learn_one

    def spy(x: dict[str, float], y: int) -> None:
        taught.append((x, y))
        learn_one(x, y)

    peer._model.learn_one = spy
    kept = dict(peer._waiting["1"])
    peer.learn("1", 1)
    assert taught == [(kept, 1)]
    assert says() != untaught
    assert says()[1] > 0.5


def test_the_last_label_is_the_last_that_has_arrived() -> None:
    peer = LastLabel()
    assert peer.observe("a", {"x": 1.0}).p == 0.5
    peer.observe("b", {"x": 1.0})
    peer.learn("a", 1)
    assert peer.observe("c", {"x": None}).p == 1.0


def test_boosting_is_trained_when_a_tenth_more_labels_have_come() -> None:
    retrained = pytest.importorskip("pipeline.offline.compare.retrained")
    peer = retrained.RetrainedBoosting(1)
    trained = []
    for number in range(300):
        peer.observe(str(number), {"x": float(number % 2), "ward": "AB"[number % 2], "z": None})
        peer.learn(str(number), number % 2)
        if peer._trained_at == number + 1:
            trained.append(number + 1)
    assert trained[:4] == [20, 22, 24, 26]
    assert trained[-2:] == [264, 293]
    assert peer.observe("one", {"x": 1.0}).p > 0.8
    assert peer.observe("new column", {"x": 0.0, "late": 3.0}).p < 0.2


def test_boosting_answers_a_half_until_both_classes_are_known() -> None:
    retrained = pytest.importorskip("pipeline.offline.compare.retrained")
    peer = retrained.RetrainedBoosting(1)
    for number in range(30):
        assert peer.observe(str(number), {"x": 1.0}).p == 0.5
        peer.learn(str(number), 1)
