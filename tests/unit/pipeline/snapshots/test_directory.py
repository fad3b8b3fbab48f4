"""The store in a directory: whole files or none, and what was left half written is swept away."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import StoreError
from pipeline.snapshots.directory import DirectoryStore


def test_a_failed_attempt_leaves_alone_what_another_has_written_since(tmp_path: Path) -> None:
    """A worker that was cut off and fails late: its successor has written the same content."""
    late, successor = DirectoryStore(tmp_path), DirectoryStore(tmp_path)
    late.write(0, {"part.aa": b"same", "part.bb": b"alone"})
    successor.write(0, {"part.aa": b"same"})
    late.discard(0, ["part.aa", "part.bb", "part.cc"])
    assert dict(late.read(0)) == {"part.aa": b"same"}


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


def test_a_directory_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file in the way")
    with pytest.raises(StoreError, match="cannot write snapshots"):
        DirectoryStore(tmp_path / "root").write(0, {"a": b"b"})


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """They hold ids and values of patients."""
    root = tmp_path / "snapshots" / "prefix"
    DirectoryStore(root).write(0, {"blob.s.aa": b"data"})
    made = [root.parent, root, root / "0", root / "0" / "blob.s.aa"]
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700, 0o700, 0o700, 0o600]
