"""PositionFile: what a process leaves when it dies at a record, and what it does not."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from pipeline.runtime.positions import SUFFIX, FatalRecord, PositionFile

fork = multiprocessing.get_context("fork")


def die(folder: Path, entered: bool, name: str) -> None:
    places = PositionFile(folder, name, 3)
    places.enter(1, 7)
    if not entered:
        places.leave(1)
    os.kill(os.getpid(), signal.SIGKILL)


def dead(folder: Path, entered: bool, name: str = "journal") -> None:
    """A process that died, in the middle of a record or not."""
    child = fork.Process(target=die, args=(folder, entered, name))
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL


def test_an_id_with_a_slash_is_no_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Seen: for three journals of ten, by the base64 of their ids, no death was ever counted."""
    name = "journal.ab/cd+ef/0123456789abw"
    dead(tmp_path, True, name)
    assert list(PositionFile(tmp_path, name, 3).of_dead_processes()) == [FatalRecord(1, 7)]
    assert caplog.text == ""


def test_what_the_dead_were_at_is_found_once(tmp_path: Path) -> None:
    dead(tmp_path, True)
    dead(tmp_path, False)
    places = PositionFile(tmp_path, "journal", 3)
    assert list(places.of_dead_processes()) == [FatalRecord(1, 7)]
    assert list(places.of_dead_processes()) == []


def test_the_living_and_other_journals_are_left_alone(tmp_path: Path) -> None:
    ours, theirs = PositionFile(tmp_path, "journal", 1), PositionFile(tmp_path, "journal", 1)
    theirs.enter(0, 5)
    other = PositionFile(tmp_path, "other", 1)
    other.enter(0, 5)
    assert list(ours.of_dead_processes()) == []
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 3


def test_a_process_that_ends_itself_leaves_nothing(tmp_path: Path) -> None:
    places = PositionFile(tmp_path, "journal", 1)
    places.enter(0, 5)
    places.close()
    assert list(tmp_path.iterdir()) == []


def test_files_are_for_their_user_alone(tmp_path: Path) -> None:
    PositionFile(tmp_path / "made", "journal", 1)
    (file,) = (tmp_path / "made").iterdir()
    modes = [path.stat().st_mode & 0o777 for path in (file.parent, file)]
    assert modes == [0o700, 0o600]


def test_without_a_folder_it_works_and_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    places = PositionFile(tmp_path / "file", "journal", 1)
    places.enter(0, 5)
    places.leave(0)
    assert "a death without an exception is not counted" in caplog.text
    assert list(places.of_dead_processes()) == []
