"""Every room by every check: restore, looking, aliasing, growing, bounded memory.

A `Room` here is a thin handle on one room of the core: the k-th change it is put through depends
on k alone, so two handles that went through the same changes must hold the same bits.
"""

import math
from typing import Any, Protocol

import numpy as np
import pytest

from dtgol_core.buffer import UNVERIFIED, FineBuffer
from dtgol_core.columns import Columns, Reading
from dtgol_core.config import (
    Config,
    CopulaConfig,
    DelayConfig,
    EnsembleConfig,
    GraphConfig,
    SoftLabelsConfig,
    TracksConfig,
)
from dtgol_core.copula import Copula
from dtgol_core.delay import DelayTable, Ticket
from dtgol_core.ensemble import Ensemble
from dtgol_core.graph import Graph
from dtgol_core.learner import Learner
from dtgol_core.marginals import Marginals
from dtgol_core.scoring import Scoreboard
from dtgol_core.softlabels import SoftLabels
from dtgol_core.state import decode, encode, gather, part
from dtgol_core.tracks import Tracks
from dtgol_core.types import FloatArray, Value
from tests.support.views import digest_of, sizes_beyond_bounds

Handed = list[Any]
"""What a change was given: arrays and dicts that the caller may overwrite afterwards."""


class Room(Protocol):
    """What the checks need of a room."""

    width: int

    def change(self, k: int) -> Handed: ...

    def look(self) -> object: ...

    def grow(self) -> None: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restored(self, snapshot: dict[str, Any]) -> "Room": ...

    def too_large(self) -> object: ...


def vector(k: int, width: int) -> FloatArray:
    """The k-th vector: small whole steps, so that equal ones come back."""
    return np.array([math.sin((k % 17 + 1) * (column + 1)) for column in range(width)])


class ColumnsRoom:
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
        if not isinstance(reading, Reading):
            return [record]
        self.columns.absorb(reading)
        return [record, reading.row]

    def look(self) -> object:
        return [repr(self.columns.read(self.record(k))) for k in range(60)], self.columns.width

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return {"features": self.columns.snapshot()}

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = ColumnsRoom()
        room.width = self.width
        room.columns = Columns.restore(self.config, snapshot["features"])
        return room

    def too_large(self) -> object:
        features = self.columns.features.values()
        return self.columns.width > 12 or any(len(each.seen) > 14 for each in features)


class DelayRoom:
    width = 2
    config = DelayConfig(
        expire_steps=300, expire_ms=200_000, pending_max=40, early_max=5, settled_max=20
    )

    def __init__(self) -> None:
        self.table = DelayTable(self.config)

    def change(self, k: int) -> Handed:
        self.table.settle_due(k + 1)
        self.table.expire(k + 1, 1000 * k)
        self.table.give_up(k + 1)
        latent, original = vector(k, self.width), vector(k + 1, self.width)
        time = None if k % 3 == 0 else 1000 * k
        self.table.open(Ticket(f"id {k}", k + 1, latent, original, 0.4, 0.6, time))
        if k % 4:
            self.table.file(f"id {k - k % 7}", k % 2, k + 1)
        if k % 9 == 0:
            self.table.file(f"early {k}", 1, k + 1)
        return [latent, original]

    def look(self) -> object:
        return len(self.table), self.table.held, [self.table.knows(f"id {k}") for k in range(500)]

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.table.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = DelayRoom()
        room.width = self.width
        room.table = DelayTable.restore(self.config, snapshot)
        return room

    def too_large(self) -> object:
        table = self.table
        return (
            len(table) > 40
            or table.held > 5
            or len(table._settled) > 20
            or len(table._settled_order) > 20
            or len(table._blocks) > 4
            or len(table._labels) > len(table)
            or len(table._queue) > len(table)
            or len(table._by_time) > 2 * 40 + 256
        )


class MarginalsRoom:
    width = 3

    def __init__(self) -> None:
        self.marginals = Marginals(window=10)
        self.marginals.grow(3, [-1, -1, -1])

    def change(self, k: int) -> Handed:
        row = np.where(vector(k, self.width) > 0.8, np.nan, vector(k, self.width).round(1))
        self.marginals.absorb(row)
        return [row]

    def look(self) -> object:
        kinds = np.arange(self.width, dtype=np.uint8) % 2
        row = self.marginals.rows[:, 0].copy()
        scores = self.marginals.score(row, kinds)
        return [each.tobytes() for each in (scores.latent, scores.spread, scores.original)]

    def grow(self) -> None:
        self.marginals.grow(2, [0, -1])
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.marginals.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = MarginalsRoom()
        room.width = self.width
        room.marginals = Marginals.restore(10, snapshot)
        return room

    def too_large(self) -> object:
        return self.marginals.rows.shape != (self.width, 10)


class CopulaRoom:
    width = 3
    config = CopulaConfig(window=10)

    def __init__(self) -> None:
        self.copula = Copula(self.config)
        self.copula.grow(3)
        self.changes = 0

    def change(self, k: int) -> Handed:
        missing = (vector(k, self.width) > 0.5) & (np.arange(self.width) > 0)
        scores = np.where(missing, np.nan, vector(k, self.width))
        spread = np.abs(vector(k + 1, self.width)) / 4
        latent = self.copula.absorb(scores, spread, k + 1)
        assert not np.isnan(latent).any()
        assert (np.isnan(scores) == missing).all()
        return [scores, spread, latent]

    def look(self) -> object:
        return self.copula.correlation.tobytes()

    def grow(self) -> None:
        self.copula.grow(2)
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.copula.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = CopulaRoom()
        room.width = self.width
        room.copula = Copula.restore(self.config, snapshot)
        return room

    def too_large(self) -> object:
        return self.copula.correlation.shape != (self.width, self.width)


class BufferRoom:
    """The fine buffer, and the graph over it."""

    width = 3
    config = GraphConfig(unverified=9, verified=5)

    def __init__(self) -> None:
        self.buffer = FineBuffer(self.config)
        self.buffer.grow(3)
        self.graph = Graph(self.config)

    def leave(self, slots: list[int]) -> None:
        for slot in slots:
            self.graph.evict(slot)
            self.buffer.leave(slot)

    def change(self, k: int) -> Handed:
        old = self.buffer.find(k - 3)
        if k % 2 and old is not None and self.buffer.label[old] == UNVERIFIED:
            self.leave(self.buffer.verify(k - 3, old, k % 4 // 2))
        latent, original = vector(k, self.width), vector(k + 2, self.width)
        slot = self.buffer.enter(k, latent, original, UNVERIFIED)
        self.graph.insert(slot, self.buffer.latent, self.buffer.steps)
        self.graph.update(self.buffer.steps)
        self.leave(self.buffer.join_window(slot))
        return [latent, original]

    def look(self) -> object:
        found = [self.buffer.find(step) for step in range(500)]
        return found, self.buffer.admits(3), len(self.buffer), self.graph.nodes().tolist()

    def grow(self) -> None:
        self.buffer.grow(2)
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        graph = {f"graph_{name}": value for name, value in self.graph.snapshot().items()}
        return {**self.buffer.snapshot(), **graph}

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = BufferRoom()
        room.width = self.width
        graph = {name.removeprefix("graph_"): value for name, value in snapshot.items()}
        room.buffer = FineBuffer.restore(self.config, snapshot)
        room.graph = Graph.restore(self.config, graph, room.buffer.latent)
        return room

    def too_large(self) -> object:
        slots = len(self.buffer.steps)
        return (
            slots > 9 + 5 + 2
            or len(self.buffer) > 9 + 5
            or len(self.buffer.window) > 9
            or len(self.buffer.verified) > 5
            or self.graph.distance.shape != (slots, slots)
            or self.graph.size != len(self.buffer)
        )


class SoftLabelsRoom:
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

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = SoftLabelsRoom()
        room.width = self.width
        room.softlabels = SoftLabels.restore(SoftLabelsConfig(), snapshot)
        return room

    def too_large(self) -> object:
        return self.softlabels.prototypes.shape != (2,)


class TracksRoom:
    width = 3
    config = TracksConfig(l2=0.01)

    def __init__(self) -> None:
        self.tracks = Tracks(self.config)
        self.tracks.grow(3)

    def change(self, k: int) -> Handed:
        given = vector(k, self.width)
        self.tracks.learn(given, k % 2, k + 1)
        assert given.tobytes() == vector(k, self.width).tobytes()
        verified = np.stack([vector(k + j, self.width) for j in range(3)])
        label, steps = np.array([1, -1, 0], dtype=np.int8), np.arange(3)
        self.tracks.rehearse(verified, label, steps)
        return [given, verified, steps]

    def look(self) -> object:
        vectors = np.stack([vector(k, self.width) for k in range(4)])
        slots = np.array([3, 1], dtype=np.int64)
        branch = self.tracks.branch(vectors, slots, np.array([0.1, 0.9, 0.5, 0.3]))
        score = self.tracks.answer(vectors[0], branch)
        seen = branch.tobytes(), score
        branch.fill(7.0)  # thrown away: must not be the persistent weights
        return seen

    def grow(self) -> None:
        self.tracks.grow(2)
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return self.tracks.snapshot()

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = TracksRoom()
        room.width = self.width
        room.tracks = Tracks.restore(self.config, snapshot)
        return room

    def too_large(self) -> object:
        return any(
            weights.shape != (self.width + 1,)
            for weights in (self.tracks.weights, self.tracks.anchor)
        )


class EnsembleRoom:
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

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = EnsembleRoom()
        room.width = self.width
        room.ensemble = Ensemble.restore(EnsembleConfig(), snapshot)
        return room

    def too_large(self) -> object:
        return len(vars(self.ensemble)) > 4


class ScoringRoom:
    width = 0

    def __init__(self) -> None:
        self.board = Scoreboard(window_rows=20, windows_max=3)

    def change(self, k: int) -> Handed:
        self.board.judge(abs(math.sin(k)), abs(math.cos(k)), k % 2, k + 1, k % 30)
        return []

    def look(self) -> object:
        return self.board.summary()

    def grow(self) -> None:
        self.width += 2

    def snapshot(self) -> dict[str, Any]:
        return {"board": self.board.snapshot()}

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = ScoringRoom()
        room.width = self.width
        room.board = Scoreboard.restore(snapshot["board"])
        return room

    def too_large(self) -> object:
        return len(self.board._windows) > 3


class LearnerRoom:
    """All rooms together."""

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

    def restored(self, snapshot: dict[str, Any]) -> Room:
        room = LearnerRoom()
        room.width = self.width
        room.learner = Learner.restore(self.config, decode(snapshot["blob"].tobytes()))
        return room

    def too_large(self) -> object:
        return sizes_beyond_bounds(self.learner)


ROOMS: dict[str, type[Room]] = {
    "columns": ColumnsRoom,
    "delay": DelayRoom,
    "marginals": MarginalsRoom,
    "copula": CopulaRoom,
    "buffer and graph": BufferRoom,
    "softlabels": SoftLabelsRoom,
    "tracks": TracksRoom,
    "ensemble": EnsembleRoom,
    "scoring": ScoringRoom,
    "learner": LearnerRoom,
}
every_room = pytest.mark.parametrize("name", ROOMS)


def bits(room: Room) -> bytes:
    return encode(gather({"room": room.snapshot()}))


def through_bytes(room: Room) -> Room:
    return room.restored(part(decode(bits(room)), "room"))


@every_room
def test_restored_equals_the_original_and_goes_on_alike(name: str) -> None:
    steady, crashing = ROOMS[name](), ROOMS[name]()
    for k in range(60):
        crashing = through_bytes(crashing)
        assert crashing.look() == steady.look(), k
        steady.change(k)
        crashing.change(k)
        assert bits(crashing) == bits(steady), k


@every_room
def test_looking_changes_nothing(name: str) -> None:
    room = ROOMS[name]()
    for k in range(40):
        before = bits(room)
        first, second = room.look(), room.look()
        assert first == second
        assert bits(room) == before
        room.change(k)
        assert bits(room) != before or name in ("columns", "softlabels"), "nothing was changed"


@every_room
def test_what_was_handed_in_may_be_overwritten(name: str) -> None:
    kept, spoilt = ROOMS[name](), ROOMS[name]()
    for k in range(40):
        kept.change(k)
        for given in spoilt.change(k):
            if isinstance(given, np.ndarray):
                given.fill(1e9)
            else:
                given.clear()
        assert bits(spoilt) == bits(kept), k


@every_room
def test_snapshots_are_copies(name: str) -> None:
    room = ROOMS[name]()
    for k in range(30):
        room.change(k)
    before = bits(room)
    first = room.snapshot()
    restored = room.restored(first)
    room.change(30)
    assert encode(gather({"room": first})) == before
    restored.change(30)
    assert encode(gather({"room": first})) == before
    assert bits(restored) == bits(room)


@every_room
def test_growing_keeps_what_is_known(name: str) -> None:
    """Known numbers stay at the front; a room that grew goes on, crashed or not."""
    room = ROOMS[name]()
    k = 0
    for _ in range(4):
        for _ in range(6):
            room.change(k)
            k += 1
        before = room.snapshot()
        room.grow()
        after = room.snapshot()
        for key, old in before.items():
            if isinstance(old, np.ndarray):
                front = after[key][tuple(slice(extent) for extent in old.shape)]
                np.testing.assert_array_equal(front, old)
        twin = through_bytes(room)
        room.change(k)
        twin.change(k)
        assert bits(twin) == bits(room)
        k += 1


@every_room
def test_memory_is_bounded(name: str) -> None:
    room = ROOMS[name]()
    for k in range(500):
        room.change(k)
        assert not room.too_large(), k


def test_bounds_are_watched() -> None:
    """The check of the learner's bounds can fail."""
    room = LearnerRoom()
    for k in range(50):
        room.change(k)
    before = digest_of(room.learner)
    room.learner.buffer.verified += [(1000 + k, 0) for k in range(6)]
    assert set(sizes_beyond_bounds(room.learner)) == {"verified"}
    del room.learner.buffer.verified[-6:]
    assert digest_of(room.learner) == before
