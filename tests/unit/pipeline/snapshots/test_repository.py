"""Snapshots: a torn write is never one, damage falls back, a snapshot costs what has changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dtgol_core import state
from pipeline.errors import RefusalError, StoreError
from pipeline.learning.fold import Fold
from pipeline.snapshots.directory import DirectoryStore
from pipeline.snapshots.manifest import PREFIX, VERSION, content_hash, find_snapshots
from pipeline.snapshots.repository import Archive, SaveResult, SnapshotRepository
from tests.support.journal import REF, Journal, fold_all, restore_fold
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


def open_at(root: Path, identity: Mapping[str, str] | None = None) -> SnapshotRepository:
    return SnapshotRepository(DirectoryStore(root), 0, identity or IDENTITY)


def load(root: Path) -> Fold | None:
    return open_at(root).load(restore_fold)


def save(repository: SnapshotRepository, fold: Fold) -> SaveResult:
    return repository.save(fold.snapshot_changed(repository.stored))


def grow(journal: Journal, fold: Fold, count: int, stream: str = "default") -> None:
    start = len(journal.records)
    for number in range(start, start + count):
        fold.apply(
            journal.features(f"id{number}", {"v": number % 7, "w": "ab"[number % 2]}, stream=stream)
        )
        if number % 3 == 0:
            fold.apply(journal.label(f"id{number}", number % 2, stream=stream))


def test_what_is_saved_comes_back_to_the_bit(tmp_path: Path) -> None:
    journal, fold = Journal(), Fold(REF)
    grow(journal, fold, 40)
    fold.apply(journal.label("early", 1))
    save(open_at(tmp_path), fold)
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == fold.digest()
    assert found.streams["default"].early.keys() == {"early"}


def test_nothing_there_is_no_state(tmp_path: Path) -> None:
    assert load(tmp_path) is None


def test_only_changed_streams_and_new_blocks_are_written(tmp_path: Path) -> None:
    journal, fold, repository = Journal(), Fold(REF), open_at(tmp_path)
    grow(journal, fold, 600, "big")
    grow(journal, fold, 5, "small")
    first = save(repository, fold)
    grow(journal, fold, 1, "small")
    taken = fold.snapshot_changed(repository.stored)
    assert list(taken.changed) == ["small"]
    assert set(taken.versions) == {"big", "small"}
    second = repository.save(taken)
    assert (first.objects_written, second.objects_written) == (5, 2)
    grow(journal, fold, 1, "big")
    third = save(repository, fold)
    assert third.objects_written == 2
    assert third.bytes_written < first.bytes_written * 0.8
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == fold.digest()


def test_the_last_three_manifests_and_what_they_name_are_kept(tmp_path: Path) -> None:
    journal, fold, repository = Journal(), Fold(REF), open_at(tmp_path)
    for _ in range(6):
        grow(journal, fold, 2)
        save(repository, fold)
    names = [path.name for path in (tmp_path / "0").iterdir()]
    assert sum(name.startswith("manifest.") for name in names) == 3
    assert sum(name.startswith("blob.") for name in names) == 3


@pytest.mark.parametrize("victim", ["manifest.", "blob."])
@pytest.mark.parametrize("wound", ["cut", "flip", "gone"])
def test_a_damaged_newest_snapshot_gives_way_to_the_one_before(
    tmp_path: Path, victim: str, wound: str
) -> None:
    journal, fold, repository = Journal(), Fold(REF), open_at(tmp_path)
    grow(journal, fold, 10)
    save(repository, fold)
    before = fold.digest()
    old = {path.name for path in (tmp_path / "0").iterdir()}
    grow(journal, fold, 10)
    save(repository, fold)
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
    journal, fold, repository = Journal(), Fold(REF), open_at(tmp_path)
    for _ in range(2):
        grow(journal, fold, 5)
        save(repository, fold)
    newest = max(path for path in (tmp_path / "0").iterdir() if path.name.startswith("manifest."))
    newest.write_bytes(b"{}")
    repository = open_at(tmp_path)
    found = repository.load(restore_fold)
    assert found is not None
    fold_all([record for record in journal.records if record.offset >= found.next_offset], found)
    save(repository, found)
    healed = load(tmp_path)
    assert healed is not None
    assert healed.digest() == fold.digest()


@pytest.mark.parametrize("victim", ["part.", "blob."])
def test_damage_is_never_built_upon(tmp_path: Path, victim: str) -> None:
    """Blocks of the delay table are written once: one that is damaged must be written again."""
    journal, fold, repository = Journal(), Fold(REF), open_at(tmp_path)
    grow(journal, fold, 10)
    save(repository, fold)
    grow(journal, fold, 600)
    save(repository, fold)
    before = fold.digest()
    for path in (tmp_path / "0").glob(f"{victim}*"):
        path.write_bytes(path.read_bytes()[:-1])
    repository = open_at(tmp_path)
    found = repository.load(restore_fold)
    replayed, _ = fold_all(
        [each for each in journal.records if found is None or each.offset >= found.next_offset],
        found,
    )
    assert replayed.digest() == before
    save(repository, replayed)
    healed = load(tmp_path)
    assert healed is not None
    assert healed.digest() == before


@pytest.mark.parametrize("torn", ["blob.", "manifest."])
def test_a_failed_attempt_leaves_no_objects_behind(tmp_path: Path, torn: str) -> None:
    journal, fold, store = Journal(), Fold(REF), Failing(tmp_path)
    repository = SnapshotRepository(store, 0, IDENTITY)
    grow(journal, fold, 600, "big")
    save(repository, fold)
    before = {path.name for path in (tmp_path / "0").iterdir()}
    store.fail = torn
    for _ in range(3):
        grow(journal, fold, 300, "big")
        with pytest.raises(StoreError, match="no space"):
            save(repository, fold)
        assert {path.name for path in (tmp_path / "0").iterdir()} == before


@pytest.mark.parametrize("torn", ["blob.", "manifest."])
def test_a_torn_write_is_never_a_snapshot(tmp_path: Path, torn: str) -> None:
    journal, fold = Journal(), Fold(REF)
    store = Failing(tmp_path)
    repository = SnapshotRepository(store, 0, IDENTITY)
    grow(journal, fold, 5)
    save(repository, fold)
    before = fold.digest()
    grow(journal, fold, 5)
    store.fail = torn
    with pytest.raises(StoreError, match="no space"):
        save(repository, fold)
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == before
    store.fail = ""
    save(repository, fold)
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == fold.digest()


def test_an_unfinished_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "manifest.1.abc.17.unfinished").write_bytes(b"half")
    assert load(tmp_path) is None


def test_snapshots_of_another_cluster_are_refused(tmp_path: Path) -> None:
    journal, fold = Journal(), Fold(REF)
    grow(journal, fold, 2)
    save(open_at(tmp_path), fold)
    other = open_at(tmp_path, {"cluster": "other", "journal": "j"})
    with pytest.raises(RefusalError, match="another cluster"):
        other.load(restore_fold)


def test_after_growth_the_way_on_is_named_and_it_is_not_an_empty_store(tmp_path: Path) -> None:
    """With an empty store keys would come to learners that do not know them."""
    identity: dict[str, Any] = {"cluster": "c", "partition count": 1}
    journal, fold = Journal(), Fold(REF)
    grow(journal, fold, 2)
    save(SnapshotRepository(DirectoryStore(tmp_path), 0, identity), fold)
    grown = SnapshotRepository(DirectoryStore(tmp_path), 0, identity | {"partition count": 2})
    with pytest.raises(RefusalError, match="see Partition counts in docs") as refusal:
        grown.load(restore_fold)
    assert "(1, not 2)" in str(refusal.value)
    assert "empty snapshot store" not in str(refusal.value)


def test_two_writers_of_one_prefix_write_the_same_objects(tmp_path: Path) -> None:
    journal, fold = Journal(), Fold(REF)
    grow(journal, fold, 30)
    twin, _ = fold_all(journal.records)
    digests = []
    for side, each in (("a", fold), ("b", twin)):
        digests.append(save(open_at(tmp_path / side), each).digest)
    assert digests[0] == digests[1]
    listed = [{p.name for p in (tmp_path / side / "0").iterdir()} for side in "ab"]
    assert listed[0] == listed[1]


def test_a_reset_stream_does_not_get_blocks_of_its_former_life(tmp_path: Path) -> None:
    journal, fold, repository = Journal(), Fold(REF), open_at(tmp_path)
    grow(journal, fold, 300)
    save(repository, fold)
    fold.apply(journal.control(Reset()))
    grow(journal, fold, 300)
    save(repository, fold)
    found = load(tmp_path)
    assert found is not None
    assert found.digest() == fold.digest()


def test_a_stored_blob_counts_only_in_the_version_that_is_stored(tmp_path: Path) -> None:
    journal, fold, repository = Journal(), Fold(REF), open_at(tmp_path)
    grow(journal, fold, 3)
    assert repository.stored == {}
    save(repository, fold)
    assert repository.stored == {"default": fold.streams["default"].next_offset}
    again = open_at(tmp_path)
    again.load(restore_fold)
    assert again.stored == repository.stored


@pytest.mark.parametrize("kind", ["blob", "state"])
def test_a_blob_or_state_of_a_newer_format_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    """It was taken for damage, an older state was folded on, and it was removed."""
    journal, fold = Journal(), Fold(REF)
    grow(journal, fold, 3)
    newer = fold.snapshot()
    if kind == "state":
        newer.state["version"] = 99
    repository = open_at(tmp_path)
    if kind == "blob":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(state, "VERSION", 99)
            repository.save(newer)
    else:
        repository.save(newer)
    before = sorted(path.name for path in (tmp_path / "0").iterdir())
    with pytest.raises(RefusalError, match=r"has format 99 .* upgrade before restoring it"):
        load(tmp_path)
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == before


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_another_format_is_named_and_a_newer_one_refused(
    tmp_path: Path, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An older state may be folded again from the journal; a newer one must not be overwritten."""
    journal, fold, repository = Journal(), Fold(REF), open_at(tmp_path)
    grow(journal, fold, 3)
    saved = save(repository, fold)
    path = tmp_path / "0" / saved.name
    data = path.read_bytes().replace(b'{"version":%d' % VERSION, b'{"version":%d' % version, 1)
    path.unlink()
    (path.parent / f"{PREFIX}{saved.next_offset:020d}.{content_hash(data)}").write_bytes(data)
    if version > VERSION:
        with pytest.raises(RefusalError, match=f"has format {version} .* upgrade before going on"):
            load(tmp_path)
    else:
        assert load(tmp_path) is None
        assert f"has the old format {version}" in caplog.text


def test_the_first_snapshot_of_every_period_is_archived(tmp_path: Path) -> None:
    """Three snapshots were all that an audit could begin from."""
    store = DirectoryStore(tmp_path)
    repository = SnapshotRepository(store, 0, IDENTITY, archive=Archive(every_ms=10_000, kept=3))
    journal, fold = Journal(), Fold(REF)
    saved = []
    for number in range(60):
        fold.apply(journal.features(f"id{number}", {"v": number}))
        saved.append((fold.append_ms // 10_000, save(repository, fold).name))
        if number == 33:
            repository = SnapshotRepository(store, 0, IDENTITY, archive=Archive(10_000, 3))
            repository.load(restore_fold)
    first = dict(reversed(saved))
    periods = sorted(first)[-3:]
    expected = {first[period] for period in periods} | {name for _, name in saved[-3:]}
    found = find_snapshots(store.read(0))
    assert {each.name for each in found} == expected
    assert all(each.damage is None for each in found)
    assert len(expected) > 3


def test_without_an_archive_three_are_kept(tmp_path: Path) -> None:
    journal, fold = Journal(), Fold(REF)
    repository = open_at(tmp_path)
    for number in range(30):
        fold.apply(journal.features(f"id{number}", {"v": number}))
        save(repository, fold)
    assert len(find_snapshots(DirectoryStore(tmp_path).read(0))) == 3
