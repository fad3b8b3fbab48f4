"""The id memory: bounds, chunks, and errors in the safe direction alone."""

import random

import pytest

from dtgol_core import ids as ids_module
from dtgol_core.ids import CHUNK_IDS, IdMemory, Settled, id_hash
from dtgol_core.state import SnapshotError, combine, decode, encode, section


def filled(count: int, count_max: int = 10**6, age_max_ms: int | None = None) -> IdMemory:
    memory = IdMemory(count_max, age_max_ms)
    for number in range(count):
        memory.remember(id_hash(f"{number}"), number % 5, number, None)
    return memory


def restored(memory: IdMemory, count_max: int = 10**6) -> IdMemory:
    blob = encode(combine({"ids": memory.snapshot()}))
    return IdMemory.restore(count_max, None, section(decode(blob), "ids"))


@pytest.mark.parametrize("count", [0, 1, CHUNK_IDS - 1, CHUNK_IDS, CHUNK_IDS + 1, 5 * CHUNK_IDS])
def test_every_id_is_found_again_also_after_a_snapshot(count: int) -> None:
    memory = filled(count)
    for each in (memory, restored(memory), memory.copy()):
        assert len(each) == count
        assert all(each.find(id_hash(f"{n}")) == Settled(n % 5, n) for n in range(0, count, 97))
        assert each.find(id_hash("never")) is None
        assert encode(combine({"ids": each.snapshot()})) == encode(
            combine({"ids": memory.snapshot()})
        )


def test_beyond_the_count_the_oldest_go_one_by_one() -> None:
    memory = IdMemory(count_max=CHUNK_IDS + 10, age_max_ms=None)
    for number in range(3 * CHUNK_IDS):
        memory.remember(id_hash(f"{number}"), 1, number, None)
        assert len(memory) <= CHUNK_IDS + 10
    first = 2 * CHUNK_IDS - 10
    assert memory.find(id_hash(f"{first - 1}")) is None
    assert memory.find(id_hash(f"{first}")) == Settled(1, first)
    assert len(memory.snapshot()) == 2 + 2 * 4, "chunks whose ids are all forgotten are gone"


def test_beyond_the_age_whole_chunks_go_never_too_early() -> None:
    memory = IdMemory(count_max=10**6, age_max_ms=1000)
    for number in range(2 * CHUNK_IDS):
        memory.remember(id_hash(f"{number}"), 1, number, clock_ms=number)
    assert memory.find(id_hash(f"{CHUNK_IDS - 1}")) is None
    memory = IdMemory(count_max=10**6, age_max_ms=CHUNK_IDS)
    for number in range(2 * CHUNK_IDS):
        memory.remember(id_hash(f"{number}"), 1, number, clock_ms=number)
    assert memory.find(id_hash("0")) == Settled(1, 0), (
        "its chunk has one that is not older than the bound"
    )
    memory.remember(id_hash("later"), 1, 1, clock_ms=2 * CHUNK_IDS)
    assert memory.find(id_hash("0")) is None


def test_an_id_that_is_remembered_again_counts_as_new() -> None:
    memory = IdMemory(count_max=3, age_max_ms=None)
    for step, id in enumerate(["a", "b", "a", "c"]):
        memory.remember(id_hash(id), step % 2, step, None)
    assert memory.find(id_hash("a")) == Settled(0, 2)
    assert memory.find(id_hash("b")) == Settled(1, 1)
    memory.remember(id_hash("d"), 0, 9, None)
    assert memory.find(id_hash("b")) is None
    assert memory.find(id_hash("a")) == restored(memory, 3).find(id_hash("a")) == Settled(0, 2)


def test_a_million_ids_take_less_than_forty_megabytes() -> None:
    memory = filled(200_000)
    arrays = [each for each in memory.snapshot().values() if hasattr(each, "nbytes")]
    index = memory._index
    indexed = [each for bucket in index._buckets for each in bucket]
    taken = sum(each.nbytes for each in [*arrays, *indexed, index._fresh, index._fresh_places])
    assert taken / 200_000 < 40
    assert len(index._recent) < CHUNK_IDS


def test_any_order_of_calls_agrees_with_a_dict() -> None:
    chance = random.Random(5)
    memory, model = IdMemory(6000, None), dict[str, Settled]()
    for step in range(20_000):
        id = f"{chance.randrange(30_000)}"
        model.pop(id, None)
        model[id] = Settled(step % 6, step)
        memory.remember(id_hash(id), step % 6, step, None)
        if step % 4999 == 0:
            memory = restored(memory, 6000)
    newest = {id: each for id, each in model.items() if each.step >= 20_000 - 6000}
    assert {
        id: memory.find(id_hash(id)) for id in model if memory.find(id_hash(id)) is not None
    } == newest


def test_a_snapshot_that_does_not_fit_together_is_refused() -> None:
    taken = filled(10).snapshot()
    with pytest.raises(SnapshotError, match="bounds of the id memory"):
        IdMemory.restore(10, None, taken | {"first": 11})
    with pytest.raises(SnapshotError, match="does not fit together"):
        IdMemory.restore(10, None, taken | {"ever": 9})


def test_the_oldest_chunk_is_forgotten_on_request_also_after_a_snapshot() -> None:
    memory = filled(2 * CHUNK_IDS + 3)
    taken = memory.state_bytes
    memory.forget_oldest()
    assert memory.state_bytes == taken - CHUNK_IDS * ids_module.ID_BYTES
    for each in (memory, restored(memory)):
        assert len(each) == CHUNK_IDS + 3
        assert each.find(id_hash(str(CHUNK_IDS - 1))) is None
        assert each.find(id_hash(str(CHUNK_IDS))) is not None
        assert each.can_forget
    memory.forget_oldest()
    assert (len(memory), memory.can_forget) == (3, False)
