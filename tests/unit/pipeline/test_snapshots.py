"""Snapshots: a torn write is never one, damage falls back, a snapshot costs what has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from pipeline.fold import Fold, FoldSnapshot
from pipeline.snapshots import RefusalError, Shelf, StoreError
from pipeline.stores.directory import DirectoryStore
from tests.support.journal import PLACE, Journal, fold_all
from topics.journal import Reset

IDENTITY = {"cluster": "c", "journal": "j"}


class Failing(DirectoryStore):
    """A directory on which the next writes fail: before anything, or before the manifest."""

    fail = ""

    def write(self, partition: int, objects: Mapping[str, bytes]) -> None:
        if any(name.startswith(self.fail) for name in objects if self.fail):
            raise StoreError("no space left on device")
        super().write(partition, objects)

    def remove(self, partition: int, names: Iterable[str]) -> None:
        super().remove(partition, names)


def shelf(root: Path, identity: Mapping[str, str] | None = None) -> Shelf:
    return Shelf(DirectoryStore(root), 0, identity or IDENTITY)


def load(root: Path) -> Fold | None:
    return shelf(root).load(lambda state, streams: Fold.restore(PLACE, state, streams))


def save(keeper: Shelf, fold: Fold) -> FoldSnapshot:
    taken = fold.snapshot(keeper.stored)
    keeper.save(taken.next_offset, taken.state, taken.streams)
    return taken


def grow(journal: Journal, fold: Fold, count: int, stream: str = "default") -> None:
    start = len(journal.records)
    for number in range(start, start + count):
        fold.apply(
            journal.features(f"id{number}", {"v": number % 7, "w": "ab"[number % 2]}, stream=stream)
        )
        if number % 3 == 0:
            fold.apply(journal.label(f"id{number}", number % 2, stream=stream))


def test_what_is_saved_comes_back_to_the_bit(tmp_path: Path) -> None:
    journal, fold = Journal(), Fold(PLACE)
    grow(journal, fold, 40)
    fold.apply(journal.label("early", 1))
    save(shelf(tmp_path), fold)
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == fold.digest()
    assert found.streams["default"].held.keys() == {"early"}


def test_nothing_there_is_no_state(tmp_path: Path) -> None:
    assert load(tmp_path) is None


def test_only_changed_streams_and_new_blocks_are_written(tmp_path: Path) -> None:
    journal, fold, keeper = Journal(), Fold(PLACE), shelf(tmp_path)
    grow(journal, fold, 600, "big")
    grow(journal, fold, 5, "small")
    taken = fold.snapshot(keeper.stored)
    first = keeper.save(taken.next_offset, taken.state, taken.streams)
    grow(journal, fold, 1, "small")
    taken = fold.snapshot(keeper.stored)
    assert list(taken.streams) == ["small"]
    second = keeper.save(taken.next_offset, taken.state, taken.streams)
    assert (first.objects_written, second.objects_written) == (5, 2)
    grow(journal, fold, 1, "big")
    taken = fold.snapshot(keeper.stored)
    third = keeper.save(taken.next_offset, taken.state, taken.streams)
    assert third.objects_written == 2
    assert third.bytes_written < first.bytes_written * 0.8
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == fold.digest()


def test_the_last_three_manifests_and_what_they_name_are_kept(tmp_path: Path) -> None:
    journal, fold, keeper = Journal(), Fold(PLACE), shelf(tmp_path)
    for _ in range(6):
        grow(journal, fold, 2)
        save(keeper, fold)
    names = [path.name for path in (tmp_path / "0").iterdir()]
    assert sum(name.startswith("manifest.") for name in names) == 3
    assert sum(name.startswith("blob.") for name in names) == 3


@pytest.mark.parametrize("victim", ["manifest.", "blob."])
@pytest.mark.parametrize("wound", ["cut", "flip", "gone"])
def test_a_damaged_newest_snapshot_gives_way_to_the_one_before(
    tmp_path: Path, victim: str, wound: str
) -> None:
    journal, fold, keeper = Journal(), Fold(PLACE), shelf(tmp_path)
    grow(journal, fold, 10)
    save(keeper, fold)
    before = fold.digest()
    old = {path.name for path in (tmp_path / "0").iterdir()}
    grow(journal, fold, 10)
    save(keeper, fold)
    (newest,) = (
        path
        for path in (tmp_path / "0").iterdir()
        if path.name.startswith(victim) and path.name not in old
    )
    data = newest.read_bytes()
    if wound == "gone":
        newest.unlink()
    else:
        newest.write_bytes(
            data[:-9] if wound == "cut" else data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        )
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == before
    rest = [record for record in journal.records if record.offset >= found.next_offset]
    again, _ = fold_all(rest, found)
    assert again.digest() == fold.digest()


def test_after_a_fall_back_the_damaged_one_is_replaced(tmp_path: Path) -> None:
    journal, fold, keeper = Journal(), Fold(PLACE), shelf(tmp_path)
    for _ in range(2):
        grow(journal, fold, 5)
        save(keeper, fold)
    newest = max(path for path in (tmp_path / "0").iterdir() if path.name.startswith("manifest."))
    newest.write_bytes(b"{}")
    keeper = shelf(tmp_path)
    found = keeper.load(lambda state, streams: Fold.restore(PLACE, state, streams))
    assert found is not None
    fold_all([record for record in journal.records if record.offset >= found.next_offset], found)
    save(keeper, found)
    healed = load(tmp_path)
    assert healed is not None
    assert healed.digest() == fold.digest()


@pytest.mark.parametrize("victim", ["part.", "blob."])
def test_damage_is_never_built_upon(tmp_path: Path, victim: str) -> None:
    """Blocks of the delay table are written once: one that is damaged must be written again."""
    journal, fold, keeper = Journal(), Fold(PLACE), shelf(tmp_path)
    grow(journal, fold, 10)
    save(keeper, fold)
    grow(journal, fold, 600)
    save(keeper, fold)
    before = fold.digest()
    for path in (tmp_path / "0").glob(f"{victim}*"):
        path.write_bytes(path.read_bytes()[:-1])
    keeper = shelf(tmp_path)
    found = keeper.load(lambda state, streams: Fold.restore(PLACE, state, streams))
    replayed, _ = fold_all(
        [each for each in journal.records if found is None or each.offset >= found.next_offset],
        found,
    )
    assert replayed.digest() == before
    save(keeper, replayed)
    healed = load(tmp_path)
    assert healed is not None
    assert healed.digest() == before


@pytest.mark.parametrize("torn", ["blob.", "manifest."])
def test_a_failed_attempt_leaves_no_objects_behind(tmp_path: Path, torn: str) -> None:
    journal, fold, store = Journal(), Fold(PLACE), Failing(tmp_path)
    keeper = Shelf(store, 0, IDENTITY)
    grow(journal, fold, 600, "big")
    save(keeper, fold)
    before = {path.name for path in (tmp_path / "0").iterdir()}
    store.fail = torn
    for _ in range(3):
        grow(journal, fold, 300, "big")
        with pytest.raises(StoreError, match="no space"):
            save(keeper, fold)
        assert {path.name for path in (tmp_path / "0").iterdir()} == before


def test_a_failed_attempt_leaves_alone_what_another_has_written_since(tmp_path: Path) -> None:
    """A worker that was cut off and fails late: its successor has written the same content."""
    late, successor = DirectoryStore(tmp_path), DirectoryStore(tmp_path)
    late.write(0, {"part.aa": b"same", "part.bb": b"alone"})
    successor.write(0, {"part.aa": b"same"})
    late.discard(0, ["part.aa", "part.bb", "part.cc"])
    assert dict(late.read(0)) == {"part.aa": b"same"}


@pytest.mark.parametrize("torn", ["blob.", "manifest."])
def test_a_torn_write_is_never_a_snapshot(tmp_path: Path, torn: str) -> None:
    journal, fold = Journal(), Fold(PLACE)
    store = Failing(tmp_path)
    keeper = Shelf(store, 0, IDENTITY)
    grow(journal, fold, 5)
    save(keeper, fold)
    before = fold.digest()
    grow(journal, fold, 5)
    store.fail = torn
    with pytest.raises(StoreError, match="no space"):
        save(keeper, fold)
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == before
    store.fail = ""
    save(keeper, fold)
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == fold.digest()


def test_an_unfinished_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "manifest.1.abc.17.unfinished").write_bytes(b"half")
    assert load(tmp_path) is None


def test_what_a_killed_writer_left_half_written_is_swept_away(tmp_path: Path) -> None:
    left = tmp_path / "0" / "blob.s.abc.17.unfinished"
    left.parent.mkdir()
    left.write_bytes(b"half")
    elsewhere = tmp_path / "1" / left.name
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(b"half")
    store = DirectoryStore(tmp_path)
    store.write(0, {"manifest.1.abc": b"whole"})
    assert not left.exists()
    assert elsewhere.exists()  # another partition may have another writer
    assert dict(store.read(0)) == {"manifest.1.abc": b"whole"}


def test_snapshots_of_another_cluster_are_refused(tmp_path: Path) -> None:
    journal, fold = Journal(), Fold(PLACE)
    grow(journal, fold, 2)
    save(shelf(tmp_path), fold)
    other = shelf(tmp_path, {"cluster": "other", "journal": "j"})
    with pytest.raises(RefusalError, match="another cluster"):
        other.load(lambda state, streams: Fold.restore(PLACE, state, streams))


def test_two_writers_of_one_prefix_write_the_same_objects(tmp_path: Path) -> None:
    journal, fold = Journal(), Fold(PLACE)
    grow(journal, fold, 30)
    twin, _ = fold_all(journal.records)
    digests = []
    for side, each in (("a", fold), ("b", twin)):
        taken = each.snapshot()
        digests.append(shelf(tmp_path / side).save(taken.next_offset, *taken).digest)
    assert digests[0] == digests[1]
    listed = [{p.name for p in (tmp_path / side / "0").iterdir()} for side in "ab"]
    assert listed[0] == listed[1]


def test_a_reset_stream_does_not_get_blocks_of_its_former_life(tmp_path: Path) -> None:
    journal, fold, keeper = Journal(), Fold(PLACE), shelf(tmp_path)
    grow(journal, fold, 300)
    save(keeper, fold)
    fold.apply(journal.control(Reset()))
    grow(journal, fold, 300)
    save(keeper, fold)
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == fold.digest()


def test_a_directory_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file in the way")
    with pytest.raises(StoreError, match="cannot write snapshots"):
        DirectoryStore(tmp_path / "root").write(0, {"a": b"b"})
