"""docs/limits.md has every bound with its default: a setting that is one cannot be left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from dtgol_core.columns import LEVELS_MAX, MAGNITUDE_MAX
from dtgol_core.config import Config
from pipeline.kafka.writer import WAITING_BYTES_MAX, WAITING_MAX
from pipeline.learning.answered import LOST_MAX
from pipeline.learning.fold import PREDICTION_BYTES
from pipeline.learning.fold_config import RECORD_BYTES_MAX
from pipeline.learning.poison import CRASHES_MAX
from pipeline.ops.lag import COUNT_MAX
from pipeline.ops.stream_table import SCORES_MAX
from pipeline.settings.declaration import declared
from pipeline.snapshots.repository import KEPT

PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
BOUND = re.compile(
    r"_max(_ms)?$|^max_|^(expire|early|pending|settled)_|^idle_ms$|_buffer_records$|^window_rows$"
)


def bounds() -> Iterator[tuple[str, Any]]:
    """Every setting that is a bound by its name, with its default."""
    for section, item in declared():
        if BOUND.search(item.name):
            yield f"{section}.{item.name}", item.default
    for part in fields(Config):
        settings = getattr(Config(), part.name)
        if is_dataclass(settings):
            for item in fields(settings):
                if BOUND.search(item.name):
                    yield f"{part.name}.{item.name}", getattr(settings, item.name)


def in_words(name: str, value: Any) -> str:
    """A default as the page writes it."""
    if value is None:
        return "never"
    if name.endswith("_ms"):
        for unit, size in (("days", 86_400_000), ("min", 60_000), ("s", 1_000)):
            if value % size == 0:
                return f"{value // size} {unit}"
    if "_bytes_" in name:
        for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
            if value % size == 0:
                return f"{value // size} {unit}"
        return f"{value} bytes"
    return f"{value:,}"


def test_bounds_are_found_by_their_names() -> None:
    names = dict(bounds())
    assert {"limits.state_bytes_max", "delay.expire_ms", "streams.idle_ms"} <= names.keys()
    assert {"copula.max_columns", "worker.merge_buffer_records"} <= names.keys()
    assert len(names) > 25


@pytest.mark.parametrize(("name", "value"), list(bounds()))
def test_every_bound_stands_on_the_page_with_its_default(name: str, value: Any) -> None:
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith(f"| `{name}`")]
    assert len(rows) == 1, f"{name} has {len(rows)} rows in docs/limits.md"
    assert rows[0][1].strip(" |") == in_words(name, value)
    assert rows[0][2].strip(" |"), "what happens at it"


@pytest.mark.parametrize(
    "text",
    [
        f"| levels of one text feature | {LEVELS_MAX} |",
        f"| ±{MAGNITUDE_MAX:.0e} |".replace("e+", "e"),
        f"own headers | `record_bytes_max` and {PREDICTION_BYTES >> 10} KiB |",
        f"| crashes at one journal record, of whatever kind | {CRASHES_MAX} |",
        f"| snapshots kept | {KEPT} |",
        f"| {WAITING_MAX:,} records or {WAITING_BYTES_MAX >> 20} MiB |",
        f"{RECORD_BYTES_MAX:,} bytes of configuration",
        f"lost with its tail | {LOST_MAX:,} |",
        f"up to {COUNT_MAX:,} offsets of a partition",
        f"the newest {SCORES_MAX:,} scores",
    ],
)
def test_bounds_that_are_no_settings_are_as_in_the_code(text: str) -> None:
    assert text in " ".join(PAGE.split())
