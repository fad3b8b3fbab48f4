"""Streams by name: files in their order or shuffled, generated ones, halves and masks."""

from pathlib import Path

import pytest

from dtgol_core.streams import MOVING
from pipeline.errors import InputError
from pipeline.offline.compare import paper
from pipeline.offline.compare.jobs import RunBlock, plan
from pipeline.offline.compare.methods import choose
from pipeline.offline.compare.sources import (
    CHOSEN_ON,
    REPORTED_ON,
    StreamSource,
    files,
    generated,
    generated_moving,
    moving_files,
    rows_of,
)


def test_the_files_of_a_folder_are_sets_and_the_larger_ones_a_family_of_their_own(
    folder: Path,
) -> None:
    found = files(folder)
    assert [source.name for source in found] == ["Alpha", "beta", "magic04"]
    assert [source.family for source in found] == ["sets", "sets", "large"]
    assert [source.rows for source in found] == [150, 150, 150]


def test_the_files_of_the_folder_moving_are_never_shuffled(folder: Path) -> None:
    assert moving_files(folder) == []
    (folder / "moving").mkdir()
    (folder / "Alpha.csv").rename(folder / "moving" / "german.csv")
    (source,) = moving_files(folder)
    assert (source.name, source.family, source.shuffled) == ("german", "moving files", False)
    assert [row.number for row in rows_of(source, "none", 7)] == list(range(150))
    assert [each.name for each in files(folder)] == ["beta", "magic04"]


def test_clouds_are_generated_by_seed_with_half_of_the_cells_missing_if_asked_for() -> None:
    families = {source.name: source.family for source in generated_moving(400, 600)}
    assert set(families) == set(MOVING)
    assert [name for name, family in families.items() if family == "rare"] == ["rare"]
    source = next(each for each in generated_moving(400, 600) if each.name == "rotating")
    rows = rows_of(source, "none", 1)
    assert rows == rows_of.__wrapped__(source, "none", 1) != rows_of(source, "none", 2)
    assert all(len(row.record) == 6 for row in rows)
    half = sum(len(row.record) for row in rows_of(source, "0.5", 1)) / (6 * 400)
    assert half == pytest.approx(0.5, abs=0.05)


def test_a_file_keeps_its_order_unless_it_is_known_to_have_none(folder: Path) -> None:
    """Somebody's own rows are in the order of time; the paper's magic04 is sorted by class."""
    for source in files(folder):
        numbers = [row.number for row in rows_of(source, "none", 1)]
        assert (numbers == list(range(150))) == (source.name != "magic04")
        assert sorted(numbers) == list(range(150))
    kept, shuffled = files(folder)[0], files(folder, shuffle=True)[0]
    numbers = [row.number for row in rows_of(shuffled, "none", 1)]
    assert numbers != list(range(150))
    assert numbers != [row.number for row in rows_of(shuffled, "none", 2)]
    keys = {
        plan([RunBlock((each,), (10,), 1, ("main",))], choose(["naive"]))[0].key
        for each in (kept, shuffled)
    }
    assert len(keys) == 2


def test_of_the_papers_sets_two_have_an_order_in_time(tmp_path: Path) -> None:
    for name in paper.CER:
        (tmp_path / f"{name}.csv").write_text("a,label\n1,0\n")
    in_order = {source.name for source in files(tmp_path) if not source.shuffled}
    assert in_order - {"sea", "agrawal"} == {"LUdata", "chesswaka"}


def test_the_fifteen_streams_are_halved_in_alphabetical_order_whatever_the_case() -> None:
    order = sorted(CHOSEN_ON | REPORTED_ON, key=str.lower)
    assert len(order) == 15
    assert set(order) == set(paper.CER) | {source.name for source in generated(100)}
    assert frozenset(order[0::2]) == CHOSEN_ON


def test_a_folder_without_csv_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no CSV files"):
        files(tmp_path)


def test_masks_drop_the_same_cells_for_every_method() -> None:
    source = StreamSource("hyperplane", 50, change=25)
    once, again = rows_of(source, "pairs", 3), rows_of.__wrapped__(source, "pairs", 3)
    assert once == again
    assert all(len(row.record) == 5 for row in once)
    assert all(len(row.record) == 10 for row in rows_of(source, "none", 3))
