"""The first line of the live page: what is wrong comes before what is merely slow."""

from typing import Any

import pytest

from pipeline.runtime.verdict import verdict

READY: dict[str, Any] = {"ready": True, "lag": 0, "snapshot_failure": None, "parked": None}


@pytest.mark.parametrize(
    ("in_group", "reasons", "partitions", "level", "text"),
    [
        (False, ["it has not joined its group yet"], [], "starting", "joining its consumer group"),
        (True, [], [], "warning", "no partition"),
        (True, [], [READY, READY], "healthy", "2 partitions at work, 0 records behind"),
        (True, [], [READY | {"lag": 9, "sources_lag": 3}], "healthy", "12 records behind"),
        (True, [], [READY | {"snapshot_age_s": 7.2}], "healthy", "last snapshot 7 s ago"),
        (True, [], [READY | {"lag": 20_000}], "warning", "20,000 records behind"),
        (True, ["partition 0: restoring"], [READY | {"ready": False}], "starting", "restoring"),
        (
            True,
            ["the cluster does not answer for 60 s", "partition 0: restoring"],
            [READY | {"ready": False}],
            "wrong",
            "no progress",
        ),
        (True, ["why"], [READY, READY | {"parked": {"offset": 7}}], "wrong", "1 partition parked"),
        (True, ["disk full"], [READY | {"snapshot_failure": "disk full"}], "wrong", "snapshot"),
    ],
)
def test_the_verdict(
    in_group: bool, reasons: list[str], partitions: list[Any], level: str, text: str
) -> None:
    found = verdict(in_group, reasons, partitions)
    assert found["level"] == level
    assert text.replace("no progress", "not make progress") in found["text"]
    assert found["reasons"] == reasons
