"""Files to compare methods on."""

from pathlib import Path

import pytest

from tests.support.comparisons import csv_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return csv_folder(tmp_path)
