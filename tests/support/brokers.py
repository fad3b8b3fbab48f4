"""What the folders of tests that need a broker share."""

from pathlib import Path

import pytest


def mark_folder(items: list[pytest.Item], conftest: str) -> None:
    """Everything beside `conftest` needs a broker; `-m 'not broker'` leaves it out."""
    folder = Path(conftest).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.broker)
