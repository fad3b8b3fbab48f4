"""The journal in files: to the byte, in order, never with a hole."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import InputError, RefusalError
from pipeline.kafka.record import Record
from pipeline.ops import journal_archive
from pipeline.ops.doctor.findings import Status
from pipeline.ops.doctor.horizon import horizon_offset, judge_horizon
from pipeline.ops.journal_archive import JournalArchive, archive_partition
from topics.headers import Header

CONTENTS: list[tuple[bytes | None, bytes | None, list[Header]]] = [
    (b"k", b'{"id":1}', [("a", b"1"), ("a", b"\xff"), ("b", None)]),
    (None, None, []),
    (b"", b"", [("", b"")]),
    (b"\x00\xff", b"\x00" * 100, []),
]
RECORDS = [
    Record("journal", 0, offset, 1_000 + offset, *content)
    for offset, content in enumerate(CONTENTS * 5)
]


def test_records_come_back_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_archive, "FILE_RECORDS", 7)
    archive = JournalArchive(tmp_path / "new", "id")
    assert archive.append(0, RECORDS[:9], 0) == 9
    assert archive.append(0, RECORDS[9:], 9) == 11
    again = JournalArchive(tmp_path / "new", "id")
    assert [(each.first, each.end) for each in again.files(0)] == [
        (0, 7),
        (7, 9),
        (9, 16),
        (16, 20),
    ]
    assert list(again.read("journal", 0, 0, 99)) == RECORDS
    assert list(again.read("journal", 0, 5, 12)) == RECORDS[5:12]
    assert list(again.read("journal", 1, 0, 99)) == []
    assert all(file.path.stat().st_mode & 0o077 == 0 for file in again.files(0))


def test_a_hole_another_journal_and_damage_are_refused(tmp_path: Path) -> None:
    archive = JournalArchive(tmp_path, "id")
    archive.append(0, RECORDS[:3], 0)
    archive.append(0, RECORDS[5:6], 5)
    with pytest.raises(RefusalError, match="nothing between 3 and 5"):
        archive.files(0)
    with pytest.raises(RefusalError, match="another journal"):
        JournalArchive(tmp_path, "other")
    archive.append(1, RECORDS[:3], 0)
    (file,) = archive.files(1)
    file.path.write_bytes(file.path.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged"):
        list(archive.read("journal", 1, 0, 3))


def test_each_run_goes_on_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = [0, 12]
    monkeypatch.setattr(journal_archive, "watermarks", lambda *_: tuple(bounds))
    monkeypatch.setattr(journal_archive, "read_range", lambda *about: RECORDS[about[3] : about[4]])
    archive = JournalArchive(tmp_path, "id")
    assert archive_partition(archive, {}, "journal", 0) == 12
    assert archive_partition(archive, {}, "journal", 0) == 0
    bounds[:] = [10, 20]
    assert archive_partition(archive, {}, "journal", 0) == 8
    assert list(archive.read("journal", 0, 0, 20)) == RECORDS
    bounds[:] = [25, 30]
    with pytest.raises(RefusalError, match="ends at 20 and journal begins at 25"):
        archive_partition(archive, {}, "journal", 0)


@pytest.mark.parametrize(
    ("low", "snapshots", "offset"),
    [(0, [], 0), (0, [50], 0), (10, [5, 40, 90], 40), (10, [10], 10), (10, [5], None)],
)
def test_the_horizon_begins_where_nothing_of_the_journal_is_missing(
    low: int, snapshots: list[int], offset: int | None
) -> None:
    assert horizon_offset(low, snapshots) == offset


def test_the_horizon_is_one_sentence() -> None:
    day = 86_400_000
    assert judge_horizon(1, 0, None, 9).status is Status.OK
    assert judge_horizon(1, None, None, 9).status is Status.PROBLEM
    found = judge_horizon(1, 40, 0, 3 * day)
    assert found.text == "partition 1: predictions from journal offset 40 on, 3.0 days back"
