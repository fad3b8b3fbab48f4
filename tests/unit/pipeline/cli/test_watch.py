"""The table of `dtgol watch`: it fits 80 columns, the lag stands first, numbers are whole."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from dtgol_core.config import EXPERT_NAMES
from pipeline.cli import dtgol
from pipeline.cli.options import open_target
from pipeline.cli.watch import Shown, behind, picture
from pipeline.ops.lag import Lag
from pipeline.ops.stream_table import Rate, StreamRow, View

TARGET = open_target("localhost:9092", "a-rather-long-prefix-of-somebody-")
LAGS = [
    Lag(group, topic, 123_456_789, behind, 0)
    for group, topics in TARGET.groups.items()
    for topic, behind in zip(topics, (7, 12_345_678, None), strict=False)
]
WEIGHTS = dict.fromkeys(EXPERT_NAMES, 0.1) | {"linear_fast": -0.75}


def stream(
    name: str, records: int = 10, cer: float | None = 0.25, naive: float | None = 0.5
) -> StreamRow:
    rate = Rate(0 if cer is None else 100, cer, naive)
    return StreamRow(name, records, 20, 10, 5, rate, rate, WEIGHTS, 2, 4)


def drawn(view: View, width: int) -> list[str]:
    file = io.StringIO()
    console = Console(width=width, file=file)
    console.print(picture(view, behind(TARGET, LAGS), console.width))
    return file.getvalue().splitlines()


LARGE = replace(stream("w" * 64, 87_654_321), scored=12_345_678, unverified=98_765_432)
VIEW = View((stream("ward-3"), LARGE), {"not-json": 1_234, "label-late": 3}, 0)


def test_it_fits_eighty_columns_and_shows_whole_numbers() -> None:
    lines = drawn(VIEW, 80)
    assert max(map(len, lines)) <= 80
    (row,) = (line for line in lines if line.startswith("www"))
    name, *cells = row.split()
    assert name.endswith("…")
    assert cells == ["87654321", "12345678", "0.250", "0.500", "98765432", "linear_fast", "-0.75"]
    (ward,) = (line for line in lines if line.startswith("ward-3 "))
    assert ward.split()[1:] == ["10", "5", "0.250", "0.500", "2", "linear_fast", "-0.75"]


def test_the_lag_stands_first_without_prefixes() -> None:
    lines = drawn(VIEW, 80)
    assert lines[0].split() == ["lag", "records", "not", "read"]
    assert lines[1].split() == ["worker", "on", "features", "123M", "7", "behind"]
    assert lines[3].split()[:3] == ["worker", "on", "journal"]
    assert lines[3].rstrip().endswith("nothing committed yet")
    assert lines[5].split()[-5:] == ["12345678", "since", "its", "last", "snapshot"]
    assert lines[6] == "dead letters: not-json 1234, label-late 3"
    heads = next(line for line in lines if line.startswith("stream"))
    assert lines.index(heads) > 6


def test_a_wide_terminal_shows_all() -> None:
    lines = drawn(VIEW, 160)
    heads = next(line for line in lines if line.startswith("stream"))
    assert {"predictions", "partitions", "experts"} <= set(heads.split())
    (ward,) = (line for line in lines if line.startswith("ward-3 "))
    assert "linear_fast -0.75, naive 0.10, paper 0.10" in ward
    assert max(map(len, lines)) <= 160


def test_no_predictions_are_said() -> None:
    assert drawn(View((), {}, 0), 80)[-2:] == ["", "no predictions yet"]


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("stream", ["a", "b", "c", "d"]),
        ("records", ["c", "b", "a", "d"]),
        ("cer", ["b", "a", "c", "d"]),
        ("gain", ["c", "b", "a", "d"]),
    ],
)
def test_streams_are_sorted_the_worst_or_the_largest_first(sort: str, order: list[str]) -> None:
    streams = (
        stream("d", 1, None, None),
        stream("a", 2, 0.2, 0.4),
        stream("b", 3, 0.5, 0.6),
        stream("c", 4, 0.1, 0.1),
    )
    view = View(streams, {}, 0)
    assert [each.stream for each in Shown((), sort).of(view).streams] == order
    assert [each.stream for each in Shown(("c", "a", "x"), "stream").of(view).streams] == ["a", "c"]


def test_an_unknown_order_is_refused() -> None:
    asked = CliRunner().invoke(dtgol, ["watch", "--sort", "beauty"])
    assert asked.exit_code == 2
    assert "'stream', 'records', 'unverified', 'cer', 'gain'" in asked.stderr
