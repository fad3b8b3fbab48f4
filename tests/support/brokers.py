"""The rule about missing brokers: skipped on a laptop, a failure in CI (`CI`, or
`DTGOL_REQUIRE_BROKER=1`). Every folder of tests that needs one has it from here.
"""

import os
from pathlib import Path
from typing import NoReturn

import pytest

NO = ("", "0", "false")


def broker_is_required() -> bool:
    """Whether a missing real broker is a failure and not a skip."""
    names = ("CI", "DTGOL_REQUIRE_BROKER")
    return any(os.environ.get(name, "").lower() not in NO for name in names)


def refuse(reason: str) -> NoReturn:
    """Skip, or fail where a real broker is required."""
    if broker_is_required():
        pytest.fail(f"a real broker is required here. {reason}", pytrace=False)
    pytest.skip(reason)


def mark_folder(items: list[pytest.Item], conftest: str) -> None:
    """Everything beside `conftest` needs a broker; `-m 'not broker'` leaves it out."""
    folder = Path(conftest).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.broker)
